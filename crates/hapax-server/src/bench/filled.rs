//! A store as it is after a busy time: many events of many people, some of which wait, are parked, are to be sent, or are claims.

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use hapax_domain::{ClaimKey, ClaimOp, Event, EventKey, Kind, Priority};
use hapax_store::{Arrival, Disposition, KeptHeaders, LeaseRequest, NewEvent, NewMessage, Outcome, Store, Submitted};

use super::{BenchError, requests};

const PER_ARRIVAL: usize = 1_000;
const WINDOW_MS: i64 = 8 * 86_400_000;
/// Of the first thousand events those that wait for a bot, half of which are parked, and as many messages and claims: two pages of each, so that a
/// whole page is compared with a whole one.
const OF_THE_FIRST: usize = 250;
/// Of each further thousand.
const OF_EACH: usize = 10;

/// Adds events of so many people, and a hundredth of that of everything else; where they are the first, at least a page of it.
pub(super) async fn fill(
    store: &dyn Store,
    tag: &str,
    events: usize,
    is_first: bool,
    progress: &mut (dyn FnMut(f64) + Send),
) -> Result<(), BenchError> {
    for from in (0..events).step_by(PER_ARRIVAL) {
        let more = if is_first && from == 0 { OF_THE_FIRST } else { OF_EACH };
        let all = arrival(tag, from..events.min(from + PER_ARRIVAL), more);
        store.accept(all.into()).await?;
        park(store, more / 2).await?;
        for sent in join_all((0..more).map(|n| store.submit(message(tag, from + n)))).await {
            if !matches!(sent?, Submitted::New(_)) {
                return Err("a fresh message was known".into());
            }
        }
        store.claims((0..more).map(|n| claim(tag, from + n)).collect()).await?;
        progress(from as f64 / events as f64);
    }
    Ok(())
}

fn person(n: usize) -> String {
    format!("55118{n:08}")
}

fn arrival(tag: &str, events: std::ops::Range<usize>, delivered: usize) -> Arrival {
    let from = events.start;
    let event = |n: usize| {
        let id = format!("{tag}.{n}");
        let key = EventKey::new("whatsapp", "700001", Kind::Message, &id, &[]);
        let message = Event::new(Kind::Message, "700001", &id, key, 0);
        let event = Event { peer: Some(person(n)), text: Some(format!("Is my order {n} ready?")), ..message };
        let disposition = if n - from < delivered { Disposition::Deliver } else { Disposition::Keep };
        NewEvent { event, disposition }
    };
    Arrival {
        channel: requests::WAITING.into(),
        window_ms: WINDOW_MS,
        headers: KeptHeaders::default(),
        body: Bytes::from_static(b"{}"),
        events: events.map(event).collect(),
        coalesce: None,
    }
}

async fn park(store: &dyn Store, most: usize) -> Result<(), BenchError> {
    let wants = vec![(requests::WAITING.into(), most)];
    let ask = LeaseRequest { worker: "bench".into(), wants, resting: Vec::new(), hold_ms: 60_000, outside: false };
    let leases = store.lease_inbox(ask).await?;
    let park = leases.into_iter().map(|lease| {
        let why = "the bot answered 404 Not Found".to_owned();
        store.settle_inbox(lease.lane, lease.fence, Outcome::Parked { why, charged: true })
    });
    try_join_all(park).await?;
    Ok(())
}

fn message(tag: &str, n: usize) -> NewMessage {
    let text = format!("Your order {n} is ready.");
    NewMessage {
        channel: requests::WAITING.into(),
        account: "700001".to_owned(),
        peer: person(n),
        request_id: format!("{tag}.{n}"),
        fingerprint: *blake3::hash(text.as_bytes()).as_bytes(),
        payload: Bytes::from(serde_json::json!({ "text": text }).to_string()),
        text: Some(text),
        priority: Priority::Normal,
        reply_to: None,
        send_at_ms: None,
    }
}

fn claim(tag: &str, n: usize) -> (ClaimKey, ClaimOp) {
    let op = ClaimOp::Claim {
        token: format!("{:032x}", rand::random::<u128>()),
        ttl_ms: WINDOW_MS,
        lease_ms: 3_600_000,
        fingerprint: None,
        on_abandoned: Default::default(),
        holder: Some("host-1".to_owned()),
    };
    (ClaimKey::new("bench", format!("{tag}.{n}")), op)
}
