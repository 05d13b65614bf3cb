//! What becomes of a message that goes out: the one place that says what a status, an echo, an outcome, a retry or a cancel does to it.
//!
//! Plain data in, plain data out. The engines load it, ask the rule, and keep what it says; Redis has the only other copy, in Lua.

use super::limits::{ROUNDS_KEPT, ROUNDS_MAX};
use super::{Status, Steps};

/// All of a message that changes on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    pub steps: Steps,
    /// What the provider calls it, since a person last asked for it to be sent.
    pub provider_id: Option<String>,
    /// Why it failed, waits or is in doubt.
    pub why: Option<String>,
    pub past: Past,
    /// Nothing: it has left the outbox.
    pub place: Option<PendingSend>,
}

/// Where a message stands in the outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingSend {
    /// Tries so far, over all rounds.
    pub attempt: u32,
    /// Tries of this round that failed through the message's own fault. Their number is what ends the trying.
    pub failures: u32,
    /// Nothing: it waits for somebody's word.
    pub due_ms: Option<i64>,
    /// Set from `begin` on until it is known what became of that try.
    pub begun_ms: Option<i64>,
    /// It has left its thread's lane, and waits for somebody's word.
    pub unknown: bool,
    /// It is to be sent later, and joins its thread's lane when it is due.
    pub held: bool,
}

/// What is behind a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// How many tries there were when it last left the outbox.
    pub tries: u32,
    /// The first try that may have gone out without our hearing of it.
    pub doubt: Option<u32>,
    /// What was known each time a person asked for it to be sent once more, oldest first.
    pub rounds: Vec<Round>,
}

/// The tries up to a person's retry, and what came of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    pub provider_id: Option<String>,
    pub steps: Steps,
    pub why: Option<String>,
}

/// How a try to send ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The provider took it and calls it so.
    Sent { provider_id: String },
    /// This try did not go out; it is tried again after the wait, first in its lane. Charged when the message itself was at fault, and not
    /// its account or the network.
    Retry { wait_ms: i64, why: String, charged: bool },
    /// This try may have gone out, and the channel chose to send again all the same. Charged.
    Resend { wait_ms: i64, why: String },
    /// This try did not go out and none ever will.
    Failed { why: String },
    /// Nobody knows. It leaves the lane, so that the thread goes on, and is never sent again by itself; with `check_ms` it is leased
    /// again after that time, in doubt, to be looked up.
    Unknown { why: String, check_ms: Option<i64> },
    /// The provider's history shows messages like this one, oldest first. It was sent as the first of them that no other message of the
    /// account is called; if there is none it stays unknown.
    Found { provider_ids: Vec<String>, why: String, check_ms: Option<i64> },
    /// It was not begun, through no fault of its own: the attempt is not counted.
    HandBack { wait_ms: i64 },
}

impl SendOutcome {
    /// The wait after which the message is leased again by itself.
    pub fn comes_again_ms(&self) -> Option<i64> {
        match self {
            SendOutcome::Retry { wait_ms, .. } | SendOutcome::Resend { wait_ms, .. } | SendOutcome::HandBack { wait_ms } => {
                Some(*wait_ms)
            }
            SendOutcome::Unknown { check_ms, .. } | SendOutcome::Found { check_ms, .. } => *check_ms,
            SendOutcome::Sent { .. } | SendOutcome::Failed { .. } => None,
        }
    }

    /// As the try is written down.
    pub fn name(&self) -> &'static str {
        match self {
            SendOutcome::Sent { .. } => "sent",
            SendOutcome::Retry { .. } => "retry",
            SendOutcome::Failed { .. } => "failed",
            SendOutcome::Resend { .. } | SendOutcome::Unknown { .. } => "unknown",
            SendOutcome::Found { .. } => "looked up",
            SendOutcome::HandBack { .. } => "handed back",
        }
    }

    /// As the try is written down; nothing where none was made.
    pub fn detail(&self) -> Option<&str> {
        match self {
            SendOutcome::Sent { provider_id } => Some(provider_id),
            SendOutcome::Retry { why, .. }
            | SendOutcome::Resend { why, .. }
            | SendOutcome::Failed { why }
            | SendOutcome::Unknown { why, .. } => Some(why),
            SendOutcome::Found { provider_ids, .. } => Some(provider_ids.first().map_or("", String::as_str)),
            SendOutcome::HandBack { .. } => None,
        }
    }

    /// Of what a look-up found, the first that is free, or that nothing was found. `is_free`: no other message of ours is called so.
    #[must_use]
    pub fn matched(self, is_free: impl Fn(&str) -> bool) -> SendOutcome {
        match self {
            SendOutcome::Found { provider_ids, why, check_ms } => match provider_ids.into_iter().find(|id| is_free(id)) {
                Some(provider_id) => SendOutcome::Sent { provider_id },
                None => SendOutcome::Unknown { why, check_ms },
            },
            other => other,
        }
    }
}

