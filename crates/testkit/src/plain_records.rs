//! Records in plain maps, one transaction at a time: what the steps decide is checked against the model before any server is asked.

mod claims;
mod clock;
mod dump;
mod fixture;
mod registers;
mod stats;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, Notify, OwnedMutexGuard};

pub use self::fixture::PlainFixture;
use hapax_domain::age::Dated;
use hapax_domain::ids;
use hapax_store::clock::Clock;
use hapax_store::pieces::Piece;
use hapax_store::registers::Register;
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, ClaimRec, EventRec, Hash, ItemPlace, ItemRec, KeyRec, LaneRec, MessageRec, OutRec, ProviderNameRec,
    Queue, ThreadRec, name_hash, request_hash, thread_hash,
};
use hapax_store::steps::{Changes, Due, Engine, Entry, Loaded, Pool, Tx, TxError, Wanted};
use hapax_store::{
    After, Answer, ClaimCounts, ClaimQuery, Copies, EventQuery, InboxQuery, Moved, OutboxQuery, PausedAccount, Promise, Redrive,
    Stats, StoreError, Table, ThreadQuery,
};

#[derive(Clone, Default)]
struct Data {
    last_number: u64,
    keys: BTreeMap<Hash, KeyRec>,
    events: BTreeMap<u64, EventRec>,
    items: BTreeMap<u64, ItemRec>,
    lanes: BTreeMap<Hash, LaneRec>,
    names: BTreeMap<(String, String), String>,
    threads: BTreeMap<Hash, ThreadRec>,
    provider_names: BTreeMap<Hash, ProviderNameRec>,
    messages: BTreeMap<u64, MessageRec>,
    outs: BTreeMap<u64, OutRec>,
    attempts: Vec<AttemptRec>,
    answers: BTreeMap<u64, AnswerRec>,
    copies: BTreeMap<u64, Copies>,
    paused: BTreeMap<(String, String), PausedAccount>,
    registers: BTreeMap<String, Register>,
    pieces: BTreeMap<(String, u32), Piece>,
    claims: BTreeMap<Hash, ClaimRec>,
    seen_ms: i64,
}

pub struct PlainEngine {
    data: Arc<Mutex<Data>>,
    clock: Arc<dyn Clock>,
    work: Arc<Notify>,
}

impl PlainEngine {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { data: Arc::default(), clock, work: Arc::default() }
    }
}

pub struct PlainTx {
    /// What is there until the commit.
    committed: OwnedMutexGuard<Data>,
    data: Data,
    now_ms: i64,
}

impl Data {
    /// Also those that are in the rows of their lanes.
    fn all_items(&self) -> BTreeMap<u64, ItemRec> {
        let alone = self.lanes.values().filter_map(LaneRec::alone).map(|item| (item.number, item));
        self.items.clone().into_iter().chain(alone).collect()
    }

