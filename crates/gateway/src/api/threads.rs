//! `/v1/threads`: who talks with whom, and what was said.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};

use super::events::read_thread;
use super::thread_view::{self, LOOK_AT_ONE, LOOK_IN_LIST, View};
use super::time::rfc3339;
use super::{ASKED_AT_ONCE, Api, Caller, Cursors, Problem, page_limit, page_of};
use hapax_domain::{EventId, ThreadId};
use hapax_store::{EntryId, ThreadMessage, ThreadQuery, ThreadRow};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ask {
    channel: Option<String>,
    account: Option<String>,
    before: Option<String>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskMessages {
    before: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct List {
    threads: Vec<Thread>,
    /// Give this as `before` to get the next page; not there on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Thread {
    id: String,
    channel: String,
    account: String,
    peer: String,
    /// Other names of the same person.
    aliases: Vec<String>,
    last_message_at: String,
    last_message_text: Option<String>,
    last_direction: &'static str,
    unread: u64,
}

#[derive(Serialize)]
pub(super) struct Messages {
    messages: Vec<Entry>,
    /// Give this as `before` to get the next page; not there on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
struct Entry {
    /// `evt_..` for what came in, `msg_..` for what hapax sends.
    id: String,
    direction: &'static str,
    at: String,
    text: Option<String>,
    provider_id: Option<String>,
    /// How far it has come; what came in is `delivered`, and `read` once it was marked so.
    status: Option<&'static str>,
}

pub(super) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    ask: Result<Query<Ask>, QueryRejection>,
) -> Result<Json<List>, Problem> {
    let Query(ask) = ask?;
    let cursors = Cursors::of(&api, &caller, "threads", "");
    let query = ThreadQuery {
        channel: None,
        account: ask.account,
        before: ask.before.as_deref().map(|before| read_place(&cursors.read(before)?)).transpose()?,
        limit: page_limit(ask.limit),
    };
    let of = |channel| api.store.threads(ThreadQuery { channel, ..query.clone() });
    let newest_first = |a: &ThreadRow, b: &ThreadRow| (b.last_ms, &b.id).cmp(&(a.last_ms, &a.id));
    let page = page_of(caller.narrow(ask.channel)?, query.limit, of, newest_first).await?;
    let next = page.rows.last().filter(|_| page.more).map(|row| cursors.write(&write_place(row)));
    let views = page.rows.into_iter().map(|row| thread_view::view(&api, &caller, row, LOOK_IN_LIST));
    let views: Vec<Option<View>> = stream::iter(views).buffered(ASKED_AT_ONCE).try_collect().await?;
    Ok(Json(List { threads: views.into_iter().flatten().map(|view| view.row.into()).collect(), next }))
}

pub(super) async fn one(State(api): State<Arc<Api>>, caller: Caller, Path(id): Path<String>) -> Result<Json<Thread>, Problem> {
    let id = read_thread(&id)?;
    Ok(Json(find(&api, &caller, &id).await?.row.into()))
}

pub(super) async fn messages(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(id): Path<String>,
    ask: Result<Query<AskMessages>, QueryRejection>,
) -> Result<Json<Messages>, Problem> {
    let (Query(ask), id) = (ask?, read_thread(&id)?);
    let cursors = Cursors::of(&api, &caller, "messages", &id.to_string());
    let before = ask.before.as_deref().map(|before| read_entry(&cursors.read(before)?)).transpose()?;
    find(&api, &caller, &id).await?;
    let (rows, next) = thread_view::messages(&api, &caller, &id, before, page_limit(ask.limit)).await?;
    let next = next.map(|entry| cursors.write(&write_entry(entry)));
    Ok(Json(Messages { messages: rows.into_iter().map(Entry::from).collect(), next }))
}

pub(super) async fn read(State(api): State<Arc<Api>>, caller: Caller, Path(id): Path<String>) -> Result<Json<Thread>, Problem> {
    let id = read_thread(&id)?;
    if caller.is_limited() && find(&api, &caller, &id).await?.shared {
        let why = "another channel speaks in this thread too, and has read nothing; use a token of all its channels";
        return Err(Problem::forbidden(why));
    }
    match api.store.mark_read(&id).await? {
        true => Ok(Json(find(&api, &caller, &id).await?.row.into())),
        false => Err(no_such_thread(&id)),
    }
}

async fn find(api: &Api, caller: &Caller, id: &ThreadId) -> Result<View, Problem> {
    let found = match api.store.thread(id).await? {
        Some(row) => thread_view::view(api, caller, row, LOOK_AT_ONE).await?,
        None => None,
    };
    found.ok_or_else(|| no_such_thread(id))
}

fn no_such_thread(id: &ThreadId) -> Problem {
    let text: String = id.to_string().chars().take(200).collect();
    Problem::not_found(format!("there is no thread {text}; GET /v1/threads lists what there is"))
}

/// Time and id of the last row: the list has no other order.
fn write_place(row: &ThreadRow) -> String {
    format!("{} {}", row.last_ms, row.id)
}

fn read_place(place: &str) -> Result<(i64, ThreadId), Problem> {
    let (at_ms, id) = place.split_once(' ').unwrap_or_default();
    Ok((at_ms.parse().unwrap_or_default(), read_thread(id)?))
}

fn write_entry(entry: EntryId) -> String {
    match entry {
        EntryId::Event(id) => id.to_string(),
        EntryId::Message(id) => id.to_string(),
    }
}

fn read_entry(text: &str) -> Result<EntryId, Problem> {
    if text.starts_with(EventId::PREFIX) {
        return Ok(EntryId::Event(text.parse()?));
    }
    Ok(EntryId::Message(text.parse()?))
}

impl From<ThreadRow> for Thread {
    fn from(row: ThreadRow) -> Self {
        Self {
            id: row.id.to_string(),
            channel: row.channel,
            account: row.id.account,
            peer: row.id.peer,
            aliases: row.aliases,
            last_message_at: rfc3339(row.last_ms),
            last_message_text: row.last_text,
            last_direction: row.last_direction.name(),
            unread: row.unread,
        }
    }
}

impl From<ThreadMessage> for Entry {
    fn from(row: ThreadMessage) -> Self {
        Self {
            id: write_entry(row.id),
            direction: row.direction.name(),
            at: rfc3339(row.at_ms),
            text: row.text,
            provider_id: row.provider_id,
            status: row.status.map(|status| status.name()),
        }
    }
}
