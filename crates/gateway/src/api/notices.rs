//! `notify`: a webhook of our own, for whoever has to look: items parked, sends in doubt, accounts paused, a store that is not well.
//!
//! Nothing in the way of a message tells anybody anything: what is wrong is read off the store, now and then. What is to be told stands in the store
//! before it is told, with its id, and leaves it after a 2xx: a crash in between tells it twice, under the same id, and never not at all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hapax_store::clock::Clock;
use hapax_store::{PausedAccount, Promise, Stats, Store, StoreError, in_time};
use http::{HeaderName, HeaderValue, header};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::rfc3339;
use crate::delivery::StandardSigner;
use crate::http_client::{self, BadCalls, Client, Content, Idle, Place, Request};
use crate::settings::Notify;
use crate::telemetry::{Telemetry, Troubles};

/// How often it is looked whether something is wrong, and what waits is told.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// After failures it is tried less often, down to this.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// One kind of notice is told no more often than this.
const APART_MS: i64 = 60_000;
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(10);
/// Looks in a row that a store does not answer before it is said to be away.
const AWAY_LOOKS: u32 = 3;
/// Rows of a list that one notice has, and that are remembered.
const LISTED_MAX: usize = 50;
const REMEMBERED_MAX: usize = 1_000;
/// Other instances may be changing the register, but hardly this often.
const TRIES: usize = 4;
const REGISTER: &str = "notify";

const PARKED: &str = "items.parked";
const UNKNOWN: &str = "sends.unknown";
const PAUSED: &str = "account.paused";
const DEGRADED: &str = "store.degraded";
const AWAY: &str = "store.unavailable";

/// Tells what is wrong.
pub(crate) struct Notices {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) instance: String,
    to: Place,
    signer: StandardSigner,
}

/// What was told last, and what is still to be told. One for all instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
struct Told {
    /// Parked and quarantined items, by channel.
    parked: BTreeMap<String, u64>,
    unknown: u64,
    /// Channel and account.
    paused: Vec<(String, String)>,
    degraded: Vec<String>,
    /// When each kind was told last.
    at_ms: BTreeMap<String, i64>,
    waiting: Vec<Notice>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Notice {
    id: String,
    kind: String,
    /// As it goes out.
    body: String,
}

/// What there is to see now.
struct Seen {
    stats: Stats,
    paused: Vec<PausedAccount>,
    promise: Promise,
    /// What happened here since it was last told, whatever the counts say: one item may have gone and another come.
    fresh: Fresh,
}

#[derive(Clone, Copy, Debug, Default)]
struct Fresh {
    parked: bool,
    unknown: bool,
}

impl Notices {
    pub(crate) fn new(
        notify: &Notify,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        telemetry: Arc<Telemetry>,
        instance: String,
    ) -> Result<Self, BadCalls> {
        let client = Client::new(Idle { most: 1, time: Duration::from_secs(30) })?;
        let odd = || BadCalls::Address { setting: "notify", channel: "".into() };
        let to = client.named("notify", &"".into(), &notify.url)?;
        let signer = StandardSigner::new(&notify.secret).ok_or_else(odd)?;
        Ok(Self { store, clock, telemetry, instance, to, signer })
    }