    fn load(&self, wanted: &Wanted) -> Loaded {
        let mut seen = Loaded {
            lanes: wanted.lanes.iter().filter_map(|hash| Some((*hash, self.lanes.get(hash)?.clone()))).collect(),
            items: self.all_items().into_iter().filter(|(number, _)| wanted.items.contains(number)).collect(),
            claims: wanted.claims.iter().filter_map(|hash| Some((*hash, self.claims.get(hash)?.clone()))).collect(),
            ..Loaded::default()
        };
        for lane in &wanted.lowest_items {
            let waiting = self.items.values().filter(|item| item.lane == *lane && item.place == ItemPlace::InLane).take(2);
            for item in waiting {
                seen.lowest.entry(*lane).or_default().push(item.number);
                seen.items.insert(item.number, item.clone());
            }
        }
        for (numbers, bodies) in [(&wanted.events, false), (&wanted.locked_events, false), (&wanted.bodies, true)] {
            for event in numbers.iter().filter_map(|number| self.events.get(number)) {
                let carried = event.carried.clone().filter(|_| bodies);
                seen.events.insert(event.number, EventRec { carried, ..event.clone() });
            }
        }
        seen.names = wanted.names.iter().filter_map(|name| Some((name.clone(), self.names.get(name)?.clone()))).collect();
        let names = wanted.sure_names.iter().filter_map(|name| Some((name.clone(), self.names.get(name)?.clone())));
        seen.sure_names = names.collect();
        let named = |((account, _), peer): &(&(String, String), &String)| wanted.named.contains(&thread_hash(account, peer));
        seen.names.extend(self.names.iter().filter(named).map(|(name, peer)| (name.clone(), peer.clone())));
        seen.threads = wanted.threads.iter().filter_map(|hash| Some((*hash, self.threads.get(hash)?.clone()))).collect();
        let begun = |account: &&String| self.outs.values().any(|out| out.begun_ms.is_some() && out.account == **account);
        seen.sending = wanted.sending.iter().filter(begun).cloned().collect();
        let named = wanted.provider_names.iter().map(|(account, name)| name_hash(account, name));
        seen.provider_names = named.filter_map(|hash| Some((hash, self.provider_names.get(&hash)?.clone()))).collect();
        let requested = |message: &&MessageRec| wanted.requests.contains(&request_hash(&message.account, &message.request_id));
        let messages = wanted.messages.iter().filter_map(|number| self.messages.get(number));
        seen.messages = messages.chain(self.messages.values().filter(requested)).map(|m| (m.number, m.clone())).collect();
        seen.outs = wanted.outs.iter().filter_map(|number| Some((*number, self.outs.get(number)?.clone()))).collect();
        for lane in &wanted.lowest_outs {
            for out in self.outs.values().filter(|out| out.lane == *lane && out.due_ms.is_some()).take(2) {
                seen.lowest.entry(*lane).or_default().push(out.number);
                seen.outs.insert(out.number, out.clone());
            }
        }
        for (channel, account) in &wanted.waiting {
            for reply in [false, true] {
                let beside = |out: &&OutRec| {
                    *out.channel == **channel && out.account == *account && !out.unknown && out.priority.is_reply() == reply
                };
                let waiting = self.outs.values().filter(beside).count();
                seen.waiting.insert((channel.clone(), account.clone(), reply), waiting);
            }
        }
        seen
    }

    fn save(&mut self, changes: &Changes) -> Result<(), TxError> {
        insert(&mut self.events, &changes.new_events, |event| event.number)?;
        for (event, replays) in &changes.replays {
            if let Some(event) = self.events.get_mut(event) {
                event.replays = *replays;
            }
        }
        for EventRec { number, .. } in &changes.gone_events {
            self.events.remove(number);
            self.answers.remove(number);
            self.copies.remove(number);
            self.attempts.retain(|row| row.queue != Queue::Inbox || row.of != *number);
        }
        self.forget(changes);
        change(&mut self.items, &changes.new_items, &changes.items, &changes.gone_items, |item| item.number)?;
        change(&mut self.lanes, &changes.new_lanes, &changes.lanes, &changes.gone_lanes, |lane| lane.hash)?;
        for name in &changes.new_names {
            if self.names.contains_key(&(name.account.clone(), name.name.clone())) {
                return Err(TxError::Conflict("it is there already".to_owned()));
            }
        }
        for name in changes.new_names.iter().chain(&changes.names) {
            self.names.insert((name.account.clone(), name.name.clone()), name.peer.clone());
        }
        let thread = |thread: &ThreadRec| thread_hash(&thread.account, &thread.peer);
        change(&mut self.threads, &changes.new_threads, &changes.threads, &changes.gone_threads, thread)?;
        self.names.retain(|(account, _), peer| !changes.gone_threads.contains(&thread_hash(account, peer)));
        let name = |name: &ProviderNameRec| name_hash(&name.account, &name.provider_id);
        let (new, old, gone) = (&changes.new_provider_names, &changes.provider_names, &changes.gone_provider_names);
        change(&mut self.provider_names, new, old, gone, name)?;
        let (new, old, gone) = (&changes.new_messages, &changes.messages, &changes.gone_messages);
        change(&mut self.messages, new, old, gone, |message| message.number)?;
        self.attempts.retain(|row| row.queue != Queue::Outbox || !gone.contains(&row.of));
        change(&mut self.outs, &changes.new_outs, &changes.outs, &changes.gone_outs, |out| out.number)?;
        change(&mut self.claims, &changes.new_claims, &changes.claims, &changes.gone_claims, |claim| claim.hash)?;
        self.attempts.extend(changes.attempts.iter().cloned());
        self.answers.extend(changes.answers.iter().map(|answer| (answer.event, answer.clone())));
        Ok(())
    }

