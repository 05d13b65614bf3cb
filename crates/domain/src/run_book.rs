//! Which message a send of an unmodified bot is: a new one, or one that an earlier call, or an earlier run of the handler, has made already.
//!
//! A *run* is one attempt at an inbox item. Its book lists the sends that the item's runs made, in the order in which they were first made.
//! The book is one value that is changed by compare and swap, so that calls which reach several instances meet in it.

use crate::MessageId;

/// The sends of one item, whichever run made them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunBook {
    pub calls: Vec<Call>,
    /// The last run that the bot itself ended with a failure. One that was cut ended by nobody's word.
    pub failed_run: u32,
    /// The bot answered 2xx before its first send: what it sends comes too late to belong to a run.
    pub answered_early: bool,
    /// The run after which it was run once more, because it had ended before it was answered. That is done once.
    pub redone: u32,
    /// Its item waits for a person, who may take longer than anything else is kept.
    pub parked: bool,
}

/// A send that was made at least once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The provider's name for what is done: `sendMessage`.
    pub method: String,
    /// Of the name of whom it is for.
    pub to: [u8; 8],
    /// Of what is sent, and to whom.
    pub content: [u8; 16],
    /// The last run that made it.
    pub run: u32,
    pub state: State,
    /// Once it is in the outbox, and somebody came back to say so.
    pub message: Option<MessageId>,
    /// How often it was asked for again, by the same run or by a later one.
    pub again: u32,
    /// How it began to be worded.
    pub text: Option<String>,
    /// A later run asked for it in these other words, and got the first one's result.
    pub reworded: Option<String>,
    /// Of those other words. Forgotten when the first ones come after all: each is heard once.
    pub reworded_content: Option<[u8; 16]>,
}

/// How far the last call for a send has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its caller waits, at the process that has drawn this number at its start. A process that is gone closes nothing.
    Open(u64),
    /// The caller was told to come back, or hung up.
    Over,
    /// The caller was told that it is out, to the last byte.
    Sent,
    /// The caller was told that the provider refused it: nothing went out, and the same again is another try.
    Refused,
}

/// How a later run finds what an earlier one has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// By equal content, then by its place among the sends of the same method to the same peer.
    Ordinal,
    /// By equal content only.
    Content,
    /// Not at all: only a call that was never answered is taken up again.
    Off,
}

impl Replay {
    pub const ALL: [Replay; 3] = [Replay::Ordinal, Replay::Content, Replay::Off];

    pub fn name(self) -> &'static str {
        match self {
            Replay::Ordinal => "ordinal",
            Replay::Content => "content",
            Replay::Off => "off",
        }
    }
}

/// A send that arrives now.
#[derive(Clone, Copy, Debug)]
pub struct Arriving<'c> {
    pub run: u32,
    /// Where it arrives.
    pub process: u64,
    pub method: &'c str,
    pub to: [u8; 8],
    pub content: [u8; 16],
    pub text: Option<&'c str>,
}

/// Which send of the book it is, by its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    New(usize),
    /// The same content.
    Same(usize),
    /// Other words in the same place.
    Reworded(usize),
}

impl Found {
    pub fn place(self) -> usize {
        match self {
            Found::New(at) | Found::Same(at) | Found::Reworded(at) => at,
        }
    }
}

impl RunBook {
    /// Most sends that a book lists; the bot of an event that makes more is a mailing, and those are no replies.
    pub const CALLS_MAX: usize = 300;

    /// In place of a peer: a send that comes between two runs has no place in the order of the handler's sends.
    pub const NO_PLACE: [u8; 8] = [0; 8];

    /// Decides which send this is, and writes it down. `None`: the book is full, and it is none of those in it.
    pub fn enter(&mut self, call: &Arriving<'_>, replay: Replay) -> Option<Found> {
        let found = self.find(call, replay);
        match found {
            Found::New(at) if at >= Self::CALLS_MAX => return None,
            Found::New(_) => {
                if let Some(refused) = self.refused_place(call, replay) {
                    self.calls[refused].to = Self::NO_PLACE;
                }
                self.calls.push(Call::new(call));
            }
            Found::Same(at) => {
                let displaced = self.calls[at].is(call).then(|| self.calls[at].reworded_content.take()).flatten();
                let of_this_run = self.calls[at].run == call.run;
                self.calls[at].take_up(call);
                if let Some(other_words) = displaced.filter(|_| of_this_run) {
                    self.move_on(at, other_words, call);
                }
            }
            Found::Reworded(at) => {
                let known = &mut self.calls[at];
                known.take_up(call);
                known.reworded = Some(call.text.unwrap_or_default().to_owned());
                known.reworded_content = Some(call.content);
            }
        }
        Some(found)
    }

