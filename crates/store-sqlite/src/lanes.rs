//! Which item is whose turn. In memory, because a lane on disk would cost a random page per event; built from the inbox when a channel
//! is first asked for.
//!
//! Memory is bounded: of a channel's long inbox only the oldest items are held, the rest wait on disk and are read in as these go.
//! Order holds all the same, since items are read in the order they were accepted. Channels nobody leases from take no memory at all,
//! and no channel's backlog stands in the way of another's.
//!
//! Lanes that turn out to be of one person become one, in memory at once. On disk their items keep the lane they were put into, and
//! `joined_lanes` says which it is now.

mod accounts;
mod in_memory;
mod joined;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use hapax_domain::Fence;
use hapax_domain::limits::WAIT_MAX_MS;
use hapax_store::LaneRef;
use rusqlite::{Connection, Row, params};

use accounts::account_of;

use super::keys::KeyIsHash;
use super::number_hash::NumberHash;
use super::rows::named_by;

/// The ordering key of a lane: channel and thread, hashed. Two threads that met here would only wait for each other.
pub(super) type LaneName = [u8; 16];

/// The tables a queue lives in: `waiting` selects items after a number, with whether their wait is one that hapax has set itself; `leases` the
/// leases, both of one channel; `extend` moves the end of a lease.
#[derive(Clone, Copy)]
pub(super) struct Tables {
    pub(super) waiting: &'static str,
    /// Selects the account of an item of a channel, where `waiting` does not say whose it is.
    pub(super) account: Option<&'static str>,
    pub(super) leases: &'static str,
    pub(super) extend: &'static str,
}

pub(super) const INBOX: Tables = Tables {
    waiting: "SELECT item, ifnull((SELECT j.into_lane FROM joined_lanes j WHERE j.lane = i.lane AND j.to_number >= ifnull(i.put, i.item)
                  ORDER BY j.to_number LIMIT 1), lane), due, 0, 0, 1, lane,
                  ifnull((SELECT j.peer FROM joined_lanes j WHERE j.lane = i.lane AND j.to_number >= ifnull(i.put, i.item)
                  ORDER BY j.to_number LIMIT 1), peer)
              FROM inbox i WHERE channel = ?1 AND item > ?2 ORDER BY item LIMIT ?3",
    account: Some("SELECT e.account FROM inbox i JOIN events e ON e.number = i.first WHERE i.channel = ?1 AND i.item = ?2"),
    leases: "SELECT channel, item, attempt, fence, worker, leased, ends FROM leases WHERE channel = ?1",
    extend: "UPDATE leases SET ends = ?2 WHERE item = ?1",
};

/// Lanes whose first items have this in common are told apart when leasing: what goes first, and whose it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Line {
    pub(super) priority: u8,
    pub(super) account: i64,
}

/// The lanes of all channels.
pub(super) struct Lanes {
    channels: HashMap<i64, ChannelLanes, BuildHasherDefault<NumberHash>>,
    tables: Tables,
    /// How many items of a channel are held in memory before the rest is left on disk.
    window: usize,
    /// Items of channels that are not in memory, whose rows are not written yet: whoever loads their channel would not find them there.
    unwritten: Vec<(i64, Waiting)>,
    /// Changed since the last commit.
    touched: bool,
    /// The store's time, for what is read from disk.
    pub(super) now_ms: i64,
}

struct ChannelLanes {
    lanes: HashMap<u64, Lane, BuildHasherDefault<NumberHash>>,
    names: HashMap<LaneName, u64, BuildHasherDefault<KeyIsHash>>,
    /// In the order in which they are to be taken.
    lines: BTreeMap<Line, BTreeSet<Turn>>,
    /// The lanes of items that are leased.
    leased: HashMap<i64, u64, BuildHasherDefault<NumberHash>>,
    last_lane: u64,
    items: usize,
    /// Every open item up to this number is in memory.
    loaded_to: i64,
    /// There may be items beyond, on disk only.
    more_on_disk: bool,
    /// Whose they are is known: from when one of the accounts rested for the first time. Before that all are in one line.
    by_account: bool,
}

