//! One channel's way to its provider: the request, and what was heard of it.

use std::sync::Arc;
use std::time::Duration;

use hapax_domain::limits::ANSWER_MAX_BYTES;
use hapax_providers::sending::{Call, CallAnswer, CallBody};
use reqwest::{Client, Request, Url};
use tokio::time::Instant;

use crate::http_client::{self, BadCalls, Content, Idle, NoAnswer};
use crate::worker::CallGuard;
use hapax_store::Store;

use super::pieces::PiecesBody;

/// Shorter than servers keep an idle connection: one that they close while we write leaves a send in doubt.
const IDLE: Idle = Idle { most: 256, time: Duration::from_secs(10) };

/// The client that all channels share.
pub(super) fn client() -> Result<Client, BadCalls> {
    http_client::new(&IDLE)
}

/// Puts the call behind the channel's address. With a guard it looks at its lease before its first byte leaves.
pub(super) fn request(base: &str, call: Call, guard: Option<&CallGuard>, store: &Arc<dyn Store>) -> Result<Request, String> {
    let url = Url::parse(&format!("{base}{}", call.path)).map_err(|_| "its request has no valid address".to_owned())?;
    let mut request = Request::new(call.method, url);
    request.headers_mut().extend(call.headers);
    *request.body_mut() = Some(match (call.body, guard) {
        (CallBody::Whole(body), Some(guard)) => guard.body(body),
        (CallBody::Whole(body), None) => body.into(),
        (CallBody::Kept { name, length }, Some(guard)) => reqwest::Body::wrap(PiecesBody::new(store, &name, length, guard)),
        (CallBody::Kept { .. }, None) => return Err("a look-up brings no file".to_owned()),
    });
    Ok(request)
}

/// Why there is no whole answer.
pub(super) struct Silence {
    pub(super) why: String,
    /// False: the request surely never left us.
    pub(super) may_have_left: bool,
}

/// Makes one call.
pub(super) async fn exchange(client: &Client, request: Request, timeout_ms: i64) -> Result<CallAnswer, Silence> {
    let deadline = Instant::now() + Duration::from_millis(timeout_ms.max(1) as u64);
    let lost = |why| Silence { why, may_have_left: true };
    let timed_out = || lost(format!("no answer within {timeout_ms} ms"));
    let response = http_client::call(client, request, deadline).await.map_err(|none| match none {
        NoAnswer::Unreachable(why) => Silence { why: format!("the provider cannot be reached: {why}"), may_have_left: false },
        NoAnswer::Broken(why) => lost(format!("the connection broke after the request may have been written: {why}")),
        NoAnswer::TimedOut => timed_out(),
    })?;
    let (status, headers) = (response.status(), response.headers().clone());
    let why = match http_client::read(response, deadline).await {
        Content::Whole(body) => return Ok(CallAnswer { status, headers, body }),
        Content::TooLong => format!("the answer is longer than {ANSWER_MAX_BYTES} bytes"),
        Content::BrokeOff => "the answer broke off".to_owned(),
        Content::TimedOut => return Err(timed_out()),
    };
    Err(lost(format!("{why}, after status {}", status.as_u16())))
}
