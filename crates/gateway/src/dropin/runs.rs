//! Which events are with the bot: what this process delivers it knows by itself, what others deliver the store tells.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hapax_domain::{EventId, ItemId, PollBook, ThreadId};
use hapax_store::{EventState, InboxLease, ItemState, Reads, Registers, StoreError, WithBot};
use tokio::time::Instant;

use super::polling;
use super::written::{FailedRun, Written, failed_name};

/// How long a run that was answered with 2xx is remembered, to tell whether the bot works on behind its answer.
const EARLY: Duration = Duration::from_secs(60);
/// How long a run that has failed is remembered: its handler may go on, and what it sends is still its own.
const FAILED: Duration = Duration::from_secs(300);
/// Runs that are over and remembered; beyond it the oldest are forgotten.
const OVER_MAX: usize = 10_000;
/// A handler that has sent so lately is still at work.
const QUIET: Duration = Duration::from_millis(1_500);
/// Items of other instances whose kind is looked up.
const KINDS_MAX: usize = 8;

/// The runs of all channels with drop-in sending.
#[derive(Default)]
pub struct Runs(Mutex<HashMap<ItemId, Run>>);

#[derive(Clone, Debug)]
struct Run {
    channel: Arc<str>,
    events: Vec<EventId>,
    thread: Option<ThreadId>,
    /// One at a time: a message, not a status.
    in_lane: bool,
    attempt: u32,
    state: State,
    /// Sends that were made in it, those of before included that are still open.
    sends: u32,
    open_sends: u32,
    last_send: Option<Instant>,
    over_since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    WithBot,
    /// It comes again.
    Failed,
    Delivered,
}

/// What a send belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Belongs {
    pub(super) item: ItemId,
    pub(super) event: EventId,
    pub(super) run: u32,
    /// The run has ended already, and comes again: whether its handler goes on, or somebody else sends, cannot be told.
    pub(super) late: bool,
}

/// What the caller of a send says and wants.
pub(super) struct Sought<'s> {
    pub(super) channel: &'s str,
    pub(super) thread: ThreadId,
    /// The event that the bot has passed on, and the attempt.
    pub(super) event: Option<EventId>,
    pub(super) attempt: Option<u32>,
    /// Where the bot polls.
    pub(super) polled: Option<Polled>,
}

#[derive(Clone, Copy)]
pub(super) struct Polled {
    /// This process.
    pub(super) process: u64,
    /// What the bot has confirmed is with it for a while (`redo_confirmed`).
    pub(super) redoes: bool,
}

/// How a call to the bot ended, for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    Delivered,
    Failed,
    /// The bot was not called at all.
    NotCalled,
}

impl Runs {
    /// The bot is about to be called.
    pub fn begin(&self, lease: &InboxLease) {
        let first = lease.events.first();
        let run = Run {
            channel: Arc::clone(&lease.channel),
            events: lease.events.iter().map(|event| event.id).collect(),
            thread: first.and_then(|event| event.thread.clone()),
            in_lane: first.is_some_and(|event| event.kind.waits_in_thread()),
            attempt: lease.attempt,
            state: State::WithBot,
            sends: 0,
            open_sends: 0,
            last_send: None,
            over_since: Instant::now(),
        };
        let mut runs = self.lock();
        if runs.len() > OVER_MAX {
            forget(&mut runs);
        }
        runs.insert(lease.item, run);
    }

    /// The call to the bot has come to its end.
    pub fn end(&self, item: ItemId, attempt: u32, end: RunEnd) {
        let mut runs = self.lock();
        let Some(run) = runs.get_mut(&item).filter(|run| run.attempt == attempt && run.state == State::WithBot) else { return };
        run.over_since = Instant::now();
        match end {
            RunEnd::Delivered if run.sends > 0 => drop(runs.remove(&item)),
            RunEnd::Delivered => run.state = State::Delivered,
            RunEnd::Failed => run.state = State::Failed,
            RunEnd::NotCalled if attempt > 1 => (run.state, run.attempt) = (State::Failed, attempt - 1),
            RunEnd::NotCalled => drop(runs.remove(&item)),
        }
    }

    /// True while a handler whose run has failed goes on sending, within `most` of its end: two runs at a time cannot be told apart.
    pub fn goes_on(&self, item: ItemId, most: Duration) -> bool {
        let runs = self.lock();
        let Some(run) = runs.get(&item).filter(|run| run.state == State::Failed) else { return false };
        let sends = run.open_sends > 0 || run.last_send.is_some_and(|at| at.elapsed() < QUIET);
        sends && run.over_since.elapsed() < most
    }

    /// Notes that a send of a run begins; dropped when it has ended.
    pub(super) fn sends(self: &Arc<Self>, item: ItemId) -> Sending {
        if let Some(run) = self.lock().get_mut(&item) {
            run.sends += 1;
            run.open_sends += 1;
            run.last_send = Some(Instant::now());
        }
        Sending { runs: Arc::clone(self), item }
    }

