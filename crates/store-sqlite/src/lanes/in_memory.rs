//! Which channels are in memory, and which items would not be found on disk by whoever reads a channel now: their rows are written later in
//! the batch.

use rusqlite::Connection;

use super::{Lanes, Waiting};

impl Lanes {
    /// Reads the channel's lanes, if that was not done yet.
    pub(crate) fn load(&mut self, db: &Connection, channel: i64) -> rusqlite::Result<()> {
        self.of(db, channel).map(drop)
    }

    /// True when everything that waits in the channel is in memory.
    pub(crate) fn is_all_in_memory(&self, channel: i64) -> bool {
        self.channels.get(&channel).is_some_and(|lanes| !lanes.more_on_disk)
    }

    /// Takes note of an item that will be written to its table, and of which [`Lanes::add`] is told too.
    pub(crate) fn will_be_written(&mut self, channel: i64, item: &Waiting) {
        if !self.channels.contains_key(&channel) {
            self.unwritten.push((channel, item.clone()));
        }
    }

    /// All rows are written.
    pub(crate) fn are_written(&mut self) {
        self.unwritten.clear();
    }

    /// True when taking note of an item looks into the tables.
    pub(crate) fn looks_up(&self, channel: i64) -> bool {
        self.channels.get(&channel).is_some_and(|lanes| lanes.by_account)
    }
}

/// Takes the items of a channel that comes into memory.
pub(super) fn take(unwritten: &mut Vec<(i64, Waiting)>, channel: i64) -> impl Iterator<Item = Waiting> {
    unwritten.extract_if(.., move |(of, _)| *of == channel).map(|(_, item)| item)
}
