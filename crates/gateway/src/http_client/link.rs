//! One connection, moved by whoever has a call on it.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper_util::rt::TokioIo;

use super::Body;
use super::connect::Stream;
use super::host::Host;

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

/// What follows the head of an answer. Read to its end, it gives the connection back; dropped before that, it closes it.
pub(crate) struct AnswerBody {
    incoming: Incoming,
    link: Option<Box<Link>>,
    host: Arc<Host>,
}

impl AnswerBody {
    pub(super) fn new(incoming: Incoming, link: Box<Link>, host: Arc<Host>) -> Self {
        let mut body = Self { incoming, link: Some(link), host };
        body.give_back_at_end();
        body
    }

    fn give_back_at_end(&mut self) {
        if self.incoming.is_end_stream()
            && let Some(link) = self.link.take()
        {
            Host::take_back(&self.host, link);
        }
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut polled = Pin::new(&mut self.incoming).poll_frame(cx);
        if polled.is_pending()
            && let Some(link) = &mut self.link
        {
            // It reads on once somebody asks for more.
            link.drive(cx);
            polled = Pin::new(&mut self.incoming).poll_frame(cx);
        }
        match &polled {
            Poll::Ready(Some(Ok(_))) => self.give_back_at_end(),
            Poll::Ready(Some(Err(_))) => self.link = None,
            Poll::Ready(None) => {
                if let Some(link) = self.link.take() {
                    Host::take_back(&self.host, link);
                }
            }
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