/// What a provider's word says: a status, or an echo, which is a `sent`.
#[derive(Clone, Copy, Debug)]
pub struct Word<'w> {
    pub provider_id: &'w str,
    pub status: Status,
    pub at_ms: i64,
    /// It carries our handle.
    pub by_handle: bool,
}

/// What a person asked of a message in the outbox, and whether it could be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    Done,
    NotFound,
    /// It is being sent, or has ended already.
    TooLate,
}

impl PendingSend {
    /// Nobody else is in its lane.
    pub fn is_alone(&self) -> bool {
        self.unknown || self.held
    }

    /// The number of the try for which it is leased now. One in doubt is leased to be looked up, which is no try.
    pub fn leased_attempt(&self) -> u32 {
        self.attempt + u32::from(self.begun_ms.is_none())
    }
}

impl Past {
    /// What the message was called in rounds that are over.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rounds.iter().filter_map(|round| round.provider_id.as_deref())
    }

    /// Whether a message was called so in a round that is over.
    pub fn was_called(&self, provider_id: &str) -> bool {
        self.names().any(|name| name == provider_id)
    }
}

impl Outgoing {
    /// With `held_until_ms` it is sent then, and not before.
    pub fn new(now_ms: i64, held_until_ms: Option<i64>) -> Self {
        Self {
            steps: Steps::new(vec![(Status::Queued, now_ms)]),
            provider_id: None,
            why: None,
            past: Past::default(),
            place: Some(PendingSend {
                due_ms: held_until_ms.or(Some(now_ms)),
                held: held_until_ms.is_some(),
                ..PendingSend::default()
            }),
        }
    }

    /// Sending begins now; false when it may not, because the provider has named the message meanwhile. Where an earlier try was begun
    /// already, this is another one.
    pub fn begin(&mut self, now_ms: i64) -> bool {
        let Some(place) = self.place.as_mut().filter(|_| self.provider_id.is_none()) else { return false };
        if place.begun_ms.is_some() {
            self.past.doubt.get_or_insert(place.attempt);
            place.attempt += 1;
        }
        place.begun_ms = Some(now_ms);
        self.steps.leave_queue();
        self.steps.hear(Status::Sending, now_ms);
        true
    }

    /// Whether it may be handed out; one that the provider has named meanwhile leaves the outbox instead.
    pub fn lease(&mut self, now_ms: i64) -> bool {
        if self.settle_as_known(now_ms) {
            return false;
        }
        self.remember_begun();
        true
    }

    /// A try that was begun and that nobody is at may have gone out.
    fn remember_begun(&mut self) {
        if let Some(place) = self.place.filter(|place| place.begun_ms.is_some()) {
            self.past.doubt.get_or_insert(place.attempt);
        }
    }

    /// Nobody holds it any longer, and no outcome was written down.
    pub fn lose_lease(&mut self, now_ms: i64) {
        if !self.settle_as_known(now_ms) {
            self.remember_begun();
        }
    }

    /// Ends a try. What was looked up has been matched before; a name that is learned has been given with [`Outgoing::call_it`].
    pub fn settle(&mut self, outcome: &SendOutcome, now_ms: i64) {
        let Some(PendingSend { attempt, .. }) = self.place else { return };
        match outcome {
            SendOutcome::Sent { .. } => self.end_as_sent(now_ms),
            SendOutcome::HandBack { wait_ms } => {
                self.hand_back(now_ms + wait_ms);
                self.settle_as_known(now_ms);
            }
            _ if self.settle_as_known(now_ms) => {}
            SendOutcome::Failed { why } if !self.in_doubt() => self.end(Status::Failed, Some(why.clone()), now_ms),
            SendOutcome::Failed { why } => self.doubt(why.clone(), None, now_ms),
            SendOutcome::Retry { wait_ms, why, charged } => self.requeue(now_ms + wait_ms, why, u32::from(*charged)),
            SendOutcome::Resend { wait_ms, why } => {
                self.past.doubt.get_or_insert(attempt);
                self.requeue(now_ms + wait_ms, why, 1);
            }
            SendOutcome::Unknown { why, check_ms } | SendOutcome::Found { why, check_ms, .. } => {
                self.past.doubt.get_or_insert(attempt);
                self.doubt(why.clone(), check_ms.map(|wait| now_ms + wait), now_ms);
            }
        }
    }

