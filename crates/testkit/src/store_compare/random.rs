//! What the calls of a sequence are made with.

use bytes::Bytes;
use rand::Rng;
use rand::rngs::StdRng;

use crate::store_fixture::{message, notice, webhook_then};
use crate::store_suite::sending::outgoing;
use hapax_domain::{Coalesce, Event, EventKey, Kind, MessageId, Priority};
use hapax_store::{Arrival, Disposition, NewMessage};

/// People, and names that may turn out to be theirs.
pub(super) const PEERS: [&str; 6] = ["ana", "bob", "cid", "lid", "phone", "bsuid"];

pub(super) fn random_peer(random: &mut StdRng) -> String {
    PEERS[random.random_range(0..PEERS.len())].to_owned()
}

/// How often a message says two names of its peer: in some sequences lanes become one now and then, in others soon all are one.
pub(super) fn named_twice(seed: u64) -> f64 {
    [0.02, 0.1, 0.3][(seed % 3) as usize]
}

/// `all_teach`: only what teaches names says several.
pub(super) fn random_webhook(random: &mut StdRng, named_twice: f64, all_teach: bool) -> Arrival {
    let count = random.random_range(1..5);
    let event = |random: &mut StdRng| {
        let id = format!("m{}", random.random_range(0..24));
        let event = match random.random_range(0..8) {
            0 | 1 => notice(&id),
            2 => {
                let key = EventKey::new("generic", "acc", Kind::Reaction, &id, &[]);
                Event { kind: Kind::Reaction, key, ..message(&id, &random_peer(random)) }
            }
            _ => message(&id, &random_peer(random)),
        };
        let then = match random.random_range(0..10) {
            0 => Disposition::Keep,
            1 => Disposition::Quarantine { why: "odd".to_owned(), part: Bytes::from_static(b"odd") },
            _ => Disposition::Deliver,
        };
        let text = Some(format!("hello {id}"));
        let echo = random.random_bool(0.1);
        let mut aliases = Vec::new();
        while random.random_bool(named_twice) && aliases.len() < 3 {
            aliases.push(random_peer(random));
        }
        let teaches = event.kind == Kind::Message && !echo;
        aliases.retain(|alias| Some(alias) != event.peer.as_ref() && (teaches || !all_teach));
        (Event { fingerprint: u32::from(random.random_bool(0.05)), text, echo, aliases, ..event }, then)
    };
    webhook_then((0..count).map(|_| event(random)).collect())
}

/// Some sequences gather messages into turns, mostly.
pub(super) fn random_coalesce(random: &mut StdRng, seed: u64) -> Option<Coalesce> {
    let coalesces = random.random_bool(0.8) && seed % 4 < 2;
    coalesces.then_some(Coalesce { quiet_ms: 700, max_ms: 1_200, members: 6 })
}

pub(super) fn random_reply(random: &mut StdRng) -> NewMessage {
    let id = format!("a{}", random.random_range(0..30));
    NewMessage { priority: Priority::Reply, ..outgoing(&id, &random_peer(random)) }
}

pub(super) fn random_message(random: &mut StdRng) -> NewMessage {
    let id = format!("m{}", random.random_range(0..12));
    NewMessage {
        peer: random_peer(random),
        fingerprint: [u8::from(random.random_bool(0.1)); 32],
        priority: [Priority::Reply, Priority::Normal, Priority::Bulk][random.random_range(0..3)],
        ..outgoing(&id, "ana")
    }
}

/// What a provider calls a message: few enough that two messages share a name now and then.
pub(super) fn random_name(random: &mut StdRng) -> String {
    format!("w{}", random.random_range(0..8))
}

/// Different for every handle, so that statuses are not taken for copies of each other.
pub(super) fn random_nonce(event: &Event, handle: Option<MessageId>) -> String {
    format!("{:?} {:?} {:?}", event.status, event.at_ms, handle)
}
