//! Puts the layers on top of each other and reads the whole config from them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use hapax::{Options, StoreUrl};
use hapax_gateway::settings::{Channel, Limits, Network};
use secrecy::SecretString;

use super::mistake::{Mistakes, Origin};
use super::section::{Found, Section, join, refuse_unknown};
use super::tree::{self, Entry, Environment, Node, Table};
use super::{Config, DEFAULT, Log, backup, channel, claims, dropin, notify, otel, resp, web};

const TOP_KEYS: &[&str] = &[
    "listen",
    "admin_listen",
    "admin_public",
    "dropin_listen",
    "dropin_public",
    "resp_listen",
    "resp_public",
    "resp_tls_cert",
    "resp_tls_key",
    "trusted_proxies",
    "hosts",
    "public_url",
    "hide_payloads",
    "write_config",
    "cors_origins",
    "admin_token",
    "store",
    "spool",
    "backup",
    "notify",
    "notify_secret",
    "instance",
    "stop_grace",
    "limits",
    "claims",
    "log",
    "otel",
    "defaults",
    "channel",
];
const LIMIT_KEYS: &[&str] =
    &["connections", "header_timeout", "body_timeout", "bodies", "store_queue", "disk_floor", "cache_keys", "outbox"];
const LOG_KEYS: &[&str] = &["filter", "json"];

const ADMIN_TOKEN_MIN_BYTES: usize = 16;
const CHANNELS_MAX: usize = 1_000;

/// All that a config is made from. Nothing in here looks around by itself.
pub struct Sources<'s> {
    pub file: Option<SourceFile>,
    pub env: Environment<'s>,
    pub flags: Flags,
}

pub struct SourceFile {
    /// As mistakes name it.
    pub name: String,
    pub text: String,
}

/// What the command line says; stronger than everything else.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    pub listen: Option<String>,
    pub store: Option<String>,
    pub admin_token: Option<SecretString>,
}

/// How the CLI reaches a running server.
#[derive(Clone, Debug)]
pub struct Admin {
    /// `admin_listen` where there is one, else `listen`.
    pub address: SocketAddr,
    pub token: Option<SecretString>,
    /// Where its data is, if that can be read.
    pub store: Option<StoreUrl>,
}

/// Reads and checks everything; all mistakes come back together.
pub fn load(sources: &Sources<'_>) -> Result<Config, Mistakes> {
    let mut mistakes = Mistakes::default();
    let layers = Layers::read(sources, &mut mistakes);
    let config = layers.config(&sources.env, &mut mistakes);
    match config {
        Some(config) if mistakes.is_empty() => Ok(config),
        _ => Err(mistakes.settle()),
    }
}

/// Reads only what it takes to reach a running server, so that a shell without the channels' secrets can still ask.
pub fn load_admin(sources: &Sources<'_>) -> Result<Admin, Mistakes> {
    let layers = Layers::read(sources, &mut Mistakes::default());
    let mut mistakes = Mistakes::default();
    let top = layers.top();
    let listen = top.get("listen").and_then(|found| read_address(&found, &mut mistakes));
    let admin_listen = top.get("admin_listen").and_then(|found| read_address(&found, &mut mistakes));
    let token = top.get("admin_token").and_then(|found| found.text(&mut Mistakes::default())).map(SecretString::from);
    let store = top.get("store").and_then(|found| found.text(&mut Mistakes::default()));
    let store = store.and_then(|text| StoreUrl::read(text).ok());
    match admin_listen.or(listen) {
        Some(address) if mistakes.is_empty() => Ok(Admin { address, token, store }),
        _ => Err(mistakes.settle()),
    }
}

