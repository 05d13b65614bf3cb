//! `/v1/threads`: who talks with whom, and what was said.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use futures_util::future::try_join;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::events::read_thread;
use super::filtered::{self, Look};
use super::list::{ASKED_AT_ONCE, Asked, page, page_limit, page_of};
use super::takeovers::Paused;
use super::thread_view::{self, LOOK_AT_ONE, LOOK_IN_LIST, View};
use super::time::rfc3339;
use super::{Api, Caller, Cursors, Problem};
use crate::takeover::Pause;
use hapax_domain::filter::{Filter, Grammar, Word};
use hapax_domain::{EventId, ThreadId};
use hapax_store::{EntryId, EventQuery, ThreadMessage, ThreadQuery, ThreadRow};

/// Accounts whose threads a token of some channels is shown, beside those that its channels began.
const ACCOUNTS_MAX: usize = 32;
/// Newest threads and events of each channel that tell its accounts.
const LOOK_FOR_ACCOUNTS: usize = 20;
/// Threads that are looked at for one page of such a token, beside twice as many as it wants: others' in its accounts are passed over.
const LOOK_FOR_PAGE: usize = 100;
/// Threads that are asked for at once, at least.
const LOOK_AT_ONCE: usize = 20;

const GRAMMAR: Grammar =
    Grammar { words: &[Word::Channel, Word::Account, Word::Text, Word::Since, Word::Before], states: &[], kinds: &[] };

#[derive(Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ThreadsParams {
    /// A filter, as `channel:shop state:parked since:1h text:"refund"`.
    pub(crate) q: Option<String>,
    pub(crate) channel: Option<String>,
    pub(crate) account: Option<String>,
    /// Where the page begins: the `next` of the page before.
    pub(crate) cursor: Option<String>,
    /// How many rows at most: 1 to 500, 50 unless told.
    pub(crate) limit: Option<usize>,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct AskMessages {
    /// Where the page begins: the `next` of the page before.
    cursor: Option<String>,
    /// How many rows at most: 1 to 500, 50 unless told.
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Thread {
    pub(crate) id: String,
    pub(crate) channel: String,
    pub(crate) account: String,
    pub(crate) peer: String,
    /// Other names of the same person.
    pub(crate) aliases: Vec<String>,
    pub(crate) last_message_at: String,
    pub(crate) last_message_text: Option<String>,
    pub(crate) last_direction: &'static str,
    pub(crate) unread: u64,
    /// Set while a person has taken it over: the bot gets nothing of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paused: Option<Paused>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ThreadEntry)]
pub(crate) struct Entry {
    /// `evt_..` for what came in, `msg_..` for what hapax sends.
    id: String,
    direction: &'static str,
    at: String,
    text: Option<String>,
    provider_id: Option<String>,
    /// How far it has come; what came in is `delivered`, and `read` once it was marked so.
    status: Option<&'static str>,
}

/// Lists conversations, the one with the newest message first.
#[utoipa::path(
    get,
    path = "/threads",
    operation_id = "listThreads",
    tag = "threads",
    params(ThreadsParams),
    responses((status = 200, description = "One page, newest first", body = ThreadsPage)),
)]
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Asked(ask): Asked<ThreadsParams>,
) -> Result<Json<ThreadsPage>, Problem> {
    let filter = filtered::read(&api, &caller, ask.q.as_deref(), &GRAMMAR)?.and(Word::Channel, ask.channel)?;
    let filter = filter.and(Word::Account, ask.account)?;
    let [channel, account] = [Word::Channel, Word::Account].map(|word| filter.wanted(word).map(str::to_owned));
    let filter = filter.without(&[Word::Channel, Word::Account]);
    let cursors = Cursors::new(&api, &caller, "threads", ask.q.as_deref().unwrap_or_default());
    let cursor = |place: Place| cursors.write(&write_place(&place));
    let before = cursors.place(ask.cursor.as_deref(), read_place)?;
    let limit = page_limit(ask.limit);
    let own: Vec<ThreadQuery> = caller
        .narrow(channel.clone())?
        .into_iter()
        .map(|channel| ThreadQuery { channel, account: account.clone(), ..ThreadQuery::default() })
        .collect();
    if caller.is_limited() {
        let shared = shared_parts(&api, &caller, channel, account).await?;
        let all = own.iter().cloned().chain(shared).collect();
        let shown = look(&api, &caller, &filter, all, before.clone(), limit).await?;
        // Behind so many of others' there may still be what its own channels began.
        let shown = if shown.rows.is_empty() { look(&api, &caller, &filter, own, before, limit).await? } else { shown };
        return Ok(Json(ThreadsPage::new(with_pauses(&api, &caller, shown.rows).await?, shown.next.map(cursor), None)));
    }
    let fetch = async |before: Option<Place>, limit: usize| {
        let of = |part: ThreadQuery| api.store.threads(ThreadQuery { before: before.clone(), limit, ..part });
        Ok::<_, Problem>(page_of(own.clone(), limit, of, newest_first).await?)
    };
    if filter.is_empty() {
        let page = fetch(before, limit).await?;
        let next = page.next(|row| cursor(place_of(row)));
        return Ok(Json(ThreadsPage::new(with_pauses(&api, &caller, page.rows).await?, next, None)));
    }
    let read = async |row: ThreadRow| Ok(Some(row));
    let found = filtered::find(limit, before, fetch, place_of, |row| fits(&filter, row), read).await?;
    Ok(Json(ThreadsPage::new(with_pauses(&api, &caller, found.rows).await?, found.next.map(cursor), Some(found.looked_at))))
}

