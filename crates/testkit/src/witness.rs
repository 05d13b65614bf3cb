//! A bot that notices when it is asked about a thread that it is still busy with.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::fake_bot::{Call, FakeBot, Say};

pub struct Witness {
    pub bot: FakeBot,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    busy: Mutex<HashSet<String>>,
    overlaps: Mutex<Vec<String>>,
}

/// A thread that the bot works on, until dropped: also when the caller hangs up.
struct Busy {
    thread: String,
    seen: Arc<Seen>,
}

impl Witness {
    /// Answers each call as `script` says; it is busy for as long as it is late.
    pub async fn start(script: impl Fn(&Call) -> Say + Send + Sync + 'static) -> io::Result<Self> {
        Self::start_late(move |call| match script(call) {
            Say::Late(wait, status) => (wait, Say::Status(status)),
            say => (Duration::ZERO, say),
        })
        .await
    }

    /// Answers each call so much later; it is busy meanwhile.
    pub async fn start_late(script: impl Fn(&Call) -> (Duration, Say) + Send + Sync + 'static) -> io::Result<Self> {
        let seen = Arc::new(Seen::default());
        let noting = Arc::clone(&seen);
        let bot = FakeBot::start_slow(move |call| {
            let busy = Busy::begin(&noting, &call);
            let (wait, say) = script(&call);
            Box::pin(async move {
                let _busy = busy;
                tokio::time::sleep(wait).await;
                say
            })
        })
        .await?;
        Ok(Self { bot, seen })
    }

    /// The threads of which a second call came before the first had ended.
    pub fn overlaps(&self) -> Vec<String> {
        lock(&self.seen.overlaps).clone()
    }
}

impl Busy {
    /// The first call about a thread keeps it busy; a second one is noted.
    fn begin(seen: &Arc<Seen>, call: &Call) -> Option<Self> {
        let thread = call.header("hapax-thread").to_owned();
        if lock(&seen.busy).insert(thread.clone()) {
            return Some(Self { thread, seen: Arc::clone(seen) });
        }
        lock(&seen.overlaps).push(thread);
        None
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        lock(&self.seen.busy).remove(&self.thread);
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
