//! Filling an empty file with the records of another store.
//!
//! What is refused half way stays half written: the mark that the import leaves says that the store is of no use.

use std::collections::HashMap;
use std::sync::Arc;

use hapax_domain::Direction;
use hapax_store::moving::{IMPORTING, NUMBERS, half_filled, not_empty};
use hapax_store::registers::Register;
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, EventRec, Hash, ItemPlace, ItemRec, KeyRec, MessageRec, OutRec, ProviderNameRec, Queue, ThreadRec,
    write_past,
};
use hapax_store::{Moved, StoreError, write_replies};
use rusqlite::{OptionalExtension, params};

use super::SqliteStore;
use super::accept::members_blob;
use super::keys::Claim;
use super::known_names;
use super::names::add_names;
use super::outbox::{account_key, request_hash};
use super::registers;
use super::rows::{kind_number, priority_number, steps_text};
use super::threads::Threads;
use super::writer::{StepError, Writer};

/// Entries of threads that are put in their order in one step.
const CHAIN_ENTRIES: usize = 5_000;

/// Numbers are below it: more has no room in an id.
const NUMBER_LIMIT: u64 = 1 << 62;

/// The thread that a hash of another store stands for, and up to where it was purged; gone when the import is over.
const MOVED_THREADS: &str =
    "CREATE TABLE moved_threads (hash BLOB PRIMARY KEY, thread INTEGER NOT NULL, purged_to INTEGER NOT NULL) WITHOUT ROWID";

/// What has been said in each thread so far, while the entries are put in their order.
struct Chain {
    /// Every entry up to this number is done.
    to: i64,
    /// Where a thread begins: what is not above was purged.
    begins: HashMap<i64, i64>,
    last: HashMap<i64, i64>,
}

impl SqliteStore {
    /// Makes every entry name the one before it in its thread.
    pub(super) async fn chain_threads(&self) -> Result<(), StoreError> {
        let mut chain = self.write("ordering threads", true, |writer| Ok(writer.begin_chain()?)).await?;
        while let Some(more) = self.write("ordering threads", true, move |writer| Ok(writer.chain_some(chain)?)).await? {
            chain = more;
        }
        Ok(())
    }
}

fn refused<T>(why: impl Into<String>) -> Result<T, StepError> {
    Err(StepError::Refused(StoreError::Refused(why.into())))
}

impl Writer {
    pub(super) fn begin_import(&mut self) -> Result<(), StepError> {
        if registers::is_there(&self.db, IMPORTING)? {
            return Err(StepError::Refused(half_filled()));
        }
        for table in [
            "events",
            "guards",
            "inbox",
            "parked",
            "attempts",
            "copies",
            "answers",
            "messages",
            "outbox",
            "tries",
            "early",
            "paused",
            "threads",
            "registers",
            "pieces",
        ] {
            if self.db.prepare(&format!("SELECT 1 FROM {table}"))?.exists([])? {
                return Err(StepError::Refused(not_empty()));
            }
        }
        if self.keys.len() > 0 || !self.claims.is_empty() {
            return Err(StepError::Refused(not_empty()));
        }
        self.put_register(IMPORTING, &Register { value: "1".to_owned(), ends_ms: None })?;
        self.db.execute_batch(MOVED_THREADS)?;
        // Of whom nothing is left.
        self.db.execute("DELETE FROM learned", [])?;
        // What is moved was said before: the threads come with their last words.
        self.db.execute("UPDATE meta SET value = ?1 WHERE name = 'threads_to'", [i64::MAX])?;
        known_names::doubt(&self.db)?;
        self.threads = Threads::new();
        Ok(())
    }

    pub(super) fn import(&mut self, records: &[Moved]) -> Result<(), StepError> {
        if !self.disk.has_room() {
            return Err(StepError::Refused(StoreError::Full { floor_mb: self.disk.floor_mb() }));
        }
        for record in records {
            self.put(record)?;
        }
        self.write_marks()?;
        Ok(())
    }

