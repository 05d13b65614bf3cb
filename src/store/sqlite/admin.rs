//! What people and upkeep ask for: redrive, replay, purge, settings.

use std::collections::HashSet;
use std::sync::Arc;

use rusqlite::{OptionalExtension, Row, params};

use super::rows::{item_id, kind_of, lane_thread, members_of};
use super::writer::{StepError, Writer};
use crate::domain::ids::number_of;
use crate::domain::{EventId, ItemId, ThreadId};
use crate::store::{Purged, Redrive};

impl Writer {
    pub(super) fn redrive(&mut self, which: &Redrive, max: usize) -> Result<usize, StepError> {
        const PARKED: &str = "SELECT item, channel, first, members FROM parked WHERE quarantined = 0";
        let (filter, value): (&str, Option<i64>) = match which {
            Redrive::Item(item) => (" AND item = ?1", Some(number_of(item.0) as i64)),
            Redrive::Event(event) => {
                (" AND (first = ?1 OR item = (SELECT item FROM events WHERE number = ?1))", Some(number_of(event.0) as i64))
            }
            Redrive::Channel(name) => match self.channels.get(name.as_str()) {
                Some(&channel) => (" AND channel = ?1", Some(channel)),
                None => return Ok(0),
            },
            Redrive::All => (" AND ?1 IS NULL", None),
        };
        let parked: Vec<(i64, i64, i64, Option<Vec<u8>>)> = self
            .db
            .prepare_cached(&format!("{PARKED}{filter} ORDER BY item LIMIT ?2"))?
            .query_map(params![value, max as i64], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
            .collect::<Result<_, _>>()?;
        for (item, channel, first, members) in &parked {
            let (_, thread) = self.line_of(*first)?.unwrap_or_default();
            let name = self.channel_name(*channel);
            let lane = self.lane(&name, *channel, thread.as_ref())?;
            self.db
                .prepare_cached(
                    "INSERT INTO inbox SELECT ?2, item, channel, first, members, 0, replay, received, why FROM parked WHERE item = ?1",
                )?
                .execute([*item, lane])?;
            self.db.prepare_cached("DELETE FROM parked WHERE item = ?1")?.execute([item])?;
            for member in members_of(*first, members.clone()) {
                self.db
                    .prepare_cached("UPDATE events SET lane = ?2 WHERE number = ?1 AND item = ?3")?
                    .execute([member, lane, *item])?;
            }
        }
        self.work_made |= !parked.is_empty();
        Ok(parked.len())
    }

    fn channel_name(&self, channel: i64) -> Arc<str> {
        self.channel_names.get(&channel).cloned().unwrap_or_else(|| "".into())
    }

    /// The channel and thread by which an event is put in line.
    fn line_of(&self, number: i64) -> rusqlite::Result<Option<(i64, Option<ThreadId>)>> {
        self.db
            .prepare_cached("SELECT channel, kind, account, peer FROM events WHERE number = ?1")?
            .query_row([number], |row| Ok((row.get(0)?, lane_thread(kind_of(row.get(1)?), row.get(2)?, row.get(3)?))))
            .optional()
    }

    pub(super) fn replay(&mut self, event: EventId) -> Result<Option<ItemId>, StepError> {
        let number = number_of(event.0) as i64;
        let received: Option<i64> = self
            .db
            .prepare_cached(
                "SELECT received FROM events WHERE number = ?1 AND NOT EXISTS (SELECT 1 FROM parked WHERE item = ?1 AND quarantined = 1)",
            )?
            .query_row([number], |row| row.get(0))
            .optional()?;
        if received.is_none_or(|received| super::rows::event_id(received, number as u64) != event) {
            return Ok(None);
        }
        let Some((channel, thread)) = self.line_of(number)? else { return Ok(None) };
        let replays: u32 = self
            .db
            .prepare_cached(
                "SELECT count(*) FROM (SELECT item FROM attempts WHERE first = ?1 AND item > ?1
                 UNION SELECT item FROM inbox WHERE first = ?1 AND replay IS NOT NULL
                 UNION SELECT item FROM parked WHERE first = ?1 AND replay IS NOT NULL)",
            )?
            .query_row([number], |row| row.get(0))?;
        let item = self.number() as i64;
        let lane = self.lane(&self.channel_name(channel), channel, thread.as_ref())?;
        self.db.prepare_cached("INSERT INTO inbox VALUES (?1, ?2, ?3, ?4, NULL, 0, ?5, ?6, NULL)")?.execute(params![
            lane,
            item,
            channel,
            number,
            replays + 1,
            self.now_ms
        ])?;
        self.work_made = true;
        Ok(Some(item_id(self.now_ms, item)))
    }

