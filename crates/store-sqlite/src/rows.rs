//! How values look in the tables.

use hapax_domain::{EventId, Fence, ItemId, Kind, MessageId, Priority, Status, Steps, ThreadId, ids};
use hapax_store::LaneRef;

pub(super) fn event_id(received_ms: i64, number: u64) -> EventId {
    EventId(ids::numbered(received_ms, number))
}

pub(super) fn item_id(received_ms: i64, number: i64) -> ItemId {
    ItemId(ids::numbered(received_ms, number as u64))
}

pub(super) fn kind_number(kind: Kind) -> i64 {
    Kind::ALL.iter().position(|known| *known == kind).unwrap_or_default() as i64
}

pub(super) fn kind_of(number: i64) -> Kind {
    usize::try_from(number).ok().and_then(|at| Kind::ALL.get(at)).copied().unwrap_or(Kind::Notice)
}

/// A lane is named by the item that was leased from it: that outlives every change of the lanes in memory.
pub(super) fn item_ref(channel: i64, item: i64) -> LaneRef {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&item.to_le_bytes());
    bytes[8..16].copy_from_slice(&channel.to_le_bytes());
    LaneRef(bytes)
}

/// The channel and the item that a lane is named by.
pub(super) fn named_by(lane: LaneRef) -> (i64, i64) {
    let number = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&lane.0[at..at + 8]);
        i64::from_le_bytes(bytes)
    };
    (number(8), number(0))
}

pub(super) fn fence_of(fence: i64) -> Fence {
    Fence(fence as u64)
}

pub(super) fn thread_of(account: String, peer: Option<String>) -> Option<ThreadId> {
    peer.map(|peer| ThreadId { account, peer })
}

/// The lane an event belongs to, from what its row says. The twin of `Event::lane`.
pub(super) fn lane_thread(kind: Kind, account: String, peer: Option<String>) -> Option<ThreadId> {
    if kind.waits_in_thread() { thread_of(account, peer) } else { None }
}

/// The numbers of an item's events.
pub(super) fn members_of(first: i64, members: Option<Vec<u8>>) -> Vec<i64> {
    match members {
        None => vec![first],
        Some(blob) => blob.as_chunks().0.iter().map(|chunk| i64::from_le_bytes(*chunk)).collect(),
    }
}

pub(super) fn message_id(created_ms: i64, number: i64) -> MessageId {
    MessageId(ids::numbered(created_ms, number as u64))
}

pub(super) fn priority_number(priority: Priority) -> u8 {
    Priority::ALL.iter().position(|known| *known == priority).unwrap_or_default() as u8
}

pub(super) fn priority_of(number: u8) -> Priority {
    Priority::ALL.get(usize::from(number)).copied().unwrap_or_default()
}

/// Steps as `sent 1760000000000;read 1760000005000`.
pub(super) fn steps_text(steps: &Steps) -> String {
    let step = |(status, at_ms): (Status, i64)| format!("{} {at_ms}", status.name());
    steps.iter().map(step).collect::<Vec<_>>().join(";")
}

pub(super) fn steps_of(text: &str) -> Steps {
    let step = |step: &str| {
        let (name, at_ms) = step.split_once(' ')?;
        Some((Status::from_name(name)?, at_ms.parse().ok()?))
    };
    Steps::new(text.split(';').filter_map(step).collect())
}