    /// Looks and tells until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let (mut heard, mut away, mut told_away, mut pause) = (Troubles::default(), 0, false, LOOK_EVERY);
        while stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
            let well = match in_time("looking for what to tell", PATIENCE, self.look(&mut heard)).await {
                Ok(told) => {
                    (away, told_away) = (0, false);
                    self.tell_all(told).await
                }
                Err(error) => {
                    away += 1;
                    // Nothing can be written down now: it is told from memory, once.
                    if away >= AWAY_LOOKS && !told_away {
                        told_away = self.tell_away(&error).await;
                    }
                    told_away || away < AWAY_LOOKS
                }
            };
            pause = if well { LOOK_EVERY } else { (pause * 2).min(PAUSE_MAX) };
        }
    }

    /// Writes down what is to be told; gives what waits.
    async fn look(&self, heard: &mut Troubles) -> Result<Told, StoreError> {
        let now = self.telemetry.troubles();
        let fresh = Fresh { parked: now.parked > heard.parked, unknown: now.unknown > heard.unknown };
        let (stats, paused) = (self.store.stats().await?, self.store.paused_accounts().await?);
        let seen = Seen { stats, paused, promise: self.store.promise(), fresh };
        let before = self.store.amend(REGISTER, None, None, None).await?;
        let told = read(before.as_deref());
        let next = told.clone().after(&seen, self.clock.now_ms(), &self.instance, new_id);
        let said = |kind: &str| next.at_ms.get(kind) != told.at_ms.get(kind);
        let next_heard = Troubles {
            parked: if said(PARKED) || seen.all_parked().next().is_none() { now.parked } else { heard.parked },
            unknown: if said(UNKNOWN) || seen.stats.outbox_unknown == 0 { now.unknown } else { heard.unknown },
        };
        if next == told {
            *heard = next_heard;
            return Ok(told);
        }
        let Ok(text) = serde_json::to_string(&next) else { return Ok(told) };
        let is = self.store.amend(REGISTER, before.as_deref(), Some(&text), None).await?;
        if is.as_deref() == Some(&text) {
            *heard = next_heard;
            return Ok(next);
        }
        // Another instance was faster, and has seen the same.
        Ok(read(is.as_deref()))
    }

    /// True when all were taken.
    async fn tell_all(&self, told: Told) -> bool {
        for notice in told.waiting {
            if !self.tell(&notice).await {
                return false;
            }
            if let Err(error) = self.forget(&notice.id).await {
                // It is told once more, under the same id.
                self.telemetry.store_unavailable("amend", &error);
                return false;
            }
        }
        true
    }

    async fn forget(&self, id: &str) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            let before = self.store.amend(REGISTER, None, None, None).await?;
            let mut told = read(before.as_deref());
            told.waiting.retain(|notice| notice.id != id);
            let Ok(text) = serde_json::to_string(&told) else { return Ok(()) };
            if self.store.amend(REGISTER, before.as_deref(), Some(&text), None).await?.as_deref() == Some(&text) {
                return Ok(());
            }
        }
        Err(StoreError::Busy)
    }

    async fn tell_away(&self, error: &StoreError) -> bool {
        let data = json!({ "instance": self.instance, "why": error.to_string() });
        self.tell(&Notice { id: new_id(), kind: AWAY.to_owned(), body: body(AWAY, self.clock.now_ms(), data) }).await
    }

    /// True when it was taken.
    async fn tell(&self, notice: &Notice) -> bool {
        let mut request = Request::new(http::Method::POST, self.to.clone());
        let at_s = self.clock.wall_ms() / 1_000;
        let id = HeaderValue::from_str(&notice.id).ok();
        let signature = self.signer.sign(&notice.id, at_s, notice.body.as_bytes());
        let headers =
            [("webhook-id", id), ("webhook-timestamp", Some(HeaderValue::from(at_s))), ("webhook-signature", signature)];
        for (name, value) in headers {
            request.headers.extend(value.map(|value| (HeaderName::from_static(name), value)));
        }
        request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.body = http_client::whole(notice.body.clone());
        let deadline = Instant::now() + CALL_TIMEOUT;
        let status = match http_client::call(request, deadline).await {
            Ok(answer) => {
                let status = answer.status();
                // Read to its end, so that the connection can be used again; what it says is nobody's business.
                let _: Content = http_client::read(answer, deadline).await;
                Some(status)
            }
            Err(_) => None,
        };
        let taken = status.is_some_and(|status| status.is_success());
        self.telemetry.notice(&notice.kind, taken, status.map(|status| status.as_u16()));
        taken
    }
}

impl Seen {
    /// Channels with items that wait for a person: how many are parked, and how many could not be read.
    fn all_parked(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        let counts = self.stats.channels.iter().map(|row| (row.channel.as_str(), row.parked, row.quarantined));
        counts.filter(|(_, parked, quarantined)| parked + quarantined > 0)
    }
}

