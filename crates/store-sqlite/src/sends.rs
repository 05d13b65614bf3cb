//! Messages that were submitted lately, as the rules see them and as a sender gets them: nearly all go out within moments, and need not be read
//! from their tables at every step.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use bytes::Bytes;
use hapax_domain::{Outgoing, PendingSend};
use hapax_store::NewMessage;

use super::lanes::Line;
use super::number_hash::NumberHash;
use super::provider_feedback::Loaded;
use super::writer::Writer;

const MESSAGES_MAX: usize = 20_000;
/// What their contents may take.
const BYTES_MAX: usize = 16 << 20;

/// Whatever may change a row of theirs in another way makes them be forgotten. What finds no room is read from its tables: it waits behind what
/// is here.
#[derive(Default)]
pub(super) struct Sends {
    messages: HashMap<i64, AtHand, BuildHasherDefault<NumberHash>>,
    bytes: usize,
    /// How many wait, by channel, account and whether they are replies, where that is known.
    pub(super) waiting: HashMap<(i64, i64, bool), i64>,
}

struct AtHand {
    loaded: Loaded,
    /// Nothing: it was given out.
    content: Option<Content>,
}

/// What never changes of a message, and its sender needs.
pub(super) struct Content {
    pub(super) request_id: String,
    pub(super) peer: String,
    pub(super) payload: Bytes,
    pub(super) text: Option<String>,
}

impl Content {
    pub(super) fn of(new: &NewMessage, request_id: String) -> Self {
        Self { request_id, peer: new.peer.clone(), payload: new.payload.clone(), text: new.text.clone() }
    }

    fn bytes(&self) -> usize {
        self.request_id.len() + self.peer.len() + self.payload.len() + self.text.as_ref().map_or(0, String::len)
    }
}

impl Sends {
    pub(super) fn enter(&mut self, number: i64, loaded: Loaded, content: Content) {
        if self.bytes < BYTES_MAX && self.messages.len() < MESSAGES_MAX {
            self.bytes += content.bytes();
            self.messages.insert(number, AtHand { loaded, content: Some(content) });
        }
    }

    pub(super) fn get(&self, number: i64) -> Option<&Loaded> {
        self.messages.get(&number).map(|message| &message.loaded)
    }

    /// What it says, for the one that leases it first.
    pub(super) fn take_content(&mut self, number: i64) -> Option<Content> {
        let content = self.messages.get_mut(&number)?.content.take()?;
        self.bytes -= content.bytes();
        Some(content)
    }

    /// Something about it has changed.
    pub(super) fn change(&mut self, number: i64, state: &Outgoing) {
        match self.messages.get_mut(&number) {
            Some(_) if state.place.is_none() => self.forget(number),
            Some(message) => message.loaded.state = state.clone(),
            None => {}
        }
    }

    pub(super) fn place(&mut self, number: i64) -> Option<&mut PendingSend> {
        self.messages.get_mut(&number)?.loaded.state.place.as_mut()
    }

    /// So many more wait; where it was not known how many did, it still is not.
    pub(super) fn more_wait(&mut self, channel: i64, line: Line, more: i64) {
        if let Some(waiting) = self.waiting.get_mut(&(channel, line.account, line.priority == 0)) {
            *waiting += more;
        }
    }

    pub(super) fn forget_all(&mut self) {
        *self = Self::default();
    }

    fn forget(&mut self, number: i64) {
        if let Some(AtHand { content: Some(content), .. }) = self.messages.remove(&number) {
            self.bytes -= content.bytes();
        }
    }
}

impl Writer {
    /// A message as it stands now.
    pub(super) fn message_now(&mut self, number: i64) -> rusqlite::Result<Option<Loaded>> {
        if let Some(loaded) = self.sends.get(number) {
            return Ok(Some(loaded.clone()));
        }
        self.write_sends()?;
        self.load_message(number)
    }
}
