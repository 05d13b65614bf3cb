//! One person, one lane: what waits under several names of one peer waits in one line, in every channel, inbox and outbox.

use std::sync::Arc;

use rusqlite::{OptionalExtension, params};

use super::accept::{InLine, lane_name};
use super::lanes::LaneName;
use super::names::{Person, straighten};
use super::threads::Threads;
use super::writer::Writer;

/// The lowest number of what waits or is at work in a channel, in or out, or else the second argument.
const OLDEST_IN_LINE: &str = "SELECT min(ifnull((SELECT min(item) FROM inbox WHERE channel = ?1), ?2),
    ifnull((SELECT min(number) FROM outbox WHERE channel = ?1), ?2))";

/// Set once nothing waits any more as older versions put it in line, which was by the peer as the provider spelt it.
const LANES_JOINED: &str = "lanes_joined";

impl Writer {
    /// Makes what waits under a name wait in the line of the peer that it leads to from now on.
    /// True when something waited under it in the channel `here`. Under a name that led nowhere hardly anything ever waits.
    pub(super) fn join_lanes(
        &mut self,
        account: &str,
        (name, was_known): (&str, bool),
        person: &Person,
        here: &str,
    ) -> rusqlite::Result<bool> {
        let mut any_here = false;
        let mut channels: Vec<(Arc<str>, i64)> = Vec::new();
        if was_known || self.nameless.values().any(|to| *to > 0) {
            channels.extend(self.channels.iter().map(|(name, channel)| (Arc::clone(name), *channel)));
        }
        for (channel_name, channel) in channels {
            if !was_known && !self.may_be_nameless(channel)? {
                continue;
            }
            // What goes out is little enough to look at; of a long inbox it may not be known whether something waits.
            self.outgoing.load(&self.db, channel)?;
            if self.lanes.may_hold(channel) || self.outgoing.may_hold(channel) {
                let from = lane_name(&channel_name, account, name);
                let into = lane_name(&channel_name, account, &person.peer);
                let joined = self.join_inbox(channel, from, into, &person.peer)?;
                any_here |= !joined.is_empty() && *channel_name == *here;
                let mut sends = self.outgoing.join(channel, from, into, &person.peer);
                sends.retain(|lane| !joined.contains(lane));
                self.write_inbox_joins(channel, &joined, into, &person.peer)?;
                let into = self.outgoing.speaker(channel, into).map_or(into, |(speaks, _)| speaks);
                self.write_joins(channel, &sends, into, &person.peer)?;
            }
        }
        Ok(any_here)
    }

    /// Makes one lane of the inbox part of another. Gives the lanes of which something may be waiting on disk.
    pub(super) fn join_inbox(
        &mut self,
        channel: i64,
        from: LaneName,
        into: LaneName,
        peer: &Arc<str>,
    ) -> rusqlite::Result<Vec<LaneName>> {
        self.write_pending()?;
        let mut spoke = [None, None];
        if self.turning.contains(&channel) {
            // Of what is not in memory nobody knows whether anything waits there, and a join of nothing ends no turn.
            self.lanes.load(&self.db, channel)?;
            let speak = |lane| self.speaking(channel, InLine { lane: Some(lane), ..InLine::default() });
            spoke = [speak(from)?.lane, speak(into)?.lane];
        }
        let mut joined = self.lanes.join(channel, from, into, peer);
        // What waits under this name may have become part of a third lane before, which then comes along, as it does in memory.
        if let Some((spoke, _)) = self.spoke_on_disk(channel, from)?.filter(|(spoke, _)| *spoke != into) {
            let along = self.lanes.join(channel, spoke, into, peer).into_iter().filter(|lane| !joined.contains(lane));
            joined.extend(along.collect::<Vec<_>>());
        }
        for lane in spoke.into_iter().filter(|_| !joined.is_empty()) {
            self.close_turn(channel, lane)?;
        }
        Ok(joined)
    }