/// When a lane is due, its first item, and the lane.
type Turn = (i64, i64, u64);

struct Lane {
    name: Option<LaneName>,
    /// Lanes that became one with it, and how much is left of what was put into each: so long their names lead here.
    joined: Vec<(LaneName, usize)>,
    /// Whose it is, where something in it is from another name of theirs.
    peer: Option<Arc<str>>,
    /// Oldest first.
    items: VecDeque<Position>,
    /// More than one only where lanes were joined while somebody was at work in each.
    held: Vec<Held>,
    line: Line,
    turn: Turn,
}

#[derive(Clone, Copy)]
struct Position {
    item: i64,
    due: i64,
    line: Line,
    /// The place in `joined` of the lane it was put into, where that was another.
    of: Option<usize>,
}

/// A lease that stands.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) channel: i64,
    pub(super) item: i64,
    pub(super) attempt: u32,
    pub(super) fence: i64,
    pub(super) worker: Arc<str>,
    pub(super) leased: i64,
    pub(super) ends: i64,
    /// Nothing where it was read from its table.
    pub(super) origin: Option<Origin>,
}

/// Where an item of the inbox comes from.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    /// Its first event.
    pub(super) first: i64,
    pub(super) received: i64,
}

impl Held {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let worker: String = row.get(4)?;
        Ok(Self {
            channel: row.get(0)?,
            item: row.get(1)?,
            attempt: row.get(2)?,
            fence: row.get(3)?,
            worker: worker.into(),
            leased: row.get(5)?,
            ends: row.get(6)?,
            origin: None,
        })
    }
}

/// What a lane needs to know of an item.
#[derive(Clone)]
pub(super) struct Waiting {
    pub(super) item: i64,
    pub(super) lane: Option<LaneName>,
    /// The lane it was put into before that became one with `lane`, or the same.
    pub(super) put_into: Option<LaneName>,
    /// Whose lane it is, where it is from another name of theirs.
    pub(super) peer: Option<Arc<str>>,
    pub(super) due: i64,
    pub(super) line: Line,
}

impl Waiting {
    /// Something that comes into a lane now.
    pub(super) fn new(item: i64, lane: Option<LaneName>, due: i64, line: Line) -> Self {
        Self { item, lane, put_into: lane, peer: None, due, line }
    }

    pub(super) fn of(self, peer: Option<Arc<str>>) -> Self {
        Self { peer, ..self }
    }
}

impl Lanes {
    pub(super) fn new(tables: Tables, window: usize) -> Self {
        Self { channels: HashMap::default(), tables, window: window.max(2), unwritten: Vec::new(), touched: false, now_ms: 0 }
    }

    pub(super) fn committed(&mut self) {
        self.touched = false;
    }

    /// Forgets what the failed batch may have changed; it is read from disk again when it is needed.
    pub(super) fn rolled_back(&mut self) {
        self.unwritten.clear();
        if std::mem::take(&mut self.touched) {
            self.channels.clear();
        }
    }

    /// Forgets everything; it is read from disk again when it is needed.
    pub(super) fn forget_all(&mut self) {
        self.channels.clear();
    }

    fn of(&mut self, db: &Connection, channel: i64) -> rusqlite::Result<&mut ChannelLanes> {
        self.touched = true;
        match self.channels.entry(channel) {
            std::collections::hash_map::Entry::Occupied(there) => Ok(there.into_mut()),
            std::collections::hash_map::Entry::Vacant(gap) => {
                let lanes = gap.insert(ChannelLanes::load(db, self.tables, channel, self.window, self.now_ms)?);
                in_memory::take(&mut self.unwritten, channel).for_each(|item| lanes.add(item, self.window));
                Ok(lanes)
            }
        }
    }

    /// Takes note of an item that was just written to its table.
    pub(super) fn add(&mut self, db: &Connection, channel: i64, mut item: Waiting) -> rusqlite::Result<()> {
        if let Some(lanes) = self.channels.get_mut(&channel) {
            self.touched = true;
            if lanes.by_account && lanes.takes(item.item, self.window) {
                item.line.account = account_of(db, self.tables, channel, item.item)?;
            }
            lanes.add(item, self.window);
        }
        Ok(())
    }

