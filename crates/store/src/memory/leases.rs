//! The model's work on inbox items: leasing the first of a lane, and what becomes of it.

use std::sync::Arc;

use super::lanes::Held;
use super::state::{ItemPlace, State, Webhook, lane_number, lane_ref};
use crate::{
    AttemptRow, InboxLease, LaneRef, LeaseRequest, LeasedEvent, LeasedPart, NewMessage, Outcome, Settled, is_told, why_kept,
};
use hapax_domain::{Fence, ItemId};

impl State {
    pub(super) fn lease(&mut self, ask: &LeaseRequest, now: i64) -> Vec<InboxLease> {
        let mut leases = Vec::new();
        for (channel, max) in &ask.wants {
            let heads = self.lanes.heads(channel).into_iter();
            let mut due: Vec<(i64, ItemId, u64)> =
                heads.filter_map(|(number, head)| Some((self.due_ms(number, head)?, head, number))).collect();
            let rests =
                |head| ask.resting_in(channel).zip(self.account_of(head)).is_some_and(|(all, account)| all.rests(account));
            due.retain(|(due_ms, head, _)| *due_ms <= now && !rests(*head));
            due.sort_unstable();
            for (_, _, number) in due.into_iter().take(*max) {
                leases.extend(self.lease_lane(number, ask, now));
            }
        }
        leases
    }

    fn account_of(&self, item: ItemId) -> Option<&str> {
        let first = self.items.get(&item)?.events.first()?;
        Some(&self.events.get(first)?.event.account)
    }

    /// When the lane may next be taken: the end of its leases, or when its first item is due.
    fn due_ms(&self, lane: u64, head: ItemId) -> Option<i64> {
        self.lanes.leased_until(lane).or_else(|| Some(self.items.get(&head)?.due_ms))
    }

    fn lease_lane(&mut self, number: u64, ask: &LeaseRequest, now: i64) -> Option<InboxLease> {
        for lost in self.lanes.unhold_all(number) {
            self.log_attempt(&lost, now, "lost", "the lease ran out");
        }
        let id = self.lanes.head(number)?;
        // A lease that was out when its lane was joined may end while the first of all still waits for its time.
        let item = self.items.get_mut(&id).filter(|item| item.due_ms <= now)?;
        self.last_fence += 1;
        let (fence, until_ms) = (Fence(self.last_fence), now + ask.hold_ms);
        self.lanes.hold(
            number,
            Held { item: id, fence, worker: Arc::clone(&ask.worker), leased_ms: now, until_ms, outside: ask.outside },
        );
        item.attempt += 1;
        if self.lanes.turn(number) == Some(id) {
            self.lanes.set_turn(number, None);
        }
        let first = self.events.get(item.events.first()?)?;
        let events = item.events.iter().filter_map(|id| Some((*id, self.events.get(id)?)));
        let mut parts: Vec<(&Arc<Webhook>, usize)> = Vec::new();
        for (_, recorded) in events.clone() {
            match parts.last_mut().filter(|(webhook, _)| Arc::ptr_eq(webhook, &recorded.webhook)) {
                Some((_, events)) => *events += 1,
                None => parts.push((&recorded.webhook, 1)),
            }
        }
        let part = |(webhook, events): (&Arc<Webhook>, usize)| LeasedPart {
            body: webhook.body.clone(),
            webhook_events: webhook.events,
            events,
        };
        let rest = parts.into_iter().skip(1).map(part).collect();
        let thread = self.lanes.name(number);
        Some(InboxLease {
            lane: lane_ref(number),
            fence,
            until_ms,
            item: id,
            channel: Arc::clone(&item.channel),
            attempt: item.attempt,
            failures: item.failures,
            replay: item.replay,
            received_ms: first.received_ms,
            headers: first.webhook.headers.clone(),
            body: first.webhook.body.clone(),
            webhook_events: first.webhook.events,
            events: events
                .map(|(id, recorded)| LeasedEvent {
                    id,
                    kind: recorded.event.kind,
                    index: recorded.event.index,
                    account: recorded.event.account.clone(),
                    thread: thread.cloned().or_else(|| recorded.event.thread()),
                })
                .collect(),
            rest,
        })
    }

    pub(super) fn log_attempt(&mut self, held: &Held, now: i64, outcome: &str, detail: &str) {
        let Some(item) = self.items.get(&held.item) else { return };
        if !is_told(item.attempt, outcome) {
            return;
        }
        let row = AttemptRow {
            item: held.item,
            attempt: item.attempt,
            fence: held.fence,
            worker: held.worker.to_string(),
            leased_ms: held.leased_ms,
            ended_ms: now,
            outcome: outcome.to_owned(),
            detail: detail.to_owned(),
        };
        self.attempts.push((item.events[0], row));
    }

    pub(super) fn extend(&mut self, lane: LaneRef, fence: Fence, until: i64) -> bool {
        self.lanes.extend(lane_number(lane), fence, until)
    }

    pub(super) fn settle(&mut self, lane: LaneRef, fence: Fence, outcome: Outcome, now: i64) -> Settled {
        let Some(held) = self.lanes.unhold(lane_number(lane), fence) else { return Settled::Lost };
        let (name, charge) = (outcome.name(), outcome.charge());
        match outcome {
            Outcome::Delivered { status, answer, replies } => {
                self.log_attempt(&held, now, name, &status.to_string());
                // A replay answers nobody.
                if let Some(item) = self.items.get(&held.item).filter(|item| item.replay.is_none())
                    && let Some(answer) = answer
                {
                    self.answers.extend(item.events.iter().map(|&event| (event, answer.clone())));
                }
                if let Some(full) = replies.iter().find(|reply| self.outbox.is_full_for(reply)) {
                    let why = why_kept(&full.account, replies.len());
                    self.park(held.item, why, charge, replies);
                    return Settled::Kept;
                }
                self.send_all(replies, now);
                self.leave_lane(held.item);
                self.items.remove(&held.item);
            }
            Outcome::Parked { why, .. } => {
                self.log_attempt(&held, now, name, &why);
                self.park(held.item, why, charge, vec![]);
            }
            Outcome::Retry { wait_ms, why } => {
                self.log_attempt(&held, now, name, &why);
                if let Some(item) = self.items.get_mut(&held.item) {
                    item.failures += charge;
                    item.why = Some(why);
                    item.due_ms = now + wait_ms;
                }
            }
            Outcome::HandBack { wait_ms, why, called } => {
                if called {
                    self.log_attempt(&held, now, name, why.as_deref().unwrap_or_default());
                }
                if let Some(item) = self.items.get_mut(&held.item) {
                    item.attempt -= u32::from(!called);
                    item.why = why.or(item.why.take());
                    item.due_ms = now + wait_ms;
                }
            }
        }
        Settled::Done
    }

    fn park(&mut self, id: ItemId, why: String, charge: u32, replies: Vec<NewMessage>) {
        self.leave_lane(id);
        if let Some(item) = self.items.get_mut(&id) {
            item.place = ItemPlace::Parked;
            item.failures += charge;
            item.why = Some(why);
            item.replies = replies;
        }
    }

    pub(super) fn send_all(&mut self, replies: Vec<NewMessage>, now: i64) {
        for reply in replies {
            // Room was looked for before: of one answer, all find it or none.
            self.queue(reply, now);
        }
    }

    fn leave_lane(&mut self, id: ItemId) {
        if let Some(ItemPlace::InLane(number)) = self.items.get(&id).map(|item| item.place) {
            self.lanes.leave(number, id);
        }
    }
}
