//! The Redis door: what it answers beside a real Redis, clients that people use, guests who behave badly, and what is left after a kill.

mod clients;
mod hostile;
mod kept;
mod like_redis;
mod racing;
mod signing_in;
mod talk;

use std::net::SocketAddr;
use std::sync::Arc;

use hapax_gateway::server::{Listeners, StartError};
use hapax_gateway::telemetry::Telemetry;
use hapax_server::config::Config;
use hapax_server::open::open_on;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::rig::{Opened, config};

/// The operator's, which may do everything.
const TOKEN: &str = "an admin token for tests";

/// A hapax with an open door.
struct OpenDoor {
    at: SocketAddr,
    /// Where `/v1` is.
    api: SocketAddr,
    telemetry: Arc<Telemetry>,
    stop: CancellationToken,
    running: JoinHandle<Result<(), StartError>>,
    _folder: Option<Arc<tempfile::TempDir>>,
}

impl OpenDoor {
    async fn start(opened: Opened) -> Self {
        Self::start_with(opened, config(Vec::new())).await
    }

    async fn start_with(opened: Opened, config: Config) -> Self {
        let server = open_on(opened.store, opened.clock, &config, Telemetry::new()).await.expect("the server opens");
        let (public, door) = (TcpListener::bind("127.0.0.1:0").await, TcpListener::bind("127.0.0.1:0").await);
        let (public, door) = (public.expect("a port"), door.expect("a port"));
        let (api, at) = (public.local_addr().expect("an address"), door.local_addr().expect("an address"));
        let (stop, telemetry) = (CancellationToken::new(), server.telemetry());
        let listeners = Listeners { public, admin: None, dropin: None, resp: Some(door) };
        let running = tokio::spawn(server.run(listeners, stop.clone()));
        Self { at, api, telemetry, stop, running, _folder: opened.folder }
    }

    fn metric(&self, name_and_labels: &str) -> u64 {
        let text = self.telemetry.render();
        let line = text.lines().find_map(|line| line.strip_prefix(name_and_labels)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().expect("a number"))
    }

    async fn stop(self) {
        self.stop.cancel();
        self.running.await.expect("no panic").expect("a clean stop");
    }
}
