//! The history of counts as it is kept: registers of the store, each with the buckets of one stretch of time, to which all instances add.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use hapax_store::clock::Clock;
use hapax_store::{Store, StoreError, in_time};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::super::changing::{Marks, change};
use crate::telemetry::{COUNTS, Counted, Telemetry};

/// Channels that are counted by name in one stretch; more are counted together.
const CHANNELS_MAX: usize = 64;
/// What those are called.
pub(crate) const OTHERS: &str = "*";
const PATIENCE: Duration = Duration::from_secs(5);
const READ_AT_ONCE: usize = 4;

/// How far back, and how finely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Range {
    Hour,
    Day,
    Week,
}

impl Range {
    pub const ALL: [Range; 3] = [Range::Hour, Range::Day, Range::Week];

    pub fn name(self) -> &'static str {
        match self {
            Range::Hour => "hour",
            Range::Day => "day",
            Range::Week => "week",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|range| range.name() == name)
    }

    /// How long one bucket is.
    pub fn bucket_ms(self) -> i64 {
        match self {
            Range::Hour => 60_000,
            Range::Day => 600_000,
            Range::Week => 3_600_000,
        }
    }

    /// How many are shown; the last one is not over yet.
    pub fn buckets(self) -> i64 {
        match self {
            Range::Hour => 60,
            Range::Day => 144,
            Range::Week => 168,
        }
    }

    /// How many stand in one register: enough that few are read, and few enough that a write stays small.
    fn in_register(self) -> i64 {
        match self {
            Range::Hour => 10,
            Range::Day => 12,
            Range::Week => 24,
        }
    }

    /// Each register for as long as one of its buckets may be shown, and a little more.
    fn keep_ms(self) -> i64 {
        (self.buckets() + 2 * self.in_register()) * self.bucket_ms()
    }
}

/// One register: which range, and the how manieth of its stretches since 1970.
type Place = (Range, i64);

/// Channel, bucket since 1970, numbers. Those of a later version are kept, and not shown.
type Numbers = BTreeMap<String, BTreeMap<i64, Vec<u64>>>;

#[derive(Default, Deserialize, Serialize)]
struct Stored {
    /// Whose write it is.
    by: String,
    of: Numbers,
}

/// Keeps the history of all channels, together with the other instances on the same store.
pub struct History {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    telemetry: Arc<Telemetry>,
    marks: Marks,
    /// Not written yet.
    pending: Mutex<BTreeMap<Place, Numbers>>,
}

/// The numbers of each bucket of a range, by channel.
#[derive(Debug)]
pub struct Series {
    /// When the first bucket begins.
    pub from_ms: i64,
    pub channels: BTreeMap<String, Vec<Counted>>,
}

impl History {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, telemetry: Arc<Telemetry>, process: u64) -> Self {
        Self { store, clock, telemetry, marks: Marks::new(process), pending: Mutex::default() }
    }

    /// Notes what was counted since the last call under the present time.
    pub async fn collect(&self) {
        let counts = self.telemetry.take_counts();
        if !counts.is_empty() {
            note(&mut *self.pending.lock().await, self.clock.now_ms(), counts);
        }
    }

    /// Writes what was noted. What cannot be written now is kept for the next time, as long as anybody would look at it.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.collect().await;
        let mut pending = self.pending.lock().await;
        let now_ms = self.clock.now_ms();
        pending.retain(|place, _| !is_over(*place, now_ms));
        while let Some(entry) = pending.first_entry() {
            let (range, nth) = *entry.key();
            let more = entry.get();
            let name = name(range, nth);
            let write = change(&*self.store, &name, range.keep_ms(), |there| {
                let mut of = read(there);
                add(&mut of, more);
                // Numbers and texts can always be written.
                serde_json::to_string(&Stored { by: self.marks.next(), of }).unwrap_or_default()
            });
            in_time("writing the history", PATIENCE, write).await?;
            entry.remove();
        }
        Ok(())
    }

    /// What there is of a range, up to this moment.
    pub async fn read(&self, range: Range) -> Result<Series, StoreError> {
        self.collect().await;
        let last = self.clock.now_ms().div_euclid(range.bucket_ms());
        let first = last + 1 - range.buckets();
        let registers = first.div_euclid(range.in_register())..=last.div_euclid(range.in_register());
        let look = async |nth| {
            let name = name(range, nth);
            in_time("reading the history", PATIENCE, self.store.amend(&name, None, None, None)).await
        };
        // Held so long that nothing is missed, or counted twice, which is being written meanwhile.
        let pending = self.pending.lock().await;
        let texts: Vec<_> = stream::iter(registers.clone().map(look)).buffered(READ_AT_ONCE).try_collect().await?;
        let mut all = Numbers::new();
        texts.iter().for_each(|text| add(&mut all, &read(text.as_deref())));
        registers.filter_map(|nth| pending.get(&(range, nth))).for_each(|more| add(&mut all, more));
        drop(pending);
        Ok(Series { from_ms: first * range.bucket_ms(), channels: shown(all, first, range) })
    }
}

