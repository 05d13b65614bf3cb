//! One channel's way to its provider: the request, and what was heard of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hapax_domain::limits::ANSWER_MAX_BYTES;
use hapax_providers::sending::{Call, CallAnswer};
use reqwest::{Client, Request, Url, redirect};

use super::judge::Heard;
use crate::delivery::innermost;
use crate::worker::CallGuard;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Shorter than servers keep an idle connection: one that they close while we write leaves a send in doubt.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// Why a channel cannot send. Does not repeat the address, which may hold a token.
#[derive(Debug, thiserror::Error)]
pub enum BadSending {
    #[error("the api_base of channel `{0}` is not an http or https address")]
    Address(Arc<str>),
    #[error("the HTTP client could not be made: {0}")]
    Client(#[source] reqwest::Error),
}

/// Why there is no whole answer.
pub(super) enum NoAnswer {
    /// The request surely never reached the provider.
    Unreachable(String),
    Lost(String),
}

/// The client that all channels share. It repeats nothing by itself: whether to try again is decided in one place, and not here.
pub(super) fn client() -> Result<Client, BadSending> {
    Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy()
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_TIME)
        .pool_max_idle_per_host(256)
        .tcp_nodelay(true)
        .http1_only()
        .build()
        .map_err(BadSending::Client)
}

pub(super) fn check_base(channel: &Arc<str>, base: &str) -> Result<(), BadSending> {
    let known = Url::parse(base).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    if known { Ok(()) } else { Err(BadSending::Address(Arc::clone(channel))) }
}

/// Puts the call behind the channel's address.
pub(super) fn request(base: &str, call: Call) -> Result<Request, String> {
    let url = Url::parse(&format!("{base}{}", call.path)).map_err(|_| "its request has no valid address".to_owned())?;
    let mut request = Request::new(call.method, url);
    request.headers_mut().extend(call.headers);
    *request.body_mut() = Some(call.body.into());
    Ok(request)
}

/// Makes the request look at its lease before its first byte leaves.
pub(super) fn guard(request: &mut Request, guard: &CallGuard) {
    let bytes = request.body().and_then(reqwest::Body::as_bytes).map(Bytes::copy_from_slice).unwrap_or_default();
    *request.body_mut() = Some(guard.body(bytes));
}

/// Makes one call.
pub(super) async fn exchange(client: &Client, request: Request, timeout_ms: i64) -> Result<CallAnswer, NoAnswer> {
    let timeout = Duration::from_millis(timeout_ms.max(1) as u64);
    let answer = tokio::time::timeout(timeout, async {
        let response = client.execute(request).await.map_err(|error| no_answer(&error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read(response).await.map_err(|why| NoAnswer::Lost(format!("{why}, after status {}", status.as_u16())))?;
        Ok(CallAnswer { status, headers, body })
    });
    answer.await.unwrap_or_else(|_| Err(NoAnswer::Lost(format!("no answer within {timeout_ms} ms"))))
}

async fn read(mut response: reqwest::Response) -> Result<Bytes, String> {
    let mut whole = BytesMut::new();
    loop {
        match response.chunk().await {
            Ok(None) => return Ok(whole.freeze()),
            Ok(Some(piece)) if whole.len() + piece.len() > ANSWER_MAX_BYTES => {
                return Err(format!("the answer is longer than {ANSWER_MAX_BYTES} bytes"));
            }
            Ok(Some(piece)) => whole.extend_from_slice(&piece),
            Err(_) => return Err("the answer broke off".to_owned()),
        }
    }
}

fn no_answer(error: &reqwest::Error) -> NoAnswer {
    // Never the whole error: it holds the address, and Telegram's holds the token.
    if error.is_connect() {
        NoAnswer::Unreachable(format!("the provider cannot be reached: {}", innermost(error)))
    } else {
        NoAnswer::Lost(format!("the connection broke after the request may have been written: {}", innermost(error)))
    }
}

impl From<NoAnswer> for Heard {
    fn from(none: NoAnswer) -> Self {
        match none {
            NoAnswer::Unreachable(why) => Heard::Unreachable(why),
            NoAnswer::Lost(why) => Heard::Nothing(why),
        }
    }
}

impl NoAnswer {
    pub(super) fn why(self) -> String {
        match self {
            NoAnswer::Unreachable(why) | NoAnswer::Lost(why) => why,
        }
    }
}