    /// Whether an outcome that was told after its lease still says what became of the message: its try was begun, nobody has begun another
    /// since, and the provider has not named it. While somebody else holds it, only that it was sent is taken.
    pub fn takes_late(&self, attempt: u32, outcome: &SendOutcome, leased: bool) -> bool {
        let is_fate = match outcome {
            SendOutcome::Sent { .. } => true,
            SendOutcome::Failed { .. } | SendOutcome::Retry { .. } => !leased,
            _ => false,
        };
        let is_this_try = self.place.is_some_and(|place| place.attempt == attempt && place.begun_ms.is_some());
        is_fate && is_this_try && self.provider_id.is_none()
    }

    /// Ends a try whose outcome is taken late; a name that is learned has been given with [`Outgoing::call_it`]. Whoever holds it settles by
    /// himself: it is sent, whatever he says, and he can begin nothing.
    pub fn settle_late(&mut self, attempt: u32, outcome: &SendOutcome, leased: bool, now_ms: i64) {
        let Some(place) = self.place.as_mut().filter(|_| !leased) else { return };
        place.unknown = false;
        self.past.doubt = self.past.doubt.filter(|doubted| *doubted != attempt);
        self.settle(outcome, now_ms);
    }

    /// Whether some try may have gone out.
    fn in_doubt(&self) -> bool {
        self.past.doubt.is_some() || self.place.is_some_and(|place| place.unknown)
    }

    fn hand_back(&mut self, due_ms: i64) {
        let Some(place) = &mut self.place else { return };
        place.attempt -= u32::from(place.begun_ms.is_none());
        place.due_ms = Some(due_ms);
    }

    fn requeue(&mut self, due_ms: i64, why: &str, charged: u32) {
        self.why = Some(self.with_doubt(why.to_owned()));
        self.steps.leave_queue();
        let Some(place) = &mut self.place else { return };
        let failures = place.failures + charged;
        *place = PendingSend { attempt: place.attempt, failures, due_ms: Some(due_ms), ..PendingSend::default() };
    }

    /// It leaves its thread's lane: this try or an earlier one may have gone out.
    fn doubt(&mut self, why: String, check_ms: Option<i64>, now_ms: i64) {
        self.why = Some(self.with_doubt(why));
        self.steps.hear(Status::Unknown, now_ms);
        let Some(place) = &mut self.place else { return };
        place.begun_ms.get_or_insert(now_ms);
        place.due_ms = check_ms;
        place.unknown = true;
        place.held = false;
    }

    /// Says of the last try what is known, and of an earlier one that it is not known.
    fn with_doubt(&self, why: String) -> String {
        let attempt = self.place.map_or(self.past.tries, |place| place.attempt);
        match self.past.doubt.filter(|doubted| *doubted < attempt) {
            Some(doubted) => format!("{why}; try {doubted} may have gone out"),
            None => why,
        }
    }

    fn end(&mut self, status: Status, why: Option<String>, now_ms: i64) {
        self.past.tries = self.place.map_or(self.past.tries, |place| place.attempt);
        self.place = None;
        self.steps.hear(status, now_ms);
        self.why = why;
    }

    /// The doubt of the last try is over; that of an earlier one is not.
    fn end_as_sent(&mut self, at_ms: i64) {
        let attempt = self.place.map_or(self.past.tries, |place| place.attempt);
        self.past.doubt = self.past.doubt.filter(|doubted| *doubted != attempt);
        let why = self.past.doubt.map(|doubted| format!("try {doubted} may have gone out too"));
        self.end(Status::Sent, why, at_ms);
    }

    /// One in the outbox that the provider has named is sent, whatever its last try came to.
    pub fn settle_as_known(&mut self, at_ms: i64) -> bool {
        let known = self.place.is_some() && self.provider_id.is_some();
        if known {
            self.end_as_sent(at_ms);
        }
        known
    }

    /// Learns what the provider calls it, and takes over the statuses that came before.
    pub fn call_it(&mut self, provider_id: &str, early: &Steps) {
        let before = self.provider_id.replace(provider_id.to_owned());
        if let Some(before) = before.filter(|before| before != provider_id) {
            // An earlier try of this round, whose answer was lost, went out under another name.
            self.put_aside(Round { provider_id: Some(before), ..Round::default() });
        }
        self.hear_all(early);
    }

