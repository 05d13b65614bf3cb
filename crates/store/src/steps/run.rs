//! Running a step: in a transaction, again when somebody else was in the way, and several calls at once when they wait together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::{Notify, mpsc, oneshot};

use super::engine::{Engine, First, Pool, Tx, TxError};
use crate::StoreError;
use crate::offer::{Offered, offer};

/// One whole atomic step, decided from what it holds: it can be run again from the start.
#[async_trait]
pub(super) trait Step: Send + Sync {
    type Out: Send;
    const POOL: Pool;

    /// The most new numbers it may need.
    fn numbers(&self) -> usize;

    /// What it is sure to look at.
    fn first(&self) -> First {
        First::default()
    }

    /// Loads, decides and saves; the runner commits.
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, TxError>;
}

/// So often, and so long, another instance may be in the way before the caller is told.
const TRIES: u32 = 12;
const TRYING: Duration = Duration::from_secs(5);

pub(super) async fn run<E: Engine, S: Step>(engine: &E, step: &S) -> Result<S::Out, StoreError> {
    let begun = Instant::now();
    let mut last = String::new();
    for try_number in (0..TRIES).take_while(|_| begun.elapsed() < TRYING) {
        if try_number > 0 {
            // A little longer each time, and never in step with the other instance.
            let most = 1 << try_number.min(7);
            tokio::time::sleep(Duration::from_millis(rand::random_range(0..most))).await;
        }
        match once(engine, step).await {
            Ok(out) => return Ok(out),
            Err(TxError::Failed(error)) => return Err(error),
            Err(TxError::Conflict(why)) => last = why,
        }
    }
    Err(StoreError::Failed { what: "other instances were in the way", retryable: true, source: last.into() })
}

async fn once<E: Engine, S: Step>(engine: &E, step: &S) -> Result<S::Out, TxError> {
    let mut tx = engine.begin_for(S::POOL, step.numbers(), &step.first()).await?;
    let out = step.run(&mut tx).await?;
    tx.commit().await?;
    Ok(out)
}

/// Calls that wait together share a transaction, and so a round trip and an fsync.
pub(super) struct Batcher<C, R> {
    calls: mpsc::Sender<Call<Offered<C>, R>>,
}

struct Call<C, R> {
    what: C,
    /// In events, replies, and eight kilobytes of body.
    weight: usize,
    answer: oneshot::Sender<Result<R, StoreError>>,
}

impl<C, R> Call<Offered<C>, R> {
    /// Nothing, when the caller has given up.
    fn taken(self) -> Option<Call<C, R>> {
        let what = self.what.take()?;
        Some(Call { what, weight: self.weight, answer: self.answer })
    }
}

/// Calls that may wait; beyond it the caller is told that the store is busy.
const QUEUE: usize = 16_384;
/// The most that share a transaction, in calls, and in what they weigh: events, replies, and eight kilobytes of body each count one.
const BATCH_CALLS: usize = 256;
const BATCH_WEIGHT: usize = 1_000;
/// So long a batch that is smaller than those under way waits to grow, at most.
const GATHER: Duration = Duration::from_millis(5);

/// What a batch of calls is made into. Two calls that may not share a transaction are told apart by `apart`.
#[async_trait]
pub(super) trait Batch<E: Engine>: Send + Sync + 'static {
    type Call: Clone + Send + Sync + 'static;
    type Out: Send + 'static;

    /// Calls with the same name must not be in one batch. `None`: they all may.
    fn apart(call: &Self::Call) -> Option<[u8; 32]>;

    async fn perform(engine: &E, calls: Vec<Self::Call>) -> Result<Vec<Self::Out>, StoreError>;
}

impl<C: Clone + Send + Sync + 'static, R: Send + 'static> Batcher<C, R> {
    /// Starts as many takers as may be in flight; they end when the last sender is gone.
    pub(super) fn start<E: Engine, B: Batch<E, Call = C, Out = R>>(engine: &Arc<E>, in_flight: usize) -> Self {
        let (calls, taken) = mpsc::channel(QUEUE);
        let taken = Arc::new(tokio::sync::Mutex::new(Taken { calls: taken, left: Vec::new() }));
        let under_way = Arc::new(UnderWay::default());
        for _ in 0..in_flight.max(1) {
            let (engine, taken, under_way) = (Arc::clone(engine), Arc::clone(&taken), Arc::clone(&under_way));
            tokio::spawn(async move {
                loop {
                    let Some(calls) = taken.lock().await.gather(B::apart, &under_way).await else { return };
                    let many = calls.len();
                    answer::<E, B>(&engine, calls).await;
                    under_way.end(many);
                }
            });
        }
        Self { calls }
    }

    pub(super) async fn call(&self, what: C, weight: usize) -> Result<R, StoreError> {
        let (answer, answered) = oneshot::channel();
        let (_caller, what) = offer(what);
        let sent = self.calls.try_send(Call { what, weight, answer });
        sent.map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(_) => StoreError::Closed,
        })?;
        answered.await.unwrap_or(Err(StoreError::Closed))
    }
}

/// The calls of the batches that were begun and have not ended.
#[derive(Default)]
struct UnderWay {
    calls: AtomicUsize,
    batches: AtomicUsize,
    ended: Notify,
}

impl UnderWay {
    fn end(&self, calls: usize) {
        self.calls.fetch_sub(calls, Ordering::AcqRel);
        self.batches.fetch_sub(1, Ordering::AcqRel);
        self.ended.notify_one();
    }
}

/// The receiving end, shared by the takers.
struct Taken<C, R> {
    calls: mpsc::Receiver<Call<Offered<C>, R>>,
    /// Those that could not go with the last batch.
    left: Vec<Call<C, R>>,
}

