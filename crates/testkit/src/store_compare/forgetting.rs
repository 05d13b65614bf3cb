//! Words that go.

use hapax_domain::{MessageId, ThreadId};
use hapax_store::Forget;

use super::Pair;
use super::random::PEERS;

impl Pair {
    /// Forgets all that is over, and everybody's last words: after a crash those are read out of what was said, where they were not written yet.
    pub(super) async fn forget(&mut self) {
        self.call = "forget".to_owned();
        let thread = |peer: &&str| ThreadId { account: "acc".to_owned(), peer: (*peer).to_owned() };
        let threads: Vec<ThreadId> = PEERS.iter().map(thread).collect();
        let of = |id: &MessageId| MessageId(self.ids.get(&id.0).copied().unwrap_or(id.0));
        let engine = Forget {
            events: self.events.iter().map(|id| self.engine_event(*id)).collect(),
            messages: self.messages.iter().map(of).collect(),
            threads: threads.clone(),
        };
        let model = Forget { events: self.events.clone(), messages: self.messages.clone(), threads };
        let model = self.fine(self.model.forget(model).await);
        let engine = self.fine(self.engine.forget(engine).await);
        self.same(model, engine);
    }
}
