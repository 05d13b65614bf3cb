//! Leasing lanes and settling what was leased.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::{Fence, limits};
use hapax_store::{
    Answer, InboxLease, KeptHeaders, LaneRef, LeaseRequest, LeasedEvent, LeasedPart, NewMessage, Outcome, Settled, WithBot,
    is_told, why_kept, write_replies,
};
use rusqlite::params;

use super::fresh::FreshItem;
use super::lanes::{Held, Origin};
use super::outbox::account_key;
use super::rows::{event_id, fence_of, item_id, item_ref, kind_of, members_of, named_by, thread_of};
use super::work_rows::Attempt;
use super::writer::{StepError, Writer};

/// An item, as its row says.
struct Head {
    /// Whose lane it is in, where something in that is from another name of theirs.
    peer: Option<Arc<str>>,
    first: i64,
    members: Option<Vec<u8>>,
    attempt: u32,
    failures: u32,
    replay: Option<u32>,
    received: i64,
}

/// What an item's events have in common.
struct Webhook {
    holder: i64,
    events: u32,
    received: i64,
}

/// The last body read: the lanes of one large webhook are usually leased together.
type LastBody = Option<(i64, KeptHeaders, Bytes)>;

impl Writer {
    pub(super) fn lease(&mut self, ask: &LeaseRequest) -> Result<Vec<InboxLease>, StepError> {
        let mut leases = Vec::new();
        let mut last_body = None;
        for (name, max) in &ask.wants {
            let Some(&channel) = self.channels.get(name) else { continue };
            let resting = ask.resting_in(name);
            if resting.is_some() {
                self.lanes.tell_accounts_apart(&self.db, channel)?;
            }
            let others = resting.is_some_and(|resting| resting.others);
            let named: HashSet<i64> =
                resting.into_iter().flat_map(|all| &all.accounts).map(|account| account_key(account)).collect();
            let rests = |account: i64| account != 0 && named.contains(&account) != others;
            for (lane, item) in self.lanes.due(&self.db, channel, self.now_ms, *max, &rests)? {
                leases.extend(self.lease_item((channel, name), lane, item, ask, &mut last_body)?);
            }
        }
        Ok(leases)
    }

    /// Takes the lane for this worker, away from whoever let the last lease run out.
    fn lease_item(
        &mut self,
        (channel, name): (i64, &Arc<str>),
        lane: u64,
        item: i64,
        ask: &LeaseRequest,
        last_body: &mut LastBody,
    ) -> rusqlite::Result<Option<InboxLease>> {
        for lost in self.lanes.take_held(&self.db, channel, lane)? {
            self.lose(&lost, "the lease ran out")?;
        }
        // A lease that was out when its lane was joined may end while the first of all still waits for its time.
        if !self.lanes.is_due(channel, lane, self.now_ms) {
            return Ok(None);
        }
        if let Some(fresh) = self.fresh.take(item) {
            let peer = self.lanes.peer(channel, lane);
            let origin = Origin { first: item, received: fresh.received };
            let held = self.hold(lane, (channel, item, 1), origin, ask)?;
            return Ok(Some(leased_fresh(fresh, &held, name, peer.as_ref())));
        }
        let head = self.head(channel, lane, item)?;
        let origin = Origin { first: head.first, received: head.received };
        let held = self.hold(lane, (channel, item, head.attempt + 1), origin, ask)?;
        self.leased(head, &held, name, last_body).map(Some)
    }

    fn hold(
        &mut self,
        lane: u64,
        (channel, item, attempt): (i64, i64, u32),
        origin: Origin,
        ask: &LeaseRequest,
    ) -> rusqlite::Result<Held> {
        let held = Held {
            channel,
            item,
            attempt,
            fence: self.fence()? as i64,
            worker: Arc::clone(&ask.worker),
            leased: self.now_ms,
            ends: self.now_ms + ask.hold_ms,
            origin: Some(origin),
        };
        self.pending.work.lease(held.clone(), ask.outside);
        self.close_turn_of(channel, item)?;
        self.lanes.lease(&self.db, lane, held.clone())?;
        Ok(held)
    }