impl<C, R> Taken<C, R> {
    /// Waits for a call, and takes along all that wait with it. `None`: there will be no more.
    async fn gather(&mut self, apart: fn(&C) -> Option<[u8; 32]>, under_way: &UnderWay) -> Option<Vec<Call<C, R>>> {
        let mut waiting = std::mem::take(&mut self.left);
        loop {
            // Whoever gave up was told so: after an outage the living must not wait behind the dead.
            waiting.retain(|call| !call.answer.is_closed());
            if !waiting.is_empty() {
                break;
            }
            waiting.extend(self.calls.recv().await?.taken());
        }
        // A transaction costs much, and a call in it little: beside larger ones a small one is not worth it, unless they take long.
        let _ = tokio::time::timeout(GATHER, self.grow(&mut waiting, under_way)).await;
        let (mut batch, mut weight) = (Vec::with_capacity(waiting.len()), 0);
        let mut names = std::collections::HashSet::new();
        for call in waiting {
            let fits = batch.is_empty() || weight + call.weight <= BATCH_WEIGHT;
            if fits && apart(&call.what).is_none_or(|name| names.insert(name)) {
                weight += call.weight;
                batch.push(call);
            } else {
                self.left.push(call);
            }
        }
        under_way.calls.fetch_add(batch.len(), Ordering::AcqRel);
        under_way.batches.fetch_add(1, Ordering::AcqRel);
        Some(batch)
    }

    /// Takes along what waits, until it is as much as a batch that is under way has, on average.
    async fn grow(&mut self, waiting: &mut Vec<Call<C, R>>, under_way: &UnderWay) {
        loop {
            while waiting.len() < BATCH_CALLS
                && let Ok(call) = self.calls.try_recv()
            {
                waiting.extend(call.taken());
            }
            let calls = under_way.calls.load(Ordering::Acquire);
            let enough = calls / under_way.batches.load(Ordering::Acquire).max(1);
            if waiting.len() >= enough.min(BATCH_CALLS) {
                return;
            }
            tokio::select! {
                // One that ended before it was waited for is told of too.
                () = under_way.ended.notified() => {}
                call = self.calls.recv() => match call {
                    Some(call) => waiting.extend(call.taken()),
                    None => return,
                },
            }
        }
    }
}

async fn answer<E: Engine, B: Batch<E>>(engine: &E, calls: Vec<Call<B::Call, B::Out>>) {
    let whats = calls.iter().map(|call| call.what.clone()).collect();
    match B::perform(engine, whats).await {
        Ok(answers) => {
            for (call, answer) in calls.into_iter().zip(answers) {
                // Whoever asked may have given up meanwhile.
                let _ = call.answer.send(Ok(answer));
            }
        }
        // One call that the store cannot take must not fail the others.
        Err(error) if !error.retryable() && calls.len() > 1 => {
            for call in calls {
                let alone = B::perform(engine, vec![call.what]).await;
                let one = alone.and_then(|mut answers| answers.pop().ok_or(StoreError::Closed));
                let _ = call.answer.send(one);
            }
        }
        Err(error) => {
            let shared = SharedError { retryable: error.retryable(), text: error.to_string() };
            for call in calls {
                let _ = call.answer.send(Err(shared.to_error()));
            }
        }
    }
}

/// An error that many calls get a copy of.
struct SharedError {
    retryable: bool,
    text: String,
}

impl SharedError {
    fn to_error(&self) -> StoreError {
        match self.retryable {
            true => StoreError::Failed { what: "the store", retryable: true, source: self.text.clone().into() },
            false => StoreError::Refused(self.text.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Calls = (mpsc::Sender<Call<Offered<u8>, ()>>, Taken<u8, ()>);

    fn calls() -> Calls {
        let (calls, taken) = mpsc::channel(QUEUE);
        (calls, Taken { calls: taken, left: Vec::new() })
    }

    /// Sends so many calls; they live as long as what is returned.
    fn send(calls: &mpsc::Sender<Call<Offered<u8>, ()>>, many: u8) -> Vec<impl Sized + use<>> {
        let one = |what| {
            let (answer, answered) = oneshot::channel();
            let (caller, what) = offer(what);
            calls.try_send(Call { what, weight: 1, answer }).map_err(|_| "full").expect("there is room");
            (caller, answered)
        };
        (0..many).map(one).collect()
    }

    #[tokio::test]
    async fn a_batch_beside_a_larger_one_waits_for_more_calls_or_its_end_and_not_for_long() {
        let (sender, mut taken) = calls();
        let under_way = UnderWay::default();
        let callers = send(&sender, 3);
        assert_eq!(taken.gather(|_| None, &under_way).await.map(|calls| calls.len()), Some(3), "nothing is under way");

        let more = send(&sender, 2);
        let (batch, most) = tokio::join!(taken.gather(|_| None, &under_way), async { send(&sender, 1) });
        assert_eq!(batch.map(|calls| calls.len()), Some(3), "as many as the other has");

        let last = send(&sender, 1);
        let (batch, late) = tokio::join!(taken.gather(|_| None, &under_way), async {
            under_way.end(3);
            under_way.end(3);
            send(&sender, 1)
        });
        assert_eq!(batch.map(|calls| calls.len()), Some(2), "the others have ended");

        let slow = send(&sender, 1);
        let begun = Instant::now();
        assert_eq!(taken.gather(|_| None, &under_way).await.map(|calls| calls.len()), Some(1));
        assert!(begun.elapsed() >= GATHER, "two are under way, and stay so");
        drop((callers, more, most, last, late, slow));
    }
}
