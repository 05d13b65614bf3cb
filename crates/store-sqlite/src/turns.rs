//! Turns: what comes into a lane while its last item waits for silence becomes part of that item.

use std::sync::Arc;

use hapax_domain::Coalesce;
use rusqlite::{OptionalExtension, params};

use super::accept::{InLine, members_blob};
use super::lanes::LaneName;
use super::writer::Writer;

impl Writer {
    /// The item that something which comes into this line now becomes part of.
    pub(super) fn open_turn(&self, channel: i64, line: &InLine, coalesce: Coalesce) -> rusqlite::Result<Option<u64>> {
        let Some(lane) = self.speaking(channel, line.clone())?.lane else { return Ok(None) };
        let open: Option<(i64, i64, Option<i64>)> = self
            .db
            .prepare_cached(
                "SELECT i.item, i.due, length(i.members) FROM turns t JOIN inbox i ON i.channel = t.channel AND i.item = t.item
                 WHERE t.channel = ?1 AND t.lane = ?2",
            )?
            .query_row(params![channel, lane], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let takes = |(_, due, bytes): &(i64, i64, Option<i64>)| {
            let members = bytes.map_or(1, |bytes| bytes as usize / size_of::<u64>());
            coalesce.takes(*due, members, self.now_ms)
        };
        Ok(open.filter(takes).map(|(item, ..)| item as u64))
    }

    /// Makes events part of an item that is open.
    pub(super) fn join_turn(
        &mut self,
        (channel, lane, peer): (i64, LaneName, Option<Arc<str>>),
        item: u64,
        members: &[u64],
        coalesce: Coalesce,
    ) -> rusqlite::Result<()> {
        let item = item as i64;
        let (first, before, received): (i64, Option<Vec<u8>>, i64) = self
            .db
            .prepare_cached("SELECT first, members, received FROM inbox WHERE channel = ?1 AND item = ?2")?
            .query_row([channel, item], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let mut all = before.unwrap_or_else(|| members_blob(&[first as u64]));
        all.extend(members_blob(members));
        let due = coalesce.due_ms(received, self.now_ms);
        self.db
            .prepare_cached("UPDATE inbox SET members = ?3, due = ?4, peer = ifnull(peer, ?5) WHERE channel = ?1 AND item = ?2")?
            .execute(params![channel, item, all, due, peer])?;
        self.lanes.grow_item(channel, lane, item, due, peer);
        Ok(())
    }

    /// From now on what comes into this lane becomes part of the item.
    pub(super) fn begin_turn(&mut self, channel: i64, lane: LaneName, item: i64) -> rusqlite::Result<()> {
        self.turning.insert(channel);
        self.db.prepare_cached("INSERT OR REPLACE INTO turns VALUES (?1, ?2, ?3)")?.execute(params![channel, lane, item])?;
        Ok(())
    }

    /// From now on nothing becomes part of the lane's last item any more.
    pub(super) fn close_turn(&self, channel: i64, lane: Option<LaneName>) -> rusqlite::Result<()> {
        if self.turning.contains(&channel)
            && let Some(lane) = lane
        {
            self.db.prepare_cached("DELETE FROM turns WHERE channel = ?1 AND lane = ?2")?.execute(params![channel, lane])?;
        }
        Ok(())
    }

    /// The same for an item that is leased.
    pub(super) fn close_turn_of(&self, channel: i64, item: i64) -> rusqlite::Result<()> {
        if self.turning.contains(&channel) {
            self.db.prepare_cached("DELETE FROM turns WHERE item = ?1")?.execute([item])?;
        }
        Ok(())
    }

    /// Finds the channels that have turns open.
    pub(super) fn load_turns(&mut self) -> rusqlite::Result<()> {
        self.turning =
            self.db.prepare("SELECT DISTINCT channel FROM turns")?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(())
    }
}
