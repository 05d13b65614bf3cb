//! What becomes of our own messages: the records of one are loaded as a whole, the rule of `domain` decides, and what it says is kept.

use hapax_domain::{Event, Outgoing, PendingSend, Status, Steps, Word, ids};

use super::engine::{Tx, TxError, Wanted};
use super::records::{Hash, MessageRec, OutRec, ProviderNameRec, Queue, name_hash, outbox_lane, own_lane, thread_hash};
use super::work::Work;

impl Work {
    /// A message as the rules see it. Its records, and those of its lane, must have been loaded.
    pub(super) fn outgoing(&self, number: u64) -> Option<Outgoing> {
        let message = self.messages.get(&number)?;
        let place = |out: &OutRec| PendingSend {
            attempt: self.held_of(out).map_or(out.attempt, |held| held.attempt),
            failures: out.failures,
            due_ms: out.due_ms,
            begun_ms: out.begun_ms,
            unknown: out.unknown,
            held: out.is_held(),
        };
        Some(Outgoing {
            steps: message.steps.clone(),
            provider_id: message.provider_id.clone(),
            why: message.why.clone(),
            past: message.past.clone(),
            place: self.outs.get(&number).map(place),
        })
    }

    /// Keeps what became of a message, and moves it from lane to lane accordingly. Its thread's lane must have been loaded if it goes there.
    pub(super) fn keep(&mut self, number: u64, state: Outgoing) {
        let Some(message) = self.messages.change(&number) else { return };
        let Outgoing { steps, provider_id, why, past, place } = state;
        (message.steps, message.provider_id, message.why, message.past) = (steps, provider_id, why, past);
        let message = message.clone();
        let before = self.outs.get(&number).cloned();
        let Some(place) = place else {
            self.remove_out(number);
            return;
        };
        let lane = match &before {
            _ if place.is_alone() => own_lane(Queue::Outbox, number),
            Some(before) if !before.is_alone() => before.lane,
            _ => self.home_today(number).unwrap_or(message.home),
        };
        let out = OutRec {
            number,
            created_ms: message.created_ms,
            channel: message.channel,
            account: message.account,
            lane,
            priority: message.priority,
            attempt: place.attempt,
            failures: place.failures,
            due_ms: place.due_ms,
            begun_ms: place.begun_ms,
            unknown: place.unknown,
        };
        match before {
            Some(before) if before == out => {}
            Some(before) if before.lane == lane && before.due_ms == out.due_ms => self.outs.put(number, out),
            Some(before) if before.lane == lane && out.due_ms.is_some() => {
                self.outs.put(number, out);
                self.refresh(&lane);
            }
            before => {
                if let Some(before) = before {
                    self.leave(&before.lane, number);
                }
                self.come_home(out);
            }
        }
    }

    /// Puts a message in line; the lane of a thread that it comes to is its home from now on.
    pub(super) fn come_home(&mut self, out: OutRec) {
        let number = out.number;
        self.add_out(out);
        if let Some(lane) = self.outs.get(&number).filter(|out| !out.is_alone()).map(|out| out.lane)
            && self.messages.get(&number).is_some_and(|message| message.home != lane)
            && let Some(message) = self.messages.change(&number)
        {
            message.home = lane;
        }
    }

    /// The lane that the thread of a message has today. What [`Work::load_homes`] loads must be there.
    pub(super) fn home_today(&self, number: u64) -> Option<Hash> {
        let message = self.messages.get(&number)?;
        let root = self.root(&message.account, &message.peer);
        let lane = root.map_or(message.home, |peer| outbox_lane(&message.channel, &message.account, peer));
        Some(self.speaker(&lane))
    }

    /// Loads the lanes to which messages may come back. The messages must have been loaded.
    pub(super) async fn load_homes<T: Tx>(&mut self, tx: &mut T, numbers: Vec<u64>) -> Result<(), TxError> {
        let messages: Vec<MessageRec> = numbers.iter().filter_map(|number| self.messages.get(number)).cloned().collect();
        let names: Vec<(String, String)> = messages.iter().map(|of| (of.account.clone(), of.peer.clone())).collect();
        self.load_names(tx, names.clone()).await?;
        let mut wanted = Wanted { sure_names: names, ..Wanted::default() };
        for message in &messages {
            let thread = self.thread_of(&message.account, &message.peer);
            wanted.lanes.extend([message.home, outbox_lane(&message.channel, &thread.account, &thread.peer)]);
            wanted.threads.push(thread_hash(&thread.account, &thread.peer));
        }
        wanted.lanes.retain(|lane| self.lanes.get(lane).is_none());
        self.load(tx, wanted).await?;
        self.load_groups(tx).await
    }

    /// Takes note of a status or an echo; true when it is about a message of ours.
    pub(super) fn hear_word(&mut self, event: &Event) -> bool {
        let Some(status) = event.says() else { return false };
        let at_ms = event.at_ms.unwrap_or(self.now_ms);
        let by_handle = event.handle.and_then(|handle| {
            let message = self.messages.get(&ids::number_of(handle.0))?;
            (message.message_id() == handle && message.account == event.account).then_some(message.number)
        });
        let word = Word { provider_id: &event.id, status, at_ms, by_handle: by_handle.is_some() };
        let name = name_hash(&event.account, &event.id);
        let Some(number) = by_handle.or_else(|| self.provider_names.get(&name)?.message) else {
            if !event.echo && self.sending.contains(&event.account) {
                self.hear_early(event, status, at_ms);
            }
            return false;
        };
        let Some(mut state) = self.outgoing(number) else { return true };
        let early = if state.is_named_by(&word) { self.name(number, &event.account, &event.id) } else { Steps::default() };
        let leased = self.is_leased(number);
        state.hear(&word, &early, leased);
        self.keep(number, state);
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

    /// Makes a name lead to the message; gives what was heard under it before. The name must have been looked for.
    pub(super) fn name(&mut self, number: u64, account: &str, provider_id: &str) -> Steps {
        let hash = name_hash(account, provider_id);
        if let Some(name) = self.provider_names.change(&hash) {
            name.message = Some(number);
            return std::mem::take(&mut name.early);
        }
        let (account, provider_id, heard_ms) = (account.to_owned(), provider_id.to_owned(), self.now_ms);
        let early = Steps::default();
        self.provider_names.put(hash, ProviderNameRec { account, provider_id, message: Some(number), early, heard_ms });
        Steps::default()
    }

    fn held_of(&self, out: &OutRec) -> Option<&super::records::Held> {
        let leases = self.lanes.values().filter(|lane| lane.queue == Queue::Outbox).filter_map(|lane| lane.held.as_ref());
        leases.into_iter().find(|held| held.number == out.number)
    }

    pub(super) fn is_leased(&self, number: u64) -> bool {
        self.outs.get(&number).and_then(|out| self.held_of(out)).is_some()
    }
}
