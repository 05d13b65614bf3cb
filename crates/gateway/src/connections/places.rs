//! Who may hold a connection. There is always room for one more: when all places are taken, whoever has proved nothing and has waited longest
//! makes room, and no address has more than its share.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::peer::{Proxies, one_household};

/// One address may hold this part of all places.
const SHARE_OF_ADDRESS: usize = 4;
/// .. and at least so many.
const ADDRESS_LEAST: usize = 8;

/// How many of those that have waited longest are noted at once, when all have to be looked at.
const NOTED: usize = 64;

pub(crate) struct Places {
    limit: usize,
    per_address: usize,
    /// They bring the connections of many.
    proxies: Proxies,
    /// Counts the changes of standing: who has the lower count has waited longer.
    turns: Arc<AtomicU64>,
    inner: Mutex<Inner>,
    freed: Notify,
}

/// In the order in which they make room; the last two do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Has asked nothing yet, or was answered without having proved anything.
    Stranger,
    /// Its request is being read or looked at.
    Asking,
    /// Was believed before, and waits.
    Known,
    /// Its request was believed and has no answer yet.
    AtWork,
    /// Its place was given to another.
    Cut,
}

/// Rank and turn of a connection in one number, which orders as they do. Every request changes it several times, so it takes no lock;
/// the order is worked out when somebody has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Spot(u64);

const TURN_BITS: u32 = 60;

impl Spot {
    fn new(rank: Rank, turn: u64) -> Self {
        Self((rank as u64) << TURN_BITS | turn & ((1 << TURN_BITS) - 1))
    }

    fn rank(self) -> Rank {
        match self.0 >> TURN_BITS {
            0 => Rank::Stranger,
            1 => Rank::Asking,
            2 => Rank::Known,
            3 => Rank::AtWork,
            _ => Rank::Cut,
        }
    }
}

#[derive(Default)]
struct Inner {
    last_id: u64,
    open: HashMap<u64, Open>,
    noted: VecDeque<(Spot, u64)>,
    lines: HashMap<IpAddr, Line>,
}

/// The connections of one address.
#[derive(Default)]
struct Line {
    open: usize,
    noted: VecDeque<(Spot, u64)>,
}

struct Open {
    from: IpAddr,
    standing: Standing,
    cut: CancellationToken,
}

/// One connection's place, given back when dropped.
pub(crate) struct HeldPlace {
    places: Arc<Places>,
    id: u64,
    standing: Standing,
    /// Cancelled when the place is needed for another.
    pub(crate) cut: CancellationToken,
}

/// How the connection of a request stands. Requests carry it along.
#[derive(Clone)]
pub struct Standing(Arc<State>);

struct State {
    spot: AtomicU64,
    turns: Arc<AtomicU64>,
}

/// Why a connection got no place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// Its address has its whole share at work.
    TooManyOfOne,
    /// All places are at work for those who have proved something.
    Full,
}

impl Places {
    pub(crate) fn new(limit: usize, proxies: Proxies) -> Self {
        let per_address = (limit / SHARE_OF_ADDRESS).max(ADDRESS_LEAST).min(limit);
        Self { limit, per_address, proxies, turns: Arc::default(), inner: Mutex::default(), freed: Notify::new() }
    }

    /// Gives a place, if need be that of another; says whether another had to go.
    pub(super) fn enter(self: &Arc<Self>, from: IpAddr) -> Result<(HeldPlace, bool), NoPlace> {
        let household = one_household(from);
        let mut inner = self.inner();
        let crowded = !self.proxies.trust(from) && inner.lines.get(&household).is_some_and(|line| line.open >= self.per_address);
        let full = inner.open.len() >= self.limit;
        if crowded && !inner.cut_first(Some(household)) {
            return Err(NoPlace::TooManyOfOne);
        }
        if full && !crowded && !inner.cut_first(None) {
            return Err(NoPlace::Full);
        }
        inner.last_id += 1;
        let (id, cut) = (inner.last_id, CancellationToken::new());
        let spot = Spot::new(Rank::Stranger, self.turns.fetch_add(1, Ordering::Relaxed));
        let standing = Standing(Arc::new(State { spot: AtomicU64::new(spot.0), turns: Arc::clone(&self.turns) }));
        inner.open.insert(id, Open { from: household, standing: standing.clone(), cut: cut.clone() });
        inner.lines.entry(household).or_default().open += 1;
        Ok((HeldPlace { places: Arc::clone(self), id, standing, cut }, crowded || full))
    }

