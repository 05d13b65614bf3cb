//! A body on its way, of which a copy stays here.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::Eye;

/// A body longer than this is passed on and not read.
const COPY_MAX_BYTES: usize = 26 << 20;

/// Passes frames on; when the last has passed, `end` gets the copy.
pub(super) struct Tee<E: FnOnce(Bytes)> {
    body: Incoming,
    eye: Eye,
    /// `None`: it was too long, or there was no room.
    copy: Option<BytesMut>,
    end: Option<E>,
}

impl<E: FnOnce(Bytes)> Tee<E> {
    pub(super) fn new(body: Incoming, eye: Eye, end: E) -> Self {
        let mut tee = Self { body, eye, copy: Some(BytesMut::new()), end: Some(end) };
        tee.ended();
        tee
    }

    fn keep(&mut self, data: &Bytes) {
        let Some(copy) = &mut self.copy else { return };
        if copy.len() + data.len() <= COPY_MAX_BYTES && self.eye.hold(data.len()) {
            copy.extend_from_slice(data);
        } else {
            self.eye.let_go(copy.len());
            self.copy = None;
        }
    }

    /// Looks whether that was all.
    fn ended(&mut self) {
        if self.body.is_end_stream()
            && let Some(end) = self.end.take()
        {
            match self.copy.take() {
                Some(copy) => end(copy.freeze()),
                None => self.eye.missed(),
            }
        }
    }
}

impl<E: FnOnce(Bytes) + Unpin> Body for Tee<E> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.keep(data);
                }
                self.ended();
            }
            Poll::Ready(None) => self.ended(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<E: FnOnce(Bytes)> Drop for Tee<E> {
    /// It broke off: there is nothing to read.
    fn drop(&mut self) {
        if let Some(copy) = self.copy.take() {
            self.eye.let_go(copy.len());
        }
    }
}
