//! `/v1/forget`: what one contact has said, and was told, loses its words. Keys stay.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::{Extension, Json};
use hapax_domain::limits::PAGE_MAX;
use hapax_domain::{EventId, Kind, MessageId, ThreadId};
use hapax_store::{EntryId, EventQuery, Forget, Forgotten, Reason, Store, StoreError, ThreadQuery};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::audit::Noted;
use super::{Api, Caller, Code, Problem};

/// One call takes about so long; who is told of more asks again.
const BUDGET: Duration = Duration::from_secs(10);

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AskForget {
    /// The peer, by any name: a phone number, a LID, a chat.
    contact: String,
    /// Only of this account; without it, of all.
    account: Option<String>,
    /// Where to go on: the `next` of the answer before.
    next: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Forgotten)]
pub(super) struct Done {
    /// Threads of the contact.
    threads: usize,
    /// Events that have no words now.
    events: u64,
    /// Messages that have no words now.
    messages: u64,
    /// Events and messages that are not over yet, and keep their words: ask again when they are.
    open: u64,
    /// There is more: ask again with this.
    next: Option<String>,
}

/// How far it is.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Walk {
    /// All threads were looked at.
    searched: bool,
    last_thread: Option<(i64, String)>,
    threads: Vec<String>,
    /// The first of them that is not done, the first of its names, and where its list goes on.
    thread: usize,
    name: usize,
    /// Names whose events are done: those of one person stand in more than one thread.
    #[serde(default)]
    done: Vec<String>,
    event: Option<String>,
    entry: Option<String>,
    forgotten: (u64, u64, u64),
}

/// Takes the words out of all that a contact has said and was told, and that is over.
#[utoipa::path(
    post,
    path = "/forget",
    operation_id = "forget",
    tag = "upkeep",
    request_body = AskForget,
    responses((status = 200, description = "What has no words now", body = Done)),
)]
pub(super) async fn forget(
    State(api): State<Arc<Api>>,
    caller: Caller,
    ask: Result<Json<AskForget>, JsonRejection>,
) -> Result<(Extension<Noted>, Json<Done>), Problem> {
    caller.need_all_channels()?;
    let Json(ask) = ask?;
    if ask.contact.is_empty() {
        return Err(Problem::new(Code::InvalidRequest, "`contact` is empty; name a peer, as `hapax threads` shows it"));
    }
    let bad = |_| Problem::new(Code::InvalidCursor, "`next` is not from an answer of this");
    let mut walk: Walk = ask.next.as_deref().map(serde_json::from_str).transpose().map_err(bad)?.unwrap_or_default();
    let until = Instant::now() + BUDGET;
    let mut more = true;
    while more && Instant::now() < until {
        more = step(&api, &ask, &mut walk).await?;
    }
    if !more {
        api.telemetry.forget_answers();
        api.audit.forget(&ask.contact).await?;
    }
    let (events, messages, open) = walk.forgotten;
    let next = if more { serde_json::to_string(&walk).ok() } else { None };
    let result = format!("{events} events, {messages} messages, {open} open");
    // Whose words went is not written down again.
    let noted = Noted { target: None, result: Some(result), ..Noted::default() };
    Ok((Extension(noted), Json(Done { threads: walk.threads.len(), events, messages, open, next })))
}

/// Takes one page of something; false at the end.
async fn step(api: &Api, ask: &AskForget, walk: &mut Walk) -> Result<bool, Problem> {
    if !walk.searched {
        search(api, ask, walk).await?;
        return Ok(true);
    }
    let Some(thread) = walk.threads.get(walk.thread) else { return Ok(false) };
    let thread: ThreadId = thread.parse().map_err(|_| Problem::new(Code::InvalidCursor, "`next` names no thread"))?;
    let row = api.store.thread(&thread).await?;
    if walk.name == 0 && walk.event.is_none() {
        let aliases = row.iter().flat_map(|row| &row.aliases);
        walk.threads.extend(apart(api, &thread.account, aliases, &walk.threads).await?);
    }
    let names: Vec<String> = match &row {
        Some(row) => std::iter::once(row.id.peer.clone()).chain(row.aliases.iter().cloned()).collect(),
        None => vec![thread.peer.clone()],
    };
    if let Some(name) = names.get(walk.name) {
        let spelt = ThreadId { account: thread.account.clone(), peer: name.clone() };
        let id = spelt.to_string();
        if walk.done.contains(&id) {
            walk.name += 1;
            return Ok(true);
        }
        let (done, next) = forget_events(&*api.store, spelt, walk.event.take()).await?;
        add(walk, done);
        if next.is_none() {
            walk.name += 1;
            walk.done.push(id);
        }
        walk.event = next;
        return Ok(true);
    }
    let (done, next) = forget_messages(api, &thread, walk.entry.take()).await?;
    add(walk, done);
    if next.is_none() {
        api.store.forget(Forget { threads: vec![thread], ..Forget::default() }).await?;
        (walk.thread, walk.name) = (walk.thread + 1, 0);
    }
    walk.entry = next;
    Ok(true)
}

