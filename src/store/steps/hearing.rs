//! What statuses and echoes say about our own messages.

use super::records::{ProviderNameRec, name_hash};
use super::work::Work;
use crate::domain::{Event, Status, Steps, ids};

impl Work {
    /// Takes note of a status; true when it is about a message of ours.
    pub(super) fn hear_status(&mut self, event: &Event) -> bool {
        let Some(status) = event.status else { return false };
        let at_ms = event.at_ms.unwrap_or(self.now_ms);
        let by_handle = event.handle.and_then(|handle| {
            let message = self.messages.get(&ids::number_of(handle.0))?;
            (message.message_id() == handle && message.account == event.account).then_some(message.number)
        });
        if let Some(number) = by_handle {
            self.name_message(number, &event.id);
        }
        let name = name_hash(&event.account, &event.id);
        let Some(number) = by_handle.or_else(|| self.provider_names.get(&name)?.message) else {
            if self.sending.contains(&event.account) {
                self.hear_early(event, status, at_ms);
            }
            return false;
        };
        if let Some(message) = self.messages.change(&number) {
            message.steps.hear(status, at_ms);
        }
        if self.outs.get(&number).is_some_and(|out| out.unknown) && !self.is_leased(number) {
            self.settle_by_known_id(number, at_ms);
        }
        true
    }

    /// Keeps a status for the message that will turn out to be called so.
    fn hear_early(&mut self, event: &Event, status: Status, at_ms: i64) {
        let hash = name_hash(&event.account, &event.id);
        if let Some(name) = self.provider_names.change(&hash) {
            name.early.hear(status, at_ms);
            name.heard_ms = self.now_ms;
            return;
        }
        let early = Steps::new(vec![(status, at_ms)]);
        let (account, provider_id) = (event.account.clone(), event.id.clone());
        self.provider_names.put(hash, ProviderNameRec { account, provider_id, message: None, early, heard_ms: self.now_ms });
    }

    /// Takes note of our own message seen again; true when it settles a send that was in doubt.
    pub(super) fn hear_echo(&mut self, event: &Event) -> bool {
        let Some(text) = &event.text else { return false };
        let said = |number: &u64| {
            self.messages.get(number).is_some_and(|message| {
                message.account == event.account
                    && Some(&message.peer) == event.peer.as_ref()
                    && message.text.as_ref() == Some(text)
            })
        };
        let doubted = self.outs.values().filter(|out| out.unknown && !self.is_leased(out.number)).map(|out| out.number);
        let Some(number) = doubted.filter(said).min() else { return false };
        self.name_message(number, &event.id);
        self.settle_by_known_id(number, self.now_ms)
    }

    /// Learns what the provider calls a message, and takes over the statuses that came before. The name must have been loaded.
    pub(super) fn name_message(&mut self, number: u64, provider_id: &str) {
        let Some(message) = self.messages.change(&number) else { return };
        message.provider_id = Some(provider_id.to_owned());
        let hash = name_hash(&message.account, provider_id);
        let account = message.account.clone();
        match self.provider_names.change(&hash) {
            Some(name) => {
                name.message = Some(number);
                for (status, at_ms) in std::mem::take(&mut name.early).iter() {
                    message.steps.hear(status, at_ms);
                }
            }
            None => {
                let (provider_id, early, heard_ms) = (provider_id.to_owned(), Steps::default(), self.now_ms);
                self.provider_names.put(hash, ProviderNameRec { account, provider_id, message: Some(number), early, heard_ms });
            }
        }
    }

    /// A send in doubt whose provider id was heard of meanwhile has been sent.
    pub(super) fn settle_by_known_id(&mut self, number: u64, at_ms: i64) -> bool {
        let in_doubt = self.outs.get(&number).is_some_and(|out| out.begun_ms.is_some());
        if !in_doubt || self.messages.get(&number).is_none_or(|message| message.provider_id.is_none()) {
            return false;
        }
        if let Some(message) = self.messages.change(&number) {
            message.steps.hear(Status::Sent, at_ms);
            message.why = None;
        }
        self.remove_out(number);
        true
    }

    pub(super) fn is_leased(&self, number: u64) -> bool {
        let lane = self.outs.get(&number).and_then(|out| self.lanes.get(&out.lane));
        lane.and_then(|lane| lane.held.as_ref()).is_some_and(|held| held.number == number)
    }
}