/// Tells the channels of two configs apart, secrets included, without showing any: a hash of all that each is told.
pub fn channel_fingerprints(sources: &Sources<'_>) -> BTreeMap<String, [u8; 32]> {
    let mut ignored = Mistakes::default();
    let layers = Layers::read(sources, &mut ignored);
    let Some(Node::Table(channels)) = layers.file.get("channel").map(|entry| &entry.node) else { return BTreeMap::new() };
    let defaults = layers.section("defaults", &mut ignored);
    let fingerprint = |(name, entry): (&String, &Entry)| {
        let mut hasher = blake3::Hasher::new();
        tree::hash(&entry.node, &mut hasher);
        defaults.iter().for_each(|(_, table)| tree::hash(&Node::Table((*table).clone()), &mut hasher));
        (name.clone(), *hasher.finalize().as_bytes())
    };
    channels.iter().map(fingerprint).collect()
}

struct Layers {
    flags: Table,
    env: Table,
    file: Table,
    default: Table,
}

impl Layers {
    fn read(sources: &Sources<'_>, mistakes: &mut Mistakes) -> Self {
        let file = match &sources.file {
            Some(file) => tree::read(&Arc::from(file.name.as_str()), &file.text, &sources.env, mistakes),
            None => Table::new(),
        };
        refuse_unknown(&file, "", TOP_KEYS, &[], mistakes);
        let default = tree::read(&Arc::from("default.toml"), DEFAULT, &sources.env, mistakes);
        Self { flags: flag_layer(&sources.flags), env: env_layer(&sources.env, mistakes), file, default }
    }

