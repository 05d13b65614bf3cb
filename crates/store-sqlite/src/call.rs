//! A call of the contract on its way through the writer: what is to be done, what came of it and who waits for that, in one piece of memory.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use hapax_store::StoreError;

use super::pending::Reach;
use super::writer::{StepError, Writer};

/// Work for the writer.
pub(super) struct Job {
    call: Finish,
    /// It has a transaction to itself: what is large must not hold up the commit of others.
    pub(super) alone: bool,
    /// What has to be written before it.
    pub(super) reach: Reach,
    /// It takes a place in the line.
    pub(super) has_place: bool,
}

/// A job that was done, or not, and whose caller has not heard of it. Dropped, it says that the store is closed.
pub(super) struct Finish(Option<Arc<dyn Step>>);

/// The caller's end. One that is dropped before its turn has come takes back what it brought, unless it is patient.
pub(super) struct Answer<T, S> {
    call: Arc<Call<T, S>>,
    patient: bool,
}

struct Call<T, S> {
    what: &'static str,
    state: Mutex<State<T, S>>,
    caller: AtomicWaker,
}

enum State<T, S> {
    /// Its turn has not come.
    Waits(S),
    /// Being done, or the caller has given up.
    Away,
    /// Not to be told before it is on disk.
    Done(Result<T, StepError>),
    /// Nothing, once the caller has it.
    Told(Option<Result<T, StoreError>>),
}

trait Step: Send + Sync {
    fn run(&self, writer: &mut Writer);
    fn tell(&self, failed: Option<&str>);
    fn close(&self);
}

/// Makes a job of a step; its caller hears of it after the sync.
pub(super) fn job<T, S>(what: &'static str, patient: bool, step: S) -> (Job, Answer<T, S>)
where
    T: Send + 'static,
    S: FnOnce(&mut Writer) -> Result<T, StepError> + Send + 'static,
{
    let call = Arc::new(Call { what, state: Mutex::new(State::Waits(step)), caller: AtomicWaker::new() });
    (
        Job { call: Finish(Some(Arc::clone(&call) as Arc<dyn Step>)), alone: false, reach: Reach::All, has_place: false },
        Answer { call, patient },
    )
}

impl Job {
    pub(super) fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    pub(super) fn reaching(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    pub(super) fn placed(self) -> Self {
        Self { has_place: true, ..self }
    }

    pub(super) fn run(self, writer: &mut Writer) -> Finish {
        self.call.0.iter().for_each(|step| step.run(writer));
        self.call
    }
}

impl Finish {
    pub(super) fn tell(mut self, failed: Option<&str>) {
        self.0.take().inspect(|step| step.tell(failed));
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        self.0.take().inspect(|step| step.close());
    }
}

impl<T, S> Call<T, S> {
    fn state(&self) -> MutexGuard<'_, State<T, S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self, outcome: Result<T, StoreError>) {
        *self.state() = State::Told(Some(outcome));
        self.caller.wake();
    }
}

impl<T: Send, S: FnOnce(&mut Writer) -> Result<T, StepError> + Send> Step for Call<T, S> {
    fn run(&self, writer: &mut Writer) {
        let State::Waits(step) = std::mem::replace(&mut *self.state(), State::Away) else { return };
        let done = writer.run_step(step);
        *self.state() = State::Done(done);
    }

    fn tell(&self, failed: Option<&str>) {
        let what = self.what;
        let State::Done(done) = std::mem::replace(&mut *self.state(), State::Away) else { return };
        self.told(match (failed, done) {
            (_, Err(StepError::Refused(refused))) => Err(refused),
            (None, Ok(value)) => Ok(value),
            (Some(why), _) => Err(StoreError::Failed { what, retryable: true, source: why.to_owned().into() }),
            (None, Err(StepError::Skipped)) => Err(StoreError::Busy),
            (None, Err(StepError::Sql(error))) => Err(StoreError::Failed { what, retryable: true, source: error.into() }),
        });
    }

    fn close(&self) {
        self.told(Err(StoreError::Closed));
    }
}

impl<T, S> Future for Answer<T, S> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.call.caller.register(context.waker());
        let mut state = self.call.state();
        if let State::Told(outcome) = &mut *state {
            return outcome.take().map_or(Poll::Pending, Poll::Ready);
        }
        Poll::Pending
    }
}

impl<T, S> Drop for Answer<T, S> {
    fn drop(&mut self) {
        if self.patient {
            return;
        }
        let mut state = self.call.state();
        if matches!(*state, State::Waits(_)) {
            *state = State::Away;
        }
    }
}
