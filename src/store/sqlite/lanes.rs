//! Which item is whose turn. In memory, because a lane on disk would cost a random page per event; built from the inbox when a channel
//! is first asked for.
//!
//! Memory is bounded: of a channel's long inbox only the oldest items are held, the rest wait on disk and are read in as these go.
//! Order holds all the same, since items are read in the order they were accepted. Channels nobody leases from take no memory at all,
//! and no channel's backlog stands in the way of another's.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use rusqlite::{Connection, Row, params};

use super::keys::KeyIsHash;

/// The ordering key of a lane: channel and thread, hashed. Two threads that met here would only wait for each other.
pub(super) type LaneName = [u8; 16];

/// The lanes of all channels.
pub(super) struct Lanes {
    channels: HashMap<i64, ChannelLanes>,
    /// How many items of a channel are held in memory before the rest is left on disk.
    window: usize,
    /// Changed since the last commit.
    touched: bool,
}

struct ChannelLanes {
    lanes: HashMap<u64, Lane, BuildHasherDefault<NumberHash>>,
    names: HashMap<LaneName, u64, BuildHasherDefault<KeyIsHash>>,
    /// In the order in which they are to be taken.
    line: BTreeSet<Turn>,
    /// The lanes of items that are leased.
    leased: HashMap<i64, u64>,
    last_lane: u64,
    items: usize,
    /// Every open item up to this number is in memory.
    loaded_to: i64,
    /// There may be items beyond, on disk only.
    more_on_disk: bool,
}

/// When a lane is due, its first item, and the lane.
type Turn = (i64, i64, u64);

struct Lane {
    name: Option<LaneName>,
    /// Items and when they are due, oldest first.
    items: VecDeque<(i64, i64)>,
    held: Option<Held>,
    turn: Turn,
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
        })
    }
}

/// What a lane needs to know of an item.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    pub(super) item: i64,
    pub(super) lane: Option<LaneName>,
    pub(super) due: i64,
}

/// Spreads lane numbers, which are handed out one after the other and by nobody hostile.
#[derive(Default)]
struct NumberHash(u64);

