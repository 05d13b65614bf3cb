//! Who did what, as it is kept: registers of the store, each with a number of deeds, written one after the other by all instances.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hapax_store::clock::Clock;
use hapax_store::{Store, StoreError, in_time};
use serde::{Deserialize, Serialize};

use super::super::changing::{Marks, change};
use super::address;
use crate::telemetry::Telemetry;

/// How many are kept, and for how long.
const KEPT: u64 = 5_000;
const KEEP_MS: i64 = 90 * 86_400_000;
const IN_SEGMENT: u64 = 100;
/// Longest name, target or result that is kept whole.
const FIELD_MAX_CHARS: usize = 200;
const PATIENCE: Duration = Duration::from_secs(5);
/// The register that tells which segment is written now.
const HEAD: &str = "audit";
/// In place of whom something was done to, once he was forgotten.
const FORGOTTEN: &str = "(forgotten)";

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Deed {
    pub at_ms: i64,
    pub by: String,
    pub from: Option<String>,
    pub action: String,
    pub target: Option<String>,
    pub result: String,
    pub ok: bool,
}

#[derive(Default, Deserialize, Serialize)]
struct Segment {
    /// Whose write it is.
    mark: String,
    deeds: Vec<Deed>,
}

/// Keeps what was done, together with the other instances on the same store.
pub struct Audit {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    telemetry: Arc<Telemetry>,
    marks: Marks,
}

impl Audit {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, telemetry: Arc<Telemetry>, process: u64) -> Self {
        Self { store, clock, telemetry, marks: Marks::new(process) }
    }

    /// Writes down that somebody has done something. What cannot be written is in the log alone: it was done all the same.
    pub async fn note(&self, by: &str, from: Option<IpAddr>, action: &str, target: Option<String>, result: String, ok: bool) {
        let deed = Deed {
            at_ms: self.clock.now_ms(),
            by: short(by.to_owned()),
            from: address(from),
            action: short(action.to_owned()),
            target: target.map(short),
            result: short(result),
            ok,
        };
        if let Err(error) = in_time("writing down who did what", PATIENCE, self.add(&deed)).await {
            self.telemetry.deed_not_noted(&deed.action, &deed.by, &error);
        }
    }

    async fn add(&self, deed: &Deed) -> Result<(), StoreError> {
        let nth = self.head().await?;
        let mut size = 0;
        let oldest_ms = deed.at_ms - KEEP_MS;
        change(&*self.store, &name(nth), KEEP_MS, |there| {
            let mut deeds = read(there);
            deeds.retain(|deed| deed.at_ms > oldest_ms);
            deeds.push(deed.clone());
            size = deeds.len() as u64;
            serde_json::to_string(&Segment { mark: self.marks.next(), deeds }).unwrap_or_default()
        })
        .await?;
        if size >= IN_SEGMENT {
            let next = (nth + 1).to_string();
            let before = self.store.amend(HEAD, None, None, None).await?;
            // Somebody else may have turned the page already.
            if number(before.as_deref()) <= nth {
                self.store.amend(HEAD, before.as_deref(), Some(&next), None).await?;
            }
            if let Some(old) = nth.checked_sub(KEPT / IN_SEGMENT) {
                let kept = self.store.amend(&name(old), None, None, None).await?;
                self.store.amend(&name(old), kept.as_deref(), None, None).await?;
            }
        }
        Ok(())
    }

    /// Takes somebody out of what things were done to: his name is part of the names of his threads.
    pub async fn forget(&self, contact: &str) -> Result<(), StoreError> {
        let head = self.head().await?;
        for nth in (head + 1).saturating_sub(KEPT / IN_SEGMENT)..=head {
            let text = self.store.amend(&name(nth), None, None, None).await?;
            let is_named = |deed: &Deed| deed.target.as_ref().is_some_and(|target| target.contains(contact));
            if !read(text.as_deref()).iter().any(is_named) {
                continue;
            }
            change(&*self.store, &name(nth), KEEP_MS, |there| {
                let mut deeds = read(there);
                deeds.iter_mut().filter(|deed| is_named(deed)).for_each(|deed| deed.target = Some(FORGOTTEN.to_owned()));
                serde_json::to_string(&Segment { mark: self.marks.next(), deeds }).unwrap_or_default()
            })
            .await?;
        }
        Ok(())
    }

    async fn head(&self) -> Result<u64, StoreError> {
        Ok(number(self.store.amend(HEAD, None, None, None).await?.as_deref()))
    }

    /// Newest first, from before a place on; and where the next page begins. A place is the number of a deed among all there ever were.
    pub async fn read(&self, before: Option<u64>, limit: usize) -> Result<(Vec<Deed>, Option<u64>), StoreError> {
        let head = self.head().await?;
        let last = (head + 1).saturating_sub(KEPT / IN_SEGMENT);
        let mut nth = before.map_or(head, |before| (before / WIDE).min(head));
        let oldest_ms = self.clock.now_ms() - KEEP_MS;
        let mut deeds = Vec::new();
        loop {
            let text = in_time("reading who did what", PATIENCE, self.store.amend(&name(nth), None, None, None)).await?;
            for (place, deed) in read(text.as_deref()).into_iter().enumerate().rev() {
                let place = nth * WIDE + place as u64;
                if before.is_some_and(|before| place >= before) || deed.at_ms <= oldest_ms {
                    continue;
                }
                if deeds.len() == limit {
                    return Ok((deeds, Some(place + 1)));
                }
                deeds.push(deed);
            }
            if nth <= last {
                return Ok((deeds, None));
            }
            nth -= 1;
        }
    }
}

/// Instances that write at the same time may put some more into a segment than is meant for it.
const WIDE: u64 = 1_000_000;

fn name(nth: u64) -> String {
    format!("audit/{nth}")
}

fn number(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn read(text: Option<&str>) -> Vec<Deed> {
    text.and_then(|text| serde_json::from_str::<Segment>(text).ok()).unwrap_or_default().deeds
}

fn short(text: String) -> String {
    if text.len() <= FIELD_MAX_CHARS { text } else { text.chars().take(FIELD_MAX_CHARS).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_store::clock::SystemClock;
    use hapax_store::memory::MemoryStore;

    #[tokio::test]
    async fn the_newest_are_kept_whoever_wrote_them_and_read_page_by_page() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock)));
        let audit = |process| Audit::new(Arc::clone(&store), Arc::clone(&clock), Arc::default(), process);
        let (one, two) = (audit(1), audit(2));
        let all = KEPT + 3 * IN_SEGMENT;
        for number in (0..all).step_by(2) {
            let target = |number: u64| Some(number.to_string());
            let first = one.note("admin", None, "replay", target(number), "ok".to_owned(), true);
            tokio::join!(first, two.note("admin", None, "replay", target(number + 1), "ok".to_owned(), true));
        }
        let (mut read, mut before) = (Vec::new(), None);
        loop {
            let (deeds, next) = one.read(before, 333).await.expect("a page");
            read.extend(deeds.into_iter().map(|deed| deed.target.expect("a target").parse::<u64>().expect("a number")));
            let Some(next) = next else { break };
            before = Some(next);
        }
        let told = read.len() as u64;
        assert!((KEPT - IN_SEGMENT..=KEPT + IN_SEGMENT).contains(&told), "{told}");
        read.sort_unstable_by(|a, b| b.cmp(a));
        assert!(read.iter().copied().eq((all - told..all).rev()), "each once, and none of the newest is missing");
        assert_eq!(store.amend(&name(0), None, None, None).await.expect("asked"), None, "the oldest are gone");
    }
}
