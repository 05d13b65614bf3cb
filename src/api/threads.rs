//! `/v1/threads`: who talks with whom, and what was said.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::events::read_thread;
use super::time::rfc3339;
use super::{Api, Caller, Problem, page_limit};
use crate::domain::{EventId, ThreadId};
use crate::store::{EntryId, ThreadMessage, ThreadQuery, ThreadRow};

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
    let query = ThreadQuery {
        channel: caller.narrow(ask.channel)?,
        account: ask.account,
        before: ask.before.as_deref().map(read_cursor).transpose()?,
        limit: page_limit(ask.limit),
    };
    let mut page = api.store.threads(query).await?;
    let next = page.rows.last().filter(|_| page.more).map(write_cursor);
    page.rows.retain(|row| caller.sees(&row.channel));
    Ok(Json(List { threads: page.rows.into_iter().map(Thread::from).collect(), next }))
}

pub(super) async fn one(State(api): State<Arc<Api>>, caller: Caller, Path(id): Path<String>) -> Result<Json<Thread>, Problem> {
    let id = read_thread(&id)?;
    Ok(Json(find(&api, &caller, &id).await?.into()))
}

pub(super) async fn messages(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(id): Path<String>,
    ask: Result<Query<AskMessages>, QueryRejection>,
) -> Result<Json<Messages>, Problem> {
    let (Query(ask), id) = (ask?, read_thread(&id)?);
    let before = ask.before.as_deref().map(read_entry).transpose()?;
    find(&api, &caller, &id).await?;
    let page = api.store.thread_messages(&id, before, page_limit(ask.limit)).await?;
    let next = page.rows.last().filter(|_| page.more).map(|row| write_entry(row.id));
    Ok(Json(Messages { messages: page.rows.into_iter().map(Entry::from).collect(), next }))
}

pub(super) async fn read(State(api): State<Arc<Api>>, caller: Caller, Path(id): Path<String>) -> Result<Json<Thread>, Problem> {
    let id = read_thread(&id)?;
    if caller.is_limited() {
        find(&api, &caller, &id).await?;
    }
    match api.store.mark_read(&id).await? {
        true => Ok(Json(find(&api, &caller, &id).await?.into())),
        false => Err(no_such_thread(&id)),
    }
}

async fn find(api: &Api, caller: &Caller, id: &ThreadId) -> Result<ThreadRow, Problem> {
    let found = api.store.thread(id).await?.filter(|row| caller.sees(&row.channel));
    found.ok_or_else(|| no_such_thread(id))
}

fn no_such_thread(id: &ThreadId) -> Problem {
    let text: String = id.to_string().chars().take(200).collect();
    Problem::not_found(format!("there is no thread {text}; GET /v1/threads lists what there is"))
}

/// Time and id of the last row: the list has no other order.
fn write_cursor(row: &ThreadRow) -> String {
    URL_SAFE_NO_PAD.encode(format!("{} {}", row.last_ms, row.id))
}

fn read_cursor(text: &str) -> Result<(i64, ThreadId), Problem> {
    let read = || {
        let plain = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let (at_ms, id) = plain.split_once(' ')?;
        Some((at_ms.parse().ok()?, id.parse().ok()?))
    };
    read().ok_or_else(|| Problem::bad_request("`before` is not from a page of this list: give the `next` of the page before"))
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
