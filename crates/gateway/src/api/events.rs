//! `/v1/events`: what came in.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hapax_domain::filter::{Filter, Grammar, Word};
use hapax_domain::{EventId, ThreadId};
use hapax_providers::event_type;
use hapax_store::{AttemptRow, EventDetail, EventQuery, EventRow};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::filtered::{self, KINDS, Look};
use super::inbox::Item;
use super::list::{Asked, page, page_limit, page_of};
use super::time::rfc3339;
use super::{Api, Caller, Cursors, Problem, event_ref};

const GRAMMAR: Grammar = Grammar {
    words: &[
        Word::Channel,
        Word::Account,
        Word::Thread,
        Word::Kind,
        Word::State,
        Word::Type,
        Word::Text,
        Word::Since,
        Word::Before,
    ],
    states: &["waiting", "delivered", "parked", "quarantined", "kept"],
    kinds: KINDS,
};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsParams {
    /// A filter, as `channel:shop state:parked since:1h text:"refund"`.
    q: Option<String>,
    channel: Option<String>,
    kind: Option<String>,
    thread: Option<String>,
    /// Where the page begins: the `next` of the page before.
    cursor: Option<String>,
    /// How many rows at most: 1 to 500, 50 unless told.
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
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

#[derive(Serialize, ToSchema)]
#[schema(as = EventDetail)]
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
    /// What the provider itself calls it: `invoice.paid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    event_type: Option<String>,
    /// What the bot said last, as long as this process remembers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    bot_answer: Option<BotAnswer>,
}

#[derive(Serialize, ToSchema)]
struct BotAnswer {
    status: u16,
    content_type: Option<String>,
    /// The first kilobyte of its body.
    beginning: String,
    bytes: usize,
}

#[derive(Serialize, ToSchema)]
struct Header {
    name: String,
    value: String,
}

#[derive(Serialize, ToSchema)]
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

page!(EventsPage { events: Event });

#[derive(Serialize, ToSchema)]
pub(super) struct Replayed {
    event: String,
    item: String,
}

/// Lists what came in, newest first.
#[utoipa::path(
    get,
    path = "/events",
    operation_id = "listEvents",
    tag = "events",
    params(EventsParams),
    responses((status = 200, description = "One page, newest first", body = EventsPage)),
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Asked(ask): Asked<EventsParams>,
) -> Result<Json<EventsPage>, Problem> {
    let filter = filtered::read(ask.q.as_deref(), &GRAMMAR, api.clock.now_ms())?.and(Word::Channel, ask.channel)?;
    let filter = filter.and(Word::Kind, ask.kind)?.and(Word::Thread, ask.thread)?;
    let cursors = Cursors::new(&api, &caller, "events", ask.q.as_deref().unwrap_or_default());
    let query = EventQuery {
        channel: None,
        kind: filter.wanted(Word::Kind).map(filtered::read_kind).transpose()?,
        thread: filter.wanted(Word::Thread).map(read_thread).transpose()?,
        before: cursors.place(ask.cursor.as_deref(), |place| Ok(place.parse()?))?,
        limit: page_limit(ask.limit),
    };
    let channels = caller.narrow(filter.wanted(Word::Channel).map(str::to_owned))?;
    let fetch = async |before: Option<EventId>, limit: usize| {
        let of = |channel| api.store.events(EventQuery { channel, before, limit, ..query.clone() });
        Ok::<_, Problem>(page_of(channels.clone(), limit, of, |a, b| b.id.cmp(&a.id)).await?)
    };
    let filter = filter.without(&[Word::Channel, Word::Kind, Word::Thread]);
    let cursor = |id: EventId| cursors.write(&id.to_string());
    if filter.is_empty() {
        let page = fetch(query.before, query.limit).await?;
        let next = page.next(|row| cursor(row.id));
        return Ok(Json(EventsPage::new(page.rows, next, None)));
    }
    let read = async |row: EventRow| Ok(filtered::event_fits(&api, row.id, &filter).await?.then_some(row));
    let found = filtered::find(query.limit, query.before, fetch, |row| row.id, |row| look(&filter, row), read).await?;
    Ok(Json(EventsPage::new(found.rows, found.next.map(cursor), Some(found.looked_at))))
}

