//! `on_store_failure = "pass"`: past a store that is away, straight to the target, once, and without a memory of it.

use std::time::Duration;

use bytes::Bytes;
use hapax_domain::ThreadId;
use hapax_store::{Answer, KeptHeaders};
use http::{HeaderName, HeaderValue};

use super::Delivery;
use super::judge::{Heard, Judgement, judge};
use super::target::Target;
use crate::settings::Mode;

const PASSED: HeaderName = HeaderName::from_static("hapax-passed");

/// The longest a provider is kept waiting; most give up at 30 s.
const WAIT_MAX: Duration = Duration::from_secs(25);

/// A webhook that no store has seen.
pub struct Passed {
    pub headers: KeptHeaders,
    pub body: Bytes,
    /// How many events it has in all.
    pub events: usize,
    /// The indexes of those that go to the target.
    pub keep: Vec<u32>,
    /// The same for copies of the webhook: the last chance for the bot to recognise one.
    pub once: String,
    /// When all that goes to the target is of one thread.
    pub thread: Option<ThreadId>,
}

/// What became of it.
pub enum Passage {
    /// The target took it; its own answer is for the provider in proxy mode.
    Taken(Option<Answer>),
    NotTaken(String),
}

impl Delivery {
    /// Makes the one request. Replies are not sent: nobody could make sure that they are sent once.
    pub async fn pass(&self, channel: &str, passed: Passed) -> Passage {
        let Some(target) = self.targets.get(channel) else { return Passage::NotTaken("there is no target".to_owned()) };
        let whole = passed.events == passed.keep.len();
        let Some(body) = target.cut(&passed.body, whole, || passed.keep.clone()) else {
            return Passage::NotTaken("its part of the webhook could not be cut out".to_owned());
        };
        let wall_ms = self.clock.wall_ms();
        let request = target.request(&passed.headers, body, wall_ms, |headers, body| {
            target.add_names(headers, &passed.once, passed.thread.as_ref(), body, wall_ms);
            headers.insert(PASSED, HeaderValue::from(1));
        });
        let patience = target.patience().min(WAIT_MAX);
        let (heard, answer) = target.exchange(request, None, patience, wall_ms).await;
        outcome(target, &heard, answer)
    }
}

fn outcome(target: &Target, heard: &Heard, answer: Option<Answer>) -> Passage {
    match judge(heard, true) {
        Judgement::Taken => Passage::Taken(answer.filter(|_| target.settings.mode == Mode::Proxy)),
        Judgement::Again { why, .. }
        | Judgement::Hopeless { why }
        | Judgement::TurnedAway { why, .. }
        | Judgement::Dead { why } => Passage::NotTaken(why),
    }
}
