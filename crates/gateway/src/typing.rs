//! Shows a person that somebody is writing, while the handler works on what he said.
//!
//! Best effort, all of it: nothing is charged, recorded or tried again, and no delivery waits for it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hapax_domain::{Kind, ThreadId};
use hapax_providers::sending::{CallBody, Heard, Sending};
use hapax_store::{InboxLease, Store, in_time};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::channels::Channels;
use crate::http_client::{self, BadCalls, Base, Client, Content, Idle, Request};

/// A handler that is done within this time shows nothing.
const BEGINS_AFTER: Duration = Duration::from_secs(1);

/// What came longer ago than this is not answered now because somebody sits there and writes.
const OLD_MS: i64 = 15 * 60_000;

/// Calls of one channel at once; who finds no place leaves a beat out.
const CALLS_MAX: usize = 16;

/// How long the provider may take, and the store.
const PATIENCE: Duration = Duration::from_secs(5);

const IDLE: Idle = Idle { most: CALLS_MAX, time: Duration::from_secs(10) };

/// For the channels with `typing = true`.
pub struct Typing {
    outlets: HashMap<Arc<str>, Outlet>,
    store: Arc<dyn Store>,
    at_work: Arc<Mutex<HashMap<Thread, CancellationToken>>>,
}

struct Outlet {
    api: Base,
    adapter: Arc<dyn Sending>,
    calls: Semaphore,
}

type Thread = (Arc<str>, ThreadId);

/// A handler is at work for this thread, until dropped.
struct AtWork<'t> {
    typing: &'t Typing,
    thread: Thread,
    /// Cancelled when something was said in the thread.
    said: CancellationToken,
}

impl Typing {
    pub fn new(channels: &Channels, store: Arc<dyn Store>) -> Result<Self, BadCalls> {
        let (mut outlets, client) = (HashMap::new(), Client::new(IDLE)?);
        for channel in channels.iter().filter(|channel| channel.settings.typing) {
            let (Some(send), Some(adapter)) = (&channel.settings.send, &channel.sending) else { continue };
            let (name, adapter) = (Arc::clone(channel.name()), Arc::clone(adapter));
            let api = client.base("api_base", &name, &send.api_base)?;
            outlets.insert(name, Outlet { api, adapter, calls: Semaphore::new(CALLS_MAX) });
        }
        Ok(Self { outlets, store, at_work: Arc::default() })
    }

    /// What is said in a thread is heard by whoever works for it, also under an earlier config.
    #[must_use]
    pub fn beside(self, other: &Typing) -> Self {
        Self { at_work: Arc::clone(&other.at_work), ..self }
    }

    /// Shows it as long as this is waited for, or until something is said in the thread.
    pub(crate) async fn show(&self, lease: &InboxLease, now_ms: i64) -> Infallible {
        self.show_while(lease, now_ms, BEGINS_AFTER).await;
        pending().await
    }

    async fn show_while(&self, lease: &InboxLease, now_ms: i64, begins_after: Duration) -> Option<Infallible> {
        let outlet = self.outlets.get(&lease.channel)?;
        // A replay is wanted by an operator, not by whoever wrote it then.
        if lease.replay.is_some() || now_ms - lease.received_ms > OLD_MS {
            return None;
        }
        let event = lease.events.iter().rfind(|event| matches!(event.kind, Kind::Message | Kind::Action))?;
        let at_work = self.begin((Arc::clone(&lease.channel), event.thread.clone()?));
        at_work.for_a_while(begins_after).await?;
        let detail = in_time("looking up what was said", PATIENCE, self.store.event(event.id)).await.ok()??;
        if detail.row.echo {
            return None;
        }
        let (_, ThreadId { account, peer }) = &at_work.thread;
        let heard = Heard { account, peer, provider_id: &detail.row.provider_id };
        let every = Duration::from_millis(outlet.adapter.typing_every_ms());
        loop {
            self.beat(outlet, &lease.channel, &heard).await?;
            at_work.for_a_while(every).await?;
        }
    }

    /// Something goes out to this thread: whoever waited for it sees that, and no longer that it is being written.
    pub(crate) fn said(&self, channel: &Arc<str>, account: &str, peer: &str) {
        if self.outlets.contains_key(channel) {
            let thread = ThreadId { account: account.to_owned(), peer: peer.to_owned() };
            if let Some(said) = self.lock().get(&(Arc::clone(channel), thread)) {
                said.cancel();
            }
        }
    }

    /// Shows it once, or leaves it out. `None`: it is of no use to go on.
    async fn beat(&self, outlet: &Outlet, channel: &str, heard: &Heard<'_>) -> Option<()> {
        let Ok(_place) = outlet.calls.try_acquire() else { return Some(()) };
        let paused = in_time("asking for paused accounts", PATIENCE, self.store.paused_accounts()).await.ok()?;
        if paused.iter().any(|paused| paused.channel == channel && paused.account == heard.account) {
            return None;
        }
        let call = outlet.adapter.typing(heard)?;
        let to = outlet.api.at(&call.path)?;
        let CallBody::Whole(body) = call.body else { return None };
        let headers = call.headers.into_iter().collect();
        let request = Request { to, method: call.method, headers, body: http_client::whole(body) };
        let deadline = Instant::now() + PATIENCE;
        let response = http_client::call(request, deadline).await.ok()?;
        let status = response.status();
        let whole = matches!(http_client::read(response, deadline).await, Content::Whole(_));
        tracing::debug!(channel, status = status.as_u16(), "showed that somebody is writing");
        (whole && status.is_success()).then_some(())
    }

    fn begin(&self, thread: Thread) -> AtWork<'_> {
        let said = CancellationToken::new();
        self.lock().insert(thread.clone(), said.clone());
        AtWork { typing: self, thread, said }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Thread, CancellationToken>> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AtWork<'_> {
    /// Waits. `None` when something was said meanwhile, or before.
    async fn for_a_while(&self, time: Duration) -> Option<()> {
        tokio::select! {
            biased;
            () = self.said.cancelled() => None,
            () = tokio::time::sleep(time) => Some(()),
        }
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.typing.lock().remove(&self.thread);
    }
}
