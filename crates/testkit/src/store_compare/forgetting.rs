//! Words that go.

use hapax_domain::{MessageId, ThreadId};
use hapax_store::Forget;
use rand::rngs::StdRng;

use super::Pair;
use super::random::random_peer;

impl Pair {
    /// Forgets all that is over, and the last words of somebody.
    pub(super) async fn forget(&mut self, random: &mut StdRng) {
        self.call = "forget".to_owned();
        let threads = vec![ThreadId { account: "acc".to_owned(), peer: random_peer(random) }];
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
