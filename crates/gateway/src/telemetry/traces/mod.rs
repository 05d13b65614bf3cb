//! Traces: a span for every webhook, every delivery and every send, which join those of the bot by `traceparent`.
//!
//! *Invariant:* nobody waits for a collector. What does not fit into the queue is left out and counted.

mod context;
mod exporter;
mod otlp;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use metrics::Counter;
use moka::sync::Cache;
use tokio::sync::mpsc;
use tokio::time::Instant;

pub use context::{TRACEPARENT, TraceContext};
pub(crate) use exporter::Exporter;

use super::{Telemetry, names};
use crate::http_client::BadCalls;
use crate::settings::Otel;

/// Spans that may wait for the collector.
const QUEUE: usize = 8_192;
/// Messages whose sender's trace is remembered, and for how long.
const REMEMBERED: u64 = 10_000;
const REMEMBERED_FOR: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Somebody called us.
    Server,
    /// We called somebody.
    Client,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Whole(i64),
}

/// A span that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) context: TraceContext,
    pub(crate) parent: Option<u64>,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    /// Why it is one that failed.
    pub(crate) failed: Option<String>,
}

/// What is traced, and where it goes. Made only where the config names a collector.
pub struct Traces {
    queue: mpsc::Sender<Span>,
    /// Taken by whoever runs the server.
    exporter: Mutex<Option<Exporter>>,
    /// Of a hundred traces that begin here.
    sample_percent: u8,
    dropped: Counter,
    /// In which trace a message was asked for, by account and request id: it may be sent before its own id is known to who asked. A restart
    /// forgets it, and its send begins a trace of its own.
    asked_in: Cache<(String, String), TraceContext>,
}

/// A span that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    pub context: TraceContext,
    parent: Option<u64>,
}

impl Traces {
    pub(super) fn new(telemetry: &Telemetry, otel: &Otel, instance: &str) -> Result<Self, BadCalls> {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let counter = |name| telemetry.counter(name, &[]);
        let exporter = Exporter::new(otel, instance, waiting, counter(names::SPANS_EXPORTED), counter(names::SPANS_DROPPED))?;
        Ok(Self {
            queue,
            exporter: Mutex::new(Some(exporter)),
            sample_percent: otel.sample_percent,
            dropped: counter(names::SPANS_DROPPED),
            asked_in: Cache::builder().max_capacity(REMEMBERED).time_to_live(REMEMBERED_FOR).build(),
        })
    }

    pub(crate) fn exporter(&self) -> Option<Exporter> {
        self.exporter.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Goes on with a trace, or begins one, which is kept or not by lot.
    pub fn begin(&self, parent: Option<TraceContext>) -> Begun {
        let context = match parent {
            Some(parent) => parent.child(rand::random()),
            None => {
                let trace: u128 = rand::random();
                let sampled = (trace % 100) < u128::from(self.sample_percent);
                TraceContext::begin(trace, rand::random(), sampled)
            }
        };
        Begun { context, parent: parent.map(|parent| parent.span) }
    }

    /// Hands over a span that has just ended.
    pub(crate) fn ended(&self, begun: Begun, name: String, kind: Kind, times: Times) -> Ended<'_> {
        let Times { wall_ms, took } = times;
        let end_ns = wall_ms.unsigned_abs().saturating_mul(1_000_000);
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let (context, parent) = (begun.context, begun.parent);
        let start_ns = end_ns.saturating_sub(took_ns);
        let span = Span { context, parent, name, kind, start_ns, end_ns, attributes: Vec::new(), failed: None };
        Ended { traces: self, span }
    }

    /// Remembers in which trace a message was asked for.
    pub fn asked(&self, account: &str, request_id: &str, headers: &HeaderMap) {
        if let Some(context) = TraceContext::of(headers) {
            self.asked_in.insert((account.to_owned(), request_id.to_owned()), context);
        }
    }

    pub fn asked_in(&self, account: &str, request_id: &str) -> Option<TraceContext> {
        self.asked_in.get(&(account.to_owned(), request_id.to_owned()))
    }
}

/// When something ended, and how long it took.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub wall_ms: i64,
    pub took: Duration,
}

impl Times {
    /// From when something began, by the clock and by the watch, to now.
    pub fn since(begun: Instant, wall_ms: i64) -> Self {
        let took = begun.elapsed();
        Self { wall_ms: wall_ms.saturating_add(i64::try_from(took.as_millis()).unwrap_or(i64::MAX)), took }
    }
}

/// A span that is told what it is about.
pub(crate) struct Ended<'t> {
    traces: &'t Traces,
    span: Span,
}

impl Ended<'_> {
    pub(crate) fn text(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.span.attributes.push((key, Value::Text(value.into())));
        self
    }

    pub(crate) fn whole(mut self, key: &'static str, value: i64) -> Self {
        self.span.attributes.push((key, Value::Whole(value)));
        self
    }

    pub(crate) fn failed(mut self, why: Option<String>) -> Self {
        self.span.failed = why;
        self
    }

    pub(crate) fn leave(self) {
        if self.span.context.sampled && self.traces.queue.try_send(self.span).is_err() {
            self.traces.dropped.increment(1);
        }
    }
}
