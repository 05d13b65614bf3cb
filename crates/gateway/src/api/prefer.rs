//! `Prefer: wait=n` (RFC 7240): the answer waits until the message has left, or not.

use std::time::Duration;

use axum::response::Response;
use hapax_domain::limits::SEND_WAIT_MAX_S;
use hapax_domain::{MessageId, Status};
use hapax_store::{MessageRow, Store};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use super::Problem;

pub(super) const APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// The hint may be lost: so often it is looked anyway.
const POLL: Duration = Duration::from_millis(500);
/// The hint comes with every other message too: no more often than this it is looked.
const REST: Duration = Duration::from_millis(20);

/// Reads how long the caller would wait; more than the limit is cut to it, and other preferences are not ours.
pub(super) fn wait(headers: &HeaderMap) -> Result<Option<Duration>, Problem> {
    wait_up_to(headers, SEND_WAIT_MAX_S)
}

pub(super) fn wait_up_to(headers: &HeaderMap, most_s: u64) -> Result<Option<Duration>, Problem> {
    let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    for preference in values.flat_map(|value| value.split([',', ';'])) {
        let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
        if name.trim().eq_ignore_ascii_case("wait") {
            let seconds: u64 = value.trim().trim_matches('"').parse().map_err(|_| {
                Problem::bad_request(format!("`Prefer: wait=n` takes whole seconds, 0 to {most_s}: `Prefer: wait=4`"))
            })?;
            return Ok(Some(Duration::from_secs(seconds.min(most_s))));
        }
    }
    Ok(None)
}

/// Says how long was waited at most.
pub(super) fn applied(response: &mut Response, wait: Duration) {
    if let Ok(value) = HeaderValue::try_from(format!("wait={}", wait.as_secs())) {
        response.headers_mut().insert(APPLIED, value);
    }
}

/// Waits until the message is neither queued nor being sent, and gives its last known row when the time is over.
///
/// A store that cannot be read meanwhile is no failure: the message is stored, only its outcome is not known yet.
pub(super) async fn outcome(store: &dyn Store, id: MessageId, wait: Option<Duration>) -> Option<MessageRow> {
    let deadline = Instant::now() + wait.unwrap_or_default();
    loop {
        let hint = store.wait();
        let row = store.message(id).await.ok().flatten();
        let left = row.as_ref().is_some_and(|row| !matches!(row.steps.status(), Status::Queued | Status::Sending));
        if left || Instant::now() >= deadline {
            return row;
        }
        let rested = (Instant::now() + REST).min(deadline);
        let _ = tokio::time::timeout_at(deadline.min(Instant::now() + POLL), hint).await;
        tokio::time::sleep_until(rested).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &'static str) -> Result<Option<u64>, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert("prefer", http::HeaderValue::from_static(value));
        wait(&headers).map(|wait| wait.map(|wait| wait.as_secs()))
    }

    #[test]
    fn waits_are_found_among_other_preferences_and_cut() {
        assert_eq!(read("wait=4").expect("read"), Some(4));
        assert_eq!(read("respond-async, Wait = 10").expect("read"), Some(10));
        assert_eq!(read("wait=86400").expect("read"), Some(25));
        assert_eq!(read("return=minimal").expect("read"), None);
        assert!(read("wait=soon").is_err());
        assert!(read("wait=-1").is_err());
    }
}