    fn forget(&mut self, changes: &Changes) {
        for number in &changes.forgotten_events {
            self.answers.remove(number);
            self.events.get_mut(number).into_iter().for_each(|event| event.text = None);
        }
        for EventRec { number, .. } in &changes.forgotten_bodies {
            let Some(event) = self.events.get_mut(number) else { continue };
            event.body_bytes = 0;
            event.carried.iter_mut().for_each(|carried| (carried.headers, carried.body) = Default::default());
        }
        for MessageRec { number, .. } in &changes.forgotten_messages {
            let Some(message) = self.messages.get_mut(number) else { continue };
            (message.text, message.payload) = Default::default();
        }
    }
}

fn insert<K: Ord, V: Clone>(map: &mut BTreeMap<K, V>, new: &[V], key: impl Fn(&V) -> K) -> Result<(), TxError> {
    for record in new {
        if map.insert(key(record), record.clone()).is_some() {
            return Err(TxError::Conflict("it is there already".to_owned()));
        }
    }
    Ok(())
}

fn change<K: Ord, V: Clone>(
    map: &mut BTreeMap<K, V>,
    new: &[V],
    changed: &[V],
    gone: &[K],
    key: impl Fn(&V) -> K,
) -> Result<(), TxError> {
    insert(map, new, &key)?;
    for record in changed {
        map.insert(key(record), record.clone()).ok_or_else(|| TxError::Conflict("it is not there".to_owned()))?;
    }
    for key in gone {
        map.remove(key).ok_or_else(|| TxError::Conflict("it is not there".to_owned()))?;
    }
    Ok(())
}

#[async_trait]
impl Tx for PlainTx {
    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    fn number(&mut self) -> u64 {
        self.data.last_number += 1;
        self.data.last_number
    }

    fn keeps_alone(&self) -> bool {
        true
    }

    async fn claim(&mut self, keys: &[KeyRec]) -> Result<Vec<Option<KeyRec>>, TxError> {
        let now_ms = self.now_ms;
        let mut claim = |key: &KeyRec| {
            let holder = self.data.keys.get(&key.key).filter(|holder| holder.expires_ms > now_ms).cloned();
            if holder.is_none() {
                self.data.keys.insert(key.key, key.clone());
            }
            holder
        };
        Ok(keys.iter().map(&mut claim).collect())
    }

    async fn load(&mut self, wanted: &Wanted) -> Result<Loaded, TxError> {
        Ok(self.data.load(wanted))
    }

    async fn due_lanes(&mut self, due: &Due<'_>) -> Result<Vec<LaneRec>, TxError> {
        let rests = |lane: &LaneRec| {
            due.rests(&lane.account)
                || (lane.queue == Queue::Outbox
                    && self.data.paused.contains_key(&(lane.channel.to_string(), lane.account.clone())))
        };
        let wanted = |lane: &&LaneRec| {
            lane.queue == due.queue && *lane.channel == *due.channel && lane.due_ms <= self.now_ms && !rests(lane)
        };
        let mut lanes: Vec<LaneRec> = self.data.lanes.values().filter(wanted).cloned().collect();
        lanes.sort_by_key(|lane| (lane.priority, lane.due_ms, lane.first));
        lanes.truncate(due.max);
        Ok(lanes)
    }

    async fn parked(&mut self, which: &Redrive, after: u64, max: usize) -> Result<Vec<ItemRec>, TxError> {
        let wanted = |item: &&ItemRec| {
            item.place == ItemPlace::Parked
                && item.number > after
                && match which {
                    Redrive::Item(id) => item.item_id() == *id,
                    Redrive::Event(id) => item.events.contains(&ids::number_of(id.0)),
                    Redrive::Channel(channel) => *item.channel == **channel,
                    Redrive::All => true,
                }
        };
        Ok(self.data.items.values().filter(wanted).take(max).cloned().collect())
    }

    async fn save(&mut self, changes: Changes) -> Result<(), TxError> {
        self.data.save(&changes)
    }

    async fn commit(mut self) -> Result<(), TxError> {
        *self.committed = self.data;
        Ok(())
    }
}

#[async_trait]
impl Engine for PlainEngine {
    type Tx = PlainTx;

    fn in_flight(&self, _pool: Pool) -> usize {
        2
    }

    async fn begin(&self, _pool: Pool, _numbers: usize) -> Result<PlainTx, TxError> {
        let committed = Arc::clone(&self.data).lock_owned().await;
        Ok(PlainTx { data: committed.clone(), committed, now_ms: self.clock.now_ms() })
    }