    /// The lanes whose turn it is, with their first items; at most `max`, and none of accounts that rest.
    pub(super) fn due(
        &mut self,
        db: &Connection,
        channel: i64,
        now: i64,
        max: usize,
        rests: &dyn Fn(i64) -> bool,
    ) -> rusqlite::Result<Vec<(u64, i64)>> {
        let (window, tables) = (self.window, self.tables);
        let lanes = self.of(db, channel)?;
        loop {
            let due = lanes.due(now, max, rests);
            // Read on when few are left in memory, or when those in memory leave workers idle; but never without bound.
            let idle = due.len() < max && lanes.items < window * 4;
            if !lanes.more_on_disk || !(idle || lanes.items < window / 2) {
                return Ok(due);
            }
            lanes.load_more(db, tables, channel, window, now)?;
        }
    }

    /// Ends all leases of the lane; gives them by rising item.
    pub(super) fn take_held(&mut self, db: &Connection, channel: i64, lane: u64) -> rusqlite::Result<Vec<Held>> {
        Ok(self.of(db, channel)?.take_all_held(lane))
    }

    /// True when it is the lane's turn.
    pub(super) fn is_due(&self, channel: i64, lane: u64, now: i64) -> bool {
        let lane = self.channels.get(&channel).and_then(|lanes| lanes.lanes.get(&lane));
        lane.is_some_and(|lane| lane.turn.0 <= now)
    }

    pub(super) fn lease(&mut self, db: &Connection, lane: u64, held: Held) -> rusqlite::Result<()> {
        self.of(db, held.channel)?.lease(lane, held);
        Ok(())
    }

    /// Moves the end of leases, in memory and on disk; tells for each whether it is still held.
    pub(super) fn extend(&mut self, db: &Connection, leases: &[(LaneRef, Fence)], ends: i64) -> rusqlite::Result<Vec<bool>> {
        let mut update = db.prepare_cached(self.tables.extend)?;
        let mut kept = Vec::with_capacity(leases.len());
        for (lane, fence) in leases {
            let (channel, item) = named_by(*lane);
            let lanes = self.of(db, channel)?;
            let held = lanes.extend(item, fence.0 as i64, ends);
            if held {
                update.execute([item, ends])?;
            }
            kept.push(held);
        }
        Ok(kept)
    }

    /// The leases of a channel that have not run out, by item, each with whose lane it is of.
    pub(super) fn held(&mut self, db: &Connection, channel: i64, now: i64) -> rusqlite::Result<Vec<(Held, Option<Arc<str>>)>> {
        let lanes = self.of(db, channel)?;
        let of_item = |(item, lane): (&i64, &u64)| {
            let lane = lanes.lanes.get(lane)?;
            let held = lane.held.iter().find(|held| held.item == *item && held.ends > now)?;
            Some((held.clone(), lane.peer.clone()))
        };
        let mut held: Vec<(Held, Option<Arc<str>>)> = lanes.leased.iter().filter_map(of_item).collect();
        held.sort_by_key(|(held, _)| held.item);
        Ok(held)
    }

    /// Ends the lease under this fence; gives its lane and what it was.
    pub(super) fn end(&mut self, db: &Connection, channel: i64, item: i64, fence: i64) -> rusqlite::Result<Option<(u64, Held)>> {
        Ok(self.of(db, channel)?.end(item, fence))
    }

    /// True while this fence holds the item.
    pub(super) fn is_held(&mut self, db: &Connection, channel: i64, item: i64, fence: i64) -> rusqlite::Result<bool> {
        Ok(self.of(db, channel)?.held_under(item, fence).is_some())
    }

    /// The lane that an item is in which is to be changed. Searches: for what people do, not for what workers do.
    pub(super) fn lane_of(&mut self, channel: i64, item: i64) -> Option<u64> {
        let mut lanes = self.channels.get(&channel)?.lanes.iter();
        self.touched = true;
        lanes.find(|(_, lane)| lane.items.iter().any(|place| place.item == item)).map(|(&lane, _)| lane)
    }

