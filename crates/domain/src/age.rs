//! How old a row is when its time may be wrong: clocks are set, numbers only grow.

/// A row, by its number and the time it was written at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dated {
    pub number: u64,
    pub at_ms: i64,
}

/// What purge finds in one page of rows.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sifted {
    /// Those whose time is over, with the time they count by.
    pub old: Vec<Dated>,
    /// No row up to this number need be looked at again in this round.
    pub to: Option<u64>,
    /// There is more to look at behind the page.
    pub more: bool,
    /// The highest row that was seen to be old by its own time: to be given to the next call.
    pub witness: Option<Dated>,
}

/// Picks the rows of a page that are older than `keep_ms`. The page is in the order of its numbers; `full` says that there may be more behind it.
///
/// A row from the future was written while the clock was ahead. It is no younger than the rows behind it, so it counts as old as the
/// youngest of those that are rightly dated, or as the witness of an earlier page, which may be gone by now. Without either nothing is
/// known of it: it is passed by until the next round, and keeps no other row back. A round ends with a page of nothing but young rows.
pub fn sift(page: &[Dated], witness: Option<Dated>, keep_ms: i64, now_ms: i64, full: bool) -> Sifted {
    let is_old = |at_ms: i64| at_ms.saturating_add(keep_ms) <= now_ms;
    let rightly_old = page.iter().rfind(|row| is_old(row.at_ms)).copied();
    let witness = [witness, rightly_old].into_iter().flatten().max_by_key(|row| row.number);
    let mut counted: Vec<(Dated, bool)> = Vec::with_capacity(page.len());
    let mut youngest_behind: Option<i64> = None;
    for row in page.iter().rev() {
        let from_witness = witness.filter(|witness| witness.number > row.number).map(|witness| witness.at_ms);
        let at_ms = match row.at_ms > now_ms {
            true => [youngest_behind, from_witness].into_iter().flatten().min().unwrap_or(row.at_ms),
            false => row.at_ms,
        };
        if row.at_ms <= now_ms {
            youngest_behind = youngest_behind.max(Some(row.at_ms));
        }
        // From the future, and nobody can say how old: neither old nor young.
        let passed = is_old(at_ms) || at_ms > now_ms;
        counted.push((Dated { at_ms, ..*row }, passed));
    }
    counted.reverse();
    let more = full && counted.iter().any(|(_, passed)| *passed);
    let to = match more {
        true => counted.last(),
        false => counted.iter().take_while(|(_, passed)| *passed).last(),
    };
    let to = to.map(|(row, _)| row.number);
    let old = counted.into_iter().map(|(row, _)| row).filter(|row| is_old(row.at_ms)).collect();
    Sifted { old, to, more, witness }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;
    const KEEP: i64 = 1_000;

    /// Numbers the times from 1 on.
    fn page(times: &[i64]) -> Vec<Dated> {
        (1..).zip(times).map(|(number, &at_ms)| Dated { number, at_ms }).collect()
    }

    fn old(times: &[i64]) -> Vec<u64> {
        sift(&page(times), None, KEEP, NOW, false).old.iter().map(|row| row.number).collect()
    }

    #[test]
    fn rightly_dated_rows_go_by_their_own_time() {
        assert_eq!(old(&[1, 2, NOW - KEEP, NOW - KEEP + 1, NOW]), [1, 2, 3]);
        assert_eq!(sift(&page(&[1, 2, NOW]), None, KEEP, NOW, false).to, Some(2));
        assert_eq!(sift(&page(&[NOW, NOW]), None, KEEP, NOW, true), Sifted::default(), "nothing but young rows: the end");
    }

    #[test]
    fn a_row_from_the_future_stops_nothing_and_goes_with_those_behind_it() {
        assert_eq!(old(&[1, NOW + 5, 2]), [1, 2, 3]);
        assert_eq!(sift(&page(&[NOW + 5, 9, 7]), None, KEEP, NOW, false).old[0].at_ms, 7, "no younger than the last that is old");
        assert_eq!(old(&[NOW + 5, NOW]), [0; 0], "something young came after it: it may be as young");
    }

    #[test]
    fn rows_of_which_nothing_is_known_are_passed_by_until_a_witness_was_seen() {
        let ahead = page(&[NOW + 5, NOW + 6]);
        let sifted = sift(&ahead, None, KEEP, NOW, true);
        assert_eq!(sifted, Sifted { old: vec![], to: Some(2), more: true, witness: None });
        let next = sift(&[Dated { number: 3, at_ms: 7 }], sifted.witness, KEEP, NOW, false);
        assert_eq!((next.old.len(), next.witness), (1, Some(Dated { number: 3, at_ms: 7 })));
        let again = sift(&ahead, next.witness, KEEP, NOW, false);
        assert_eq!(again.old.iter().map(|row| (row.number, row.at_ms)).collect::<Vec<_>>(), [(1, 7), (2, 7)]);

        let last = sift(&page(&[1, NOW + 6]), None, KEEP, NOW, false);
        assert_eq!((last.old.len(), last.to, last.more), (1, Some(2), false));
    }
}
