//! Removing what nobody needs any more, a little at a time.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::future::try_join_all;
use hapax_domain::ThreadId;
use hapax_domain::age::{Dated, Sifted, sift};

use super::engine::{Engine, Pool, Tx, TxError, Wanted};
use super::records::{EventRec, Hash, MessageRec, ThreadRec, thread_hash};
use super::run::{Step, run};
use super::work::Work;
use crate::pieces::purged_at_once;
use crate::{Purged, StoreError, ThreadQuery};

/// How far this instance has looked; each purge step goes on from there, and from the start again after the end.
#[derive(Default)]
pub(super) struct Cursors {
    webhooks: Mutex<Cursor>,
    messages: Mutex<Cursor>,
    /// The last thread looked at: newest first, by its last words.
    threads: Mutex<Option<(i64, ThreadId)>>,
    done: Mutex<Done>,
}

/// What this instance has gone through to the end. It is begun anew only after the threads: rounds of different lengths, each begun anew as it
/// ends, may never be at their end together.
#[derive(Clone, Copy, Default)]
struct Done {
    webhooks: bool,
    messages: bool,
}

#[derive(Clone, Copy, Default)]
struct Cursor {
    after: u64,
    /// See [`sift`].
    witness: Option<Dated>,
}

fn read(cursor: &Mutex<Cursor>) -> Cursor {
    *cursor.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long the channels keep what is over.
struct Keep<'k> {
    retention: &'k [(String, i64)],
    now_ms: i64,
}

impl Keep<'_> {
    /// A channel that is not listed is kept as long as the one that is kept longest.
    fn is_old(&self, channel: &str, at_ms: i64) -> bool {
        let listed = self.retention.iter().find(|(listed, _)| listed == channel).map(|(_, keep_ms)| *keep_ms);
        let longest = self.retention.iter().map(|(_, keep_ms)| *keep_ms).max();
        listed.or(longest).is_some_and(|keep_ms| at_ms + keep_ms <= self.now_ms)
    }

    /// Nothing younger than this is old in any channel.
    fn shortest_ms(&self) -> Option<i64> {
        self.retention.iter().map(|(_, keep_ms)| *keep_ms).min()
    }
}

pub(super) async fn purge<E: Engine>(
    engine: &E,
    cursors: &Cursors,
    retention: &[(String, i64)],
    max: usize,
) -> Result<Purged, StoreError> {
    engine.follow_clock().await?;
    let keys = engine.purge_keys(max).await?;
    let keep = Keep { retention, now_ms: engine.now_ms().await? };
    let registers = engine.purge_registers(max).await?;
    let claims = engine.purge_claims(max).await?;
    let some = purged_at_once(max);
    let more = engine.purge_pieces(some).await? as usize >= some;
    let mut purged = Purged { keys, events: 0, more: more || keys.max(registers).max(claims) as usize >= max };
    let Some(shortest_ms) = keep.shortest_ms() else { return Ok(purged) };

    let mut done = cursors.done();
    if !done.webhooks {
        let (events, more) = purge_webhooks(engine, cursors, &keep, shortest_ms, max).await?;
        purged.events += events;
        done.webhooks = !more;
        cursors.set_done(done);
    }
    if !done.messages {
        done.messages = !purge_messages(engine, cursors, &keep, shortest_ms, max).await?;
        cursors.set_done(done);
    }
    // After the messages, so that their former names go with them.
    let longest = retention.iter().map(|(_, keep_ms)| *keep_ms).max().unwrap_or_default();
    purged.more |= engine.purge_names(keep.now_ms - longest, max).await? as usize >= max;
    // Last of all: what is gone by now may have been the last of a thread.
    if !(done.webhooks && done.messages) {
        return Ok(Purged { more: true, ..purged });
    }
    let more = purge_threads(engine, cursors, &keep, keep.now_ms - shortest_ms, max).await?;
    if !more {
        cursors.set_done(Done::default());
    }
    purged.more |= more;
    Ok(purged)
}

