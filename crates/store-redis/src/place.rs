//! Where things are: the account is written into every number made here, so that an id alone leads to its keys. What was moved here from
//! another store keeps its number, and is looked for.

use std::fmt;

use hapax_domain::{EventId, ids};
use hapax_store::{LaneRef, suspected};
use uuid::Uuid;

/// The low bits of a number are the account's, the rest counts within the account: so ids are in the order of their time, and within one
/// second in the order of their account's counting.
const ACCOUNT_BITS: u32 = 20;

/// Most accounts that one store can tell apart.
pub(super) const ACCOUNTS_MAX: u64 = (1 << ACCOUNT_BITS) - 1;

/// What an event, an item or a message is called among the keys of its account. Scripts tell both kinds apart by their length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seq {
    /// Counts what was made in the account.
    Own(u64),
    /// The whole number of what was moved here.
    Moved(u64),
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seq::Own(seq) => seq.fmt(f),
            Seq::Moved(number) => write!(f, "{number:019}"),
        }
    }
}

impl Seq {
    pub(super) fn read(digits: &str) -> Option<Self> {
        let number = digits.parse().ok()?;
        Some(if digits.len() == 19 { Seq::Moved(number) } else { Seq::Own(number) })
    }

    /// The number that no other thing in the store has.
    pub(super) fn number(self, account: u32) -> u64 {
        match self {
            Seq::Own(seq) => (seq << ACCOUNT_BITS) | u64::from(account),
            Seq::Moved(number) => number,
        }
    }

    pub(super) fn id(self, at_ms: i64, account: u32) -> Uuid {
        ids::numbered(at_ms, self.number(account))
    }
}

/// Why an item waits, in words. A script cannot write an id: of a suspected replay it names the first by number and time.
pub(super) fn why_of(why: Option<String>, account: u32) -> Option<String> {
    let first = why.as_deref().and_then(|why| why.strip_prefix('\u{1}')?.split_once(' '));
    let Some((seq, at_ms)) = first else { return why };
    let id = Seq::read(seq)?.id(at_ms.parse().ok()?, account);
    Some(suspected(EventId(id)))
}

/// Where the counting of accounts begins in a store that numbers up to this one were moved into: the numbers are all above it, and so are
/// the places in line, rounded as the scripts do it.
pub(super) fn first_after(moved_to: u64) -> u64 {
    if moved_to == 0 { 0 } else { (moved_to >> ACCOUNT_BITS) + 1 }
}

/// What an id says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    number: u64,
    is_moved: bool,
    /// The second it was made in: an id that only looks like one of ours leads nowhere.
    pub(super) at_s: i64,
}

impl Mark {
    /// Reads an id; `None` when nothing in a store that numbers up to `moved_to` were moved into can have it.
    pub(super) fn new(id: Uuid, moved_to: u64) -> Option<Self> {
        let number = ids::number_of(id);
        let at_s = (id.as_u64_pair().0 >> 16) as i64 / 1_000;
        let mark = Self { number, is_moved: number <= moved_to, at_s };
        let is_ours = mark.is_moved || mark.own_account() > 0;
        (is_ours && ids::numbered(at_s * 1_000, number) == id).then_some(mark)
    }

    fn own_account(self) -> u32 {
        (self.number & ACCOUNTS_MAX) as u32
    }

    /// `None`: it was moved here, and may be anybody's.
    pub(super) fn account(self) -> Option<u32> {
        (!self.is_moved).then_some(self.own_account())
    }

    /// True when it may be this account's.
    pub(super) fn may_be_of(self, account: u32) -> bool {
        self.account().is_none_or(|own| own == account)
    }

    pub(super) fn seq(self) -> Seq {
        if self.is_moved { Seq::Moved(self.number) } else { Seq::Own(self.number >> ACCOUNT_BITS) }
    }

