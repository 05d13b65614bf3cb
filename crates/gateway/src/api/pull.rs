//! `/v1/pull`, `/v1/settle` and `/v1/extend`: workers ask for the events of a channel without a target, and say how it went.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hapax_domain::limits::{PULL_DEFAULT, PULL_MAX, PULL_WAIT_MAX_MS, WHY_MAX_CHARS, WORKER_MAX_CHARS};
use hapax_store::Outcome;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::lease_handle;
use super::time::{Span, rfc3339};
use super::{Api, Caller, Problem};
use crate::delivery::{Ended, Pulled, Word};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Pull)]
pub(super) struct PullBody {
    channel: String,
    max: Option<usize>,
    wait: Option<Span>,
    worker: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = PulledItems)]
pub(super) struct Items {
    items: Vec<Item>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = PulledItem)]
struct Item {
    event_id: String,
    /// All events of the item, in order; the first is `event_id`.
    event_ids: Vec<String>,
    item: String,
    channel: String,
    account: String,
    thread: Option<String>,
    kind: &'static str,
    attempt: u32,
    fence: u64,
    replay: Option<u32>,
    received_at: String,
    /// To be given with settle and extend.
    lease: String,
    /// By the clock of the store.
    lease_until: String,
    lease_ms: i64,
    headers: Vec<Header>,
    /// `text` when the body is UTF-8, else `base64`.
    body_encoding: &'static str,
    body: String,
}

#[derive(Serialize, ToSchema)]
#[schema(as = PulledHeader)]
struct Header {
    name: String,
    value: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Settle)]
pub(super) struct SettleBody {
    lease: String,
    outcome: String,
    after: Option<Span>,
    why: Option<String>,
    #[schema(value_type = Option<Vec<Object>>)]
    replies: Option<Vec<Box<RawValue>>>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Settled)]
pub(super) struct SettledBody {
    event_id: String,
    /// What became of the item: a retry too many is `parked`.
    status: &'static str,
    /// The same was said before, and counts since then.
    repeated: bool,
    /// When it comes again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_in_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// How many replies were queued.
    replies: usize,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Extend)]
pub(super) struct ExtendBody {
    lease: String,
}

#[derive(Serialize, ToSchema)]
#[schema(as = LeaseExtended)]
pub(super) struct Extended {
    lease_until: String,
    lease_ms: i64,
}

/// Hands out events of a channel without a target, each under a lease.
#[utoipa::path(
    post,
    path = "/pull",
    operation_id = "pull",
    tag = "pull",
    request_body = PullBody,
    responses((status = 200, description = "What there is; nothing is an empty list", body = Items), (status = 404)),
)]
pub(super) async fn pull(
    State(api): State<Arc<Api>>,
    caller: Caller,
    headers: HeaderMap,
    ask: Result<Json<PullBody>, JsonRejection>,
) -> Result<Json<Items>, Problem> {
    let Json(ask) = ask?;
    caller.need_channel(&ask.channel)?;
    let max = match ask.max.unwrap_or(PULL_DEFAULT) {
        max @ 1..=PULL_MAX => max,
        max => return Err(Problem::unprocessable(format!("`max` is {max}; ask for 1 to {PULL_MAX} items"))),
    };
    let wait_ms = ask.wait.as_ref().map(|wait| wait.ms("wait")).transpose()?.unwrap_or(0).min(PULL_WAIT_MAX_MS);
    if !api.pull.serves(&ask.channel) {
        return Err(not_pulled(&api, &ask.channel));
    }
    if api.pull.is_stopping() {
        return Err(Problem::stopping());
    }
    let worker = shown_worker(&caller, ask.worker.as_deref())?;
    let pulled = tokio::select! {
        biased;
        problem = api.auth.turned_away(&headers) => return Err(problem),
        pulled = api.pull.take(&ask.channel, &worker, max, Duration::from_millis(wait_ms.unsigned_abs())) => pulled?,
    };
    let leased_ms = api.clock.now_ms();
    Ok(Json(Items { items: pulled.into_iter().filter_map(|pulled| item(&api, pulled, leased_ms)).collect() }))
}

/// Says how the work on a pulled item went.
#[utoipa::path(
    post,
    path = "/settle",
    operation_id = "settle",
    tag = "pull",
    request_body = SettleBody,
    responses((status = 200, description = "It counts", body = SettledBody), (status = 404), (status = 409)),
)]
pub(super) async fn settle(
    State(api): State<Arc<Api>>,
    caller: Caller,
    ask: Result<Json<SettleBody>, JsonRejection>,
) -> Result<Json<SettledBody>, Problem> {
    let Json(ask) = ask?;
    let handle = lease_handle::read(&api, &ask.lease)?;
    caller.need_channel(&handle.lease.channel)?;
    let word = read_word(ask)?;
    let event_id = handle.lease.events.first().map(|event| event.id.to_string()).unwrap_or_default();
    match api.pull.settle(&handle.lease, handle.leased_ms, word).await? {
        Ended::Settled { outcome, kept, repeated } => Ok(Json(SettledBody::new(event_id, outcome, kept, repeated))),
        Ended::Lost => Err(lost()),
        Ended::BadReplies(why) => {
            Err(Problem::unprocessable(format!("nothing was settled, because a reply cannot be sent: {why}")))
        }
        Ended::NotPulled => Err(not_pulled(&api, &handle.lease.channel)),
    }
}

