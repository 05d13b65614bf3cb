//! Settling inbox items: fenced, with the replies in the same step.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_domain::Fence;

use super::engine::{First, Pool, Tx, TxError, Wanted};
use super::records::{AnswerRec, Hash, Held, ItemPlace, Queue};
use super::room::Rooms;
use super::run::Step;
use super::submit::first_of_submit;
use super::work::Work;
use crate::{Answer, LaneRef, NewMessage, Outcome, Settled, why_kept};

/// One outcome of one lane's lease.
pub(super) type Ended = (LaneRef, Fence, Outcome, Arc<Rooms>);

/// Outcomes that share a transaction; each of another lane.
pub(super) struct SettleInbox(pub(super) Vec<Ended>);

/// What an outcome wants to send.
pub(super) fn replies(outcome: &Outcome) -> &[NewMessage] {
    match outcome {
        Outcome::Delivered { replies, .. } => replies,
        Outcome::Retry { .. } | Outcome::Parked { .. } | Outcome::HandBack { .. } => &[],
    }
}

#[async_trait]
impl Step for SettleInbox {
    type Out = Vec<Settled>;
    const POOL: Pool = Pool::Workers;

    fn numbers(&self) -> usize {
        self.0.iter().map(|(_, _, outcome, _)| replies(outcome).len()).sum()
    }

    fn first(&self) -> First {
        let mut first = first_of_submit(self.0.iter().flat_map(|(_, _, outcome, _)| replies(outcome)));
        first.lanes.extend(self.0.iter().map(|(lane, ..)| lane.0));
        first
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Settled>, TxError> {
        let mut work = Work::new(tx.now_ms());
        let lanes = self.0.iter().map(|(lane, ..)| lane.0).collect();
        work.load(tx, Wanted { lanes, ..Wanted::default() }).await?;
        let held: Vec<Option<Held>> = self.0.iter().map(|(lane, fence, ..)| work.held(&lane.0, fence.0)).collect();
        if held.iter().all(Option::is_none) {
            return Ok(vec![Settled::Lost; held.len()]);
        }
        work.load_groups(tx).await?;
        let ended = self.0.iter().zip(&held).filter(|(_, held)| held.is_some());
        let lowest_items = ended.flat_map(|((lane, ..), _)| work.group(&lane.0)).collect();
        work.load(tx, Wanted { lowest_items, ..Wanted::default() }).await?;
        // What was leased is the lowest of its lane, unless something older was put back in line meanwhile.
        let items = held.iter().flatten().map(|held| held.number).filter(|item| work.items.get(item).is_none()).collect();
        work.load(tx, Wanted { items, ..Wanted::default() }).await?;
        let sent = || {
            let ended = self.0.iter().zip(&held).filter(|(_, held)| held.is_some());
            ended.flat_map(|((_, _, outcome, _), _)| replies(outcome))
        };
        work.load_for_submit(tx, sent()).await?;
        if let Some((.., rooms)) = self.0.first() {
            work.look_for_room(tx, rooms, sent()).await?;
        }
        let mut settled = Vec::with_capacity(held.len());
        for ((lane, _, outcome, _), held) in self.0.iter().zip(&held) {
            let Some(held) = held else {
                settled.push(Settled::Lost);
                continue;
            };
            let full = replies(outcome).iter().find(|reply| work.is_full_for(reply));
            work.settle_item(&lane.0, held, outcome, full);
            if full.is_some() {
                settled.push(Settled::Kept);
                continue;
            }
            for reply in replies(outcome) {
                work.submit(reply, tx.number());
            }
            settled.push(Settled::Done);
        }
        tx.save(work.changes()).await?;
        Ok(settled)
    }
}

impl Work {
    /// `full` is the reply that finds no room.
    fn settle_item(&mut self, lane: &Hash, held: &Held, outcome: &Outcome, full: Option<&NewMessage>) {
        self.unhold(lane);
        let Some(item) = self.items.get(&held.number).cloned() else {
            self.leave(lane, held.number);
            return;
        };
        let detail = match outcome {
            Outcome::Delivered { status, .. } => status.to_string(),
            _ => outcome.why().unwrap_or_default().to_owned(),
        };
        if outcome.counts() {
            let of = item.events.first().copied().unwrap_or_default();
            self.log(Queue::Inbox, of, item.received_ms, held, outcome.name(), &detail);
        }
        match outcome {
            Outcome::Delivered { answer, .. } => {
                // A replay answers nobody.
                if let Some(answer) = answer.as_ref().filter(|_| item.replay.is_none()) {
                    self.keep_answer(&item.events, answer);
                }
                match full {
                    Some(full) => {
                        let kept = replies(outcome);
                        self.park(lane, held, why_kept(&full.account, kept.len()), 0, kept);
                    }
                    None => self.remove_item(item.number),
                }
            }
            Outcome::Parked { why, .. } => self.park(lane, held, why.clone(), outcome.charge(), &[]),
            Outcome::Retry { wait_ms, .. } | Outcome::HandBack { wait_ms, .. } => {
                if let Some(item) = self.items.change(&held.number) {
                    item.attempt = held.attempt - u32::from(!outcome.counts());
                    item.failures += outcome.charge();
                    item.why = outcome.why().map(str::to_owned).or(item.why.take());
                }
                self.come_again(lane, held.number, *wait_ms);
            }
        }
    }

    fn park(&mut self, lane: &Hash, held: &Held, why: String, charge: u32, replies: &[NewMessage]) {
        if let Some(item) = self.items.change(&held.number) {
            item.place = ItemPlace::Parked;
            item.attempt = held.attempt;
            item.failures += charge;
            item.why = Some(why);
            item.replies = replies.to_vec();
        }
        // It may have been put into a lane that is joined to this one.
        self.leave(lane, held.number);
    }

    fn come_again(&mut self, lane: &Hash, number: u64, wait_ms: i64) {
        let due_ms = self.now_ms + wait_ms;
        if let Some(item) = self.items.change(&number) {
            item.due_ms = due_ms;
        }
        self.refresh(lane);
    }

    fn keep_answer(&mut self, events: &[u64], answer: &Answer) {
        self.answers.extend(events.iter().map(|&event| AnswerRec { event, answer: answer.clone() }));
    }
}