/// A thread is found by its last message.
fn fits(filter: &Filter, row: &ThreadRow) -> Look {
    let fits = filter.allows(Word::Channel, |channel| channel == row.channel)
        && filter.allows(Word::Account, |account| account == row.id.account)
        && filtered::text_fits(filter, || row.last_text.clone().unwrap_or_default());
    match filtered::look_at_time(filter, row.last_ms, true) {
        Look::Keep if !fits => Look::Skip,
        look => look,
    }
}

page!(ThreadsPage { threads: Thread });
page!(MessagesPage { messages: Entry });

/// One page, and the last row of it where there may be more.
#[derive(Default)]
struct Shown {
    rows: Vec<ThreadRow>,
    next: Option<Place>,
}

/// Where a row stands in the list.
type Place = (i64, ThreadId);

fn place_of(row: &ThreadRow) -> Place {
    (row.last_ms, row.id.clone())
}

fn newest_first(a: &ThreadRow, b: &ThreadRow) -> Ordering {
    (b.last_ms, &b.id).cmp(&(a.last_ms, &a.id))
}

/// Looks for the threads of which the caller may see a part. A row that is not shown leaves no trace: the next page begins behind one that is,
/// and where the looking ended without one there is no next page.
async fn look(
    api: &Api,
    caller: &Caller,
    filter: &Filter,
    parts: Vec<ThreadQuery>,
    mut before: Option<Place>,
    limit: usize,
) -> Result<Shown, Problem> {
    let (mut left, mut seen) = (2 * limit + LOOK_FOR_PAGE, HashSet::new());
    let (mut shown, mut last) = (Shown::default(), None);
    loop {
        // One more than the page holds: whether there is a next one is told by a row that will be on it.
        let size = (limit + 1 - shown.rows.len()).max(LOOK_AT_ONCE).min(left);
        let of = |part: ThreadQuery| api.store.threads(ThreadQuery { before: before.clone(), limit: size, ..part });
        let page = page_of(parts.clone(), size, of, newest_first).await?;
        left -= page.rows.len();
        before = page.rows.last().filter(|_| page.more).map(place_of);
        let fresh = page.rows.into_iter().filter(|row| seen.insert(row.id.clone()));
        let views: Vec<_> = fresh.map(|row| placed(api, caller, row)).collect();
        let mut views = stream::iter(views).buffered(ASKED_AT_ONCE);
        while let Some(view) = views.try_next().await? {
            let Some((place, row)) = view else { continue };
            if shown.rows.len() == limit {
                shown.next = last;
                return Ok(shown);
            }
            last = Some(place);
            if fits(filter, &row) == Look::Keep {
                shown.rows.push(row);
            }
        }
        if before.is_none() || left == 0 {
            shown.next = last.filter(|_| before.is_some());
            return Ok(shown);
        }
    }
}

