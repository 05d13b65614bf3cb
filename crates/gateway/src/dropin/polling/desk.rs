//! The desk of one channel: leased updates on one side, the poll that waits for them on the other.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hapax_domain::poll_book::Given;
use hapax_domain::{ItemId, PollBook};
use hapax_store::InboxLease;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::super::Runs;
use crate::settings;
use crate::telemetry::TargetTelemetry;
use crate::worker::CallGuard;

/// What was leased for a poll that has gone away since is handed back after this time.
const KEPT_READY: Duration = Duration::from_secs(2);

/// How long updates that were leased together are waited for.
const GATHER: Duration = Duration::from_millis(200);

/// An answer holds no more than this, and one update at least.
const ANSWER_MAX_BYTES: usize = 8 << 20;

/// Items of which it is remembered how they ended, or what they were called.
const REMEMBERED: usize = 1_000;

/// Items that the bot does not want any more are leased so many at a time.
const FORGOTTEN_AT_ONCE: usize = 100;

pub(super) struct Desk {
    pub(super) settings: Arc<settings::Channel>,
    pub(super) telemetry: TargetTelemetry,
    /// Outcomes that the store did not take yet.
    pub(super) unsettled: AtomicUsize,
    pub(super) changed: Notify,
    /// Polls name their offsets, and answers are written down, one after the other.
    pub(super) arriving: tokio::sync::Mutex<()>,
    runs: Arc<Runs>,
    /// What the bot confirmed is held for so long, should the bot die over it.
    redo: Option<Duration>,
    state: Mutex<State>,
}

struct State {
    held: Vec<Held>,
    /// The newest poll.
    turn: u64,
    waiting: Option<Waiting>,
    /// When the bot was last heard of.
    heard: Instant,
    /// When the book was last looked at because the bot may poll elsewhere.
    looked_elsewhere: Instant,
    /// From the book: confirmed before they were leased here.
    confirmed: HashSet<ItemId>,
    /// The bot has asked to get none of these.
    forgotten: HashSet<ItemId>,
    /// .. and these are being parked.
    forgetting: usize,
    /// Leased together, and not all here yet: they are given together, unless that takes longer than this.
    expected: usize,
    gather_until: Instant,
    settled: VecDeque<ItemId>,
    numbers: VecDeque<(ItemId, i64)>,
    closed: bool,
}

#[derive(Clone, Copy)]
struct Waiting {
    turn: u64,
    limit: usize,
    /// The store was asked since then, and had nothing.
    looked: bool,
    looking_since: Instant,
}

impl Waiting {
    /// What the store says to a question from before the poll, or from before something was moved out of its way, is no answer to it.
    fn is_answered_by(&self, began: Instant) -> bool {
        began >= self.looking_since
    }
}

/// A leased update, until something has become of it.
pub(super) struct Held {
    pub(super) lease: Arc<InboxLease>,
    pub(super) guard: CallGuard,
    pub(super) update: Bytes,
    /// Its number at Telegram, and the word for what it tells.
    pub(super) own: Option<i64>,
    pub(super) word: String,
    pub(super) verdict: oneshot::Sender<Verdict>,
    /// Set when it may have reached the bot.
    pub(super) begun: Arc<AtomicBool>,
    pub(super) place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Ready,
    /// In an answer that is about to leave.
    Leaving {
        turn: u64,
    },
    Given,
    /// Confirmed, and not settled for a while.
    Confirmed {
        at: Instant,
    },
}

/// What becomes of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Confirmed,
    /// The bot asks anew, and has not confirmed it.
    Cut,
    Silent,
    /// The bot confirmed it, and was started anew a moment later.
    Redo,
    /// The bot does not want updates of this kind.
    Unwanted,
    Forgotten,
    /// Nobody polls here any more.
    NotAsked,
}

/// What an answer is made of.
#[derive(Clone)]
pub(super) struct Taken {
    pub(super) item: ItemId,
    pub(super) own: Option<i64>,
    /// The number that it was given under last.
    pub(super) before: Option<i64>,
    pub(super) update: Bytes,
}

pub(super) enum Batch {
    Some(Vec<Taken>),
    /// Since when the store is being asked, unless it has said that there is nothing.
    Nothing {
        asked_since: Option<Instant>,
    },
    /// Another poll has come.
    Over,
    Closed,
}

