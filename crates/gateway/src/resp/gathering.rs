//! What all connections ask of the store in one turn of the door's thread goes to it as one call: one trip to its writer and back for all of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapax_domain::claim::{ClaimAnswer, ClaimKey, ClaimOp};
use hapax_store::{Store, StoreError};
use tokio::sync::{Notify, oneshot};

use super::home::Home;
use super::session::{ASKS_MAX, READS_MAX, reads};

/// Bytes that one call carries, or those of one who asks for more by himself.
const CALL_BYTES: usize = 64 << 10;
/// Who asks for so much at once has a call of his own.
const OWN_CALL: usize = 8;

/// At least so many hear their answers before it is looked who has asked anew.
const TOLD_AT_ONCE: usize = 8;

type Asks = Vec<(ClaimKey, ClaimOp)>;
type Answers = Result<Vec<ClaimAnswer>, Arc<StoreError>>;

#[derive(Default)]
pub(super) struct Gathering {
    waiting: Mutex<Vec<Asked>>,
    /// The first one waits.
    begun: Notify,
    /// Held once more by each who waits for an answer.
    asking: Arc<()>,
}

/// What one connection asks, not more than goes into one call.
struct Asked {
    asks: Asks,
    tell: oneshot::Sender<Answers>,
}

impl Gathering {
    /// One answer each, in order.
    pub(super) async fn ask(&self, asks: Asks) -> Answers {
        let _asking = Arc::clone(&self.asking);
        let (tell, told) = oneshot::channel();
        self.wait_with(Asked { asks, tell });
        told.await.unwrap_or_else(|_| Err(Arc::new(StoreError::Closed)))
    }

    fn wait_with(&self, asked: Asked) {
        let mut waiting = self.waiting();
        if waiting.is_empty() {
            self.begun.notify_one();
        }
        waiting.push(asked);
    }