    /// Takes note of an item in line whose lane is called by a name that leads nowhere: a reaction, say, of somebody who said nothing so far.
    pub(super) fn note_nameless(&mut self, channel: i64, item: i64, line: &InLine) -> rusqlite::Result<()> {
        if line.nameless && self.nameless.get(&channel).is_none_or(|to| *to < item) {
            self.db.prepare_cached("UPDATE channels SET nameless_to = ?2 WHERE id = ?1")?.execute([channel, item])?;
            self.nameless.insert(channel, item);
        }
        Ok(())
    }

    /// The same of all that is in line, because names were forgotten.
    pub(super) fn note_all_nameless(&mut self) -> rusqlite::Result<()> {
        let last = self.last_number as i64;
        self.db.prepare_cached("UPDATE channels SET nameless_to = ?1")?.execute([last])?;
        self.nameless = self.channels.values().map(|channel| (*channel, last)).collect();
        Ok(())
    }

    /// False when nothing in line, in or out, is in a lane that is called by a name which leads nowhere.
    fn may_be_nameless(&mut self, channel: i64) -> rusqlite::Result<bool> {
        let Some(to) = self.nameless.get(&channel).copied().filter(|to| *to > 0) else { return Ok(false) };
        self.write_pending()?;
        let oldest: i64 = self.db.prepare_cached(OLDEST_IN_LINE)?.query_row([channel, i64::MAX], |row| row.get(0))?;
        Ok(oldest <= to)
    }

    /// The line that an item comes into which is to wait in this one.
    pub(super) fn speaking(&self, channel: i64, line: InLine) -> rusqlite::Result<InLine> {
        let Some(lane) = line.lane else { return Ok(line) };
        let (lane, peer) = match self.lanes.speaker(channel, lane) {
            Some(speaks) => speaks,
            None => self.spoke_on_disk(channel, lane)?.map_or((lane, None), |(lane, peer)| (lane, Some(peer))),
        };
        Ok(InLine { lane: Some(lane), peer: peer.or(line.peer), ..line })
    }

    /// The lane, and whose it is, that speaks for what still waits under a name, where that is not in memory.
    fn spoke_on_disk(&self, channel: i64, lane: LaneName) -> rusqlite::Result<Option<(LaneName, Arc<str>)>> {
        if !self.has_joins || self.lanes.is_all_in_memory(channel) {
            return Ok(None);
        }
        self.db
            .prepare_cached(
                "SELECT j.into_lane, j.peer FROM joined_lanes j WHERE j.lane = ?2 AND EXISTS
                     (SELECT 1 FROM inbox i WHERE i.channel = ?1 AND i.lane = ?2 AND ifnull(i.put, i.item) <= j.to_number)
                 ORDER BY j.to_number LIMIT 1",
            )?
            .query_row(params![channel, lane], |row| Ok((row.get(0)?, row.get::<_, String>(1)?.into())))
            .optional()
    }

    /// Writes down that lanes of the inbox became part of another, or of the one that this became part of before.
    pub(super) fn write_inbox_joins(
        &mut self,
        channel: i64,
        joined: &[LaneName],
        into: LaneName,
        peer: &Arc<str>,
    ) -> rusqlite::Result<()> {
        if joined.is_empty() {
            return Ok(());
        }
        let speaks = self.speaking(channel, InLine { lane: Some(into), peer: Some(Arc::clone(peer)), nameless: false })?;
        let into = speaks.lane.unwrap_or(into);
        let others: Vec<LaneName> = joined.iter().copied().filter(|lane| *lane != into).collect();
        self.write_joins(channel, &others, into, speaks.peer.as_deref().unwrap_or(peer))
    }

    /// Writes down that all items up to now that were put into some lanes are in another.
    pub(super) fn write_joins(&mut self, channel: i64, joined: &[LaneName], into: LaneName, peer: &str) -> rusqlite::Result<()> {
        let now = self.last_number as i64;
        self.has_joins |= !joined.is_empty();
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
        let mut oldest = self.db.prepare_cached(OLDEST_IN_LINE)?;
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
