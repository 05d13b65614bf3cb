//! How books and kept answers stand in the registers of the store.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hapax_domain::limits::REGISTER_MAX_BYTES;
use hapax_domain::plain_book::PlainCall;
use hapax_domain::run_book::{Call, State};
use hapax_domain::{EventId, ItemId, MessageId, PlainBook, RunBook, ThreadId};
use hapax_providers::sending::CallAnswer;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};

/// Request ids of messages that came this way begin so.
pub const REQUEST_ID: &str = "dropin/";

pub(super) fn run_name(item: ItemId) -> String {
    format!("run/{item}")
}

/// The name of an answer's register.
pub fn answer_name(message: MessageId) -> String {
    format!("answer/{message}")
}

/// The name of what the provider said to an account that rests since, for that very reason: it may rest for another the next time.
pub fn refusal_name(channel: &str, account: &str, why: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(account.len() as u64).to_le_bytes()).update(account.as_bytes()).update(why.as_bytes());
    format!("refusal/{channel}/{}", hasher.finalize().to_hex())
}

/// The name of the run of a thread that has failed last.
pub(super) fn failed_name(channel: &str, thread: &ThreadId) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(thread.account.len() as u64).to_le_bytes()).update(thread.account.as_bytes()).update(thread.peer.as_bytes());
    format!("failed/{channel}/{}", hasher.finalize().to_hex())
}