    /// Takes an item out of its lane; true when more may be waiting.
    pub(super) fn remove(&mut self, channel: i64, lane: u64, item: i64) -> bool {
        self.channels.get_mut(&channel).is_some_and(|lanes| lanes.remove(lane, item))
    }

    /// Sets when an item is due.
    pub(super) fn postpone(&mut self, channel: i64, lane: u64, item: i64, due: i64) {
        if let Some(lanes) = self.channels.get_mut(&channel) {
            lanes.postpone(lane, item, due);
        }
    }

    /// Something became part of an item that nobody holds: it is due at another time, and may say whose the lane is.
    pub(super) fn grow_item(&mut self, channel: i64, lane: LaneName, item: i64, due: i64, peer: Option<Arc<str>>) {
        let Some(lanes) = self.channels.get_mut(&channel) else { return };
        let Some(&lane) = lanes.names.get(&lane) else { return };
        self.touched = true;
        if let Some(of) = lanes.lanes.get_mut(&lane) {
            of.peer = of.peer.take().or(peer);
        }
        lanes.postpone(lane, item, due);
    }

    /// Whether somebody has leased from the channel lately, so that its lanes are in memory.
    pub(super) fn is_loaded(&self, channel: i64) -> bool {
        self.channels.contains_key(&channel)
    }

    /// False when it is certain that nothing waits in any lane of the channel.
    pub(super) fn may_hold(&self, channel: i64) -> bool {
        self.channels.get(&channel).is_none_or(|lanes| lanes.more_on_disk || !lanes.names.is_empty())
    }

    /// The lane that something goes into which is to be put into this one, and whose that is, where something in it tells; `None` when
    /// nothing in memory waits there.
    pub(super) fn speaker(&self, channel: i64, lane: LaneName) -> Option<(LaneName, Option<Arc<str>>)> {
        let lanes = self.channels.get(&channel)?;
        let speaks = lanes.lanes.get(lanes.names.get(&lane)?)?;
        Some((speaks.name.unwrap_or(lane), speaks.peer.clone()))
    }

    /// Whose a lane is, where something in it is from another name of theirs.
    pub(super) fn peer(&self, channel: i64, lane: u64) -> Option<Arc<str>> {
        self.channels.get(&channel)?.lanes.get(&lane)?.peer.clone()
    }

    /// Makes what waits in one lane wait in another, that of `peer`. Gives the lanes of which something may be waiting on disk.
    pub(super) fn join(&mut self, channel: i64, from: LaneName, into: LaneName, peer: &Arc<str>) -> Vec<LaneName> {
        let Some(lanes) = self.channels.get_mut(&channel) else { return vec![from] };
        let mut joined: Vec<LaneName> = lanes.join(from, into, peer).into_iter().collect();
        self.touched |= !joined.is_empty();
        if lanes.more_on_disk && !joined.contains(&from) {
            joined.push(from);
        }
        joined
    }
}

impl ChannelLanes {
    /// Reads the oldest items of the channel, and the leases on them.
    fn load(db: &Connection, tables: Tables, channel: i64, window: usize, now: i64) -> rusqlite::Result<Self> {
        let mut lanes = Self {
            lanes: HashMap::default(),
            names: HashMap::default(),
            lines: BTreeMap::new(),
            leased: HashMap::default(),
            last_lane: 0,
            items: 0,
            loaded_to: 0,
            more_on_disk: true,
            by_account: false,
        };
        let held: Vec<Held> = db.prepare_cached(tables.leases)?.query_map([channel], Held::read)?.collect::<Result<_, _>>()?;
        // Leased items were in memory once, so they are never far beyond the window.
        let last_leased = held.iter().map(|held| held.item).max().unwrap_or(0);
        while lanes.more_on_disk && (lanes.loaded_to == 0 || lanes.loaded_to < last_leased) {
            lanes.load_more(db, tables, channel, window, now)?;
        }
        let mut of_item: HashMap<i64, u64> = HashMap::new();
        for (&number, lane) in &lanes.lanes {
            of_item.extend(lane.items.iter().map(|place| (place.item, number)));
        }
        for held in held {
            if let Some(&lane) = of_item.get(&held.item) {
                lanes.lease(lane, held);
            }
        }
        Ok(lanes)
    }

