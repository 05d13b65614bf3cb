//! What the spans of webhooks, deliveries and sends say. Like the log: no body, token, phone number or thread id.

use std::time::Duration;

use hapax_domain::EventId;
use hapax_store::{KeptHeaders, OutboxLease, asked_request_id};
use http::HeaderMap;

use super::traces::{Begun, Kind, TRACEPARENT, Times, TraceContext};
use super::{ChannelTelemetry, SendTelemetry, TargetTelemetry};

impl ChannelTelemetry {
    /// Begins the span of a webhook and writes it into its headers: from there on the delivery goes on from it, also after a restart.
    pub fn trace(&self, headers: &mut HeaderMap) -> Option<Begun> {
        let begun = self.traces.as_ref()?.begin(TraceContext::of(headers));
        begun.context.put(headers);
        Some(begun)
    }

    /// A webhook was answered. Whoever was not believed leaves no trace: anybody can call.
    pub fn traced(&self, begun: Option<Begun>, status: u16, times: Times) {
        let (Some(traces), Some(begun)) = (&self.traces, begun) else { return };
        if status != 401 {
            let span = traces.ended(begun, format!("webhook {}", self.channel), Kind::Server, times);
            let span = span.text("hapax.channel", &*self.channel).whole("http.response.status_code", status.into());
            span.failed((status >= 500).then(|| format!("answered {status}"))).leave();
        }
    }
}

/// One call of a target, as its span tells it.
pub struct CallOfTarget {
    pub event: Option<EventId>,
    pub attempt: u32,
    /// `None`: there was no answer.
    pub status: Option<u16>,
    /// Why it is to be made again, if it is.
    pub failed: Option<String>,
}

impl TargetTelemetry {
    /// Begins the span of a delivery, as a part of the webhook's.
    pub fn trace(&self, kept: &KeptHeaders) -> Option<Begun> {
        let traces = self.traces.as_ref()?;
        let of_webhook = kept.iter().find(|(name, _)| *name == TRACEPARENT.as_str());
        let parent = of_webhook.and_then(|(_, value)| TraceContext::read(std::str::from_utf8(value).ok()?));
        Some(traces.begin(parent))
    }

    pub fn traced(&self, begun: Option<Begun>, call: CallOfTarget, times: Times) {
        let (Some(traces), Some(begun)) = (&self.traces, begun) else { return };
        let span = traces.ended(begun, format!("deliver {}", self.channel), Kind::Client, times);
        let mut span = span.text("hapax.channel", &*self.channel).whole("hapax.attempt", call.attempt.into());
        if let Some(event) = call.event {
            span = span.text("hapax.event_id", event.to_string());
        }
        if let Some(status) = call.status {
            span = span.whole("http.response.status_code", status.into());
        }
        span.failed(call.failed).leave();
    }
}

impl SendTelemetry {
    /// A message was tried to be sent, in the trace in which it was asked for.
    pub fn traced(&self, lease: &OutboxLease, failed: Option<&str>, wall_ms: i64, took: Duration) {
        let Some(traces) = &self.traces else { return };
        let begun = traces.begin(traces.asked_in(&lease.account, asked_request_id(&lease.request_id)));
        let span = traces.ended(begun, format!("send {}", self.channel), Kind::Client, Times { wall_ms, took });
        let span = span.text("hapax.channel", &*self.channel).text("hapax.message_id", lease.message.to_string());
        span.whole("hapax.attempt", lease.attempt.into()).failed(failed.map(str::to_owned)).leave();
    }
}