/// What the caller sees of a row, and where that row stands.
async fn placed(api: &Api, caller: &Caller, row: ThreadRow) -> Result<Option<(Place, ThreadRow)>, Problem> {
    let place = place_of(&row);
    let view = thread_view::view(api, caller, row, LOOK_IN_LIST, None).await?;
    Ok(view.map(|view| (place, view.row)))
}

/// A thread is listed under the channel that began it, so a token of some channels is shown the threads that others began in its accounts as
/// well, as far as its own channels speak in them.
async fn shared_parts(
    api: &Api,
    caller: &Caller,
    channel: Option<String>,
    account: Option<String>,
) -> Result<Vec<ThreadQuery>, Problem> {
    let own = caller.narrow(channel)?;
    // To ask for one of several channels is to ask for what that one began.
    if own != caller.narrow(None)? {
        return Ok(Vec::new());
    }
    let reads: Vec<_> = own.into_iter().map(|channel| accounts_of(api, channel)).collect();
    let accounts: Vec<Vec<String>> = stream::iter(reads).buffered(ASKED_AT_ONCE).try_collect().await?;
    let mut accounts: BTreeSet<String> = accounts.into_iter().flatten().collect();
    accounts.retain(|known| account.as_ref().is_none_or(|asked| asked == known));
    let part = |account| ThreadQuery { account: Some(account), ..ThreadQuery::default() };
    Ok(accounts.into_iter().take(ACCOUNTS_MAX).map(part).collect())
}

/// The accounts in which a channel speaks: of its newest threads, and of its newest events, as in a thread that another channel began.
async fn accounts_of(api: &Api, channel: Option<String>) -> Result<Vec<String>, Problem> {
    let limit = LOOK_FOR_ACCOUNTS;
    let begun = ThreadQuery { channel: channel.clone(), limit, ..ThreadQuery::default() };
    let heard = EventQuery { channel, limit, ..EventQuery::default() };
    let (begun, heard) = try_join(api.store.threads(begun), api.store.events(heard)).await?;
    let begun = begun.rows.into_iter().map(|row| row.id.account);
    Ok(begun.chain(heard.rows.into_iter().map(|row| row.account)).collect())
}

/// Shows one conversation, by any name of the person.
#[utoipa::path(
    get,
    path = "/threads/{id}",
    operation_id = "getThread",
    tag = "threads",
    params(("id" = String, Path, description = "`{account}__{peer}`")),
    responses((status = 200, description = "The thread", body = Thread), (status = 404)),
)]
pub(super) async fn one(State(api): State<Arc<Api>>, caller: Caller, Path(id): Path<String>) -> Result<Json<Thread>, Problem> {
    let id = read_thread(&id)?;
    shown(&api, &caller, find(&api, &caller, &id).await?.row).await
}

/// Lists what was said in a conversation, newest first.
#[utoipa::path(
    get,
    path = "/threads/{id}/messages",
    operation_id = "listThreadMessages",
    tag = "threads",
    params(("id" = String, Path, description = "`{account}__{peer}`"), AskMessages),
    responses((status = 200, description = "One page, newest first", body = MessagesPage), (status = 404)),
)]
pub(super) async fn messages(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(id): Path<String>,
    Asked(ask): Asked<AskMessages>,
) -> Result<Json<MessagesPage>, Problem> {
    let id = read_thread(&id)?;
    let cursors = Cursors::new(&api, &caller, "messages", &id.to_string());
    let before = cursors.place(ask.cursor.as_deref(), read_entry)?;
    find(&api, &caller, &id).await?;
    let (rows, next) = thread_view::messages(&api, &caller, &id, before, page_limit(ask.limit)).await?;
    let next = next.map(|entry| cursors.write(&write_entry(entry)));
    Ok(Json(MessagesPage::new(api.shown(&caller, rows), next, None)))
}