    fn head(&self, channel: i64, lane: u64, item: i64) -> rusqlite::Result<Head> {
        let peer = self.lanes.peer(channel, lane);
        self.db
            .prepare_cached(
                "SELECT first, members, attempt, replay, received, failures FROM inbox WHERE channel = ?1 AND item = ?2",
            )?
            .query_row([channel, item], |row| {
                Ok(Head {
                    peer,
                    first: row.get(0)?,
                    members: row.get(1)?,
                    attempt: row.get(2)?,
                    replay: row.get(3)?,
                    received: row.get(4)?,
                    failures: row.get(5)?,
                })
            })
    }

    /// Reads what the worker needs of the item's events.
    fn leased(&self, head: Head, held: &Held, channel: &Arc<str>, last_body: &mut LastBody) -> rusqlite::Result<InboxLease> {
        let mut events = Vec::new();
        let mut parts: Vec<(Webhook, usize)> = Vec::new();
        let mut select = self.db.prepare_cached(
            "SELECT received, kind, place, webhook, webhook_events, account, peer FROM events WHERE number = ?1",
        )?;
        for number in members_of(head.first, head.members) {
            let mut event = select.query_row([number], |row| {
                let received = row.get(0)?;
                let webhook = Webhook { holder: row.get(3)?, events: row.get(4)?, received };
                match parts.last_mut().filter(|(last, _)| last.holder == webhook.holder) {
                    Some((_, members)) => *members += 1,
                    None => parts.push((webhook, 1)),
                }
                let account: String = row.get(5)?;
                Ok(LeasedEvent {
                    id: event_id(received, number as u64),
                    kind: kind_of(row.get(1)?),
                    index: row.get(2)?,
                    thread: thread_of(account.clone(), row.get(6)?),
                    account,
                })
            })?;
            // By the name that its thread goes by, where others wait for it.
            if let (Some(thread), Some(peer)) = (&mut event.thread, head.peer.as_ref().filter(|_| event.kind.waits_in_thread())) {
                thread.peer = peer.to_string();
            }
            events.push(event);
        }
        let mut rest = Vec::new();
        for (webhook, members) in parts.drain(parts.len().min(1)..) {
            let (_, body) = self.body(webhook.holder, last_body)?;
            rest.push(LeasedPart { body, webhook_events: webhook.events, events: members });
        }
        let webhook =
            parts.pop().map_or(Webhook { holder: head.first, events: 1, received: head.received }, |(webhook, _)| webhook);
        let (headers, body) = self.body(webhook.holder, last_body)?;
        Ok(InboxLease {
            lane: item_ref(held.channel, held.item),
            fence: fence_of(held.fence),
            until_ms: held.ends,
            item: item_id(head.received, held.item),
            channel: Arc::clone(channel),
            attempt: held.attempt,
            failures: head.failures,
            replay: head.replay,
            received_ms: webhook.received,
            headers,
            body,
            webhook_events: webhook.events,
            events,
            rest,
        })
    }

    pub(super) fn with_bot(&mut self, channel: &str) -> Result<Vec<WithBot>, StepError> {
        let Some(&channel) = self.channels.get(channel) else { return Ok(Vec::new()) };
        let mut held = self.lanes.held(&self.db, channel, self.now_ms)?;
        held.truncate(limits::WITH_BOT_MAX);
        let mut select = self.db.prepare_cached(
            "SELECT i.received, e.number, e.received, e.kind, e.account, e.peer FROM inbox i JOIN events e ON e.number = i.first
             WHERE i.channel = ?1 AND i.item = ?2",
        )?;
        let tell = |(held, peer): &(Held, Option<Arc<str>>)| {
            select.query_row([channel, held.item], |row| {
                let (account, spelt): (String, Option<String>) = (row.get(4)?, row.get(5)?);
                let named = peer.as_ref().filter(|_| kind_of(row.get(3).unwrap_or_default()).waits_in_thread());
                let peer = spelt.map(|spelt| named.map_or(spelt, |peer| peer.to_string()));
                Ok(WithBot {
                    item: item_id(row.get(0)?, held.item),
                    event: event_id(row.get(2)?, row.get::<_, i64>(1)?.cast_unsigned()),
                    thread: thread_of(account.clone(), peer),
                    account,
                    attempt: held.attempt,
                })
            })
        };
        Ok(held.iter().map(tell).collect::<Result<_, _>>()?)
    }

