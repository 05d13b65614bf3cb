//! `/v1/events`: what came in.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hapax_domain::{EventId, Kind, ThreadId};
use hapax_store::{AttemptRow, EventDetail, EventQuery, EventRow};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::inbox::Item;
use super::list::{Asked, List, page_limit, page_of};
use super::time::rfc3339;
use super::{Api, Caller, Cursors, Problem};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsParams {
    channel: Option<String>,
    kind: Option<String>,
    thread: Option<String>,
    before: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Event {
    id: String,
    channel: String,
    kind: &'static str,
    account: String,
    provider_id: String,
    peer: Option<String>,
    thread: Option<String>,
    echo: bool,
    received_at: String,
    happened_at: Option<String>,
    state: &'static str,
    body_bytes: u64,
}

#[derive(Serialize)]
pub(super) struct Detail {
    #[serde(flatten)]
    event: Event,
    copies: u64,
    conflicts: u64,
    headers: Vec<Header>,
    /// `text` when the body is UTF-8, else `base64`.
    body_encoding: &'static str,
    body: String,
    attempts: Vec<Attempt>,
    open: Vec<Item>,
}

#[derive(Serialize)]
struct Header {
    name: String,
    value: String,
}

#[derive(Serialize)]
struct Attempt {
    item: String,
    attempt: u32,
    fence: u64,
    worker: String,
    leased_at: String,
    ended_at: String,
    outcome: String,
    detail: String,
}

#[derive(Serialize)]
pub(super) struct Replayed {
    event: String,
    item: String,
}

pub(super) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Asked(ask): Asked<EventsParams>,
) -> Result<Json<List<Event>>, Problem> {
    let cursors = Cursors::new(&api, &caller, "events", "");
    let query = EventQuery {
        channel: None,
        kind: ask.kind.as_deref().map(read_kind).transpose()?,
        thread: ask.thread.as_deref().map(read_thread).transpose()?,
        before: cursors.place(ask.before.as_deref(), |place| Ok(place.parse()?))?,
        limit: page_limit(ask.limit),
    };
    let of = |channel| api.store.events(EventQuery { channel, ..query.clone() });
    let page = page_of(caller.narrow(ask.channel)?, query.limit, of, |a, b| b.id.cmp(&a.id)).await?;
    Ok(Json(List::new("events", page, |row| cursors.write(&row.id.to_string()))))
}

pub(super) async fn one(State(api): State<Arc<Api>>, caller: Caller, Path(id): Path<String>) -> Result<Json<Detail>, Problem> {
    Ok(Json(find(&api, &caller, &id).await?.into()))
}

pub(super) async fn replay(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Replayed>), Problem> {
    let event: EventId = id.parse()?;
    if caller.is_limited() {
        find(&api, &caller, &id).await?;
    }
    match api.store.replay(event).await? {
        Some(item) => Ok((StatusCode::ACCEPTED, Json(Replayed { event: id, item: item.to_string() }))),
        None => Err(no_such_event(&id)),
    }
}

/// An event of a channel that the caller does not see is not there.
pub(super) async fn find(api: &Api, caller: &Caller, id: &str) -> Result<EventDetail, Problem> {
    let found = api.store.event(id.parse()?).await?.filter(|detail| caller.sees(&detail.row.channel));
    found.ok_or_else(|| no_such_event(id))
}

fn no_such_event(id: &str) -> Problem {
    Problem::not_found(format!(
        "there is no event {id}; it may be past its channel's `retention`. GET /v1/events lists what there is"
    ))
}

fn read_kind(name: &str) -> Result<Kind, Problem> {
    let known = || Kind::ALL.map(Kind::name).join(", ");
    Kind::from_name(name).ok_or_else(|| Problem::bad_request(format!("`{name}` is not a kind; use one of {}", known())))
}

pub(super) fn read_thread(text: &str) -> Result<ThreadId, Problem> {
    text.parse().map_err(|bad: hapax_domain::thread::BadThreadId| Problem::bad_request(bad.to_string()))
}

impl From<EventRow> for Event {
    fn from(row: EventRow) -> Self {
        let thread = row.peer.clone().map(|peer| ThreadId { account: row.account.clone(), peer }.to_string());
        Self {
            id: row.id.to_string(),
            channel: row.channel,
            kind: row.kind.name(),
            account: row.account,
            provider_id: row.provider_id,
            peer: row.peer,
            thread,
            echo: row.echo,
            received_at: rfc3339(row.received_ms),
            happened_at: row.at_ms.map(rfc3339),
            state: row.state.name(),
            body_bytes: row.body_bytes,
        }
    }
}

impl From<EventDetail> for Detail {
    fn from(detail: EventDetail) -> Self {
        let header =
            |(name, value): (&str, &[u8])| Header { name: name.to_owned(), value: String::from_utf8_lossy(value).into_owned() };
        let (body_encoding, body) = match std::str::from_utf8(&detail.body) {
            Ok(text) => ("text", text.to_owned()),
            Err(_) => ("base64", STANDARD.encode(&detail.body)),
        };
        Self {
            event: detail.row.into(),
            copies: detail.copies.map_or(0, |copies| copies.copies),
            conflicts: detail.copies.map_or(0, |copies| copies.conflicts),
            headers: detail.headers.iter().map(header).collect(),
            body_encoding,
            body,
            attempts: detail.attempts.into_iter().map(Attempt::from).collect(),
            open: detail.open.into_iter().map(Item::from).collect(),
        }
    }
}

impl From<AttemptRow> for Attempt {
    fn from(row: AttemptRow) -> Self {
        Self {
            item: row.item.to_string(),
            attempt: row.attempt,
            fence: row.fence.0,
            worker: row.worker,
            leased_at: rfc3339(row.leased_ms),
            ended_at: rfc3339(row.ended_ms),
            outcome: row.outcome,
            detail: row.detail,
        }
    }
}
