//! `hapax shadow`: stands before a bot, passes everything on at once and unchanged, and counts what hapax would have done.
//!
//! The way of a request: `forward` sends it on while it comes and keeps a copy of its body, within limits; when it is whole, `watcher` reads
//! the copy in a task of its own. *Invariant:* forwarding waits for nothing that is read here, and fails for no reason of ours.

mod forward;
mod tee;
mod watcher;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hapax_domain::limits;
use hapax_providers::settings::Settings as ProviderSettings;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

pub use watcher::Counts;

use self::forward::{Forwarder, Side};
use self::watcher::{Seen, Watcher};
use crate::connections::accept_loop::{self, Allowance, Closing};
use crate::connections::peer::Proxies;
use crate::http_client::BadCalls;
use crate::telemetry::Telemetry;

/// What may wait to be read; more is passed on and not looked at.
const WAITING_MAX: usize = 1_000;

/// Copies of bodies in memory, all together.
const COPIES_MAX_BYTES: usize = 64 << 20;

/// What to watch, and where.
pub struct Plan {
    pub provider: ProviderSettings,
    /// False: whoever posts is believed, because there is no secret to check him by.
    pub checks: bool,
    /// How long a copy is recognised.
    pub window_ms: i64,
    /// Where webhooks go.
    pub to: String,
    /// Where sends go, if they are watched too.
    pub send_to: Option<String>,
}

/// A shadow that runs.
pub struct Shadow {
    counts: Arc<Mutex<Counts>>,
    eye: Eye,
    telemetry: Arc<Telemetry>,
    webhooks: Arc<Forwarder>,
    sends: Option<Arc<Forwarder>>,
}

/// Where what was seen goes, as long as somebody keeps up with looking.
#[derive(Clone)]
struct Eye {
    seen: mpsc::Sender<Seen>,
    /// What nobody looked at.
    missed: Arc<AtomicU64>,
    /// Bytes of copies that are held.
    held: Arc<AtomicUsize>,
    begun: Instant,
}

impl Shadow {
    /// Begins to look. Must be called within a runtime.
    pub fn new(plan: &Plan) -> Result<Self, BadCalls> {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let eye = Eye { seen: sender, missed: Arc::default(), held: Arc::default(), begun: Instant::now() };
        let counts = Arc::new(Mutex::new(Counts::default()));
        let webhooks = Arc::new(Forwarder::new(Side::Webhooks, &plan.to, eye.clone())?);
        let sends = plan.send_to.as_deref().map(|to| Forwarder::new(Side::Sends, to, eye.clone()).map(Arc::new)).transpose()?;
        tokio::spawn(look(Watcher::new(plan), receiver, Arc::clone(&counts), Arc::clone(&eye.held)));
        Ok(Self { counts, eye, telemetry: Arc::new(Telemetry::new()), webhooks, sends })
    }

    /// Serves until it is closed. `sends` is where the bot calls its provider.
    pub async fn serve(&self, webhooks: TcpListener, sends: Option<TcpListener>, closing: Closing) {
        let serve = |listener, forwarder: &Arc<Forwarder>| {
            let forwarder = Arc::clone(forwarder);
            let handle = move |request, _| Arc::clone(&forwarder).handle(request);
            accept_loop::serve(listener, allowance(), handle, Arc::clone(&self.telemetry), closing.clone())
        };
        let sending = async {
            if let (Some(listener), Some(forwarder)) = (sends, &self.sends) {
                serve(listener, forwarder).await;
            }
        };
        tokio::join!(serve(webhooks, &self.webhooks), sending);
    }

    /// Resolves when all that has passed until now is counted.
    pub async fn caught_up(&self) {
        let (counted, waiting) = oneshot::channel();
        if self.eye.seen.send(Seen::Waited(counted)).await.is_ok() {
            // It ends with an error when nobody looks any more.
            let _ = waiting.await;
        }
    }

    /// What was counted until now.
    pub fn counts(&self) -> Counts {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Counts { not_read: counts.not_read + self.eye.missed.load(Ordering::Relaxed), ..counts }
    }

    pub fn running_for(&self) -> Duration {
        self.eye.begun.elapsed()
    }
}

impl Eye {
    fn now_ms(&self) -> i64 {
        i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Never waits.
    fn show(&self, seen: Seen) {
        let bytes = seen.bytes();
        if self.seen.try_send(seen).is_err() {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Room for so many bytes more of a copy. They are given back when it was read.
    fn hold(&self, bytes: usize) -> bool {
        let fits = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes <= COPIES_MAX_BYTES;
        if !fits {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    fn let_go(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn missed(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads what was seen, one after the other.
async fn look(mut watcher: Watcher, mut seen: mpsc::Receiver<Seen>, counts: Arc<Mutex<Counts>>, held: Arc<AtomicUsize>) {
    while let Some(next) = seen.recv().await {
        let bytes = next.bytes();
        if catch_unwind(AssertUnwindSafe(|| watcher.see(next))).is_err() {
            watcher.counts.not_read += 1;
        }
        held.fetch_sub(bytes, Ordering::Relaxed);
        counts.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&watcher.counts);
    }
}

fn allowance() -> Allowance {
    Allowance {
        connections: limits::CONNECTIONS_MAX,
        proxies: Proxies::new(Vec::new()),
        header_bytes: limits::BOT_HEADER_MAX_BYTES,
        header_timeout: Duration::from_millis(limits::HEADER_TIMEOUT_MS),
        write_timeout: Duration::from_secs(300),
        stillness: Duration::from_secs(1),
    }
}