    async fn peek(&self, wanted: &Wanted) -> Result<Loaded, StoreError> {
        Ok(self.data.lock().await.load(wanted))
    }

    async fn list_events(&self, query: &EventQuery, before: Option<u64>, limit: usize) -> Result<Vec<EventRec>, StoreError> {
        let wanted = |event: &&EventRec| {
            before.is_none_or(|before| event.number < before)
                && query.channel.as_ref().is_none_or(|channel| **channel == *event.channel)
                && query.kind.is_none_or(|kind| kind == event.kind)
                && query.thread.as_ref().is_none_or(|thread| event.thread_id().as_ref() == Some(thread))
        };
        Ok(self.data.lock().await.events.values().rev().filter(wanted).take(limit).cloned().collect())
    }

    async fn list_items(&self, query: &InboxQuery, after: Option<u64>, limit: usize) -> Result<Vec<ItemRec>, StoreError> {
        let wanted = |item: &&ItemRec| {
            after.is_none_or(|after| item.number > after)
                && query.channel.as_ref().is_none_or(|channel| **channel == *item.channel)
                && query.parked.is_none_or(|parked| parked != (item.place == ItemPlace::InLane))
        };
        Ok(self.data.lock().await.all_items().values().filter(wanted).take(limit).cloned().collect())
    }

    async fn list_replays(&self, event: u64) -> Result<Vec<ItemRec>, StoreError> {
        let replay = |item: &&ItemRec| item.replay.is_some() && item.events.contains(&event);
        Ok(self.data.lock().await.items.values().filter(replay).cloned().collect())
    }

    async fn list_attempts(&self, queue: Queue, of: &[u64]) -> Result<Vec<AttemptRec>, StoreError> {
        let wanted = |row: &&AttemptRec| row.queue == queue && of.contains(&row.of);
        let mut rows: Vec<AttemptRec> = self.data.lock().await.attempts.iter().filter(wanted).cloned().collect();
        rows.sort_by_key(|row| row.fence);
        Ok(rows)
    }

    async fn copies(&self, events: &[u64]) -> Result<Vec<Copies>, StoreError> {
        let data = self.data.lock().await;
        Ok(events.iter().filter_map(|event| data.copies.get(event).copied()).collect())
    }

    async fn answer(&self, event: u64) -> Result<Option<Answer>, StoreError> {
        Ok(self.data.lock().await.answers.get(&event).map(|row| row.answer.clone()))
    }

    async fn list_threads(&self, query: &ThreadQuery, limit: usize) -> Result<Vec<ThreadRec>, StoreError> {
        let wanted = |thread: &&ThreadRec| {
            query.channel.as_ref().is_none_or(|channel| *channel == thread.channel)
                && query.account.as_ref().is_none_or(|account| *account == thread.account)
                && query
                    .before
                    .as_ref()
                    .is_none_or(|(at_ms, id)| (thread.last_ms, &thread.account, &thread.peer) < (*at_ms, &id.account, &id.peer))
        };
        let mut rows: Vec<ThreadRec> = self.data.lock().await.threads.values().filter(wanted).cloned().collect();
        rows.sort_by(|a, b| (b.last_ms, &b.account, &b.peer).cmp(&(a.last_ms, &a.account, &a.peer)));
        rows.truncate(limit);
        Ok(rows)
    }

    async fn names_of(&self, account: &str, peer: &str) -> Result<Vec<String>, StoreError> {
        let data = self.data.lock().await;
        let names = data.names.iter().filter(|((of, _), leads_to)| of == account && *leads_to == peer);
        Ok(names.map(|((_, name), _)| name.clone()).collect())
    }

    async fn thread_entries(
        &self,
        thread: &Hash,
        above: u64,
        below: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let data = self.data.lock().await;
        let events = data.events.values().filter(|event| event.thread == Some(*thread));
        let messages = data.messages.values().filter(|message| message.thread == *thread);
        let events = events.map(|event| Entry::Event(Arc::new(event.clone())));
        let mut all: Vec<Entry> = events.chain(messages.map(|message| Entry::Message(Arc::new(message.clone())))).collect();
        all.retain(|entry| entry.number() > above && below.is_none_or(|below| entry.number() < below));
        all.sort_by_key(|entry| std::cmp::Reverse(entry.number()));
        all.truncate(limit);
        Ok(all)
    }

