//! Bodies of sends: what is small is read whole, what comes in parts is kept in pieces beside the message while it is hashed. Nothing large is
//! held in memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hapax_domain::limits::{
    BOT_BODY_MAX_BYTES, PIECE_MAX_BYTES, PIECES_MAX_BYTES, PIECES_OF_CHANNEL_MAX_BYTES, UPLOAD_MAX_BYTES,
};
use hapax_providers::dropin::Refusal;
use hapax_providers::dropin::multipart::{Parts, Reader, is_multipart};
use hapax_store::{Store, StoreError};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::sync::SemaphorePermit;

use super::DropIns;
use super::admission::Served;

/// How long a caller is asked to stay away while there is no room for its file.
const NO_ROOM_S: u64 = 30;
/// Bodies beyond this are read one after the other, so many at once.
pub(super) const LARGE_BYTES: usize = 256 << 10;
pub(super) const LARGE_AT_ONCE: usize = 4;

/// A body that was read to its end.
pub(super) enum Taken<'d> {
    Whole { bytes: Bytes, _place: Option<SemaphorePermit<'d>> },
    InParts { parts: Parts, kept: Pieces, rest: Bytes },
}

/// The pieces of one body, removed when dropped unless they belong to a message.
pub(super) struct Pieces {
    store: Arc<dyn Store>,
    pub(super) name: String,
    keep_ms: i64,
    /// Pieces that are in the store.
    count: u32,
    pub(super) length: u64,
    belong: bool,
}

impl Pieces {
    pub(super) fn new(store: &Arc<dyn Store>, served: &Served) -> Self {
        let name = format!("{}/{}", served.channel.name(), hex::encode(rand::random::<[u8; 16]>()));
        let keep_ms = served.channel.settings.retention_ms;
        Self { store: Arc::clone(store), name, keep_ms, count: 0, length: 0, belong: false }
    }

    /// Keeps what was not kept yet: small bodies are put down only when they are needed.
    pub(super) async fn put(&mut self, mut rest: Bytes) -> Result<(), StoreError> {
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(PIECE_MAX_BYTES));
            // A slice would keep the whole of a large body alive.
            self.store.put_piece(&self.name, self.count, Bytes::copy_from_slice(&piece), self.keep_ms).await?;
            self.count += 1;
        }
        Ok(())
    }

    /// They are a message's from now on: whoever sends it removes them.
    pub(super) fn belong_to_a_message(&mut self) {
        self.belong = true;
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        if self.belong || self.count == 0 {
            return;
        }
        let (store, name) = (Arc::clone(&self.store), std::mem::take(&mut self.name));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // What a store that is away does not remove now, its purge does.
            runtime.spawn(async move { store.drop_pieces(&name).await });
        }
    }
}

impl Taken<'_> {
    /// What a look at the body needs: the whole of it, or what is still in memory.
    pub(super) fn bytes(&self) -> &Bytes {
        match self {
            Taken::Whole { bytes, .. } | Taken::InParts { rest: bytes, .. } => bytes,
        }
    }

    /// The body as it came; `None` when a part of it has been put down already.
    pub(super) fn whole(&self) -> Option<Bytes> {
        match self {
            Taken::Whole { bytes, .. } => Some(bytes.clone()),
            Taken::InParts { kept, rest, .. } => (kept.count == 0).then(|| rest.clone()),
        }
    }
}

impl DropIns {
    /// Puts down what is left of a body that a message needs.
    pub(super) async fn keep(&self, served: &Served, pieces: &mut Pieces, rest: Bytes) -> Result<(), Refusal> {
        if pieces.count == 0 {
            self.make_sure_of_room(served, pieces.length).await?;
        }
        pieces.put(rest).await.map_err(|error| self.not_kept(&error))
    }

    pub(super) async fn take_body(
        &self,
        served: &Served,
        content_type: Option<&str>,
        body: Incoming,
    ) -> Result<Taken<'_>, Refusal> {
        match content_type.filter(|_| is_multipart(content_type)) {
            Some(content_type) => self.take_parts(served, content_type, body).await,
            None => self.take_whole(body).await,
        }
    }

    async fn take_whole(&self, mut body: Incoming) -> Result<Taken<'_>, Refusal> {
        let (mut whole, mut place) = (BytesMut::new(), None);
        while let Some(part) = next(&mut body, self.body_timeout).await? {
            if whole.len() + part.len() > BOT_BODY_MAX_BYTES {
                return Err(Refusal::TooLarge);
            }
            if place.is_none() && whole.len() + part.len() > LARGE_BYTES {
                place = self.large.acquire().await.ok();
            }
            whole.extend_from_slice(&part);
        }
        Ok(Taken::Whole { bytes: whole.freeze(), _place: place })
    }

    async fn take_parts(&self, served: &Served, content_type: &str, mut body: Incoming) -> Result<Taken<'_>, Refusal> {
        let unreadable = |bad: hapax_providers::dropin::multipart::BadParts| Refusal::Unreadable(bad.to_string());
        let mut reader = Reader::new(content_type).map_err(unreadable)?;
        let announced = body.size_hint().exact().unwrap_or_default();
        if announced > UPLOAD_MAX_BYTES {
            return Err(Refusal::TooLarge);
        }
        let (mut kept, mut rest) = (Pieces::new(&self.store, served), BytesMut::new());
        while let Some(part) = next(&mut body, self.body_timeout).await? {
            reader.feed(&part).map_err(unreadable)?;
            kept.length += part.len() as u64;
            if kept.length > UPLOAD_MAX_BYTES {
                return Err(Refusal::TooLarge);
            }
            rest.extend_from_slice(&part);
            while rest.len() >= PIECE_MAX_BYTES {
                if kept.count == 0 {
                    self.make_sure_of_room(served, announced).await?;
                }
                let piece = rest.split_to(PIECE_MAX_BYTES).freeze();
                kept.put(piece).await.map_err(|error| self.not_kept(&error))?;
            }
        }
        let parts = reader.finish().map_err(unreadable)?;
        Ok(Taken::InParts { parts, kept, rest: rest.freeze() })
    }

    async fn make_sure_of_room(&self, served: &Served, announced: u64) -> Result<(), Refusal> {
        let held = self.store.pieces_held().await.map_err(|error| self.not_kept(&error))?;
        let of_channel = held.iter().find(|(channel, _)| **channel == **served.channel.name()).map_or(0, |(_, bytes)| *bytes);
        let all: u64 = held.iter().map(|(_, bytes)| bytes).sum();
        if of_channel + announced > PIECES_OF_CHANNEL_MAX_BYTES || all + announced > PIECES_MAX_BYTES {
            served.telemetry.no_room_for_files();
            return Err(Refusal::SlowDown { seconds: NO_ROOM_S });
        }
        Ok(())
    }

    fn not_kept(&self, error: &StoreError) -> Refusal {
        self.telemetry.store_unavailable("put_piece", error);
        Refusal::SlowDown { seconds: NO_ROOM_S }
    }
}

/// The next bytes; a caller that lies still is not waited for.
async fn next(body: &mut Incoming, still: Duration) -> Result<Option<Bytes>, Refusal> {
    loop {
        match tokio::time::timeout(still, body.frame()).await {
            Err(_) => return Err(Refusal::Unreadable("the body came too slowly".to_owned())),
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => return Err(Refusal::Unreadable("the body was cut off".to_owned())),
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(part) => return Ok(Some(part)),
                Err(_) => continue,
            },
        }
    }
}
