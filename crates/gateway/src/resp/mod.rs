//! The Redis door: claims for programs that say `SET key value NX EX 60` already. They change an address, and what they take is on disk.
//!
//! ```text
//!  client ──bytes──▶ codec ──words──▶ command ─┬─ of the connection ──▶ session
//!                                              └─ of keys ─▶ plan ─▶ store.claims, all that came together in one call
//!                                     a script ─▶ script ─▶ steps ──┘
//! ```
//!
//! Keys of the door live in one scope, `redis`, each with an end.

mod codec;
mod command;
mod connection;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod gathering;
mod home;
mod plan;
mod script;
mod session;
mod steps;
pub mod tls;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hapax_store::Store;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use self::connection::Connection;
use self::gathering::Gathering;
use self::home::{Home, serve_on_thread};
use self::script::Scripts;
use self::session::Session;
use self::tls::Tls;
use crate::api::Auth;
use crate::connections::accept_loop::{self, Closing};
use crate::connections::patience::Patience;
use crate::connections::peer::Proxies;
use crate::connections::places::Places;
use crate::connections::seldom::Seldom;
use crate::telemetry::{RespTelemetry, Telemetry};

/// Where the keys of the door live.
pub const SCOPE: &str = "redis";

/// Commands with a long argument that are read at the same time, in all.
const LONG_AT_ONCE: usize = 64;
/// Values of full length that are on their way to clients at the same time, in all.
const VALUES_AT_ONCE: usize = 256;

/// What the door works with.
pub struct Door {
    store: Arc<dyn Store>,
    home: Home,
    gathering: Gathering,
    auth: Arc<Auth>,
    telemetry: RespTelemetry,
    scripts: Scripts,
    /// How long a key is kept that was given no end.
    usual_ttl_ms: i64,
    tls: Option<Tls>,
    long: Arc<Semaphore>,
    values: Arc<Semaphore>,
    clients: AtomicU64,
}

/// What clients of the door are allowed.
#[derive(Clone, Debug)]
pub struct Allowance {
    pub connections: usize,
    /// How long somebody may take to prove who he is.
    pub sign_in: Duration,
    /// How long a command may take to come in, once it has begun; also the longest that a reply may lie untaken.
    pub patience: Duration,
}

impl Door {
    pub fn new(store: Arc<dyn Store>, auth: Arc<Auth>, telemetry: &Telemetry, usual_ttl_ms: i64, tls: Option<Tls>) -> Self {
        let (telemetry, scripts, clients) = (telemetry.resp(), Scripts::default(), AtomicU64::new(1));
        let (long, values) = (Arc::new(Semaphore::new(LONG_AT_ONCE)), Arc::new(Semaphore::new(VALUES_AT_ONCE)));
        let (home, gathering) = (Home::here(), Gathering::default());
        Self { store, home, gathering, auth, telemetry, scripts, usual_ttl_ms, tls, long, values, clients }
    }

    /// Serves on a thread of its own until it is told to stop; commands that were read are then carried out, until they are cut.
    pub fn open(
        self: Arc<Self>,
        listener: TcpListener,
        allowance: Allowance,
        telemetry: Arc<Telemetry>,
        closing: Closing,
    ) -> io::Result<impl Future<Output = ()> + Send + use<>> {
        let Closing { stop, cut } = closing;
        let cut = cut.child_token();
        let closing = Closing { stop, cut: cut.clone() };
        let door = Arc::clone(&self);
        let serving = serve_on_thread(listener, cut, move |listener| async move {
            let passing_on = tokio::spawn(Arc::clone(&door).pass_on());
            door.serve(listener, allowance, telemetry, closing).await;
            passing_on.abort();
        })?;
        Ok(async move {
            if !serving.await {
                self.telemetry.broke_off();
            }
        })
    }

    /// A task of its own: one that is woken stands in line behind those that were before.
    async fn pass_on(self: Arc<Self>) {
        self.gathering.pass_on(&self.store, &self.home).await;
    }

    async fn serve(self: Arc<Self>, listener: TcpListener, allowance: Allowance, telemetry: Arc<Telemetry>, closing: Closing) {
        // A proxy cannot say here whose connection it brings, so it is one address like others.
        let places = Arc::new(Places::new(allowance.connections, Proxies::default()));
        let open = TaskTracker::new();
        loop {
            let (stream, peer, place) = tokio::select! {
                () = closing.stop.cancelled() => break,
                () = closing.cut.cancelled() => break,
                taken = accept_loop::next(&listener, &places, &telemetry) => taken,
            };
            let _ = stream.set_nodelay(true);
            let session = Session::new(Arc::clone(&self), peer, self.clients.fetch_add(1, Ordering::Relaxed));
            let (long, values) = (Arc::clone(&self.long), Arc::clone(&self.values));
            let connection = Connection::new(session, place.standing(), allowance.clone(), long, values);
            let (door, closing, telemetry) = (Arc::clone(&self), closing.clone(), Arc::clone(&telemetry));
            let (sign_in, patience) = (allowance.sign_in, allowance.patience);
            open.spawn(async move {
                telemetry.connection_opened();
                let serve = async {
                    // A connection that ends in an error ended: the client left, or was too slow.
                    let stream = Patience::new(stream, patience);
                    match &door.tls {
                        None => drop(connection.serve(stream, &closing.stop).await),
                        Some(tls) => {
                            if let Some(stream) = tls.accept(stream, sign_in).await {
                                drop(connection.serve(stream, &closing.stop).await);
                            }
                        }
                    }
                };
                let cut = async {
                    tokio::select! {
                        () = place.cut.cancelled() => {}
                        () = closing.cut.cancelled() => {}
                    }
                };
                tokio::select! {
                    biased;
                    () = serve => {}
                    () = Seldom::new(cut) => {}
                }
                telemetry.connection_closed();
            });
        }
        drop(listener);
        open.close();
        open.wait().await;
    }
}
