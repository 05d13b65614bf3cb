//! What a target, or a worker that pulls, gets: the provider's own request, cut to the events that are new and signed again.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::ThreadId;
use hapax_domain::limits::LISTED_EVENTS_MAX;
use hapax_providers::{Provider, Unsigned};
use hapax_store::{InboxLease, KeptHeaders, LeasedEvent};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::value::{RawValue, to_raw_value};

use super::standard::StandardSigner;
use crate::settings::{self, TurnFormat};

const EVENT_ID: HeaderName = HeaderName::from_static("hapax-event-id");
const EVENT_IDS: HeaderName = HeaderName::from_static("hapax-event-ids");
const ATTEMPT: HeaderName = HeaderName::from_static("hapax-attempt");
const FENCE: HeaderName = HeaderName::from_static("hapax-fence");
const THREAD: HeaderName = HeaderName::from_static("hapax-thread");
const REPLAY: HeaderName = HeaderName::from_static("hapax-replay");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Makes the bodies and headers of one channel.
pub(super) struct Composer {
    provider: Arc<dyn Provider>,
    signer: Option<StandardSigner>,
    /// How turns look; `None`: there are none.
    turns: Option<TurnFormat>,
}

/// Where a request goes; what is pulled goes to no address.
#[derive(Clone, Copy, Default)]
pub(super) struct Destination<'a> {
    pub(super) url: Option<&'a str>,
    pub(super) login: Option<&'a HeaderValue>,
    /// Headers that the target wants to see.
    pub(super) own: Option<&'a HeaderMap>,
}

impl Composer {
    pub(super) fn new(provider: Arc<dyn Provider>, settings: &settings::Channel) -> Self {
        let turns = settings.turns.map(|turns| turns.format);
        Self { provider, signer: settings.sign_with.as_ref().and_then(StandardSigner::new), turns }
    }

