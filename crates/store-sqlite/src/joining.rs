//! One person, one lane: what waits under several names of one peer waits in one line, in every channel, inbox and outbox.

use rusqlite::{OptionalExtension, params};

use super::accept::{InLine, lane_name};
use super::lanes::LaneName;
use super::names::{Person, straighten};
use super::threads::Threads;
use super::writer::Writer;

/// Set once nothing waits any more as older versions put it in line, which was by the peer as the provider spelt it.
const LANES_JOINED: &str = "lanes_joined";

impl Writer {
    /// Makes what waits under a name wait in the line of the peer that it leads to from now on.
    pub(super) fn join_lanes(&mut self, account: &str, name: &str, person: &Person) -> rusqlite::Result<()> {
        let channels: Vec<_> = self.channels.iter().map(|(name, id)| (name.clone(), *id)).collect();
        for (channel_name, channel) in channels {
            // What goes out is little enough to look at; of a long inbox it may not be known whether something waits.
            self.outgoing.load(&self.db, channel)?;
            if self.lanes.may_hold(channel) || self.outgoing.may_hold(channel) {
                let from = lane_name(&channel_name, account, name);
                let into = lane_name(&channel_name, account, &person.peer);
                let mut joined = self.lanes.join(channel, from, into, &person.peer);
                joined.extend(self.outgoing.join(channel, from, into, &person.peer));
                self.write_joins(channel, &joined, into, &person.peer)?;
            }
        }
        Ok(())
    }

    /// The line that an item comes into which is to wait in this one.
    pub(super) fn speaking(&self, channel: i64, line: InLine) -> InLine {
        let Some(lane) = line.lane else { return line };
        let (lane, peer) = self.lanes.speaker(channel, lane);
        InLine { lane: Some(lane), peer: peer.or(line.peer) }
    }

    /// Writes down that all items up to now that were put into some lanes are in another.
    pub(super) fn write_joins(&self, channel: i64, joined: &[LaneName], into: LaneName, peer: &str) -> rusqlite::Result<()> {
        let now = self.last_number as i64;
        for lane in joined {
            self.db
                .prepare_cached("UPDATE joined_lanes SET into_lane = ?2, peer = ?3 WHERE into_lane = ?1")?
                .execute(params![lane, into, peer])?;
            let newest: Option<(i64, LaneName)> = self
                .db
                .prepare_cached("SELECT to_number, into_lane FROM joined_lanes WHERE lane = ?1 ORDER BY to_number DESC LIMIT 1")?
                .query_row([lane], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            match newest.filter(|(_, before)| *before == into) {
                Some((to_number, _)) => self
                    .db
                    .prepare_cached("UPDATE joined_lanes SET to_number = ?3 WHERE lane = ?1 AND to_number = ?2")?
                    .execute(params![lane, to_number, now])?,
                None => self
                    .db
                    .prepare_cached("INSERT OR REPLACE INTO joined_lanes VALUES (?1, ?2, ?3, ?4, ?5)")?
                    .execute(params![lane, now, into, channel, peer])?,
            };
        }
        Ok(())
    }

    /// Forgets joins of lanes when nothing is left of what was in line before them; at most so many of each channel.
    pub(super) fn purge_joins(&self, max: usize) -> rusqlite::Result<()> {
        let mut oldest = self.db.prepare_cached(
            "SELECT min(ifnull((SELECT min(item) FROM inbox WHERE channel = ?1), ?2),
                        ifnull((SELECT min(number) FROM outbox WHERE channel = ?1), ?2))",
        )?;
        let mut delete = self.db.prepare_cached(
            "DELETE FROM joined_lanes WHERE (lane, to_number) IN
                 (SELECT lane, to_number FROM joined_lanes WHERE channel = ?1 AND to_number < ?2 LIMIT ?3)",
        )?;
        for &channel in self.channels.values() {
            let oldest: i64 = oldest.query_row([channel, i64::MAX], |row| row.get(0))?;
            delete.execute([channel, oldest, max as i64])?;
        }
        Ok(())
    }

    /// Puts what an older version left waiting into the lanes of today. Done once.
    pub(super) fn join_old_lanes(&mut self) -> rusqlite::Result<()> {
        if self.db.prepare("SELECT 1 FROM meta WHERE name = ?1")?.exists([LANES_JOINED])? {
            return Ok(());
        }
        straighten(&self.db)?;
        self.put_all_in_line()?;
        self.db.execute("INSERT INTO meta VALUES (?1, 1)", [LANES_JOINED])?;
        Ok(())
    }

    /// Puts what came from another store into the lanes of today: its names may have led on from one to the next.
    pub(super) fn join_moved_lanes(&mut self) -> rusqlite::Result<()> {
        if straighten(&self.db)? {
            self.threads = Threads::new();
            self.put_all_in_line()?;
        }
        Ok(())
    }

    fn put_all_in_line(&mut self) -> rusqlite::Result<()> {
        let waiting: Vec<(i64, i64, i64)> = self
            .db
            .prepare("SELECT channel, item, first FROM inbox WHERE lane IS NOT NULL")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<Result<_, _>>()?;
        for (channel, item, first) in waiting {
            if let Some((_, line)) = self.line_of(first)? {
                let set = "UPDATE inbox SET lane = ?3, peer = ?4 WHERE channel = ?1 AND item = ?2";
                self.db.prepare_cached(set)?.execute(params![channel, item, line.lane, line.peer])?;
            }
        }
        let outgoing: Vec<i64> = self
            .db
            .prepare("SELECT number FROM outbox WHERE lane IS NOT NULL")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for number in outgoing {
            let lane = self.lane_of_message(number)?;
            self.db.prepare_cached("UPDATE outbox SET lane = ?2 WHERE number = ?1")?.execute(params![number, lane])?;
        }
        Ok(())
    }
}