impl Told {
    /// What is told next, seen what there is now. What became less is forgotten in silence.
    fn after(mut self, seen: &Seen, now_ms: i64, instance: &str, mut id: impl FnMut() -> String) -> Self {
        let mut say = |this: &mut Self, kind: &str, mut data: Value| {
            data["instance"] = instance.into();
            this.at_ms.insert(kind.to_owned(), now_ms);
            this.waiting.push(Notice { id: id(), kind: kind.to_owned(), body: body(kind, now_ms, data) });
        };
        let parked: BTreeMap<String, u64> =
            seen.all_parked().take(REMEMBERED_MAX).map(|(channel, one, other)| (channel.to_owned(), one + other)).collect();
        let more = parked.iter().any(|(channel, count)| *count > self.parked.get(channel).copied().unwrap_or_default());
        match (more || (seen.fresh.parked && !parked.is_empty())) && self.may_say(PARKED, now_ms) {
            true => {
                let row =
                    |(channel, parked, quarantined)| json!({ "channel": channel, "parked": parked, "quarantined": quarantined });
                let rows: Vec<Value> = seen.all_parked().take(LISTED_MAX).map(row).collect();
                say(&mut self, PARKED, json!({ "channels": rows }));
                self.parked = parked;
            }
            false => self.parked = lesser(&self.parked, &parked),
        }
        let unknown = seen.stats.outbox_unknown;
        match (unknown > self.unknown || (seen.fresh.unknown && unknown > 0)) && self.may_say(UNKNOWN, now_ms) {
            true => {
                say(&mut self, UNKNOWN, json!({ "unknown": unknown }));
                self.unknown = unknown;
            }
            false => self.unknown = self.unknown.min(unknown),
        }
        let name = |row: &PausedAccount| (row.channel.clone(), row.account.clone());
        let new: Vec<_> = seen.paused.iter().filter(|row| !self.paused.contains(&name(row))).collect();
        match !new.is_empty() && self.may_say(PAUSED, now_ms) {
            true => {
                let row = |row: &&PausedAccount| json!({ "channel": row.channel, "account": row.account, "why": row.why, "since": rfc3339(row.since_ms) });
                let rows: Vec<Value> = new.iter().take(LISTED_MAX).map(row).collect();
                say(&mut self, PAUSED, json!({ "accounts": rows }));
                self.paused = seen.paused.iter().take(REMEMBERED_MAX).map(name).collect();
            }
            false => self.paused.retain(|told| seen.paused.iter().any(|row| name(row) == *told)),
        }
        match &seen.promise {
            Promise::Full => self.degraded.clear(),
            Promise::Degraded(why) if *why != self.degraded && self.may_say(DEGRADED, now_ms) => {
                say(&mut self, DEGRADED, json!({ "why": why }));
                self.degraded.clone_from(why);
            }
            Promise::Degraded(_) => {}
        }
        self
    }

    /// Not while the last one of its kind waits, nor too soon after it; a clock that was set back is no reason to be silent.
    fn may_say(&self, kind: &str, now_ms: i64) -> bool {
        let recent = self.at_ms.get(kind).is_some_and(|at| (0..APART_MS).contains(&(now_ms - at)));
        !recent && !self.waiting.iter().any(|notice| notice.kind == kind)
    }
}

fn lesser(told: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let least = |(channel, count): (&String, &u64)| Some((channel.clone(), (*count).min(*now.get(channel)?)));
    told.iter().filter_map(least).collect()
}

