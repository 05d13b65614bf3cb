//! What bots said last, kept in memory for people who look for a fault: the first bytes of their answers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapax_domain::EventId;

/// As much of an answer as is kept.
const KEPT_BYTES: usize = 1_024;
/// What all of them may hold together.
const ALL_BYTES: usize = 8 << 20;
/// What an entry takes beside its text.
const ENTRY_BYTES: usize = 192;

/// The last answer to one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BotAnswer {
    pub status: u16,
    pub content_type: Option<String>,
    /// The beginning of its body; what is no text shows as such.
    pub beginning: String,
    /// The length of the whole.
    pub bytes: usize,
}

#[derive(Default)]
pub(super) struct BotAnswers(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    answers: HashMap<EventId, Arc<BotAnswer>>,
    /// The one that has been there for longest first.
    order: VecDeque<EventId>,
    bytes: usize,
}

impl BotAnswers {
    pub(super) fn note(&self, event: EventId, status: u16, content_type: Option<&str>, body: &[u8]) {
        let beginning = String::from_utf8_lossy(&body[..body.len().min(KEPT_BYTES)]).into_owned();
        let answer = BotAnswer { status, content_type: content_type.map(str::to_owned), beginning, bytes: body.len() };
        self.lock().put(event, Arc::new(answer));
    }

    pub(super) fn forget(&self) {
        *self.lock() = Kept::default();
    }

    pub(super) fn get(&self, event: EventId) -> Option<Arc<BotAnswer>> {
        self.lock().answers.get(&event).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn put(&mut self, event: EventId, answer: Arc<BotAnswer>) {
        self.bytes += bytes_of(&answer);
        match self.answers.insert(event, answer) {
            Some(before) => self.bytes -= bytes_of(&before),
            None => self.order.push_back(event),
        }
        while self.bytes > ALL_BYTES
            && let Some(first) = self.order.pop_front()
        {
            self.bytes -= self.answers.remove(&first).map_or(0, |gone| bytes_of(&gone));
        }
    }
}

fn bytes_of(answer: &BotAnswer) -> usize {
    ENTRY_BYTES + answer.beginning.len() + answer.content_type.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_the_last_answer_is_kept() {
        let answers = BotAnswers::default();
        let event = EventId(uuid::Uuid::from_u128(1));
        answers.note(event, 500, None, b"no");
        answers.note(event, 200, Some("text/plain"), &[b'x'; 5_000]);
        let kept = answers.get(event).expect("kept");
        assert_eq!((kept.status, kept.beginning.len(), kept.bytes), (200, KEPT_BYTES, 5_000));
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
        let answers = BotAnswers::default();
        let event = |number: u128| EventId(uuid::Uuid::from_u128(number));
        for number in 0..10_000 {
            answers.note(event(number), 200, None, &[b'x'; 2_000]);
        }
        assert!(answers.get(event(0)).is_none() && answers.get(event(9_999)).is_some());
        let kept = answers.lock();
        assert!(kept.bytes <= ALL_BYTES && kept.answers.len() == kept.order.len());
    }
}