    pub(super) fn purge(&mut self, retention: &[(String, i64)], max: usize) -> Result<Purged, StepError> {
        let keys = self.keys.drop_expired(&self.db, self.now_ms / 1_000)?;
        let mut spans: Vec<i64> = retention.iter().map(|(_, keep_ms)| *keep_ms).collect();
        spans.sort_unstable();
        spans.dedup();
        let mut events = 0;
        for span in spans {
            let channels: HashSet<i64> = retention
                .iter()
                .filter(|(_, keep)| *keep == span)
                .filter_map(|(name, _)| self.channels.get(name.as_str()).copied())
                .collect();
            events += self.purge_span(span, &channels, max)?;
        }
        if events > 0 {
            // The counter must never fall back onto numbers whose rows are gone.
            self.db
                .prepare_cached("UPDATE meta SET value = ?1 WHERE name = 'last_number'")?
                .execute([self.last_number as i64])?;
        }
        self.events_added -= events as i64;
        Ok(Purged { keys, events })
    }

    /// Looks at the next rows for channels of one retention. Every row is looked at once, however many steps it takes.
    fn purge_span(&mut self, keep_ms: i64, channels: &HashSet<i64>, max: usize) -> rusqlite::Result<u64> {
        let mut removed = 0;
        loop {
            let from = self.purged_to.get(&keep_ms).copied().unwrap_or(0);
            let rows: Vec<Looked> = self
                .db
                .prepare_cached(
                    "SELECT number, received, channel, webhook_events FROM events WHERE number > ?1 ORDER BY number LIMIT ?2",
                )?
                .query_map([from, max as i64], Looked::read)?
                .collect::<Result<_, _>>()?;
            let Some(last) = rows.last().map(|row| row.number) else { return Ok(removed) };
            let old: Vec<&Looked> = rows.iter().take_while(|row| row.received + keep_ms <= self.now_ms).collect();
            for row in old.iter().filter(|row| channels.contains(&row.channel)) {
                removed += u64::from(self.remove_event(row)?);
            }
            let seen_to = if old.len() == rows.len() { Some(last) } else { old.last().map(|row| row.number) };
            if let Some(number) = seen_to {
                self.purged_to.insert(keep_ms, number);
            }
            // Rows of other channels cost a look, not a step: go on until something was removed or the young ones begin.
            if removed > 0 || old.len() < rows.len() {
                return Ok(removed);
            }
        }
    }

    /// Removes an event unless it, or one that shares its body, is still open.
    fn remove_event(&mut self, row: &Looked) -> rusqlite::Result<bool> {
        let open = self
            .db
            .prepare_cached(
                "SELECT 1 FROM events e WHERE e.number BETWEEN ?1 AND ?2 AND (e.number = ?1 OR e.webhook = ?1)
                 AND (EXISTS (SELECT 1 FROM inbox i WHERE i.lane = e.lane AND i.item = e.item)
                   OR EXISTS (SELECT 1 FROM inbox i WHERE i.first = e.number AND i.replay IS NOT NULL)
                   OR EXISTS (SELECT 1 FROM parked p WHERE p.item = e.item OR p.first = e.number)) LIMIT 1",
            )?
            .exists([row.number, row.last_sibling])?;
        if open {
            return Ok(false);
        }
        for delete in [
            "DELETE FROM events WHERE number = ?1",
            "DELETE FROM attempts WHERE first = ?1",
            "DELETE FROM copies WHERE number = ?1",
            "DELETE FROM answers WHERE item = ?1",
        ] {
            self.db.prepare_cached(delete)?.execute([row.number])?;
        }
        Ok(true)
    }

    pub(super) fn remember(&mut self, name: &str, value: &str) -> Result<String, StepError> {
        let name = format!("setting:{name}");
        self.db.prepare_cached("INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING")?.execute([&*name, value])?;
        Ok(self.db.prepare_cached("SELECT value FROM meta WHERE name = ?1")?.query_row([name], |row| row.get(0))?)
    }

    /// Writes and takes back, which proves that the file can be written to.
    pub(super) fn ping(&mut self) -> Result<(), StepError> {
        self.db
            .prepare_cached("INSERT INTO meta VALUES ('ping', 0) ON CONFLICT (name) DO UPDATE SET value = 1 - value")?
            .execute([])?;
        Ok(())
    }
}

/// What purge reads of an event.
struct Looked {
    number: i64,
    received: i64,
    channel: i64,
    /// No event of the same webhook has a higher number: each took at most one for itself and one for its lane.
    last_sibling: i64,
}

impl Looked {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let number = row.get(0)?;
        let last_sibling = number + 2 * (row.get::<_, i64>(3)? - 1);
        Ok(Self { number, received: row.get(1)?, channel: row.get(2)?, last_sibling })
    }
}