/// Looks at the next webhooks; gives how many events went, and whether there are more to look at.
async fn purge_webhooks<E: Engine>(
    engine: &E,
    cursors: &Cursors,
    keep: &Keep<'_>,
    shortest_ms: i64,
    max: usize,
) -> Result<(u64, bool), StoreError> {
    let some = max.min(WEBHOOKS);
    let cursor = read(&cursors.webhooks);
    let page = engine.webhooks_after(cursor.after, some).await?;
    let sifted = sift(&page, cursor.witness, shortest_ms, keep.now_ms, page.len() >= some);
    let mut more = advance(&cursors.webhooks, &sifted);
    let old_at: HashMap<u64, i64> = sifted.old.iter().map(|row| (row.number, row.at_ms)).collect();
    let numbers: Vec<u64> = sifted.old.iter().map(|row| row.number).collect();
    let events = if numbers.is_empty() { Vec::new() } else { engine.events_of(&numbers).await? };
    let mut replayed = HashSet::new();
    for event in events.iter().filter(|event| event.replays > 0) {
        if !engine.list_replays(event.number).await?.is_empty() {
            replayed.insert(event.webhook);
        }
    }
    let is_old = |event: &EventRec| old_at.get(&event.webhook).is_some_and(|at_ms| keep.is_old(&event.channel, *at_ms));
    let over = |event: &EventRec| is_old(event) && !replayed.contains(&event.webhook);
    let old: Vec<EventRec> = events.into_iter().filter(over).collect();
    let (mut removed, mut last) = (0, None);
    for chunk in chunks(old, CHUNK.min(max)) {
        if removed >= max as u64 {
            more = advance(&cursors.webhooks, &Sifted { to: last, more: true, witness: cursor.witness, ..Sifted::default() });
            break;
        }
        last = chunk.last().map(|event| event.webhook);
        removed += run(engine, &PurgeEvents(chunk)).await?;
    }
    Ok((removed, more))
}

/// Looks at the next messages; true when there are more.
async fn purge_messages<E: Engine>(
    engine: &E,
    cursors: &Cursors,
    keep: &Keep<'_>,
    shortest_ms: i64,
    max: usize,
) -> Result<bool, StoreError> {
    let cursor = read(&cursors.messages);
    let page = engine.messages_after(cursor.after, max).await?;
    let sifted = sift(&page, cursor.witness, shortest_ms, keep.now_ms, page.len() >= max);
    let more = advance(&cursors.messages, &sifted);
    let old = old_messages(engine, keep, &sifted.old).await?;
    if !old.is_empty() {
        run(engine, &PurgeMessages(old)).await?;
    }
    Ok(more)
}

/// Those of the messages whose channel does not keep them longer.
async fn old_messages<E: Engine>(engine: &E, keep: &Keep<'_>, old: &[Dated]) -> Result<Vec<MessageRec>, StoreError> {
    if old.is_empty() {
        return Ok(Vec::new());
    }
    let messages = old.iter().map(|row| row.number).collect();
    let mut there = engine.peek(&Wanted { messages, ..Wanted::default() }).await?.messages;
    let found = old.iter().filter_map(|row| Some((there.remove(&row.number)?, row.at_ms)));
    Ok(found.filter(|(message, at_ms)| keep.is_old(&message.channel, *at_ms)).map(|(message, _)| message).collect())
}