    /// Passes on what is asked, for as long as it is polled.
    pub(super) async fn pass_on(&self, store: &Arc<dyn Store>, home: &Home) {
        loop {
            // Whoever had come before the first one asked has its turn before this.
            self.begun.notified().await;
            let mut waiting = std::mem::take(&mut *self.waiting()).into_iter().peekable();
            while let Some(first) = waiting.next() {
                let (mut call, is_few) = (Size::of(&first.asks), first.asks.len() < OWN_CALL);
                let mut together = vec![first];
                while let Some(next) = waiting.next_if(|next| is_few && next.asks.len() < OWN_CALL && call.takes(&next.asks)) {
                    together.push(next);
                }
                tokio::spawn(call_for(Arc::clone(store), home.clone(), together, Arc::clone(&self.asking)));
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much a call has been filled.
struct Size {
    asks: usize,
    reads: usize,
    bytes: usize,
}

impl Size {
    fn of(asks: &Asks) -> Self {
        Self { asks: asks.len(), reads: reads(asks), bytes: asks.iter().map(|(_, op)| op.bytes()).sum() }
    }

    /// Adds these where there is room for them.
    fn takes(&mut self, asks: &Asks) -> bool {
        let more = Self::of(asks);
        let both = Self { asks: self.asks + more.asks, reads: self.reads + more.reads, bytes: self.bytes + more.bytes };
        let fits = both.asks <= ASKS_MAX && both.reads <= READS_MAX && both.bytes <= CALL_BYTES;
        if fits {
            *self = both;
        }
        fits
    }
}

async fn call_for(store: Arc<dyn Store>, home: Home, mut together: Vec<Asked>, asking: Arc<()>) {
    if let [_] = together[..]
        && let Some(Asked { asks, tell }) = together.pop()
    {
        let _ = tell.send(home.run(store.claims(asks)).await.map_err(Arc::new));
        return;
    }
    let asks = together.iter().flat_map(|asked| asked.asks.iter().cloned()).collect();
    match home.run(store.claims(asks)).await {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            // Half of all that wait: told all at once they would ask anew at once, and the store would have nothing to do while they are
            // answered; told in small parts they would ask in small parts, and each call costs a sync.
            let at_once = (Arc::strong_count(&asking) / 2).max(TOLD_AT_ONCE);
            for (place, Asked { asks, tell }) in together.into_iter().enumerate() {
                if place > 0 && place % at_once == 0 {
                    tokio::task::yield_now().await;
                }
                let _ = tell.send(Ok(answers.by_ref().take(asks.len()).collect()));
            }
        }
        // What is refused for the sake of one need not be for the others': nothing of it was done.
        Err(StoreError::Full { .. } | StoreError::Refused(_)) => {
            for Asked { asks, tell } in together {
                let _ = tell.send(home.run(store.claims(asks)).await.map_err(Arc::new));
            }
        }
        Err(error) => {
            let error = Arc::new(error);
            together.into_iter().for_each(|asked| drop(asked.tell.send(Err(Arc::clone(&error)))));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::future::{BoxFuture, join_all};
    use hapax_domain::claim::{Condition, Ends};
    use hapax_store::clock::SystemClock;
    use hapax_store::memory::MemoryStore;
    use hapax_store::prelude::*;
    use hapax_store::{Moving, Promise, StoreWrapper};

    use super::*;

    /// A store that notes how much each call asks, and takes nothing new under a key that says so.
    struct Noting {
        store: MemoryStore,
        calls: Mutex<Vec<usize>>,
    }

    impl StoreWrapper for Noting {
        async fn reach(&self) -> Result<&dyn Store, StoreError> {
            Ok(&self.store)
        }

        fn wait(&self) -> BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }

        fn promise(&self) -> Promise {
            Promise::Full
        }

        fn limit_outbox(&self, _: usize) {}

        fn limit_claims(&self, _: usize) {}

        fn moving(&self) -> Result<&dyn Moving, StoreError> {
            self.store.moving()
        }

        async fn claims(&self, ops: Asks) -> Result<Vec<ClaimAnswer>, StoreError> {
            self.calls.lock().expect("no panic").push(ops.len());
            if ops.iter().any(|(key, _)| key.key == "no room") {
                return Err(StoreError::Full { floor_mb: 1 });
            }
            self.store.claims(ops).await
        }
    }

    fn set(key: &str, bytes: usize) -> (ClaimKey, ClaimOp) {
        let value = Bytes::from(vec![b'v'; bytes]);
        let op = ClaimOp::Set { value, condition: Condition::IfAbsent, ends: Ends::In(1_000), tell: false };
        (ClaimKey::new("redis", key), op)
    }

    fn get(key: &str) -> (ClaimKey, ClaimOp) {
        (ClaimKey::new("redis", key), ClaimOp::Get)
    }

    /// What each was answered, and how much each call of the store asked.
    async fn gathered(asked: Vec<Asks>) -> (Vec<Answers>, Vec<usize>) {
        let noting = Arc::new(Noting { store: MemoryStore::new(Arc::new(SystemClock::new())), calls: Mutex::default() });
        let (store, gathering) = (Arc::clone(&noting) as Arc<dyn Store>, Arc::<Gathering>::default());
        let passing_on = tokio::spawn({
            let gathering = Arc::clone(&gathering);
            async move { gathering.pass_on(&store, &Home::here()).await }
        });
        let answers = join_all(asked.into_iter().map(|asks| gathering.ask(asks))).await;
        passing_on.abort();
        let calls = noting.calls.lock().expect("no panic").clone();
        (answers, calls)
    }

    #[tokio::test]
    async fn what_is_asked_in_one_turn_is_one_call_and_everybody_gets_his_own_answers() {
        let asked = vec![vec![set("a", 1)], vec![set("a", 1), get("a")], vec![get("b")]];
        let (answers, calls) = gathered(asked).await;
        assert_eq!(calls, [4]);
        let [Ok(first), Ok(second), Ok(third)] = &answers[..] else { panic!("{answers:?}") };
        assert!(matches!(first[..], [ClaimAnswer::Set { .. }]), "{first:?}");
        assert!(matches!(second[..], [ClaimAnswer::NotSet { .. }, ClaimAnswer::Value(Some(_))]), "{second:?}");
        assert_eq!(third[..], [ClaimAnswer::Value(None)]);
    }

    #[tokio::test]
    async fn a_call_has_bounds_and_who_asks_for_much_has_one_of_his_own() {
        let few = |n: usize| vec![set(&n.to_string(), 1)];
        let (_, calls) = gathered((0..ASKS_MAX + 3).map(few).collect()).await;
        assert_eq!(calls, [ASKS_MAX, 3]);
        let (_, calls) = gathered((0..READS_MAX + 3).map(|_| vec![get("a")]).collect()).await;
        assert_eq!(calls, [READS_MAX, 3]);
        let (_, calls) = gathered(vec![few(1), vec![set("long", CALL_BYTES)], few(2), few(3)]).await;
        assert_eq!(calls, [1, 1, 2]);
        let (_, calls) = gathered(vec![few(1), (0..OWN_CALL).map(|_| get("a")).collect(), few(2), few(3)]).await;
        assert_eq!(calls, [1, OWN_CALL, 2]);
    }

    #[tokio::test]
    async fn what_is_refused_to_one_is_not_refused_to_the_others() {
        let (answers, calls) = gathered(vec![vec![set("a", 1)], vec![set("no room", 1)], vec![get("a")]]).await;
        assert_eq!(calls, [3, 1, 1, 1]);
        assert!(matches!(&answers[0], Ok(answers) if matches!(answers[..], [ClaimAnswer::Set { .. }])));
        assert!(matches!(&answers[1], Err(error) if matches!(**error, StoreError::Full { .. })));
        assert!(matches!(&answers[2], Ok(answers) if matches!(answers[..], [ClaimAnswer::Value(Some(_))])));
    }
}
