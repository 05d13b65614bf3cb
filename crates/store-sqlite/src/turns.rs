//! Turns: what comes into a lane while its last item waits for silence becomes part of that item.

use std::sync::Arc;

use hapax_domain::Coalesce;
use rusqlite::{OptionalExtension, params};

use super::accept::{Gathered, InLine, members_blob};
use super::lanes::LaneName;
use super::writer::Writer;

/// What is known of the turn that an item of a webhook begins, or becomes part of.
#[derive(Default)]
pub(super) struct GatheredTurn {
    /// The lane that its lane has become part of by now, or the same.
    lane: Option<LaneName>,
    /// Other names under which events of this webhook came into it.
    pub(super) names: Vec<LaneName>,
    /// The lane of the open turn that it becomes part of.
    pub(super) joins: Option<LaneName>,
    /// Of that turn, how many were in it, and when it began.
    before: usize,
    began_ms: Option<i64>,
    /// Its lane became one with another since: what comes next becomes no part of it.
    pub(super) closed: bool,
}

/// What something that comes into a line becomes part of.
pub(super) enum Turn {
    /// An item of the same webhook, by its place.
    Gathered(usize),
    /// An item that was there before.
    Open(u64, GatheredTurn),
    New(GatheredTurn),
}

impl Writer {
    /// What something that comes into this line now becomes part of: the last that came into its lane, while that is open.
    pub(super) fn open_turn(
        &self,
        channel: i64,
        line: &InLine,
        coalesce: Option<Coalesce>,
        gathered: &[Gathered],
    ) -> rusqlite::Result<Turn> {
        let Some(coalesce) = coalesce.filter(|_| line.lane.is_some()) else { return Ok(Turn::New(GatheredTurn::default())) };
        let lane = self.speaking(channel, line.clone())?.lane;
        let new = GatheredTurn { lane, ..GatheredTurn::default() };
        // What waits under one name may wait in the lane of another, though nobody knows any more that these are one person.
        if let Some(at) = gathered.iter().rposition(|item| item.turn.lane == lane) {
            let GatheredTurn { before, began_ms, closed, .. } = gathered[at].turn;
            let due_ms = coalesce.due_ms(began_ms.unwrap_or(self.now_ms), self.now_ms);
            let takes = !closed && coalesce.takes(due_ms, before + gathered[at].members.len(), self.now_ms);
            return Ok(if takes { Turn::Gathered(at) } else { Turn::New(new) });
        }
        let open: Option<(i64, i64, i64, Option<i64>)> = self
            .db
            .prepare_cached(
                "SELECT i.item, i.received, i.due, length(i.members)
                 FROM turns t JOIN inbox i ON i.channel = t.channel AND i.item = t.item
                 WHERE t.channel = ?1 AND t.lane = ?2",
            )?
            .query_row(params![channel, lane], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
            .optional()?;
        let Some((item, began, due, bytes)) = open else { return Ok(Turn::New(new)) };
        let before = bytes.map_or(1, |bytes| bytes as usize / size_of::<u64>());
        Ok(match coalesce.takes(due, before, self.now_ms) {
            true => Turn::Open(item as u64, GatheredTurn { joins: lane, before, began_ms: Some(began), ..new }),
            false => Turn::New(new),
        })
    }

    /// A lane became one with another: nothing becomes part of what is in it any more, be it of this webhook.
    pub(super) fn end_turns(&self, channel: i64, lane: LaneName, gathered: &mut [Gathered]) -> rusqlite::Result<()> {
        let ended = self.speaking(channel, InLine { lane: Some(lane), ..InLine::default() })?.lane;
        for Gathered { turn, line, .. } in gathered.iter_mut().filter(|item| item.turn.lane.is_some()) {
            turn.lane = self.speaking(channel, line.clone())?.lane;
            turn.closed |= turn.lane == ended;
        }
        self.close_turn(channel, ended)
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