/// Looks at the next threads whose last words are old; true when there are more. Those whose last words are from the future come first: they go
/// with what said them.
async fn purge_threads<E: Engine>(
    engine: &E,
    cursors: &Cursors,
    keep: &Keep<'_>,
    before_ms: i64,
    max: usize,
) -> Result<bool, StoreError> {
    let top = || (before_ms + 1, ThreadId { account: String::new(), peer: String::new() });
    let list = |before, most| async move { engine.list_threads(&ThreadQuery { before, ..ThreadQuery::default() }, most).await };
    let is_ahead = |at_ms: i64| at_ms > keep.now_ms;
    let cursor = cursors.threads().clone();
    let ahead = match &cursor {
        Some((at_ms, _)) => is_ahead(*at_ms),
        None => list(None, 1).await?.first().is_some_and(|newest| is_ahead(newest.last_ms)),
    };
    let some = max.min(THREADS);
    let page = list(cursor.or_else(|| (!ahead).then(top)), some).await?;
    let last = page.last().filter(|_| page.len() == some);
    let last = last.map(|thread| (thread.last_ms, ThreadId { account: thread.account.clone(), peer: thread.peer.clone() }));
    // In between are those that are young.
    let last = if ahead { last.filter(|(at_ms, _)| is_ahead(*at_ms)).or_else(|| Some(top())) } else { last };
    let (mut gone, mut quiet) = (Vec::new(), Vec::new());
    let is_old = |thread: &ThreadRec| is_ahead(thread.last_ms) || keep.is_old(&thread.channel, thread.last_ms);
    let old: Vec<ThreadRec> = page.into_iter().filter(is_old).collect();
    for some in old.chunks(AT_ONCE) {
        let hashes: Vec<Hash> = some.iter().map(|thread| thread_hash(&thread.account, &thread.peer)).collect();
        let newest = try_join_all(hashes.iter().map(|hash| engine.thread_entries(hash, 0, None, 1))).await?;
        for (thread, newest) in some.iter().zip(newest) {
            match newest.first() {
                None => gone.push(thread.clone()),
                Some(newest) if newest.number() <= thread.purged_to && thread.last_text.is_some() => quiet.push(thread.clone()),
                Some(_) => {}
            }
        }
    }
    if !gone.is_empty() || !quiet.is_empty() {
        run(engine, &PurgeThreads { gone, quiet }).await?;
    }
    let more = last.is_some();
    *cursors.threads() = last;
    Ok(more)
}

impl Cursors {
    fn threads(&self) -> std::sync::MutexGuard<'_, Option<(i64, ThreadId)>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self) -> Done {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_done(&self, done: Done) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = done;
    }
}

/// Whole webhooks, some thousand events at a time: what one transaction removes stays small.
fn chunks(events: Vec<EventRec>, most: usize) -> Vec<Vec<EventRec>> {
    let mut chunks: Vec<Vec<EventRec>> = Vec::new();
    for event in events {
        let last = chunks
            .last_mut()
            .filter(|chunk| chunk.len() < most || chunk.last().is_some_and(|before| before.webhook == event.webhook));
        match last {
            Some(chunk) => chunk.push(event),
            None => chunks.push(vec![event]),
        }
    }
    chunks
}

const CHUNK: usize = 1_000;
/// Webhooks read at once: each may have a thousand events.
const WEBHOOKS: usize = 200;
/// Threads looked at in one step, and how many of them together: each is a question of its own.
const THREADS: usize = 500;
const AT_ONCE: usize = 16;

/// Remembers where to go on; true when there is more to look at.
fn advance(cursor: &Mutex<Cursor>, sifted: &Sifted) -> bool {
    let after = sifted.to.filter(|_| sifted.more).unwrap_or_default();
    *cursor.lock().unwrap_or_else(PoisonError::into_inner) = Cursor { after, witness: sifted.witness };
    sifted.more
}

/// Old events of whole webhooks; those with an open item stay, and with them all events of their webhook.
struct PurgeEvents(Vec<EventRec>);

#[async_trait]
impl Step for PurgeEvents {
    type Out = u64;
    const POOL: Pool = Pool::Admin;