    /// Other words had taken the place of words that came after all. They count for the next send of the cut run that nothing has matched, so
    /// that nothing further is taken for that one.
    fn move_on(&mut self, from: usize, other_words: [u8; 16], call: &Arriving<'_>) {
        let (failed_run, to) = (self.failed_run, self.calls[from].to);
        let is_free = |known: &Call| {
            let of_cut_run = known.run < call.run && known.run > failed_run && known.state != State::Refused;
            of_cut_run && known.method == call.method && known.to == to
        };
        let words = self.calls[from].reworded.take();
        if let Some(next) = self.calls.iter_mut().find(|known| is_free(known)) {
            (next.run, next.again) = (call.run, next.again.saturating_add(1));
            (next.reworded, next.reworded_content) = (words, Some(other_words));
        } else {
            self.calls[from].reworded = words;
        }
    }

    /// Which send this is.
    pub fn find(&self, call: &Arriving<'_>, replay: Replay) -> Found {
        let first = |fits: &dyn Fn(&Call) -> bool| self.calls.iter().position(fits);
        // While its caller waits here, an equal call is another one: two sends at once may have the same words.
        let comes_back = |known: &Call| match known.state {
            State::Open(process) => process != call.process,
            State::Over => true,
            State::Sent | State::Refused => false,
        };
        let again = |known: &Call| known.is(call) || known.was_reworded_as(call);
        if let Some(at) = first(&|known| again(known) && known.run == call.run && comes_back(known)) {
            return Found::Same(at);
        }
        // What was refused has had no effect, so there is nothing to get twice.
        let of_earlier_run = |known: &Call| known.run < call.run && known.state != State::Refused;
        // Other words have taken its place in this very run: they were more than those, then.
        let displaced = |known: &Call| known.run == call.run && known.reworded_content.is_some();
        if replay != Replay::Off
            && let Some(at) = first(&|known| known.is(call) && (of_earlier_run(known) || displaced(known)))
                .or_else(|| first(&|known| known.was_reworded_as(call) && of_earlier_run(known)))
        {
            return Found::Same(at);
        }
        match self.place_in_order(call, replay) {
            Some(at) if self.calls[at].state != State::Refused => Found::Reworded(at),
            _ => Found::New(self.calls.len()),
        }
    }

    /// The first of a cut run that nothing has matched. What was refused has its place in that order too, until it was tried anew; the same words
    /// as those are in no other's place.
    fn place_in_order(&self, call: &Arriving<'_>, replay: Replay) -> Option<usize> {
        if replay != Replay::Ordinal || call.to == Self::NO_PLACE || self.calls.iter().any(|known| known.was_refused_as(call)) {
            return None;
        }
        // A run that ended with a failure may well say something else the next time: "Sorry". One that was cut has said nothing of itself, and
        // who failed because it was told to come back comes back.
        let was_cut = |known: &Call| known.run < call.run && (known.run > self.failed_run || known.state == State::Over);
        self.calls.iter().position(|known| known.method == call.method && known.to == call.to && was_cut(known))
    }

    /// The place of a refused send that is tried anew by this one.
    fn refused_place(&self, call: &Arriving<'_>, replay: Replay) -> Option<usize> {
        let has_place = |known: &Call| known.was_refused_as(call) && known.to == call.to;
        self.calls.iter().position(has_place).or_else(|| self.place_in_order(call, replay))
    }

    /// An equal call of this run waits at this process, as far as is known: its caller may just have hung up.
    pub fn waits_here(&self, call: &Arriving<'_>) -> bool {
        let waits = |known: &Call| {
            known.run == call.run && known.is(call) && matches!(known.state, State::Open(at) if at == call.process)
        };
        self.calls.iter().any(waits)
    }

    /// A call has ended. Where its caller has the answer, the same content again, from the same run, is another message.
    pub fn end(&mut self, at: usize, run: u32, state: State, message: Option<MessageId>) {
        let Some(call) = self.calls.get_mut(at) else { return };
        call.message = call.message.or(message);
        if call.run == run {
            call.state = state;
        }
    }

    /// True when a run made a send whose caller was not answered, and did not come back.
    pub fn was_left(&self, run: u32) -> bool {
        self.calls.iter().any(|call| call.run == run && call.state == State::Over)
    }

