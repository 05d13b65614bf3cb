//! What a batch changes of messages on their way, a part of what is pending (`pending.rs`). The twin of [`super::work_rows`] for what goes out.

use std::sync::{Arc, LazyLock};

use hapax_domain::Outgoing;
use hapax_store::steps::records::write_past;
use rusqlite::Connection;

use super::lanes::Held;
use super::many_rows::{Insert, insert_rows, on_all};
use super::rows::steps_text;

#[derive(Default)]
pub(super) struct SendRows {
    leased: Vec<Held>,
    /// Messages whose leases have ended.
    ended: Vec<i64>,
    /// Those that are leased for one more try.
    attempted: Vec<i64>,
    /// Those that are being sent since then, which was nobody at before.
    begun: Vec<(i64, i64)>,
    changed: Vec<Change>,
    tried: Vec<Try>,
    named: Vec<Named>,
    /// Those that have left the outbox.
    left: Vec<i64>,
}

/// What its row says of a message.
struct Change {
    number: i64,
    steps: String,
    provider_id: Option<String>,
    why: Option<String>,
    past: Option<String>,
}

pub(super) struct Try {
    pub(super) number: i64,
    pub(super) fence: i64,
    pub(super) attempt: u32,
    pub(super) worker: Arc<str>,
    pub(super) leased: i64,
    pub(super) ended: i64,
    pub(super) outcome: &'static str,
    pub(super) detail: String,
}

struct Named {
    account: String,
    provider_id: String,
    number: i64,
}

static LEASE: LazyLock<Insert> =
    LazyLock::new(|| Insert::new("INSERT OR FAIL INTO out_leases VALUES", "(?, ?, ?, ?, ?, ?, ?)", ""));
static TRY: LazyLock<Insert> = LazyLock::new(|| Insert::new("INSERT OR FAIL INTO tries VALUES", "(?, ?, ?, ?, ?, ?, ?, ?)", ""));
static NAME: LazyLock<Insert> = LazyLock::new(|| Insert::new("INSERT OR REPLACE INTO provider_names VALUES", "(?, ?, ?)", ""));
static CHANGE: LazyLock<Insert> = LazyLock::new(|| {
    let set =
        "UPDATE OR FAIL messages SET steps = c.column2, provider_id = c.column3, why = c.column4, past = c.column5 FROM (VALUES";
    Insert::new(set, "(?, ?, ?, ?, ?)", ") AS c WHERE messages.number = c.column1")
});

impl SendRows {
    pub(super) fn lease(&mut self, held: Held, is_a_try: bool) {
        self.attempted.extend(is_a_try.then_some(held.item));
        self.leased.push(held);
    }

    pub(super) fn end_lease(&mut self, number: i64) {
        self.ended.push(number);
    }

    pub(super) fn begin(&mut self, number: i64, begun_ms: i64) {
        self.begun.push((begun_ms, number));
    }

    pub(super) fn change(&mut self, number: i64, state: &Outgoing) {
        self.changed.push(Change {
            number,
            steps: steps_text(&state.steps),
            provider_id: state.provider_id.clone(),
            why: state.why.clone(),
            past: write_past(&state.past),
        });
    }

    pub(super) fn note(&mut self, tried: Try) {
        self.tried.push(tried);
    }

    pub(super) fn name(&mut self, number: i64, account: &str, provider_id: &str) {
        self.named.push(Named { account: account.to_owned(), provider_id: provider_id.to_owned(), number });
    }

    pub(super) fn leave(&mut self, number: i64) {
        self.left.push(number);
    }

    pub(super) fn write(&mut self, db: &Connection) -> rusqlite::Result<()> {
        self.write_leases(db)?;
        on_all(db, "UPDATE outbox SET attempt = attempt + 1 WHERE number IN", None, &mut self.attempted)?;
        self.begun.sort_unstable();
        for at_once in self.begun.chunk_by(|one, next| one.0 == next.0) {
            let Some(&(begun_ms, _)) = at_once.first() else { continue };
            let mut numbers = at_once.iter().map(|(_, number)| *number).collect();
            on_all(db, "UPDATE outbox SET begun = ? WHERE number IN", Some(begun_ms), &mut numbers)?;
        }
        self.begun.clear();
        self.write_messages(db)?;
        on_all(db, "DELETE FROM outbox WHERE number IN", None, &mut self.left)
    }

    fn write_leases(&mut self, db: &Connection) -> rusqlite::Result<()> {
        on_all(db, "DELETE FROM out_leases WHERE item IN", None, &mut self.ended)?;
        insert_rows(db, &LEASE, &self.leased, |held, places| {
            places.put(held.channel)?;
            places.put(held.item)?;
            places.put(held.attempt)?;
            places.put(held.fence)?;
            places.put(&*held.worker)?;
            places.put(held.leased)?;
            places.put(held.ends)
        })?;
        self.leased.clear();
        Ok(())
    }

    fn write_messages(&mut self, db: &Connection) -> rusqlite::Result<()> {
        insert_rows(db, &NAME, &self.named, |named, places| {
            places.put(&named.account)?;
            places.put(&named.provider_id)?;
            places.put(named.number)
        })?;
        self.named.clear();
        // Of one that has changed twice the last counts: a statement takes any of the rows that it finds for it.
        self.changed.sort_by_key(|change| change.number);
        self.changed.dedup_by(|next, kept| {
            let same = next.number == kept.number;
            if same {
                std::mem::swap(next, kept);
            }
            same
        });
        insert_rows(db, &CHANGE, &self.changed, |change, places| {
            places.put(change.number)?;
            places.put(&change.steps)?;
            places.put(&change.provider_id)?;
            places.put(&change.why)?;
            places.put(&change.past)
        })?;
        self.changed.clear();
        insert_rows(db, &TRY, &self.tried, |tried, places| {
            places.put(tried.number)?;
            places.put(tried.fence)?;
            places.put(tried.attempt)?;
            places.put(&*tried.worker)?;
            places.put(tried.leased)?;
            places.put(tried.ended)?;
            places.put(tried.outcome)?;
            places.put(&tried.detail)
        })?;
        self.tried.clear();
        Ok(())
    }
}