/// A poll that waits; dropped, it is gone.
pub(super) struct Seat {
    desk: Arc<Desk>,
    pub(super) turn: u64,
    pub(super) since: Instant,
    /// Its answer is made, and tells by itself what becomes of it.
    pub(super) answered: bool,
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.answered {
            self.desk.put_back(self.turn);
        }
        let mut state = self.desk.lock();
        state.heard = Instant::now();
        if state.waiting.is_some_and(|waiting| waiting.turn == self.turn) {
            state.waiting = None;
        }
    }
}

impl Desk {
    pub(super) fn new(settings: &Arc<settings::Channel>, telemetry: TargetTelemetry, runs: &Arc<Runs>) -> Self {
        let redo_ms = settings.dropin.as_ref().and_then(|dropin| dropin.redo_confirmed_ms);
        let now = Instant::now();
        let state = State {
            held: Vec::new(),
            turn: 0,
            waiting: None,
            heard: now,
            looked_elsewhere: now,
            confirmed: HashSet::new(),
            forgotten: HashSet::new(),
            forgetting: 0,
            expected: 0,
            gather_until: now,
            settled: VecDeque::new(),
            numbers: VecDeque::new(),
            closed: false,
        };
        Self {
            settings: Arc::clone(settings),
            telemetry,
            unsettled: AtomicUsize::new(0),
            changed: Notify::new(),
            arriving: tokio::sync::Mutex::default(),
            runs: Arc::clone(runs),
            redo: redo_ms.map(|ms| Duration::from_millis(ms.unsigned_abs())),
            state: Mutex::new(state),
        }
    }

    pub(super) fn redoes(&self) -> bool {
        self.redo.is_some()
    }

    /// The bot has called, for whatever.
    pub(super) fn heard(&self) {
        self.lock().heard = Instant::now();
    }

