//! `/v1/events`: what came in.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hapax_domain::filter::{Filter, Grammar, Word};
use hapax_domain::{EventId, ThreadId};
use hapax_providers::event_type;
use hapax_store::{AttemptRow, EntryId, EventDetail, EventQuery, EventRow, ThreadMessage};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::filtered::{self, KINDS, Look};
use super::inbox::Item;
use super::list::{Asked, page, page_limit, page_of};
use super::time::rfc3339;
use super::{Api, Caller, Cursors, Problem, event_ref};

/// So many of a thread are looked through for the one that follows.
const NEIGHBOURS_AMONG: usize = 200;

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

#[derive(Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsParams {
    /// A filter, as `channel:shop state:parked since:1h text:"refund"`.
    pub(crate) q: Option<String>,
    pub(crate) channel: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) thread: Option<String>,
    /// Where the page begins: the `next` of the page before.
    pub(crate) cursor: Option<String>,
    /// How many rows at most: 1 to 500, 50 unless told.
    pub(crate) limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) channel: String,
    pub(crate) kind: &'static str,
    pub(crate) account: String,
    pub(crate) provider_id: String,
    pub(crate) peer: Option<String>,
    pub(crate) thread: Option<String>,
    pub(crate) echo: bool,
    pub(crate) received_at: String,
    pub(crate) happened_at: Option<String>,
    pub(crate) state: &'static str,
    pub(crate) body_bytes: u64,
}

#[derive(Serialize, ToSchema)]
#[schema(as = EventDetail)]
pub(crate) struct Detail {
    #[serde(flatten)]
    pub(crate) event: Event,
    pub(crate) copies: u64,
    pub(crate) conflicts: u64,
    pub(crate) headers: Vec<Header>,
    /// `text` when the body is UTF-8, else `base64`; `hidden` where `hide_payloads` keeps it from this token.
    pub(crate) body_encoding: &'static str,
    pub(crate) body: String,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) open: Vec<Item>,
    /// What the provider itself calls it: `invoice.paid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) event_type: Option<String>,
    /// What the bot said last, as long as this process remembers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bot_answer: Option<BotAnswer>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct BotAnswer {
    pub(crate) status: u16,
    pub(crate) content_type: Option<String>,
    /// The first kilobyte of its body.
    pub(crate) beginning: String,
    pub(crate) bytes: usize,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Attempt {
    pub(crate) item: String,
    pub(crate) attempt: u32,
    pub(crate) fence: u64,
    pub(crate) worker: String,
    pub(crate) leased_at: String,
    pub(crate) ended_at: String,
    pub(crate) outcome: String,
    pub(crate) detail: String,
}

page!(EventsPage { events: Event });

#[derive(Serialize, ToSchema)]
pub(crate) struct Replayed {
    pub(crate) event: String,
    pub(crate) item: String,
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
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Asked(ask): Asked<EventsParams>,
) -> Result<Json<EventsPage>, Problem> {
    let filter = filtered::read(&api, &caller, ask.q.as_deref(), &GRAMMAR)?.and(Word::Channel, ask.channel)?;
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
pub(crate) async fn one(State(api): State<Arc<Api>>, caller: Caller, Path(id): Path<String>) -> Result<Json<Detail>, Problem> {
    let detail = find(&api, &caller, &id).await?;
    let event_type = own_type(&api, &detail);
    let bot_answer = api.telemetry.bot_answer(detail.row.id).map(|answer| BotAnswer {
        status: answer.status,
        content_type: answer.content_type.clone(),
        beginning: answer.beginning.clone(),
        bytes: answer.bytes,
    });
    let detail = Detail { event_type, bot_answer, ..detail.into() };
    Ok(Json(if api.hides_payloads_from(&caller) { detail.without_payloads() } else { detail }))
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
pub(crate) async fn replay(
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

/// The events of the same thread around this one: the one before it, and the one after it where that is among the newest. A thread is read
/// backwards along its entries, so neither asks for more, however many events there are.
pub(crate) async fn neighbours(api: &Api, detail: &Event) -> Result<(Option<String>, Option<String>), Problem> {
    let Some(thread) = detail.thread.as_deref() else { return Ok((None, None)) };
    let (id, thread): (EventId, ThreadId) = (detail.id.parse()?, read_thread(thread)?);
    let entry = EntryId::Event(id);
    let of_channel = |row: &ThreadMessage| match row.id {
        EntryId::Event(id) if row.channel == detail.channel => Some(id.to_string()),
        EntryId::Event(_) | EntryId::Message(_) => None,
    };
    let newest = api.store.thread_messages(&thread, None, NEIGHBOURS_AMONG).await?.rows;
    let at = newest.iter().position(|row| row.id == entry);
    let after = at.and_then(|at| newest[..at].iter().rev().find_map(of_channel));
    let older = api.store.thread_messages(&thread, Some(entry), NEIGHBOURS_AMONG).await?.rows;
    Ok((older.iter().find_map(of_channel), after))
}

/// An event of a channel that the caller does not see is not there.
pub(crate) async fn find(api: &Api, caller: &Caller, id: &str) -> Result<EventDetail, Problem> {
    let event = event_ref::resolve(api, caller, id).await?;
    let found = api.store.event(event).await?.filter(|detail| caller.sees(&detail.row.channel));
    found.ok_or_else(|| no_such_event(id))
}

/// What the provider itself calls it.
pub(crate) fn own_type(api: &Api, detail: &EventDetail) -> Option<String> {
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

pub(crate) fn read_thread(text: &str) -> Result<ThreadId, Problem> {
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

impl Detail {
    /// Says how long things are in place of what they say.
    fn without_payloads(self) -> Self {
        let bytes = self.event.body_bytes;
        let bot_answer = self.bot_answer.map(|answer| BotAnswer { beginning: String::new(), ..answer });
        Self { body_encoding: "hidden", body: format!("{bytes} bytes"), bot_answer, ..self }
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
