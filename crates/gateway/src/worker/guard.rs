//! The last look at a lease, when the first byte of a call is about to leave.
//!
//! A process can be stopped at any point and for any time (swap, a moved machine, SIGSTOP). What was ours when we last looked may be
//! somebody else's when we go on. So it is the body of the request that looks: it is asked for its bytes when the connection stands
//! and nothing has been written yet.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hapax_store::clock::{Clock, Moment};
use hyper::body::{Body, Frame, SizeHint};

use crate::http_client;

/// This part of a lease is left over: nobody begins a call in it that would reach the other side when the lease is over.
const MARGIN: i64 = 10;

/// When a lease was asked for, and how long it holds from then.
pub(super) struct Age {
    asked: Mutex<Moment>,
    hold_ms: i64,
    clock: Arc<dyn Clock>,
}

impl Age {
    pub(super) fn new(asked: Moment, hold_ms: i64, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { asked: Mutex::new(asked), hold_ms, clock })
    }

    /// The lease was extended by a request that was sent at this moment.
    pub(super) fn renew(&self, asked: Moment) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = asked;
    }

    fn allows_a_call(&self) -> bool {
        let asked = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.elapsed_ms(&*self.clock) < self.hold_ms - self.hold_ms / MARGIN
    }
}

/// Lets one call go, or refuses it, by the age of its lease.
#[derive(Clone)]
pub struct CallGuard(Arc<Seen>);

struct Seen {
    age: Arc<Age>,
    let_go: AtomicBool,
    refused: AtomicBool,
}

impl CallGuard {
    pub(super) fn new(age: Arc<Age>) -> Self {
        Self(Arc::new(Seen { age, let_go: AtomicBool::new(false), refused: AtomicBool::new(false) }))
    }

    /// The body of the call: looks at the lease before it gives its bytes.
    pub(crate) fn body(&self, bytes: Bytes) -> http_client::Body {
        http_client::flowing(GuardedBody { bytes: Some(bytes), guard: self.clone() })
    }

    /// True from when on the other side may have been reached.
    pub fn let_go(&self) -> bool {
        self.0.let_go.load(Ordering::Acquire)
    }

    /// True when the lease was too old: nothing has left.
    pub fn refused(&self) -> bool {
        self.0.refused.load(Ordering::Acquire)
    }

    /// Looks at the lease, when the first byte is about to leave; false: it must not.
    pub fn allows(&self) -> bool {
        self.look().is_ok()
    }

    fn look(&self) -> Result<(), LeaseTooOld> {
        if self.0.age.allows_a_call() {
            self.0.let_go.store(true, Ordering::Release);
            Ok(())
        } else {
            self.0.refused.store(true, Ordering::Release);
            Err(LeaseTooOld)
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the lease was too old when the call was to begin")]
struct LeaseTooOld;

struct GuardedBody {
    bytes: Option<Bytes>,
    guard: CallGuard,
}

impl Body for GuardedBody {
    type Data = Bytes;
    type Error = LeaseTooOld;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, LeaseTooOld>>> {
        let Some(bytes) = self.bytes.take() else { return Poll::Ready(None) };
        Poll::Ready(Some(self.guard.look().map(|()| Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.bytes {
            // A body that is known to be empty is never asked for, and the lease would not be looked at.
            Some(bytes) if bytes.is_empty() => SizeHint::default(),
            bytes => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hapax_testkit::hand_clock::HandClock;

    use super::*;
    use crate::http_client::{Client, Idle, Request};

    const HOLD_MS: i64 = 60_000;

    fn aged(clock: &HandClock) -> Arc<Age> {
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        Age::new(Moment::now(&*shared), HOLD_MS, shared)
    }

    #[test]
    fn a_lease_that_is_nearly_over_begins_no_call() {
        let clock = HandClock::at(0);
        let age = aged(&clock);
        clock.advance(HOLD_MS - HOLD_MS / 10 - 1);
        assert!(age.allows_a_call());
        clock.advance(1);
        assert!(!age.allows_a_call());
    }

    #[test]
    fn it_is_as_old_as_the_clock_says_that_went_further() {
        let clock = HandClock::at(0);
        let age = aged(&clock);
        clock.step_wall(HOLD_MS);
        assert!(!age.allows_a_call(), "the machine slept, and only the wall clock was told");
        clock.step_wall(-2 * HOLD_MS);
        assert!(age.allows_a_call(), "set back: the other clock knows");
        clock.advance(HOLD_MS);
        assert!(!age.allows_a_call());
    }

    #[test]
    fn an_extended_lease_counts_from_when_the_extension_was_asked_for() {
        let clock = HandClock::at(0);
        let age = aged(&clock);
        clock.advance(HOLD_MS / 2);
        let asked = Moment::now(&clock);
        // The answer took long.
        clock.advance(HOLD_MS / 2);
        assert!(!age.allows_a_call());
        age.renew(asked);
        assert!(age.allows_a_call());
        clock.advance(HOLD_MS / 2);
        assert!(!age.allows_a_call());
    }

    /// Also a body that is empty: nobody asks for the bytes of one that is known to have none.
    #[tokio::test]
    async fn a_call_under_an_old_lease_sends_not_one_byte() {
        for body in ["hello", ""] {
            an_old_lease_sends_nothing(Bytes::from_static(body.as_bytes())).await;
        }
    }

    async fn an_old_lease_sends_nothing(body: Bytes) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let clock = HandClock::at(0);
        let guard = CallGuard::new(aged(&clock));
        let client = Client::new(Idle { most: 1, time: Duration::from_secs(1) }).expect("a client");
        let to = client.named("target", &"shop".into(), &url).expect("an address");
        let request = Request { to, method: http::Method::POST, headers: http::HeaderMap::new(), body: guard.body(body) };
        let call = http_client::call_patiently(request);
        // The process stands still while the connection is being made.
        clock.advance(HOLD_MS);
        let (answer, taken) = tokio::join!(call, listener.accept());
        assert!(answer.is_err() && guard.refused() && !guard.let_go());
        let mut heard = Vec::new();
        let (mut socket, _) = taken.expect("a connection");
        tokio::io::AsyncReadExt::read_to_end(&mut socket, &mut heard).await.expect("it ends");
        assert_eq!(heard, b"");
    }
}
