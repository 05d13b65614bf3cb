//! What goes into `accept` and what comes out.

use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::{Coalesce, Event, EventId};

/// One webhook on its way into the store.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub channel: Arc<str>,
    /// How long keys are remembered, where the event does not say otherwise.
    pub window_ms: i64,
    pub headers: KeptHeaders,
    /// The request body, byte for byte. Stored once, whatever the number of events.
    pub body: Bytes,
    pub events: Vec<NewEvent>,
    /// Gathers the messages of a thread into turns, where the channel wants that.
    pub coalesce: Option<Coalesce>,
}

impl Arrival {
    /// How long the key of one of its events is remembered.
    pub fn window_of(&self, event: &Event) -> i64 {
        event.window_ms.unwrap_or(self.window_ms)
    }
}

#[derive(Clone, Debug)]
pub struct NewEvent {
    pub event: Event,
    pub disposition: Disposition,
}

/// What happens to an event that is new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It is put in line in its lane ([`Event::lane`]). Lanes of different channels never meet.
    Deliver,
    /// It is kept and shown, and goes nowhere.
    Keep,
    /// It could not be read; it is parked with the reason, and `part` is kept in place of the webhook's body.
    Quarantine { why: String, part: Bytes },
}

/// How the reason of a suspected replay begins.
pub const SUSPECTED: &str = "suspected replay of ";

/// Why an event was parked as it came in; `first` is the event that came with the same signed content.
pub fn suspected(first: EventId) -> String {
    format!("{SUSPECTED}{first}: the same signed content came under another id; redrive it by its id if both are meant")
}

/// What became of one event of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    New(EventId),
    /// New as well, and recorded; but another event holds its guard, so it is parked.
    Suspected(EventId),
    /// The key was taken by this event.
    Duplicate(EventId),
    /// The key was taken by this event, and its content was another.
    Conflict(EventId),
}

impl Accepted {
    /// The event that holds the key.
    pub fn event(self) -> EventId {
        match self {
            Accepted::New(id) | Accepted::Suspected(id) | Accepted::Duplicate(id) | Accepted::Conflict(id) => id,
        }
    }

    /// True when the event was recorded.
    pub fn is_new(self) -> bool {
        matches!(self, Accepted::New(_) | Accepted::Suspected(_))
    }
}

/// The request headers that the target gets back, as `name: value` lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptHeaders(pub Vec<u8>);

impl KeptHeaders {
    pub fn push(&mut self, name: &str, value: &[u8]) {
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b": ");
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.split(|&b| b == b'\n').filter_map(|line| {
            let at = line.windows(2).position(|pair| pair == b": ")?;
            Some((std::str::from_utf8(&line[..at]).ok()?, &line[at + 2..]))
        })
    }
}
