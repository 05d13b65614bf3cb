//! `on_store_failure = "pass"`: past a store that is away, straight to the target, once, and without a memory of it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
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
    /// The accounts and indexes of those that go to a target.
    pub keep: Vec<(String, u32)>,
    /// The same for copies of the webhook: the last chance for the bot to recognise one.
    pub once: String,
    /// When all that goes to a target is of one thread.
    pub thread: Option<ThreadId>,
}

/// What became of it.
pub enum Passage {
    /// The target took it; its own answer is for the provider in proxy mode.
    Taken(Option<Answer>),
    NotTaken(String),
}

impl Delivery {
    /// Makes one request to each target that has a part in it. Replies are not sent: nobody could make sure that they are sent once.
    pub async fn pass(&self, channel: &str, passed: Passed) -> Passage {
        let Some(routes) = self.routes.get(channel) else { return Passage::NotTaken("there is no target".to_owned()) };
        let Some(parts) = routes.split(&passed.keep) else {
            // Before any call: what the others took would come to them again with the rest.
            return Passage::NotTaken("an account in it has no target".to_owned());
        };
        let passages = parts.into_iter().map(|(target, keep)| self.pass_part(target, &passed, keep));
        let mut answer = None;
        for passage in join_all(passages).await {
            match passage {
                Passage::Taken(given) => answer = answer.or(given),
                not_taken @ Passage::NotTaken(_) => return not_taken,
            }
        }
        Passage::Taken(answer)
    }

    async fn pass_part(&self, target: &Target, passed: &Passed, keep: Vec<u32>) -> Passage {
        let whole = passed.events == keep.len();
        let Some(body) = target.composer.cut(&passed.body, whole, || keep) else {
            return Passage::NotTaken("its part of the webhook could not be cut out".to_owned());
        };
        let wall_ms = self.clock.wall_ms();
        let request = target.request(&passed.headers, body, wall_ms, |headers, body| {
            target.composer.add_names(headers, &passed.once, passed.thread.as_ref(), body, wall_ms);
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