    /// Notes that the handler runs once more after this run; false when it has done so before.
    pub fn redo(&mut self, run: u32) -> bool {
        let first = self.redone == 0;
        if first {
            self.redone = run;
        }
        first || self.redone == run
    }

    /// The bot ended a run with a failure.
    pub fn fail_run(&mut self, run: u32) {
        self.failed_run = self.failed_run.max(run);
    }
}

impl Call {
    fn new(call: &Arriving<'_>) -> Self {
        Self {
            method: call.method.to_owned(),
            to: call.to,
            content: call.content,
            run: call.run,
            state: State::Open(call.process),
            message: None,
            again: 0,
            text: call.text.map(str::to_owned),
            reworded: None,
            reworded_content: None,
        }
    }

    fn is(&self, call: &Arriving<'_>) -> bool {
        self.method == call.method && self.content == call.content
    }

    fn was_reworded_as(&self, call: &Arriving<'_>) -> bool {
        self.method == call.method && self.reworded_content == Some(call.content)
    }

    fn was_refused_as(&self, call: &Arriving<'_>) -> bool {
        self.state == State::Refused && (self.is(call) || self.was_reworded_as(call))
    }

    fn take_up(&mut self, call: &Arriving<'_>) {
        (self.run, self.state) = (call.run, State::Open(call.process));
        self.again = self.again.saturating_add(1);
    }
}

