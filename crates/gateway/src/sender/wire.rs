//! One channel's way to its provider: the request, and what was heard of it.

use std::sync::Arc;
use std::time::Duration;

use hapax_domain::limits::ANSWER_MAX_BYTES;
use hapax_providers::sending::{Call, CallAnswer, CallBody};
use tokio::time::Instant;

use crate::http_client::{self, BadCalls, Base, Client, Content, Idle, NoAnswer, Request};
use crate::worker::CallGuard;
use hapax_store::Store;

use super::pieces::PiecesBody;

/// Shorter than servers keep an idle connection: one that they close while we write leaves a send in doubt.
const IDLE: Idle = Idle { most: 256, time: Duration::from_secs(10) };

/// The client that all channels share.
pub(super) fn client() -> Result<Client, BadCalls> {
    Client::new(IDLE)
}

/// Puts the call behind the channel's address. With a guard it looks at its lease before its first byte leaves.
pub(super) fn request(base: &Base, call: Call, guard: Option<&CallGuard>, store: &Arc<dyn Store>) -> Result<Request, String> {
    let to = base.at(&call.path).ok_or("its request has no valid address")?;
    let body = match (call.body, guard) {
        (CallBody::Whole(body), Some(guard)) => guard.body(body),
        (CallBody::Whole(body), None) => http_client::whole(body),
        (CallBody::Kept { name, length }, Some(guard)) => http_client::flowing(PiecesBody::new(store, &name, length, guard)),
        (CallBody::Kept { .. }, None) => return Err("a look-up brings no file".to_owned()),
    };
    Ok(Request { to, method: call.method, headers: call.headers.into_iter().collect(), body })
}

/// Why there is no whole answer.
pub(super) struct Silence {
    pub(super) why: String,
    /// False: the request surely never left us.
    pub(super) may_have_left: bool,
}

/// Makes one call.
pub(super) async fn exchange(request: Request, timeout_ms: i64) -> Result<CallAnswer, Silence> {
    let deadline = Instant::now() + Duration::from_millis(timeout_ms.max(1) as u64);
    let lost = |why| Silence { why, may_have_left: true };
    let timed_out = || lost(format!("no answer within {timeout_ms} ms"));
    let response = http_client::call(request, deadline).await.map_err(|none| match none {
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
