//! A body that is kept in pieces, streamed to the provider as it came from the bot.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax_store::{Store, StoreError};
use hyper::body::{Body, Frame, SizeHint};

use crate::worker::CallGuard;

/// A piece on its way from the store.
type Reading = BoxFuture<'static, Result<Option<Bytes>, StoreError>>;

/// Looks at the lease before its first byte, and holds one piece at a time.
pub(super) struct PiecesBody {
    store: Arc<dyn Store>,
    name: Arc<str>,
    next: u32,
    left: u64,
    /// Taken when the first byte is asked for.
    guard: Option<CallGuard>,
    /// Behind a lock only because a body has to be shareable; nobody shares it.
    reading: Option<Mutex<Reading>>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum NotSent {
    #[error("the lease was too old when the call was to begin")]
    LeaseTooOld,
    #[error("a piece of its file is gone, or is not as long as it was")]
    Gone,
    #[error("a piece of its file cannot be read: {0}")]
    Store(#[source] StoreError),
}

impl PiecesBody {
    pub(super) fn new(store: &Arc<dyn Store>, name: &str, length: u64, guard: &CallGuard) -> Self {
        let guard = Some(guard.clone());
        Self { store: Arc::clone(store), name: Arc::from(name), next: 0, left: length, guard, reading: None }
    }
}

impl Body for PiecesBody {
    type Data = Bytes;
    type Error = NotSent;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, NotSent>>> {
        if let Some(guard) = self.guard.take()
            && !guard.allows()
        {
            return Poll::Ready(Some(Err(NotSent::LeaseTooOld)));
        }
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let (store, name, n) = (Arc::clone(&self.store), Arc::clone(&self.name), self.next);
        let read = move || -> Mutex<Reading> { Mutex::new(Box::pin(async move { store.piece(&name, n).await })) };
        let reading = self.reading.get_or_insert_with(read);
        let polled = reading.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).as_mut().poll(context);
        let piece = ready!(polled);
        self.reading = None;
        Poll::Ready(Some(match piece {
            Ok(Some(piece)) if !piece.is_empty() && piece.len() as u64 <= self.left => {
                self.next += 1;
                self.left -= piece.len() as u64;
                Ok(Frame::data(piece))
            }
            Ok(_) => Err(NotSent::Gone),
            Err(error) => Err(NotSent::Store(error)),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 && self.guard.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
