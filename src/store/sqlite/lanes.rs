//! Which item is whose turn. In memory, because a lane on disk would cost a random page per event; built from the inbox at start.
//!
//! Memory is bounded: of a long inbox only the oldest items are held ([`Lanes::window`]), the rest wait on disk and are read in as
//! these go. Order holds all the same, since items are read in the order they were accepted.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use rusqlite::{Connection, Row, params};

use super::keys::KeyIsHash;

/// The ordering key of a lane: channel and thread, hashed. Two threads that met here would only wait for each other.
pub(super) type LaneName = [u8; 16];

pub(super) struct Lanes {
    lanes: HashMap<u64, Lane, BuildHasherDefault<NumberHash>>,
    names: HashMap<LaneName, u64, BuildHasherDefault<KeyIsHash>>,
    /// Lanes by channel, in the order in which they are to be taken.
    line: HashMap<i64, BTreeSet<Turn>>,
    /// The lanes of items that are leased.
    leased: HashMap<i64, u64>,
    last_lane: u64,
    items: usize,
    /// How many items are held in memory before the rest is left on disk.
    window: usize,
    /// Every open item up to this number is in memory.
    loaded_to: i64,
    /// There may be items beyond, on disk only.
    more_on_disk: bool,
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

/// When a lane is due, its first item, and the lane.
type Turn = (i64, i64, u64);

struct Lane {
    channel: i64,
    name: Option<LaneName>,
    /// Items and when they are due, oldest first.
    items: VecDeque<(i64, i64)>,
    held: Option<Held>,
    turn: Turn,
}

/// A lease that stands.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) item: i64,
    pub(super) attempt: u32,
    pub(super) fence: i64,
    pub(super) worker: Arc<str>,
    pub(super) leased: i64,
    pub(super) ends: i64,
}

/// What a lane needs to know of an item.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    pub(super) item: i64,
    pub(super) channel: i64,
    pub(super) lane: Option<LaneName>,
    pub(super) due: i64,
}

impl Waiting {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { item: row.get(0)?, channel: row.get(1)?, lane: row.get(2)?, due: row.get(3)? })
    }
}

