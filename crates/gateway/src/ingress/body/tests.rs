use http_body_util::{Full, StreamBody};
use std::net::Ipv4Addr;
use std::task::{Context, Poll};

use super::*;

const TIME: Duration = Duration::from_secs(30);
const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

fn within<'r>(room: &'r BodyRoom, channel: &'r ChannelRoom, from: IpAddr) -> Within<'r> {
    Within { room, channel, from, time: TIME }
}

fn pieces(pieces: &[&'static str]) -> impl Body<Data = Bytes, Error = std::io::Error> + Unpin + use<> {
    let frames: Vec<_> = pieces.iter().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))).collect();
    StreamBody::new(futures_util::stream::iter(frames))
}

/// Sends a few bytes and then nothing more.
fn stalled(bytes: usize) -> impl Body<Data = Bytes, Error = std::io::Error> + Unpin {
    use futures_util::StreamExt;
    let first = futures_util::stream::iter([Ok(Frame::data(Bytes::from(vec![b'x'; bytes])))]);
    StreamBody::new(first.chain(futures_util::stream::pending()))
}

#[tokio::test]
async fn one_long_piece_is_not_copied_and_a_short_one_holds_nothing_else() {
    let room = BodyRoom::new(100_000);
    let channel = room.channel(10_000);
    for (length, is_copied) in [(5, true), (COPIED_MAX, true), (COPIED_MAX + 1, false)] {
        let sent = Bytes::from(vec![b'x'; length]);
        let (read, _share) = read(Full::new(sent.clone()), within(&room, &channel, ONE)).await.expect("reads");
        assert_eq!(read, sent);
        assert_eq!(read.as_ptr() != sent.as_ptr(), is_copied, "{length}");
    }
}

#[tokio::test]
async fn pieces_are_joined_and_counted() {
    let room = BodyRoom::new(100);
    let channel = room.channel(5);
    let (whole, mut share) = read(pieces(&["ab", "", "cd", "e"]), within(&room, &channel, ONE)).await.expect("reads");
    assert_eq!(whole, "abcde");
    assert_eq!((room.taken.load(Ordering::Relaxed), channel.taken.load(Ordering::Relaxed)), (5, 5));
    assert_eq!(room.strangers().by_address[&ONE], 5);
    share.proved();
    assert!(room.strangers().by_address.is_empty() && room.strangers().readers.is_empty());
    assert_eq!(room.taken.load(Ordering::Relaxed), 5);
    drop(share);
    assert_eq!((room.taken.load(Ordering::Relaxed), channel.taken.load(Ordering::Relaxed)), (0, 0));
}

#[tokio::test]
async fn too_large_is_refused_announced_or_not_and_leaves_no_trace() {
    let room = BodyRoom::new(100);
    let channel = room.channel(5);
    let read_it = async |body| read(body, within(&room, &channel, ONE)).await.err();
    assert_eq!(read(Full::new(Bytes::from_static(b"abcdef")), within(&room, &channel, ONE)).await.err(), Some(BadBody::TooLarge));
    assert_eq!(read_it(pieces(&["abc", "def"])).await, Some(BadBody::TooLarge));
    assert_eq!(drain(pieces(&["abc", "def"]), 5, TIME).await, Err(BadBody::TooLarge));
    assert_eq!(drain(pieces(&["abc", "de"]), 5, TIME).await, Ok(()));
    assert_eq!(room.taken.load(Ordering::Relaxed), 0);
    assert!(room.strangers().by_address.is_empty() && room.strangers().readers.is_empty());
}

#[tokio::test]
async fn without_room_nothing_is_read() {
    let room = BodyRoom::new(8);
    let channel = room.channel(10);
    let body = || Full::new(Bytes::from_static(b"abcdef"));
    let held = read(body(), within(&room, &channel, ONE)).await.expect("fits");
    assert_eq!(read(body(), within(&room, &channel, ONE)).await.err(), Some(BadBody::NoRoom));
    drop(held);
    assert!(read(body(), within(&room, &channel, ONE)).await.is_ok());
}

#[tokio::test]
async fn an_address_has_a_share_until_it_is_believed() {
    let room = BodyRoom::new(100);
    let channel = room.channel(20);
    let mut first = Box::pin(read(stalled(20), within(&room, &channel, ONE)));
    assert!(futures_util::poll!(&mut first).is_pending());
    assert_eq!(read(pieces(&["abcd", "efgh"]), within(&room, &channel, ONE)).await.err(), Some(BadBody::NoRoom), "25 in all");
    assert!(read(pieces(&["abcd", "efgh"]), within(&room, &channel, OTHER)).await.is_ok());
    assert!(
        read(Full::new(Bytes::from_static(b"abcdefgh")), within(&room, &channel, ONE)).await.is_ok(),
        "one piece is no burden"
    );
}

#[tokio::test]
async fn strangers_cannot_take_all_the_room_and_the_oldest_goes_first() {
    let room = BodyRoom::new(100);
    let (shop, help) = (room.channel(25), room.channel(25));
    let mut stalls = Vec::new();
    for n in 0..4 {
        let channel = if n < 2 { &shop } else { &help };
        let from = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10 + n));
        let mut stall = Box::pin(read(stalled(25), within(&room, channel, from)));
        assert!(futures_util::poll!(&mut stall).is_pending());
        stalls.push(stall);
    }
    assert_eq!(room.taken.load(Ordering::Relaxed), 100, "every byte is taken");
    let mut real = Box::pin(read(Full::new(Bytes::from_static(b"abcdef")), within(&room, &help, ONE)));
    assert!(futures_util::poll!(&mut real).is_pending(), "it waits for the room that is being given up");
    let mut cut = Vec::new();
    for stall in &mut stalls {
        cut.push(matches!(futures_util::poll!(&mut *stall), Poll::Ready(Err(BadBody::NoRoom))));
    }
    assert_eq!(cut, [false, false, true, false], "the oldest of the channel that has no room");
    drop(stalls.remove(2));
    assert!(real.await.is_ok());
}

#[tokio::test]
async fn what_was_only_announced_takes_no_room() {
    let room = BodyRoom::new(8);
    let channel = room.channel(10);
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let mut reading = Box::pin(read(Announced(8), within(&room, &channel, ONE)));
        assert!(futures_util::poll!(&mut reading).is_pending());
        waiting.push(reading);
    }
    assert!(read(Full::new(Bytes::from_static(b"abcdef")), within(&room, &channel, ONE)).await.is_ok());
    assert_eq!(read(Announced(11), within(&room, &channel, ONE)).await.err(), Some(BadBody::TooLarge));
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
    let channel = room.channel(10);
    let never = || StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, std::io::Error>>());
    let soon = Within { time: Duration::from_millis(1), ..within(&room, &channel, ONE) };
    assert_eq!(read(never(), soon).await.err(), Some(BadBody::Slow));
    assert_eq!(drain(never(), 10, Duration::from_millis(1)).await, Err(BadBody::Slow));
}