    fn put_aside(&mut self, round: Round) {
        self.past.rounds.push(round);
        if self.past.rounds.len() > ROUNDS_KEPT {
            self.past.rounds.remove(0);
        }
    }

    fn hear_all(&mut self, early: &Steps) {
        for (status, at_ms) in early.iter() {
            self.steps.hear(status, at_ms);
        }
    }

    /// Whether a word by handle gives the message a name, which then leads to it.
    pub fn is_named_by(&self, word: &Word<'_>) -> bool {
        let known = self.provider_id.as_deref().map(|known| known == word.provider_id);
        word.by_handle && known.unwrap_or_else(|| !self.past.was_called(word.provider_id))
    }

    /// Takes in what the provider says of this message; `early` is what it said under this name before.
    ///
    /// A name of an earlier round moves only what is told of that round. Whoever holds the lease settles by himself.
    pub fn hear(&mut self, word: &Word<'_>, early: &Steps, leased: bool) {
        let now_called = self.provider_id.as_deref() == Some(word.provider_id);
        let round = self.past.rounds.iter_mut().rev().find(|round| round.provider_id.as_deref() == Some(word.provider_id));
        if let Some(round) = round.filter(|_| !now_called) {
            round.steps.hear(word.status, word.at_ms);
            return;
        }
        if self.is_named_by(word) {
            self.provider_id.get_or_insert_with(|| word.provider_id.to_owned());
            self.hear_all(early);
        }
        self.steps.hear(word.status, word.at_ms);
        if let Some(place) = self.place {
            // In its thread's lane it is found when its turn comes.
            if place.unknown && !leased {
                self.settle_as_known(word.at_ms);
            }
        } else if self.past.doubt == Some(self.past.tries) {
            // It was given up while in doubt.
            self.past.doubt = None;
            self.why = None;
        }
    }

    /// A person wants it sent once more: what was known is put aside, and a new round begins.
    pub fn retry(&mut self, leased: bool, now_ms: i64) -> Changed {
        let failed = self.place.is_none() && self.steps.status() == Status::Failed;
        let doubted = self.place.is_some_and(|place| place.unknown);
        // The names of earlier rounds must stay known: a late word about one of them would be taken for this one's.
        if !(failed || doubted) || leased || self.past.rounds.len() >= ROUNDS_MAX {
            return Changed::TooLate;
        }
        let attempt = self.place.map_or(self.past.tries, |place| place.attempt);
        if doubted {
            self.past.doubt.get_or_insert(attempt);
        }
        let steps = std::mem::replace(&mut self.steps, Steps::new(vec![(Status::Queued, now_ms)]));
        let round = Round { provider_id: self.provider_id.take(), steps, why: self.why.take() };
        self.put_aside(round);
        self.why = self.past.doubt.map(|doubted| format!("try {doubted} may have gone out"));
        self.place = Some(PendingSend { attempt, due_ms: Some(now_ms), ..PendingSend::default() });
        Changed::Done
    }

    /// A person does not want it sent. One that may have gone out is no longer waited for, and has not failed; one that the provider has
    /// named was sent, and leaves the outbox when its turn comes.
    pub fn cancel(&mut self, leased: bool, now_ms: i64) -> Changed {
        if self.place.is_none() || leased || self.provider_id.is_some() {
            return Changed::TooLate;
        }
        self.remember_begun();
        let (status, why) = match self.in_doubt() {
            true => (Status::Unknown, "given up while in doubt"),
            false => (Status::Failed, "cancelled"),
        };
        self.end(status, Some(why.to_owned()), now_ms);
        Changed::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(provider_id: &str, status: Status) -> Word<'_> {
        Word { provider_id, status, at_ms: 50, by_handle: true }
    }

    fn begun() -> Outgoing {
        let mut message = Outgoing::new(1, None);
        assert!(message.lease(2));
        message.place = message.place.map(|place| PendingSend { attempt: place.leased_attempt(), ..place });
        assert!(message.begin(2));
        message
    }