impl Lanes {
    /// Reads the oldest items of the inbox, and the leases on them.
    pub(super) fn load(db: &Connection, window: usize) -> rusqlite::Result<Self> {
        let mut lanes = Self {
            lanes: HashMap::default(),
            names: HashMap::default(),
            line: HashMap::new(),
            leased: HashMap::new(),
            last_lane: 0,
            items: 0,
            window: window.max(1),
            loaded_to: 0,
            more_on_disk: true,
        };
        lanes.load_more(db)?;
        // A lease is always on an item in memory; after a failed commit the window may be shorter than it was.
        let last_leased: i64 = db.query_row("SELECT ifnull(max(item), 0) FROM leases", [], |row| row.get(0))?;
        while lanes.more_on_disk && lanes.loaded_to < last_leased {
            lanes.load_more(db)?;
        }
        let mut select = db.prepare_cached("SELECT item, attempt, fence, worker, leased, ends FROM leases")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let worker: String = row.get(3)?;
            let held = Held {
                item: row.get(0)?,
                attempt: row.get(1)?,
                fence: row.get(2)?,
                worker: worker.into(),
                leased: row.get(4)?,
                ends: row.get(5)?,
            };
            lanes.restore(held);
        }
        Ok(lanes)
    }

    fn restore(&mut self, held: Held) {
        let of = self.lanes.iter().find(|(_, lane)| lane.items.iter().any(|(item, _)| *item == held.item)).map(|(&lane, _)| lane);
        if let Some(lane) = of {
            self.lease(lane, held);
        }
    }

    /// Reads the next items from disk.
    fn load_more(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let waiting: Vec<Waiting> = db
            .prepare_cached("SELECT item, channel, lane, due FROM inbox WHERE item > ?1 ORDER BY item LIMIT ?2")?
            .query_map(params![self.loaded_to, self.window as i64], Waiting::read)?
            .collect::<Result<_, _>>()?;
        self.more_on_disk = waiting.len() == self.window;
        for item in waiting {
            self.loaded_to = item.item;
            self.put(item);
        }
        Ok(())
    }

    /// Reads on when few are left in memory, or when those in memory leave workers idle; but never without bound.
    pub(super) fn keep_filled(&mut self, db: &Connection, idle: bool) -> rusqlite::Result<bool> {
        let wanted = self.more_on_disk && (self.items < self.window / 2 || (idle && self.items < self.window * 4));
        if wanted {
            self.load_more(db)?;
        }
        Ok(wanted)
    }

    /// Takes note of an item that was just written to the inbox.
    pub(super) fn add(&mut self, item: Waiting) {
        self.more_on_disk |= self.items >= self.window && item.item > self.loaded_to;
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
            let lane = Lane { channel: item.channel, name: item.lane, items: VecDeque::new(), held: None, turn };
            self.lanes.insert(self.last_lane, lane);
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
        let line = self.line.entry(lane.channel).or_default();
        line.remove(&lane.turn);
        match lane.items.front() {
            Some(&(first, due)) => {
                lane.turn = (lane.held.as_ref().map_or(due, |held| held.ends), first, number);
                line.insert(lane.turn);
            }
            None => {
                let name = self.lanes.remove(&number).and_then(|lane| lane.name);
                name.and_then(|name| self.names.remove(&name));
            }
        }
    }

    /// The lanes whose turn it is, with their first items.
    pub(super) fn due(&self, channel: i64, now: i64, max: usize) -> Vec<(u64, i64)> {
        let line = self.line.get(&channel).into_iter().flatten();
        line.take_while(|(due, ..)| *due <= now).take(max).map(|&(_, item, lane)| (lane, item)).collect()
    }

    /// Ends the lease of the lane, if there is one.
    pub(super) fn take_held(&mut self, lane: u64) -> Option<Held> {
        let held = self.lanes.get_mut(&lane)?.held.take()?;
        self.leased.remove(&held.item);
        self.take_turn(lane);
        Some(held)
    }

    pub(super) fn lease(&mut self, lane: u64, held: Held) {
        self.leased.insert(held.item, lane);
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.held = Some(held);
        }
        self.take_turn(lane);
    }

    fn held_mut(&mut self, item: i64, fence: i64) -> Option<(u64, &mut Held)> {
        let lane = *self.leased.get(&item)?;
        let held = self.lanes.get_mut(&lane)?.held.as_mut().filter(|held| held.fence == fence)?;
        Some((lane, held))
    }

    /// Moves the end of a lease; false when it is no longer held.
    pub(super) fn extend(&mut self, item: i64, fence: i64, ends: i64) -> bool {
        let Some((lane, held)) = self.held_mut(item, fence) else { return false };
        held.ends = ends;
        self.take_turn(lane);
        true
    }

    /// Ends the lease under this fence; gives its lane and what it was.
    pub(super) fn end(&mut self, item: i64, fence: i64) -> Option<(u64, Held)> {
        let lane = self.held_mut(item, fence)?.0;
        Some((lane, self.take_held(lane)?))
    }

    /// Ends all leases.
    pub(super) fn take_all_held(&mut self) -> Vec<Held> {
        let lanes: Vec<u64> = self.leased.values().copied().collect();
        lanes.into_iter().filter_map(|lane| self.take_held(lane)).collect()
    }

    /// Takes an item out of its lane; true when another one waits behind it.
    pub(super) fn remove(&mut self, lane: u64, item: i64) -> bool {
        let Some(of) = self.lanes.get_mut(&lane) else { return false };
        if let Ok(at) = of.items.binary_search_by_key(&item, |(number, _)| *number) {
            of.items.remove(at);
            self.items -= 1;
        }
        self.take_turn(lane);
        self.lanes.contains_key(&lane) || self.more_on_disk
    }

    /// Sets when an item is due.
    pub(super) fn postpone(&mut self, lane: u64, item: i64, due: i64) {
        let Some(of) = self.lanes.get_mut(&lane) else { return };
        if let Ok(at) = of.items.binary_search_by_key(&item, |(number, _)| *number) {
            of.items[at].1 = due;
        }
        self.take_turn(lane);
    }
}