    async fn list_outs(&self, query: &OutboxQuery, after: Option<u64>, limit: usize) -> Result<Vec<OutRec>, StoreError> {
        let data = self.data.lock().await;
        let leased = |out: &OutRec| data.lanes.get(&out.lane).is_some_and(|lane| lane.held.is_some());
        let wanted = |out: &&OutRec| {
            after.is_none_or(|after| out.number > after)
                && query.channel.as_ref().is_none_or(|channel| **channel == *out.channel)
                && query.account.as_ref().is_none_or(|account| *account == out.account)
                && (!query.unknown || (out.unknown && !leased(out)))
        };
        Ok(data.outs.values().filter(wanted).take(limit).cloned().collect())
    }

    async fn paused(&self) -> Result<Vec<PausedAccount>, StoreError> {
        Ok(self.data.lock().await.paused.values().cloned().collect())
    }

    async fn pause(&self, channel: &str, account: &str, why: Option<&str>) -> Result<(), StoreError> {
        let (now_ms, mut data) = (self.clock.now_ms(), self.data.lock().await);
        let key = (channel.to_owned(), account.to_owned());
        let before = data.paused.remove(&key);
        if let Some(why) = why {
            let since_ms = before.map_or(now_ms, |before| before.since_ms);
            let (channel, account, why) = (channel.to_owned(), account.to_owned(), why.to_owned());
            data.paused.insert(key, PausedAccount { channel, account, why, since_ms });
        }
        Ok(())
    }

    async fn note_copies(&self, copies: &[Copies]) -> Result<(), StoreError> {
        let mut data = self.data.lock().await;
        for more in copies {
            let number = ids::number_of(more.event.0);
            if data.events.contains_key(&number) {
                data.copies.entry(number).or_insert(Copies { copies: 0, conflicts: 0, ..*more }).add(more);
            }
        }
        Ok(())
    }

    async fn purge_keys(&self, max: usize) -> Result<u64, StoreError> {
        let (now_ms, mut data) = (self.clock.now_ms(), self.data.lock().await);
        let over: Vec<Hash> = data.keys.values().filter(|key| key.expires_ms <= now_ms).map(|key| key.key).take(max).collect();
        for key in &over {
            data.keys.remove(key);
        }
        Ok(over.len() as u64)
    }

    async fn follow_clock(&self) -> Result<(), StoreError> {
        let (now_ms, mut data) = (self.clock.now_ms(), self.data.lock().await);
        data.follow_clock(now_ms);
        Ok(())
    }

    async fn webhooks_after(&self, after: u64, max: usize) -> Result<Vec<Dated>, StoreError> {
        let data = self.data.lock().await;
        let carriers = data.events.values().filter(|event| event.webhook == event.number && event.number > after);
        Ok(carriers.map(|event| Dated { number: event.number, at_ms: event.received_ms }).take(max).collect())
    }

    async fn events_of(&self, webhooks: &[u64]) -> Result<Vec<EventRec>, StoreError> {
        let data = self.data.lock().await;
        let mut events: Vec<EventRec> = data.events.values().filter(|event| webhooks.contains(&event.webhook)).cloned().collect();
        events.sort_by_key(|event| event.webhook);
        Ok(events)
    }

    async fn messages_after(&self, after: u64, max: usize) -> Result<Vec<Dated>, StoreError> {
        let data = self.data.lock().await;
        let ended = data.messages.values().filter(|message| message.number > after && !data.outs.contains_key(&message.number));
        Ok(ended.map(|message| Dated { number: message.number, at_ms: message.created_ms }).take(max).collect())
    }

    async fn purge_names(&self, before_ms: i64, max: usize) -> Result<u64, StoreError> {
        let mut data = self.data.lock().await;
        let nobodys = |name: &ProviderNameRec| name.message.is_none_or(|message| !data.messages.contains_key(&message));
        let old = data.provider_names.iter().filter(|(_, name)| name.heard_ms <= before_ms && nobodys(name));
        let old: Vec<Hash> = old.map(|(hash, _)| *hash).take(max).collect();
        for hash in &old {
            data.provider_names.remove(hash);
        }
        Ok(old.len() as u64)
    }