    fn numbers(&self) -> usize {
        0
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<u64, TxError> {
        let mut work = Work::new(tx.now_ms());
        let items = self.0.iter().filter_map(|event| event.item).collect();
        let locked_events = self.0.iter().map(|event| event.number).collect();
        work.load(tx, Wanted { items, locked_events, ..Wanted::default() }).await?;
        let is_open = |event: &EventRec| event.item.is_some_and(|item| work.items.get(&item).is_some());
        // Somebody may have asked for a replay since it was looked at.
        let is_same = |event: &EventRec| work.events.get(&event.number).is_none_or(|now| now.replays == event.replays);
        let needed = self.0.iter().filter(|event| is_open(event) || !is_same(event));
        let needed: HashSet<u64> = needed.map(|event| event.webhook).collect();
        let gone: Vec<&EventRec> = self.0.iter().filter(|event| !needed.contains(&event.webhook)).collect();
        if gone.is_empty() {
            return Ok(0);
        }
        work.cut_threads(tx, gone.iter().filter_map(|event| Some((event.thread?, event.number)))).await?;
        let removed = gone.len() as u64;
        work.gone_events = gone.into_iter().cloned().collect();
        tx.save(work.changes()).await?;
        Ok(removed)
    }
}

struct PurgeMessages(Vec<MessageRec>);

#[async_trait]
impl Step for PurgeMessages {
    type Out = ();
    const POOL: Pool = Pool::Admin;

    fn numbers(&self) -> usize {
        0
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<(), TxError> {
        let mut work = Work::new(tx.now_ms());
        let numbers: Vec<u64> = self.0.iter().map(|message| message.number).collect();
        let named = self.0.iter().flat_map(|message| {
            let names = message.provider_id.as_deref().into_iter().chain(message.past.names());
            names.map(|name| (message.account.clone(), name.to_owned()))
        });
        let wanted =
            Wanted { provider_names: named.collect(), messages: numbers.clone(), outs: numbers.clone(), ..Wanted::default() };
        work.load(tx, wanted).await?;
        // Somebody may have put one back into the outbox meanwhile.
        let gone: HashSet<u64> = numbers.into_iter().filter(|number| work.outs.get(number).is_none()).collect();
        let entries = self.0.iter().filter(|message| gone.contains(&message.number));
        work.cut_threads(tx, entries.map(|message| (message.thread, message.number))).await?;
        let names: Vec<Hash> = work
            .provider_names
            .values()
            .filter(|name| name.message.is_some_and(|message| gone.contains(&message)))
            .map(|name| super::records::name_hash(&name.account, &name.provider_id))
            .collect();
        for name in &names {
            work.provider_names.remove(name);
        }
        for number in &gone {
            work.messages.remove(number);
        }
        tx.save(work.changes()).await
    }
}

/// Threads of which nothing is left, and those whose last words are gone.
struct PurgeThreads {
    gone: Vec<ThreadRec>,
    quiet: Vec<ThreadRec>,
}

#[async_trait]
impl Step for PurgeThreads {
    type Out = ();
    const POOL: Pool = Pool::Admin;

    fn numbers(&self) -> usize {
        0
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<(), TxError> {
        let mut work = Work::new(tx.now_ms());
        let hash = |thread: &ThreadRec| thread_hash(&thread.account, &thread.peer);
        let threads = self.gone.iter().chain(&self.quiet).map(hash).collect();
        work.load(tx, Wanted { threads, ..Wanted::default() }).await?;
        // Whoever has said something since has changed the record under its lock.
        for thread in &self.gone {
            if work.threads.get(&hash(thread)) == Some(thread) {
                work.threads.remove(&hash(thread));
            }
        }
        for thread in &self.quiet {
            if work.threads.get(&hash(thread)) == Some(thread)
                && let Some(thread) = work.threads.change(&hash(thread))
            {
                thread.last_text = None;
            }
        }
        tx.save(work.changes()).await
    }
}

impl Work {
    /// From now on the threads begin after these entries.
    async fn cut_threads<T: Tx>(
        &mut self,
        tx: &mut T,
        entries: impl Iterator<Item = (Hash, u64)> + Clone + Send,
    ) -> Result<(), TxError> {
        let threads = entries.clone().map(|(thread, _)| thread).collect();
        self.load(tx, Wanted { threads, ..Wanted::default() }).await?;
        for (thread, number) in entries {
            if let Some(thread) = self.threads.change(&thread) {
                thread.purged_to = thread.purged_to.max(number);
            }
        }
        Ok(())
    }
}
