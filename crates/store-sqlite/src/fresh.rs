//! Items that were just taken in, as a worker gets them: nearly all are leased within moments, and need not be read from the table then.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::Kind;
use hapax_store::{Accepted, Arrival, Disposition, KeptHeaders, LeasedEvent};

use super::accept::Hashed;
use super::rows::{event_id, thread_of};
use super::writer::{StepError, Writer};

/// What bodies and headers may take, and an item more.
const BYTES_MAX: usize = 16 << 20;
const ITEMS_MAX: usize = 20_000;
/// Places of leased items that are not worth moving the others for.
const SPARE: usize = 1_000;

/// Those of webhooks that have one event, which are delivered one by one. Whatever may change a row of theirs makes them be forgotten. What
/// finds no room is read from the table: it waits behind what is here.
#[derive(Default)]
pub(super) struct FreshItems {
    /// By rising item; nothing: it was leased.
    items: VecDeque<(i64, Option<FreshItem>)>,
    /// Those that were not.
    left: usize,
    bytes: usize,
}

/// An item that nobody has worked on.
pub(super) struct FreshItem {
    pub(super) received: i64,
    pub(super) headers: KeptHeaders,
    pub(super) body: Bytes,
    kind: Kind,
    index: u32,
    account: String,
    peer: Option<String>,
}

impl FreshItems {
    pub(super) fn note(&mut self, arrival: &Arrival, accepted: &[Accepted], received: i64) {
        let ([new], [Accepted::New(id)]) = (&arrival.events[..], accepted) else { return };
        let goes_out = arrival.coalesce.is_none() && matches!(new.disposition, Disposition::Deliver);
        if !goes_out || self.bytes >= BYTES_MAX || self.left >= ITEMS_MAX {
            return;
        }
        let event = &new.event;
        let fresh = FreshItem {
            received,
            headers: arrival.headers.clone(),
            // The bytes alone: what they are a part of may be the buffer of a whole connection.
            body: Bytes::copy_from_slice(&arrival.body),
            kind: event.kind,
            index: event.index,
            account: event.account.clone(),
            peer: event.peer.clone(),
        };
        self.bytes += fresh.bytes();
        self.left += 1;
        self.items.push_back((hapax_domain::ids::number_of(id.0).cast_signed(), Some(fresh)));
    }

    pub(super) fn take(&mut self, item: i64) -> Option<FreshItem> {
        let at = self.items.binary_search_by_key(&item, |(number, _)| *number).ok()?;
        let fresh = self.items[at].1.take()?;
        self.bytes -= fresh.bytes();
        self.left -= 1;
        while self.items.front().is_some_and(|(_, first)| first.is_none()) {
            self.items.pop_front();
        }
        // One that waits for long at the front must not keep the places of all that were leased behind it.
        if self.items.len() > 2 * self.left + SPARE {
            self.items.retain(|(_, item)| item.is_some());
        }
        Some(fresh)
    }

    pub(super) fn forget_all(&mut self) {
        *self = Self::default();
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl FreshItem {
    /// Its only event, `speaks` being whose lane it waits in, where that is another name of theirs; leaves nothing of it.
    pub(super) fn take_event(&mut self, item: i64, speaks: Option<&Arc<str>>) -> LeasedEvent {
        let (account, spelt) = (std::mem::take(&mut self.account), self.peer.take());
        let named = speaks.filter(|_| self.kind.waits_in_thread());
        let peer = spelt.map(|spelt| named.map_or(spelt, |speaks| speaks.to_string()));
        LeasedEvent {
            id: event_id(self.received, item.cast_unsigned()),
            kind: self.kind,
            index: self.index,
            thread: thread_of(account.clone(), peer),
            account,
        }
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.body.len() + self.headers.0.len()
    }
}

impl Writer {
    /// Takes a webhook in, and keeps it at hand for who leases it.
    pub(super) fn take_in(&mut self, arrival: &Arc<Arrival>, hashed: &[Hashed]) -> Result<Vec<Accepted>, StepError> {
        let accepted = self.accept(arrival, hashed)?;
        if self.channels.get(&arrival.channel).is_some_and(|channel| self.lanes.is_loaded(*channel)) {
            self.fresh.note(arrival, &accepted, self.now_ms);
        }
        Ok(accepted)
    }
}

#[cfg(test)]
mod tests {
    use hapax_testkit::store_fixture::{message, webhook};

    use super::*;

    fn arrival(bytes: usize) -> Arrival {
        Arrival { body: vec![b'x'; bytes].into(), ..webhook(vec![message("m", "ana")]) }
    }

    fn new(item: u64) -> [Accepted; 1] {
        [Accepted::New(event_id(1, item))]
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut fresh = FreshItems::default();
        for item in 1..=40 {
            fresh.note(&arrival(1 << 20), &new(item), 1);
        }
        assert!(fresh.take(1).is_some(), "what waits for longest is leased first");
        assert!(fresh.take(1).is_none(), "it is leased once");
        assert!(fresh.take(40).is_none());
        assert!(fresh.bytes <= BYTES_MAX + (2 << 20));
        (1..=40).for_each(|item| drop(fresh.take(item)));
        assert_eq!((fresh.bytes, fresh.left, fresh.items.len()), (0, 0, 0));
    }

    #[test]
    fn one_that_waits_for_long_takes_no_place_but_its_own() {
        let mut fresh = FreshItems::default();
        fresh.note(&arrival(1), &new(1), 1);
        for item in 2..ITEMS_MAX as u64 + 10 {
            fresh.note(&arrival(1), &new(item), 1);
            assert!(fresh.take(item.cast_signed()).is_some(), "item {item}");
        }
        assert!(fresh.items.len() <= 2 + SPARE);
        assert!(fresh.take(1).is_some());
        assert_eq!((fresh.bytes, fresh.left, fresh.items.len()), (0, 0, 0));
    }
}
