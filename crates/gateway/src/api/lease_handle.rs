//! The `lease` of a pulled item: all that is needed to settle it, on any instance, sealed so that nobody can make one up.

use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::{Fence, Kind};
use hapax_store::{InboxLease, KeptHeaders, LaneRef, LeasedEvent};
use serde::{Deserialize, Serialize};

use super::cursor::Cursors;
use super::{Api, Problem};

/// What is sealed: short names, because workers send it with every call.
#[derive(Deserialize, Serialize)]
struct Sealed {
    c: String,
    l: String,
    f: u64,
    i: String,
    e: String,
    k: String,
    a: String,
    t: Option<String>,
    n: u32,
    x: u32,
    r: Option<u32>,
    s: i64,
}

/// A pulled item as it comes back: without what only its first delivery needed.
pub(super) struct Handle {
    pub(super) lease: InboxLease,
    /// When it was given out.
    pub(super) leased_ms: i64,
}

fn seals(api: &Api) -> Cursors {
    // Not bound to the token: one that was rotated must not cost the work that is being done.
    Cursors::keyed(&api.auth.cursor_key(), &["pull", "lease"])
}

pub(super) fn write(api: &Api, lease: &InboxLease, leased_ms: i64) -> Option<String> {
    let first = lease.events.first()?;
    let sealed = Sealed {
        c: lease.channel.to_string(),
        l: hex::encode(lease.lane.0),
        f: lease.fence.0,
        i: lease.item.to_string(),
        e: first.id.to_string(),
        k: first.kind.name().to_owned(),
        a: first.account.clone(),
        t: first.thread.as_ref().map(ToString::to_string),
        n: lease.attempt,
        x: lease.failures,
        r: lease.replay,
        s: leased_ms,
    };
    Some(seals(api).write(&serde_json::to_string(&sealed).ok()?))
}

pub(super) fn read(api: &Api, text: &str) -> Result<Handle, Problem> {
    let todo = "`lease` is not one that this server gave out: give the `lease` of an item from /v1/pull as it is";
    seals(api).open(text).and_then(|text| handle(&text)).ok_or_else(|| Problem::bad_request(todo))
}

fn handle(text: &str) -> Option<Handle> {
    let sealed: Sealed = serde_json::from_str(text).ok()?;
    let mut lane = [0; 32];
    hex::decode_to_slice(&sealed.l, &mut lane).ok()?;
    let thread = match &sealed.t {
        Some(text) => Some(text.parse().ok()?),
        None => None,
    };
    let event =
        LeasedEvent { id: sealed.e.parse().ok()?, kind: Kind::from_name(&sealed.k)?, index: 0, account: sealed.a, thread };
    let lease = InboxLease {
        lane: LaneRef(lane),
        fence: Fence(sealed.f),
        until_ms: 0,
        item: sealed.i.parse().ok()?,
        channel: Arc::from(sealed.c),
        attempt: sealed.n,
        failures: sealed.x,
        replay: sealed.r,
        received_ms: 0,
        headers: KeptHeaders::default(),
        body: Bytes::new(),
        webhook_events: 1,
        events: vec![event],
        rest: Vec::new(),
    };
    Some(Handle { lease, leased_ms: sealed.s })
}