    fn body(&self, holder: i64, last: &mut LastBody) -> rusqlite::Result<(KeptHeaders, Bytes)> {
        if let Some((_, headers, body)) = last.as_ref().filter(|(number, ..)| *number == holder) {
            return Ok((headers.clone(), body.clone()));
        }
        let (headers, body) = self
            .db
            .prepare_cached("SELECT headers, body FROM events WHERE number = ?1")?
            .query_row([holder], |row| Ok((KeptHeaders(row.get(0)?), Bytes::from(row.get::<_, Vec<u8>>(1)?))))?;
        *last = Some((holder, headers.clone(), body.clone()));
        Ok((headers, body))
    }

    /// Writes down an attempt that nobody ended; it counts.
    fn lose(&mut self, held: &Held, why: &str) -> rusqlite::Result<()> {
        self.log_attempt(held, "lost", why)?;
        self.db.prepare_cached("UPDATE inbox SET attempt = ?3 WHERE channel = ?1 AND item = ?2")?.execute(params![
            held.channel,
            held.item,
            held.attempt
        ])?;
        self.pending.work.end_lease(held.item);
        Ok(())
    }

    fn log_attempt(&mut self, held: &Held, outcome: &'static str, detail: &str) -> rusqlite::Result<()> {
        if !is_told(held.attempt, outcome) {
            return Ok(());
        }
        if let Some(Origin { first, received }) = held.origin {
            self.pending.work.note(Attempt {
                first,
                item: held.item,
                fence: held.fence,
                received,
                attempt: held.attempt,
                worker: Arc::clone(&held.worker),
                leased: held.leased,
                ended: self.now_ms,
                outcome,
                detail: detail.to_owned(),
            });
            return Ok(());
        }
        self.db
            .prepare_cached(
                "INSERT INTO attempts SELECT first, item, ?3, received, ?4, ?5, ?6, ?7, ?8, ?9
                 FROM inbox WHERE channel = ?1 AND item = ?2",
            )?
            .execute(params![
                held.channel,
                held.item,
                held.fence,
                held.attempt,
                &*held.worker,
                held.leased,
                self.now_ms,
                outcome,
                detail
            ])?;
        Ok(())
    }

    pub(super) fn settle(&mut self, lane: LaneRef, fence: Fence, outcome: &Outcome) -> Result<Settled, StepError> {
        let (channel, item) = named_by(lane);
        let ended = self.lanes.end(&self.db, channel, item, fence.0 as i64)?;
        let Some((lane, held)) = ended else { return Ok(Settled::Lost) };
        self.pending.work.end_lease(held.item);
        match outcome {
            Outcome::Delivered { status, answer, replies } => {
                self.log_attempt(&held, outcome.name(), &status.to_string())?;
                if let Some(answer) = answer {
                    self.keep_answer(&held, answer)?;
                }
                if let Some(full) = self.finds_no_room(replies)? {
                    self.park(&held, &why_kept(&full.account, replies.len()), 0, replies)?;
                    self.leave_inbox(lane, &held);
                    return Ok(Settled::Kept);
                }
                for reply in replies {
                    self.submit(reply)?;
                }
                self.leave_inbox(lane, &held);
            }
            Outcome::Parked { why, .. } => {
                self.log_attempt(&held, outcome.name(), why)?;
                self.park(&held, why, outcome.charge(), &[])?;
                self.leave_inbox(lane, &held);
            }
            Outcome::Retry { wait_ms, why } => {
                self.log_attempt(&held, outcome.name(), why)?;
                self.db
                    .prepare_cached(
                        "UPDATE inbox SET attempt = ?3, due = ?4, why = ?5, failures = failures + ?6 WHERE channel = ?1 AND item = ?2",
                    )?
                    .execute(params![channel, item, held.attempt, self.now_ms + wait_ms, why, outcome.charge()])?;
                self.postpone(lane, &held, *wait_ms);
            }
            Outcome::HandBack { wait_ms, why, called } => {
                if *called {
                    self.log_attempt(&held, outcome.name(), why.as_deref().unwrap_or_default())?;
                }
                self.db
                    .prepare_cached(
                        "UPDATE inbox SET attempt = ?3, due = ?4, why = coalesce(?5, why) WHERE channel = ?1 AND item = ?2",
                    )?
                    .execute(params![channel, item, held.attempt - u32::from(!called), self.now_ms + wait_ms, why.as_deref()])?;
                self.postpone(lane, &held, *wait_ms);
            }
        }
        Ok(Settled::Done)
    }

