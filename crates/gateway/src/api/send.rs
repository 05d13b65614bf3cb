//! `POST /v1/messages`: a message is stored as queued before anything leaves, and the same request twice is one message.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use hapax_domain::limits::{BODY_TIMEOUT_MS, MESSAGE_MAX_BYTES};
use hapax_domain::{BadDraft, Draft, MessageId, Priority, Status, ThreadId};
use hapax_store::{MessageRow, NewMessage, StoreError, Submitted};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::origin::{self, Origin};
use super::threads::Thread;
use super::time::rfc3339;
use super::{Api, Caller, Code, Problem, idempotency, prefer};

/// Of a body that is too large so much is read and dropped: a client that is cut off while writing never sees why.
const DROPPED_MAX_BYTES: usize = 16 << 20;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewMessage)]
pub(super) struct SendBody {
    channel: Option<String>,
    account: Option<String>,
    to: Peer,
    text: Option<String>,
    /// The message in the provider's own words, in place of `text`.
    #[schema(value_type = Option<Object>)]
    payload: Option<Box<RawValue>>,
    /// Your name for this send: the same name and content are one message. The header `Idempotency-Key` says the same.
    request_id: Option<String>,
    /// `reply`, `normal` or `bulk`.
    priority: Option<String>,
    /// A time (RFC 3339) before which it is not sent.
    send_at: Option<String>,
}

/// Telegram's chats are numbers.
#[derive(Deserialize, ToSchema)]
#[serde(untagged, expecting = "`to` is a text or a whole number")]
enum Peer {
    Text(String),
    Number(i64),
}

/// What the caller needs to know at once; `GET /v1/messages/{id}` tells the rest.
#[derive(Serialize, ToSchema)]
pub(super) struct Receipt {
    id: String,
    status: &'static str,
    /// True when this request was made before and nothing new was queued.
    replayed: bool,
    request_id: String,
    channel: String,
    account: String,
    to: String,
    thread: String,
    provider_id: Option<String>,
    why: Option<String>,
    /// When it is to be sent, if that was asked for.
    send_at: Option<String>,
}

/// Queues a message; the same request twice is one message.
#[utoipa::path(
    post,
    path = "/messages",
    operation_id = "sendMessage",
    tag = "messages",
    params(("Idempotency-Key" = Option<String>, Header, description = "The same as `request_id`"), ("Prefer" = Option<String>, Header, description = "`wait=n`: the answer waits up to n seconds, 25 at most, for the outcome")),
    request_body = SendBody,
    responses((status = 202, description = "It is queued", body = Receipt), (status = 200, description = "It was made before, or its outcome is known", body = Receipt), (status = 408)),
)]
pub(super) async fn submit(
    State(api): State<Arc<Api>>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let ask = read_ask(&headers, body).await?;
    let given_id = read_request_id(&headers, ask.request_id.as_deref())?;
    let wait = prefer::wait(&headers)?;
    let (receipt, id, wait) = queue(&api, &caller, &ask, given_id, wait, &headers).await?;
    Ok(answer(receipt, id, wait))
}

/// Queues a text for the other end of a thread; the same request id and text are one message.
pub(crate) async fn text(api: &Api, caller: &Caller, thread: &Thread, text: String, request_id: String) -> Result<(), Problem> {
    idempotency::check(&request_id)?;
    let ask = SendBody {
        channel: Some(thread.channel.clone()),
        account: Some(thread.account.clone()),
        to: Peer::Text(thread.peer.clone()),
        text: Some(text),
        payload: None,
        request_id: None,
        priority: None,
        send_at: None,
    };
    queue(api, caller, &ask, Some(request_id), None, &HeaderMap::new()).await.map(drop)
}

/// Stores a message as queued. Gives what is known of it then, and how long its outcome was waited for.
async fn queue(
    api: &Api,
    caller: &Caller,
    ask: &SendBody,
    given_id: Option<String>,
    wait: Option<Duration>,
    headers: &HeaderMap,
) -> Result<(Receipt, MessageId, Option<Duration>), Problem> {
    let origin = origin::find(api, caller, ask.channel.as_deref(), ask.account.as_deref()).await?;
    let request_id = given_id.unwrap_or_else(|| format!("req_{}", hex::encode(rand::random::<[u8; 16]>())));
    let wall_ms = api.clock.wall_ms();
    let message = make(&origin, ask, request_id, wall_ms)?;
    // Nobody waits for what is to be sent later.
    let wait = wait.filter(|_| message.held_until(wall_ms).is_none());
    let receipt = Receipt {
        id: String::new(),
        status: Status::Queued.name(),
        replayed: false,
        request_id: message.request_id.clone(),
        channel: message.channel.to_string(),
        account: message.account.clone(),
        to: message.peer.clone(),
        thread: ThreadId { account: message.account.clone(), peer: message.peer.clone() }.to_string(),
        provider_id: None,
        why: None,
        send_at: message.send_at_ms.map(rfc3339),
    };
    api.telemetry.traces().inspect(|traces| traces.asked(&receipt.account, &receipt.request_id, headers));
    let submitted = api.store.submit(message).await.map_err(|error| {
        if let StoreError::OutboxFull { channel, account } = &error {
            api.telemetry.outbox_full(channel, account);
        }
        not_submitted(error, &receipt.request_id)
    })?;
    let id = submitted.message();
    if matches!(submitted, Submitted::New(_)) {
        api.telemetry.queued(&receipt.channel);
    }
    let row = match submitted {
        Submitted::Mismatch(known) => return Err(mismatch(known, &receipt.request_id)),
        Submitted::Replayed(_) | Submitted::New(_) if wait.is_some() => prefer::outcome(&*api.store, id, wait).await,
        Submitted::Replayed(_) => api.store.message(id).await?,
        Submitted::New(_) => None,
    };
    let replayed = matches!(submitted, Submitted::Replayed(_));
    let receipt = Receipt { id: id.to_string(), replayed, ..receipt }.with(row);
    Ok((receipt, id, wait))
}