/// Threads under these names that existed by themselves before the names were known to be one person's, and were not found yet.
async fn apart(
    api: &Api,
    account: &str,
    names: impl Iterator<Item = &String>,
    found: &[String],
) -> Result<Vec<String>, StoreError> {
    let mut apart = Vec::new();
    for peer in names {
        let id = ThreadId { account: account.to_owned(), peer: peer.clone() };
        if api.store.thread(&id).await?.is_some_and(|row| row.id == id) && !found.contains(&id.to_string()) {
            apart.push(id.to_string());
        }
    }
    Ok(apart)
}

fn add(walk: &mut Walk, done: Forgotten) {
    let (events, messages, open) = walk.forgotten;
    // What the caller brings back may be anything.
    let add = u64::saturating_add;
    walk.forgotten = (add(events, done.events), add(messages, done.messages), add(open, done.open));
}

/// Looks through one page of threads for those of the contact.
async fn search(api: &Api, ask: &AskForget, walk: &mut Walk) -> Result<(), StoreError> {
    let before = walk.last_thread.take().and_then(|(at_ms, id)| Some((at_ms, id.parse().ok()?)));
    let query = ThreadQuery { account: ask.account.clone(), before, limit: PAGE_MAX, ..ThreadQuery::default() };
    let page = api.store.threads(query).await?;
    let is_his = |name: &String| *name == ask.contact;
    let his = page.rows.iter().filter(|row| is_his(&row.id.peer) || row.aliases.iter().any(is_his));
    walk.threads.extend(his.map(|row| row.id.to_string()));
    walk.last_thread = page.next(|row| (row.last_ms, row.id.to_string()));
    walk.searched = walk.last_thread.is_none();
    // Somebody who never said anything may still stand in events: reactions, statuses.
    if let Some(account) = ask.account.as_ref().filter(|_| walk.searched && walk.threads.is_empty()) {
        walk.threads.push(ThreadId { account: account.clone(), peer: ask.contact.clone() }.to_string());
    }
    Ok(())
}

async fn forget_events(
    store: &dyn Store,
    spelt: ThreadId,
    before: Option<String>,
) -> Result<(Forgotten, Option<String>), StoreError> {
    let before = before.and_then(|id| id.parse().ok());
    let query = EventQuery { thread: Some(spelt), before, limit: PAGE_MAX, ..EventQuery::default() };
    let page = store.events(query).await?;
    let mut found: Vec<(String, EventId)> = page.rows.iter().map(|row| (row.channel.clone(), row.id)).collect();
    let mut events: BTreeSet<EventId> = found.iter().map(|(_, id)| *id).collect();
    // What was kept beside an event may have been replayed, and have something beside itself.
    while !found.is_empty() {
        let (mut firsts, mut beside) = (BTreeSet::new(), Vec::new());
        for (channel, id) in found {
            if let Some(kept) = store.event(id).await?.and_then(|detail| detail.copies?.kept) {
                beside.push((channel.clone(), kept));
                firsts.insert((channel, id));
            }
        }
        beside.extend(kept_beside(store, &firsts).await?);
        found = beside;
        found.retain(|(_, id)| events.insert(*id));
    }
    let done = store.forget(Forget { events: events.into_iter().collect(), ..Forget::default() }).await?;
    Ok((done, page.next(|row| row.id.to_string())))
}

