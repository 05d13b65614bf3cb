//! `Idempotency-Key`: a request that changes something, sent twice under one key, is done once and answered twice. What became of it is a
//! register of the store, so it holds for every instance and over a crash.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use hapax_domain::limits::{BODY_TIMEOUT_MS, REQUEST_ID_MAX_BYTES};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use serde::{Deserialize, Serialize};

use super::audit::noted;
use super::auth::hash_token;
use super::{Api, Caller, Code, Problem, REQUEST_MAX_BYTES};

pub(super) const KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// So long a key is remembered.
const KEEP_MS: i64 = 86_400_000;
/// A request that has not ended by then was cut by a crash.
const RUN_MAX_MS: i64 = 120_000;
/// The largest answer that is kept.
const KEPT_MAX_BYTES: usize = 128 << 10;
/// Another may be changing the same register, but hardly this often.
const TRIES: u32 = 8;

/// Put beside an answer when nobody can say whether it was done.
#[derive(Clone, Copy, Debug)]
pub(super) struct InDoubt;

/// What a register says of a key.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Entry {
    /// Of method, path, query and body.
    request: String,
    /// Whose token.
    by: String,
    path: String,
    begun_ms: i64,
    #[serde(flatten)]
    stage: Stage,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
enum Stage {
    /// Tells tries apart.
    Running {
        run: String,
    },
    /// The answer, readable with the caller's token alone; `None`: it was too long.
    Done {
        answer: Option<String>,
    },
    InDoubt,
}

/// The caller's key, if there is one: bare, or as a quoted text (RFC 8941).
pub(super) fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut keys = headers.get_all(KEY).iter();
    let key = match (keys.next(), keys.next()) {
        (None, _) => return Ok(None),
        (Some(key), None) => key.to_str().ok().and_then(unquote).ok_or_else(|| {
            Problem::bad_request("`Idempotency-Key` cannot be read; send it bare or as a quoted text of ASCII characters")
        })?,
        (Some(_), Some(_)) => return Err(Problem::bad_request("send one `Idempotency-Key` header, not several")),
    };
    Ok(Some(key))
}

/// Refuses a name for a request that nobody could keep.
pub(super) fn check(key: &str) -> Result<(), Problem> {
    if key.trim().is_empty() || key.len() > REQUEST_ID_MAX_BYTES || key.chars().any(char::is_control) {
        return Err(Problem::unprocessable(format!(
            "a request id has 1 to {REQUEST_ID_MAX_BYTES} bytes and no control characters, this one has {} bytes; a UUID does well",
            key.len()
        )));
    }
    Ok(())
}

/// Reads `"abc"` or `abc`.
fn unquote(value: &str) -> Option<String> {
    let value = value.trim();
    let Some(rest) = value.strip_prefix('"') else { return Some(value.to_owned()) };
    let mut text = String::with_capacity(rest.len());
    let mut signs = rest.chars();
    loop {
        match signs.next()? {
            '"' => return signs.as_str().is_empty().then_some(text),
            '\\' => text.push(signs.next().filter(|sign| matches!(sign, '"' | '\\'))?),
            sign => text.push(sign),
        }
    }
}

/// Whether requests to this path (below `/v1`) are named in another way: messages by `request_id`, claims by their key, leases by themselves.
pub(super) fn has_key_of_its_own(path: &str) -> bool {
    let mut parts = path.trim_matches('/').split('/');
    match parts.next() {
        Some("messages") => parts.next().is_none(),
        Some("claims" | "pull" | "settle" | "extend") => true,
        _ => false,
    }
}

/// Whether doing it once more changes nothing that the first time has not changed.
fn is_repeatable(path: &str) -> bool {
    matches!(
        path.rsplit('/').next(),
        Some("cancel" | "read" | "pause" | "resume" | "purge" | "trigger" | "seen" | "reload" | "forget")
    )
}

/// Where a person sees whether it was done.
fn look_at(path: &str) -> String {
    match path.trim_matches('/').split('/').collect::<Vec<_>>()[..] {
        ["events", id, "replay"] => format!("GET /v1/events/{id}/story tells whether it was delivered once more"),
        ["messages", id, ..] => format!("GET /v1/messages/{id} tells every try"),
        ["tokens"] => "GET /v1/tokens tells whether it was made; revoke it then, for nobody has seen it".to_owned(),
        ["redrive"] => "GET /v1/inbox tells what is parked".to_owned(),
        _ => "a GET of the same resource tells how it stands".to_owned(),
    }
}