/// Keeps the lease of a pulled item.
#[utoipa::path(
    post,
    path = "/extend",
    operation_id = "extend",
    tag = "pull",
    request_body = ExtendBody,
    responses((status = 200, description = "It lasts until then", body = Extended), (status = 409)),
)]
pub(super) async fn extend(
    State(api): State<Arc<Api>>,
    caller: Caller,
    ask: Result<Json<ExtendBody>, JsonRejection>,
) -> Result<Json<Extended>, Problem> {
    let Json(ask) = ask?;
    let handle = lease_handle::read(&api, &ask.lease)?;
    caller.need_channel(&handle.lease.channel)?;
    let asked_ms = api.clock.now_ms();
    let lease_ms = api.pull.extend(&handle.lease).await?.ok_or_else(lost)?;
    Ok(Json(Extended { lease_until: rfc3339(asked_ms + lease_ms), lease_ms }))
}

fn item(api: &Api, pulled: Pulled, leased_ms: i64) -> Option<Item> {
    let Pulled { lease, hold_ms, headers, body } = pulled;
    let first = lease.events.first()?;
    let (body_encoding, body) = match std::str::from_utf8(&body) {
        Ok(text) => ("text", text.to_owned()),
        Err(_) => ("base64", STANDARD.encode(&body)),
    };
    Some(Item {
        event_id: first.id.to_string(),
        event_ids: lease.events.iter().map(|event| event.id.to_string()).collect(),
        item: lease.item.to_string(),
        channel: lease.channel.to_string(),
        account: first.account.clone(),
        thread: first.thread.as_ref().map(ToString::to_string),
        kind: first.kind.name(),
        attempt: lease.attempt,
        fence: lease.fence.0,
        replay: lease.replay,
        received_at: rfc3339(lease.received_ms),
        lease: lease_handle::write(api, &lease, leased_ms)?,
        lease_until: rfc3339(lease.until_ms),
        lease_ms: hold_ms,
        headers: shown_headers(&headers),
        body_encoding,
        body,
    })
}

fn shown_headers(headers: &HeaderMap) -> Vec<Header> {
    let shown = |(name, value): (&http::HeaderName, &http::HeaderValue)| Header {
        name: name.to_string(),
        value: String::from_utf8_lossy(value.as_bytes()).into_owned(),
    };
    headers.iter().map(shown).collect()
}

/// Who the story says had it: the token's name, and what the worker calls itself.
fn shown_worker(caller: &Caller, worker: Option<&str>) -> Result<String, Problem> {
    let Some(worker) = worker.filter(|worker| !worker.is_empty()) else { return Ok(caller.name.to_string()) };
    if worker.chars().count() > WORKER_MAX_CHARS || worker.chars().any(char::is_control) {
        return Err(Problem::unprocessable(format!("`worker` is a name of up to {WORKER_MAX_CHARS} printable characters")));
    }
    Ok(format!("{}/{worker}", caller.name))
}

fn read_word(ask: SettleBody) -> Result<Word, Problem> {
    let after_ms = ask.after.as_ref().map(|after| after.ms("after")).transpose()?;
    let why = ask.why.map(|why| why.chars().take(WHY_MAX_CHARS).collect::<String>());
    let only_done = |given: bool| match given {
        true => {
            Err(Problem::unprocessable("`replies` go with the outcome `done` only: nothing is sent for work that is not done"))
        }
        false => Ok(()),
    };
    match ask.outcome.as_str() {
        "done" if after_ms.is_some() => {
            Err(Problem::unprocessable("`after` goes with `retry` and `hand_back`: what is done does not come again"))
        }
        "done" => Ok(Word::Done { replies: ask.replies.filter(|replies| !replies.is_empty()).map(written) }),
        "park" if after_ms.is_some() => {
            Err(Problem::unprocessable("`after` goes with `retry` and `hand_back`: what is parked waits for a person"))
        }
        "park" => only_done(ask.replies.is_some()).map(|()| Word::Park { why }),
        "retry" => only_done(ask.replies.is_some()).map(|()| Word::Retry { after_ms, why }),
        "hand_back" => only_done(ask.replies.is_some()).map(|()| Word::HandBack { after_ms, why }),
        _ => Err(Problem::unprocessable("`outcome` is one of `done`, `retry`, `park`, `hand_back`")),
    }
}

/// As a target would have answered.
fn written(replies: Vec<Box<RawValue>>) -> Bytes {
    let replies: Vec<&str> = replies.iter().map(|reply| reply.get()).collect();
    Bytes::from(format!(r#"{{"replies":[{}]}}"#, replies.join(",")))
}

fn lost() -> Problem {
    Problem::lease_lost(
        "the lease ran out and the item was given out again, or it was settled otherwise: drop what you have of it, and pull again",
    )
}

fn not_pulled(api: &Api, channel: &str) -> Problem {
    if api.channels.get(channel).is_none() {
        let channel: String = channel.chars().take(64).collect();
        return Problem::not_found(format!("there is no channel `{channel}`; GET /v1/channels lists what there is"));
    }
    Problem::unprocessable(format!(
        "channel `{channel}` delivers to its `target`; to pull from it, take the target out or write mode = \"pull\""
    ))
}

impl SettledBody {
    fn new(event_id: String, outcome: Outcome, kept: bool, repeated: bool) -> Self {
        let why = outcome.why().map(str::to_owned);
        let (status, retry_in_ms, replies) = match outcome {
            Outcome::Delivered { .. } if kept => ("parked", None, 0),
            Outcome::Delivered { replies, .. } => ("done", None, replies.len()),
            Outcome::Retry { wait_ms, .. } => ("retry", Some(wait_ms), 0),
            Outcome::Parked { .. } => ("parked", None, 0),
            Outcome::HandBack { wait_ms, .. } => ("handed_back", Some(wait_ms), 0),
        };
        let why = if kept { Some("there is no room in the outbox: the replies are kept with the item".to_owned()) } else { why };
        Self { event_id, status, repeated, retry_in_ms, why, replies }
    }
}
