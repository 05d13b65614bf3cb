//! A connection whose other side must take what it asked for.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Passes everything on, and fails a write that made no progress for too long: a client that never reads its answers would otherwise
/// hold its connection, and the answers, for ever.
pub(crate) struct Patience<S> {
    stream: S,
    write_timeout: Duration,
    /// Kept while a write waits.
    overdue: Option<Pin<Box<Sleep>>>,
    moved: Moved,
}

/// How much has come and gone on a connection.
#[derive(Clone, Default)]
pub(super) struct Moved(Arc<AtomicU64>);

impl Moved {
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl<S> Patience<S> {
    pub(crate) fn new(stream: S, write_timeout: Duration) -> Self {
        Self { stream, write_timeout, overdue: None, moved: Moved::default() }
    }

    pub(super) fn moved(&self) -> Moved {
        self.moved.clone()
    }

    fn mind(&mut self, written: Poll<io::Result<usize>>, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written {
            self.overdue = None;
            return Poll::Ready(written.inspect(|bytes| self.moved.add(*bytes)));
        }
        let deadline = Instant::now() + self.write_timeout;
        let overdue = self.overdue.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        overdue.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patience<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        self.moved.add(into.filled().len() - before);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patience<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.mind(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.stream);
        let written = match together(pieces, &mut [0; SHORT]) {
            Some(bytes) => stream.poll_write(context, bytes),
            None => stream.poll_write_vectored(context, pieces),
        };
        self.mind(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The head and the body of most answers fit in so much.
const SHORT: usize = 512;

/// Puts short pieces into one: a plain write costs the kernel less than one of several pieces.
fn together<'s>(pieces: &[io::IoSlice<'_>], short: &'s mut [u8; SHORT]) -> Option<&'s [u8]> {
    let mut filled = 0;
    for piece in pieces {
        let end = filled + piece.len();
        short.get_mut(filled..end)?.copy_from_slice(piece);
        filled = end;
    }
    short.get(..filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_write_that_nobody_takes_fails_in_time() {
        let (ours, _theirs) = tokio::io::duplex(4);
        let error = Patience::new(ours, Duration::from_millis(1)).write_all(b"too much").await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn short_pieces_go_out_as_one_and_long_ones_as_they_are() {
        let long = [b'x'; SHORT];
        let pieces = |first, second| [io::IoSlice::new(first), io::IoSlice::new(second)];
        assert_eq!(together(&pieces(b"head", b"body"), &mut [0; SHORT]), Some(&b"headbody"[..]));
        assert_eq!(together(&pieces(&long, b""), &mut [0; SHORT]), Some(&long[..]));
        assert_eq!(together(&pieces(b"head", &long), &mut [0; SHORT]), None);

        let (ours, mut theirs) = tokio::io::duplex(4 * SHORT);
        let mut ours = Patience::new(ours, Duration::from_secs(60));
        assert_eq!(ours.write_vectored(&pieces(b"head", b"body")).await.expect("room"), 8);
        assert_eq!(ours.write_vectored(&pieces(b"head", &long)).await.expect("room"), 4 + SHORT);
        let mut heard = [0; 12];
        theirs.read_exact(&mut heard).await.expect("both");
        assert_eq!(&heard, b"headbodyhead");
    }

    #[tokio::test]
    async fn progress_starts_the_time_anew() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut ours = Patience::new(ours, Duration::from_secs(60));
        ours.write_all(b"four").await.expect("room");
        assert!(futures_util::poll!(std::pin::pin!(ours.write(b"more"))).is_pending());
        assert!(ours.overdue.is_some());
        theirs.read_exact(&mut [0; 4]).await.expect("the first four");
        ours.write_all(b"more").await.expect("room again");
        assert!(ours.overdue.is_none());
    }
}
