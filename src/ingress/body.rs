//! Reads a request body whole, within a size, a time, and the room all bodies share.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame};

/// The memory that all bodies being handled may take together.
#[derive(Debug)]
pub(super) struct BodyRoom {
    taken: AtomicUsize,
    limit: usize,
}

/// A share of the room, given back when dropped.
#[derive(Debug)]
pub(super) struct Share<'r> {
    room: &'r BodyRoom,
    bytes: usize,
}

impl BodyRoom {
    pub(super) fn new(limit: usize) -> Self {
        Self { taken: AtomicUsize::new(0), limit }
    }

    fn share(&self) -> Share<'_> {
        Share { room: self, bytes: 0 }
    }
}

impl Share<'_> {
    fn grow_to(&mut self, bytes: usize) -> Result<(), BadBody> {
        let more = bytes.saturating_sub(self.bytes);
        let before = self.room.taken.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
        if before.saturating_add(more) > self.room.limit { Err(BadBody::NoRoom) } else { Ok(()) }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadBody {
    TooLarge,
    Slow,
    /// The client went away, or its framing was broken.
    Cut,
    NoRoom,
}

pub(super) async fn read<'r, B>(
    body: B,
    max_bytes: usize,
    time: Duration,
    room: &'r BodyRoom,
) -> Result<(Bytes, Share<'r>), BadBody>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut share = room.share();
    if let Some(announced) = body.size_hint().exact() {
        // Only a promise so far: room is taken by bytes that came, or idle sockets could announce it all away.
        if announced > max_bytes as u64 {
            return Err(BadBody::TooLarge);
        }
    }
    let bytes = tokio::time::timeout(time, read_frames(body, max_bytes, &mut share)).await.map_err(|_| BadBody::Slow)??;
    Ok((bytes, share))
}

async fn read_frames<B>(mut body: B, max_bytes: usize, share: &mut Share<'_>) -> Result<Bytes, BadBody>
where
    B: Body<Data = Bytes> + Unpin,
{
    let Some(first) = next_data(&mut body).await? else { return Ok(Bytes::new()) };
    if first.len() > max_bytes {
        return Err(BadBody::TooLarge);
    }
    share.grow_to(first.len())?;
    // The usual webhook comes in one piece and is never copied.
    if body.is_end_stream() {
        return Ok(first);
    }
    let Some(second) = next_data(&mut body).await? else { return Ok(first) };
    let mut whole = BytesMut::with_capacity(first.len() + second.len());
    whole.extend_from_slice(&first);
    let mut next = Some(second);
    while let Some(data) = next {
        if whole.len() + data.len() > max_bytes {
            return Err(BadBody::TooLarge);
        }
        share.grow_to(whole.len() + data.len())?;
        whole.extend_from_slice(&data);
        next = next_data(&mut body).await?;
    }
    Ok(whole.freeze())
}

async fn next_data<B>(body: &mut B) -> Result<Option<Bytes>, BadBody>
where
    B: Body<Data = Bytes> + Unpin,
{
    loop {
        match poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await.map(|frame| frame.map(Frame::into_data)) {
            None => return Ok(None),
            Some(Ok(Ok(data))) if data.is_empty() => {}
            Some(Ok(Ok(data))) => return Ok(Some(data)),
            // Trailers say nothing about a webhook.
            Some(Ok(Err(_))) => {}
            Some(Err(_)) => return Err(BadBody::Cut),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{Full, StreamBody};
    use std::task::{Context, Poll};

    const TIME: Duration = Duration::from_secs(30);

    fn pieces(pieces: &[&'static str]) -> impl Body<Data = Bytes, Error = std::io::Error> + Unpin + use<> {
        let frames: Vec<_> = pieces.iter().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))).collect();
        StreamBody::new(futures_util::stream::iter(frames))
    }

    #[tokio::test]
    async fn one_piece_is_not_copied() {
        let room = BodyRoom::new(100);
        let sent = Bytes::from_static(b"hello");
        let (read, _share) = read(Full::new(sent.clone()), 10, TIME, &room).await.expect("reads");
        assert_eq!(read.as_ptr(), sent.as_ptr());
    }

    #[tokio::test]
    async fn pieces_are_joined_and_counted() {
        let room = BodyRoom::new(100);
        let (whole, share) = read(pieces(&["ab", "", "cd", "e"]), 5, TIME, &room).await.expect("reads");
        assert_eq!(whole, "abcde");
        assert_eq!(room.taken.load(Ordering::Relaxed), 5);
        drop(share);
        assert_eq!(room.taken.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn too_large_is_refused_announced_or_not_and_leaves_no_trace() {
        let room = BodyRoom::new(100);
        assert_eq!(read(Full::new(Bytes::from_static(b"abcdef")), 5, TIME, &room).await.err(), Some(BadBody::TooLarge));
        assert_eq!(read(pieces(&["abc", "def"]), 5, TIME, &room).await.err(), Some(BadBody::TooLarge));
        assert_eq!(room.taken.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn without_room_nothing_is_read() {
        let room = BodyRoom::new(8);
        let held = read(Full::new(Bytes::from_static(b"abcdef")), 10, TIME, &room).await.expect("fits");
        assert_eq!(read(Full::new(Bytes::from_static(b"abcdef")), 10, TIME, &room).await.err(), Some(BadBody::NoRoom));
        drop(held);
        assert!(read(Full::new(Bytes::from_static(b"abcdef")), 10, TIME, &room).await.is_ok());
    }

    #[tokio::test]
    async fn what_was_only_announced_takes_no_room() {
        let room = BodyRoom::new(8);
        let mut waiting = Vec::new();
        for _ in 0..5 {
            let mut reading = Box::pin(read(Announced(8), 10, TIME, &room));
            assert!(futures_util::poll!(&mut reading).is_pending());
            waiting.push(reading);
        }
        assert!(read(Full::new(Bytes::from_static(b"abcdef")), 10, TIME, &room).await.is_ok());
        assert_eq!(read(Announced(11), 10, TIME, &room).await.err(), Some(BadBody::TooLarge));
    }

    /// Says how much will come, and sends nothing.
    struct Announced(u64);

    impl Body for Announced {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            Poll::Pending
        }

        fn size_hint(&self) -> hyper::body::SizeHint {
            hyper::body::SizeHint::with_exact(self.0)
        }
    }

    #[tokio::test]
    async fn a_body_that_never_comes_is_given_up() {
        let room = BodyRoom::new(100);
        let never = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, std::io::Error>>());
        assert_eq!(read(never, 10, Duration::from_millis(1), &room).await.err(), Some(BadBody::Slow));
    }
}