    fn put(&mut self, record: &Moved) -> Result<(), StepError> {
        match record {
            Moved::Attempt(attempt) => {
                self.last_fence = self.last_fence.max(attempt.fence);
                self.raise(attempt.of.max(attempt.item))?;
                self.put_attempt(attempt)
            }
            Moved::Claim(claim) => {
                self.last_fence = self.last_fence.max(claim.fence);
                self.put_claim(claim);
                Ok(())
            }
            Moved::Setting { name, .. } if name == NUMBERS => {
                self.last_fence = self.last_fence.max(record.highest());
                Ok(())
            }
            other => {
                self.raise(other.highest())?;
                match other {
                    Moved::Setting { name, register } => self.put_register(name, register),
                    Moved::Paused(paused) => {
                        let mut insert = self.db.prepare_cached("INSERT INTO paused VALUES (?1, ?2, ?3, ?4)")?;
                        insert.execute(params![paused.channel, paused.account, paused.why, paused.since_ms])?;
                        Ok(())
                    }
                    Moved::Key(key) => self.put_key(key),
                    Moved::Thread(thread) => self.put_thread(thread),
                    Moved::Name(name) => self.put_name(&name.account, &name.name, &name.peer),
                    Moved::Event(event) => self.put_event(event),
                    Moved::Copies(copies) => self.note_copies(&[*copies]),
                    Moved::Answer(answer) => self.put_answer(answer),
                    Moved::Item(item) => self.put_item(item),
                    Moved::Message(message) => self.put_message(message),
                    Moved::ProviderName(name) => self.put_provider_name(name),
                    Moved::Out(out) => self.put_open_message(out),
                    Moved::Piece(piece) => self.put_piece(piece),
                    Moved::Attempt(_) | Moved::Claim(_) => Ok(()),
                }
            }
        }
    }

    /// Takes note of a number, so that none that is handed out later is as low.
    fn raise(&mut self, number: u64) -> Result<(), StepError> {
        if number >= NUMBER_LIMIT {
            return refused(format!("number {number} has no room in an id, so no store can have made it"));
        }
        self.last_number = self.last_number.max(number);
        Ok(())
    }

    fn write_marks(&mut self) -> rusqlite::Result<()> {
        self.fences_reserved = self.fences_reserved.max(self.last_fence);
        let mut update = self.db.prepare_cached("UPDATE meta SET value = ?2 WHERE name = ?1")?;
        update.execute(params!["last_number", self.last_number as i64])?;
        update.execute(params!["last_fence", self.fences_reserved as i64])?;
        self.keys.numbering.write(&self.db)
    }

    fn put_key(&mut self, key: &KeyRec) -> Result<(), StepError> {
        let place = self.keys.numbering.next_moved();
        let Some(claim) = Claim::until(place, key.fingerprint, key.at_ms, key.expires_ms) else {
            return refused(format!("the window of the key of event {} does not fit into the embedded store", key.event));
        };
        if self.keys.find(&self.db, &key.key, 0)?.is_some() {
            return refused("a key is there twice");
        }
        self.keys.numbering.add_moved(&self.db, key.event, claim)?;
        self.keys.insert(&key.key, claim);
        Ok(())
    }

    fn put_thread(&mut self, thread: &ThreadRec) -> Result<(), StepError> {
        let channel = self.channel(&Arc::from(thread.channel.as_str()))?;
        let out = thread.last_direction == Direction::Out;
        self.db
            .prepare_cached(
                "INSERT INTO threads SELECT ifnull(max(thread), 0) + 1, ?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, 0, ?8, 0, NULL FROM threads",
            )?
            .execute(params![
                channel,
                thread.account,
                thread.peer,
                thread.last_ms,
                thread.last_text,
                out,
                thread.unread as i64,
                thread.read_to as i64
            ])?;
        let hash = hapax_store::steps::records::thread_hash(&thread.account, &thread.peer);
        self.db.prepare_cached("INSERT INTO moved_threads VALUES (?1, ?2, ?3)")?.execute(params![
            hash,
            self.db.last_insert_rowid(),
            thread.purged_to as i64
        ])?;
        Ok(())
    }

    fn moved_thread(&self, hash: &Hash) -> Result<i64, StepError> {
        let found = self
            .db
            .prepare_cached("SELECT thread FROM moved_threads WHERE hash = ?1")?
            .query_row([hash], |row| row.get(0))
            .optional()?;
        match found {
            Some(thread) => Ok(thread),
            None => refused("a record names a thread that is not there; the records are not whole, or not in their order"),
        }
    }

    fn put_name(&mut self, account: &str, name: &str, peer: &str) -> Result<(), StepError> {
        let thread = self.moved_thread(&hapax_store::steps::records::thread_hash(account, peer))?;
        self.db.prepare_cached("INSERT INTO names VALUES (?1, ?2, ?3)")?.execute(params![account, name, thread])?;
        add_names(&self.db, thread, std::iter::once(name))?;
        Ok(())
    }