    /// Reads the next items from disk. One that is due later than any wait of ours would be was dated by a wrong clock: it is due now.
    fn load_more(&mut self, db: &Connection, tables: Tables, channel: i64, window: usize, now: i64) -> rusqlite::Result<()> {
        let waiting: Vec<Waiting> = db
            .prepare_cached(tables.waiting)?
            .query_map(params![channel, self.loaded_to, window as i64], |row| {
                let line = Line { priority: row.get(3)?, account: row.get(4)? };
                let (due, ours): (i64, bool) = (row.get(2)?, row.get(5)?);
                let due = if ours && due > now + WAIT_MAX_MS { now } else { due };
                Ok(Waiting {
                    item: row.get(0)?,
                    lane: row.get(1)?,
                    put_into: row.get(6)?,
                    peer: row.get::<_, Option<String>>(7)?.map(Arc::from),
                    due,
                    line,
                })
            })?
            .collect::<Result<_, _>>()?;
        self.more_on_disk = waiting.len() == window;
        for mut item in waiting {
            self.loaded_to = item.item;
            if self.by_account {
                item.line.account = account_of(db, tables, channel, item.item)?;
            }
            self.put(item);
        }
        Ok(())
    }

    fn due(&self, now: i64, max: usize, rests: &dyn Fn(i64) -> bool) -> Vec<(u64, i64)> {
        let mut due = Vec::new();
        let mut lines = self.lines.iter().filter(|(line, _)| !rests(line.account)).peekable();
        while let Some((line, turns)) = lines.next() {
            let from = due.len();
            let mut same = vec![turns];
            while let Some((_, more)) = lines.next_if(|(next, _)| next.priority == line.priority) {
                same.push(more);
            }
            for turns in same {
                due.extend(turns.iter().take_while(|(due, ..)| *due <= now).take(max));
            }
            due[from..].sort_unstable();
            due.truncate(max);
        }
        due.into_iter().map(|&(_, item, lane)| (lane, item)).collect()
    }

    /// Whether something new is held in memory.
    fn takes(&self, item: i64, window: usize) -> bool {
        item <= self.loaded_to || !(self.more_on_disk || self.items >= window)
    }

    fn add(&mut self, item: Waiting, window: usize) {
        self.more_on_disk |= self.items >= window && item.item > self.loaded_to;
        if self.takes(item.item, window) {
            self.loaded_to = self.loaded_to.max(item.item);
            self.put(item);
        }
    }

    fn put(&mut self, item: Waiting) {
        let known = item.lane.and_then(|name| self.names.get(&name).copied());
        let number = known.unwrap_or_else(|| self.open(item.lane));
        if let Some(lane) = self.lanes.get_mut(&number) {
            if lane.peer.is_none() {
                lane.peer = item.peer;
            }
            let of = item.put_into.filter(|_| item.put_into != lane.name).map(|name| lane.count_joined(name, 1));
            if let Some(name) = item.put_into.filter(|_| of.is_some()) {
                self.names.entry(name).or_insert(number);
            }
            let at = lane.items.partition_point(|before| before.item < item.item);
            lane.items.insert(at, Position { item: item.item, due: item.due, line: item.line, of });
            self.items += 1;
        }
        self.take_turn(number);
    }

    /// Puts the lane where it belongs in the line, after anything about it has changed.
    fn take_turn(&mut self, number: u64) {
        self.leave_line(number);
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        match lane.items.front() {
            Some(first) => {
                lane.line = first.line;
                // Nobody begins before everybody has ended.
                let ends = lane.held.iter().map(|held| held.ends).max();
                lane.turn = (ends.unwrap_or(first.due), first.item, number);
                self.lines.entry(lane.line).or_default().insert(lane.turn);
            }
            None => {
                let Some(lane) = self.lanes.remove(&number) else { return };
                for name in lane.joined.into_iter().map(|(name, _)| name).chain(lane.name) {
                    if self.names.get(&name) == Some(&number) {
                        self.names.remove(&name);
                    }
                }
            }
        }
    }