/// Marks what came in as read.
#[utoipa::path(
    post,
    path = "/threads/{id}/read",
    operation_id = "markThreadRead",
    tag = "threads",
    params(("id" = String, Path, description = "`{account}__{peer}`")),
    responses((status = 200, description = "Nothing in it is unread now", body = Thread), (status = 404)),
)]
pub(crate) async fn read(State(api): State<Arc<Api>>, caller: Caller, Path(id): Path<String>) -> Result<Json<Thread>, Problem> {
    let id = read_thread(&id)?;
    if caller.is_limited() && find(&api, &caller, &id).await?.shared {
        let why = "another channel speaks in this thread too, and has read nothing; use a token of all its channels";
        return Err(Problem::forbidden(why));
    }
    match api.store.mark_read(&id).await? {
        true => shown(&api, &caller, find(&api, &caller, &id).await?.row).await,
        false => Err(no_such_thread(&id)),
    }
}

pub(crate) async fn shown(api: &Api, caller: &Caller, row: ThreadRow) -> Result<Json<Thread>, Problem> {
    let pauses = api.takeovers.list().await?;
    let paused = api.takeovers.of(&pauses, &row.id).await?;
    Ok(Json((api.shown_one(caller, row), paused).into()))
}

async fn with_pauses(api: &Api, caller: &Caller, rows: Vec<ThreadRow>) -> Result<Vec<Thread>, Problem> {
    let pauses = api.takeovers.list().await?;
    let paused: Vec<_> = rows.iter().map(|row| api.takeovers.of(&pauses, &row.id)).collect();
    let paused: Vec<_> = stream::iter(paused).buffered(ASKED_AT_ONCE).try_collect().await?;
    Ok(api.shown(caller, rows).into_iter().zip(paused).map(Thread::from).collect())
}

pub(super) async fn find(api: &Api, caller: &Caller, id: &ThreadId) -> Result<View, Problem> {
    let found = match api.store.thread(id).await? {
        Some(row) => thread_view::view(api, caller, row, LOOK_AT_ONE, Some(id)).await?,
        None => None,
    };
    found.ok_or_else(|| no_such_thread(id))
}

pub(crate) fn no_such_thread(id: &ThreadId) -> Problem {
    let text: String = id.to_string().chars().take(200).collect();
    Problem::not_found(format!("there is no thread {text}; GET /v1/threads lists what there is"))
}

/// Time and id of the last row: the list has no other order.
fn write_place((last_ms, id): &Place) -> String {
    format!("{last_ms} {id}")
}

fn read_place(place: &str) -> Result<Place, Problem> {
    let (at_ms, id) = place.split_once(' ').unwrap_or_default();
    Ok((at_ms.parse().unwrap_or_default(), read_thread(id)?))
}

pub(crate) fn write_entry(entry: EntryId) -> String {
    match entry {
        EntryId::Event(id) => id.to_string(),
        EntryId::Message(id) => id.to_string(),
    }
}

pub(crate) fn read_entry(text: &str) -> Result<EntryId, Problem> {
    if text.starts_with(EventId::PREFIX) {
        return Ok(EntryId::Event(text.parse()?));
    }
    Ok(EntryId::Message(text.parse()?))
}

impl From<(ThreadRow, Option<Pause>)> for Thread {
    fn from((row, paused): (ThreadRow, Option<Pause>)) -> Self {
        Self {
            paused: paused.map(Paused::from),
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
