//! What becomes of a webhook that the store could not take in: `on_store_failure`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hapax_domain::EventKey;
use hapax_providers::{RawRequest, Verified};
use hapax_store::{Arrival, Disposition, KeptHeaders, NewEvent, StoreError};

use super::answer::{Reply, later, passed_on};
use super::spool::Spooled;
use super::{Ingress, IngressChannel, Nonce, headers};
use crate::api::Code;
use crate::delivery::{Passage, Passed};
use crate::settings::OnStoreFailure;
use crate::telemetry::RefusedWhy;

/// How long the store may take to take a webhook in. The answer leaves within two seconds, whatever the store does.
pub(super) const STORE_PATIENCE: Duration = Duration::from_millis(1_500);

pub(super) const RETRY_AFTER_S: u32 = 5;

/// Provider ids named in a log line.
const IDS_LOGGED: usize = 10;

impl Ingress {
    /// Does what the channel chose for a store that fails. The signature was checked long before.
    pub(super) async fn in_trouble(
        &self,
        channel: &IngressChannel,
        verified: &Verified<'_>,
        arrival: &Arrival,
        nonce: &Nonce,
        error: &StoreError,
    ) -> Reply {
        self.telemetry.store_unavailable("accept", error);
        match channel.on_store_failure {
            OnStoreFailure::Retry => refuse(channel, if matches!(error, StoreError::Busy) { 1 } else { RETRY_AFTER_S }),
            OnStoreFailure::Spool => self.put_in_spool(channel, verified, &arrival.events, nonce).await,
            OnStoreFailure::Pass => self.pass(channel, arrival).await,
            OnStoreFailure::Drop => {
                let ids: Vec<_> = arrival.events.iter().map(|new| new.event.id.as_str()).take(IDS_LOGGED).collect();
                channel.telemetry.dropped(arrival.events.len(), &ids);
                channel.counted(0, 0, false)
            }
        }
    }

    /// Keeps the webhook on our own disk, behind those that wait there.
    pub(super) async fn put_in_spool(
        &self,
        channel: &IngressChannel,
        verified: &Verified<'_>,
        events: &[NewEvent],
        nonce: &Nonce,
    ) -> Reply {
        let (Some(spool), Some(gate)) = (&self.spool, &channel.gate) else { return refuse(channel, RETRY_AFTER_S) };
        let headers = headers::keep_for_reading(verified.headers(), channel.provider.signature_headers(), nonce);
        let body = verified.body().clone();
        // An id in a header that is not kept, say: read again it would be another event, and the provider's copy would be new.
        let again = channel.read_back(&headers, &body);
        // So is what was signed too long ago: nobody would see that any more.
        let same = identity(channel, &again.events) == identity(channel, events)
            && again.events.iter().map(|new| &new.disposition).eq(events.iter().map(|new| &new.disposition));
        if !same {
            return refuse(channel, RETRY_AFTER_S);
        }
        let window_ms = again.events.iter().map(|new| again.window_of(&new.event)).min().unwrap_or(channel.window_ms);
        let webhook = Spooled { channel: Arc::clone(&channel.name), key: identity(channel, events), window_ms, headers, body };
        match spool.put(gate, webhook).await {
            Ok(true) => {
                channel.telemetry.spooled(events.len());
                channel.counted(events.len(), 0, false)
            }
            Ok(false) => channel.counted(0, events.len(), false),
            Err(error) => {
                self.telemetry.store_unavailable("spool", &error);
                refuse(channel, RETRY_AFTER_S)
            }
        }
    }

    /// Hands the webhook to the target as it is. What the target would not get anyway is left for the provider to send again.
    async fn pass(&self, channel: &IngressChannel, Arrival { headers, body, events, .. }: &Arrival) -> Reply {
        let wanted = || events.iter().filter(|new| new.disposition == Disposition::Deliver).map(|new| &new.event);
        let thread = wanted().next().and_then(|first| first.thread());
        let passed = Passed {
            headers: headers.clone(),
            body: body.clone(),
            events: events.len(),
            keep: wanted().map(|event| (event.account.clone(), event.index)).collect(),
            once: hex::encode(identity(channel, events).0),
            thread: thread.filter(|thread| wanted().all(|event| event.thread().as_ref() == Some(thread))),
        };
        if passed.keep.is_empty() {
            return refuse(channel, RETRY_AFTER_S);
        }
        match self.delivery.pass(&channel.name, passed).await {
            Passage::Taken(answer) => {
                channel.telemetry.passed(events.len());
                answer.map_or_else(|| channel.counted(events.len(), 0, false), passed_on)
            }
            Passage::NotTaken(why) => {
                channel.telemetry.not_passed(&why);
                refuse(channel, RETRY_AFTER_S)
            }
        }
    }
}

impl IngressChannel {
    /// What a webhook that was verified when it came holds, read from what was kept of it.
    pub(super) fn read_back(&self, kept: &KeptHeaders, body: &Bytes) -> Arrival {
        let headers = headers::read_back(kept);
        let body = self.provider.redact_kept(body).unwrap_or_else(|| body.clone());
        let request = RawRequest { method: http::Method::POST, query: String::new(), headers, body };
        let events = self.sort_out(self.provider.parse(&Verified::kept(&request)), &request.body, &headers::nonce(kept));
        let headers = headers::keep(&request.headers, self.provider.signature_headers());
        let (channel, coalesce) = (Arc::clone(&self.name), self.coalesce);
        Arrival { channel, window_ms: self.window_ms, headers, body: request.body, events, coalesce }
    }
}

/// The same for two webhooks with the same events and contents.
fn identity(channel: &IngressChannel, events: &[NewEvent]) -> EventKey {
    let mut parts = Vec::with_capacity(events.len() * 36);
    for NewEvent { event, .. } in events {
        parts.extend_from_slice(&event.key.0);
        parts.extend_from_slice(&event.fingerprint.to_le_bytes());
    }
    EventKey::from_content("webhook", &channel.name, &parts)
}

pub(super) fn refuse(channel: &IngressChannel, after_s: u32) -> Reply {
    channel.telemetry.refused(RefusedWhy::Store);
    later(Code::StoreUnavailable, "it could not be written to disk; send it again", after_s)
}