/// A value that is kept in a register.
pub(super) trait Written: Default {
    fn write(&self) -> String;
    /// `None`: it was written by a version that knows more.
    fn read(text: &str) -> Option<Self>;
    /// How long it is kept, where others of its kind are kept for `usual_ms`.
    fn keep_ms(&self, usual_ms: i64) -> i64 {
        usual_ms
    }
    /// Nothing is left that would have to be kept.
    fn is_empty(&self) -> bool {
        false
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunText {
    #[serde(default)]
    failed_run: u32,
    #[serde(default)]
    early: bool,
    #[serde(default)]
    redone: u32,
    #[serde(default)]
    parked: bool,
    calls: Vec<CallText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallText {
    method: String,
    to: String,
    content: String,
    run: u32,
    state: String,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    again: u32,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    reworded: Option<String>,
    #[serde(default)]
    reworded_content: Option<String>,
}

impl Written for RunBook {
    fn write(&self) -> String {
        let call = |call: &Call| {
            without_nulls(json!({
                "method": call.method,
                "to": hex::encode(call.to),
                "content": hex::encode(call.content),
                "run": call.run,
                "state": state_word(call.state),
                "message": call.message.map(|id| id.to_string()),
                "again": (call.again > 0).then_some(call.again),
                "text": call.text,
                "reworded": call.reworded,
                "reworded_content": call.reworded_content.map(hex::encode),
            }))
        };
        without_nulls(json!({
            "failed_run": (self.failed_run > 0).then_some(self.failed_run),
            "early": self.answered_early.then_some(true),
            "redone": (self.redone > 0).then_some(self.redone),
            "parked": self.parked.then_some(true),
            "calls": self.calls.iter().map(call).collect::<Vec<_>>(),
        }))
        .to_string()
    }

    fn read(text: &str) -> Option<Self> {
        let RunText { failed_run, early, redone, parked, calls } = serde_json::from_str(text).ok()?;
        let call = |call: CallText| {
            Some(Call {
                to: hex_of(&call.to)?,
                content: hex_of(&call.content)?,
                state: state_of(&call.state)?,
                message: call.message.and_then(|id| id.parse().ok()),
                method: call.method,
                run: call.run,
                again: call.again,
                text: call.text,
                reworded: call.reworded,
                reworded_content: call.reworded_content.as_deref().and_then(hex_of),
            })
        };
        Some(Self {
            failed_run,
            answered_early: early,
            redone,
            parked,
            calls: calls.into_iter().map(call).collect::<Option<_>>()?,
        })
    }

    fn keep_ms(&self, usual_ms: i64) -> i64 {
        if self.parked { usual_ms.max(PARKED_KEEP_MS) } else { usual_ms }
    }
}

/// How long the sends of what was parked are known.
pub(super) const PARKED_KEEP_MS: i64 = 366 * 86_400_000;

fn state_word(state: State) -> String {
    match state {
        State::Open(process) => format!("open:{process:016x}"),
        State::Over => "over".to_owned(),
        State::Sent => "sent".to_owned(),
        State::Refused => "refused".to_owned(),
    }
}

fn state_of(word: &str) -> Option<State> {
    match word {
        "over" => Some(State::Over),
        "sent" => Some(State::Sent),
        "refused" => Some(State::Refused),
        open => u64::from_str_radix(open.strip_prefix("open:")?, 16).ok().map(State::Open),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainText {
    method: String,
    content: String,
    request: String,
    #[serde(default)]
    open: Option<String>,
    until_ms: i64,
}

impl Written for PlainBook {
    fn write(&self) -> String {
        let number = |number: u64| format!("{number:016x}");
        let call = |call: &PlainCall| {
            without_nulls(json!({
                "method": call.method,
                "content": hex::encode(call.content),
                "request": call.request,
                "open": call.open.map(number),
                "until_ms": call.until_ms,
            }))
        };
        Value::from(self.calls.iter().map(call).collect::<Vec<_>>()).to_string()
    }

    fn read(text: &str) -> Option<Self> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let call = |call: PlainText| {
            Some(PlainCall {
                content: hex_of(&call.content)?,
                request: call.request,
                open: call.open.as_deref().map(|open| number(open).ok_or(())).transpose().ok()?,
                method: call.method,
                until_ms: call.until_ms,
            })
        };
        let calls: Vec<PlainText> = serde_json::from_str(text).ok()?;
        Some(Self { calls: calls.into_iter().map(call).collect::<Option<_>>()? })
    }

    fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

fn hex_of<const N: usize>(text: &str) -> Option<[u8; N]> {
    hex::decode(text).ok()?.try_into().ok()
}

fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(members) = &mut value {
        members.retain(|_, member| !member.is_null());
    }
    value
}

/// A run that has failed, and whose handler may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FailedRun {
    pub(super) item: ItemId,
    pub(super) event: EventId,
    pub(super) run: u32,
}

impl FailedRun {
    pub(super) fn write(&self) -> String {
        json!([self.item.to_string(), self.event.to_string(), self.run]).to_string()
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        let (item, event, run): (String, String, u32) = serde_json::from_str(text).ok()?;
        Some(Self { item: item.parse().ok()?, event: event.parse().ok()?, run })
    }
}

/// The provider's own answer to a send, as a repeat gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    pub status: StatusCode,
    pub content_type: Option<String>,
    pub body: Bytes,
}

#[derive(Deserialize)]
struct AnswerText {
    status: u16,
    content_type: Option<String>,
    text: Option<String>,
    base64: Option<String>,
}

impl KeptAnswer {
    pub fn of(answer: &CallAnswer) -> Self {
        let content_type = answer.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        Self { status: answer.status, content_type: content_type.map(str::to_owned), body: answer.body.clone() }
    }

    /// `None`: it is longer than a register.
    pub fn write(&self) -> Option<String> {
        let mut value = json!({"status": self.status.as_u16(), "content_type": self.content_type});
        match std::str::from_utf8(&self.body) {
            Ok(text) => value["text"] = text.into(),
            Err(_) => value["base64"] = STANDARD.encode(&self.body).into(),
        }
        Some(value.to_string()).filter(|text| text.len() <= REGISTER_MAX_BYTES)
    }

    pub fn read(text: &str) -> Option<Self> {
        let AnswerText { status, content_type, text, base64 } = serde_json::from_str(text).ok()?;
        let body = match (text, base64) {
            (Some(text), _) => Bytes::from(text),
            (None, Some(base64)) => Bytes::from(STANDARD.decode(base64).ok()?),
            (None, None) => return None,
        };
        Some(Self { status: StatusCode::from_u16(status).ok()?, content_type, body })
    }

    /// As the adapter that classifies answers wants it.
    pub fn as_call_answer(&self) -> CallAnswer {
        let mut headers = HeaderMap::new();
        let content_type = self.content_type.as_deref().and_then(|value| HeaderValue::from_str(value).ok());
        headers.extend(content_type.map(|value| (header::CONTENT_TYPE, value)));
        CallAnswer { status: self.status, headers, body: self.body.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_domain::Replay;
    use hapax_domain::run_book::Arriving;

    #[test]
    fn a_book_is_read_as_it_was_written() {
        let mut book = RunBook::default();
        let call =
            |run, word| Arriving { run, process: u64::MAX, method: "m", to: [9; 8], content: [word; 16], text: Some("hé") };
        for word in 0..4 {
            book.enter(&call(1, word), Replay::Ordinal);
        }
        book.end(0, 1, State::Sent, Some(MessageId(uuid::Uuid::from_u128(5))));
        book.end(1, 1, State::Refused, None);
        book.end(2, 1, State::Over, None);
        book.enter(&call(2, 7), Replay::Ordinal);
        book.fail_run(2);
        book.answered_early = true;
        book.redo(2);
        book.parked = true;
        assert_eq!(RunBook::read(&book.write()), Some(book));
        assert_eq!(RunBook::read(&RunBook::default().write()), Some(RunBook::default()));
        assert_eq!(RunBook::read(r#"{"calls":[],"more":1}"#), None, "what a later version wrote is not guessed at");
    }

    #[test]
    fn a_plain_book_is_read_as_it_was_written() {
        let mut book = PlainBook::default();
        book.enter("m", [1; 16], 7, "dropin/plain/1", 1_000);
        book.left("m", [2; 16], "dropin/item/0", 3_000, 1_000);
        assert_eq!(PlainBook::read(&book.write()), Some(book));
    }

    #[test]
    fn a_full_book_fits_into_a_register() {
        let mut book = RunBook::default();
        let (method, text) = ("sendMediaGroupOrSo".to_owned(), "\u{1F600}".repeat(super::super::books::TEXT_CHARS));
        for number in 0..RunBook::CALLS_MAX {
            let mut content = [0; 16];
            content[..8].copy_from_slice(&number.to_le_bytes());
            let call = Arriving { run: 1, process: 1, method: &method, to: [1; 8], content, text: Some(&text) };
            book.enter(&call, Replay::Ordinal);
        }
        for call in &mut book.calls {
            call.message = Some(MessageId(uuid::Uuid::from_u128(5)));
            call.reworded = Some(text.clone());
        }
        assert!(book.write().len() <= REGISTER_MAX_BYTES, "{}", book.write().len());
    }

    #[test]
    fn an_answer_keeps_its_bytes() {
        for body in [&b"{\"ok\":true, \"a\":\"\\u00e9\"}"[..], &[0xff, 0x00], b""] {
            let kept = KeptAnswer { status: StatusCode::OK, content_type: None, body: Bytes::copy_from_slice(body) };
            assert_eq!(KeptAnswer::read(&kept.write().expect("short")), Some(kept));
        }
        let long = KeptAnswer { status: StatusCode::OK, content_type: None, body: vec![b'a'; REGISTER_MAX_BYTES].into() };
        assert_eq!(long.write(), None);
    }
}