    /// The item that was answered 2xx shortly before a plain send to its thread, with no send before that: told once.
    pub(super) fn answered_early(&self, channel: &str, thread: &ThreadId) -> Option<(ItemId, EventId)> {
        let mut runs = self.lock();
        let early = |run: &Run| {
            run.state == State::Delivered
                && run.in_lane
                && &*run.channel == channel
                && run.thread.as_ref() == Some(thread)
                && run.over_since.elapsed() < EARLY
        };
        let item = *runs.iter().find(|(_, run)| early(run))?.0;
        let run = runs.remove(&item)?;
        Some((item, run.events.first().copied().unwrap_or(EventId(item.0))))
    }

    /// Says which item a send belongs to; `None`: to none that could be told.
    pub(super) async fn find<R: Reads + Registers + ?Sized>(
        &self,
        store: &R,
        sought: &Sought<'_>,
    ) -> Result<Option<Belongs>, StoreError> {
        let here = self.here(sought.channel);
        if sought.event.is_none()
            && let Some(found) = here.iter().find(|run| run.in_lane && run.state == State::WithBot && run.is_of(&sought.thread))
        {
            return Ok(Some(found.belongs()));
        }
        let all = self.everywhere(store, here, sought).await?;
        if let Some(event) = sought.event {
            let named = all.iter().find(|run| run.events.contains(&event) && run.state != State::Delivered);
            let run = |known: &Known| sought.attempt.filter(|said| *said <= known.attempt).unwrap_or(known.attempt);
            return Ok(named.map(|known| Belongs { run: run(known), event, ..known.belongs() }));
        }
        if let Some(found) = among(&all, &sought.thread).or(self.by_other_name(store, &all, &sought.thread).await?) {
            return Ok(Some(found));
        }
        failed_elsewhere(store, sought).await
    }

    /// The attempt at an event that is with the bot now, or failed and comes again.
    pub(super) async fn newest<R: Reads + Registers + ?Sized>(
        &self,
        store: &R,
        sought: &Sought<'_>,
    ) -> Result<Option<u32>, StoreError> {
        let all = self.everywhere(store, self.here(sought.channel), sought).await?;
        let of_event = |known: &&Known| sought.event.is_some_and(|event| known.events.contains(&event));
        Ok(all.iter().filter(of_event).filter(|known| known.state != State::Delivered).map(|known| known.attempt).max())
    }

    fn here(&self, channel: &str) -> Vec<Known> {
        let runs = self.lock();
        let of_channel = runs.iter().filter(|(_, run)| &*run.channel == channel && run.over_since.elapsed() < FAILED);
        of_channel.map(|(item, run)| Known::here(*item, run)).collect()
    }

    /// What this process knows, with what others have leased.
    async fn everywhere<R: Reads + Registers + ?Sized>(
        &self,
        store: &R,
        mut here: Vec<Known>,
        sought: &Sought<'_>,
    ) -> Result<Vec<Known>, StoreError> {
        let mut elsewhere = Vec::new();
        for leased in store.with_bot(sought.channel).await? {
            // Of an item that is known here, only a later attempt is news.
            match here.iter().position(|known| known.item == leased.item) {
                Some(at) if here[at].attempt >= leased.attempt => continue,
                Some(at) => drop(here.swap_remove(at)),
                None => {}
            }
            elsewhere.push(Known::elsewhere(leased));
        }
        if elsewhere.len() <= KINDS_MAX {
            for known in &mut elsewhere {
                let event = known.events.first().copied().unwrap_or(EventId(known.item.0));
                known.in_lane = store.event(event).await?.is_none_or(|detail| detail.row.kind.waits_in_thread());
            }
        }
        here.extend(elsewhere);
        if let Some(polled) = sought.polled {
            given_before(store, sought.channel, polled, &mut here).await?;
        }
        Ok(here)
    }

    /// A person may be written to by another name than the one that her thread goes by.
    async fn by_other_name<R: Reads + ?Sized>(
        &self,
        store: &R,
        all: &[Known],
        thread: &ThreadId,
    ) -> Result<Option<Belongs>, StoreError> {
        if all.is_empty() {
            return Ok(None);
        }
        let Some(row) = store.thread(thread).await?.filter(|row| row.id != *thread) else { return Ok(None) };
        Ok(of_thread(all, &row.id).map(Known::belongs))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ItemId, Run>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A send of a run that is being worked on.
pub(super) struct Sending {
    runs: Arc<Runs>,
    item: ItemId,
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(run) = self.runs.lock().get_mut(&self.item) {
            run.open_sends = run.open_sends.saturating_sub(1);
            run.last_send = Some(Instant::now());
        }
    }
}

/// An item that is, or was, with the bot.
#[derive(Clone, Debug)]
struct Known {
    item: ItemId,
    events: Vec<EventId>,
    thread: Option<ThreadId>,
    in_lane: bool,
    attempt: u32,
    state: State,
}

impl Known {
    fn here(item: ItemId, run: &Run) -> Self {
        let Run { events, thread, in_lane, attempt, state, .. } = run.clone();
        Self { item, events, thread, in_lane, attempt, state }
    }

