//! Which updates a polling bot was given, under which numbers, and which of them it has confirmed.
//!
//! Telegram's rule is that an offset confirms every update below it. hapax gives one update of a thread at a time, so an update may come after
//! others with higher numbers: it is then given under a higher number of its own. So an offset never confirms what its sender has not seen:
//! an update is given under a number that no poll has named as confirmed, and every answer holds all that is unconfirmed below its last.

use crate::ItemId;

/// One value for each channel, changed by compare and swap, so that polls which reach several instances meet in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollBook {
    /// The highest number under which anything was given.
    pub highest: i64,
    /// The highest offset that a poll has named.
    pub offset: i64,
    /// What the last answer held that was not empty.
    pub given: Vec<Given>,
    /// Confirmed, and perhaps not settled yet, oldest first.
    pub confirmed: Vec<ItemId>,
    /// The kinds of updates that the bot asked for when it last named any.
    pub allowed: Option<Vec<String>>,
    /// The process that the last poll reached.
    pub process: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    pub item: ItemId,
    pub number: i64,
}

impl PollBook {
    /// Telegram's numbers have 32 bits, and so have those of many libraries.
    pub const NUMBER_MAX: i64 = i32::MAX as i64;

    /// An offset beyond this that follows no update we gave is nobody's place: numbers could not go on from there.
    const JUMP_MAX: i64 = Self::NUMBER_MAX - 1_000_000;

    /// Confirmed items that are remembered until they are settled.
    pub const CONFIRMED_MAX: usize = 300;

    /// A poll has named its offset. True: whoever polls has forgotten what was confirmed before, so it was started anew.
    pub fn confirm(&mut self, offset: i64) -> bool {
        if offset > Self::JUMP_MAX.max(self.highest + 1) {
            return false;
        }
        let begins_anew = offset < self.offset;
        let (below, rest) = self.given.iter().partition::<Vec<Given>, _>(|given| given.number < offset);
        self.given = rest;
        self.confirmed.extend(below.into_iter().map(|given| given.item));
        let too_many = self.confirmed.len().saturating_sub(Self::CONFIRMED_MAX);
        self.confirmed.drain(..too_many);
        self.offset = self.offset.max(offset);
        begins_anew
    }

    /// Under which number an item is given whose update has this number of its own. `before` is the number it was given under before the last
    /// answer, where that is known.
    pub fn number(&mut self, item: ItemId, own: Option<i64>, before: Option<i64>) -> i64 {
        let before = self.given.iter().find(|given| given.item == item).map(|given| given.number).or(before);
        if let Some(before) = before.filter(|before| *before >= self.offset) {
            return before;
        }
        let lowest = self.offset.max(self.highest + 1).max(1);
        let own = own.filter(|own| (1..=Self::JUMP_MAX).contains(own));
        let mut number = own.filter(|own| *own >= lowest).unwrap_or(lowest);
        if number > Self::NUMBER_MAX {
            (self.highest, self.offset) = (0, 0);
            number = own.unwrap_or(1);
        }
        self.highest = self.highest.max(number);
        number
    }

    /// An answer leaves with these updates. What it does not hold cannot be confirmed by who gets it.
    pub fn give(&mut self, given: Vec<Given>) {
        self.confirmed.retain(|item| given.iter().all(|given| given.item != *item));
        self.given = given;
    }

    /// Whoever confirmed these was started anew before they could be taken for done: none of them is confirmed.
    pub fn take_back(&mut self) {
        self.confirmed.clear();
    }

