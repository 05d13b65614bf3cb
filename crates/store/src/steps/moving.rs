//! Moving everything: pages of records out of an engine, and steps that put them into another.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use hapax_domain::claim::ClaimState;

use super::engine::{Changes, Engine, Pool, Tx, TxError, Wanted};
use super::records::{AttemptRec, EventRec, Held, ItemPlace, ItemRec, KeyRec, OutRec, Queue, name_hash, thread_hash};
use super::run::{Step, run};
use super::store::ServerStore;
use super::work::Work;
use crate::moving::{Dumped, IMPORTING, LONG_PAGE, PAGE_BYTES, half_filled, not_empty};
use crate::{After, Bookmark, InboxQuery, Moved, Moving, OutboxQuery, StoreError, Table};

/// Bodies of one transaction of an import; a larger one has a transaction to itself.
const SHARE_BYTES: usize = 4 << 20;

#[async_trait]
impl<E: Engine> Moving for ServerStore<E> {
    async fn export(&self, from: Option<Bookmark>, limit: usize) -> Result<(Vec<Moved>, Option<Bookmark>), StoreError> {
        if from.is_none() && self.is_half_filled().await? {
            return Err(half_filled());
        }
        let at = from.unwrap_or_else(Bookmark::start);
        let (records, after) = self.page(&at, limit.max(1)).await?;
        Ok((records, at.then(after)))
    }

    async fn begin_import(&self) -> Result<(), StoreError> {
        if self.is_half_filled().await? {
            return Err(half_filled());
        }
        for table in Table::ALL {
            if !self.some_of(table).await?.is_empty() {
                return Err(not_empty());
            }
        }
        // Of two that begin at once, one reads its own mark.
        let mark = format!("{:016x}", rand::random::<u64>());
        if self.engine.remember(IMPORTING, &mark).await? != mark {
            return Err(half_filled());
        }
        Ok(())
    }

    async fn import(&self, records: Vec<Moved>) -> Result<(), StoreError> {
        let highest = records.iter().map(Moved::highest).max().unwrap_or_default();
        self.put_to.fetch_max(highest, Ordering::Relaxed);
        for some in shares(&records) {
            run(&*self.engine, &PutAll(some)).await?;
        }
        let mut copies = Vec::new();
        for record in &records {
            match record {
                Moved::Setting { name, register } => self.engine.put_register(name, register).await?,
                Moved::Paused(paused) => self.engine.put_paused(paused).await?,
                Moved::Piece(piece) => self.engine.put_piece(piece).await?,
                Moved::Copies(more) => copies.push(*more),
                _ => {}
            }
        }
        if copies.is_empty() { Ok(()) } else { self.engine.note_copies(&copies).await }
    }

    async fn end_import(&self) -> Result<(), StoreError> {
        self.engine.raise_numbers(self.put_to.load(Ordering::Relaxed)).await?;
        self.engine.forget(IMPORTING).await?;
        self.engine.wake();
        Ok(())
    }

    async fn is_half_filled(&self) -> Result<bool, StoreError> {
        Ok(self.engine.amend(IMPORTING, None, None, None).await?.is_some())
    }
}

