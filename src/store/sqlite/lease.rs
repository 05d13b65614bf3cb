//! Leasing lanes and settling what was leased.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{OptionalExtension, params};

use super::rows::{event_id, fence_of, item_id, kind_of, lane_number, lane_ref, members_of, thread_of};
use super::writer::{StepError, Writer};
use crate::domain::Fence;
use crate::store::{Answer, InboxLease, KeptHeaders, LaneRef, LeaseAsk, LeasedEvent, Outcome, Settled};

/// The first item of a lane, as its row says.
struct Head {
    item: i64,
    first: i64,
    members: Option<Vec<u8>>,
    attempt: u32,
    replay: Option<u32>,
    received: i64,
}

/// A lease that stands.
pub(super) struct Held {
    pub(super) lane: i64,
    item: i64,
    fence: i64,
    worker: String,
    leased: i64,
}

impl Writer {
    pub(super) fn lease(&mut self, ask: &LeaseAsk) -> Result<Vec<InboxLease>, StepError> {
        let mut leases = Vec::new();
        for (name, max) in &ask.wants {
            let Some(&channel) = self.channels.get(name) else { continue };
            let due: Vec<i64> = self
                .db
                .prepare_cached(
                    "SELECT lane FROM lanes WHERE channel = ?1 AND available <= ?2 ORDER BY available, lane LIMIT ?3",
                )?
                .query_map(params![channel, self.now_ms, *max as i64], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            for lane in due {
                leases.extend(self.lease_lane(lane, name, ask)?);
            }
        }
        Ok(leases)
    }

    fn lease_lane(&mut self, lane: i64, channel: &Arc<str>, ask: &LeaseAsk) -> rusqlite::Result<Option<InboxLease>> {
        if let Some(held) = self.held(lane)? {
            self.log_attempt(&held, "lost", "the lease ran out")?;
        }
        let Some(head) = self.head(lane)? else { return Ok(None) };
        let fence = self.fence()? as i64;
        let until_ms = self.now_ms + ask.hold_ms;
        self.db
            .prepare_cached("UPDATE lanes SET available = ?2, fence = ?3, item = ?4, worker = ?5, leased = ?6 WHERE lane = ?1")?
            .execute(params![lane, until_ms, fence, head.item, &*ask.worker, self.now_ms])?;
        self.db
            .prepare_cached("UPDATE inbox SET attempt = attempt + 1 WHERE lane = ?1 AND item = ?2")?
            .execute([lane, head.item])?;
        let (lane, fence) = (lane_ref(lane), fence_of(fence));
        self.leased(head, channel, lane, fence, until_ms)
    }

    fn head(&self, lane: i64) -> rusqlite::Result<Option<Head>> {
        self.db
            .prepare_cached(
                "SELECT item, first, members, attempt, replay, received FROM inbox WHERE lane = ?1 ORDER BY item LIMIT 1",
            )?
            .query_row([lane], |row| {
                Ok(Head {
                    item: row.get(0)?,
                    first: row.get(1)?,
                    members: row.get(2)?,
                    attempt: row.get(3)?,
                    replay: row.get(4)?,
                    received: row.get(5)?,
                })
            })
            .optional()
    }

    /// Reads what the worker needs of the item's events.
    fn leased(
        &self,
        head: Head,
        channel: &Arc<str>,
        lane: LaneRef,
        fence: Fence,
        until_ms: i64,
    ) -> rusqlite::Result<Option<InboxLease>> {
        let mut events = Vec::new();
        let mut webhook = None;
        let mut select = self.db.prepare_cached(
            "SELECT received, kind, place, webhook, webhook_events, account, peer FROM events WHERE number = ?1",
        )?;
        for number in members_of(head.first, head.members) {
            let row = select.query_row([number], |row| {
                let (received, kind, account, peer) = (row.get(0)?, row.get(1)?, row.get(5)?, row.get(6)?);
                let event = LeasedEvent {
                    id: event_id(received, number as u64),
                    kind: kind_of(kind),
                    index: row.get(2)?,
                    thread: thread_of(account, peer),
                };
                Ok((event, (row.get::<_, i64>(3)?, row.get::<_, u32>(4)?, received)))
            });
            let (event, of) = row?;
            events.push(event);
            webhook.get_or_insert(of);
        }
        let Some((holder, webhook_events, received_ms)) = webhook else { return Ok(None) };
        let (headers, body) = self
            .db
            .prepare_cached("SELECT headers, body FROM events WHERE number = ?1")?
            .query_row([holder], |row| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?)))?;
        Ok(Some(InboxLease {
            lane,
            fence,
            until_ms,
            item: item_id(head.received, head.item),
            channel: Arc::clone(channel),
            attempt: head.attempt + 1,
            replay: head.replay,
            received_ms,
            headers: KeptHeaders(headers),
            body: Bytes::from(body),
            webhook_events,
            events,
        }))
    }

    fn held(&self, lane: i64) -> rusqlite::Result<Option<Held>> {
        self.db
            .prepare_cached("SELECT item, fence, worker, leased FROM lanes WHERE lane = ?1 AND item IS NOT NULL")?
            .query_row([lane], |row| {
                Ok(Held { lane, item: row.get(0)?, fence: row.get(1)?, worker: row.get(2)?, leased: row.get(3)? })
            })
            .optional()
    }

    pub(super) fn log_attempt(&self, held: &Held, outcome: &str, detail: &str) -> rusqlite::Result<()> {
        self.db
            .prepare_cached(
                "INSERT INTO attempts SELECT first, item, ?3, received, attempt, ?4, ?5, ?6, ?7, ?8 FROM inbox WHERE lane = ?1 AND item = ?2",
            )?
            .execute(params![held.lane, held.item, held.fence, held.worker, held.leased, self.now_ms, outcome, detail])?;
        Ok(())
    }

    pub(super) fn extend(&mut self, leases: &[(LaneRef, Fence)], hold_ms: i64) -> Result<Vec<bool>, StepError> {
        let mut update =
            self.db.prepare_cached("UPDATE lanes SET available = ?3 WHERE lane = ?1 AND fence = ?2 AND item IS NOT NULL")?;
        let mut kept = Vec::with_capacity(leases.len());
        for (lane, fence) in leases {
            kept.push(update.execute(params![lane_number(*lane), fence.0 as i64, self.now_ms + hold_ms])? == 1);
        }
        Ok(kept)
    }

    pub(super) fn settle(&mut self, lane: LaneRef, fence: Fence, outcome: &Outcome) -> Result<Settled, StepError> {
        let held = self.held(lane_number(lane))?.filter(|held| held.fence == fence.0 as i64);
        let Some(held) = held else { return Ok(Settled::Lost) };
        match outcome {
            Outcome::Delivered { status, answer } => {
                self.log_attempt(&held, outcome.name(), &status.to_string())?;
                if let Some(answer) = answer {
                    self.keep_answer(&held, answer)?;
                }
                self.leave_lane(&held)?;
            }
            Outcome::Parked { why } => {
                self.log_attempt(&held, outcome.name(), why)?;
                self.db
                    .prepare_cached(
                        "INSERT INTO parked SELECT item, channel, first, members, attempt, replay, received, ?3, 0
                         FROM inbox WHERE lane = ?1 AND item = ?2",
                    )?
                    .execute(params![held.lane, held.item, why])?;
                self.leave_lane(&held)?;
            }
            Outcome::Retry { wait_ms, why } => {
                self.log_attempt(&held, outcome.name(), why)?;
                self.db
                    .prepare_cached("UPDATE inbox SET why = ?3 WHERE lane = ?1 AND item = ?2")?
                    .execute(params![held.lane, held.item, why])?;
                self.free_lane(held.lane, self.now_ms + wait_ms)?;
            }
            Outcome::HandBack { wait_ms } => {
                self.db
                    .prepare_cached("UPDATE inbox SET attempt = attempt - 1 WHERE lane = ?1 AND item = ?2")?
                    .execute([held.lane, held.item])?;
                self.free_lane(held.lane, self.now_ms + wait_ms)?;
            }
        }
        Ok(Settled::Done)
    }

    /// Kept under the item, for all its events. A replay answers nobody.
    fn keep_answer(&self, held: &Held, answer: &Answer) -> rusqlite::Result<()> {
        self.db
            .prepare_cached(
                "INSERT INTO answers SELECT item, ?3, ?4, ?5 FROM inbox WHERE lane = ?1 AND item = ?2 AND replay IS NULL",
            )?
            .execute(params![held.lane, held.item, answer.status, answer.content_type, &*answer.body])?;
        Ok(())
    }

    /// Takes the item out of its lane; the lane goes on with the next item, or ends.
    fn leave_lane(&mut self, held: &Held) -> rusqlite::Result<()> {
        self.db.prepare_cached("DELETE FROM inbox WHERE lane = ?1 AND item = ?2")?.execute([held.lane, held.item])?;
        let more = self.db.prepare_cached("SELECT 1 FROM inbox WHERE lane = ?1 LIMIT 1")?.exists([held.lane])?;
        if more {
            return self.free_lane(held.lane, self.now_ms);
        }
        self.db.prepare_cached("DELETE FROM lanes WHERE lane = ?1")?.execute([held.lane])?;
        Ok(())
    }

    pub(super) fn free_lane(&mut self, lane: i64, available: i64) -> rusqlite::Result<()> {
        self.db.prepare_cached("UPDATE lanes SET available = ?2, item = NULL WHERE lane = ?1")?.execute([lane, available])?;
        self.work_made |= available <= self.now_ms;
        Ok(())
    }

    /// Keeps waits as long as they were meant when the clock was set back while nobody ran: times of the store lie in the future then.
    pub(super) fn follow_clock_set_back(&mut self) -> rusqlite::Result<()> {
        let last_seen: i64 = self.db.query_row(
            "SELECT max(ifnull((SELECT received FROM events ORDER BY number DESC LIMIT 1), 0), ifnull((SELECT max(leased) FROM lanes), 0))",
            [],
            |row| row.get(0),
        )?;
        if last_seen > self.now_ms {
            let ahead = last_seen - self.now_ms;
            tracing::warn!(ahead_ms = ahead, "the clock was set back since hapax last ran; what waits is moved with it");
            self.db.execute("UPDATE lanes SET available = available - ?1 WHERE available > ?2", [ahead, self.now_ms])?;
        }
        Ok(())
    }

    /// Ends the leases of the process that owned the file before: it is gone, or we would not own the file.
    pub(super) fn end_all_leases(&mut self) -> rusqlite::Result<()> {
        let lanes: Vec<i64> = self
            .db
            .prepare("SELECT lane FROM lanes WHERE item IS NOT NULL")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for lane in lanes {
            if let Some(held) = self.held(lane)? {
                self.log_attempt(&held, "lost", "hapax stopped")?;
                self.free_lane(lane, self.now_ms)?;
            }
        }
        Ok(())
    }
}
