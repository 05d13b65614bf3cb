//! What people and machines see of the running hapax: one function per happening, which emits log line and counter together.
//!
//! *Invariant:* no body, token, phone number or thread id is ever logged; an event id is enough to look the rest up.

/// Makes the counters of one channel, or of one target of it, each from the metric that is named beside it.
macro_rules! counters {
    ($name:ident { $($counter:ident: $metric:ident,)* }) => {
        struct $name {
            $($counter: metrics::Counter,)*
        }

        impl $name {
            fn new(telemetry: &super::Telemetry, labels: &[(&'static str, &str)]) -> Self {
                Self { $($counter: telemetry.counter(super::names::$metric, labels),)* }
            }
        }
    };
}

mod bot_answers;
mod channel;
mod claims;
mod dropin;
pub mod harmless;
pub mod names;
mod outbox;
mod process;
mod reloads;
mod resp;
mod sending;
mod sparse;
mod tally;
mod target;
mod traced;
pub mod traces;
mod troubles;
mod watch;
mod without_target;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, SharedString};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use tokio::sync::mpsc;

pub use bot_answers::BotAnswer;
pub use channel::{ChannelTelemetry, Disbelief, RefusedWhy};
pub use dropin::DropInTelemetry;
pub use resp::RespTelemetry;
pub use sending::SendTelemetry;
pub use tally::{COUNTS, Count, Counted};
pub use target::{DownTarget, TargetTelemetry};
pub use traced::CallOfTarget;
pub(crate) use troubles::Troubles;
pub use watch::Happening;

use hapax_domain::EventId;
use hapax_store::{ChannelCounts, Promise, Purged, Stats, StoreError};

use self::traces::Traces;
use crate::http_client::BadCalls;
use crate::settings::Otel;

/// How many keys the memory holds, and for how many events it answered in place of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub keys: u64,
    pub hits: u64,
}

/// The meters of one running server. Not global, so that several servers in one process do not share their counts.
pub struct Telemetry {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    connections: Gauge,
    connections_cut: Counter,
    purged_keys: Counter,
    purged_events: Counter,
    memory_hits: Counter,
    full: outbox::FullOutboxes,
    down: Arc<target::DownTargets>,
    troubles: Arc<troubles::TroubleCounts>,
    without_target: without_target::WithoutTarget,
    tokens_refused: Counter,
    no_channel_lines: sparse::Sparse,
    bot_answers: Arc<bot_answers::BotAnswers>,
    watch: Option<mpsc::Sender<Happening>>,
    tallies: tally::Tallies,
    /// `None`: nobody collects traces.
    traces: Option<Arc<Traces>>,
    /// Those whose sizes are shown: the configured ones, and any that the store had something of.
    channels: Mutex<BTreeSet<String>>,
}

impl Telemetry {
    pub fn new() -> Self {
        Self::build(None)
    }

    /// Also sends every happening to the returned end, as long as it keeps up; `hapax listen` shows them.
    pub fn watched(room: usize) -> (Self, mpsc::Receiver<Happening>) {
        let (sender, receiver) = mpsc::channel(room);
        (Self::build(Some(sender)), receiver)
    }

    fn build(watch: Option<mpsc::Sender<Happening>>) -> Self {
        let builder = PrometheusBuilder::new();
        let recorder = match builder.set_buckets(names::BUCKETS_SECONDS) {
            Ok(builder) => builder.build_recorder(),
            Err(_) => PrometheusBuilder::new().build_recorder(),
        };
        for (name, help) in names::COUNTERS {
            recorder.describe_counter((*name).into(), None, (*help).into());
        }
        for (name, help) in names::GAUGES {
            recorder.describe_gauge((*name).into(), None, (*help).into());
        }
        for (name, help) in names::HISTOGRAMS {
            recorder.describe_histogram((*name).into(), None, (*help).into());
        }
        let handle = recorder.handle();
        let this = Self {
            channels: Mutex::default(),
            tallies: tally::Tallies::default(),
            connections: gauge_in(&recorder, names::CONNECTIONS, &[]),
            connections_cut: counter_in(&recorder, names::CONNECTIONS_CUT, &[]),
            purged_keys: counter_in(&recorder, names::PURGED_KEYS, &[]),
            purged_events: counter_in(&recorder, names::PURGED_EVENTS, &[]),
            tokens_refused: counter_in(&recorder, names::TOKENS_REFUSED, &[]),
            memory_hits: counter_in(&recorder, names::MEMORY_HITS, &[]),
            full: outbox::FullOutboxes::default(),
            down: Arc::default(),
            troubles: Arc::default(),
            bot_answers: Arc::default(),
            no_channel_lines: sparse::Sparse::default(),
            without_target: without_target::WithoutTarget::default(),
            handle,
            recorder,
            watch,
            traces: None,
        };
        this.begin_at_zero();
        this
    }