/// What can be told of an event without reading it.
fn look(filter: &Filter, row: &EventRow) -> Look {
    let thread = || row.peer.clone().map(|peer| ThreadId { account: row.account.clone(), peer }.to_string());
    let fits = filter.allows(Word::Channel, |channel| channel == row.channel)
        && filter.allows(Word::Account, |account| account == row.account)
        && filter.allows(Word::Kind, |kind| kind == row.kind.name())
        && filter.allows(Word::State, |state| state == row.state.name())
        && filter.allows(Word::Thread, |asked| thread().as_deref() == Some(asked));
    match filtered::look_at_time(filter, row.received_ms, true) {
        Look::Keep if !fits => Look::Skip,
        Look::Keep if filter.asks(Word::Type) || filter.asks(Word::Text) => Look::Read,
        look => look,
    }
}

/// Shows one event with its body, copies and attempts.
#[utoipa::path(
    get,
    path = "/events/{id}",
    operation_id = "getEvent",
    tag = "events",
    params(("id" = String, Path, description = "`evt_…`, whole, short or its beginning, or `latest`")),
    responses((status = 200, description = "The event", body = Detail), (status = 404)),
)]
pub(super) async fn one(State(api): State<Arc<Api>>, caller: Caller, Path(id): Path<String>) -> Result<Json<Detail>, Problem> {
    let detail = find(&api, &caller, &id).await?;
    let event_type = own_type(&api, &detail);
    let bot_answer = api.telemetry.bot_answer(detail.row.id).map(|answer| BotAnswer {
        status: answer.status,
        content_type: answer.content_type.clone(),
        beginning: answer.beginning.clone(),
        bytes: answer.bytes,
    });
    Ok(Json(Detail { event_type, bot_answer, ..detail.into() }))
}

/// Delivers a recorded event once more, as a new item.
#[utoipa::path(
    post,
    path = "/events/{id}/replay",
    operation_id = "replayEvent",
    tag = "events",
    params(("id" = String, Path, description = "`evt_…`, whole, short or its beginning, or `latest`")),
    responses((status = 202, description = "It is in line once more", body = Replayed), (status = 404)),
)]
pub(super) async fn replay(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Replayed>), Problem> {
    let event = event_ref::resolve(&api, &caller, &id).await?;
    if caller.is_limited() {
        find(&api, &caller, &event.to_string()).await?;
    }
    match api.store.replay(event).await? {
        Some(item) => Ok((StatusCode::ACCEPTED, Json(Replayed { event: event.to_string(), item: item.to_string() }))),
        None => Err(no_such_event(&id)),
    }
}

/// An event of a channel that the caller does not see is not there.
pub(super) async fn find(api: &Api, caller: &Caller, id: &str) -> Result<EventDetail, Problem> {
    let event = event_ref::resolve(api, caller, id).await?;
    let found = api.store.event(event).await?.filter(|detail| caller.sees(&detail.row.channel));
    found.ok_or_else(|| no_such_event(id))
}

/// What the provider itself calls it.
pub(super) fn own_type(api: &Api, detail: &EventDetail) -> Option<String> {
    let provider = api.channels.get(&detail.row.channel)?.provider.name();
    let header = |wanted: &str| {
        let (_, value) = detail.headers.iter().find(|(name, _)| *name == wanted)?;
        std::str::from_utf8(value).ok()
    };
    event_type(provider, header, &detail.body)
}

fn no_such_event(id: &str) -> Problem {
    Problem::not_found(format!(
        "there is no event {id}; it may be past its channel's `retention`. GET /v1/events lists what there is"
    ))
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
            event_type: None,
            bot_answer: None,
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
