//! Events and items that the batch has taken in and not written yet. Written together, before anything looks for them: at the end of the batch, or
//! before the first step of another kind.
//!
//! *Invariant:* nothing reads `events` or `inbox` in the writer while something is pending. Taking in decides in memory; where it has to look, it
//! has what is pending written first.

use std::sync::{Arc, LazyLock};

use hapax_domain::Event;
use hapax_store::{Arrival, Disposition};

use super::lanes::LaneName;
use super::many_rows::{Insert, insert_rows};
use super::rows::kind_number;
use super::writer::Writer;

#[derive(Default)]
pub(super) struct Pending {
    events: Vec<EventRow>,
    items: Vec<ItemRow>,
}

pub(super) struct EventRow {
    pub(super) arrival: Arc<Arrival>,
    /// Its place among the events of the webhook.
    pub(super) at: usize,
    pub(super) number: u64,
    pub(super) received_ms: i64,
    pub(super) channel: i64,
    /// The event that holds headers and body of the webhook.
    pub(super) webhook: u64,
    pub(super) item: Option<u64>,
    /// The thread, and what was said there before.
    pub(super) said: Option<(i64, i64)>,
}

pub(super) struct ItemRow {
    pub(super) channel: i64,
    pub(super) number: i64,
    pub(super) lane: Option<LaneName>,
    pub(super) members: Option<Vec<u8>>,
    pub(super) received_ms: i64,
    pub(super) due_ms: i64,
    pub(super) peer: Option<Arc<str>>,
}

static EVENT: LazyLock<Insert> = LazyLock::new(|| {
    Insert::new("INSERT OR FAIL INTO events VALUES", "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", "")
});
static ITEM: LazyLock<Insert> =
    LazyLock::new(|| Insert::new("INSERT OR FAIL INTO inbox VALUES", "(?, ?, ?, ?, ?, 0, NULL, ?, ?, NULL, 0, ?, NULL)", ""));

impl Pending {
    pub(super) fn clear(&mut self) {
        self.events.clear();
        self.items.clear();
    }
}

impl Writer {
    pub(super) fn hold_event(&mut self, row: EventRow) {
        self.count.in_batch += 1;
        self.pending.events.push(row);
    }

    pub(super) fn hold_item(&mut self, row: ItemRow) {
        self.pending.items.push(row);
    }

    /// Writes what is pending.
    pub(super) fn write_pending(&mut self) -> rusqlite::Result<()> {
        let Pending { events, items } = &self.pending;
        if events.is_empty() && items.is_empty() {
            return Ok(());
        }
        insert_rows(&self.db, &EVENT, events, |row, places| {
            let new = &row.arrival.events[row.at];
            // The first event of a webhook holds the body for all; a part that could not be read holds itself.
            let (headers, body) = match &new.disposition {
                Disposition::Quarantine { part, .. } => (Some(&row.arrival.headers.0), Some(&**part)),
                _ if row.webhook == row.number => (Some(&row.arrival.headers.0), Some(&*row.arrival.body)),
                _ => (None, None),
            };
            let Event { kind, account, id, peer, echo, at_ms, index, text, .. } = &new.event;
            places.put(row.number as i64)?;
            places.put(row.received_ms)?;
            places.put(row.channel)?;
            places.put(kind_number(*kind))?;
            places.put(echo)?;
            places.put(index)?;
            places.put(row.webhook as i64)?;
            places.put(row.arrival.events.len() as i64)?;
            places.put(row.item.map(|item| item as i64))?;
            places.put(account)?;
            places.put(id)?;
            places.put(peer)?;
            places.put(at_ms)?;
            places.put(text.as_ref().filter(|_| row.said.is_some()))?;
            places.put(row.said.map(|(thread, _)| thread))?;
            places.put(row.said.map(|(_, prev)| prev))?;
            places.put(headers)?;
            places.put(body)
        })?;
        insert_rows(&self.db, &ITEM, items, |row, places| {
            places.put(row.channel)?;
            places.put(row.number)?;
            places.put(row.lane)?;
            places.put(row.number)?;
            places.put(&row.members)?;
            places.put(row.received_ms)?;
            places.put(row.due_ms)?;
            places.put(&row.peer)
        })?;
        self.pending.clear();
        Ok(())
    }
}
