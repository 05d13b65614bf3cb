//! Records as all stores can tell them, and the same records under other numbers.

use hapax_domain::{EventId, ids};
use hapax_store::Moved;
use hapax_store::steps::records::{ItemPlace, MessageRec, OutRec, Queue, own_lane};

/// Without what some stores do not keep, because nobody can ever ask for it: the exact time of a key, the text of what is in no thread, when
/// a message got its provider's name, and when an item that is parked would have been due. In whose lane something waits follows from the names of
/// its peer, whatever the exporting store called the lane.
pub(super) fn normal(records: &[Moved]) -> Vec<Moved> {
    let normal = |record: &Moved| match record.clone() {
        Moved::Key(mut key) => {
            key.at_ms = key.at_ms / 1_000 * 1_000;
            key.expires_ms = (key.expires_ms - key.at_ms + 59_999) / 60_000;
            Moved::Key(key)
        }
        Moved::Event(mut event) => {
            event.text = event.text.filter(|_| event.thread.is_some());
            Moved::Event(event)
        }
        Moved::ProviderName(mut name) => {
            name.heard_ms = if name.message.is_some() { 0 } else { name.heard_ms };
            Moved::ProviderName(name)
        }
        Moved::Item(mut item) => {
            item.due_ms = if item.place == ItemPlace::InLane { item.due_ms } else { 0 };
            let alone = item.place == ItemPlace::InLane && item.lane == own_lane(Queue::Inbox, item.number);
            item.lane = if alone { item.lane } else { [0; 32] };
            Moved::Item(item)
        }
        Moved::Message(message) => Moved::Message(MessageRec { home: [0; 32], ..message }),
        Moved::Out(out) => Moved::Out(OutRec { lane: if out.is_alone() { out.lane } else { [0; 32] }, ..out }),
        other => other,
    };
    records.iter().map(normal).collect()
}

/// The same records with all numbers further apart, as another engine might have numbered them.
pub(super) fn spread(records: Vec<Moved>, by: u64) -> Vec<Moved> {
    let lane =
        |queue: Queue, lane, number: u64| if lane == own_lane(queue, number) { own_lane(queue, number * by) } else { lane };
    let spread = |record: Moved| match record {
        Moved::Key(mut key) => {
            key.event *= by;
            Moved::Key(key)
        }
        Moved::Thread(mut thread) => {
            thread.purged_to *= by;
            thread.read_to *= by;
            Moved::Thread(thread)
        }
        Moved::Event(mut event) => {
            event.number *= by;
            event.webhook *= by;
            event.item = event.item.map(|item| item * by);
            Moved::Event(event)
        }
        Moved::Copies(mut copies) => {
            let at_ms = copies.event.at_ms().unwrap_or_default();
            copies.event = EventId(ids::numbered(at_ms, ids::number_of(copies.event.0) * by));
            Moved::Copies(copies)
        }
        Moved::Answer(mut answer) => {
            answer.event *= by;
            Moved::Answer(answer)
        }
        Moved::Item(mut item) => {
            item.lane = lane(Queue::Inbox, item.lane, item.number);
            item.number *= by;
            item.webhook *= by;
            item.events.iter_mut().for_each(|event| *event *= by);
            Moved::Item(item)
        }
        Moved::Message(mut message) => {
            message.number *= by;
            Moved::Message(message)
        }
        Moved::ProviderName(mut name) => {
            name.message = name.message.map(|message| message * by);
            Moved::ProviderName(name)
        }
        Moved::Out(mut out) => {
            out.lane = lane(Queue::Outbox, out.lane, out.number);
            out.number *= by;
            Moved::Out(out)
        }
        Moved::Attempt(mut attempt) => {
            attempt.of *= by;
            attempt.item *= by;
            Moved::Attempt(attempt)
        }
        other => other,
    };
    records.into_iter().map(spread).collect()
}