fn name(range: Range, nth: i64) -> String {
    format!("history/{}/{nth}", range.name())
}

fn is_over((range, nth): Place, now_ms: i64) -> bool {
    (nth + 1) * range.in_register() * range.bucket_ms() + range.keep_ms() < now_ms
}

fn note(pending: &mut BTreeMap<Place, Numbers>, now_ms: i64, counts: Vec<(String, Counted)>) {
    for range in Range::ALL {
        let bucket = now_ms.div_euclid(range.bucket_ms());
        let numbers = pending.entry((range, bucket.div_euclid(range.in_register()))).or_default();
        let more = counts.iter().map(|(channel, counted)| (channel.clone(), BTreeMap::from([(bucket, counted.to_vec())])));
        add(numbers, &more.collect());
    }
}

/// What cannot be read is begun anew: a history is for people to look at, and nothing hangs on it.
fn read(text: Option<&str>) -> Numbers {
    text.and_then(|text| serde_json::from_str::<Stored>(text).ok()).unwrap_or_default().of
}

fn add(all: &mut Numbers, more: &Numbers) {
    for (channel, buckets) in more {
        let full = all.len() >= CHANNELS_MAX && !all.contains_key(channel);
        let own = all.entry(if full { OTHERS.to_owned() } else { channel.clone() }).or_default();
        for (bucket, numbers) in buckets {
            let sums = own.entry(*bucket).or_default();
            sums.resize(sums.len().max(numbers.len()), 0);
            sums.iter_mut().zip(numbers).for_each(|(sum, n)| *sum = sum.saturating_add(*n));
        }
    }
}

fn shown(all: Numbers, first: i64, range: Range) -> BTreeMap<String, Vec<Counted>> {
    let row = |buckets: BTreeMap<i64, Vec<u64>>| {
        let counted = |bucket: i64| {
            let numbers = buckets.get(&bucket).map(Vec::as_slice).unwrap_or_default();
            std::array::from_fn::<u64, COUNTS, _>(|place| numbers.get(place).copied().unwrap_or(0))
        };
        (first..first + range.buckets()).map(counted).collect()
    };
    all.into_iter().map(|(channel, buckets)| (channel, row(buckets))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_domain::limits::REGISTER_MAX_BYTES;

    #[test]
    fn a_register_holds_the_busiest_stretch_of_all_channels() {
        for range in Range::ALL {
            let mut all = Numbers::new();
            for channel in 0..10 * CHANNELS_MAX {
                let buckets = (0..range.in_register()).map(|bucket| (484_000 + bucket, vec![99_999_999; COUNTS])).collect();
                add(&mut all, &Numbers::from([(format!("a-channel-of-a-usual-name-{channel}"), buckets)]));
            }
            assert_eq!(all.len(), CHANNELS_MAX + 1);
            let text = serde_json::to_string(&Stored { by: "x".repeat(40), of: all }).expect("JSON");
            assert!(text.len() < REGISTER_MAX_BYTES, "{range:?}: {}", text.len());
        }
    }

    #[test]
    fn a_count_stands_in_its_bucket_of_each_range() {
        let mut pending = BTreeMap::new();
        let now_ms = 1_700_000_000_000;
        note(&mut pending, now_ms, vec![("shop".to_owned(), [1; COUNTS])]);
        note(&mut pending, now_ms + 60_000, vec![("shop".to_owned(), [2; COUNTS])]);
        for range in Range::ALL {
            let mut all = Numbers::new();
            pending.iter().filter(|((of, _), _)| *of == range).for_each(|(_, more)| add(&mut all, more));
            let last = (now_ms + 60_000).div_euclid(range.bucket_ms());
            let rows = shown(all, last + 1 - range.buckets(), range).remove("shop").expect("counted");
            assert_eq!(rows.len() as i64, range.buckets());
            assert_eq!(rows.iter().map(|counted| counted[0]).sum::<u64>(), 3, "{range:?}");
            assert!(is_over((range, 0), now_ms) && pending.keys().all(|place| !is_over(*place, now_ms)));
        }
    }

    #[test]
    fn what_cannot_be_read_is_begun_anew_and_a_later_version_keeps_its_numbers() {
        assert!(read(Some("{\"by\":")).is_empty());
        let mut all = read(Some("{\"by\":\"1\",\"of\":{\"shop\":{\"5\":[1,1,1,1,1,1,1,1,1,1,1,7]}}}"));
        add(&mut all, &Numbers::from([("shop".to_owned(), BTreeMap::from([(5, vec![1; COUNTS])]))]));
        assert_eq!(all["shop"][&5], [vec![2; COUNTS], vec![7]].concat());
    }
}