impl Hasher for NumberHash {
    fn write(&mut self, _bytes: &[u8]) {}

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Lanes {
    pub(super) fn new(window: usize) -> Self {
        Self { channels: HashMap::new(), window: window.max(2), touched: false }
    }

    pub(super) fn committed(&mut self) {
        self.touched = false;
    }

    /// Forgets what the failed batch may have changed; it is read from disk again when it is needed.
    pub(super) fn rolled_back(&mut self) {
        if std::mem::take(&mut self.touched) {
            self.channels.clear();
        }
    }

    fn of(&mut self, db: &Connection, channel: i64) -> rusqlite::Result<&mut ChannelLanes> {
        self.touched = true;
        match self.channels.entry(channel) {
            std::collections::hash_map::Entry::Occupied(there) => Ok(there.into_mut()),
            std::collections::hash_map::Entry::Vacant(gap) => Ok(gap.insert(ChannelLanes::load(db, channel, self.window)?)),
        }
    }

    /// Takes note of an item that was just written to the inbox.
    pub(super) fn add(&mut self, channel: i64, item: Waiting) {
        if let Some(lanes) = self.channels.get_mut(&channel) {
            self.touched = true;
            lanes.add(item, self.window);
        }
    }

    /// The lanes whose turn it is, with their first items; at most `max`.
    pub(super) fn due(&mut self, db: &Connection, channel: i64, now: i64, max: usize) -> rusqlite::Result<Vec<(u64, i64)>> {
        let window = self.window;
        let lanes = self.of(db, channel)?;
        loop {
            let due: Vec<_> =
                lanes.line.iter().take_while(|(due, ..)| *due <= now).take(max).map(|turn| (turn.2, turn.1)).collect();
            // Read on when few are left in memory, or when those in memory leave workers idle; but never without bound.
            let idle = due.len() < max && lanes.items < window * 4;
            if !lanes.more_on_disk || !(idle || lanes.items < window / 2) {
                return Ok(due);
            }
            lanes.load_more(db, channel, window)?;
        }
    }

    /// Ends the lease of the lane, if there is one.
    pub(super) fn take_held(&mut self, db: &Connection, channel: i64, lane: u64) -> rusqlite::Result<Option<Held>> {
        Ok(self.of(db, channel)?.take_held(lane))
    }

    pub(super) fn lease(&mut self, db: &Connection, lane: u64, held: Held) -> rusqlite::Result<()> {
        self.of(db, held.channel)?.lease(lane, held);
        Ok(())
    }

    /// Moves the end of a lease; false when it is no longer held.
    pub(super) fn extend(&mut self, db: &Connection, channel: i64, item: i64, fence: i64, ends: i64) -> rusqlite::Result<bool> {
        let lanes = self.of(db, channel)?;
        let Some(lane) = lanes.held_under(item, fence) else { return Ok(false) };
        if let Some(held) = lanes.lanes.get_mut(&lane).and_then(|lane| lane.held.as_mut()) {
            held.ends = ends;
        }
        lanes.take_turn(lane);
        Ok(true)
    }

    /// Ends the lease under this fence; gives its lane and what it was.
    pub(super) fn end(&mut self, db: &Connection, channel: i64, item: i64, fence: i64) -> rusqlite::Result<Option<(u64, Held)>> {
        let lanes = self.of(db, channel)?;
        Ok(lanes.held_under(item, fence).and_then(|lane| Some((lane, lanes.take_held(lane)?))))
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
}

impl ChannelLanes {
    /// Reads the oldest items of the channel, and the leases on them.
    fn load(db: &Connection, channel: i64, window: usize) -> rusqlite::Result<Self> {
        let mut lanes = Self {
            lanes: HashMap::default(),
            names: HashMap::default(),
            line: BTreeSet::new(),
            leased: HashMap::new(),
            last_lane: 0,
            items: 0,
            loaded_to: 0,
            more_on_disk: true,
        };
        let held: Vec<Held> = db
            .prepare_cached("SELECT channel, item, attempt, fence, worker, leased, ends FROM leases WHERE channel = ?1")?
            .query_map([channel], Held::read)?
            .collect::<Result<_, _>>()?;
        // Leased items were in memory once, so they are never far beyond the window.
        let last_leased = held.iter().map(|held| held.item).max().unwrap_or(0);
        while lanes.more_on_disk && (lanes.loaded_to == 0 || lanes.loaded_to < last_leased) {
            lanes.load_more(db, channel, window)?;
        }
        let mut of_item: HashMap<i64, u64> = HashMap::new();
        for (&number, lane) in &lanes.lanes {
            of_item.extend(lane.items.iter().map(|(item, _)| (*item, number)));
        }
        for held in held {
            if let Some(&lane) = of_item.get(&held.item) {
                lanes.lease(lane, held);
            }
        }
        Ok(lanes)
    }

    /// Reads the next items from disk.
    fn load_more(&mut self, db: &Connection, channel: i64, window: usize) -> rusqlite::Result<()> {
        let waiting: Vec<Waiting> = db
            .prepare_cached("SELECT item, lane, due FROM inbox WHERE channel = ?1 AND item > ?2 ORDER BY item LIMIT ?3")?
            .query_map(params![channel, self.loaded_to, window as i64], |row| {
                Ok(Waiting { item: row.get(0)?, lane: row.get(1)?, due: row.get(2)? })
            })?
            .collect::<Result<_, _>>()?;
        self.more_on_disk = waiting.len() == window;
        for item in waiting {
            self.loaded_to = item.item;
            self.put(item);
        }
        Ok(())
    }

    fn add(&mut self, item: Waiting, window: usize) {
        self.more_on_disk |= self.items >= window && item.item > self.loaded_to;
        if item.item <= self.loaded_to || !self.more_on_disk {
            self.loaded_to = self.loaded_to.max(item.item);
            self.put(item);
        }
    }

    fn put(&mut self, item: Waiting) {
        let known = item.lane.and_then(|name| self.names.get(&name).copied());
        let number = known.unwrap_or_else(|| {
            self.last_lane += 1;
            let turn = (item.due, item.item, self.last_lane);
            self.lanes.insert(self.last_lane, Lane { name: item.lane, items: VecDeque::new(), held: None, turn });
            self.names.extend(item.lane.map(|name| (name, self.last_lane)));
            self.last_lane
        });
        if let Some(lane) = self.lanes.get_mut(&number) {
            let at = lane.items.partition_point(|(before, _)| *before < item.item);
            lane.items.insert(at, (item.item, item.due));
            self.items += 1;
        }
        self.take_turn(number);
    }

    /// Puts the lane where it belongs in the line, after anything about it has changed.
    fn take_turn(&mut self, number: u64) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        self.line.remove(&lane.turn);
        match lane.items.front() {
            Some(&(first, due)) => {
                lane.turn = (lane.held.as_ref().map_or(due, |held| held.ends), first, number);
                self.line.insert(lane.turn);
            }
            None => {
                let name = self.lanes.remove(&number).and_then(|lane| lane.name);
                name.and_then(|name| self.names.remove(&name));
            }
        }
    }

    fn take_held(&mut self, lane: u64) -> Option<Held> {
        let held = self.lanes.get_mut(&lane)?.held.take()?;
        self.leased.remove(&held.item);
        self.take_turn(lane);
        Some(held)
    }

    fn lease(&mut self, lane: u64, held: Held) {
        self.leased.insert(held.item, lane);
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.held = Some(held);
        }
        self.take_turn(lane);
    }

    fn held_under(&self, item: i64, fence: i64) -> Option<u64> {
        let lane = *self.leased.get(&item)?;
        self.lanes.get(&lane)?.held.as_ref().filter(|held| held.fence == fence).map(|_| lane)
    }

    fn remove(&mut self, lane: u64, item: i64) -> bool {
        let Some(of) = self.lanes.get_mut(&lane) else { return false };
        if let Ok(at) = of.items.binary_search_by_key(&item, |(number, _)| *number) {
            of.items.remove(at);
            self.items -= 1;
        }
        self.take_turn(lane);
        self.lanes.contains_key(&lane) || self.more_on_disk
    }

    fn postpone(&mut self, lane: u64, item: i64, due: i64) {
        let Some(of) = self.lanes.get_mut(&lane) else { return };
        if let Ok(at) = of.items.binary_search_by_key(&item, |(number, _)| *number) {
            of.items[at].1 = due;
        }
        self.take_turn(lane);
    }
}
