//! Reads a request body whole, within a size, a time, and the shares of the room that all bodies have: the channel's and, until the request
//! is believed, the address's. Where there is no room, the stranger that has been at it longest makes some.

use std::collections::{BTreeMap, HashMap};
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// A body that is so short is copied out of what it was read into: that can be read into again, while the body waits for the store.
const COPIED_MAX: usize = 4_096;
/// What one channel may take of the room, and what one address may before it has proved anything.
const SHARE_OF_CHANNEL: usize = 2;
const SHARE_OF_ADDRESS: usize = 4;
/// How long a body waits for the room that another gives up.
const ROOM_PATIENCE: Duration = Duration::from_millis(500);

/// The memory that all bodies being handled may take together.
#[derive(Debug)]
pub(super) struct BodyRoom {
    taken: AtomicUsize,
    limit: usize,
    strangers: Mutex<Strangers>,
    /// How many wait for room. Whoever gives some back and whoever waits see each other's last step, so nobody is forgotten.
    waiting: AtomicUsize,
    freed: Notify,
}

/// What one channel has of it.
#[derive(Debug)]
pub(super) struct ChannelRoom {
    taken: AtomicUsize,
    limit: usize,
    max_body: usize,
}

/// Bodies that come in pieces, of requests that are not believed yet. One that comes whole is looked at before anybody else could wait for it.
#[derive(Debug, Default)]
struct Strangers {
    last: u64,
    readers: BTreeMap<u64, Reader>,
    by_address: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Reader {
    from: IpAddr,
    bytes: usize,
    /// Tells channels apart.
    channel: usize,
    cut: CancellationToken,
}

/// A share of the room, given back when dropped.
#[derive(Debug)]
pub(super) struct Share<'r> {
    room: &'r BodyRoom,
    channel: &'r ChannelRoom,
    bytes: usize,
    stranger: Option<u64>,
}

impl BodyRoom {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            taken: AtomicUsize::new(0),
            limit,
            strangers: Mutex::default(),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
        }
    }

    pub(super) fn channel(&self, max_body: usize) -> ChannelRoom {
        ChannelRoom { taken: AtomicUsize::new(0), limit: (self.limit / SHARE_OF_CHANNEL).max(max_body), max_body }
    }

    fn strangers(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts off the oldest stranger but one; of one channel, where that has no room.
    fn cut_oldest(&self, but: Option<u64>, channel: Option<usize>) -> bool {
        let strangers = self.strangers();
        let fits = |reader: &Reader| !reader.cut.is_cancelled() && channel.is_none_or(|channel| reader.channel == channel);
        let oldest = strangers.readers.iter().find(|(id, reader)| Some(**id) != but && reader.bytes > 0 && fits(reader));
        oldest.inspect(|(_, reader)| reader.cut.cancel()).is_some()
    }
}

impl ChannelRoom {
    pub(super) fn max_body(&self) -> usize {
        self.max_body
    }

    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Adds to a count unless that goes beyond the limit.
fn add(taken: &AtomicUsize, more: usize, limit: usize) -> bool {
    let added = taken.fetch_add(more, Ordering::SeqCst).saturating_add(more) <= limit;
    if !added {
        taken.fetch_sub(more, Ordering::Relaxed);
    }
    added
}

impl Share<'_> {
    fn register(&mut self, from: IpAddr) -> CancellationToken {
        let (cut, channel) = (CancellationToken::new(), self.channel.id());
        let mut strangers = self.room.strangers();
        strangers.last += 1;
        let id = strangers.last;
        strangers.readers.insert(id, Reader { from, bytes: 0, channel, cut: cut.clone() });
        self.stranger = Some(id);
        cut
    }

    /// The request is believed: it is no stranger's any more.
    pub(super) fn proved(&mut self) {
        let Some(id) = self.stranger.take() else { return };
        let mut strangers = self.room.strangers();
        if let Some(reader) = strangers.readers.remove(&id)
            && let Some(held) = strangers.by_address.get_mut(&reader.from)
        {
            *held = held.saturating_sub(reader.bytes);
            if *held == 0 {
                strangers.by_address.remove(&reader.from);
            }
        }
    }

    async fn grow_to(&mut self, bytes: usize) -> Result<(), BadBody> {
        let more = bytes.saturating_sub(self.bytes);
        self.count_for_address(more)?;
        if self.take(more).is_ok() {
            return Ok(());
        }
        let deadline = tokio::time::Instant::now() + ROOM_PATIENCE;
        let _waits = Waits::new(&self.room.waiting);
        loop {
            let freed = self.room.freed.notified();
            let Err(which) = self.take(more) else { return Ok(()) };
            if !self.room.cut_oldest(self.stranger, which) || tokio::time::timeout_at(deadline, freed).await.is_err() {
                return Err(BadBody::NoRoom);
            }
        }
    }

