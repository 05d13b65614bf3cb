//! Who may hold a connection. There is always room for one more: when all places are taken, whoever has proved nothing and has waited longest
//! makes room, and no address has more than its share.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::peer::{Proxies, one_household};

/// One address may hold this part of all places.
const SHARE_OF_ADDRESS: usize = 4;
/// .. and at least so many.
const ADDRESS_LEAST: usize = 8;

pub(crate) struct Places {
    limit: usize,
    per_address: usize,
    /// They bring the connections of many.
    proxies: Proxies,
    inner: Mutex<Inner>,
    freed: Notify,
}

/// In the order in which they make room; those that have proved something and are at work do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Has asked nothing yet, or was answered without having proved anything.
    Stranger,
    /// Its request is being read or looked at.
    Asking,
    /// Was believed before, and waits.
    Known,
}

/// Rank, turn and id.
type Spot = (Rank, u64, u64);

#[derive(Default)]
struct Inner {
    turn: u64,
    open: HashMap<u64, Open>,
    line: BTreeSet<Spot>,
    lines: HashMap<IpAddr, Line>,
}

#[derive(Default)]
struct Line {
    open: usize,
    spots: BTreeSet<Spot>,
}

struct Open {
    from: IpAddr,
    spot: Option<Spot>,
    known: bool,
    cut: CancellationToken,
}

/// One connection's place, given back when dropped.
pub(crate) struct HeldPlace {
    places: Arc<Places>,
    id: u64,
    /// Cancelled when the place is needed for another.
    pub(crate) cut: CancellationToken,
}

/// How the connection of a request stands. Requests carry it along.
#[derive(Clone)]
pub struct Standing {
    places: Arc<Places>,
    id: u64,
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
        Self { limit, per_address, proxies, inner: Mutex::default(), freed: Notify::new() }
    }

    /// Gives a place, if need be that of another; says whether another had to go.
    pub(super) fn enter(self: &Arc<Self>, from: IpAddr) -> Result<(HeldPlace, bool), NoPlace> {
        let household = one_household(from);
        let mut inner = self.inner();
        let crowded = !self.proxies.trust(from) && inner.lines.get(&household).is_some_and(|line| line.open >= self.per_address);
        let victim = if crowded {
            Some(inner.lines.get(&household).and_then(|line| line.spots.first().copied()).ok_or(NoPlace::TooManyOfOne)?)
        } else if inner.open.len() >= self.limit {
            Some(inner.line.first().copied().ok_or(NoPlace::Full)?)
        } else {
            None
        };
        if let Some((_, _, id)) = victim {
            inner.cut(id);
        }
        let (id, cut) = (inner.next_turn(), CancellationToken::new());
        inner.open.insert(id, Open { from: household, spot: None, known: false, cut: cut.clone() });
        inner.lines.entry(household).or_default().open += 1;
        inner.stand(id, Some(Rank::Stranger));
        Ok((HeldPlace { places: Arc::clone(self), id, cut }, victim.is_some()))
    }

    /// Resolves when a place may have become free since the call.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Makes room where the system has none left.
    pub(super) fn cut_one(&self) -> bool {
        let mut inner = self.inner();
        let victim = inner.line.first().copied();
        victim.inspect(|(_, _, id)| inner.cut(*id)).is_some()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    /// Puts a connection in line behind those of its rank, or takes it out of the line.
    fn stand(&mut self, id: u64, rank: Option<Rank>) {
        let turn = self.next_turn();
        let Some(open) = self.open.get_mut(&id) else { return };
        let line = self.lines.entry(open.from).or_default();
        if let Some(spot) = open.spot.take() {
            self.line.remove(&spot);
            line.spots.remove(&spot);
        }
        open.spot = rank.map(|rank| (rank, turn, id));
        if let Some(spot) = open.spot {
            self.line.insert(spot);
            line.spots.insert(spot);
        }
    }

    /// Counts it as gone at once; its task ends a moment later.
    fn cut(&mut self, id: u64) {
        if let Some(open) = self.forget(id) {
            open.cut.cancel();
        }
    }

    fn forget(&mut self, id: u64) -> Option<Open> {
        self.stand(id, None);
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
        Standing { places: Arc::clone(&self.places), id: self.id }
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
        let mut inner = self.places.inner();
        let known = inner.open.get(&self.id).is_some_and(|open| open.known);
        inner.stand(self.id, Some(if known { Rank::Known } else { Rank::Asking }));
    }

    /// What was asked is believed: it is not cut off any more.
    pub fn proved(&self) {
        let mut inner = self.places.inner();
        if let Some(open) = inner.open.get_mut(&self.id) {
            open.known = true;
        }
        inner.stand(self.id, None);
    }

    /// Whether a request that was believed has no answer yet.
    pub(super) fn is_at_work(&self) -> bool {
        self.places.inner().open.get(&self.id).is_some_and(|open| open.known && open.spot.is_none())
    }

    /// The request was answered.
    pub(crate) fn answered(&self) {
        let mut inner = self.places.inner();
        let known = inner.open.get(&self.id).is_some_and(|open| open.known);
        inner.stand(self.id, Some(if known { Rank::Known } else { Rank::Stranger }));
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
