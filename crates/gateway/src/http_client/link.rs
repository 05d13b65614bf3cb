//! One connection, moved by whoever has a call on it, or by a task of its own when the answer came first.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep};

use super::Body;
use super::connect::Stream;

/// A call that has its answer's head, and in which nothing moves for so long, is given up.
const STILL: Duration = Duration::from_mins(10);

/// How often it is looked whether a call is over. Where the answer was over first and the last of the request goes out in the second try of a
/// round, hyper is done and does not say so: nothing would wake who waits for it.
const LOOK: Duration = Duration::from_secs(1);

pub(super) struct Link {
    sender: SendRequest<Body>,
    /// Nothing: it is closed.
    driver: Option<Connection<TokioIo<Stream>, Body>>,
}

impl Link {
    pub(super) async fn new(stream: Stream) -> hyper::Result<Box<Self>> {
        let (sender, driver) = handshake(stream.for_hyper()).await?;
        Ok(Box::new(Self { sender, driver: Some(driver) }))
    }

    /// Reads and writes what can be by now.
    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.driver
            && Pin::new(driver).poll(cx).is_ready()
        {
            // Whoever still waits for something from it hears so when it is dropped.
            self.driver = None;
        }
    }

    /// Whether the next call may be made on it: the last one has ended, and the other side has not closed it.
    pub(super) fn is_free(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.driver.is_none()
    }

    /// Moves it until both the request and the answer are over, or it is closed, or nothing has moved for [`STILL`].
    pub(super) async fn finish(&mut self) {
        let (mut still, mut look) = (pin!(sleep(STILL)), pin!(sleep(LOOK)));
        std::future::poll_fn(|cx| {
            self.drive(cx);
            if still.is_elapsed() || self.is_closed() || self.sender.is_ready() {
                return Poll::Ready(());
            }
            if look.as_mut().poll(cx).is_pending() {
                still.as_mut().reset(Instant::now() + STILL);
                return still.as_mut().poll(cx);
            }
            look.as_mut().reset(Instant::now() + LOOK);
            match look.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => still.as_mut().poll(cx),
            }
        })
        .await;
    }

    /// Makes a call, up to the head of the answer.
    pub(super) async fn ask(&mut self, request: Request<Body>) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        let mut answer = pin!(self.sender.try_send_request(request));
        std::future::poll_fn(|cx| {
            if let Some(driver) = &mut self.driver
                && Pin::new(driver).poll(cx).is_ready()
            {
                self.driver = None;
            }
            answer.as_mut().poll(cx)
        })
        .await
    }
}