    /// Resolves when a place may have become free since the call.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Makes room where the system has none left.
    pub(super) fn cut_one(&self) -> bool {
        self.inner().cut_first(None)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Cuts who is first in the order, of all or of one address; false when nobody may be cut.
    fn cut_first(&mut self, of: Option<IpAddr>) -> bool {
        loop {
            while let Some((spot, id)) = self.noted(of).and_then(VecDeque::pop_front) {
                // Who has moved since is not in this place any more.
                if self.open.get(&id).is_some_and(|open| open.standing.give_up(spot)) {
                    if let Some(open) = self.forget(id) {
                        // Counted as gone at once; its task ends a moment later.
                        open.cut.cancel();
                    }
                    return true;
                }
            }
            let mut found: Vec<(Spot, u64)> = self
                .open
                .iter()
                .filter(|(_, open)| of.is_none_or(|from| open.from == from))
                .map(|(id, open)| (open.standing.spot(), *id))
                .filter(|(spot, _)| spot.rank() < Rank::AtWork)
                .collect();
            if found.len() > NOTED {
                found.select_nth_unstable(NOTED);
                found.truncate(NOTED);
            }
            found.sort_unstable();
            // No stranger of later comes before one of now; before any other, one may.
            let strangers = found.partition_point(|(spot, _)| spot.rank() == Rank::Stranger);
            found.truncate(strangers.max(1));
            match self.noted(of) {
                Some(noted) if !found.is_empty() => *noted = found.into(),
                _ => return false,
            }
        }
    }

    fn noted(&mut self, of: Option<IpAddr>) -> Option<&mut VecDeque<(Spot, u64)>> {
        match of {
            None => Some(&mut self.noted),
            Some(from) => self.lines.get_mut(&from).map(|line| &mut line.noted),
        }
    }

    fn forget(&mut self, id: u64) -> Option<Open> {
        let open = self.open.remove(&id)?;
        if let Some(line) = self.lines.get_mut(&open.from) {
            line.open -= 1;
            if line.open == 0 {
                self.lines.remove(&open.from);
            }
        }
        Some(open)
    }
}

impl HeldPlace {
    pub(crate) fn standing(&self) -> Standing {
        self.standing.clone()
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        self.places.inner().forget(self.id);
        self.places.freed.notify_waiters();
        self.places.freed.notify_one();
    }
}

impl Standing {
    /// A request has begun.
    pub(crate) fn asks(&self) {
        self.stand(self.turn(), |rank| if rank < Rank::Known { Rank::Asking } else { Rank::Known });
    }

    /// What was asked is believed: it is not cut off any more.
    pub fn proved(&self) {
        // Who is at work makes no room, so it does not matter since when.
        self.stand(None, |_| Rank::AtWork);
    }

    /// Whether a request that was believed has no answer yet.
    pub(super) fn is_at_work(&self) -> bool {
        self.spot().rank() == Rank::AtWork
    }

    /// The request was answered.
    pub(crate) fn answered(&self) {
        self.stand(self.turn(), |rank| if rank < Rank::Known { Rank::Stranger } else { Rank::Known });
    }

    fn spot(&self) -> Spot {
        Spot(self.0.spot.load(Ordering::Acquire))
    }

    /// The place behind all others. All connections share the count.
    fn turn(&self) -> Option<u64> {
        Some(self.0.turns.fetch_add(1, Ordering::Relaxed))
    }

    /// Gives it another rank, and, if it has a turn, a place behind those of this rank; one that was cut stays so.
    fn stand(&self, turn: Option<u64>, next: impl Fn(Rank) -> Rank) {
        let moved = |spot: u64| {
            let rank = Spot(spot).rank();
            (rank != Rank::Cut).then(|| Spot::new(next(rank), turn.unwrap_or(spot)).0)
        };
        let _ = self.0.spot.fetch_update(Ordering::AcqRel, Ordering::Acquire, moved);
    }

    /// Gives up its place, if it still stands where it was seen.
    fn give_up(&self, seen: Spot) -> bool {
        let cut = Spot::new(Rank::Cut, 0).0;
        self.0.spot.compare_exchange(seen.0, cut, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn from(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
    }

    fn places(limit: usize) -> Arc<Places> {
        Arc::new(Places::new(limit, Proxies::default()))
    }

    #[test]
    fn who_has_proved_nothing_and_waits_longest_makes_room() {
        let places = places(3);
        let enter = |last| places.enter(from(last)).expect("a place").0;
        let (known, asking, idle) = (enter(1), enter(2), enter(3));
        known.standing().proved();
        known.standing().answered();
        asking.standing().asks();
        idle.standing().asks();
        idle.standing().answered();
        let newer = enter(4);
        assert!(idle.cut.is_cancelled(), "answered, and nothing proved");
        let _newest = enter(5);
        assert!(newer.cut.is_cancelled() && !asking.cut.is_cancelled(), "a stranger goes before one that asks");
        drop((idle, newer));
        assert_eq!(places.inner().open.len(), 3);
        let _one = enter(6);
        let _two = enter(7);
        assert!(!known.cut.is_cancelled() && !asking.cut.is_cancelled());
    }

    /// Those that were noted for later may have moved by then.
    #[test]
    fn who_proves_something_meanwhile_stays() {
        let places = places(3);
        let enter = |last| places.enter(from(last)).expect("a place").0;
        let (first, second, third) = (enter(1), enter(2), enter(3));
        let _fourth = enter(4);
        assert!(first.cut.is_cancelled());
        second.standing().proved();
        first.standing().proved();
        assert!(!first.standing().is_at_work(), "who was cut stays so");
        let _fifth = enter(5);
        assert!(third.cut.is_cancelled() && !second.cut.is_cancelled());
    }

    #[test]
    fn nobody_at_work_is_cut_off() {
        let places = places(2);
        let working: Vec<HeldPlace> = (1..=2).map(|last| places.enter(from(last)).expect("a place").0).collect();
        working.iter().for_each(|place| place.standing().proved());
        assert_eq!(places.enter(from(3)).err(), Some(NoPlace::Full));
        drop(working);
        assert!(places.enter(from(3)).is_ok());
        assert!(places.inner().lines.is_empty() || places.inner().open.is_empty());
    }

    #[test]
    fn an_address_has_its_share_and_makes_room_for_itself() {
        let places = places(40);
        let mine: Vec<HeldPlace> = (0..10).map(|_| places.enter(from(1)).expect("a place").0).collect();
        let other = places.enter(from(2)).expect("a place").0;
        let (eleventh, made_room) = places.enter(from(1)).expect("a place");
        assert!(made_room && mine[0].cut.is_cancelled() && !other.cut.is_cancelled());
        mine.iter().chain([&eleventh]).for_each(|place| place.standing().proved());
        assert_eq!(places.enter(from(1)).err(), Some(NoPlace::TooManyOfOne));
        assert!(places.enter(from(3)).is_ok());
    }
}