    /// Nobody waits here any more, because hapax stops.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_waiters();
    }

    /// How many items the poll that waits would still take. What it wants to have forgotten is taken besides.
    pub(super) fn wanted(&self) -> usize {
        let state = self.lock();
        let Some(waiting) = state.waiting.filter(|_| !state.closed) else { return 0 };
        let ready = state.held.iter().filter(|held| held.place == Place::Ready).count();
        waiting.limit.max(state.forgotten.len().min(FORGOTTEN_AT_ONCE)).saturating_sub(ready)
    }

    /// The store was asked at this time, and gave so many.
    pub(super) fn looked(&self, leased: usize, began: Instant) {
        let mut state = self.lock();
        if let Some(waiting) = &mut state.waiting {
            waiting.looked |= leased == 0 && waiting.is_answered_by(began);
        }
        if leased > 0 {
            state.expected += leased;
            state.gather_until = Instant::now() + GATHER;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// One that was leased is here, or will not come.
    pub(super) fn expects_one_less(&self) {
        let mut state = self.lock();
        state.expected = state.expected.saturating_sub(1);
        drop(state);
        self.changed.notify_waiters();
    }

    /// A poll begins; one that waits already ends.
    pub(super) fn arrive(self: &Arc<Self>, limit: usize) -> Seat {
        let mut state = self.lock();
        let since = Instant::now();
        (state.turn, state.heard) = (state.turn + 1, since);
        let turn = state.turn;
        state.waiting = Some(Waiting { turn, limit, looked: false, looking_since: since });
        drop(state);
        self.changed.notify_waiters();
        Seat { desk: Arc::clone(self), turn, since, answered: false }
    }

    /// An update was leased. What was confirmed before is not given again.
    pub(super) fn add(&self, held: Held) {
        let mut state = self.lock();
        let item = held.lease.item;
        if state.confirmed.remove(&item) {
            held.tell(Verdict::Confirmed);
        } else if state.forgotten.remove(&item) {
            state.forgetting += 1;
            held.tell(Verdict::Forgotten);
        } else {
            state.held.push(held);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// A poll has named its offset, and the book tells what that confirms; `anew`: the bot was started anew.
    pub(super) fn apply(&self, book: &PollBook, anew: bool) {
        let mut state = self.lock();
        let now = Instant::now();
        for mut held in std::mem::take(&mut state.held) {
            let confirmed = book.has_confirmed(held.lease.item);
            match held.place {
                Place::Confirmed { .. } if anew => held.tell(Verdict::Redo),
                Place::Confirmed { .. } => state.held.push(held),
                _ if confirmed && self.redo.is_some() && held.place != Place::Ready => {
                    held.place = Place::Confirmed { at: now };
                    state.held.push(held);
                }
                _ if confirmed => held.tell(Verdict::Confirmed),
                Place::Given => held.tell(Verdict::Cut),
                Place::Ready | Place::Leaving { .. } => state.held.push(held),
            }
        }
        let known: HashSet<ItemId> = state.held.iter().map(|held| held.lease.item).chain(state.settled.iter().copied()).collect();
        state.confirmed = book.confirmed.iter().copied().filter(|item| !known.contains(item)).collect();
    }

    /// All of these are not wanted any more.
    pub(super) fn forget(&self, items: HashSet<ItemId>) {
        let mut state = self.lock();
        for held in std::mem::take(&mut state.held) {
            match held.place == Place::Ready && items.contains(&held.lease.item) {
                true => {
                    state.forgetting += 1;
                    held.tell(Verdict::Forgotten);
                }
                false => state.held.push(held),
            }
        }
        state.forgotten = items;
    }

    pub(super) fn is_forgetting(&self) -> bool {
        let state = self.lock();
        !state.forgotten.is_empty() || state.forgetting > 0
    }

    /// One that is not wanted any more is out of the way: what waited behind it may be there now.
    pub(super) fn forgot(&self) {
        let mut state = self.lock();
        state.forgetting = state.forgetting.saturating_sub(1);
        state.waiting = state.waiting.map(|waiting| Waiting { looked: false, looking_since: Instant::now(), ..waiting });
        drop(state);
        self.changed.notify_waiters();
    }

    pub(super) fn is_newest(&self, seat: &Seat) -> bool {
        self.lock().turn == seat.turn
    }

    /// What is ready, lowest numbers first. What was given before and got lost comes first of all: it has the lower number.
    pub(super) fn take(&self, turn: u64, limit: usize, allowed: Option<&[String]>) -> Batch {
        let mut state = self.lock();
        if state.closed {
            return Batch::Closed;
        }
        if state.turn != turn {
            return Batch::Over;
        }
        if state.expected > 0 && Instant::now() < state.gather_until {
            return Batch::Nothing { asked_since: Some(state.gather_until) };
        }
        let wanted = |held: &Held| allowed.is_none_or(|allowed| allowed.is_empty() || allowed.contains(&held.word));
        for held in std::mem::take(&mut state.held) {
            match held.place {
                Place::Ready if !wanted(&held) => held.tell(Verdict::Unwanted),
                // Another instance may have it by now.
                Place::Ready if !held.guard.allows() => held.tell(Verdict::NotAsked),
                _ => state.held.push(held),
            }
        }
        let numbers: HashMap<ItemId, i64> = state.numbers.iter().copied().collect();
        let mut ready: Vec<Taken> = (state.held.iter())
            .filter(|held| held.place == Place::Ready)
            .map(|held| {
                let item = held.lease.item;
                Taken { item, own: held.own, before: numbers.get(&item).copied(), update: held.update.clone() }
            })
            .collect();
        if ready.is_empty() {
            let asked_since = state.waiting.filter(|waiting| !waiting.looked).map(|waiting| waiting.looking_since);
            return Batch::Nothing { asked_since };
        }
        ready.sort_by_key(|taken| (taken.before.is_none(), taken.before, taken.own));
        let mut bytes = 0;
        let fitting = ready.iter().take(limit).take_while(|taken| {
            let fits = bytes == 0 || bytes + taken.update.len() <= ANSWER_MAX_BYTES;
            bytes += taken.update.len();
            fits
        });
        let most = fitting.count();
        ready.truncate(most);
        for held in &mut state.held {
            if ready.iter().any(|taken| taken.item == held.lease.item) {
                held.place = Place::Leaving { turn };
            }
        }
        Batch::Some(ready)
    }

    /// The book says under which numbers they are given; from here on they are with the bot. False: they must not leave.
    pub(super) fn may_leave(&self, turn: u64, given: &[Given]) -> bool {
        let mut state = self.lock();
        let leaving = Place::Leaving { turn };
        let there = |given: &Given| {
            let mut held = state.held.iter().filter(|held| held.lease.item == given.item && held.place == leaving);
            held.next().is_some_and(|held| held.guard.allows())
        };
        let may = state.turn == turn && !state.closed && given.iter().all(there);
        for given in given {
            state.numbers.retain(|(item, _)| *item != given.item);
            state.numbers.push_back((given.item, given.number));
        }
        let too_many = state.numbers.len().saturating_sub(REMEMBERED);
        state.numbers.drain(..too_many);
        for held in state.held.iter_mut().filter(|held| held.place == leaving) {
            if !may {
                held.place = Place::Ready;
            } else if !held.begun.swap(true, Ordering::AcqRel) {
                self.runs.begin(&held.lease);
            }
        }
        may
    }

    /// What could not be written down is not given.
    pub(super) fn put_back(&self, turn: u64) {
        let mut state = self.lock();
        state.held.iter_mut().filter(|held| held.place == Place::Leaving { turn }).for_each(|held| held.place = Place::Ready);
    }

    /// An answer has left, to the last byte or not.
    pub(super) fn left(&self, turn: u64, handed_over: bool) {
        let mut state = self.lock();
        let asked_since = state.turn != turn;
        for mut held in std::mem::take(&mut state.held) {
            match held.place {
                Place::Leaving { turn: of } if of == turn && !handed_over => held.place = Place::Ready,
                Place::Leaving { turn: of } if of == turn && asked_since => {
                    held.tell(Verdict::Cut);
                    continue;
                }
                Place::Leaving { turn: of } if of == turn => held.place = Place::Given,
                _ => {}
            }
            state.held.push(held);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Looks after one item, now and then.
    pub(super) fn review(&self, item: ItemId) {
        let mut state = self.lock();
        let Some(at) = state.held.iter().position(|held| held.lease.item == item) else { return };
        let (now, heard, waits) = (Instant::now(), state.heard, state.waiting.is_some());
        let silent = !waits && now.duration_since(heard) > Duration::from_millis(self.settings.timeout_ms.unsigned_abs());
        let verdict = match state.held[at].place {
            Place::Ready if !waits && now.duration_since(heard) > KEPT_READY => Verdict::NotAsked,
            Place::Confirmed { at } => {
                let until = at + self.redo.unwrap_or_default();
                match now >= until && (waits || heard >= until) {
                    true => Verdict::Confirmed,
                    false if silent => Verdict::Redo,
                    false => return,
                }
            }
            Place::Given if silent => Verdict::Silent,
            _ => return,
        };
        state.held.swap_remove(at).tell(verdict);
    }

    /// True, once a second at most, while nobody polls here and something is held.
    pub(super) fn may_be_polled_elsewhere(&self) -> bool {
        let mut state = self.lock();
        let now = Instant::now();
        let is_time = now.duration_since(state.looked_elsewhere) > Duration::from_secs(1);
        if state.waiting.is_some() || !is_time {
            return false;
        }
        state.looked_elsewhere = now;
        true
    }

    /// The bot polls at another instance: what is held here is held in vain.
    pub(super) fn polled_elsewhere(&self, book: &PollBook) {
        let mut state = self.lock();
        if state.waiting.is_some() {
            return;
        }
        for held in std::mem::take(&mut state.held) {
            let verdict = match held.place {
                _ if book.has_confirmed(held.lease.item) => Verdict::Confirmed,
                Place::Ready | Place::Leaving { .. } => Verdict::NotAsked,
                Place::Given => Verdict::Cut,
                Place::Confirmed { .. } => Verdict::Redo,
            };
            held.tell(verdict);
        }
    }

    /// Its worker has ended.
    pub(super) fn remove(&self, item: ItemId, attempt: u32) {
        self.lock().held.retain(|held| (held.lease.item, held.lease.attempt) != (item, attempt));
    }

    pub(super) fn settled(&self, item: ItemId) {
        let mut state = self.lock();
        state.settled.push_back(item);
        let too_many = state.settled.len().saturating_sub(REMEMBERED);
        state.settled.drain(..too_many);
        state.confirmed.remove(&item);
    }

    /// It was confirmed, and comes again all the same.
    pub(super) fn comes_again(&self, item: ItemId) {
        self.lock().confirmed.remove(&item);
    }

    /// Of what is confirmed, that which nobody here has settled yet.
    pub(super) fn unsettled_of(&self, confirmed: &[ItemId]) -> Vec<ItemId> {
        let state = self.lock();
        confirmed.iter().copied().filter(|item| !state.settled.contains(item)).collect()
    }

    /// True when all of these are in hand here.
    pub(super) fn holds_all(&self, items: &[ItemId]) -> bool {
        let state = self.lock();
        items.iter().all(|item| state.settled.contains(item) || state.held.iter().any(|held| held.lease.item == *item))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn tell(self, verdict: Verdict) {
        // Whoever has ended meanwhile needs no verdict.
        let _ = self.verdict.send(verdict);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The store was asked while the last item before this poll's was being parked, and says "nothing" after that.
    #[test]
    fn an_answer_to_an_older_question_does_not_end_a_poll() {
        let asked = Instant::now();
        let waiting = Waiting { turn: 1, limit: 1, looked: false, looking_since: asked + Duration::from_millis(1) };
        assert!(!waiting.is_answered_by(asked));
        assert!(waiting.is_answered_by(waiting.looking_since));
    }
}
