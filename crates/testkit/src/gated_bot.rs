//! A bot that answers certain calls only when it is let, and counts how many of them it has at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use crate::fake_bot::{Call, FakeBot, Say};

pub struct GatedBot {
    pub fake: FakeBot,
    gate: Arc<Semaphore>,
    most: Arc<AtomicUsize>,
}

/// Counted while a call is with the bot; a connection that is lost ends it too.
struct Inside(Arc<AtomicUsize>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl GatedBot {
    /// Calls that are not `held` are answered at once.
    pub async fn start(held: fn(&Call) -> bool) -> Self {
        let (gate, most, inside) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (at_gate, counted) = (Arc::clone(&gate), Arc::clone(&most));
        let fake = FakeBot::start_slow(move |call| {
            let (gate, counted, inside) = (Arc::clone(&at_gate), Arc::clone(&counted), Arc::clone(&inside));
            Box::pin(async move {
                if held(&call) {
                    counted.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let _inside = Inside(inside);
                    gate.acquire().await.expect("it is never closed").forget();
                }
                Say::Status(200)
            })
        });
        Self { fake: fake.await.expect("a bot"), gate, most }
    }

    pub fn let_go(&self, calls: usize) {
        self.gate.add_permits(calls);
    }

    /// How many held calls it had at once since this was last asked.
    pub fn most_at_once(&self) -> usize {
        self.most.swap(0, Ordering::SeqCst)
    }
}
