//! What is kept beside an event because it must not disappear and must not be delivered: another content under the same key, replies
//! that could not be sent. Each is a kept event of its own, named after the first, which is linked to it.

use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::limits::{BESIDE_MAX, BESIDE_MAX_BYTES};
use hapax_domain::{Event, EventId, EventKey, Kind};

use super::{Accepted, Arrival, Copies, Disposition, KeptHeaders, NewEvent, Store, StoreError};

/// Where it says why it was kept.
const WHY: &str = "hapax-why";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The same key came with another content.
    Conflict,
    /// The handler answered with replies that could not be sent.
    Unsent,
}

impl Reason {
    fn mark(self) -> &'static str {
        match self {
            Reason::Conflict => "conflict:",
            Reason::Unsent => "unsent:",
        }
    }

    /// Reads the reason, and the event it was kept beside, off the id that is shown.
    pub fn of_shown(id: &str) -> Option<(Reason, EventId)> {
        [Reason::Conflict, Reason::Unsent]
            .into_iter()
            .find_map(|reason| Some((reason, id.strip_prefix(reason.mark())?.parse().ok()?)))
    }
}

/// What to keep.
pub struct Beside {
    pub reason: Reason,
    pub first: EventId,
    pub channel: Arc<str>,
    pub account: String,
    pub window_ms: i64,
    pub why: String,
    /// Cut to [`BESIDE_MAX_BYTES`].
    pub content: Bytes,
    /// Equal for equal contents. Of one event at most [`BESIDE_MAX`] are kept for a reason.
    pub fingerprint: u32,
}

/// Keeps it, and links the first event to it. The same again changes nothing, and neither does one more than there is room for.
pub async fn keep_beside(store: &dyn Store, beside: Beside) -> Result<(), StoreError> {
    // It begins at a place of its own, so that nearly always one step is enough, and goes on where another content has that place.
    for place in (0..BESIDE_MAX).map(|steps| (beside.fingerprint % BESIDE_MAX + steps) % BESIDE_MAX) {
        let accepted = store.accept(Arc::new(arrival(&beside, place))).await?;
        let Some(Accepted::New(kept) | Accepted::Suspected(kept) | Accepted::Duplicate(kept)) = accepted.first() else {
            continue;
        };
        let last_ms = beside.first.at_ms().unwrap_or_default();
        let link = Copies { event: beside.first, copies: 0, conflicts: 0, last_ms, kept: Some(*kept) };
        return store.note_copies(vec![link]).await;
    }
    Ok(())
}

fn arrival(beside: &Beside, place: u32) -> Arrival {
    let Beside { reason, first, channel, account, window_ms, why, content, fingerprint } = beside;
    let parts = [reason.mark(), &place.to_string()];
    let key = EventKey::new("beside", channel, Kind::Notice, &first.to_string(), &parts);
    let event = Event::new(Kind::Notice, account, &format!("{}{first}", reason.mark()), key, *fingerprint);
    let mut headers = KeptHeaders::default();
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    headers.push(WHY, why.chars().map(plain).collect::<String>().as_bytes());
    let body = content.slice(..content.len().min(BESIDE_MAX_BYTES));
    let events = vec![NewEvent { event, disposition: Disposition::Keep }];
    Arrival { channel: Arc::clone(channel), window_ms: *window_ms, headers, body, events, coalesce: None }
}

/// Why an event was kept beside another.
pub fn why_beside(headers: &KeptHeaders) -> Option<String> {
    let (_, why) = headers.iter().find(|(name, _)| *name == WHY)?;
    Some(String::from_utf8_lossy(why).into_owned())
}
