//! What is over loses its words.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::EventId;

use super::{State, Webhook};
use crate::{Forget, Forgotten, KeptHeaders};

impl State {
    pub(in crate::memory) fn forget(&mut self, what: Forget) -> Forgotten {
        let Forget { events, messages, threads } = what;
        let mut forgotten = Forgotten::default();
        let events: BTreeSet<EventId> = events.into_iter().filter(|id| self.events.contains_key(id)).collect();
        let open: BTreeSet<EventId> = events.iter().copied().filter(|id| self.is_open(*id)).collect();
        for id in events.difference(&open) {
            self.forget_event(*id);
            forgotten.events += 1;
        }
        forgotten.open += open.len() as u64;
        for id in messages.into_iter().collect::<BTreeSet<_>>() {
            match self.outbox.forget(id) {
                Some(true) => forgotten.messages += 1,
                Some(false) => forgotten.open += 1,
                None => {}
            }
        }
        for thread in &threads {
            self.threads.forget_words(thread);
        }
        forgotten
    }

    /// Whether something of its webhook is still in line, parked or being replayed. A part that could not be read is a whole of its own.
    fn is_open(&self, id: EventId) -> bool {
        let Some(event) = self.events.get(&id) else { return false };
        let mut held = self.items.values().flat_map(|item| &item.events);
        held.any(|held| match self.events.get(held) {
            _ if *held == id => true,
            Some(other) => event.part.is_none() && other.part.is_none() && Arc::ptr_eq(&event.webhook, &other.webhook),
            None => false,
        })
    }

    fn forget_event(&mut self, id: EventId) {
        self.answers.remove(&id);
        let Some(event) = self.events.get_mut(&id) else { return };
        event.event.text = None;
        if event.part.is_some() {
            let events = event.webhook.events;
            event.part = Some(Bytes::new());
            event.webhook = Arc::new(Webhook { headers: KeptHeaders::default(), body: Bytes::new(), events });
            return;
        }
        let before = Arc::clone(&event.webhook);
        let empty = Arc::new(Webhook { headers: KeptHeaders::default(), body: Bytes::new(), events: before.events });
        for other in self.events.values_mut().filter(|other| other.part.is_none() && Arc::ptr_eq(&other.webhook, &before)) {
            other.webhook = Arc::clone(&empty);
        }
    }
}
