//! A running hapax on a port of its own, the provider's side of the wire, and patience without sleeping blindly.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hapax::StoreUrl;
use hapax_domain::{Kind, RetryPolicy, limits};
use hapax_gateway::server::{Listeners, StartError};
use hapax_gateway::settings::{Channel, Claims, Deliver, Limits, Mode, OnPoison, OnStoreFailure};
use hapax_gateway::telemetry::Telemetry;
use hapax_providers::settings::Settings;
use hapax_server::config::{Config, Log};
use hapax_store::clock::{Clock, SystemClock};
use hapax_store::memory::MemoryStore;
use hapax_store::{EventQuery, EventRow, InboxQuery, InboxRow, Store};
use hapax_store_sqlite as sqlite;
use hapax_store_sqlite::SqliteStore;
use hapax_testkit::servers::Engine;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Handing back must fit into a part of it, also on a busy machine.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(2);

pub(crate) const SECRET: &str = "a secret for tests only";

/// Turns each function into one test per store.
macro_rules! on_every_store {
    ($($name:ident)*) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(crate::rig::Opened::memory()).await;
            })*
        }

        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(crate::rig::Opened::sqlite()).await;
            })*
        }
    };
}

/// A store that was just opened, and its clock.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Removed when the last one that uses it is gone.
    pub(crate) folder: Option<Arc<tempfile::TempDir>>,
}

impl Opened {
    pub(crate) fn memory() -> Self {
        Self::memory_at(Arc::new(SystemClock::new()))
    }

    pub(crate) fn memory_at(clock: Arc<dyn Clock>) -> Self {
        Self { store: Arc::new(MemoryStore::new(Arc::clone(&clock))), clock, folder: None }
    }

    pub(crate) fn sqlite() -> Self {
        Self::sqlite_at(Arc::new(SystemClock::new()))
    }

    pub(crate) fn sqlite_at(clock: Arc<dyn Clock>) -> Self {
        let folder = crate::quick_folder();
        let opened = SqliteStore::open(&folder.path().join("it.db"), Arc::clone(&clock), &sqlite::Options::default());
        Self { store: Arc::new(opened.expect("a fresh store opens")), clock, folder: Some(Arc::new(folder)) }
    }
}

/// Tries something on two instances that share a database of this engine; nothing happens where there is no such server, which was said.
pub(crate) async fn on_two_instances<F: Future<Output = ()>>(engine: Engine, tried: impl FnOnce(Vec<Opened>) -> F) {
    let Some(server) = engine.shared().await else { return };
    let url = server.fresh().await;
    let address = StoreUrl::read(&url).expect("an address");
    let mut opened = Vec::new();
    for _ in 0..2 {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let options = hapax::Options { queue: 10_000, disk_floor_bytes: 0 };
        let store = hapax::open_store(&address, &options, Arc::clone(&clock)).await.expect("it opens");
        opened.push(Opened { store, clock, folder: None });
    }
    tried(opened).await;
    server.remove(&url).await;
}

pub(crate) struct Rig {
    pub(crate) address: SocketAddr,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) client: reqwest::Client,
    pub(crate) telemetry: Arc<dyn Fn() -> String + Send + Sync>,
    stop: CancellationToken,
    running: JoinHandle<Result<(), StartError>>,
    _folder: Option<Arc<tempfile::TempDir>>,
}

/// A WhatsApp channel with short waits, and room for a test to change it.
pub(crate) fn channel(name: &str, target: Option<String>) -> Channel {
    Channel {
        name: Arc::from(name),
        provider: Settings::Whatsapp { secrets: vec![SECRET.into()], verify_token: Some("knock knock".into()) },
        target,
        targets: Default::default(),
        access: Default::default(),
        mode: Mode::Queue,
        deliver: Deliver { kinds: Kind::ALL.to_vec(), echoes: true },
        window_ms: 8 * 86_400_000,
        retention_ms: 86_400_000,
        retry: RetryPolicy { first_ms: 20, cap_ms: 50, attempts: 5 },
        timeout_ms: 20_000,
        lease_ms: 10_000,
        on_poison: OnPoison::Park,
        park_on_4xx: true,
        on_store_failure: OnStoreFailure::Retry,
        replay_guard: false,
        stale_after_ms: None,
        turns: None,
        sign_with: None,
        max_body: limits::BODY_MAX_BYTES,
        concurrency: 16,
        typing: false,
        send: None,
        dropin: None,
    }
}

pub(crate) fn config(channels: Vec<Channel>) -> Config {
    Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        admin_listen: None,
        admin_public: false,
        dropin_listen: None,
        dropin_public: false,
        resp: None,
        trusted_proxies: Vec::new(),
        cors_origins: Vec::new(),
        web: Default::default(),
        admin_token: Some("an admin token for tests".into()),
        store: StoreUrl::Memory,
        spool: "hapax-spool.db".into(),
        backup: None,
        notify: None,
        instance: Some("test".to_owned()),
        stop_grace_ms: 30_000,
        limits: Limits {
            connections: limits::CONNECTIONS_MAX,
            header_timeout_ms: limits::HEADER_TIMEOUT_MS,
            body_timeout_ms: limits::BODY_TIMEOUT_MS,
            bodies_bytes: limits::BODIES_IN_FLIGHT_BYTES,
            cache_keys: limits::CACHE_KEYS,
            outbox: limits::OUTBOX_MAX,
        },
        claims: Claims { ttl_ms: 86_400_000, lease_ms: 60_000, max: limits::CLAIMS_MAX },
        engine: hapax::Options { queue: 10_000, disk_floor_bytes: 0 },
        log: Log { filter: "off".to_owned(), json: false },
        otel: None,
        channels,
    }
}