    fn top(&self) -> Section<'_> {
        let layer = |table| (String::new(), table);
        Section::new(vec![layer(&self.flags), layer(&self.env), layer(&self.file), layer(&self.default)])
    }

    /// The tables called `name` of the file and of the default.
    fn section(&self, name: &str, mistakes: &mut Mistakes) -> Vec<(String, &Table)> {
        let mut tables = Vec::new();
        for table in [&self.file, &self.default] {
            let found = table.get(name).map(|entry| Found { path: name.to_owned(), entry });
            tables.extend(found.and_then(|found| found.table(mistakes)).map(|table| (name.to_owned(), table)));
        }
        tables
    }

    fn config(&self, env: &Environment<'_>, mistakes: &mut Mistakes) -> Option<Config> {
        let top = self.top();
        let listen = top.get("listen").and_then(|found| read_address(&found, mistakes));
        let admin_listen = top.get("admin_listen").and_then(|found| read_address(&found, mistakes));
        if let Some(found) = top.get("admin_listen").filter(|_| admin_listen.is_some() && admin_listen == listen) {
            found.refuse(mistakes, "this is `listen` as well; choose another port, or take `admin_listen` out");
        }
        let admin_public = top.get("admin_public").and_then(|found| found.truth(mistakes)).unwrap_or_default();
        if let (Some(found), Some(at), None, false) = (top.get("listen"), listen, top.get("admin_listen"), admin_public) {
            refuse_open_admin(&found, at, mistakes);
        }
        let trusted_proxies = top.get("trusted_proxies").map(|found| read_networks(&found, mistakes)).unwrap_or_default();
        let cors_origins = top.get("cors_origins").map(|found| read_origins(&found, mistakes)).unwrap_or_default();
        let web = web::read(&top, mistakes);
        let admin_token = top.get("admin_token").and_then(|found| read_admin_token(&found, mistakes));
        let store = top.get("store").and_then(|found| read_store(&found, mistakes));
        let spool = top.get("spool").and_then(|found| read_spool(&found, mistakes));
        let backup = backup::read(&top, store.as_ref(), mistakes);
        let notify = notify::read(&top, mistakes);
        let instance = top.get("instance").and_then(|found| found.text(mistakes)).map(str::to_owned);
        let stop_grace_ms = top.get("stop_grace").and_then(|found| found.ms(1_000..=3_600_000, mistakes));
        let (limits, engine) = self.limits(mistakes);
        let claims = claims::read(self.section("claims", mistakes), mistakes);
        let log = self.log(mistakes);
        let otel = otel::read(self.section("otel", mistakes), mistakes);
        let embedded = store.as_ref().is_none_or(StoreUrl::is_embedded);
        let channels = self.channels(embedded, env, mistakes);
        let (dropin_listen, dropin_public) = self.dropin(listen, admin_listen, &channels, mistakes);
        let resp_listen = top.get("resp_listen").and_then(|found| read_address(&found, mistakes));
        let resp = resp::read(&top, resp_listen, &[listen, admin_listen, dropin_listen], env, mistakes);
        Some(Config {
            listen: listen?,
            admin_listen,
            admin_public,
            dropin_listen,
            dropin_public,
            resp,
            trusted_proxies,
            cors_origins,
            web,
            admin_token,
            store: store?,
            spool: spool?,
            backup,
            notify,
            instance,
            stop_grace_ms: stop_grace_ms?,
            limits,
            claims,
            engine,
            log,
            otel,
            channels,
        })
    }

    /// Where bots are served that were given hapax's address for their provider's.
    fn dropin(
        &self,
        listen: Option<SocketAddr>,
        admin_listen: Option<SocketAddr>,
        channels: &[Channel],
        mistakes: &mut Mistakes,
    ) -> (Option<SocketAddr>, bool) {
        let top = self.top();
        let at = top.get("dropin_listen").and_then(|found| read_address(&found, mistakes));
        if let Some(found) = top.get("dropin_listen").filter(|_| at.is_some() && (at == listen || at == admin_listen)) {
            let what = "something else listens there; choose another port, or take `dropin_listen` out to serve bots on `listen`";
            found.refuse(mistakes, what);
        }
        let public = top.get("dropin_public").and_then(|found| found.truth(mistakes)).unwrap_or_default();
        dropin::check_door(top.get("listen").as_ref(), listen, at, public, channels, mistakes);
        (at, public)
    }

    fn limits(&self, mistakes: &mut Mistakes) -> (Limits, Options) {
        let tables = self.section("limits", mistakes);
        tables.iter().for_each(|(path, table)| refuse_unknown(table, path, LIMIT_KEYS, &[], mistakes));
        let section = Section::new(tables);
        let mut whole = |key: &str, most| section.get(key).and_then(|found| found.whole(1..=most, mistakes)).unwrap_or_default();
        let (connections, store_queue) = (whole("connections", 1_000_000), whole("store_queue", 1_000_000));
        let (cache_keys, outbox) = (whole("cache_keys", 100_000_000), whole("outbox", 100_000_000));
        let mut ms = |key: &str| section.get(key).and_then(|found| found.ms(100..=3_600_000, mistakes)).unwrap_or_default();
        let (header_timeout_ms, body_timeout_ms) = (ms("header_timeout"), ms("body_timeout"));
        let bodies = section.get("bodies").and_then(|found| found.bytes(1 << 20..=1 << 40, mistakes)).unwrap_or_default();
        let disk_floor = section.get("disk_floor").and_then(|found| found.bytes(0..=1 << 50, mistakes));
        let limits = Limits {
            connections: connections as usize,
            header_timeout_ms: header_timeout_ms.unsigned_abs(),
            body_timeout_ms: body_timeout_ms.unsigned_abs(),
            bodies_bytes: bodies as usize,
            cache_keys: cache_keys.unsigned_abs(),
            outbox: outbox as usize,
        };
        let disk_floor_bytes = disk_floor.unwrap_or_default().unsigned_abs();
        (limits, Options { queue: store_queue as usize, disk_floor_bytes })
    }

    fn log(&self, mistakes: &mut Mistakes) -> Log {
        let tables = self.section("log", mistakes);
        tables.iter().for_each(|(path, table)| refuse_unknown(table, path, LOG_KEYS, &[], mistakes));
        let section = Section::new(tables);
        let filter = section.get("filter").and_then(|found| {
            let text = found.text(mistakes)?;
            if tracing_subscriber::EnvFilter::try_new(text).is_err() {
                found.refuse(mistakes, format!("`{text}` is not a log filter; write \"info\" or \"hapax=debug,info\""));
            }
            Some(text.to_owned())
        });
        let json = section.get("json").and_then(|found| found.truth(mistakes));
        Log { filter: filter.unwrap_or_default(), json: json.unwrap_or_default() }
    }

    fn channels(&self, embedded: bool, env: &Environment<'_>, mistakes: &mut Mistakes) -> Vec<Channel> {
        let defaults = self.section("defaults", mistakes);
        defaults.iter().for_each(|(_, table)| channel::check_defaults(table, mistakes));
        let Some(entry) = self.file.get("channel") else { return Vec::new() };
        let all = Found { path: "channel".to_owned(), entry };
        let Some(table) = all.table(mistakes) else { return Vec::new() };
        if table.len() > CHANNELS_MAX {
            all.refuse(mistakes, format!("{} channels are too many; at most {CHANNELS_MAX}", table.len()));
        }
        let mut channels = Vec::new();
        for (name, entry) in table {
            let own = Found { path: join("channel", name), entry };
            let mut layers = defaults.clone();
            match &entry.node {
                Node::Table(table) => layers.insert(0, (own.path.clone(), table)),
                _ => own.refuse(mistakes, "a channel is a table; write [channel.NAME] and its keys below"),
            }
            if matches!(entry.node, Node::Table(_)) {
                channels.extend(channel::read(name, &own, &Section::new(layers), embedded, env, mistakes));
            }
        }
        dropin::check_tokens(table, &channels, mistakes);
        channels
    }
}

