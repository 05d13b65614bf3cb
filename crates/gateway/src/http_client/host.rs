//! The hosts that are called, each with its connections that nobody uses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use url::Url;

use super::connect::Connector;
use super::link::Link;
use super::{Idle, innermost};

/// How often in the time of its rest a connection is looked at, in case the other side has closed it.
const LOOKS: u32 = 8;

/// Those that one client calls: what the settings name, so there is no need to forget any.
pub(super) struct Hosts {
    connector: Connector,
    idle: Idle,
    hosts: Mutex<HashMap<String, Arc<Host>>>,
}

pub(crate) struct Host {
    to: Uri,
    /// As the `Host` header says it.
    name: HeaderValue,
    /// For TLS.
    server: Option<ServerName<'static>>,
    connector: Connector,
    idle: Idle,
    resting: Mutex<Resting>,
}

#[derive(Default)]
struct Resting {
    /// The last one to be given back at the end.
    links: Vec<(Instant, Box<Link>)>,
    /// Somebody looks at them now and then.
    tended: bool,
}

/// Where a call goes, read once.
#[derive(Clone)]
pub(crate) struct Place {
    pub(super) host: Arc<Host>,
    pub(super) path: PathAndQuery,
}

/// What the addresses of one API begin with.
pub(crate) struct Base {
    text: String,
    start: Place,
}

impl Hosts {
    pub(super) fn new(idle: Idle, trust: ClientConfig) -> Self {
        Self { connector: Connector::new(trust), idle, hosts: Mutex::default() }
    }

    pub(super) fn place(&self, address: &Url) -> Option<Place> {
        let path = PathAndQuery::try_from(&address[url::Position::BeforePath..url::Position::AfterQuery]).ok()?;
        Some(Place { host: self.host(address)?, path })
    }

    pub(super) fn base(&self, address: &str) -> Option<Base> {
        Some(Base { text: address.to_owned(), start: self.place(&Url::parse(address).ok()?)? })
    }

    fn host(&self, address: &Url) -> Option<Arc<Host>> {
        let named = &address[..url::Position::AfterPort];
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = hosts.get(named) {
            return Some(Arc::clone(host));
        }
        let name = &address[url::Position::BeforeHost..url::Position::AfterPort];
        let server = match address.scheme() {
            "http" => None,
            "https" => Some(ServerName::try_from(address.host_str()?.trim_matches(['[', ']']).to_owned()).ok()?),
            _ => return None,
        };
        let host = Arc::new(Host {
            to: Uri::try_from(format!("{}://{name}/", address.scheme())).ok()?,
            name: HeaderValue::from_str(name).ok()?,
            server,
            connector: self.connector.clone(),
            idle: self.idle,
            resting: Mutex::default(),
        });
        hosts.insert(named.to_owned(), Arc::clone(&host));
        Some(host)
    }
}

impl Base {
    /// What is behind it.
    pub(crate) fn at(&self, path: &str) -> Option<Place> {
        // Nothing in it that would have to be written in another way, or that leads upwards.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.:=&?".contains(&byte);
        let reads_as_written = path.starts_with('/') && path.bytes().all(is_plain) && !path.contains("/.");
        if self.start.path == "/" && reads_as_written && self.text_ends_plainly() {
            return Some(Place { host: Arc::clone(&self.start.host), path: PathAndQuery::try_from(path).ok()? });
        }
        let address = Url::parse(&format!("{}{path}", self.text)).ok()?;
        let path = PathAndQuery::try_from(&address[url::Position::BeforePath..url::Position::AfterQuery]).ok()?;
        // A path never leads to another host.
        let host = Arc::clone(&self.start.host);
        (address[url::Position::BeforeHost..url::Position::AfterPort] == *host.name.to_str().ok()?)
            .then_some(Place { host, path })
    }

    /// Without a slash, question mark or the like at its end.
    fn text_ends_plainly(&self) -> bool {
        self.text.bytes().last().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b']')
    }
}

impl Host {
    pub(super) fn name(&self) -> &HeaderValue {
        &self.name
    }

    pub(super) async fn connect(&self) -> Result<Box<Link>, String> {
        let stream = self.connector.connect(&self.to, self.server.as_ref()).await?;
        Link::new(stream).await.map_err(|error| innermost(&error))
    }

    /// A connection that nobody uses, the one that was used last.
    pub(super) fn free(&self) -> Option<Box<Link>> {
        loop {
            let (since, mut link) = self.resting().links.pop()?;
            if since.elapsed() < self.idle.time && link.is_free() {
                return Some(link);
            }
        }
    }

    /// Takes back a connection on which an answer has begun.
    pub(super) fn take_back(this: &Arc<Self>, mut link: Box<Link>) {
        // Nearly always all of the answer came with its head.
        if link.is_free() {
            return Self::rest(this, link);
        }
        if link.is_closed() {
            return;
        }
        // The request may still be on its way, and the answer may be read late or not at all.
        let host = Arc::clone(this);
        tokio::spawn(async move {
            link.finish().await;
            // Also so that this task is woken for it no more.
            if link.is_free() {
                Self::rest(&host, link);
            }
        });
    }

    fn rest(this: &Arc<Self>, link: Box<Link>) {
        let mut resting = this.resting();
        if resting.links.len() >= this.idle.most {
            return;
        }
        resting.links.push((Instant::now(), link));
        if !std::mem::replace(&mut resting.tended, true) {
            drop(resting);
            tokio::spawn(tend(Arc::downgrade(this), this.idle.time / LOOKS));
        }
    }

    #[cfg(test)]
    pub(super) fn has_one_free(&self) -> bool {
        !self.resting().links.is_empty()
    }

    fn resting(&self) -> MutexGuard<'_, Resting> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes what nobody has used for long, and what the other side has closed.
async fn tend(host: Weak<Host>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(host) = host.upgrade() else { return };
        let mut resting = host.resting();
        resting.links.retain_mut(|(since, link)| since.elapsed() < host.idle.time && link.is_free());
        resting.tended = !resting.links.is_empty();
        if !resting.tended {
            return;
        }
    }
}
