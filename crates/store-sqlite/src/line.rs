//! The line in front of the writer. While it waits for a sync it is woken for several jobs at once: each wake-up costs as much as a job.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use hapax_store::StoreError;
use tokio::sync::{Semaphore, TryAcquireError};

use super::call::Job;

/// The writer's end. Without it nobody does what is in line.
pub(super) struct End(pub(super) Arc<Line>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.close();
        // Dropped, they say that the store is closed.
        self.0.take(&mut VecDeque::new());
    }
}

/// Jobs that the writer is woken for while nothing it does could be synced anyway.
pub(super) const SOME: usize = 4;

pub(super) struct Line {
    waiting: Mutex<Waiting>,
    call: Condvar,
    /// Closed with the line.
    places: Semaphore,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// Jobs that the writer sleeps for; zero while it does not sleep.
    wanted: usize,
    /// A sync has ended since the writer last slept.
    nudged: bool,
    closed: bool,
}

impl Line {
    pub(super) fn new(places: usize) -> Self {
        Self { waiting: Mutex::default(), call: Condvar::new(), places: Semaphore::new(places.clamp(1, Semaphore::MAX_PERMITS)) }
    }

    /// Waits for a place.
    pub(super) async fn put(&self, job: Job) -> Result<(), StoreError> {
        self.places.acquire().await.map_err(|_| StoreError::Closed)?.forget();
        self.push(job.placed())
    }

    pub(super) fn try_put(&self, job: Job) -> Result<(), StoreError> {
        match self.places.try_acquire() {
            Ok(place) => place.forget(),
            Err(TryAcquireError::NoPermits) => return Err(StoreError::Busy),
            Err(TryAcquireError::Closed) => return Err(StoreError::Closed),
        }
        self.push(job.placed())
    }

    /// Puts a job into the line even if there is no place; for the few that the writer needs itself.
    pub(super) fn push(&self, job: Job) -> Result<(), StoreError> {
        let mut waiting = self.waiting();
        if waiting.closed {
            return Err(StoreError::Closed);
        }
        waiting.jobs.push_back(job);
        if waiting.wanted > 0 && waiting.jobs.len() >= waiting.wanted {
            self.wake(waiting);
        }
        Ok(())
    }

    /// Tells the writer that a sync has ended.
    pub(super) fn nudge(&self) {
        let mut waiting = self.waiting();
        waiting.nudged = true;
        // Who sleeps for a job only is not concerned.
        if waiting.wanted > 1 {
            self.wake(waiting);
        }
    }

    /// What is in line is still done.
    pub(super) fn close(&self) {
        self.places.close();
        let mut waiting = self.waiting();
        waiting.closed = true;
        self.wake(waiting);
    }

    /// Takes all jobs; each has its place until its turn.
    pub(super) fn take(&self, jobs: &mut VecDeque<Job>) {
        jobs.append(&mut self.waiting().jobs);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting().jobs.len()
    }

    /// The turn of a job that was taken has come.
    pub(super) fn leaves(&self, job: &mut Job) {
        if std::mem::take(&mut job.has_place) {
            self.places.add_permits(1);
        }
    }

    /// Sleeps until there is a job; false when there will be none.
    pub(super) fn wait(&self) -> bool {
        let mut waiting = self.waiting();
        while waiting.jobs.is_empty() && !waiting.closed {
            waiting.wanted = 1;
            waiting = self.call.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.wanted = 0;
        !waiting.jobs.is_empty()
    }

    /// Sleeps until there are some jobs, or a sync has ended; not at all when one has ended since it last slept. False when there will be
    /// no more jobs.
    pub(super) fn wait_for_some(&self) -> bool {
        let mut waiting = self.waiting();
        while waiting.jobs.len() < SOME && !waiting.closed && !waiting.nudged {
            waiting.wanted = SOME;
            waiting = self.call.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        (waiting.wanted, waiting.nudged) = (0, false);
        !waiting.closed || !waiting.jobs.is_empty()
    }

    fn wake(&self, mut waiting: MutexGuard<'_, Waiting>) {
        waiting.wanted = 0;
        drop(waiting);
        self.call.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
