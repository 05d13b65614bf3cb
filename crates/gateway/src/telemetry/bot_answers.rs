//! What bots said last, kept in memory for people who look for a fault: the first bytes of their answers.

use std::sync::Arc;

use hapax_domain::EventId;
use moka::sync::Cache;

/// As much of an answer as is kept.
const KEPT_BYTES: usize = 1_024;
/// What all of them may hold together.
const ALL_BYTES: u64 = 8 << 20;
/// What an entry takes beside its text.
const ENTRY_BYTES: usize = 128;

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

pub(super) struct BotAnswers(Cache<EventId, Arc<BotAnswer>>);

impl Default for BotAnswers {
    fn default() -> Self {
        let weigh = |_: &EventId, answer: &Arc<BotAnswer>| (ENTRY_BYTES + answer.beginning.len()) as u32;
        Self(Cache::builder().weigher(weigh).max_capacity(ALL_BYTES).build())
    }
}

impl BotAnswers {
    pub(super) fn note(&self, event: EventId, status: u16, content_type: Option<&str>, body: &[u8]) {
        let beginning = String::from_utf8_lossy(&body[..body.len().min(KEPT_BYTES)]).into_owned();
        let answer = BotAnswer { status, content_type: content_type.map(str::to_owned), beginning, bytes: body.len() };
        self.0.insert(event, Arc::new(answer));
    }

    pub(super) fn forget(&self) {
        self.0.invalidate_all();
    }

    pub(super) fn get(&self, event: EventId) -> Option<Arc<BotAnswer>> {
        self.0.get(&event)
    }
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
}
