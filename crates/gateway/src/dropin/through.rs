//! What is no effect streams through, both ways, in bounded memory: a side that does not take what it asked for is waited for, and then cut.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hapax_providers::dropin::Refusal;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Response, header};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};
use url::Url;

use super::admission::Served;
use super::{DropIns, reply};
use crate::http_client::{self, BadCalls, Client, Idle, NoAnswer, Request};

/// Shorter than servers keep an idle connection.
const IDLE: Idle = Idle { most: 256, time: Duration::from_secs(10) };

/// The longest that a provider may take before its answer begins; the most patient libraries wait so long.
const HEAD_TIMEOUT: Duration = Duration::from_secs(500);
/// The longest that a provider may lie still within an answer.
const STILL: Duration = Duration::from_secs(60);

/// Of one connection, not of what it carries (RFC 9110), or ours.
const NOT_PASSED_ON: [&str; 14] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
    "expect",
    "hapax-event-id",
    "hapax-attempt",
    "x-forwarded-for",
];

/// The client that all calls which pass through share.
pub(super) fn client() -> Result<Client, BadCalls> {
    Client::new(IDLE)
}

/// The caller's body, as it comes.
pub(super) fn streamed(body: Incoming, still: Duration) -> http_client::Body {
    match body.size_hint().exact() {
        Some(0) => http_client::whole(Bytes::new()),
        _ => http_client::flowing(Flowing::new(body, still)),
    }
}

impl DropIns {
    /// Makes the same call at the provider, with the channel's own credentials, and hands back what it says.
    pub(super) async fn pass_through(&self, served: &Served, head: &Parts, body: http_client::Body) -> Response<Body> {
        let refuse = |why: Refusal| reply::of(served.adapter.reply(&why));
        let Some(request) = self.request(served, head, body) else { return refuse(Refusal::Unavailable) };
        served.telemetry.passed_through();
        match http_client::call(request, Instant::now() + HEAD_TIMEOUT).await {
            Ok(response) => answer(response),
            Err(NoAnswer::Unreachable(why) | NoAnswer::Broken(why)) => {
                served.telemetry.not_reached(&why);
                refuse(Refusal::Unavailable)
            }
            Err(NoAnswer::TimedOut) => {
                served.telemetry.not_reached("no answer in time");
                refuse(Refusal::Unavailable)
            }
        }
    }

    fn request(&self, served: &Served, head: &Parts, body: http_client::Body) -> Option<Request> {
        let forward = served.adapter.forward(&served.head(head)?).ok()?;
        let to = self.client.place(&Url::parse(&format!("{}{}", served.send.api_base, forward.path)).ok()?)?;
        let mut headers = passed_on(&head.headers);
        // The body says by itself how long it is.
        headers.remove(header::CONTENT_LENGTH);
        for name in &forward.without {
            headers.remove(name);
        }
        for (name, value) in forward.headers {
            headers.insert(name, value);
        }
        Some(Request { to, method: head.method.clone(), headers, body })
    }
}

fn answer(response: http_client::Response) -> Response<Body> {
    let (head, body) = response.into_parts();
    let mut answer = Response::new(Body::new(Flowing::new(body, STILL)));
    *answer.status_mut() = head.status;
    *answer.headers_mut() = passed_on(&head.headers);
    answer
}

/// Without what belongs to one connection, and without what its `Connection` header names.
fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let stays = |name: &HeaderName| NOT_PASSED_ON.contains(&name.as_str()) || named.iter().any(|other| other == name.as_str());
    headers.iter().filter(|(name, _)| !stays(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A body that fails when it lies still for too long.
struct Flowing<B> {
    body: B,
    still: Duration,
    overdue: Option<Pin<Box<Sleep>>>,
}

impl<B> Flowing<B> {
    fn new(body: B, still: Duration) -> Self {
        Self { body, still, overdue: None }
    }
}

#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("nothing came for too long")]
    Still,
    #[error("it broke off")]
    Off,
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for Flowing<B> {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.overdue = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(|_| Broken::Off)));
        }
        let deadline = Instant::now() + self.still;
        let overdue = self.overdue.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        overdue.as_mut().poll(context).map(|()| Some(Err(Broken::Still)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_a_connection_stays_there() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Only-Here"),
            ("x-only-here", "1"),
            ("transfer-encoding", "chunked"),
            ("host", "127.0.0.1:4272"),
            ("hapax-event-id", "evt_1"),
            ("content-type", "text/plain"),
            ("user-agent", "a bot"),
        ] {
            headers.insert(HeaderName::from_static(name), value.parse().expect("a value"));
        }
        let mut left: Vec<_> = passed_on(&headers).keys().map(ToString::to_string).collect();
        left.sort();
        assert_eq!(left, ["content-type", "user-agent"]);
    }
}
