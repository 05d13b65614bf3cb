//! Passes requests on, and answers back, as they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hapax_providers::RawRequest;
use http::header::{self, HeaderMap, HeaderName};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use url::Url;

use super::Eye;
use super::tee::Tee;
use super::watcher::{Asked, Came, Seen};
use crate::http_client::{self, BadCalls, Client, Idle};

const IDLE: Idle = Idle { most: 1_024, time: Duration::from_secs(10) };

/// Between two machines and not between the two ends.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Which way it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// From the provider to the bot.
    Webhooks,
    /// From the bot to the provider.
    Sends,
}

pub(super) struct Forwarder {
    side: Side,
    base: Url,
    client: Client,
    eye: Eye,
    last: AtomicU64,
}

/// Says how a webhook ended, also when the provider did not wait for it.
struct Ending<'f> {
    forwarder: &'f Forwarder,
    number: Option<u64>,
}

pub(super) type Answer = Response<Either<Full<Bytes>, Incoming>>;

impl Forwarder {
    pub(super) fn new(side: Side, to: &str, eye: Eye) -> Result<Self, BadCalls> {
        let base = http_client::read_address("to", &Arc::from("shadow"), to)?;
        Ok(Self { side, base, client: Client::new(IDLE)?, eye, last: AtomicU64::new(0) })
    }

    pub(super) async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let watched = self.side == Side::Sends || head.method == Method::POST;
        let mut ending = Ending { forwarder: &self, number: (self.side == Side::Webhooks && watched).then_some(number) };
        let Some(to) = self.address(&head.uri).and_then(|url| self.client.place(&url)) else {
            return trouble("this path cannot be passed on");
        };
        let (method, mut headers) = (head.method.clone(), end_to_end(&head.headers));
        if self.side == Side::Sends {
            // The bot wrote our name there; the bot's own name, and what signatures are made of, stays as it is.
            headers.remove(header::HOST);
        }
        let body = if watched {
            let forwarder = Arc::clone(&self);
            let (method, headers, uri) = (head.method, head.headers, head.uri);
            let show = move |body: Bytes| forwarder.show(number, method, headers, &uri, body);
            http_client::flowing(Tee::new(body, self.eye.clone(), Box::new(show)))
        } else {
            http_client::flowing(body)
        };
        match http_client::call_patiently(http_client::Request { to, method, headers, body }).await {
            Ok(mut response) => {
                ending.answered(Some(response.status().as_u16()));
                *response.headers_mut() = end_to_end(response.headers());
                response.map(Either::Right)
            }
            Err(_) => {
                ending.answered(None);
                trouble("what stands behind `hapax shadow` gave no answer")
            }
        }
    }

    /// The same path and query behind the address that requests go to.
    fn address(&self, uri: &Uri) -> Option<Url> {
        let behind = uri.path_and_query().map_or("/", |path| path.as_str());
        let base = self.base.as_str().trim_end_matches('/');
        // An address with a path of its own is the bot's webhook itself, whatever path the provider calls.
        match self.base.path() {
            "/" | "" => Url::parse(&format!("{base}{behind}")).ok(),
            _ if self.side == Side::Sends => Url::parse(&format!("{base}{behind}")).ok(),
            _ => {
                let mut url = self.base.clone();
                url.set_query(uri.query().or(self.base.query()));
                Some(url)
            }
        }
    }

    fn show(&self, number: u64, method: Method, headers: HeaderMap, uri: &Uri, body: Bytes) {
        let at_ms = self.eye.now_ms();
        let query = uri.query().unwrap_or_default().to_owned();
        self.eye.show(match self.side {
            Side::Webhooks => Seen::Came(Came { number, at_ms, request: RawRequest { method, query, headers, body } }),
            Side::Sends => Seen::Asked(Asked { at_ms, method, path: uri.path().to_owned(), query, headers, body }),
        });
    }
}

impl Ending<'_> {
    fn answered(&mut self, status: Option<u16>) {
        if let Some(number) = self.number.take() {
            let eye = &self.forwarder.eye;
            eye.show(Seen::Ended { number, status, gave_up: false });
        }
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number.take() {
            let eye = &self.forwarder.eye;
            eye.show(Seen::Ended { number, status: None, gave_up: true });
        }
    }
}

fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named = |name: &HeaderName| {
        let words = headers.get_all(header::CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
        words.flat_map(|words| words.split(',')).any(|word| word.trim().eq_ignore_ascii_case(name.as_str()))
    };
    let passes = |(name, _): &(&HeaderName, &http::HeaderValue)| !HOP_BY_HOP.contains(name) && !named(name);
    headers.iter().filter(passes).map(|(name, value)| (name.clone(), value.clone())).fold(
        HeaderMap::with_capacity(headers.len()),
        |mut kept, (name, value)| {
            kept.append(name, value);
            kept
        },
    )
}

fn trouble(why: &'static str) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(Bytes::from_static(why.as_bytes()))));
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer
}