/// What a name of a peer is known by in a book.
pub fn short_name(peer: &str) -> [u8; 8] {
    let mut short = [0; 8];
    short.copy_from_slice(&blake3::hash(peer.as_bytes()).as_bytes()[..8]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arriving(run: u32, word: u8) -> Arriving<'static> {
        Arriving { run, process: 7, method: "sendMessage", to: [1; 8], content: [word; 16], text: Some("words") }
    }

    fn enter(book: &mut RunBook, run: u32, word: u8) -> Found {
        book.enter(&arriving(run, word), Replay::Ordinal).expect("room")
    }

    /// A run that makes these sends, one after the other, and hears that they are out.
    fn run(book: &mut RunBook, run: u32, words: &[u8]) -> Vec<Found> {
        let one = |word: &u8| {
            let found = enter(book, run, *word);
            book.end(found.place(), run, State::Sent, None);
            found
        };
        words.iter().map(one).collect()
    }

    #[test]
    fn two_equal_sends_of_one_run_are_two_messages_once_the_first_is_answered() {
        let mut book = RunBook::default();
        assert_eq!(enter(&mut book, 1, 1), Found::New(0));
        assert_eq!(enter(&mut book, 1, 1), Found::New(1), "both at once");
        book.end(0, 1, State::Over, None);
        assert_eq!(enter(&mut book, 1, 1), Found::Same(0), "told 429, or hung up, and comes back");
        book.end(0, 1, State::Sent, None);
        book.end(1, 1, State::Sent, None);
        assert_eq!(enter(&mut book, 1, 1), Found::New(2));
    }

    #[test]
    fn what_a_process_that_is_gone_had_open_is_taken_up_again() {
        let mut book = RunBook::default();
        enter(&mut book, 1, 1);
        let elsewhere = Arriving { process: 8, ..arriving(1, 1) };
        assert_eq!(book.enter(&elsewhere, Replay::Ordinal), Some(Found::Same(0)));
    }

    #[test]
    fn a_later_run_gets_what_the_first_has_sent_in_whatever_order() {
        let mut book = RunBook::default();
        run(&mut book, 1, &[1, 1, 2]);
        let found: Vec<_> = [2, 1, 1, 3].map(|word| book.enter(&arriving(2, word), Replay::Content).expect("room")).into();
        assert_eq!(found, [Found::Same(2), Found::Same(0), Found::Same(1), Found::New(3)]);
        assert_eq!(book.calls.iter().map(|call| call.again).collect::<Vec<_>>(), [1, 1, 1, 0]);
    }

    #[test]
    fn a_third_run_gets_what_either_has_sent() {
        let mut book = RunBook::default();
        run(&mut book, 1, &[1]);
        assert_eq!(run(&mut book, 2, &[1, 2]), [Found::Same(0), Found::New(1)]);
        assert_eq!(run(&mut book, 3, &[1, 2, 3]), [Found::Same(0), Found::Same(1), Found::New(2)]);
    }

    #[test]
    fn other_words_take_the_place_of_the_first_ones_after_a_cut() {
        let mut book = RunBook::default();
        run(&mut book, 1, &[1, 2, 3]);
        let found = run(&mut book, 2, &[9, 2, 8, 7]);
        let expected = [Found::Reworded(0), Found::Same(1), Found::Reworded(2), Found::New(3)];
        assert_eq!(found, expected, "more than before is more");
        assert_eq!(book.calls[0].reworded.as_deref(), Some("words"));
        assert_eq!(book.calls[0].content, [1; 16], "what was sent is what was sent");
    }

    #[test]
    fn after_a_failure_other_words_are_another_message() {
        let mut book = RunBook::default();
        run(&mut book, 1, &[1]);
        book.fail_run(1);
        assert_eq!(run(&mut book, 2, &[2]), [Found::New(1)], "Sorry, that failed");
        assert_eq!(run(&mut book, 3, &[1, 3]), [Found::Same(0), Found::Reworded(1)], "the second run was cut again");
    }

    #[test]
    fn who_fails_because_it_was_told_to_come_back_may_come_back_in_other_words() {
        let mut book = RunBook::default();
        run(&mut book, 1, &[1]);
        enter(&mut book, 1, 2);
        book.end(1, 1, State::Over, None);
        book.fail_run(1);
        let mut sorry = book.clone();
        assert_eq!(run(&mut book, 2, &[1, 9, 3]), [Found::Same(0), Found::Reworded(1), Found::New(2)]);
        assert_eq!(run(&mut sorry, 2, &[8, 7]), [Found::Reworded(1), Found::New(2)], "what was answered is nobody's place");
    }

    #[test]
    fn what_a_failed_run_said_is_no_place_for_other_words_after_a_later_cut() {
        let mut book = RunBook::default();
        run(&mut book, 1, &[1]);
        book.fail_run(1);
        assert_eq!(run(&mut book, 3, &[2]), [Found::New(1)], "the second run was cut before it said anything");
    }

    #[test]
    fn other_words_that_come_back_are_the_same_and_a_third_run_finds_them_too() {
        let mut book = RunBook::default();
        run(&mut book, 1, &[1, 2]);
        assert_eq!(enter(&mut book, 2, 9), Found::Reworded(0));
        book.end(0, 2, State::Over, None);
        assert_eq!(enter(&mut book, 2, 9), Found::Same(0), "told 429, or hung up, and comes back");
        book.end(0, 2, State::Sent, None);
        assert_eq!(run(&mut book, 3, &[9, 2]), [Found::Same(0), Found::Same(1)]);
    }

    #[test]
    fn words_that_come_before_the_first_ones_do_not_send_those_twice() {
        let mut book = RunBook::default();
        run(&mut book, 1, &[1]);
        assert_eq!(run(&mut book, 2, &[9, 1, 1]), [Found::Reworded(0), Found::Same(0), Found::New(1)]);
    }

    #[test]
    fn other_words_in_another_order_lose_none_while_there_is_a_place() {
        let mut book = RunBook::default();
        run(&mut book, 1, &[1, 2]);
        let found = run(&mut book, 2, &[9, 1, 8]);
        assert_eq!(found, [Found::Reworded(0), Found::Same(0), Found::New(2)], "9 is 2 in other words, and 8 is one more");
        assert_eq!(book.calls[1].reworded_content, Some([9; 16]));
        assert_eq!(run(&mut book, 3, &[9, 1, 8]), [Found::Same(1), Found::Same(0), Found::Same(2)], "as before");
        let mut book = RunBook::default();
        run(&mut book, 1, &[1, 2]);
        let found = run(&mut book, 2, &[9, 1, 2]);
        assert_eq!(found, [Found::Reworded(0), Found::Same(0), Found::Same(1)], "its own words find it all the same");
    }

    #[test]
    fn other_methods_and_other_peers_do_not_meet() {
        let mut book = RunBook::default();
        run(&mut book, 1, &[1]);
        let photo = Arriving { method: "sendPhoto", ..arriving(2, 2) };
        assert_eq!(book.enter(&photo, Replay::Ordinal), Some(Found::New(1)));
        let to_another = Arriving { to: [2; 8], ..arriving(2, 3) };
        assert_eq!(book.enter(&to_another, Replay::Ordinal), Some(Found::New(2)));
    }

    #[test]
    fn what_comes_between_two_runs_takes_no_place() {
        let mut book = RunBook::default();
        let late = |run, word| Arriving { to: RunBook::NO_PLACE, ..arriving(run, word) };
        assert_eq!(book.enter(&late(1, 1), Replay::Ordinal), Some(Found::New(0)));
        assert_eq!(book.enter(&late(2, 2), Replay::Ordinal), Some(Found::New(1)), "other words, after another cut");
        assert_eq!(book.enter(&late(3, 1), Replay::Ordinal), Some(Found::Same(0)));
    }

    #[test]
    fn a_run_that_was_not_answered_is_run_once_more_and_no_second_time() {
        let mut book = RunBook::default();
        enter(&mut book, 1, 1);
        assert!(!book.was_left(1), "its caller waits");
        book.end(0, 1, State::Over, None);
        assert!(book.was_left(1) && !book.was_left(2));
        assert!(book.redo(1) && book.redo(1), "asked twice, it says the same");
        assert_eq!(enter(&mut book, 2, 1), Found::Same(0));
        assert!(!book.redo(2));
    }

    #[test]
    fn what_was_refused_is_tried_again() {
        let mut book = RunBook::default();
        enter(&mut book, 1, 1);
        book.end(0, 1, State::Refused, None);
        assert_eq!(enter(&mut book, 1, 1), Found::New(1), "by the same run");
        book.end(1, 1, State::Refused, None);
        assert_eq!(run(&mut book, 2, &[1, 2]), [Found::New(2), Found::New(3)], "and by the next, whatever its words");
    }

    #[test]
    fn what_was_refused_does_not_take_the_place_of_the_next() {
        let cut = || {
            let mut book = RunBook::default();
            enter(&mut book, 1, 1);
            book.end(0, 1, State::Refused, None);
            run(&mut book, 1, &[2]);
            book
        };
        let mut book = cut();
        assert_eq!(run(&mut book, 2, &[1, 8]), [Found::New(2), Found::Reworded(1)], "order confirmed, receipt");
        assert_eq!(run(&mut book, 3, &[1, 2]), [Found::Same(2), Found::Same(1)]);
        let mut book = cut();
        assert_eq!(run(&mut book, 2, &[9, 2]), [Found::New(2), Found::Same(1)], "in other words");
        let mut book = cut();
        assert_eq!(run(&mut book, 2, &[9, 8]), [Found::New(2), Found::Reworded(1)], "both");
        assert_eq!(run(&mut book, 3, &[7, 6]), [Found::Reworded(1), Found::Reworded(2)], "it was tried anew once");
    }

    #[test]
    fn what_turns_out_to_be_refused_when_it_is_asked_for_in_other_words_takes_no_other_place() {
        let mut book = RunBook::default();
        enter(&mut book, 1, 1);
        book.end(0, 1, State::Over, None);
        run(&mut book, 1, &[2]);
        assert_eq!(enter(&mut book, 2, 9), Found::Reworded(0));
        book.end(0, 2, State::Refused, None);
        assert_eq!(run(&mut book, 2, &[9, 8]), [Found::New(2), Found::Reworded(1)]);
    }

    #[test]
    fn without_replay_only_what_was_not_answered_is_taken_up() {
        let mut book = RunBook::default();
        let mut enter =
            |run| book.enter(&arriving(run, 1), Replay::Off).map(|found| (found, book.end(0, 1, State::Over, None)).0);
        assert_eq!(enter(1), Some(Found::New(0)));
        assert_eq!(enter(1), Some(Found::Same(0)));
        assert_eq!(enter(2), Some(Found::New(1)));
    }

    #[test]
    fn the_end_of_an_earlier_runs_call_does_not_end_the_later_ones() {
        let mut book = RunBook::default();
        enter(&mut book, 1, 1);
        enter(&mut book, 2, 1);
        book.end(0, 1, State::Sent, None);
        assert_eq!(book.calls[0].state, State::Open(7));
    }

    #[test]
    fn a_full_book_knows_what_it_knows_and_takes_nothing_more() {
        let mut book = RunBook::default();
        for number in 0..RunBook::CALLS_MAX {
            let mut call = arriving(1, 0);
            call.content[..8].copy_from_slice(&number.to_le_bytes());
            book.enter(&call, Replay::Ordinal).expect("room");
        }
        assert_eq!(book.enter(&arriving(1, 9), Replay::Ordinal), None);
        assert_eq!(book.enter(&arriving(2, 0), Replay::Ordinal), Some(Found::Same(0)));
    }
}
