//! What the batch has gathered and not written yet: events and items that it has taken in, what leases and settles change of items, and what
//! becomes of messages. Written together, before anything looks for it: at the end of the batch, or before a step that reaches for it.
//!
//! *Invariant:* nothing in the writer reads rows that are pending. Each step says how far it reaches, and what it may read is written before it;
//! where a step that gathers has to look all the same, it has everything written first.

use std::sync::{Arc, LazyLock};

use hapax_domain::Event;
use hapax_store::{Arrival, Disposition};
use rusqlite::Connection;

use super::lanes::LaneName;
use super::many_rows::{Insert, insert_rows};
use super::rows::kind_number;
use super::send_rows::SendRows;
use super::work_rows::WorkRows;
use super::writer::Writer;

/// How far a step reaches.
#[derive(Clone, Copy)]
pub(super) enum Reach {
    /// It takes in.
    TakesIn,
    /// It looks for what was taken in, which must be there, and changes nothing that is at hand.
    Looks,
    /// Its own items or messages alone, whose rows were there before the batch began; or tables in which nothing is ever pending.
    Own,
    /// All there is. Whatever is at hand of rows may be changed by it.
    All,
}

/// In the order in which it is written: what was taken in before what became of it.
#[derive(Default)]
pub(super) struct Pending {
    events: Vec<EventRow>,
    /// What the events hold, in bytes.
    bytes: usize,
    items: Vec<ItemRow>,
    pub(super) work: WorkRows,
    pub(super) sends: SendRows,
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

/// Bodies of one statement, which has a copy of each; and those that are kept until the end of a batch.
const STATEMENT_BYTES: usize = 1 << 20;
const BYTES_MAX: usize = 8 << 20;

impl EventRow {
    /// Headers and body, where it holds them: the first event of a webhook does for all, and a part that could not be read holds itself.
    fn held(&self) -> Option<(&Vec<u8>, &[u8])> {
        match &self.arrival.events[self.at].disposition {
            Disposition::Quarantine { part, .. } => Some((&self.arrival.headers.0, part)),
            _ if self.webhook == self.number => Some((&self.arrival.headers.0, &self.arrival.body)),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        self.held().map_or(0, |(headers, body)| headers.len() + body.len())
    }
}

impl Pending {
    /// It holds so much that it is to be written.
    pub(super) fn is_large(&self) -> bool {
        self.bytes > BYTES_MAX
    }

    /// Forgets what a failed batch wanted written.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Writer {
    pub(super) fn hold_event(&mut self, row: EventRow) {
        self.count.in_batch += 1;
        self.pending.bytes += row.bytes();
        self.pending.events.push(row);
    }

    pub(super) fn hold_item(&mut self, row: ItemRow) {
        self.pending.items.push(row);
    }

    /// Does what must be done before a step that reaches so far.
    pub(super) fn make_way(&mut self, reach: Reach) -> rusqlite::Result<()> {
        match reach {
            Reach::TakesIn | Reach::Own => {}
            Reach::Looks => self.write_taken_in()?,
            Reach::All => {
                self.write_pending()?;
                self.forget_at_hand();
            }
        }
        Ok(())
    }

    /// Writes what is pending.
    pub(super) fn write_pending(&mut self) -> rusqlite::Result<()> {
        self.write_taken_in()?;
        self.pending.work.write(&self.db)?;
        self.write_sends()
    }

    /// Writes what is pending of messages, for a step that gathers and has to look at them.
    pub(super) fn write_sends(&mut self) -> rusqlite::Result<()> {
        self.pending.sends.write(&self.db)
    }

    fn write_taken_in(&mut self) -> rusqlite::Result<()> {
        let Pending { events, items, .. } = &self.pending;
        if events.is_empty() && items.is_empty() {
            return Ok(());
        }
        let mut left = events.as_slice();
        while !left.is_empty() {
            let mut bytes = 0;
            let fits = |row: &&EventRow| {
                let before = bytes;
                bytes += row.bytes();
                before <= STATEMENT_BYTES
            };
            let fit = left.iter().take_while(fits).count();
            let (some, later) = left.split_at(fit);
            insert_events(&self.db, some)?;
            left = later;
        }
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
        self.pending.events.clear();
        self.pending.items.clear();
        self.pending.bytes = 0;
        self.lanes.are_written();
        Ok(())
    }
}

fn insert_events(db: &Connection, events: &[EventRow]) -> rusqlite::Result<usize> {
    insert_rows(db, &EVENT, events, |row, places| {
        let Event { kind, account, id, peer, echo, at_ms, index, text, .. } = &row.arrival.events[row.at].event;
        let held = row.held();
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
        places.put(held.map(|(headers, _)| headers))?;
        places.put(held.map(|(_, body)| body))
    })
}