    async fn remember(&self, name: &str, value: &str) -> Result<String, StoreError> {
        let (now_ms, mut data) = (self.clock.now_ms(), self.data.lock().await);
        let kept = data.amend(name, None, Some(value), None, now_ms);
        Ok(kept.unwrap_or_default())
    }

    async fn amend(
        &self,
        name: &str,
        expected: Option<&str>,
        new: Option<&str>,
        keep_ms: Option<i64>,
    ) -> Result<Option<String>, StoreError> {
        let (now_ms, mut data) = (self.clock.now_ms(), self.data.lock().await);
        Ok(data.amend(name, expected, new, keep_ms, now_ms))
    }

    async fn put_register(&self, name: &str, register: &Register) -> Result<(), StoreError> {
        self.data.lock().await.registers.insert(name.to_owned(), register.clone());
        Ok(())
    }

    async fn purge_registers(&self, max: usize) -> Result<u64, StoreError> {
        let (now_ms, mut data) = (self.clock.now_ms(), self.data.lock().await);
        Ok(data.purge_registers(max, now_ms))
    }

    async fn put_piece(&self, piece: &Piece) -> Result<(), StoreError> {
        self.data.lock().await.pieces.insert((piece.name.clone(), piece.n), piece.clone());
        Ok(())
    }

    async fn piece(&self, name: &str, n: u32) -> Result<Option<Bytes>, StoreError> {
        Ok(self.data.lock().await.pieces.get(&(name.to_owned(), n)).map(|piece| piece.bytes.clone()))
    }

    async fn drop_pieces(&self, name: &str) -> Result<(), StoreError> {
        self.data.lock().await.pieces.retain(|(of, _), _| of != name);
        Ok(())
    }

    async fn pieces_held(&self) -> Result<Vec<(String, u64)>, StoreError> {
        Ok(self.data.lock().await.pieces_held())
    }

    async fn purge_pieces(&self, max: usize) -> Result<u64, StoreError> {
        let (now_ms, mut data) = (self.clock.now_ms(), self.data.lock().await);
        Ok(data.purge_pieces(max, now_ms))
    }

    async fn list_claims(&self, query: &ClaimQuery, now_ms: i64, limit: usize) -> Result<Vec<ClaimRec>, StoreError> {
        Ok(self.data.lock().await.list_claims(query, now_ms, limit))
    }

    async fn count_claims(&self, now_ms: i64) -> Result<ClaimCounts, StoreError> {
        Ok(self.data.lock().await.count_claims(now_ms))
    }

    async fn purge_claims(&self, max: usize) -> Result<u64, StoreError> {
        let now_ms = self.clock.now_ms();
        Ok(self.data.lock().await.purge_claims(max, now_ms))
    }

    async fn list_held(&self, channel: &str, now_ms: i64, limit: usize) -> Result<Vec<LaneRec>, StoreError> {
        let is_held = |lane: &LaneRec| lane.held.as_ref().is_some_and(|held| held.until_ms > now_ms);
        let held = |lane: &&LaneRec| lane.queue == Queue::Inbox && *lane.channel == *channel && is_held(lane);
        Ok(self.data.lock().await.lanes.values().filter(held).take(limit).cloned().collect())
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        Ok(self.data.lock().await.stats())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn promise(&self) -> Promise {
        Promise::Degraded(vec!["plain maps keep nothing".to_owned()])
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        let hint = Arc::clone(&self.work).notified_owned();
        Box::pin(async move {
            let _ = tokio::time::timeout(Duration::from_millis(500), hint).await;
        })
    }

    fn wake(&self) {
        self.work.notify_waiters();
    }

    async fn now_ms(&self) -> Result<i64, StoreError> {
        Ok(self.clock.now_ms())
    }

    async fn dump(&self, table: Table, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, StoreError> {
        Ok(self.data.lock().await.dump(table, after, limit))
    }

    async fn put_paused(&self, paused: &PausedAccount) -> Result<(), StoreError> {
        let key = (paused.channel.clone(), paused.account.clone());
        self.data.lock().await.paused.insert(key, paused.clone());
        Ok(())
    }

    async fn forget(&self, name: &str) -> Result<(), StoreError> {
        self.data.lock().await.registers.remove(name);
        Ok(())
    }

    async fn raise_numbers(&self, above: u64) -> Result<(), StoreError> {
        let mut data = self.data.lock().await;
        data.last_number = data.last_number.max(above);
        Ok(())
    }
}