/// Does a request with a key once, and notes it.
pub(super) async fn once(api: Arc<Api>, caller: Caller, request: Request, next: Next) -> Result<Response, Problem> {
    let key = match key(request.headers())? {
        Some(key) if request.method() == Method::POST && !has_key_of_its_own(request.uri().path()) => key,
        _ => return Ok(noted(api, caller, request, next).await),
    };
    check(&key)?;
    let (head, body) = request.into_parts();
    let slow = |_| Problem::new(Code::BodyTimeout, "the body came too slowly; send it again");
    let body =
        tokio::time::timeout(Duration::from_millis(BODY_TIMEOUT_MS), to_bytes(body, REQUEST_MAX_BYTES)).await.map_err(slow)?;
    let body = body
        .map_err(|_| Problem::new(Code::TooLarge, format!("the body was cut off, or has more than {REQUEST_MAX_BYTES} bytes")))?;
    let path = head.uri.path().to_owned();
    let token = head.headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default().to_vec();
    let entry = Entry {
        request: hash(&[head.method.as_str().as_bytes(), head.uri.to_string().as_bytes(), &body]),
        by: caller.name.to_string(),
        path: path.clone(),
        begun_ms: api.clock.now_ms(),
        stage: Stage::Running { run: hex::encode(rand::random::<[u8; 8]>()) },
    };
    let who = hash_token(&String::from_utf8_lossy(&token));
    let name = format!("idempotency/{}", hash(&[&who, path.as_bytes(), key.as_bytes()]));
    let seal = Seal(blake3::derive_key("hapax answers kept for a key", &[&token[..], b"\0", key.as_bytes()].concat()));
    let running = match begin(&api, &name, entry, &seal).await? {
        Begun::Ours(running) => running,
        Begun::Answer(response) => return Ok(response),
    };
    let request = Request::from_parts(head, Body::from(body));
    // Who hangs up in the middle finds the answer when it asks again.
    let task = tokio::spawn(async move {
        let response = noted(Arc::clone(&api), caller, request, next).await;
        end(&api, &name, &running, response, &seal).await
    });
    task.await.map_err(|_| Problem::new(Code::StoreRefused, format!("it broke off in the middle; {}", look_at(&path))))
}

enum Begun {
    /// It is ours to do: the register as we left it.
    Ours(String),
    Answer(Response),
}

/// Takes the key, or says what became of it.
async fn begin(api: &Api, name: &str, entry: Entry, seal: &Seal) -> Result<Begun, Problem> {
    let running = write(&entry);
    let mut expected: Option<String> = None;
    for _ in 0..TRIES {
        let now = api.store.amend(name, expected.as_deref(), Some(&running), Some(KEEP_MS)).await?;
        let Some(text) = now else { continue };
        if text == running {
            return Ok(Begun::Ours(running));
        }
        let Ok(known) = serde_json::from_str::<Entry>(&text) else { return Err(in_doubt(&entry.path)) };
        if known.request != entry.request {
            let detail = "this `Idempotency-Key` was used for another request to the same path; a new request needs a new key";
            return Err(Problem::new(Code::IdempotencyMismatch, detail));
        }
        match known.stage {
            Stage::Done { answer: Some(answer) } => {
                return seal.open(&answer).and_then(replayed).map(Begun::Answer).ok_or_else(|| in_doubt(&entry.path));
            }
            Stage::Done { answer: None } => {
                let detail = format!("it was done, and its answer was too long to keep; {}", look_at(&entry.path));
                return Err(Problem::new(Code::IdempotencyInDoubt, detail));
            }
            Stage::Running { .. } if entry.begun_ms - known.begun_ms < RUN_MAX_MS => {
                let detail = "the request with this key is still running; ask again for its answer";
                return Err(Problem::new(Code::IdempotencyInProgress, detail).retry_after(1));
            }
            Stage::Running { .. } | Stage::InDoubt if is_repeatable(&entry.path) => expected = Some(text),
            Stage::Running { .. } | Stage::InDoubt => return Err(in_doubt(&entry.path)),
        }
    }
    Err(Problem::new(Code::IdempotencyInProgress, "others use this key at the same time; ask again").retry_after(1))
}

fn in_doubt(path: &str) -> Problem {
    let detail = format!(
        "the first request with this key was cut off, and may have been done; {}. To do it once more, use a new key",
        look_at(path)
    );
    Problem::new(Code::IdempotencyInDoubt, detail)
}

/// Writes down what became of it. What was refused has changed nothing, and is judged anew when it is asked again.
async fn end(api: &Api, name: &str, running: &str, response: Response, seal: &Seal) -> Response {
    let doubtful = response.extensions().get::<InDoubt>().is_some();
    let (response, answer) = match response.status().is_success() {
        true => keep(response).await,
        false => (response, None),
    };
    let stage = match response.status().is_success() {
        true => Some(Stage::Done { answer: answer.map(|answer| seal.close(&answer)) }),
        false => doubtful.then_some(Stage::InDoubt),
    };
    let entry = serde_json::from_str::<Entry>(running).ok().zip(stage).map(|(entry, stage)| write(&Entry { stage, ..entry }));
    let kept = api.store.amend(name, Some(running), entry.as_deref(), entry.as_ref().map(|_| KEEP_MS)).await;
    if let Err(error) = kept {
        // It stays marked as running: whoever asks again is told to look.
        api.telemetry.store_unavailable("amend", &error);
    }
    response
}