    /// The first place in `account` whose id is not below this one.
    pub(super) fn not_below(self, account: u32) -> Seq {
        match self.seq() {
            Seq::Own(seq) => Seq::Own(seq + u64::from(account < self.own_account())),
            moved => moved,
        }
    }

    /// The first place in `account` whose id is above this one.
    pub(super) fn above(self, account: u32) -> Seq {
        match self.seq() {
            Seq::Own(seq) => Seq::Own(seq + u64::from(account <= self.own_account())),
            Seq::Moved(number) => Seq::Moved(number + 1),
        }
    }
}

/// The place of an event, an item or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) account: u32,
    pub(super) seq: Seq,
    pub(super) at_s: i64,
}

/// A lease is found by what it holds: the item or the message, and the fence tells whether it is still that lease.
pub(super) fn lane_ref(account: u32, seq: Seq) -> LaneRef {
    let (number, is_moved) = match seq {
        Seq::Own(seq) => (seq, false),
        Seq::Moved(number) => (number, true),
    };
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&account.to_le_bytes());
    bytes[4..12].copy_from_slice(&number.to_le_bytes());
    bytes[12] = u8::from(is_moved);
    LaneRef(bytes)
}

pub(super) fn held_by(lane: LaneRef) -> (u32, Seq) {
    let (mut account, mut number) = ([0; 4], [0; 8]);
    account.copy_from_slice(&lane.0[..4]);
    number.copy_from_slice(&lane.0[4..12]);
    let number = u64::from_le_bytes(number);
    let seq = if lane.0[12] == 1 { Seq::Moved(number) } else { Seq::Own(number) };
    (u32::from_le_bytes(account), seq)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_to_its_place_and_a_foreign_one_nowhere() {
        let id = Seq::Own(42).id(1_760_000_000_123, 7);
        let mark = Mark::new(id, 0).expect("ours");
        assert_eq!((mark.account(), mark.seq(), mark.at_s), (Some(7), Seq::Own(42), 1_760_000_000));
        assert_eq!(Mark::new(Uuid::from_u128(0x0190_0000_0000_4000_8000_0000_0000_002a), 99), None);
        assert_eq!(Mark::new(ids::numbered(0, 1 << 20), 0), None);
    }

    #[test]
    fn an_id_that_was_moved_here_says_no_account() {
        let mark = Mark::new(ids::numbered(5_000, 1 << 20), 1 << 20).expect("it may be there");
        assert_eq!((mark.account(), mark.seq(), mark.above(3)), (None, Seq::Moved(1 << 20), Seq::Moved((1 << 20) + 1)));
        assert_eq!(mark.seq().to_string(), "0000000000001048576");
        assert_eq!(Seq::read("0000000000001048576"), Some(mark.seq()));
        assert_eq!(Seq::read("1048576"), Some(Seq::Own(1 << 20)));
        for moved_to in [1, 1 << 20, (1 << 20) - 1, (1 << 62) - 1] {
            assert!(Seq::Own(first_after(moved_to) + 1).number(0) > moved_to);
        }
    }

    #[test]
    fn ids_are_ordered_by_second_then_number_then_account() {
        let id = |at_ms, account, seq| Seq::Own(seq).id(at_ms, account);
        let sorted = [id(1_000, 9, 1), id(2_000, 1, 1), id(2_500, 2, 1), id(2_000, 1, 2)];
        assert!(sorted.is_sorted());
        let middle = Mark::new(sorted[2], 0).expect("ours");
        let own = |seqs: [u64; 3]| seqs.map(Seq::Own);
        assert_eq!([1, 2, 3].map(|account| middle.not_below(account)), own([2, 1, 1]));
        assert_eq!([1, 2, 3].map(|account| middle.above(account)), own([2, 2, 1]));
    }

    #[test]
    fn a_lane_leads_to_what_it_holds() {
        for seq in [Seq::Own(1 << 41), Seq::Moved(1 << 61)] {
            assert_eq!(held_by(lane_ref(7, seq)), (7, seq));
        }
    }
}