    fn leave_line(&mut self, number: u64) {
        let Some(lane) = self.lanes.get(&number) else { return };
        let Some(line) = self.lines.get_mut(&lane.line) else { return };
        line.remove(&lane.turn);
        // An account that sends nothing for a while takes no memory.
        if line.is_empty() && lane.items.front().is_none_or(|first| first.line != lane.line) {
            self.lines.remove(&lane.line);
        }
    }

    /// Makes a lane in which nothing waits yet.
    fn open(&mut self, name: Option<LaneName>) -> u64 {
        self.last_lane += 1;
        let (joined, items, held) = (Vec::new(), VecDeque::new(), Vec::new());
        let (line, turn) = (Line::default(), (0, 0, self.last_lane));
        self.lanes.insert(self.last_lane, Lane { name, joined, peer: None, items, held, line, turn });
        self.names.extend(name.map(|name| (name, self.last_lane)));
        self.last_lane
    }

    fn take_all_held(&mut self, lane: u64) -> Vec<Held> {
        let Some(of) = self.lanes.get_mut(&lane).filter(|lane| !lane.held.is_empty()) else { return Vec::new() };
        let mut held = std::mem::take(&mut of.held);
        held.sort_by_key(|held| held.item);
        for held in &held {
            self.leased.remove(&held.item);
        }
        self.take_turn(lane);
        held
    }

    fn lease(&mut self, lane: u64, held: Held) {
        self.leased.insert(held.item, lane);
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.held.push(held);
        }
        self.take_turn(lane);
    }

    /// Moves the end of the lease under this fence; false when there is none.
    fn extend(&mut self, item: i64, fence: i64, ends: i64) -> bool {
        let Some((lane, at)) = self.held_under(item, fence) else { return false };
        if let Some(held) = self.lanes.get_mut(&lane).and_then(|lane| lane.held.get_mut(at)) {
            held.ends = ends;
        }
        self.take_turn(lane);
        true
    }

    /// Ends the lease under this fence; gives its lane and what it was.
    fn end(&mut self, item: i64, fence: i64) -> Option<(u64, Held)> {
        let (lane, at) = self.held_under(item, fence)?;
        let held = self.lanes.get_mut(&lane)?.held.swap_remove(at);
        self.leased.remove(&item);
        self.take_turn(lane);
        Some((lane, held))
    }

    /// The lane of an item that is leased under this fence, and the place of the lease there.
    fn held_under(&self, item: i64, fence: i64) -> Option<(u64, usize)> {
        let lane = *self.leased.get(&item)?;
        let of = &self.lanes.get(&lane)?.held;
        of.iter().position(|held| held.item == item && held.fence == fence).map(|at| (lane, at))
    }

    fn remove(&mut self, lane: u64, item: i64) -> bool {
        let Some(of) = self.lanes.get_mut(&lane) else { return false };
        if let Ok(at) = of.items.binary_search_by_key(&item, |place| place.item) {
            let removed = of.items.remove(at);
            self.items -= 1;
            // Nothing is left of a lane that was joined: its name leads nowhere again.
            if let Some(left) = removed.and_then(|place| of.joined.get_mut(place.of?)) {
                left.1 -= 1;
                if left.1 == 0 && self.names.get(&left.0) == Some(&lane) {
                    self.names.remove(&left.0);
                }
            }
        }
        self.take_turn(lane);
        self.lanes.contains_key(&lane) || self.more_on_disk
    }

    fn postpone(&mut self, lane: u64, item: i64, due: i64) {
        let Some(of) = self.lanes.get_mut(&lane) else { return };
        if let Ok(at) = of.items.binary_search_by_key(&item, |place| place.item) {
            of.items[at].due = due;
        }
        self.take_turn(lane);
    }
}