    #[test]
    fn a_retry_forgets_nothing_and_believes_nothing_old() {
        let mut message = begun();
        message.call_it("old", &Steps::default());
        message.settle(&SendOutcome::Sent { provider_id: "old".to_owned() }, 3);
        message.hear(&word("old", Status::Failed), &Steps::default(), false);
        assert_eq!((message.steps.status(), message.retry(false, 4)), (Status::Failed, Changed::Done));
        assert!(message.begin(5));
        message.hear(&word("old", Status::Sent), &Steps::default(), true);
        message.lose_lease(6);
        assert_eq!((message.steps.status(), message.place.is_some()), (Status::Sending, true));
        assert_eq!(message.past.rounds[0].steps.status(), Status::Failed);
        message.hear(&word("new", Status::Sent), &Steps::default(), false);
        assert!(!message.lease(7), "the provider has it under its new name");
        assert_eq!((message.steps.status(), message.past.doubt), (Status::Sent, None));
    }

    #[test]
    fn a_refusal_after_a_doubt_is_no_failure() {
        let mut message = begun();
        message.settle(&SendOutcome::Resend { wait_ms: 0, why: "cut".to_owned() }, 3);
        assert_eq!((message.steps.status(), message.past.doubt), (Status::Queued, Some(1)));
        message.place = message.place.map(|place| PendingSend { attempt: place.leased_attempt(), ..place });
        assert!(message.begin(4));
        message.settle(&SendOutcome::Failed { why: "no".to_owned() }, 5);
        assert_eq!((message.steps.status(), message.why.as_deref()), (Status::Unknown, Some("no; try 1 may have gone out")));
        assert_eq!((message.cancel(false, 6), message.steps.status()), (Changed::Done, Status::Unknown));
    }

    #[test]
    fn what_the_provider_has_named_is_sent_whatever_comes_after() {
        let mut message = begun();
        message.hear(&word("w", Status::Sent), &Steps::default(), true);
        assert!(!message.begin(3), "it must not go out again");
        assert_eq!(message.cancel(false, 3), Changed::TooLate);
        message.settle(&SendOutcome::Failed { why: "no".to_owned() }, 4);
        assert_eq!((message.steps.status(), message.place), (Status::Sent, None));
    }

    #[test]
    fn an_outcome_told_late_is_the_fate_of_its_own_try_only() {
        let (sent, failed) = (SendOutcome::Sent { provider_id: "w".to_owned() }, SendOutcome::Failed { why: "no".to_owned() });
        let mut doubted = begun();
        doubted.lose_lease(3);
        doubted.settle(&SendOutcome::Unknown { why: "cut".to_owned(), check_ms: None }, 4);
        assert!(doubted.takes_late(1, &failed, false) && !doubted.takes_late(2, &failed, false));
        assert!(!doubted.takes_late(1, &failed, true) && doubted.takes_late(1, &sent, true), "somebody looks it up");
        assert!(!doubted.takes_late(1, &SendOutcome::HandBack { wait_ms: 0 }, false));
        let mut refused = doubted.clone();
        refused.settle_late(1, &failed, false, 5);
        assert_eq!((refused.steps.status(), refused.past.doubt, refused.place), (Status::Failed, None, None));
        assert!(!refused.takes_late(1, &sent, false), "it has ended");
        let mut held = doubted.clone();
        held.call_it("w", &Steps::default());
        held.settle_late(1, &sent, true, 5);
        assert!(held.place.is_some() && !held.begin(6), "its holder can only settle it");
        doubted.settle_late(1, &SendOutcome::Retry { wait_ms: 7, why: "429".to_owned(), charged: false }, false, 5);
        assert_eq!((doubted.steps.status(), doubted.past.doubt), (Status::Queued, None));
        assert!(!doubted.takes_late(1, &sent, false), "it is not begun");
    }

    #[test]
    fn a_begun_try_is_in_doubt_even_where_nobody_wrote_that_down() {
        let mut message = begun();
        assert_eq!((message.past.doubt, message.clone().lease(3)), (None, true));
        assert_eq!((message.cancel(false, 4), message.steps.status()), (Changed::Done, Status::Unknown));
        assert_eq!(message.past.doubt, Some(1));
    }

    #[test]
    fn what_was_found_is_matched_by_who_is_free() {
        let found = || SendOutcome::Found {
            provider_ids: vec!["a".to_owned(), "b".to_owned()],
            why: "none".to_owned(),
            check_ms: Some(5),
        };
        assert_eq!(found().matched(|id| id == "b"), SendOutcome::Sent { provider_id: "b".to_owned() });
        assert_eq!(found().matched(|_| false), SendOutcome::Unknown { why: "none".to_owned(), check_ms: Some(5) });
    }
}
