//! What the provider and the bot have written down, and what follows from it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub struct Journal(Mutex<Pages>);

#[derive(Default)]
struct Pages {
    /// By the message's id: how often it was posted and taken with 2xx.
    posted: HashMap<String, Posted>,
    posts_open: u64,
    /// How often the bot has done its work for a message and said so.
    handled: HashMap<String, u64>,
    bot_failures: u64,
    /// By their words, which name the message they answer: how often a reply came to the provider.
    sent: HashMap<String, u64>,
    answers_lost: u64,
}

#[derive(Default)]
struct Posted {
    times: u64,
    taken: u64,
}

/// What became of all messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Webhooks that the provider posted, copies included.
    pub received: u64,
    pub messages: u64,
    /// Copies that the bot never saw to the end.
    pub suppressed: u64,
    /// How often the bot crashed, hung or failed.
    pub bot_failures: u64,
    pub delivered: u64,
    /// Sends whose answer the provider lost.
    pub answers_lost: u64,
    pub sent: u64,
    /// Messages that were taken, and not handled or not answered.
    pub lost: u64,
    /// Work that was done, or replies that were sent, more than once.
    pub doubled: u64,
}

impl Journal {
    pub(super) fn posting(&self, id: &str) {
        let mut pages = self.pages();
        pages.posts_open += 1;
        pages.posted.entry(id.to_owned()).or_default().times += 1;
    }

    pub(super) fn posted(&self, id: &str, taken: bool) {
        let mut pages = self.pages();
        pages.posts_open -= 1;
        pages.posted.entry(id.to_owned()).or_default().taken += u64::from(taken);
    }

    pub(super) fn handled(&self, id: &str) {
        *self.pages().handled.entry(id.to_owned()).or_default() += 1;
    }

    pub(super) fn bot_failed(&self) {
        self.pages().bot_failures += 1;
    }

    pub(super) fn sent(&self, words: &str, answered: bool) {
        let mut pages = self.pages();
        *pages.sent.entry(words.to_owned()).or_default() += 1;
        pages.answers_lost += u64::from(!answered);
    }

    /// True when every message that was taken is handled and answered.
    pub(super) fn is_settled(&self) -> bool {
        let tally = self.tally();
        self.pages().posts_open == 0 && tally.lost == 0
    }

    pub fn tally(&self) -> Tally {
        let pages = self.pages();
        let more_than_once = |counts: &HashMap<String, u64>| counts.values().map(|count| count - 1).sum::<u64>();
        let taken = || pages.posted.iter().filter(|(_, posted)| posted.taken > 0).map(|(id, _)| id);
        let is_done = |id: &&String| pages.handled.contains_key(*id) && pages.sent.contains_key(&reply_to(id));
        let copies: u64 = pages.posted.values().map(|posted| posted.taken.saturating_sub(1)).sum();
        Tally {
            received: pages.posted.values().map(|posted| posted.times).sum(),
            messages: pages.posted.len() as u64,
            suppressed: copies.saturating_sub(more_than_once(&pages.handled)),
            bot_failures: pages.bot_failures,
            delivered: pages.handled.len() as u64,
            answers_lost: pages.answers_lost,
            sent: pages.sent.len() as u64,
            lost: taken().filter(|id| !is_done(id)).count() as u64,
            doubled: more_than_once(&pages.handled) + more_than_once(&pages.sent),
        }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the bot answers to a message.
pub(super) fn reply_to(id: &str) -> String {
    format!("echo of {id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(journal: &Journal, id: &str, times: u64) {
        for _ in 0..times {
            journal.posting(id);
            journal.posted(id, true);
        }
    }

    #[test]
    fn what_was_handled_and_answered_once_is_neither_lost_nor_doubled() {
        let journal = Journal::default();
        post(&journal, "a", 3);
        post(&journal, "b", 1);
        for id in ["a", "b"] {
            journal.handled(id);
            journal.sent(&reply_to(id), id == "a");
        }
        let tally = journal.tally();
        assert_eq!((tally.received, tally.messages, tally.suppressed), (4, 2, 2));
        assert_eq!((tally.delivered, tally.sent, tally.answers_lost), (2, 2, 1));
        assert_eq!((tally.lost, tally.doubled), (0, 0));
        assert!(journal.is_settled());
    }

    #[test]
    fn what_is_missing_is_lost_and_what_came_twice_is_doubled() {
        let journal = Journal::default();
        post(&journal, "never handled", 1);
        post(&journal, "not answered", 1);
        journal.handled("not answered");
        post(&journal, "twice", 2);
        journal.handled("twice");
        journal.handled("twice");
        journal.sent(&reply_to("twice"), true);
        journal.sent(&reply_to("twice"), true);
        let tally = journal.tally();
        assert_eq!((tally.lost, tally.doubled, tally.suppressed), (2, 2, 0));
        journal.posting("refused");
        journal.posted("refused", false);
        assert_eq!(journal.tally().lost, 2, "what was never taken is the provider's to send again");
    }
}