    /// What the provider would have sent, signed again, with `ours` on top.
    pub(super) fn headers(
        &self,
        to: Destination<'_>,
        kept: &KeptHeaders,
        body: &Bytes,
        wall_ms: i64,
        ours: impl FnOnce(&mut HeaderMap, &Bytes),
    ) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(24);
        for (name, value) in kept.iter() {
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
                headers.append(name, value);
            }
        }
        let unsigned = Unsigned { url: to.url, headers: &headers, body };
        let proof = self.provider.sign(unsigned, wall_ms);
        if let Some(login) = to.login {
            headers.insert(header::AUTHORIZATION, login.clone());
        }
        for (name, value) in to.own.into_iter().flatten() {
            headers.insert(name, value.clone());
        }
        // Last: what the channel signs with is what the bot checks.
        for (name, value) in proof {
            headers.insert(name, value);
        }
        ours(&mut headers, body);
        headers
    }

    /// What the provider would have sent: only the events that are new, and nothing that only we put there. `None` when the item is a
    /// part of a webhook that cannot be split.
    pub(super) fn body(&self, lease: &InboxLease) -> Option<Bytes> {
        let further: usize = lease.rest.iter().map(|part| part.events).sum();
        let (mut first, mut events) = lease.events.split_at(lease.events.len().checked_sub(further)?);
        let mut bodies = vec![self.part(&lease.body, lease.webhook_events, first)?];
        for part in &lease.rest {
            (first, events) = events.split_at(part.events);
            bodies.push(self.part(&part.body, part.webhook_events, first)?);
        }
        match self.turns {
            Some(TurnFormat::Array) => array_of(&bodies),
            _ if bodies.len() == 1 => bodies.pop(),
            _ => {
                let slices: Vec<&[u8]> = bodies.iter().map(|body| &**body).collect();
                // What was gathered while the channel had turns as arrays is still delivered when it has them no more.
                self.provider.merge(&slices).map(Bytes::from).or_else(|| array_of(&bodies))
            }
        }
    }

    fn part(&self, body: &Bytes, webhook_events: u32, events: &[LeasedEvent]) -> Option<Bytes> {
        let whole = events.len() as u64 == u64::from(webhook_events);
        self.cut(body, whole, || events.iter().map(|event| event.index).collect())
    }

    /// The part of a webhook that holds the events with the indexes `keep`.
    pub(super) fn cut(&self, body: &Bytes, whole: bool, keep: impl FnOnce() -> Vec<u32>) -> Option<Bytes> {
        let body = match whole {
            true => body.clone(),
            false => Bytes::from(self.provider.rewrap(body, &keep())?),
        };
        Some(self.provider.restore(&body).map_or(body, Bytes::from))
    }

    /// Which item this is, and which try.
    pub(super) fn add_our_headers(&self, headers: &mut HeaderMap, lease: &InboxLease, body: &Bytes, wall_ms: i64) {
        if self.turns == Some(TurnFormat::Array) {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let Some(first) = lease.events.first() else { return };
        let event_id = first.id.to_string();
        // A replay must not look like a copy to a bot that remembers ids.
        let once = lease.replay.map_or_else(|| event_id.clone(), |number| format!("{event_id}.r{number}"));
        self.add_names(headers, &once, first.thread.as_ref(), body, wall_ms);
        set(headers, EVENT_ID, &event_id);
        if self.turns.is_some() && lease.events.len() <= LISTED_EVENTS_MAX {
            let ids: Vec<String> = lease.events.iter().map(|event| event.id.to_string()).collect();
            set(headers, EVENT_IDS, &ids.join(","));
        }
        headers.insert(ATTEMPT, HeaderValue::from(lease.attempt));
        headers.insert(FENCE, HeaderValue::from(lease.fence.0));
        if let Some(number) = lease.replay {
            headers.insert(REPLAY, HeaderValue::from(number));
        }
    }

    /// What tells the bot which webhook this is, and that it is ours.
    pub(super) fn add_names(&self, headers: &mut HeaderMap, once: &str, thread: Option<&ThreadId>, body: &Bytes, wall_ms: i64) {
        if let Some(thread) = thread {
            set(headers, THREAD, &thread.to_string());
        }
        set(headers, IDEMPOTENCY_KEY, once);
        if self.signer.is_some() {
            set(headers, WEBHOOK_ID, once);
        }
        // A trace that the provider began goes on in the bot.
        if !headers.contains_key(TRACEPARENT)
            && let Ok(value) = HeaderValue::from_str(&traceparent(rand::random(), rand::random()))
        {
            headers.insert(TRACEPARENT, value);
        }
        let at_s = wall_ms / 1_000;
        if let Some(signature) = self.signer.as_ref().and_then(|signer| signer.sign(once, at_s, body)) {
            headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(at_s));
            headers.insert(WEBHOOK_SIGNATURE, signature);
        }
    }
}

/// A JSON array of bodies. What is no JSON, and came in before there were arrays, stands in it as a string.
fn array_of(bodies: &[Bytes]) -> Option<Bytes> {
    let items: Vec<Cow<'_, RawValue>> = bodies.iter().map(|body| item_of(body)).collect::<Option<_>>()?;
    serde_json::to_vec(&items).ok().map(Bytes::from)
}

fn item_of(body: &[u8]) -> Option<Cow<'_, RawValue>> {
    match as_json(body) {
        Some(json) => Some(Cow::Borrowed(json)),
        None => to_raw_value(&String::from_utf8_lossy(body)).ok().map(Cow::Owned),
    }
}

/// The body, where it is JSON: so it can be an item of an array.
pub(crate) fn as_json(body: &[u8]) -> Option<&RawValue> {
    serde_json::from_slice(body).ok()
}

fn set(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
        headers.insert(name, value);
    }
}

/// Begins a W3C trace. All-zero ids would be invalid.
fn traceparent(trace: u128, span: u64) -> String {
    format!("00-{:032x}-{:016x}-01", trace.max(1), span.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_json_does_not_keep_the_rest_out_of_an_array() {
        let bodies = [&b" {\"a\": 1}\n"[..], b"a=1&b=\"2\"", b"", b"\xff!", b"7"].map(Bytes::from_static);
        let array = array_of(&bodies).expect("an array");
        assert_eq!(std::str::from_utf8(&array), Ok("[{\"a\": 1},\"a=1&b=\\\"2\\\"\",\"\",\"\u{fffd}!\",7]"));
    }
}
