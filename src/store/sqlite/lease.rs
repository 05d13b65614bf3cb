//! Leasing lanes and settling what was leased.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, params};

use super::lanes::Held;
use super::rows::{event_id, fence_of, item_id, item_number, item_ref, kind_of, members_of, thread_of};
use super::writer::{StepError, Writer};
use crate::domain::Fence;
use crate::store::{Answer, InboxLease, KeptHeaders, LaneRef, LeaseAsk, LeasedEvent, Outcome, Settled};

/// An item, as its row says.
struct Head {
    first: i64,
    members: Option<Vec<u8>>,
    attempt: u32,
    replay: Option<u32>,
    received: i64,
}

/// What an item's events have in common.
struct Webhook {
    holder: i64,
    events: u32,
    received: i64,
}

impl Writer {
    pub(super) fn lease(&mut self, ask: &LeaseAsk) -> Result<Vec<InboxLease>, StepError> {
        let mut leases = Vec::new();
        for (name, max) in &ask.wants {
            let Some(&channel) = self.channels.get(name) else { continue };
            let before = leases.len();
            loop {
                let got = leases.len() - before;
                for (lane, item) in self.lanes.due(channel, self.now_ms, max - got) {
                    leases.push(self.lease_lane(lane, item, name, ask)?);
                }
                let idle = leases.len() - before < *max;
                if !self.lanes.keep_filled(&self.db, idle)? || !idle {
                    break;
                }
            }
        }
        Ok(leases)
    }