    /// Makes every series that belongs to no channel: whoever watches one that is not there yet sees no rise when it comes.
    fn begin_at_zero(&self) {
        for call in names::STORE_CALLS {
            self.counter(names::STORE_FAILED, &[("call", call)]).increment(0);
        }
        for answer in names::CLAIM_ANSWERS {
            self.counter(names::CLAIMS_ASKED, &[("answer", answer)]).increment(0);
        }
        self.counter(names::CLAIMS_LOST, &[]).increment(0);
        for counter in [names::ACCEPT_FAILED, names::SPANS_EXPORTED, names::SPANS_DROPPED] {
            self.counter(counter, &[]).increment(0);
        }
        for outcome in ["applied", "refused"] {
            self.counter(names::RELOADS, &[("outcome", outcome)]).increment(0);
        }
        for outcome in ["taken", "failed"] {
            self.counter(names::NOTICES, &[("outcome", outcome)]).increment(0);
        }
        for outcome in ["made", "failed"] {
            self.counter(names::BACKUPS, &[("outcome", outcome)]).increment(0);
        }
        for gauge in [names::PURGE_LAST_RUN, names::BACKUP_LAST, names::CONFIG_READ, names::CONFIG_REFUSED] {
            self.gauge(gauge, &[]).set(0.0);
        }
        for promise in ["full", "degraded"] {
            self.gauge(names::STORE_PROMISE, &[("promise", promise)]).set(0.0);
        }
        self.memory(Memory::default());
        self.sizes(&Stats::default(), 0);
        let revision = option_env!("HAPAX_REVISION").unwrap_or("unknown");
        self.gauge(names::BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION")), ("revision", revision)]).set(1.0);
    }

    /// Has spans go to the collector that the config names. To be called before any channel is made.
    pub fn trace_to(&mut self, otel: &Otel, instance: &str) -> Result<(), BadCalls> {
        self.traces = Some(Arc::new(Traces::new(self, otel, instance)?));
        Ok(())
    }

    pub fn traces(&self) -> Option<&Traces> {
        self.traces.as_deref()
    }

    /// The text of `/metrics`.
    pub fn render(&self) -> String {
        let mut text = self.handle.render();
        process::show(&mut text);
        text
    }

    /// Folds the samples gathered since the last call; without it histograms grow for ever.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// The meters of one channel, made once.
    pub fn channel(&self, name: &str) -> ChannelTelemetry {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        let nothing = ChannelCounts { channel: name.to_owned(), ..ChannelCounts::default() };
        self.inbox(&nothing, 0);
        self.spool(&[nothing], 0);
        for counter in [names::WITHOUT_TARGET, names::OUTBOX_REFUSED] {
            self.counter(counter, &[("channel", name)]).increment(0);
        }
        self.gauge(names::OUTBOX_FULL, &[("channel", name)]).set(0.0);
        ChannelTelemetry::new(self, name)
    }

    /// The meters of one of a channel's targets, made once. `account` names one that is not the channel's default.
    pub fn target(&self, channel: &str, account: Option<&str>) -> TargetTelemetry {
        TargetTelemetry::new(self, channel, account)
    }

    /// Nothing is remembered any more of what bots have said.
    pub fn forget_answers(&self) {
        self.bot_answers.forget();
    }

    /// What the bot said last to this event, as long as it is remembered.
    pub fn bot_answer(&self, event: EventId) -> Option<Arc<BotAnswer>> {
        self.bot_answers.get(event)
    }

    /// The targets that are taken for dead.
    pub fn down_targets(&self) -> Vec<DownTarget> {
        self.down.list()
    }

    /// The meters of one channel's sending side, made once.
    pub fn sending(&self, channel: &str) -> SendTelemetry {
        self.oldest_outgoing(channel, None, 0);
        SendTelemetry::new(self, channel)
    }

    /// The meters of one channel's drop-in sending, made once.
    pub fn dropin(&self, channel: &str) -> DropInTelemetry {
        DropInTelemetry::new(self, channel)
    }

    /// The meters of the Redis door, made once.
    pub fn resp(&self) -> RespTelemetry {
        RespTelemetry::new(self)
    }

    pub fn connection_opened(&self) {
        self.connections.increment(1.0);
    }

    pub fn connection_closed(&self) {
        self.connections.decrement(1.0);
    }

    /// A connection was closed to make room, or because its address had too many.
    pub fn connection_cut(&self) {
        self.connections_cut.increment(1);
    }

    pub fn connection_not_taken(&self, error: &std::io::Error) {
        self.counter(names::ACCEPT_FAILED, &[]).increment(1);
        tracing::warn!(%error, "a connection could not be taken; trying on");
    }

    /// A token came that nobody has. The address is told now and then; `count` says how many came from it.
    pub fn token_refused(&self, from: Option<IpAddr>, count: u32) {
        self.tokens_refused.increment(1);
        if let Some(from) = from {
            tracing::warn!(%from, count, "a wrong token; further ones of this address are answered later and later");
        }
    }

    /// A webhook came for a channel that there is not. The sender hears no more than that it is not believed.
    pub fn no_such_channel(&self, path: &str) {
        let Some(more) = self.no_channel_lines.pass() else { return };
        let name: String = path.chars().take(NAME_SHOWN_CHARS).collect();
        tracing::warn!(name, more, "refused a webhook for a channel that is not configured; is the address right?");
        if let Some(watch) = &self.watch {
            let _ = watch.try_send(Happening::Refused { channel: Arc::from(name), why: "there is no channel of this name" });
        }
    }

    pub fn token_created(&self, name: &str, by: &str) {
        tracing::info!(name, by, "a token was made");
    }

    pub fn token_revoked(&self, name: &str, by: &str) {
        tracing::info!(name, by, "a token was revoked");
    }

    /// The list of who did what has a gap: this line is in its place.
    pub fn deed_not_noted(&self, action: &str, by: &str, error: &StoreError) {
        self.counter(names::STORE_FAILED, &[("call", "amend")]).increment(1);
        tracing::warn!(action, by, %error, "it was done, and could not be written into the audit list");
    }

    /// A call to the store failed. `call` is the method's name.
    pub fn store_unavailable(&self, call: &'static str, error: &StoreError) {
        debug_assert!(names::STORE_CALLS.contains(&call), "`{call}` is not there from the first scrape");
        self.counter(names::STORE_FAILED, &[("call", call)]).increment(1);
        tracing::warn!(call, %error, "the store could not do its job");
        if let Some(watch) = &self.watch {
            let _ = watch.try_send(Happening::StoreUnavailable { call, why: error.to_string() });
        }
    }

    /// Purge came to its end for now.
    pub fn purge_ended(&self, now_ms: i64) {
        self.gauge(names::PURGE_LAST_RUN, &[]).set(now_ms as f64 / 1_000.0);
    }

    /// What a purge removed, also one that failed half way.
    pub fn purged(&self, purged: Purged) {
        self.purged_keys.increment(purged.keys);
        self.purged_events.increment(purged.events);
        if purged.keys + purged.events > 0 {
            tracing::info!(keys = purged.keys, events = purged.events, "purged what nobody needs any more");
        }
    }

    pub fn sizes(&self, stats: &Stats, now_ms: i64) {
        self.gauge(names::STORE_KEYS, &[]).set(stats.keys as f64);
        self.gauge(names::STORE_EVENTS, &[]).set(stats.events as f64);
        self.gauge(names::STORE_BYTES, &[]).set(stats.store_bytes as f64);
        self.gauge(names::STORE_LOG_BYTES, &[]).set(stats.log_bytes as f64);
        for (state, count) in [("waiting", stats.outbox_waiting), ("unknown", stats.outbox_unknown)] {
            self.gauge(names::OUTBOX_ITEMS, &[("state", state)]).set(count as f64);
        }
        self.claims_kept(&stats.claims);
        let mut known = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(stats.channels.iter().map(|counts| counts.channel.clone()));
        // The store says nothing of a channel that is empty.
        for channel in known.iter() {
            let nothing = ChannelCounts { channel: channel.clone(), ..ChannelCounts::default() };
            let counts = stats.channels.iter().find(|counts| counts.channel == *channel);
            self.inbox(counts.unwrap_or(&nothing), now_ms);
        }
    }

    fn inbox(&self, counts: &ChannelCounts, now_ms: i64) {
        let channel = counts.channel.as_str();
        let states = [
            ("waiting", counts.waiting),
            ("leased", counts.leased),
            ("parked", counts.parked),
            ("quarantined", counts.quarantined),
        ];
        for (state, count) in states {
            self.gauge(names::INBOX_ITEMS, &[("channel", channel), ("state", state)]).set(count as f64);
        }
        let age_ms = counts.oldest_ms.map_or(0, |at| (now_ms - at).max(0));
        self.gauge(names::INBOX_OLDEST_SECONDS, &[("channel", channel)]).set(age_ms as f64 / 1_000.0);
    }

    /// When the oldest message on its way out of a channel was made; `None`: there is none.
    pub fn oldest_outgoing(&self, channel: &str, made_ms: Option<i64>, now_ms: i64) {
        let age_ms = made_ms.map_or(0, |made_ms| (now_ms - made_ms).max(0));
        self.gauge(names::OUTBOX_OLDEST_SECONDS, &[("channel", channel)]).set(age_ms as f64 / 1_000.0);
    }

    /// What the store promises now.
    pub fn promise(&self, promise: &Promise) {
        let full = *promise == Promise::Full;
        for (name, is) in [("full", full), ("degraded", !full)] {
            self.gauge(names::STORE_PROMISE, &[("promise", name)]).set(f64::from(u8::from(is)));
        }
    }

    /// How often something happened in this process that a person has to look at.
    pub(crate) fn troubles(&self) -> Troubles {
        self.troubles.now()
    }

    /// A notice was told, or was not taken; `status` is what was answered.
    pub(crate) fn notice(&self, kind: &str, taken: bool, status: Option<u16>) {
        let outcome = if taken { "taken" } else { "failed" };
        self.counter(names::NOTICES, &[("outcome", outcome)]).increment(1);
        match taken {
            true => tracing::info!(kind, "told `notify`"),
            false => tracing::warn!(kind, status, "`notify` did not take a notice; it is told again"),
        }
    }

    /// A copy of the store was made at this time, or was not.
    pub fn backed_up(&self, made: Result<i64, String>) {
        match made {
            Ok(at_ms) => {
                self.counter(names::BACKUPS, &[("outcome", "made")]).increment(1);
                self.gauge(names::BACKUP_LAST, &[]).set(at_ms as f64 / 1_000.0);
                tracing::info!("a backup was made");
            }
            Err(why) => {
                self.counter(names::BACKUPS, &[("outcome", "failed")]).increment(1);
                tracing::error!(why, "a backup could not be made");
            }
        }
    }

    /// The memory in front of the store.
    pub fn memory(&self, memory: Memory) {
        self.gauge(names::MEMORY_KEYS, &[]).set(memory.keys as f64);
        self.memory_hits.absolute(memory.hits);
    }

    /// What waits in the spool.
    pub fn spool(&self, counts: &[ChannelCounts], now_ms: i64) {
        for counts in counts {
            let channel = counts.channel.as_str();
            for (state, count) in [("waiting", counts.waiting + counts.leased), ("parked", counts.parked)] {
                self.gauge(names::SPOOL_ITEMS, &[("channel", channel), ("state", state)]).set(count as f64);
            }
            let age_ms = counts.oldest_ms.map_or(0, |at| (now_ms - at).max(0));
            self.gauge(names::SPOOL_OLDEST_SECONDS, &[("channel", channel)]).set(age_ms as f64 / 1_000.0);
        }
    }

    fn counter(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Counter {
        counter_in(&self.recorder, name, labels)
    }

    fn gauge(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Gauge {
        gauge_in(&self.recorder, name, labels)
    }

    fn histogram(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Histogram {
        self.recorder.register_histogram(&key(name, labels), &META)
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self::new()
    }
}

/// A stranger may have written it.
const NAME_SHOWN_CHARS: usize = 40;

const META: Metadata<'static> = Metadata::new("hapax", Level::INFO, Some("hapax"));

fn counter_in(recorder: &PrometheusRecorder, name: &'static str, labels: &[(&'static str, &str)]) -> Counter {
    recorder.register_counter(&key(name, labels), &META)
}

fn gauge_in(recorder: &PrometheusRecorder, name: &'static str, labels: &[(&'static str, &str)]) -> Gauge {
    recorder.register_gauge(&key(name, labels), &META)
}