    /// Takes more of the room, or says which channel has none left, if it is one alone.
    fn take(&mut self, more: usize) -> Result<(), Option<usize>> {
        if !add(&self.channel.taken, more, self.channel.limit) {
            return Err(Some(self.channel.id()));
        }
        if !add(&self.room.taken, more, self.room.limit) {
            self.channel.taken.fetch_sub(more, Ordering::Relaxed);
            return Err(None);
        }
        self.bytes += more;
        Ok(())
    }

    fn count_for_address(&mut self, more: usize) -> Result<(), BadBody> {
        let Some(id) = self.stranger else { return Ok(()) };
        let limit = (self.room.limit / SHARE_OF_ADDRESS).max(self.channel.max_body);
        let strangers = &mut *self.room.strangers();
        let Some(reader) = strangers.readers.get_mut(&id) else { return Ok(()) };
        let held = strangers.by_address.entry(reader.from).or_default();
        if *held + more > limit {
            return Err(BadBody::NoRoom);
        }
        *held += more;
        reader.bytes += more;
        Ok(())
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.proved();
        self.channel.taken.fetch_sub(self.bytes, Ordering::SeqCst);
        self.room.taken.fetch_sub(self.bytes, Ordering::SeqCst);
        if self.bytes > 0 && self.room.waiting.load(Ordering::SeqCst) > 0 {
            self.room.freed.notify_waiters();
        }
    }
}

/// One more that waits, until dropped.
struct Waits<'r>(&'r AtomicUsize);

impl<'r> Waits<'r> {
    fn new(waiting: &'r AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::SeqCst);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
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

/// Where a body's bytes are counted.
#[derive(Clone, Copy)]
pub(super) struct Within<'r> {
    pub(super) room: &'r BodyRoom,
    pub(super) channel: &'r ChannelRoom,
    pub(super) from: IpAddr,
    pub(super) time: Duration,
}

pub(super) async fn read<B>(body: B, within: Within<'_>) -> Result<(Bytes, Share<'_>), BadBody>
where
    B: Body<Data = Bytes> + Unpin,
{
    let Within { room, channel, from, time } = within;
    let mut share = Share { room, channel, bytes: 0, stranger: None };
    // Only a promise so far: room is taken by bytes that came, or idle sockets could announce it all away.
    if body.size_hint().exact().is_some_and(|announced| announced > channel.max_body as u64) {
        return Err(BadBody::TooLarge);
    }
    let bytes = in_time(time, read_frames(body, from, &mut share)).await?;
    Ok((bytes, share))
}

/// Reads a body of which nothing is wanted, as slowly as one that is: the answer must not tell by its time that nobody looked at it.
pub(super) async fn drain<B>(mut body: B, max_bytes: usize, time: Duration) -> Result<(), BadBody>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().exact().is_some_and(|announced| announced > max_bytes as u64) {
        return Err(BadBody::TooLarge);
    }
    let reading = async {
        let (mut hasher, mut read) = (Sha256::new(), 0);
        while let Some(data) = next_data(&mut body).await? {
            read += data.len();
            if read > max_bytes {
                return Err(BadBody::TooLarge);
            }
            hasher.update(&data);
        }
        std::hint::black_box(hasher.finalize());
        Ok(())
    };
    in_time(time, reading).await
}

/// The usual body has come with its headers: no clock is asked for it.
async fn in_time<T>(time: Duration, reading: impl Future<Output = Result<T, BadBody>>) -> Result<T, BadBody> {
    let mut reading = std::pin::pin!(reading);
    match poll_fn(|context| Poll::Ready(reading.as_mut().poll(context))).await {
        Poll::Ready(read) => read,
        Poll::Pending => tokio::time::timeout(time, reading).await.map_err(|_| BadBody::Slow)?,
    }
}

async fn read_frames<B>(mut body: B, from: IpAddr, share: &mut Share<'_>) -> Result<Bytes, BadBody>
where
    B: Body<Data = Bytes> + Unpin,
{
    let Some(first) = next_data(&mut body).await? else { return Ok(Bytes::new()) };
    if first.len() > share.channel.max_body {
        return Err(BadBody::TooLarge);
    }
    // The usual webhook comes in one piece.
    if body.is_end_stream() {
        share.grow_to(first.len()).await?;
        return Ok(if first.len() <= COPIED_MAX { Bytes::copy_from_slice(&first) } else { first });
    }
    let cut = share.register(from);
    tokio::select! {
        biased;
        () = cut.cancelled() => Err(BadBody::NoRoom),
        read = read_on(body, first, share) => read,
    }
}

async fn read_on<B>(mut body: B, first: Bytes, share: &mut Share<'_>) -> Result<Bytes, BadBody>
where
    B: Body<Data = Bytes> + Unpin,
{
    share.grow_to(first.len()).await?;
    let Some(second) = next_data(&mut body).await? else { return Ok(first) };
    let mut whole = BytesMut::with_capacity(first.len() + second.len());
    whole.extend_from_slice(&first);
    let mut next = Some(second);
    while let Some(data) = next {
        if whole.len() + data.len() > share.channel.max_body {
            return Err(BadBody::TooLarge);
        }
        share.grow_to(whole.len() + data.len()).await?;
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
mod tests;