    fn put_event(&mut self, event: &EventRec) -> Result<(), StepError> {
        let channel = self.channel(&event.channel)?;
        let thread = event.thread.as_ref().map(|hash| self.moved_thread(hash)).transpose()?;
        let carried = event.carried.as_ref();
        let mut insert = self.db.prepare_cached(
            "INSERT INTO events SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7,
                 coalesce(?8, (SELECT webhook_events FROM events WHERE number = ?7), 1),
                 ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18",
        )?;
        insert.execute(params![
            event.number as i64,
            event.received_ms,
            channel,
            kind_number(event.kind),
            event.echo,
            event.index,
            event.webhook as i64,
            carried.map(|carried| carried.events),
            event.item.map(|item| item as i64),
            event.account,
            event.id,
            event.peer,
            event.at_ms,
            event.text.as_ref().filter(|_| thread.is_some()),
            thread,
            thread.map(|_| 0),
            carried.map(|carried| carried.headers.0.as_slice()),
            carried.map(|carried| &*carried.body),
        ])?;
        if event.number != event.webhook {
            self.db
                .prepare_cached(
                    "INSERT INTO spans SELECT ?1, ?2 FROM events WHERE number = ?1 AND ?2 > ?1 + 2 * (webhook_events - 1)
                     ON CONFLICT (webhook) DO UPDATE SET last = max(last, excluded.last)",
                )?
                .execute([event.webhook as i64, event.number as i64])?;
        }
        self.count.in_batch += 1;
        Ok(())
    }

    fn put_answer(&mut self, kept: &AnswerRec) -> Result<(), StepError> {
        let AnswerRec { event, answer } = kept;
        self.db
            .prepare_cached(
                "INSERT OR IGNORE INTO answers SELECT ifnull(item, number), ?2, ?3, ?4 FROM events WHERE number = ?1",
            )?
            .execute(params![*event as i64, answer.status, answer.content_type, &*answer.body])?;
        Ok(())
    }

    fn put_item(&mut self, item: &ItemRec) -> Result<(), StepError> {
        let Some(&first) = item.events.first() else { return refused(format!("item {} has no events", item.number)) };
        let Some((channel, line)) = self.line_of(first as i64)? else {
            return refused(format!("event {first} of item {} is not there", item.number));
        };
        let members = (item.events.len() > 1).then(|| members_blob(&item.events));
        if item.place == ItemPlace::InLane {
            let mut insert =
                self.db.prepare_cached("INSERT INTO inbox VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, NULL)")?;
            insert.execute(params![
                channel,
                item.number as i64,
                line.lane,
                first as i64,
                members,
                item.attempt,
                item.replay,
                item.received_ms,
                item.due_ms,
                item.why,
                item.failures,
                line.peer
            ])?;
        } else {
            let mut insert =
                self.db.prepare_cached("INSERT INTO parked VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)")?;
            insert.execute(params![
                item.number as i64,
                channel,
                first as i64,
                members,
                item.attempt,
                item.replay,
                item.received_ms,
                item.why.as_deref().unwrap_or_default(),
                item.place == ItemPlace::Quarantined,
                item.failures,
                write_replies(&item.replies)
            ])?;
        }
        Ok(())
    }

    fn put_message(&mut self, message: &MessageRec) -> Result<(), StepError> {
        let channel = self.channel(&message.channel)?;
        let thread = self.moved_thread(&message.thread)?;
        let mut insert = self.db.prepare_cached(
            "INSERT INTO messages VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, 0, ?14, ?15, ?16, ?17)",
        )?;
        insert.execute(params![
            message.number as i64,
            message.created_ms,
            channel,
            message.account,
            message.peer,
            request_hash(&message.account, &message.request_id),
            message.request_id,
            message.fingerprint,
            message.text,
            &*message.payload,
            priority_number(message.priority),
            message.reply_to.map(|event| event.0.into_bytes()),
            thread,
            message.provider_id,
            steps_text(&message.steps),
            message.why,
            write_past(&message.past),
        ])?;
        Ok(())
    }

    fn put_provider_name(&mut self, name: &ProviderNameRec) -> Result<(), StepError> {
        match name.message {
            Some(message) => self.db.prepare_cached("INSERT INTO provider_names VALUES (?1, ?2, ?3)")?.execute(params![
                name.account,
                name.provider_id,
                message as i64
            ])?,
            None => self.db.prepare_cached("INSERT INTO early VALUES (?1, ?2, ?3, ?4)")?.execute(params![
                name.account,
                name.provider_id,
                name.heard_ms,
                steps_text(&name.early)
            ])?,
        };
        Ok(())
    }