fn flag_layer(flags: &Flags) -> Table {
    use secrecy::ExposeSecret;
    let entry =
        |key: &str, flag, value: &str| (key.to_owned(), Entry { origin: Origin::Flag(flag), node: Node::Text(value.to_owned()) });
    let listen = flags.listen.as_ref().map(|value| entry("listen", "--listen", value));
    let store = flags.store.as_ref().map(|value| entry("store", "--store", value));
    let token = flags.admin_token.as_ref().map(|value| entry("admin_token", "--token-file", value.expose_secret()));
    [listen, store, token].into_iter().flatten().collect()
}

/// hapax's own variables are stronger than the platform's `PORT` and `DATABASE_URL`.
fn env_layer(env: &Environment<'_>, mistakes: &mut Mistakes) -> Table {
    let mut layer = Table::new();
    let variables = [
        ("PORT", "listen"),
        ("DATABASE_URL", "store"),
        ("HAPAX_LISTEN", "listen"),
        ("HAPAX_ADMIN_LISTEN", "admin_listen"),
        ("HAPAX_ADMIN_PUBLIC", "admin_public"),
        ("HAPAX_DROPIN_LISTEN", "dropin_listen"),
        ("HAPAX_DROPIN_PUBLIC", "dropin_public"),
        ("HAPAX_RESP_LISTEN", "resp_listen"),
        ("HAPAX_RESP_PUBLIC", "resp_public"),
        ("HAPAX_PUBLIC_URL", "public_url"),
        ("HAPAX_STORE", "store"),
        ("HAPAX_ADMIN_TOKEN", "admin_token"),
        ("HAPAX_NOTIFY", "notify"),
        ("HAPAX_NOTIFY_SECRET", "notify_secret"),
    ];
    for (variable, key) in variables {
        match env.get(variable) {
            Ok(None) => {}
            Ok(Some((name, value))) => {
                // A platform that sets PORT expects the program on every address of its container.
                let node = match (variable, value.as_str()) {
                    ("PORT", _) => Node::Text(format!("0.0.0.0:{value}")),
                    ("HAPAX_ADMIN_PUBLIC" | "HAPAX_DROPIN_PUBLIC" | "HAPAX_RESP_PUBLIC", "true" | "false") => {
                        Node::Truth(value == "true")
                    }
                    _ => Node::Text(value),
                };
                layer.insert(key.to_owned(), Entry { origin: Origin::Env(name), node });
            }
            Err(why) => mistakes.add(&Origin::Env(variable.to_owned()), key, why),
        }
    }
    layer
}

