//! Where things are: the account is written into every number, so that an id alone leads to its keys.

use uuid::Uuid;

use crate::domain::ids;
use crate::store::LaneRef;

/// The low bits of a number are the account's, the rest counts within the account: so ids are in the order of their time, and within one
/// second in the order of their account's counting.
const ACCOUNT_BITS: u32 = 20;

/// Most accounts that one store can tell apart.
pub(super) const ACCOUNTS_MAX: u64 = (1 << ACCOUNT_BITS) - 1;

/// The place of an event, an item or a message: its account, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) account: u32,
    pub(super) seq: u64,
    /// The second it was made in, as the id says: an id that only looks like one of ours leads nowhere.
    pub(super) at_s: i64,
}

impl Place {
    /// Reads an id; `None` when no store of this kind can have made it.
    pub(super) fn of(id: Uuid) -> Option<Self> {
        let number = ids::number_of(id);
        let at_s = (id.as_u64_pair().0 >> 16) as i64 / 1_000;
        let place = Self { account: (number & ACCOUNTS_MAX) as u32, seq: number >> ACCOUNT_BITS, at_s };
        (place.account > 0 && make_id(at_s * 1_000, place.account, place.seq) == id).then_some(place)
    }

    /// The first number of `account` whose id is not below this one.
    pub(super) fn not_below(self, account: u32) -> u64 {
        self.seq + u64::from(account < self.account)
    }

    /// The first number of `account` whose id is above this one.
    pub(super) fn above(self, account: u32) -> u64 {
        self.seq + u64::from(account <= self.account)
    }
}

pub(super) fn make_id(at_ms: i64, account: u32, seq: u64) -> Uuid {
    ids::numbered(at_ms, (seq << ACCOUNT_BITS) | u64::from(account))
}

/// A lease is found by what it holds: the item or the message, and the fence tells whether it is still that lease.
pub(super) fn lane_ref(account: u32, seq: u64) -> LaneRef {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&account.to_le_bytes());
    bytes[4..12].copy_from_slice(&seq.to_le_bytes());
    LaneRef(bytes)
}

pub(super) fn held_by(lane: LaneRef) -> (u32, u64) {
    let (mut account, mut seq) = ([0; 4], [0; 8]);
    account.copy_from_slice(&lane.0[..4]);
    seq.copy_from_slice(&lane.0[4..12]);
    (u32::from_le_bytes(account), u64::from_le_bytes(seq))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_to_its_place_and_a_foreign_one_nowhere() {
        let id = make_id(1_760_000_000_123, 7, 42);
        assert_eq!(Place::of(id), Some(Place { account: 7, seq: 42, at_s: 1_760_000_000 }));
        assert_eq!(Place::of(Uuid::from_u128(0x0190_0000_0000_4000_8000_0000_0000_002a)), None);
        assert_eq!(Place::of(ids::numbered(0, 0)), None);
    }

    #[test]
    fn ids_are_ordered_by_second_then_number_then_account() {
        let sorted = [make_id(1_000, 9, 1), make_id(2_000, 1, 1), make_id(2_500, 2, 1), make_id(2_000, 1, 2)];
        assert!(sorted.is_sorted());
        let middle = Place::of(sorted[2]).expect("ours");
        assert_eq!((middle.not_below(1), middle.not_below(2), middle.not_below(3)), (2, 1, 1));
        assert_eq!((middle.above(1), middle.above(2), middle.above(3)), (2, 2, 1));
    }

    #[test]
    fn a_lane_leads_to_what_it_holds() {
        assert_eq!(held_by(lane_ref(7, 1 << 41)), (7, 1 << 41));
    }
}