    fn lease_lane(&mut self, lane: u64, item: i64, channel: &Arc<str>, ask: &LeaseAsk) -> rusqlite::Result<InboxLease> {
        if let Some(lost) = self.lanes.take_held(lane) {
            self.lose(&lost, "the lease ran out")?;
        }
        let head = self.head(item)?;
        let (fence, ends) = (self.fence()? as i64, self.now_ms + ask.hold_ms);
        let attempt = head.attempt + 1;
        self.db.prepare_cached("INSERT INTO leases VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?.execute(params![
            item,
            attempt,
            fence,
            &*ask.worker,
            self.now_ms,
            ends
        ])?;
        let worker = Arc::clone(&ask.worker);
        self.lanes.lease(lane, Held { item, attempt, fence, worker, leased: self.now_ms, ends });
        self.leased(item, head, channel, fence_of(fence), ends)
    }

    fn head(&self, item: i64) -> rusqlite::Result<Head> {
        self.db.prepare_cached("SELECT first, members, attempt, replay, received FROM inbox WHERE item = ?1")?.query_row(
            [item],
            |row| {
                Ok(Head {
                    first: row.get(0)?,
                    members: row.get(1)?,
                    attempt: row.get(2)?,
                    replay: row.get(3)?,
                    received: row.get(4)?,
                })
            },
        )
    }

    /// Reads what the worker needs of the item's events.
    fn leased(&self, item: i64, head: Head, channel: &Arc<str>, fence: Fence, until_ms: i64) -> rusqlite::Result<InboxLease> {
        let mut events = Vec::new();
        let mut webhook = Webhook { holder: head.first, events: 1, received: head.received };
        let mut select = self.db.prepare_cached(
            "SELECT received, kind, place, webhook, webhook_events, account, peer FROM events WHERE number = ?1",
        )?;
        for number in members_of(head.first, head.members) {
            let event = select.query_row([number], |row| {
                let received = row.get(0)?;
                webhook = Webhook { holder: row.get(3)?, events: row.get(4)?, received };
                Ok(LeasedEvent {
                    id: event_id(received, number as u64),
                    kind: kind_of(row.get(1)?),
                    index: row.get(2)?,
                    thread: thread_of(row.get(5)?, row.get(6)?),
                })
            });
            events.push(event?);
        }
        let (headers, body) = self
            .db
            .prepare_cached("SELECT headers, body FROM events WHERE number = ?1")?
            .query_row([webhook.holder], |row| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?)))?;
        Ok(InboxLease {
            lane: item_ref(item),
            fence,
            until_ms,
            item: item_id(head.received, item),
            channel: Arc::clone(channel),
            attempt: head.attempt + 1,
            replay: head.replay,
            received_ms: webhook.received,
            headers: KeptHeaders(headers),
            body: Bytes::from(body),
            webhook_events: webhook.events,
            events,
        })
    }

    /// Writes down an attempt that nobody ended; it counts.
    fn lose(&self, held: &Held, why: &str) -> rusqlite::Result<()> {
        self.log_attempt(held, "lost", why)?;
        self.db.prepare_cached("UPDATE inbox SET attempt = ?2 WHERE item = ?1")?.execute(params![held.item, held.attempt])?;
        self.drop_lease(held)
    }

    fn drop_lease(&self, held: &Held) -> rusqlite::Result<()> {
        self.db.prepare_cached("DELETE FROM leases WHERE item = ?1")?.execute([held.item])?;
        Ok(())
    }

    fn log_attempt(&self, held: &Held, outcome: &str, detail: &str) -> rusqlite::Result<()> {
        self.db
            .prepare_cached(
                "INSERT INTO attempts SELECT first, item, ?2, received, ?3, ?4, ?5, ?6, ?7, ?8 FROM inbox WHERE item = ?1",
            )?
            .execute(params![held.item, held.fence, held.attempt, &*held.worker, held.leased, self.now_ms, outcome, detail])?;
        Ok(())
    }

    pub(super) fn extend(&mut self, leases: &[(LaneRef, Fence)], hold_ms: i64) -> Result<Vec<bool>, StepError> {
        let ends = self.now_ms + hold_ms;
        let mut update = self.db.prepare_cached("UPDATE leases SET ends = ?2 WHERE item = ?1")?;
        let mut kept = Vec::with_capacity(leases.len());
        for (lane, fence) in leases {
            let item = item_number(*lane);
            let held = self.lanes.extend(item, fence.0 as i64, ends);
            if held {
                update.execute([item, ends])?;
            }
            kept.push(held);
        }
        Ok(kept)
    }

    pub(super) fn settle(&mut self, lane: LaneRef, fence: Fence, outcome: &Outcome) -> Result<Settled, StepError> {
        let Some((lane, held)) = self.lanes.end(item_number(lane), fence.0 as i64) else { return Ok(Settled::Lost) };
        self.drop_lease(&held)?;
        match outcome {
            Outcome::Delivered { status, answer } => {
                self.log_attempt(&held, outcome.name(), &status.to_string())?;
                if let Some(answer) = answer {
                    self.keep_answer(&held, answer)?;
                }
                self.leave_inbox(lane, &held)?;
            }
            Outcome::Parked { why } => {
                self.log_attempt(&held, outcome.name(), why)?;
                self.db
                    .prepare_cached(
                        "INSERT INTO parked SELECT item, channel, first, members, ?2, replay, received, ?3, 0 FROM inbox WHERE item = ?1",
                    )?
                    .execute(params![held.item, held.attempt, why])?;
                self.leave_inbox(lane, &held)?;
            }
            Outcome::Retry { wait_ms, why } => {
                self.log_attempt(&held, outcome.name(), why)?;
                self.db.prepare_cached("UPDATE inbox SET attempt = ?2, due = ?3, why = ?4 WHERE item = ?1")?.execute(params![
                    held.item,
                    held.attempt,
                    self.now_ms + wait_ms,
                    why
                ])?;
                self.postpone(lane, &held, *wait_ms);
            }
            Outcome::HandBack { wait_ms } => {
                self.db
                    .prepare_cached("UPDATE inbox SET due = ?2 WHERE item = ?1")?
                    .execute([held.item, self.now_ms + wait_ms])?;
                self.postpone(lane, &held, *wait_ms);
            }
        }
        Ok(Settled::Done)
    }

    /// The answer is kept under the item, for all its events. A replay answers nobody.
    fn keep_answer(&self, held: &Held, answer: &Answer) -> rusqlite::Result<()> {
        self.db
            .prepare_cached("INSERT INTO answers SELECT item, ?2, ?3, ?4 FROM inbox WHERE item = ?1 AND replay IS NULL")?
            .execute(params![held.item, answer.status, answer.content_type, &*answer.body])?;
        Ok(())
    }

    /// Takes the item out; the lane goes on with the next item, or ends.
    fn leave_inbox(&mut self, lane: u64, held: &Held) -> rusqlite::Result<()> {
        self.db.prepare_cached("DELETE FROM inbox WHERE item = ?1")?.execute([held.item])?;
        self.work_made |= self.lanes.remove(lane, held.item);
        Ok(())
    }

    fn postpone(&mut self, lane: u64, held: &Held, wait_ms: i64) {
        self.lanes.postpone(lane, held.item, self.now_ms + wait_ms);
        self.work_made |= wait_ms <= 0;
    }

    /// Ends the leases of the process that owned the file before: it is gone, or we would not own the file.
    pub(super) fn end_all_leases(&mut self) -> rusqlite::Result<()> {
        for held in self.lanes.take_all_held() {
            self.lose(&held, "hapax stopped")?;
        }
        Ok(())
    }
}

/// Keeps waits as long as they were meant when the clock was set back while nobody ran: times of the store lie in the future then.
pub(super) fn follow_clock_set_back(db: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    let last_seen: i64 = db.query_row(
        "SELECT max(ifnull((SELECT received FROM events ORDER BY number DESC LIMIT 1), 0), ifnull((SELECT max(leased) FROM leases), 0))",
        [],
        |row| row.get(0),
    )?;
    if last_seen > now_ms {
        let back_ms = last_seen - now_ms;
        tracing::warn!(back_ms, "the clock was set back since hapax last ran; what waits is moved with it");
        db.execute("UPDATE inbox SET due = due - ?1 WHERE due > ?2", [back_ms, now_ms])?;
    }
    Ok(())
}