fn read(text: Option<&str>) -> Told {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn new_id() -> String {
    format!("ntc_{:032x}", rand::random::<u128>())
}

fn body(kind: &str, now_ms: i64, data: Value) -> String {
    json!({ "type": kind, "timestamp": rfc3339(now_ms), "data": data }).to_string()
}

#[cfg(test)]
mod tests {
    use hapax_store::ChannelCounts;

    use super::*;

    const NOW_MS: i64 = 1_760_000_000_000;

    fn seen(parked: u64, unknown: u64) -> Seen {
        let counts = ChannelCounts { channel: "shop".to_owned(), parked, ..ChannelCounts::default() };
        let stats = Stats { channels: vec![counts], outbox_unknown: unknown, ..Stats::default() };
        Seen { stats, paused: Vec::new(), promise: Promise::Full, fresh: Fresh::default() }
    }

    fn after(told: &Told, seen: &Seen, at_ms: i64) -> (Told, Vec<String>) {
        let next = told.clone().after(seen, at_ms, "one", || "ntc_1".to_owned());
        let kinds = next.waiting.iter().map(|notice| notice.kind.clone()).collect();
        (Told { waiting: Vec::new(), ..next }, kinds)
    }

    #[test]
    fn more_is_told_and_less_is_not() {
        let (told, kinds) = after(&Told::default(), &seen(0, 0), NOW_MS);
        assert!(kinds.is_empty());
        let (told, kinds) = after(&told, &seen(2, 1), NOW_MS);
        assert_eq!(kinds, [PARKED, UNKNOWN]);
        let later = NOW_MS + APART_MS;
        let (told, kinds) = after(&told, &seen(1, 1), later);
        assert!(kinds.is_empty(), "less is no news");
        let (told, kinds) = after(&told, &seen(2, 1), later);
        assert_eq!(kinds, [PARKED], "more again is");
        let (_, kinds) = after(&told, &Seen { fresh: Fresh { parked: true, unknown: false }, ..seen(2, 1) }, later + APART_MS);
        assert_eq!(kinds, [PARKED], "as many, but others");
    }

    #[test]
    fn each_kind_is_told_now_and_then_and_nothing_is_left_out() {
        let (told, kinds) = after(&Told::default(), &seen(1, 0), NOW_MS);
        assert_eq!(kinds, [PARKED]);
        let (told, kinds) = after(&told, &seen(9, 0), NOW_MS + APART_MS - 1);
        assert!(kinds.is_empty(), "too soon");
        let (_, kinds) = after(&told, &seen(9, 0), NOW_MS + APART_MS);
        assert_eq!(kinds, [PARKED], "and told later");
        let waits = Told::default().after(&seen(1, 0), NOW_MS, "one", || "ntc_1".to_owned());
        let still = waits.clone().after(&seen(5, 0), NOW_MS + 9 * APART_MS, "one", || "ntc_2".to_owned());
        assert_eq!(still.waiting, waits.waiting, "one of a kind waits");
        assert_eq!(still.parked, waits.parked, "what came meanwhile is told after it");
    }

    #[test]
    fn an_account_is_told_once_while_it_rests_and_a_promise_while_it_is_broken() {
        let account = |name: &str| PausedAccount {
            channel: "shop".to_owned(),
            account: name.to_owned(),
            why: "the token ended".to_owned(),
            since_ms: NOW_MS,
        };
        let rests = |names: &[&str]| Seen { paused: names.iter().map(|name| account(name)).collect(), ..seen(0, 0) };
        let (told, kinds) = after(&Told::default(), &rests(&["7"]), NOW_MS);
        assert_eq!(kinds, [PAUSED]);
        let (told, kinds) = after(&told, &rests(&["7"]), NOW_MS + APART_MS);
        assert!(kinds.is_empty());
        let (told, _) = after(&told, &rests(&[]), NOW_MS + APART_MS);
        let (told, kinds) = after(&told, &rests(&["7"]), NOW_MS + 2 * APART_MS);
        assert_eq!(kinds, [PAUSED], "it was resumed in between");
        let degraded = Seen { promise: Promise::Degraded(vec!["no AOF".to_owned()]), ..rests(&["7"]) };
        let (told, kinds) = after(&told, &degraded, NOW_MS + 2 * APART_MS);
        assert_eq!(kinds, [DEGRADED]);
        let (_, kinds) = after(&told, &degraded, NOW_MS + 9 * APART_MS);
        assert!(kinds.is_empty());
    }
}