/// Status, headers that matter and body, in one piece.
async fn keep(response: Response) -> (Response, Option<Vec<u8>>) {
    let (head, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let text = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    let about = [head.status.as_str(), text(header::CONTENT_TYPE), text(header::LOCATION)].join("\n");
    let kept = (body.len() <= KEPT_MAX_BYTES).then(|| [about.as_bytes(), b"\n", &body].concat());
    (Response::from_parts(head, Body::from(body)), kept)
}

fn replayed(kept: Vec<u8>) -> Option<Response> {
    let mut parts = kept.splitn(4, |byte| *byte == b'\n');
    let (status, content_type, location, body) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let mut response = Response::new(Body::from(Bytes::copy_from_slice(body)));
    *response.status_mut() = StatusCode::from_bytes(status).ok()?;
    for (name, value) in [(header::CONTENT_TYPE, content_type), (header::LOCATION, location)] {
        if !value.is_empty() {
            response.headers_mut().insert(name, HeaderValue::from_bytes(value).ok()?);
        }
    }
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Some(response)
}

fn write(entry: &Entry) -> String {
    serde_json::to_string(entry).unwrap_or_default()
}

fn hash(parts: &[&[u8]]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.finalize().to_hex().to_string()
}

/// Answers may hold secrets (a token that was made), and the store must not: only who has the caller's token and key can read them.
struct Seal([u8; 32]);

impl Seal {
    const CHECK_BYTES: usize = 16;

    fn close(&self, answer: &[u8]) -> String {
        let nonce: [u8; 16] = rand::random();
        let mut sealed = answer.to_vec();
        self.turn(&nonce, &mut sealed);
        let check = self.check(&nonce, &sealed);
        STANDARD_NO_PAD.encode([&nonce[..], &check, &sealed].concat())
    }

    fn open(&self, text: &str) -> Option<Vec<u8>> {
        let all = STANDARD_NO_PAD.decode(text).ok()?;
        let (nonce, rest) = all.split_first_chunk::<16>()?;
        let (check, sealed) = rest.split_first_chunk::<{ Self::CHECK_BYTES }>()?;
        if !bool::from(subtle::ConstantTimeEq::ct_eq(&self.check(nonce, sealed)[..], &check[..])) {
            return None;
        }
        let mut answer = sealed.to_vec();
        self.turn(nonce, &mut answer);
        Some(answer)
    }

    fn check(&self, nonce: &[u8; 16], sealed: &[u8]) -> [u8; Self::CHECK_BYTES] {
        let key = blake3::derive_key("hapax kept answer check", &self.0);
        let mut check = [0; Self::CHECK_BYTES];
        blake3::Hasher::new_keyed(&key).update(nonce).update(sealed).finalize_xof().fill(&mut check);
        check
    }

    fn turn(&self, nonce: &[u8; 16], bytes: &mut [u8]) {
        let key = blake3::derive_key("hapax kept answer cipher", &self.0);
        let mut stream = vec![0; bytes.len()];
        blake3::Hasher::new_keyed(&key).update(nonce).finalize_xof().fill(&mut stream);
        bytes.iter_mut().zip(stream).for_each(|(byte, with)| *byte ^= with);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_quoted_or_bare() {
        assert_eq!(unquote("abc").as_deref(), Some("abc"));
        assert_eq!(unquote(" \"a b\" ").as_deref(), Some("a b"));
        assert_eq!(unquote(r#""a\"\\b""#).as_deref(), Some(r#"a"\b"#));
        for broken in ["\"abc", "\"a\"b", "\"", r#""a\b""#] {
            assert_eq!(unquote(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_kept_answer_is_read_by_its_owner_alone() {
        let (own, other) = (Seal([1; 32]), Seal([2; 32]));
        let sealed = own.close(b"201\napplication/json\n\n{\"token\":\"hpx_1\"}");
        assert!(!sealed.contains("hpx") && other.open(&sealed).is_none());
        let opened = own.open(&sealed).expect("ours");
        let response = replayed(opened).expect("an answer");
        assert_eq!((response.status(), &response.headers()[REPLAYED]), (StatusCode::CREATED, &HeaderValue::from_static("true")));
        assert!(own.open(&sealed[1..]).is_none() && own.open("").is_none());
    }

    #[test]
    fn what_has_a_key_of_its_own_is_left_alone() {
        for own in ["/messages", "/claims", "/claims/complete", "/pull", "/settle", "/extend"] {
            assert!(has_key_of_its_own(own), "{own}");
        }
        for not in ["/messages/msg_1/retry", "/events/evt_1/replay", "/redrive", "/tokens", "/purge"] {
            assert!(!has_key_of_its_own(not), "{not}");
        }
        assert!(is_repeatable("/messages/msg_1/cancel") && !is_repeatable("/messages/msg_1/retry") && !is_repeatable("/tokens"));
    }
}
