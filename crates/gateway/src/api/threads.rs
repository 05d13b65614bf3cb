//! `/v1/threads`: who talks with whom, and what was said.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};

use super::events::read_thread;
use super::list::{ASKED_AT_ONCE, Asked, List, page_limit, page_of};
use super::thread_view::{self, LOOK_AT_ONE, LOOK_IN_LIST, View};
use super::time::rfc3339;
use super::{Api, Caller, Cursors, Problem};
use hapax_domain::limits::PAGE_MAX;
use hapax_domain::{EventId, ThreadId};
use hapax_store::{EntryId, EventQuery, ThreadMessage, ThreadQuery, ThreadRow};

/// How often the store is asked for one page of a token of some channels: threads of others in its accounts are passed over.
const LOOKS_FOR_PAGE: usize = 10;
/// Accounts whose threads such a token is shown, beside those that its channels began.
const ACCOUNTS_MAX: usize = 32;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ThreadsParams {
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
pub(super) struct Entry {
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
    Asked(ask): Asked<ThreadsParams>,
) -> Result<Json<List<Thread>>, Problem> {
    let cursors = Cursors::new(&api, &caller, "threads", "");
    let mut before = cursors.place(ask.before.as_deref(), read_place)?;
    let limit = page_limit(ask.limit);
    let parts = parts(&api, &caller, ask.channel, ask.account).await?;
    let newest_first = |a: &ThreadRow, b: &ThreadRow| (b.last_ms, &b.id).cmp(&(a.last_ms, &a.id));
    let (mut rows, mut next) = (Vec::new(), None);
    for _ in 0..LOOKS_FOR_PAGE {
        let wanted = limit - rows.len();
        let of = |part: ThreadQuery| api.store.threads(ThreadQuery { before: before.clone(), limit: wanted, ..part });
        let page = page_of(parts.clone(), wanted, of, newest_first).await?;
        let last = page.rows.last().filter(|_| page.more).map(|row| (row.last_ms, row.id.clone()));
        let views = page.rows.into_iter().map(|row| thread_view::view(&api, &caller, row, LOOK_IN_LIST));
        let views: Vec<Option<View>> = stream::iter(views).buffered(ASKED_AT_ONCE).try_collect().await?;
        rows.extend(views.into_iter().flatten().map(|view| Thread::from(view.row)));
        next = last.as_ref().map(|last| cursors.write(&write_place(last)));
        before = last;
        if before.is_none() || rows.len() >= limit {
            break;
        }
    }
    Ok(Json(List { name: "threads", rows, next }))
}

/// What to ask the store for. A thread is listed under the channel that began it, so a token of some channels is shown the threads that others
/// began in its accounts as well, as far as its own channels speak in them.
async fn parts(
    api: &Api,
    caller: &Caller,
    channel: Option<String>,
    account: Option<String>,
) -> Result<Vec<ThreadQuery>, Problem> {
    let own = caller.narrow(channel)?;
    let mut parts: Vec<ThreadQuery> = own
        .iter()
        .map(|channel| ThreadQuery { channel: channel.clone(), account: account.clone(), ..ThreadQuery::default() })
        .collect();
    // To ask for one of several channels is to ask for what that one began.
    if !caller.is_limited() || own != caller.narrow(None)? {
        return Ok(parts);
    }
    let accounts = match account {
        Some(account) => BTreeSet::from([account]),
        None => accounts_of(api, own).await?,
    };
    parts.extend(accounts.into_iter().map(|account| ThreadQuery { account: Some(account), ..ThreadQuery::default() }));
    Ok(parts)
}

/// The accounts in which these channels heard something of late.
async fn accounts_of(api: &Api, channels: Vec<Option<String>>) -> Result<BTreeSet<String>, Problem> {
    let mut accounts = BTreeSet::new();
    for channel in channels {
        let heard = EventQuery { channel, limit: PAGE_MAX, ..EventQuery::default() };
        accounts.extend(api.store.events(heard).await?.rows.into_iter().map(|event| event.account));
    }
    Ok(accounts.into_iter().take(ACCOUNTS_MAX).collect())
}

pub(super) async fn one(State(api): State<Arc<Api>>, caller: Caller, Path(id): Path<String>) -> Result<Json<Thread>, Problem> {
    let id = read_thread(&id)?;
    Ok(Json(find(&api, &caller, &id).await?.row.into()))
}

pub(super) async fn messages(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(id): Path<String>,
    Asked(ask): Asked<AskMessages>,
) -> Result<Json<List<Entry>>, Problem> {
    let id = read_thread(&id)?;
    let cursors = Cursors::new(&api, &caller, "messages", &id.to_string());
    let before = cursors.place(ask.before.as_deref(), read_entry)?;
    find(&api, &caller, &id).await?;
    let (rows, next) = thread_view::messages(&api, &caller, &id, before, page_limit(ask.limit)).await?;
    let next = next.map(|entry| cursors.write(&write_entry(entry)));
    Ok(Json(List { name: "messages", rows: rows.into_iter().map(Entry::from).collect(), next }))
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
    let Some(view) = found else { return Err(no_such_thread(id)) };
    // Whose name it is may be what another channel alone knows.
    if thread_view::is_known_as(api, caller, &view, id).await? { Ok(view) } else { Err(no_such_thread(id)) }
}

fn no_such_thread(id: &ThreadId) -> Problem {
    let text: String = id.to_string().chars().take(200).collect();
    Problem::not_found(format!("there is no thread {text}; GET /v1/threads lists what there is"))
}

/// Time and id of the last row: the list has no other order.
fn write_place((last_ms, id): &(i64, ThreadId)) -> String {
    format!("{last_ms} {id}")
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