    fn elsewhere(leased: WithBot) -> Self {
        let WithBot { item, event, thread, attempt, .. } = leased;
        Self { item, events: vec![event], thread, in_lane: true, attempt, state: State::WithBot }
    }

    fn is_of(&self, thread: &ThreadId) -> bool {
        self.thread.as_ref() == Some(thread)
    }

    fn belongs(&self) -> Belongs {
        let event = self.events.first().copied().unwrap_or(EventId(self.item.0));
        Belongs { item: self.item, event, run: self.attempt, late: self.state == State::Failed }
    }
}

/// The thread's own item, first of all one that nothing overtakes; one that failed and comes again, if its handler goes on.
fn of_thread<'k>(all: &'k [Known], thread: &ThreadId) -> Option<&'k Known> {
    let with_bot = |known: &&Known| known.state == State::WithBot && known.is_of(thread);
    let failed = |known: &&Known| known.state == State::Failed && known.in_lane && known.is_of(thread);
    let mut own = all.iter().filter(with_bot);
    own.clone().find(|known| known.in_lane).or_else(|| all.iter().find(failed)).or_else(|| own.next())
}

/// The item of the thread, or the only one that is with the bot.
fn among(all: &[Known], thread: &ThreadId) -> Option<Belongs> {
    if let Some(known) = of_thread(all, thread) {
        return Some(known.belongs());
    }
    let with_bot: Vec<&Known> = all.iter().filter(|known| known.state == State::WithBot).collect();
    let lanes: Vec<&Known> = with_bot.iter().copied().filter(|known| known.in_lane).collect();
    match (lanes.as_slice(), with_bot.as_slice()) {
        ([only], _) | ([], [only]) => Some(only.belongs()),
        _ => None,
    }
}

/// A run of the thread that failed at another instance, and comes again.
async fn failed_elsewhere<R: Reads + Registers + ?Sized>(store: &R, sought: &Sought<'_>) -> Result<Option<Belongs>, StoreError> {
    let failed = store.amend(&failed_name(sought.channel, &sought.thread), None, None, None).await?;
    let Some(FailedRun { item, event, run }) = failed.as_deref().and_then(FailedRun::read) else { return Ok(None) };
    let comes_again = store.event(event).await?.is_some_and(|detail| detail.row.state == EventState::Waiting);
    Ok(comes_again.then_some(Belongs { item, event, run, late: true }))
}

/// What a bot that polls was given by another process and has not confirmed is with it still, though nobody may hold it any more: hapax was
/// started anew, and the bot has not polled since.
async fn given_before<R: Reads + Registers + ?Sized>(
    store: &R,
    channel: &str,
    polled: Polled,
    all: &mut Vec<Known>,
) -> Result<(), StoreError> {
    let book = store.amend(&polling::book_name(channel), None, None, None).await?;
    let Some(book) = book.as_deref().and_then(PollBook::read).filter(|book| book.process != polled.process) else {
        return Ok(());
    };
    let confirmed = book.confirmed.into_iter().filter(|_| polled.redoes);
    for item in book.given.into_iter().map(|given| given.item).chain(confirmed) {
        if all.iter().any(|known| known.item == item) {
            continue;
        }
        // Only a replay goes by another name than its event, and is not found so.
        let Some(detail) = store.event(EventId(item.0)).await? else { continue };
        let in_line = |state: &ItemState| matches!(state, ItemState::Waiting { .. } | ItemState::Leased { .. });
        let begun = detail.open.iter().find(|row| row.item == item && row.attempt > 0 && in_line(&row.state));
        let Some(attempt) = begun.map(|row| row.attempt) else { continue };
        let mut thread = detail.row.peer.map(|peer| ThreadId { account: detail.row.account, peer });
        if let Some(spelt) = &thread
            && let Some(row) = store.thread(spelt).await?
        {
            thread = Some(row.id);
        }
        if let Some(thread) = &thread
            && let Some(failed) = store.amend(&failed_name(channel, thread), None, None, None).await?
            && FailedRun::read(&failed).is_some_and(|failed| (failed.item, failed.run) == (item, attempt))
        {
            continue;
        }
        let (events, in_lane) = (vec![detail.row.id], detail.row.kind.waits_in_thread());
        all.push(Known { item, events, thread, in_lane, attempt, state: State::WithBot });
    }
    Ok(())
}

fn forget(runs: &mut HashMap<ItemId, Run>) {
    runs.retain(|_, run| match run.state {
        State::WithBot => true,
        State::Failed => run.over_since.elapsed() < FAILED,
        State::Delivered => run.over_since.elapsed() < EARLY,
    });
    if runs.len() > OVER_MAX {
        runs.retain(|_, run| run.state == State::WithBot);
    }
}