/// All that was kept beside these events, with its channels: other contents under their keys, replies that were not sent.
async fn kept_beside(store: &dyn Store, firsts: &BTreeSet<(String, EventId)>) -> Result<Vec<(String, EventId)>, StoreError> {
    let channels: BTreeSet<&String> = firsts.iter().map(|(channel, _)| channel).collect();
    let mut found = Vec::new();
    for channel in channels {
        let mut before = None;
        loop {
            let query =
                EventQuery { channel: Some(channel.clone()), kind: Some(Kind::Notice), before, limit: PAGE_MAX, thread: None };
            let page = store.events(query).await?;
            let of = |id: &str| Reason::of_shown(id).is_some_and(|(_, first)| firsts.contains(&(channel.clone(), first)));
            found.extend(page.rows.iter().filter(|row| of(&row.provider_id)).map(|row| (channel.clone(), row.id)));
            before = page.next(|row| row.id);
            if before.is_none() {
                break;
            }
        }
    }
    Ok(found)
}

async fn forget_messages(
    api: &Api,
    thread: &ThreadId,
    before: Option<String>,
) -> Result<(Forgotten, Option<String>), StoreError> {
    let before = before.and_then(|id| read_entry(&id));
    let page = api.store.thread_messages(thread, before, PAGE_MAX).await?;
    let out = |id: &EntryId| match id {
        EntryId::Message(id) => Some(*id),
        EntryId::Event(_) => None,
    };
    let messages: Vec<MessageId> = page.rows.iter().filter_map(|row| out(&row.id)).collect();
    let done = api.store.forget(Forget { messages, ..Forget::default() }).await?;
    let next = page.next(|row| match row.id {
        EntryId::Event(id) => id.to_string(),
        EntryId::Message(id) => id.to_string(),
    });
    Ok((done, next))
}

fn read_entry(id: &str) -> Option<EntryId> {
    id.parse().ok().map(EntryId::Event).or_else(|| id.parse().ok().map(EntryId::Message))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hapax_store::memory::MemoryStore;
    use hapax_store::prelude::*;
    use hapax_store::{Beside, Outcome, keep_beside};
    use hapax_testkit::hand_clock::HandClock;
    use hapax_testkit::store_fixture::{START_MS, accept_one, lease, message};

    use super::*;

    /// Keeps something beside an event, and says under which id.
    async fn keep(store: &MemoryStore, reason: Reason, first: EventId) -> EventId {
        let beside = Beside {
            reason,
            first,
            channel: "shop".into(),
            account: "acc".to_owned(),
            window_ms: 60_000,
            why: "a test".to_owned(),
            content: Bytes::from_static(b"a secret"),
            fingerprint: 1,
        };
        keep_beside(store, beside).await.expect("kept");
        let newest = store.events(EventQuery { limit: 1, ..EventQuery::default() }).await.expect("events");
        newest.rows[0].id
    }

    /// A kept event that is replayed may be answered with replies that cannot be sent, and so may those, and so on.
    #[tokio::test]
    async fn what_is_kept_beside_kept_events_goes_with_the_first() {
        let store = MemoryStore::new(Arc::new(HandClock::at(START_MS)));
        let hers = accept_one(&store, message("m1", "ana")).await;
        let his = accept_one(&store, message("m2", "bob")).await;
        for held in lease(&store, 10).await {
            let delivered = Outcome::Delivered { status: 200, answer: None, replies: Vec::new() };
            store.settle_inbox(held.lane, held.fence, delivered).await.expect("settled");
        }
        let conflict = keep(&store, Reason::Conflict, hers).await;
        let unsent = keep(&store, Reason::Unsent, conflict).await;
        let unsent_again = keep(&store, Reason::Unsent, unsent).await;
        let beside_his = keep(&store, Reason::Conflict, his).await;
        let ana = ThreadId { account: "acc".to_owned(), peer: "ana".to_owned() };
        let (done, next) = forget_events(&store, ana, None).await.expect("forgotten");
        assert_eq!((done, next), (Forgotten { events: 4, ..Forgotten::default() }, None));
        for (id, is_left) in
            [(hers, false), (conflict, false), (unsent, false), (unsent_again, false), (his, true), (beside_his, true)]
        {
            let shown = store.event(id).await.expect("an answer").expect("it is there");
            assert_eq!(!shown.body.is_empty(), is_left, "{:?}", shown.row);
        }
    }
}