fn read_address(found: &Found<'_>, mistakes: &mut Mistakes) -> Option<SocketAddr> {
    let text = found.text(mistakes)?;
    let address = text.replacen("localhost:", "127.0.0.1:", 1).parse().ok();
    if address.is_none() {
        found.refuse(mistakes, format!("`{text}` is not an address and a port; write \"127.0.0.1:4272\""));
    }
    address
}

/// Whoever opens the door to the world must say whether the admin surface stands in it.
fn refuse_open_admin(listen: &Found<'_>, at: SocketAddr, mistakes: &mut Mistakes) {
    if !at.ip().to_canonical().is_loopback() {
        let what = "other machines reach this address, and /v1 and /metrics with it; add admin_listen = \"127.0.0.1:4273\" to move them, \
                    or admin_public = true if their tokens are protection enough. In Docker: HAPAX_LISTEN=0.0.0.0:4272 and \
                    HAPAX_ADMIN_LISTEN=0.0.0.0:4273, published with -p 4272:4272 for providers and -p 127.0.0.1:4273:4273 for you";
        listen.refuse(mistakes, what);
    }
}

fn read_networks(found: &Found<'_>, mistakes: &mut Mistakes) -> Vec<Network> {
    let mut networks = Vec::new();
    for (entry, text) in found.texts(mistakes).unwrap_or_default() {
        match Network::read(text) {
            Some(network) => networks.push(network),
            None => entry
                .refuse(mistakes, format!("`{text}` is not an address or a block of them; write \"10.0.0.1\" or \"10.0.0.0/8\"")),
        }
    }
    networks
}

/// What a browser puts into `Origin`: scheme, host and port, and nothing behind them.
fn read_origins(found: &Found<'_>, mistakes: &mut Mistakes) -> Vec<String> {
    let mut origins = Vec::new();
    for (entry, text) in found.texts(mistakes).unwrap_or_default() {
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or_default();
        let plain = |sign: u8| sign.is_ascii_graphic() && !b"/?#@*,".contains(&sign) && !sign.is_ascii_uppercase();
        match !host.is_empty() && host.bytes().all(plain) {
            true => origins.push(text.to_owned()),
            false => entry.refuse(
                mistakes,
                format!("`{text}` is not an origin; write \"https://app.example.com\", in small letters, with the port if there is one and no path"),
            ),
        }
    }
    origins
}

fn read_admin_token(found: &Found<'_>, mistakes: &mut Mistakes) -> Option<SecretString> {
    let text = found.text(mistakes)?;
    let long = text.len() >= ADMIN_TOKEN_MIN_BYTES;
    if !long {
        let what = format!("the admin token is too short ({} bytes, at least {ADMIN_TOKEN_MIN_BYTES})", text.len());
        found.refuse(mistakes, format!("{what}; make one with `openssl rand -hex 24`, or leave it out and hapax makes one"));
    }
    let sendable = text.bytes().all(|b| b.is_ascii_graphic());
    if !sendable {
        found.refuse(mistakes, "the admin token travels in a header: use letters, digits and signs without blanks");
    }
    (long && sendable).then(|| SecretString::from(text))
}

fn read_spool(found: &Found<'_>, mistakes: &mut Mistakes) -> Option<PathBuf> {
    let text = found.text(mistakes)?;
    if text.is_empty() || text.contains(':') {
        found.refuse(mistakes, "this is not the path of a file; write \"hapax-spool.db\" or \"/var/lib/hapax/spool.db\"");
        return None;
    }
    Some(PathBuf::from(text))
}

/// A database address may hold a password: the text itself is never repeated in a mistake.
fn read_store(found: &Found<'_>, mistakes: &mut Mistakes) -> Option<StoreUrl> {
    match StoreUrl::read(found.text(mistakes)?) {
        Ok(store) => Some(store),
        Err(what) => {
            found.refuse(mistakes, what);
            None
        }
    }
}