    fn park(&self, held: &Held, why: &str, charge: u32, replies: &[NewMessage]) -> rusqlite::Result<()> {
        self.db
            .prepare_cached(
                "INSERT INTO parked SELECT item, channel, first, members, ?3, replay, received, ?4, 0, failures + ?6, ?5
                 FROM inbox WHERE channel = ?1 AND item = ?2",
            )?
            .execute(params![held.channel, held.item, held.attempt, why, write_replies(replies), charge])?;
        Ok(())
    }

    /// The answer is kept under the item, for all its events. A replay answers nobody.
    fn keep_answer(&self, held: &Held, answer: &Answer) -> rusqlite::Result<()> {
        self.db
            .prepare_cached(
                "INSERT INTO answers SELECT item, ?3, ?4, ?5 FROM inbox WHERE channel = ?1 AND item = ?2 AND replay IS NULL",
            )?
            .execute(params![held.channel, held.item, answer.status, answer.content_type, &*answer.body])?;
        Ok(())
    }

    /// Takes the item out; the lane goes on with the next item, or ends.
    fn leave_inbox(&mut self, lane: u64, held: &Held) {
        self.pending.work.leave(held.channel, held.item);
        self.work_made |= self.lanes.remove(held.channel, lane, held.item);
    }

    fn postpone(&mut self, lane: u64, held: &Held, wait_ms: i64) {
        self.lanes.postpone(held.channel, lane, held.item, self.now_ms + wait_ms);
        self.work_made |= wait_ms <= 0;
    }

    /// Ends the leases of the process that owned the file before: it is gone, or we would not own the file. Those of workers outside go on
    /// until they run out.
    pub(super) fn end_old_leases(&mut self) -> rusqlite::Result<()> {
        self.lose_where("NOT outside", i64::MAX, "hapax stopped")?;
        self.lose_where("outside", self.now_ms, "the lease ran out")
    }

    /// Ends those of workers outside as well: what they hold is moved to another store, and waits there.
    pub(super) fn end_outside_leases(&mut self) -> rusqlite::Result<()> {
        self.lose_where("outside", i64::MAX, "it was moved to another store")?;
        self.lanes.forget_all();
        Ok(())
    }

    fn lose_where(&mut self, whose: &str, ended_by: i64, why: &str) -> rusqlite::Result<()> {
        let sql = format!("SELECT channel, item, attempt, fence, worker, leased, ends FROM leases WHERE {whose} AND ends <= ?1");
        let left: Vec<Held> = self.db.prepare(&sql)?.query_map([ended_by], Held::read)?.collect::<Result<_, _>>()?;
        for held in left {
            self.lose(&held, why)?;
        }
        self.write_pending()
    }
}

/// What the worker needs of an item that was never leased before.
fn leased_fresh(mut fresh: FreshItem, held: &Held, channel: &Arc<str>, peer: Option<&Arc<str>>) -> InboxLease {
    InboxLease {
        lane: item_ref(held.channel, held.item),
        fence: fence_of(held.fence),
        until_ms: held.ends,
        item: item_id(fresh.received, held.item),
        channel: Arc::clone(channel),
        attempt: held.attempt,
        failures: 0,
        replay: None,
        received_ms: fresh.received,
        webhook_events: 1,
        events: vec![fresh.take_event(held.item, peer)],
        headers: fresh.headers,
        body: fresh.body,
        rest: Vec::new(),
    }
}