fn key(name: &'static str, labels: &[(&'static str, &str)]) -> Key {
    let labels: Vec<Label> =
        labels.iter().map(|(name, value)| Label::new(*name, SharedString::from((*value).to_owned()))).collect();
    Key::from_parts(name, labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_in_a_channel_shows_under_its_name() {
        let telemetry = Telemetry::new();
        let shop = telemetry.channel("shop");
        telemetry.target("shop", None);
        shop.accepted(2);
        shop.refused(RefusedWhy::Signature);
        shop.answered(std::time::Duration::from_millis(2));
        let text = telemetry.render();
        assert!(text.contains(r#"hapax_events_accepted_total{channel="shop"} 2"#), "{text}");
        assert!(text.contains(r#"hapax_webhooks_refused_total{channel="shop",why="signature"} 1"#), "{text}");
        assert!(text.contains(r#"hapax_accept_seconds_bucket{channel="shop",le="0.0025"} 1"#), "{text}");
        assert!(text.contains("# HELP hapax_deliveries_total Items the target took"), "{text}");
    }

    #[test]
    fn a_webhook_that_is_not_believed_is_counted_and_says_what_to_look_at() {
        let (telemetry, mut happenings) = Telemetry::watched(10);
        let shop = telemetry.channel("shop");
        for (why, hint) in [
            (Disbelief::NoSignature, "no signature"),
            (Disbelief::BadSignature, "does no proxy change the body"),
            (Disbelief::Stale, "clock"),
            (Disbelief::Handshake, "verify_token"),
        ] {
            shop.disbelieved(why);
            let Ok(Happening::Refused { why, .. }) = happenings.try_recv() else { panic!("nobody was told") };
            assert!(why.contains(hint), "{why}");
        }
        assert!(telemetry.render().contains(r#"hapax_webhooks_refused_total{channel="shop",why="signature"} 4"#));
        telemetry.no_such_channel(&"x".repeat(500));
        let Ok(Happening::Refused { channel, .. }) = happenings.try_recv() else { panic!("nobody was told") };
        assert_eq!(channel.len(), NAME_SHOWN_CHARS);
    }

    #[test]
    fn a_channel_that_is_empty_again_shows_zero() {
        let telemetry = Telemetry::new();
        telemetry.channel("shop");
        let line = |value: &str| format!(r#"hapax_inbox_items{{channel="shop",state="waiting"}} {value}"#);
        assert!(telemetry.render().contains(&line("0")), "from the first scrape");
        let waiting =
            ChannelCounts { channel: "shop".to_owned(), waiting: 3, oldest_ms: Some(1_000), ..ChannelCounts::default() };
        telemetry.sizes(&Stats { channels: vec![waiting], outbox_waiting: 2, ..Stats::default() }, 5_000);
        let text = telemetry.render();
        assert!(text.contains(&line("3")) && text.contains(r#"hapax_inbox_oldest_seconds{channel="shop"} 4"#), "{text}");
        assert!(text.contains(r#"hapax_outbox_items{state="waiting"} 2"#), "{text}");
        telemetry.sizes(&Stats::default(), 9_000);
        let text = telemetry.render();
        assert!(text.contains(&line("0")) && text.contains(r#"hapax_inbox_oldest_seconds{channel="shop"} 0"#), "{text}");
    }

    #[test]
    fn failures_of_the_store_are_counted_from_zero() {
        let text = Telemetry::new().render();
        for call in ["accept", "lease_inbox", "settle_outbox", "ping"] {
            assert!(text.contains(&format!("hapax_store_failures_total{{call=\"{call}\"}} 0")), "{call}: {text}");
        }
    }

    #[test]
    fn what_the_store_promises_is_a_metric() {
        let telemetry = Telemetry::new();
        telemetry.promise(&Promise::Full);
        assert!(telemetry.render().contains("hapax_store_promise{promise=\"full\"} 1"));
        telemetry.promise(&Promise::Degraded(vec!["it forgets".to_owned()]));
        let text = telemetry.render();
        assert!(text.contains("hapax_store_promise{promise=\"degraded\"} 1"), "{text}");
        assert!(text.contains("hapax_store_promise{promise=\"full\"} 0"), "{text}");
    }

    #[test]
    fn a_purge_shows_what_it_removed_and_when() {
        let telemetry = Telemetry::new();
        telemetry.purged(Purged { keys: 3, events: 1, more: true });
        assert!(!telemetry.render().contains("hapax_purge_last_run_timestamp_seconds 5"));
        telemetry.purge_ended(5_000);
        let text = telemetry.render();
        assert!(text.contains("hapax_purged_keys_total 3"), "{text}");
        assert!(text.contains("hapax_purge_last_run_timestamp_seconds 5"), "{text}");
    }
}