    fn put_open_message(&mut self, out: &OutRec) -> Result<(), StepError> {
        let channel = self.channel(&out.channel)?;
        let number = out.number as i64;
        if !self.db.prepare_cached("SELECT 1 FROM messages WHERE number = ?1")?.exists([number])? {
            return refused(format!("message {number} is in the outbox and nowhere else"));
        }
        let lane = if out.is_alone() { None } else { Some(self.lane_of_message(number)?) };
        let mut insert = self.db.prepare_cached(
            "INSERT INTO outbox (number, channel, account, account_key, lane, priority, attempt, due, begun, unknown, failures)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?;
        insert.execute(params![
            number,
            channel,
            out.account,
            account_key(&out.account),
            lane,
            priority_number(out.priority),
            out.attempt,
            out.due_ms,
            out.begun_ms,
            out.unknown,
            out.failures
        ])?;
        Ok(())
    }

    fn put_attempt(&mut self, row: &AttemptRec) -> Result<(), StepError> {
        let (of, item, fence) = (row.of as i64, row.item as i64, row.fence as i64);
        let AttemptRec { item_ms, attempt, worker, leased_ms, ended_ms, outcome, detail, .. } = row;
        match row.queue {
            Queue::Inbox => self
                .db
                .prepare_cached("INSERT INTO attempts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?
                .execute(params![of, item, fence, item_ms, attempt, worker, leased_ms, ended_ms, outcome, detail])?,
            Queue::Outbox => self
                .db
                .prepare_cached("INSERT INTO tries VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?
                .execute(params![of, fence, attempt, worker, leased_ms, ended_ms, outcome, detail])?,
        };
        Ok(())
    }

    fn begin_chain(&self) -> rusqlite::Result<Chain> {
        let begins: HashMap<i64, i64> = self
            .db
            .prepare("SELECT thread, purged_to FROM moved_threads")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        Ok(Chain { to: 0, last: begins.clone(), begins })
    }

    /// Puts the next entries in their order; nothing when that was all.
    fn chain_some(&self, mut chain: Chain) -> rusqlite::Result<Option<Chain>> {
        let entries: Vec<(i64, i64, bool)> = self
            .db
            .prepare_cached(
                "SELECT number, thread, 0 FROM events WHERE number > ?1 AND thread IS NOT NULL
                 UNION ALL SELECT number, thread, 1 FROM messages WHERE number > ?1 ORDER BY number LIMIT ?2",
            )?
            .query_map([chain.to, CHAIN_ENTRIES as i64], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<Result<_, _>>()?;
        for &(number, thread, out) in &entries {
            chain.to = number;
            // What stands before something that was purged is not shown any more.
            if chain.begins.get(&thread).is_some_and(|begins| number <= *begins) {
                continue;
            }
            let before = chain.last.insert(thread, number).unwrap_or_default();
            let set = if out {
                "UPDATE messages SET prev = ?2 WHERE number = ?1"
            } else {
                "UPDATE events SET prev = ?2 WHERE number = ?1"
            };
            self.db.prepare_cached(set)?.execute([number, before])?;
        }
        if entries.len() == CHAIN_ENTRIES {
            return Ok(Some(chain));
        }
        // A thread of which nothing is left is still a thread.
        let mut update = self.db.prepare_cached("UPDATE threads SET last = max(?2, 1) WHERE thread = ?1")?;
        for (thread, last) in &chain.last {
            update.execute([thread, last])?;
        }
        self.db.execute_batch(
            "UPDATE threads SET entries = said.entries FROM (SELECT thread, count(*) AS entries FROM
                 (SELECT thread FROM events WHERE thread IS NOT NULL UNION ALL SELECT thread FROM messages) GROUP BY thread) AS said
             WHERE said.thread = threads.thread",
        )?;
        Ok(None)
    }

    pub(super) fn end_import(&mut self) -> Result<(), StepError> {
        // Each moved key has an event of its own, so there cannot be more of them than numbers.
        self.raise(self.keys.numbering.next_moved() - 1)?;
        self.keys.numbering.begin_above(self.last_number);
        self.write_marks()?;
        self.db.execute("UPDATE meta SET value = ?1 WHERE name = 'threads_to'", [self.last_number as i64])?;
        self.db.execute("DELETE FROM registers WHERE name = ?1", [IMPORTING])?;
        self.db.execute_batch("DROP TABLE moved_threads")?;
        self.count.write_now = true;
        self.join_moved_lanes()?;
        known_names::complete(&self.db)?;
        self.note_all_nameless()?;
        self.threads = Threads::new();
        self.lanes.forget_all();
        self.outgoing.forget_all();
        self.work_made = true;
        Ok(())
    }
}
