//! The one way in which the gateway calls others: targets and providers.
//!
//! Nothing is repeated and no redirect is followed here: whether to try again is decided by whoever knows what was tried. An address may
//! hold a token, so neither errors nor causes repeat it.
//!
//! A connection has no task: whoever makes a call on it moves its bytes, and then it lies with its host. Only while an answer has begun
//! and it or the request is not over yet, a task moves it.

mod connect;
mod host;
mod link;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hapax_domain::limits::ANSWER_MAX_BYTES;
use http::header::{ACCEPT, HOST};
use http::{HeaderMap, HeaderValue, Method, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};
use url::Url;

pub(crate) use self::host::{Base, Place};
use self::host::{Host, Hosts};
use crate::settings::TargetTls;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why nobody can be called.
#[derive(Debug, thiserror::Error)]
pub enum BadCalls {
    #[error("the {setting} of channel `{channel}` is not an http or https address")]
    Address { setting: &'static str, channel: Arc<str> },
    #[error("the HTTP client could not be made: {0}")]
    Client(#[source] rustls::Error),
}

/// Why no answer began.
pub(crate) enum NoAnswer {
    /// No connection came to be: the request surely never left us.
    Unreachable(String),
    /// The connection broke when the request may have been written.
    Broken(String),
    TimedOut,
}

/// What came after the head of an answer.
pub(crate) enum Content {
    Whole(Bytes),
    /// More than [`ANSWER_MAX_BYTES`]; the rest is not waited for.
    TooLong,
    BrokeOff,
    TimedOut,
}

/// Connections that nobody uses at the moment.
#[derive(Clone, Copy)]
pub(crate) struct Idle {
    /// To one host.
    pub(crate) most: usize,
    pub(crate) time: Duration,
}

/// Calls others; clones share their connections.
#[derive(Clone)]
pub(crate) struct Client(Arc<Hosts>);

/// What is sent: it says by itself how long it is.
pub(crate) type Body = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// One call.
pub(crate) struct Request {
    pub(crate) to: Place,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

/// The head of an answer, and what follows it: dropped before its end, it closes the connection if some of it had still to come.
pub(crate) type Response = http::Response<Incoming>;

impl Client {
    pub(crate) fn new(idle: Idle) -> Result<Self, BadCalls> {
        Self::with_tls(idle, &TargetTls::default())
    }

    /// One that shows a certificate of its own, or believes other authorities than the usual.
    pub(crate) fn with_tls(idle: Idle, tls: &TargetTls) -> Result<Self, BadCalls> {
        let mut trust = tls.client_config().map_err(BadCalls::Client)?;
        trust.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(Hosts::new(idle, trust))))
    }

    /// Where this address leads. `None`: it is none of HTTP.
    pub(crate) fn place(&self, address: &Url) -> Option<Place> {
        self.0.place(address)
    }

    /// Where the address leads that a channel's setting names.
    pub(crate) fn named(&self, setting: &'static str, channel: &Arc<str>, address: &str) -> Result<Place, BadCalls> {
        let place = Url::parse(address).ok().and_then(|url| self.place(&url));
        place.ok_or_else(|| bad_address(setting, channel))
    }

    /// What the addresses of an API begin with that a channel's setting names.
    pub(crate) fn base(&self, setting: &'static str, channel: &Arc<str>, address: &str) -> Result<Base, BadCalls> {
        self.0.base(address).ok_or_else(|| bad_address(setting, channel))
    }
}

impl Request {
    pub(crate) fn new(method: Method, to: Place) -> Self {
        Self { to, method, headers: HeaderMap::new(), body: whole(Bytes::new()) }
    }
}

/// A body that is there as a whole.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// One that comes piece by piece.
pub(crate) fn flowing<B>(body: B) -> Body
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// Reads an address that a channel's setting names.
pub(crate) fn read_address(setting: &'static str, channel: &Arc<str>, address: &str) -> Result<Url, BadCalls> {
    let known = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    known.ok_or_else(|| bad_address(setting, channel))
}

fn bad_address(setting: &'static str, channel: &Arc<str>) -> BadCalls {
    BadCalls::Address { setting, channel: Arc::clone(channel) }
}

/// Makes one call; returns when the head of the answer is there.
pub(crate) async fn call(request: Request, deadline: Instant) -> Result<Response, NoAnswer> {
    timeout_at(deadline, call_patiently(request)).await.unwrap_or(Err(NoAnswer::TimedOut))
}

/// The same for as long as it takes.
pub(crate) async fn call_patiently(request: Request) -> Result<Response, NoAnswer> {
    let Request { to, method, mut headers, body } = request;
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    headers.entry(HOST).or_insert_with(|| to.host.name().clone());
    let mut request = http::Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from(to.path);
    *request.headers_mut() = headers;
    loop {
        let (mut link, was_used) = match to.host.free() {
            Some(link) => (link, true),
            None => (to.host.connect().await.map_err(NoAnswer::Unreachable)?, false),
        };
        match link.ask(request).await {
            Ok(answer) => {
                Host::take_back(&to.host, link);
                return Ok(answer);
            }
            Err(mut refused) => match refused.take_message().filter(|_| was_used) {
                // The other side had closed it before anything was written.
                Some(unsent) => request = unsent,
                None => return Err(NoAnswer::Broken(innermost(refused.error()))),
            },
        }
    }
}

/// Reads to the end, so that the connection can be used again.
pub(crate) async fn read(response: Response, deadline: Instant) -> Content {
    timeout_at(deadline, read_all(response.into_body())).await.unwrap_or(Content::TimedOut)
}

async fn read_all(mut body: Incoming) -> Content {
    let mut whole = BytesMut::new();
    loop {
        let piece = match body.frame().await {
            None => return Content::Whole(whole.freeze()),
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(_)) => return Content::BrokeOff,
        };
        if whole.len() + piece.len() > ANSWER_MAX_BYTES {
            return Content::TooLong;
        }
        // Copied, because a piece keeps all of the connection's read buffer.
        whole.extend_from_slice(&piece);
    }
}

/// The last cause of an error in words, which unlike the whole of it never hold the address; the system's number of it is left out.
pub fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let number = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
    let (words, tail) = (cause.to_string(), number.map(|number| format!(" (os error {number})")));
    tail.and_then(|tail| words.strip_suffix(&tail).map(str::to_owned)).unwrap_or(words)
}

#[cfg(test)]
mod tests;