impl Rig {
    pub(crate) async fn start(opened: Opened, channels: Vec<Channel>) -> Self {
        Self::start_with(opened, config(channels)).await
    }

    pub(crate) async fn start_with(opened: Opened, config: Config) -> Self {
        let server = hapax_server::open::open_on(Arc::clone(&opened.store), opened.clock, &config, Telemetry::new())
            .await
            .expect("the server opens")
            .with_stop_grace(STOP_GRACE);
        let public = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = public.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let metrics = server.telemetry();
        let running = tokio::spawn({
            let stop = stop.clone();
            async move { server.run(Listeners { public, admin: None, dropin: None, resp: None }, stop).await }
        });
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(1_024).build().expect("a client");
        let telemetry = Arc::new(move || metrics.render());
        Self { address, store: opened.store, client, telemetry, stop, running, _folder: opened.folder }
    }

    /// Stops as a signal would and waits for the end.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.running.await.expect("no panic").expect("a clean stop");
    }

    /// Waits for it to end by itself.
    pub(crate) async fn ended(self) -> Result<(), StartError> {
        self.running.await.expect("no panic")
    }

    /// Ends it without letting anything finish; what its store still does, the test decides.
    pub(crate) fn kill(self) {
        self.running.abort();
    }

    /// Begins to stop; [`Rig::stop`] still waits for the end.
    pub(crate) fn begin_stop(&self) {
        self.stop.cancel();
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Posts as the provider does; returns status and JSON.
    pub(crate) async fn post(&self, channel: &str, body: impl Into<Vec<u8>>) -> (u16, serde_json::Value) {
        let body = body.into();
        let response = self.request(channel, &body).body(body).send().await.expect("an answer");
        let status = response.status().as_u16();
        let text = response.text().await.expect("a whole answer");
        (status, serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text)))
    }

    /// A signed request without its body yet.
    pub(crate) fn request(&self, channel: &str, body: &[u8]) -> reqwest::RequestBuilder {
        self.client
            .post(self.url(&format!("/in/{channel}")))
            .header("content-type", "application/json")
            .header("x-hub-signature-256", signature(body))
    }

    pub(crate) async fn accepted(&self, channel: &str, body: impl Into<Vec<u8>>) {
        let (status, answer) = self.post(channel, body).await;
        assert_eq!((status, &answer["status"]), (200, &"accepted".into()), "{answer}");
    }

    pub(crate) async fn events(&self) -> Vec<EventRow> {
        self.store.events(EventQuery { limit: 500, ..EventQuery::default() }).await.expect("events").rows
    }

    pub(crate) async fn inbox(&self) -> Vec<InboxRow> {
        self.store.inbox(InboxQuery { limit: 500, ..InboxQuery::default() }).await.expect("the inbox").rows
    }

    /// Resolves when nothing is on its way any more.
    pub(crate) async fn settled(&self) {
        eventually("all items settled", async || {
            let stats = self.store.stats().await.expect("stats");
            stats.channels.iter().all(|counts| counts.waiting + counts.leased == 0)
        })
        .await;
    }

    /// The value of one metric, or 0.
    pub(crate) fn metric(&self, name_and_labels: &str) -> u64 {
        let text = (self.telemetry)();
        let line = text.lines().find_map(|line| line.strip_prefix(name_and_labels)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().expect("a number"))
    }

    /// Waits until a metric has this value: what is counted is counted a moment after it is stored.
    pub(crate) async fn counted(&self, name_and_labels: &str, value: u64) {
        eventually(&format!("{name_and_labels} {value}"), async || self.metric(name_and_labels) == value).await;
    }
}

/// Waits for a state that has no signal of its own.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        let mut looks = tokio::time::interval(Duration::from_millis(2));
        while !holds().await {
            looks.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), waiting).await.unwrap_or_else(|_| panic!("never came: {what}"));
}

/// Waits for something that has a signal, but not for ever.
pub(crate) async fn in_time<T>(what: &str, coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(180), coming).await.unwrap_or_else(|_| panic!("never came: {what}"))
}

/// What python's `hmac.new(secret, body, sha256).hexdigest()` gives, as Meta sends it.
pub(crate) fn signature(body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("any length will do");
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

/// A text message of Meta's shape.
pub(crate) fn text(id: &str, from: &str) -> String {
    webhook(&[change(&[message(id, from)], &[])])
}

pub(crate) fn message(id: &str, from: &str) -> serde_json::Value {
    serde_json::json!({"from": from, "id": id, "timestamp": "1760000000", "type": "text", "text": {"body": format!("this is {id}")}})
}

pub(crate) fn status(id: &str, status: &str) -> serde_json::Value {
    serde_json::json!({"id": id, "status": status, "timestamp": "1760000002", "recipient_id": "5511988887777"})
}

pub(crate) fn change(messages: &[serde_json::Value], statuses: &[serde_json::Value]) -> serde_json::Value {
    let mut value = serde_json::json!({
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": "15550009999", "phone_number_id": "700001"},
    });
    if !messages.is_empty() {
        value["messages"] = messages.into();
    }
    if !statuses.is_empty() {
        value["statuses"] = statuses.into();
    }
    serde_json::json!({"field": "messages", "value": value})
}

pub(crate) fn webhook(changes: &[serde_json::Value]) -> String {
    serde_json::json!({"object": "whatsapp_business_account", "entry": [{"id": "900001", "changes": changes}]}).to_string()
}
