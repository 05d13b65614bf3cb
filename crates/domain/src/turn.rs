//! Turns: messages of a thread that come shortly after each other are delivered as one.

/// How the messages of a channel are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalesce {
    /// A turn ends when nothing came for so long,
    pub quiet_ms: i64,
    /// or so long after it began,
    pub max_ms: i64,
    /// or with so many messages; those of one webhook are never parted.
    pub members: usize,
}

impl Coalesce {
    /// When a turn is due whose first message came at `began_ms` and whose last comes now.
    pub fn due_ms(&self, began_ms: i64, now_ms: i64) -> i64 {
        now_ms.saturating_add(self.quiet_ms).min(began_ms.saturating_add(self.max_ms)).max(now_ms)
    }

    /// Whether a message that comes now still belongs to a turn that nobody has been given yet.
    pub fn takes(&self, due_ms: i64, members: usize, now_ms: i64) -> bool {
        now_ms < due_ms && members < self.members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COALESCE: Coalesce = Coalesce { quiet_ms: 3_000, max_ms: 8_000, members: 3 };

    #[test]
    fn a_turn_ends_with_silence_or_when_it_lasts_too_long() {
        let mut due_ms = COALESCE.due_ms(10_000, 10_000);
        assert_eq!(due_ms, 13_000);
        due_ms = COALESCE.due_ms(10_000, 12_999);
        assert_eq!(due_ms, 15_999);
        assert_eq!(COALESCE.due_ms(10_000, 17_000), 18_000);
        assert!(COALESCE.takes(due_ms, 2, 15_998));
        assert!(!COALESCE.takes(due_ms, 2, 15_999), "it may be given out now");
        assert!(!COALESCE.takes(due_ms, 3, 15_000), "it is full");
    }

    #[test]
    fn odd_settings_and_clocks_do_no_harm() {
        let odd = Coalesce { quiet_ms: i64::MAX, max_ms: 1, members: 1 };
        assert_eq!(odd.due_ms(0, 5), 5, "never before now");
        assert_eq!(odd.due_ms(i64::MAX, 5), i64::MAX);
    }
}
