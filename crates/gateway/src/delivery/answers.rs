//! `mode = "proxy"`: the provider's request stays open until the target answered, and repeats get the stored answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hapax_domain::EventId;
use hapax_store::{Answer, EventState, InboxRow, ItemState, Store, StoreError};
use moka::sync::Cache;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How the present try to deliver an event ended, as far as the waiting provider is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Answered(Answer),
    /// The provider hears the target's own failure, so that it tries again by its own rules.
    Failed {
        status: u16,
    },
}

impl Verdict {
    fn bytes(&self) -> usize {
        match self {
            Verdict::Answered(answer) => ENTRY_BYTES + answer.body.len() + answer.content_type.as_ref().map_or(0, String::len),
            Verdict::Failed { .. } => ENTRY_BYTES,
        }
    }
}

/// Where delivery says how it went and open requests wait to hear it.
pub struct Answers {
    waiting: Mutex<HashMap<EventId, Waiters>>,
    /// A worker may be done before the request that brought the event has begun to wait.
    recent: Cache<EventId, Verdict>,
    closed: CancellationToken,
}

/// The open requests that wait for one event. Counted under the lock: other holders of the signal come and go without it.
#[derive(Default)]
struct Waiters {
    count: usize,
    notify: Arc<Notify>,
}

/// What recent answers may hold in memory, all together; the store has those that had to go.
const RECENT_BYTES: u64 = 64 << 20;
/// What an entry takes beside the answer's body.
const ENTRY_BYTES: usize = 256;

/// Another instance may do the work: then only the store knows.
const POLL: Duration = Duration::from_millis(500);

impl Answers {
    pub fn new() -> Self {
        let weigh = |_: &EventId, verdict: &Verdict| u32::try_from(verdict.bytes()).unwrap_or(u32::MAX);
        let kept = Cache::builder().weigher(weigh).max_capacity(RECENT_BYTES);
        let recent = kept.time_to_live(Duration::from_secs(30)).build();
        Self { waiting: Mutex::new(HashMap::new()), recent, closed: CancellationToken::new() }
    }

    /// Nothing more will be delivered here: whoever waits need not wait longer.
    pub fn close(&self) {
        self.closed.cancel();
    }

    pub fn announce(&self, event: EventId, verdict: Verdict) {
        self.recent.insert(event, verdict);
        if let Some(waiters) = self.lock().get(&event) {
            waiters.notify.notify_waiters();
        }
    }

    /// Waits for the verdict on an event; `None` when the deadline came first.
    ///
    /// The first request of an event hears of a try that ended before it began to wait; a repeat does not hear old failures: it waits for
    /// the try that is running, and where none is and one has failed, it hears that at once.
    pub(crate) async fn wait(
        &self,
        store: &dyn Store,
        event: EventId,
        first: bool,
        deadline: Instant,
    ) -> Result<Option<Verdict>, StoreError> {
        let place = self.take_place(event);
        let mut heard = first;
        let mut asked = first;
        loop {
            let mut notified = std::pin::pin!(place.notify.notified());
            notified.as_mut().enable();
            match self.recent.get(&event) {
                Some(verdict @ Verdict::Answered(_)) => return Ok(Some(verdict)),
                Some(verdict) if heard => return Ok(Some(verdict)),
                _ => {}
            }
            if !asked {
                let asking = tokio::time::timeout_at(deadline, ask(store, event)).await;
                let Ok(verdict) = asking else { return Ok(None) };
                if let Some(verdict) = verdict? {
                    return Ok(Some(verdict));
                }
            }
            tokio::select! {
                () = notified => heard = true,
                () = self.closed.cancelled() => return Ok(self.recent.get(&event)),
                () = tokio::time::sleep_until((Instant::now() + POLL).min(deadline)) => {
                    asked = false;
                    if Instant::now() >= deadline {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn take_place(&self, event: EventId) -> AnswerSource<'_> {
        let mut waiting = self.lock();
        let waiters = waiting.entry(event).or_default();
        waiters.count += 1;
        AnswerSource { answers: self, event, notify: Arc::clone(&waiters.notify) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EventId, Waiters>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Answers {
    fn default() -> Self {
        Self::new()
    }
}

/// One open request's place in the map; the last one to leave clears it.
struct AnswerSource<'a> {
    answers: &'a Answers,
    event: EventId,
    notify: Arc<Notify>,
}

impl Drop for AnswerSource<'_> {
    fn drop(&mut self) {
        let mut waiting = self.answers.lock();
        if let Some(waiters) = waiting.get_mut(&self.event) {
            waiters.count -= 1;
            if waiters.count == 0 {
                waiting.remove(&self.event);
            }
        }
    }
}

async fn ask(store: &dyn Store, event: EventId) -> Result<Option<Verdict>, StoreError> {
    if let Some(answer) = store.answer(event).await? {
        return Ok(Some(Verdict::Answered(answer)));
    }
    let detail = store.event(event).await?;
    match detail.as_ref().map(|detail| detail.row.state) {
        // It failed, and its next try may be long in coming.
        Some(EventState::Waiting) if detail.is_some_and(|detail| detail.open.iter().any(waits_after_failure)) => {
            Ok(Some(Verdict::Failed { status: 502 }))
        }
        Some(EventState::Waiting) => Ok(None),
        Some(EventState::Parked | EventState::Quarantined) => Ok(Some(Verdict::Failed { status: 502 })),
        Some(EventState::Delivered | EventState::Kept) | None => {
            // It may have been delivered between the two questions. Otherwise no answer was kept, or it was purged since: there is
            // nothing more to tell than that it was taken.
            let taken = || Answer { status: 200, content_type: None, body: bytes::Bytes::new() };
            Ok(Some(Verdict::Answered(store.answer(event).await?.unwrap_or_else(taken))))
        }
    }
}

fn waits_after_failure(item: &InboxRow) -> bool {
    item.replay.is_none() && item.why.is_some() && matches!(item.state, ItemState::Waiting { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn ten_thousand_large_answers_take_no_more_memory_than_they_may() {
        let answers = Answers::new();
        let body = bytes::Bytes::from(vec![0; 1 << 20]);
        for number in 0..10_000 {
            let answer = Answer { status: 200, content_type: None, body: body.clone() };
            answers.announce(EventId(Uuid::from_u128(number)), Verdict::Answered(answer));
        }
        answers.recent.run_pending_tasks();
        assert!(answers.recent.weighted_size() <= RECENT_BYTES, "{} bytes", answers.recent.weighted_size());
        assert!(answers.recent.entry_count() > 0);
    }

    /// Leaving and announcing cross each other here in every way that two processors find.
    #[test]
    fn whoever_leaves_last_clears_the_place() {
        let answers = Answers::new();
        let event = EventId(Uuid::from_u128(1));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        drop(answers.take_place(event));
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..2_000 {
                    answers.announce(event, Verdict::Failed { status: 502 });
                }
            });
        });
        assert!(answers.lock().is_empty());
    }
}
