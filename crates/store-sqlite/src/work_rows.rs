//! What a batch changes of leases, attempts and items that are done, a part of what is pending (`pending.rs`).

use std::sync::{Arc, LazyLock};

use rusqlite::Connection;

use super::lanes::Held;
use super::many_rows::{Insert, insert_rows, on_all};

#[derive(Default)]
pub(super) struct WorkRows {
    leased: Vec<Leased>,
    /// Items whose leases have ended.
    ended: Vec<i64>,
    tried: Vec<Attempt>,
    /// Items that are done, with their channels.
    left: Vec<(i64, i64)>,
}

struct Leased {
    held: Held,
    outside: bool,
}

/// An attempt that has ended.
pub(super) struct Attempt {
    pub(super) first: i64,
    pub(super) item: i64,
    pub(super) fence: i64,
    pub(super) received: i64,
    pub(super) attempt: u32,
    pub(super) worker: Arc<str>,
    pub(super) leased: i64,
    pub(super) ended: i64,
    pub(super) outcome: &'static str,
    pub(super) detail: String,
}

static LEASE: LazyLock<Insert> =
    LazyLock::new(|| Insert::new("INSERT OR FAIL INTO leases VALUES", "(?, ?, ?, ?, ?, ?, ?, ?)", ""));
static ATTEMPT: LazyLock<Insert> =
    LazyLock::new(|| Insert::new("INSERT OR FAIL INTO attempts VALUES", "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", ""));

impl WorkRows {
    pub(super) fn lease(&mut self, held: Held, outside: bool) {
        self.leased.push(Leased { held, outside });
    }

    pub(super) fn end_lease(&mut self, item: i64) {
        match self.leased.iter().position(|leased| leased.held.item == item) {
            Some(at) => drop(self.leased.swap_remove(at)),
            None => self.ended.push(item),
        }
    }

    pub(super) fn note(&mut self, attempt: Attempt) {
        self.tried.push(attempt);
    }

    pub(super) fn leave(&mut self, channel: i64, item: i64) {
        self.left.push((channel, item));
    }

    pub(super) fn write(&mut self, db: &Connection) -> rusqlite::Result<()> {
        // An item may be leased anew in the batch in which its last lease has ended.
        on_all(db, "DELETE FROM leases WHERE item IN", None, &mut self.ended)?;
        if !self.leased.is_empty() {
            insert_rows(db, &LEASE, &self.leased, |Leased { held, outside }, places| {
                places.put(held.channel)?;
                places.put(held.item)?;
                places.put(held.attempt)?;
                places.put(held.fence)?;
                places.put(&*held.worker)?;
                places.put(held.leased)?;
                places.put(held.ends)?;
                places.put(outside)
            })?;
            self.leased.clear();
        }
        if !self.tried.is_empty() {
            insert_rows(db, &ATTEMPT, &self.tried, |tried, places| {
                places.put(tried.first)?;
                places.put(tried.item)?;
                places.put(tried.fence)?;
                places.put(tried.received)?;
                places.put(tried.attempt)?;
                places.put(&*tried.worker)?;
                places.put(tried.leased)?;
                places.put(tried.ended)?;
                places.put(tried.outcome)?;
                places.put(&tried.detail)
            })?;
            self.tried.clear();
        }
        self.write_left(db)
    }

    fn write_left(&mut self, db: &Connection) -> rusqlite::Result<()> {
        self.left.sort_unstable();
        for of_channel in self.left.chunk_by(|one, next| one.0 == next.0) {
            let Some(&(channel, _)) = of_channel.first() else { continue };
            let mut items = of_channel.iter().map(|(_, item)| *item).collect();
            on_all(db, "DELETE FROM inbox WHERE channel = ? AND item IN", Some(channel), &mut items)?;
        }
        self.left.clear();
        Ok(())
    }
}
