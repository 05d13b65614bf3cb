//! Sends of an unmodified bot that are not answered: whoever comes back soon is given the same message, whether or not it belongs to an event by
//! then.
//!
//! The book is the one of a thread, changed by compare and swap like the one of a run. Sends that belong to no event stand in no other.

/// Sends to one thread that are not answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlainBook {
    pub calls: Vec<PlainCall>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainCall {
    pub method: String,
    pub content: [u8; 16],
    /// Its request id.
    pub request: String,
    /// The process at which its caller waits; `None`: told to come back, or hung up.
    pub open: Option<u64>,
    /// Until then an equal call is taken for the same one. Later, the same words are said anew.
    pub until_ms: i64,
}

impl PlainBook {
    /// So many at once; beyond it the oldest are forgotten.
    const CALLS_MAX: usize = 100;
    /// An open call whose process is gone is taken up again this long.
    pub const OPEN_MS: i64 = 300_000;
    /// How long after the time that a caller was told it may still come back.
    pub const GRACE_MS: i64 = 60_000;

    /// Takes up an equal call whose caller is gone; gives its request id. `may` says, by its request id, whether the new caller can be the one
    /// that has left it: the handler of another event is not.
    pub fn take_up(
        &mut self,
        method: &str,
        content: [u8; 16],
        process: u64,
        may: impl Fn(&str) -> bool,
        now_ms: i64,
    ) -> Option<String> {
        let comes_back = |known: &&mut PlainCall| known.comes_back_as(method, content, process, now_ms) && may(&known.request);
        let known = self.calls.iter_mut().find(comes_back)?;
        (known.open, known.until_ms) = (Some(process), now_ms + Self::OPEN_MS);
        Some(known.request.clone())
    }

    /// Decides which send this is, and writes it down: one that is taken up, or a new one with this request id.
    pub fn enter(&mut self, method: &str, content: [u8; 16], process: u64, request: &str, now_ms: i64) -> String {
        self.calls.retain(|known| known.until_ms > now_ms);
        if let Some(known) = self.take_up(method, content, process, |_| true, now_ms) {
            return known;
        }
        let (open, until_ms) = (Some(process), now_ms + Self::OPEN_MS);
        self.add(PlainCall { method: method.to_owned(), content, request: request.to_owned(), open, until_ms });
        request.to_owned()
    }

    /// An equal call waits at this process, as far as is known: its caller may just have hung up.
    pub fn waits_here(&self, method: &str, content: [u8; 16], process: u64) -> bool {
        self.calls.iter().any(|known| known.method == method && known.content == content && known.open == Some(process))
    }

    /// Its caller has the answer: the same again is another message.
    pub fn answered(&mut self, request: &str) {
        self.calls.retain(|known| known.request != request);
    }

    /// Its caller was told to come back after `wait_ms`, or hung up. One of a run is entered by that.
    pub fn left(&mut self, method: &str, content: [u8; 16], request: &str, wait_ms: i64, now_ms: i64) {
        self.answered(request);
        let until_ms = now_ms + wait_ms + Self::GRACE_MS;
        self.add(PlainCall { method: method.to_owned(), content, request: request.to_owned(), open: None, until_ms });
    }

    fn add(&mut self, call: PlainCall) {
        if self.calls.len() >= Self::CALLS_MAX {
            self.calls.remove(0);
        }
        self.calls.push(call);
    }
}

impl PlainCall {
    /// While its caller waits at this very process, an equal call is another one.
    pub fn comes_back_as(&self, method: &str, content: [u8; 16], process: u64, now_ms: i64) -> bool {
        self.method == method && self.content == content && self.until_ms > now_ms && self.open.is_none_or(|open| open != process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: u64 = 7;

    fn enter(book: &mut PlainBook, word: u8, request: &str, now_ms: i64) -> String {
        book.enter("sendMessage", [word; 16], HERE, request, now_ms)
    }

    fn left(book: &mut PlainBook, word: u8, request: &str, wait_ms: i64, now_ms: i64) {
        book.left("sendMessage", [word; 16], request, wait_ms, now_ms);
    }

    #[test]
    fn who_was_not_answered_and_comes_back_soon_gets_the_same_message() {
        let mut book = PlainBook::default();
        assert_eq!(enter(&mut book, 1, "a", 0), "a");
        assert!(book.waits_here("sendMessage", [1; 16], HERE) && !book.waits_here("sendMessage", [2; 16], HERE));
        assert!(!book.waits_here("sendMessage", [1; 16], HERE + 1), "what waits elsewhere is taken up at once");
        assert_eq!(enter(&mut book, 1, "b", 0), "b", "both wait: two at once");
        left(&mut book, 1, "a", 3_000, 4_000);
        assert_eq!(enter(&mut book, 2, "c", 5_000), "c", "other words");
        assert_eq!(enter(&mut book, 1, "d", 7_000), "a");
        book.answered("a");
        book.answered("b");
        assert_eq!(enter(&mut book, 1, "e", 8_000), "e", "it was answered: the same again is another");
    }

    #[test]
    fn what_was_left_in_a_run_is_taken_up_outside_of_it_and_the_other_way_round() {
        let mut book = PlainBook::default();
        left(&mut book, 1, "run/0", 3_000, 0);
        assert_eq!(enter(&mut book, 1, "a", 3_000), "run/0");
        book.answered("run/0");
        enter(&mut book, 1, "a", 4_000);
        assert_eq!(book.take_up("sendMessage", [1; 16], HERE, |_| true, 4_000), None, "its caller waits");
        left(&mut book, 1, "a", 0, 5_000);
        assert_eq!(book.take_up("sendMessage", [1; 16], HERE, |_| true, 6_000).as_deref(), Some("a"));
    }

    #[test]
    fn what_the_run_of_another_event_has_left_is_passed_over() {
        let mut book = PlainBook::default();
        left(&mut book, 1, "first/0", 3_000, 0);
        left(&mut book, 1, "second/0", 3_000, 0);
        let mut take_up = |whose: &str| book.take_up("sendMessage", [1; 16], HERE, |request| request.starts_with(whose), 1_000);
        assert_eq!(take_up("third"), None);
        assert_eq!(take_up("second").as_deref(), Some("second/0"));
    }

    #[test]
    fn the_same_words_much_later_are_said_anew() {
        let mut book = PlainBook::default();
        enter(&mut book, 1, "a", 0);
        left(&mut book, 1, "a", 3_000, 4_000);
        let over_ms = 4_000 + 3_000 + PlainBook::GRACE_MS;
        assert_eq!(enter(&mut book.clone(), 1, "b", over_ms - 1), "a");
        assert_eq!(enter(&mut book, 1, "b", over_ms), "b");
        assert_eq!(book.calls.len(), 1, "what is over is forgotten");
    }

    #[test]
    fn what_a_process_that_is_gone_had_open_is_taken_up_again() {
        let mut book = PlainBook::default();
        enter(&mut book, 1, "a", 0);
        assert_eq!(book.enter("sendMessage", [1; 16], HERE + 1, "b", 1_000), "a");
        assert_eq!(book.enter("sendPhoto", [1; 16], HERE + 2, "c", 1_000), "c");
    }

    #[test]
    fn it_does_not_grow_without_end() {
        let mut book = PlainBook::default();
        for key in 0..1_000 {
            book.enter("sendMessage", [0; 16], HERE, &key.to_string(), 0);
        }
        assert_eq!(book.calls.len(), PlainBook::CALLS_MAX);
    }
}
