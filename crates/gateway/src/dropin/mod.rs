//! Drop-in sending: the provider's own API, served for bots that were given hapax's address in place of the provider's.
//!
//! ```text
//!  bot ──its provider's call──▶ admission: whose token is it ─▶ effects: which message is it ─▶ store.submit ─▶ sender
//!   │                             (by the head alone)       (the book of the run)              │ waits
//!   ◀── the provider's own answer, byte for byte, or its "slow down" ◀──────────────────────────┘
//!   ◀── everything else streams through, both ways ──▶ provider
//! ```
//!
//! *Invariant:* no byte of a body is read before the token is believed. *Invariant:* which message a send is stands in the store before it is
//! submitted, and the provider's answer stands there before the message counts as sent.

mod admission;
mod books;
mod effects;
mod outcomes;
mod polling;
pub(crate) mod redo;
mod reply;
mod runs;
mod through;
mod uploads;
mod webhooks;
mod written;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hapax_providers::dropin::{Refusal, What};
use hapax_store::clock::Clock;
use hapax_store::{InboxLease, Outcome, PausedAccount, Store};
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

pub use books::Books;
pub use outcomes::Outcomes;
pub use polling::Polling;
pub(crate) use polling::UNWANTED;
pub use runs::{RunEnd, Runs};
pub use written::{KeptAnswer, REQUEST_ID, answer_name, refusal_name};

use self::admission::{Admitted, Served};
use self::written::FailedRun;
use crate::api::Auth;
use crate::channels::Channels;
use crate::connections::places::Standing;
use crate::http_client::{BadCalls, Client};
use crate::telemetry::Telemetry;

/// What bots are served with. Made once; shared by the listeners.
pub struct DropIns {
    served: Vec<Arc<Served>>,
    auth: Arc<Auth>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    telemetry: Arc<Telemetry>,
    client: Client,
    state: DropInState,
    polling: Arc<Polling>,
    /// How long a caller may lie still while it sends a body.
    body_timeout: Duration,
    /// Places for bodies that are large and have to be read whole.
    large: Semaphore,
    /// Accounts that rest, and when that was last looked up.
    paused: Mutex<Option<(Instant, Vec<PausedAccount>)>>,
}

/// What delivery, the sender and the listeners for bots know in common.
#[derive(Clone)]
pub struct DropInState {
    pub runs: Arc<Runs>,
    pub books: Arc<Books>,
    pub outcomes: Arc<Outcomes>,
}

impl DropInState {
    /// `process` is drawn by lot.
    pub fn new(store: &Arc<dyn Store>, process: u64) -> Self {
        Self { runs: Arc::default(), books: Arc::new(Books::new(Arc::clone(store), process)), outcomes: Arc::default() }
    }

    /// Tells the other instances of a run that has failed: its handler may go on, and call any of them.
    pub(crate) async fn note_failed(&self, lease: &InboxLease, telemetry: &Telemetry) {
        let Some(first) = lease.events.first().filter(|event| event.kind.waits_in_thread()) else { return };
        let Some(thread) = &first.thread else { return };
        let failed = FailedRun { item: lease.item, event: first.id, run: lease.attempt };
        if let Err(error) = self.books.note_failed(&lease.channel, thread, &failed).await {
            telemetry.store_unavailable("amend", &error);
        }
    }

    /// Before an item is parked: see [`Books::park`].
    pub(crate) async fn note_parked(&self, lease: &InboxLease, outcome: &Outcome, keep_ms: i64, telemetry: &Telemetry) {
        if matches!(outcome, Outcome::Parked { .. })
            && let Err(error) = self.books.park(lease.item, keep_ms).await
        {
            telemetry.store_unavailable("amend", &error);
        }
    }
}

/// What the listeners work with.
pub struct Links {
    pub auth: Arc<Auth>,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub telemetry: Arc<Telemetry>,
    pub state: DropInState,
    pub polling: Arc<Polling>,
    pub body_timeout: Duration,
}

impl DropIns {
    /// `None` where no channel is served so.
    pub fn new(channels: &Channels, links: Links) -> Result<Option<Self>, BadCalls> {
        let served: Vec<_> = channels.iter().filter_map(|channel| Served::new(channel, &links.telemetry)).map(Arc::new).collect();
        if served.is_empty() {
            return Ok(None);
        }
        let Links { auth, store, clock, telemetry, state, polling, body_timeout } = links;
        let client = through::client()?;
        let large = Semaphore::new(uploads::LARGE_AT_ONCE);
        Ok(Some(Self {
            served,
            auth,
            store,
            clock,
            telemetry,
            client,
            state,
            polling,
            body_timeout,
            large,
            paused: Mutex::default(),
        }))
    }

    /// Serves a call; gives it back when its path is no provider's.
    pub async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Request<Incoming>> {
        let candidates = self.candidates(&request);
        if candidates.is_empty() {
            return Err(request);
        }
        let standing = request.extensions().get::<Standing>().cloned();
        let (head, body) = request.into_parts();
        let admitted = match self.admit(candidates, &head).await {
            Ok(admitted) => admitted,
            Err(refused) => return Ok(refused),
        };
        standing.inspect(Standing::proved);
        let Admitted { served, routed } = admitted;
        self.polling.heard(served.channel.name());
        let refuse = |why: &Refusal| reply::of(served.adapter.reply(why));
        Ok(match &routed.what {
            What::Effect { .. } | What::ByBody => self.effect(Arc::clone(&served), routed, head, body).await,
            What::Repeatable => match self.is_of_an_old_run(&served, &head).await {
                true => refuse(&Refusal::Refused("the run of the handler that this belongs to is over".to_owned())),
                false => self.pass_through(&served, &head, through::streamed(body, self.body_timeout)).await,
            },
            What::Through => self.pass_through(&served, &head, through::streamed(body, self.body_timeout)).await,
            What::SetWebhook => self.set_webhook(&served, &head, body).await,
            What::DeleteWebhook => self.delete_webhook(&served, body).await,
            What::WebhookInfo => self.webhook_info(&served).await,
            What::Updates => self.updates(&served, &head, body).await,
            What::Refused { why } => refuse(&Refusal::Refused((*why).to_owned())),
        })
    }
}
