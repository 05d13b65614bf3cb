//! What people ask for: redrive, replay.

use std::sync::Arc;

use hapax_domain::ids::number_of;
use hapax_domain::{EventId, ItemId, ThreadId, limits};
use hapax_store::{NewMessage, Redrive, StoreError, read_replies};
use rusqlite::{OptionalExtension, params};

use super::accept::{InLine, lane_name};
use super::lanes::{Line, Waiting};
use super::rows::{item_id, kind_of, lane_thread};
use super::writer::{StepError, Writer};

impl Writer {
    pub(super) fn redrive(&mut self, which: &Redrive, max: usize) -> Result<usize, StepError> {
        const PARKED: &str = "SELECT item, channel, first, replies FROM parked WHERE quarantined = 0";
        let (filter, value): (&str, Option<i64>) = match which {
            Redrive::Item(item) => (" AND item = ?1", Some(number_of(item.0) as i64)),
            Redrive::Event(event) => {
                (" AND (first = ?1 OR item = (SELECT item FROM events WHERE number = ?1))", Some(number_of(event.0) as i64))
            }
            Redrive::Channel(name) => match self.channels.get(name.as_str()) {
                Some(&channel) => (" AND channel = ?1 AND why NOT LIKE 'suspected replay of %'", Some(channel)),
                None => return Ok(0),
            },
            Redrive::All => (" AND ?1 IS NULL AND why NOT LIKE 'suspected replay of %'", None),
        };
        let (mut moved, mut after, mut looks_left) = (0, 0, limits::redrive_looks_at(max));
        loop {
            let some = (max - moved).min(looks_left).min(limits::PAGE_MAX);
            let page: Vec<(i64, i64, i64, Option<Vec<u8>>)> = self
                .db
                .prepare_cached(&format!("{PARKED}{filter} AND item > ?2 ORDER BY item LIMIT ?3"))?
                .query_map(params![value, after, some as i64], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
                .collect::<Result<_, _>>()?;
            let Some(&(last, ..)) = page.last() else { break };
            (after, looks_left) = (last, looks_left - page.len());
            for (item, channel, first, replies) in page {
                moved += usize::from(match replies.and_then(|bytes| read_replies(&bytes)) {
                    Some(replies) => self.send_kept(item, &replies)?,
                    None => self.put_back(item, channel, first)?,
                });
            }
        }
        self.work_made |= moved > 0;
        Ok(moved)
    }

    /// Queues the replies that were kept with a parked item, which is done with then; false while there is no room for them.
    fn send_kept(&mut self, item: i64, replies: &[NewMessage]) -> Result<bool, StepError> {
        if self.finds_no_room(replies)?.is_some() {
            return Ok(false);
        }
        for reply in replies {
            self.submit(reply)?;
        }
        self.db.prepare_cached("DELETE FROM parked WHERE item = ?1")?.execute([item])?;
        Ok(true)
    }

    fn put_back(&mut self, item: i64, channel: i64, first: i64) -> rusqlite::Result<bool> {
        let line = self.line_of(first)?.map(|(_, line)| line).unwrap_or_default();
        let put = self.last_number as i64 + 1;
        self.db
            .prepare_cached(
                "INSERT INTO inbox SELECT channel, item, ?2, first, members, attempt, replay, received, ?3, why, 0, ?4, ?5
                 FROM parked WHERE item = ?1",
            )?
            .execute(params![item, line.lane, self.now_ms, line.peer, put])?;
        self.db.prepare_cached("DELETE FROM parked WHERE item = ?1")?.execute([item])?;
        self.note_nameless(channel, item, &line)?;
        self.close_turn(channel, line.lane)?;
        self.lanes.add(&self.db, channel, Waiting::new(item, line.lane, self.now_ms, Line::default()).of(line.peer))?;
        Ok(true)
    }

    pub(super) fn channel_name(&self, channel: i64) -> Arc<str> {
        self.channel_names.get(&channel).cloned().unwrap_or_else(|| "".into())
    }

    /// The channel of a recorded event, and the line of whom its peer is now.
    pub(super) fn line_of(&mut self, number: i64) -> rusqlite::Result<Option<(i64, InLine)>> {
        let found = self
            .db
            .prepare_cached("SELECT channel, kind, account, peer FROM events WHERE number = ?1")?
            .query_row([number], |row| Ok((row.get(0)?, lane_thread(kind_of(row.get(1)?), row.get(2)?, row.get(3)?))))
            .optional()?;
        let Some((channel, thread)) = found else { return Ok(None) };
        let Some(ThreadId { account, peer }) = thread else { return Ok(Some((channel, InLine::default()))) };
        let root = self.threads.resolve_name(&self.db, &account, &peer)?.map(|(_, root)| root);
        let nameless = root.is_none();
        let root = root.filter(|root| **root != *peer);
        let lane = lane_name(&self.channel_name(channel), &account, root.as_deref().unwrap_or(&peer));
        let line = InLine { lane: Some(lane), peer: root, nameless };
        Ok(Some((channel, self.speaking(channel, line)?)))
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
        let Some((channel, line)) = self.line_of(number)? else { return Ok(None) };
        let replays: u32 = self
            .db
            .prepare_cached(
                "SELECT count(*) FROM (SELECT item FROM attempts WHERE first = ?1 AND item > ?1
                 UNION SELECT item FROM inbox WHERE first = ?1 AND replay IS NOT NULL
                 UNION SELECT item FROM parked WHERE first = ?1 AND replay IS NOT NULL)",
            )?
            .query_row([number], |row| row.get(0))?;
        let item = self.number() as i64;
        self.db
            .prepare_cached("INSERT INTO inbox VALUES (?2, ?1, ?3, ?4, NULL, 0, ?5, ?6, ?6, NULL, 0, ?7, NULL)")?
            .execute(params![item, channel, line.lane, number, replays + 1, self.now_ms, line.peer])?;
        // Once it is delivered no row says how far the numbers went.
        self.db.prepare_cached("UPDATE meta SET value = ?1 WHERE name = 'last_number'")?.execute([item])?;
        self.note_nameless(channel, item, &line)?;
        self.close_turn(channel, line.lane)?;
        self.lanes.add(&self.db, channel, Waiting::new(item, line.lane, self.now_ms, Line::default()).of(line.peer))?;
        self.work_made = true;
        Ok(Some(item_id(self.now_ms, item)))
    }

    /// Writes and takes back, which proves that the file can be written to.
    pub(super) fn ping(&mut self) -> Result<(), StepError> {
        if !self.disk.has_room() {
            return Err(StepError::Refused(StoreError::Full { floor_mb: self.disk.floor_mb() }));
        }
        self.db
            .prepare_cached("INSERT INTO meta VALUES ('ping', 0) ON CONFLICT (name) DO UPDATE SET value = 1 - value")?
            .execute([])?;
        Ok(())
    }
}