/// Shares of a page that each find room in a transaction, whatever the engine.
fn shares(records: &[Moved]) -> Vec<Vec<Moved>> {
    let (mut shares, mut bytes) = (vec![Vec::new()], 0);
    for record in records {
        let more = match record {
            Moved::Event(event) => event.carried.as_ref().map_or(0, |carried| carried.body.len()),
            Moved::Answer(answer) => answer.answer.body.len(),
            Moved::Message(message) => message.payload.len(),
            Moved::Claim(claim) => claim.result_bytes as usize,
            _ => 0,
        };
        if bytes > 0 && bytes + more > SHARE_BYTES {
            shares.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        shares.last_mut().into_iter().for_each(|share| share.push(record.clone()));
    }
    shares
}

fn is_over(record: &Moved, now_ms: i64) -> bool {
    match record {
        Moved::Setting { register, .. } => register.is_over(now_ms),
        Moved::Claim(claim) => claim.is_gone() || claim.ends_ms.is_some_and(|ends_ms| ends_ms <= now_ms),
        _ => false,
    }
}

fn is_mark(record: &Moved) -> bool {
    matches!(record, Moved::Setting { name, .. } if name == IMPORTING)
}

impl<E: Engine> ServerStore<E> {
    /// The first record of a kind, if there is any.
    async fn some_of(&self, table: Table) -> Result<Vec<Moved>, StoreError> {
        match table {
            Table::Paused | Table::Items | Table::Outs => Ok(self.page(&Bookmark { table, after: None }, 1).await?.0),
            _ => self.engine.dump(table, None, 1).await,
        }
    }

    async fn page(&self, at: &Bookmark, limit: usize) -> Result<Dumped, StoreError> {
        let after_number = match at.after {
            Some(After::Number(number)) => Some(number),
            _ => None,
        };
        match at.table {
            Table::Paused => Ok((self.engine.paused().await?.into_iter().map(Moved::Paused).collect(), None)),
            Table::Items => self.items(after_number, limit).await,
            Table::Outs => self.outs(after_number, limit).await,
            table => {
                let is_long = matches!(table, Table::Settings | Table::Pieces);
                let limit = if is_long { limit.min(LONG_PAGE) } else { limit };
                let mut records = self.engine.dump(table, at.after.as_ref(), limit).await?;
                let mut full = records.len() >= limit;
                if table == Table::Events {
                    full |= self.carry(&mut records).await?;
                }
                if table == Table::Claims {
                    full |= self.carry_results(&mut records).await?;
                }
                let last = records.last().filter(|_| full).map(key_of);
                match table {
                    Table::Settings | Table::Claims => {
                        let now_ms = self.engine.now_ms().await?;
                        records.retain(|record| !is_mark(record) && !is_over(record, now_ms));
                    }
                    Table::Keys => {
                        let now_ms = self.engine.now_ms().await?;
                        records.retain(|record| !matches!(record, Moved::Key(key) if key.expires_ms <= now_ms));
                    }
                    Table::Messages => self.settle_known(&mut records).await?,
                    _ => {}
                }
                Ok((records, last))
            }
        }
    }

    /// Gives events their bodies; true when the page had to be cut for their size.
    async fn carry(&self, records: &mut Vec<Moved>) -> Result<bool, StoreError> {
        let (mut bytes, mut kept) = (0, 0);
        let mut bodies = Vec::new();
        for record in &*records {
            let Moved::Event(event) = record else { continue };
            if bytes >= PAGE_BYTES {
                break;
            }
            if event.webhook == event.number {
                bytes += event.body_bytes;
                bodies.push(event.number);
            }
            kept += 1;
        }
        let cut = kept < records.len();
        records.truncate(kept);
        let mut seen = self.engine.peek(&Wanted { bodies, ..Wanted::default() }).await?.events;
        for record in records {
            if let Moved::Event(event) = record {
                event.carried = seen.remove(&event.number).and_then(|with_body| with_body.carried);
            }
        }
        Ok(cut)
    }

    /// Gives claims their results; true when the page had to be cut for their size.
    async fn carry_results(&self, records: &mut Vec<Moved>) -> Result<bool, StoreError> {
        let (mut bytes, mut kept) = (0, 0);
        let mut claims = Vec::new();
        for record in &*records {
            let Moved::Claim(claim) = record else { continue };
            if bytes >= PAGE_BYTES {
                break;
            }
            if claim.state != ClaimState::Held {
                bytes += claim.result_bytes;
                claims.push(claim.hash);
            }
            kept += 1;
        }
        let cut = kept < records.len();
        records.truncate(kept);
        let mut seen = self.engine.peek(&Wanted { claims, ..Wanted::default() }).await?.claims;
        for record in records {
            if let Moved::Claim(claim) = record {
                claim.result = seen.remove(&claim.hash).and_then(|with_result| with_result.result);
            }
        }
        Ok(cut)
    }

    async fn items(&self, after: Option<u64>, limit: usize) -> Result<Dumped, StoreError> {
        let query = InboxQuery { limit, ..InboxQuery::default() };
        let items = self.engine.list_items(&query, after, limit).await?;
        let last = items.last().filter(|_| items.len() >= limit).map(|item| After::Number(item.number));
        let lanes = items.iter().filter(|item| item.place == ItemPlace::InLane).map(|item| item.lane).collect();
        let leases = self.leases_of(lanes).await?;
        let now_ms = self.engine.now_ms().await?;
        let mut records = Vec::with_capacity(items.len());
        for item in items {
            let held = leases.get(&item.number).filter(|_| item.place == ItemPlace::InLane);
            let of = item.events.first().copied().unwrap_or_default();
            records.extend(held.map(|held| ended(Queue::Inbox, of, item.received_ms, held, now_ms)));
            records.push(Moved::Item(ItemRec { attempt: held.map_or(item.attempt, |held| held.attempt), ..item }));
        }
        Ok((records, last))
    }

    async fn outs(&self, after: Option<u64>, limit: usize) -> Result<Dumped, StoreError> {
        let query = OutboxQuery { limit, ..OutboxQuery::default() };
        let outs = self.engine.list_outs(&query, after, limit).await?;
        let last = outs.last().filter(|_| outs.len() >= limit).map(|out| After::Number(out.number));
        let messages = outs.iter().map(|out| out.number).collect();
        let lanes = outs.iter().map(|out| out.lane).collect();
        let seen = self.engine.peek(&Wanted { messages, ..Wanted::default() }).await?;
        let leases = self.leases_of(lanes).await?;
        let now_ms = self.engine.now_ms().await?;
        let mut records = Vec::with_capacity(outs.len());
        for out in outs {
            let held = leases.get(&out.number);
            records.extend(held.map(|held| ended(Queue::Outbox, out.number, out.created_ms, held, now_ms)));
            let is_known = || seen.messages.get(&out.number).is_some_and(|message| message.provider_id.is_some());
            if held.is_none() || !is_known() {
                records.push(Moved::Out(OutRec { attempt: held.map_or(out.attempt, |held| held.attempt), ..out }));
            }
        }
        Ok((records, last))
    }

    /// What was being sent and was heard of by its provider's id has been sent: whoever leased it next would find the same.
    async fn settle_known(&self, records: &mut [Moved]) -> Result<(), StoreError> {
        let outs = records.iter().filter_map(|record| match record {
            Moved::Message(message) if message.provider_id.is_some() => Some(message.number),
            _ => None,
        });
        let outs = self.engine.peek(&Wanted { outs: outs.collect(), ..Wanted::default() }).await?.outs;
        let leases = self.leases_of(outs.values().map(|out| out.lane).collect()).await?;
        let now_ms = self.engine.now_ms().await?;
        for record in records {
            let Moved::Message(message) = record else { continue };
            if let Some(held) = leases.get(&message.number).filter(|_| outs.contains_key(&message.number)) {
                message.settle_as_known(held.attempt, now_ms);
            }
        }
        Ok(())
    }
}

/// The attempt of a lease that is not moved.
fn ended(queue: Queue, of: u64, item_ms: i64, held: &Held, now_ms: i64) -> Moved {
    Moved::Attempt(AttemptRec {
        queue,
        of,
        item: held.number,
        item_ms,
        attempt: held.attempt,
        fence: held.fence,
        worker: held.worker.clone(),
        leased_ms: held.leased_ms,
        ended_ms: now_ms,
        outcome: "lost".to_owned(),
        detail: "moved to another store".to_owned(),
    })
}

/// The key by which engines read records in order.
fn key_of(record: &Moved) -> After {
    match record {
        Moved::Key(key) => After::Hash(key.key),
        Moved::Thread(thread) => After::Hash(thread_hash(&thread.account, &thread.peer)),
        Moved::Name(name) => After::Name(Some((name.account.clone(), name.name.clone()))),
        Moved::ProviderName(name) => After::Hash(name_hash(&name.account, &name.provider_id)),
        Moved::Attempt(attempt) => After::Attempt(attempt.queue, attempt.of, attempt.fence),
        Moved::Setting { name, .. } => After::Setting(name.clone()),
        Moved::Claim(claim) => After::Hash(claim.hash),
        Moved::Piece(piece) => After::Piece(piece.name.clone(), piece.n),
        other => After::Number(other.highest()),
    }
}

/// Records of an import that share a transaction.
struct PutAll(Vec<Moved>);

#[async_trait]
impl Step for PutAll {
    type Out = ();
    const POOL: Pool = Pool::Admin;

    fn numbers(&self) -> usize {
        0
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<(), TxError> {
        let mut any = self.claim(tx).await?;
        let mut work = Work::new(tx.now_ms());
        let (in_line, rest): (Vec<&Moved>, Vec<&Moved>) =
            self.0.iter().partition(|record| matches!(record, Moved::Item(_) | Moved::Out(_)));
        for record in rest {
            any |= work.put(record);
        }
        work.load_lines(tx, &in_line).await?;
        for record in in_line {
            any |= work.put(record);
        }
        // Even when nothing is left to save: an engine that took the moved keys for somebody else's learns that it has written.
        if any {
            tx.save(Changes { moved: true, ..work.changes() }).await?;
        }
        Ok(())
    }
}

impl PutAll {
    /// Claims the keys; false when there are none.
    async fn claim<T: Tx>(&self, tx: &mut T) -> Result<bool, TxError> {
        let mut keys: Vec<KeyRec> = Vec::new();
        for record in &self.0 {
            if let Moved::Key(key) = record {
                keys.push(key.clone());
            }
        }
        if keys.is_empty() {
            return Ok(false);
        }
        keys.sort_unstable_by_key(|key| key.key);
        let holders = tx.claim(&keys).await?;
        // An engine that tells winners by their number takes a moved one for somebody else's.
        let taken = holders.iter().zip(&keys).any(|(holder, key)| holder.as_ref().is_some_and(|holder| holder != key));
        if taken || keys.windows(2).any(|pair| pair[0].key == pair[1].key) {
            return Err(StoreError::Refused("a key is there twice".to_owned()).into());
        }
        Ok(true)
    }
}

impl Work {
    /// Loads the lanes that what was in line in the other store comes to: those that its threads have here.
    async fn load_lines<T: Tx>(&mut self, tx: &mut T, records: &[&Moved]) -> Result<(), TxError> {
        let (mut events, mut messages) = (Vec::new(), Vec::new());
        for record in records {
            match record {
                Moved::Item(item) => events.extend(item.events.first()),
                Moved::Out(out) => messages.push(out.number),
                _ => {}
            }
        }
        self.load(tx, Wanted { events: events.clone(), messages: messages.clone(), ..Wanted::default() }).await?;
        let events: Vec<EventRec> = events.iter().filter_map(|event| self.events.get(event).cloned()).collect();
        self.load_lanes_again(tx, &events).await?;
        self.load_homes(tx, messages).await
    }

    /// Takes over one record; false for what is not written by a transaction.
    fn put(&mut self, record: &Moved) -> bool {
        match record.clone() {
            Moved::Setting { .. } | Moved::Paused(_) | Moved::Key(_) | Moved::Copies(_) | Moved::Piece(_) => return false,
            Moved::Thread(thread) => self.threads.put(thread_hash(&thread.account, &thread.peer), thread),
            Moved::Name(name) => {
                self.names.learn(&name.account, name.name, &name.peer);
            }
            Moved::Event(event) => {
                self.events.insert(event.number, EventRec { carried: None, ..event.clone() });
                self.new_events.push(event);
            }
            Moved::Answer(answer) => self.answers.push(answer),
            Moved::Item(item) if item.place != ItemPlace::InLane => self.add_item(item, String::new(), None),
            Moved::Item(item) => {
                let event = item.events.first().and_then(|event| self.events.get(event)).cloned();
                self.add_item_again(item, event.as_ref());
            }
            Moved::Message(message) => self.messages.put(message.number, message),
            Moved::ProviderName(name) => self.provider_names.put(name_hash(&name.account, &name.provider_id), name),
            Moved::Out(out) => {
                let lane = if out.is_alone() { out.lane } else { self.home_today(out.number).unwrap_or(out.lane) };
                self.come_home(OutRec { lane, ..out });
            }
            Moved::Attempt(attempt) => self.attempts.push(attempt),
            Moved::Claim(claim) => self.claims.put(claim.hash, *claim),
        }
        true
    }
}