    pub fn has_confirmed(&self, item: ItemId) -> bool {
        self.confirmed.contains(&item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn item(number: u128) -> ItemId {
        ItemId(Uuid::from_u128(number))
    }

    /// Gives updates by their own numbers, in one answer; tells the numbers they are given under.
    fn give(book: &mut PollBook, own: &[i64]) -> Vec<i64> {
        let given: Vec<Given> = own
            .iter()
            .map(|own| Given { item: item(*own as u128), number: book.number(item(*own as u128), Some(*own), None) })
            .collect();
        book.give(given.clone());
        given.into_iter().map(|given| given.number).collect()
    }

    #[test]
    fn what_was_given_and_is_below_the_offset_is_confirmed_and_nothing_else() {
        let mut book = PollBook::default();
        assert_eq!(give(&mut book, &[101, 105]), [101, 105]);
        assert!(!book.confirm(102));
        assert_eq!((book.has_confirmed(item(101)), book.has_confirmed(item(105))), (true, false));
        assert!(!book.confirm(106));
        assert!(book.has_confirmed(item(105)) && !book.has_confirmed(item(103)), "103 was never given");
    }

    #[test]
    fn an_update_that_comes_after_higher_ones_is_given_a_number_that_nobody_has_confirmed() {
        let mut book = PollBook::default();
        give(&mut book, &[101, 105]);
        book.confirm(106);
        assert_eq!(give(&mut book, &[103]), [106]);
        assert!(!book.confirm(106), "its answer was lost, and the bot asks as before");
        assert!(!book.has_confirmed(item(103)));
        assert_eq!(book.number(item(103), Some(103), None), 106, "given again, it keeps its number");
        book.confirm(107);
        assert!(book.has_confirmed(item(103)));
        assert_eq!(give(&mut book, &[106, 120]), [107, 120], "its own number is taken");
    }

    #[test]
    fn a_bot_that_begins_anew_confirms_nothing_and_is_noticed() {
        let mut book = PollBook::default();
        give(&mut book, &[101]);
        book.confirm(102);
        give(&mut book, &[102]);
        for offset in [0, 1, 50, -1] {
            assert!(book.clone().confirm(offset), "{offset}");
        }
        book.confirm(0);
        assert!(!book.has_confirmed(item(102)));
        assert_eq!(book.number(item(102), Some(102), Some(102)), 102);
    }

    #[test]
    fn what_an_answer_leaves_out_is_not_confirmed_by_it() {
        let mut book = PollBook::default();
        give(&mut book, &[101]);
        // The answer got lost, and the item is held by nobody: the next answer has another one only.
        give(&mut book, &[105]);
        book.confirm(106);
        assert!(!book.has_confirmed(item(101)));
        assert_eq!(give(&mut book, &[101]), [106]);
    }

    #[test]
    fn an_offset_far_ahead_confirms_what_was_given_and_numbers_go_on_from_there() {
        let mut book = PollBook::default();
        give(&mut book, &[7]);
        book.confirm(5_000);
        assert!(book.has_confirmed(item(7)));
        assert_eq!(give(&mut book, &[8]), [5_000]);
    }

    #[test]
    fn an_offset_that_leaves_no_room_confirms_nothing_and_is_forgotten() {
        let mut book = PollBook::default();
        give(&mut book, &[7]);
        let before = book.clone();
        for stray in [PollBook::JUMP_MAX + 1, PollBook::NUMBER_MAX - 1, PollBook::NUMBER_MAX, i64::MAX] {
            assert!(!book.confirm(stray), "{stray} is no new start");
            assert_eq!(book, before, "{stray}");
        }
        assert_eq!(give(&mut book, &[7, 8]), [7, 8]);
        book.confirm(9);
        assert!(book.has_confirmed(item(7)) && book.has_confirmed(item(8)));
    }

    #[test]
    fn numbers_go_on_to_the_last_and_begin_again_and_each_can_be_confirmed() {
        let last = PollBook::NUMBER_MAX;
        let mut book = PollBook { highest: last - 2, offset: last - 1, ..PollBook::default() };
        for (own, number) in [(5, last - 1), (6, last)] {
            assert_eq!(give(&mut book, &[own]), [number]);
            book.confirm(number + 1);
            assert!(book.has_confirmed(item(own as u128)), "{own}");
        }
        assert_eq!(give(&mut book, &[7]), [7], "beyond the last number it begins again");
        book.confirm(last + 1);
        assert!(!book.has_confirmed(item(7)), "the bot has not seen it");
        assert_eq!(give(&mut book, &[last]), [8], "a number of Telegram's that leaves no room is not used");
    }

    #[test]
    fn what_is_given_again_is_no_longer_confirmed_and_the_list_has_an_end() {
        let mut book = PollBook::default();
        for number in 1..=(PollBook::CONFIRMED_MAX as i64 + 5) {
            give(&mut book, &[number]);
            book.confirm(number + 1);
        }
        assert_eq!(book.confirmed.len(), PollBook::CONFIRMED_MAX);
        let last = *book.confirmed.last().expect("many");
        book.give(vec![Given { item: last, number: 1_000 }]);
        assert!(!book.has_confirmed(last));
    }
}