impl Receipt {
    fn with(self, row: Option<MessageRow>) -> Self {
        match row {
            Some(row) => Self { status: row.steps.status().name(), provider_id: row.provider_id, why: row.why, ..self },
            None => self,
        }
    }
}

fn answer(receipt: Receipt, id: MessageId, wait: Option<Duration>) -> Response {
    let on_its_way = [Status::Queued, Status::Sending].map(Status::name).contains(&receipt.status);
    let status = if on_its_way && !receipt.replayed { StatusCode::ACCEPTED } else { StatusCode::OK };
    let mut response = (status, Json(receipt)).into_response();
    let mut set =
        |name, text: String| HeaderValue::try_from(text).map(|value| response.headers_mut().insert(name, value)).is_ok();
    set(header::LOCATION, format!("/v1/messages/{id}"));
    if let Some(wait) = wait {
        set(prefer::APPLIED, format!("wait={}", wait.as_secs()));
    }
    response
}

fn make(origin: &Origin<'_>, ask: &SendBody, request_id: String, wall_ms: i64) -> Result<NewMessage, Problem> {
    let to = match &ask.to {
        Peer::Text(to) => to.clone(),
        Peer::Number(to) => to.to_string(),
    };
    let draft = Draft::read(Some(to.clone()), ask.text.as_deref(), ask.payload.as_deref().map(RawValue::get))?;
    let draft = draft.later(ask.send_at.as_deref(), wall_ms)?;
    let peer = origin.sending.peer(&to);
    origin.sending.check(&peer, draft.payload.as_bytes()).map_err(Problem::unprocessable)?;
    let text = origin.sending.text(draft.payload.as_bytes());
    let from = hapax_store::Origin { channel: Arc::clone(origin.channel.name()), account: origin.account.clone() };
    let message = NewMessage::new(from, peer, draft, text, request_id);
    Ok(NewMessage { priority: read_priority(ask.priority.as_deref())?, ..message })
}

fn read_priority(name: Option<&str>) -> Result<Priority, Problem> {
    let Some(name) = name else { return Ok(Priority::Normal) };
    let known = || Priority::ALL.map(Priority::name).join(", ");
    Priority::from_name(name)
        .ok_or_else(|| Problem::unprocessable(format!("there is no such `priority`; use one of {}", known())))
}

/// The caller's name for this send: in the body, in the header, or in both alike.
fn read_request_id(headers: &HeaderMap, in_body: Option<&str>) -> Result<Option<String>, Problem> {
    let in_header = idempotency::key(headers)?;
    let id = match (in_body, in_header) {
        (Some(body), Some(header)) if *body != header => {
            let todo = "`request_id` and `Idempotency-Key` differ: they are one thing; send one of them, or the same in both";
            return Err(Problem::unprocessable(todo));
        }
        (body, header) => body.map(str::to_owned).or(header),
    };
    if let Some(id) = &id {
        idempotency::check(id)?;
    }
    Ok(id)
}

fn mismatch(known: MessageId, request_id: &str) -> Problem {
    let detail = format!(
        "request id `{request_id}` was used for {known}, which has another content or goes elsewhere; nothing was queued. A new message \
         needs a new request id; a repeat must be the same in all parts"
    );
    Problem::new(Code::RequestIdMismatch, detail)
}

/// Whoever gave no request id would make a second message by trying again; so the one that was made is told.
fn not_submitted(error: StoreError, request_id: &str) -> Problem {
    let retryable = error.retryable();
    let problem = Problem::from(error);
    if retryable { problem.and(&format!(", with request id `{request_id}`, so that it is sent once")) } else { problem }
}

async fn read_ask(headers: &HeaderMap, body: Body) -> Result<SendBody, Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let todo = "send JSON, with the header `Content-Type: application/json`";
        return Err(Problem::new(Code::UnsupportedMediaType, todo));
    }
    let time = Duration::from_millis(BODY_TIMEOUT_MS);
    let slow = |_| Problem::new(Code::BodyTimeout, "the body came too slowly; send it again");
    let bytes = tokio::time::timeout(time, read_body(body)).await.map_err(slow)??;
    Ok(Json::<SendBody>::from_bytes(&bytes)?.0)
}

async fn read_body(mut body: Body) -> Result<Bytes, Problem> {
    let (mut kept, mut seen) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::bad_request("the body was cut off; send it again"))?;
        let Ok(part) = frame.into_data() else { continue };
        seen += part.len();
        if seen <= MESSAGE_MAX_BYTES {
            kept.extend_from_slice(&part);
        } else if seen > DROPPED_MAX_BYTES {
            break;
        }
    }
    if seen <= MESSAGE_MAX_BYTES {
        return Ok(kept.freeze());
    }
    Err(BadDraft::TooLarge.into())
}
