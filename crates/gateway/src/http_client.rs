//! The one way in which the gateway calls others: targets and providers.
//!
//! Nothing is repeated and no redirect is followed here: whether to try again is decided by whoever knows what was tried. An address may
//! hold a token, so neither errors nor causes repeat it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hapax_domain::limits::ANSWER_MAX_BYTES;
use reqwest::{Client, Request, Response, Url, redirect};
use tokio::time::{Instant, timeout_at};

use crate::settings::TargetTls;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why nobody can be called.
#[derive(Debug, thiserror::Error)]
pub enum BadCalls {
    #[error("the {setting} of channel `{channel}` is not an http or https address")]
    Address { setting: &'static str, channel: Arc<str> },
    #[error("the HTTP client could not be made: {0}")]
    Client(#[source] reqwest::Error),
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
pub(crate) struct Idle {
    /// To one host.
    pub(crate) most: usize,
    pub(crate) time: Duration,
}

pub(crate) fn new(idle: &Idle) -> Result<Client, BadCalls> {
    with_tls(idle, &TargetTls::default())
}

/// One that shows a certificate of its own, or believes other authorities than the usual.
pub(crate) fn with_tls(idle: &Idle, tls: &TargetTls) -> Result<Client, BadCalls> {
    tls.on(Client::builder())
        .redirect(redirect::Policy::none())
        .no_proxy()
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(idle.most)
        .pool_idle_timeout(idle.time)
        .tcp_nodelay(true)
        .http1_only()
        .build()
        .map_err(BadCalls::Client)
}

/// Reads an address that a channel's setting names.
pub(crate) fn read_address(setting: &'static str, channel: &Arc<str>, address: &str) -> Result<Url, BadCalls> {
    let known = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    known.ok_or_else(|| BadCalls::Address { setting, channel: Arc::clone(channel) })
}

/// Makes one call; returns when the head of the answer is there.
pub(crate) async fn call(client: &Client, request: Request, deadline: Instant) -> Result<Response, NoAnswer> {
    match timeout_at(deadline, client.execute(request)).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) if error.is_connect() => Err(NoAnswer::Unreachable(cause_of(&error))),
        Ok(Err(error)) => Err(NoAnswer::Broken(cause_of(&error))),
        Err(_) => Err(NoAnswer::TimedOut),
    }
}

/// Reads to the end, so that the connection can be used again.
pub(crate) async fn read(mut response: Response, deadline: Instant) -> Content {
    let mut whole = BytesMut::new();
    loop {
        match timeout_at(deadline, response.chunk()).await {
            Ok(Ok(None)) => return Content::Whole(whole.freeze()),
            Ok(Ok(Some(piece))) if whole.len() + piece.len() > ANSWER_MAX_BYTES => return Content::TooLong,
            Ok(Ok(Some(piece))) => whole.extend_from_slice(&piece),
            Ok(Err(_)) => return Content::BrokeOff,
            Err(_) => return Content::TimedOut,
        }
    }
}

fn cause_of(error: &reqwest::Error) -> String {
    innermost(error).unwrap_or_else(|| "unknown".to_owned())
}

/// The last cause of an error in words, which unlike the whole of it never hold the address; the system's number of it is left out.
pub fn innermost(error: &reqwest::Error) -> Option<String> {
    let mut cause = error.source()?;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let number = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
    let (words, tail) = (cause.to_string(), number.map(|number| format!(" (os error {number})")));
    Some(tail.and_then(|tail| words.strip_suffix(&tail).map(str::to_owned)).unwrap_or(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cause_is_words_without_the_address_and_without_a_number() {
        let port = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.local_addr().expect("an address").port()
        };
        let client = Client::builder().no_proxy().build().expect("a client");
        let error = client.get(format!("http://127.0.0.1:{port}/secret-token")).send().await.expect_err("nobody listens");
        assert_eq!(innermost(&error).as_deref(), Some("Connection refused"));
    }
}
