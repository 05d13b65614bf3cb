//! Claims: decided by what stands in memory of their keys, all that wait in one transaction of the writer.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use hapax_domain::claim::{Claim, ClaimAnswer, ClaimChange, ClaimKey, ClaimOp, ClaimState, ShownState, decide};
use hapax_store::claims::check;
use hapax_store::moving::{Dumped, PAGE_BYTES};
use hapax_store::steps::records::ClaimRec;
use hapax_store::{After, ClaimCounts, ClaimQuery, Claims, Moved, Page, StoreError};
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::claim_entry::{self, Entry, Short, short};
use super::claim_index::unreadable;
use super::pending::Reach;
use super::writer::{StepError, Writer};

/// What carries more than this is written in a transaction of its own.
const LARGE_BYTES: usize = 64 << 10;

/// Something that is asked of a key, with its name and the hash of that.
struct Ask {
    key: ClaimKey,
    name: Vec<u8>,
    at: Short,
    op: ClaimOp,
}

impl Ask {
    fn new((key, op): (ClaimKey, ClaimOp)) -> Self {
        let name = key.to_name();
        Self { at: short(&name), key, name, op }
    }
}

#[async_trait]
impl Claims for SqliteStore {
    async fn claims(&self, ops: Vec<(ClaimKey, ClaimOp)>) -> Result<Vec<ClaimAnswer>, StoreError> {
        check(&ops)?;
        let bytes: usize = ops.iter().map(|(_, op)| op.bytes()).sum();
        let asks: Vec<Ask> = ops.into_iter().map(Ask::new).collect();
        let step = move |writer: &mut Writer| writer.ask_claims(&asks);
        if bytes > LARGE_BYTES {
            return self.write_alone("claiming", step).await;
        }
        self.write_with(Reach::Own, "claiming", false, step).await
    }

    async fn claim(&self, key: &ClaimKey) -> Result<Option<Claim>, StoreError> {
        let name = key.to_name();
        self.write_with(Reach::Own, "looking at a claim", true, move |writer| {
            let found = writer.find_claim(&short(&name), &name)?;
            Ok(found.filter(|claim| !claim.is_over(writer.now_ms)))
        })
        .await
    }

    async fn list_claims(&self, query: ClaimQuery) -> Result<Page<Claim>, StoreError> {
        let now_ms = self.write_claims().await?;
        self.read("listing claims", move |db| list(db, &query, now_ms)).await
    }

    fn limit_claims(&self, most: usize) {
        self.0.claims_max.store(most, Ordering::Relaxed);
    }
}

impl SqliteStore {
    /// Has all claims written into blocks, so that whoever asks next reads them; gives the time.
    pub(super) async fn write_claims(&self) -> Result<i64, StoreError> {
        let step = |writer: &mut Writer| {
            writer.claims.write_all(&writer.db)?;
            Ok(writer.now_ms)
        };
        self.write("writing claims", true, step).await
    }
}

/// How many that are over are removed at once to make room.
const PURGED_WHEN_FULL: usize = 100;

impl Writer {
    fn ask_claims(&mut self, asks: &[Ask]) -> Result<Vec<ClaimAnswer>, StepError> {
        // What is there is answered on a full disk too: who asks for what was done must not be made to wait.
        let adds = |ask: &Ask| ask.op.may_add() && !self.claims.is_taken(&ask.at);
        if !self.disk.has_room() && asks.iter().any(adds) {
            return Err(StepError::Refused(StoreError::Full { floor_mb: self.disk.floor_mb() }));
        }
        asks.iter().map(|ask| self.ask_claim(ask)).collect()
    }

    fn ask_claim(&mut self, Ask { key, name, at, op }: &Ask) -> Result<ClaimAnswer, StepError> {
        let found = self.find_claim(at, name)?;
        let fence = if op.may_add() { self.fence()? } else { 0 };
        let (change, answer) = decide(found.as_ref(), key, op, self.now_ms, fence);
        match change {
            ClaimChange::Keep => {}
            ClaimChange::Put(_) if found.is_none() && self.is_full_of_claims()? => return Ok(ClaimAnswer::NoRoom),
            ClaimChange::Put(mut claim) => {
                let before = found.as_ref().and_then(|found| found.ends_ms);
                // A clock that lags behind the world's is caught up with at the next start: nothing ends the sooner for that.
                claim.ends_ms = claim.ends_ms.map(|ends| if Some(ends) == before { ends } else { ends + self.lag_ms() });
                if let Some(found) = found.filter(|found| found.fence != claim.fence) {
                    self.claims.remove(*at, found.fence as i64);
                }
                self.claims.put(*at, claim.fence as i64, claim_entry::body(&claim, name));
            }
            ClaimChange::Remove => {
                if let Some(found) = found {
                    self.claims.remove(*at, found.fence as i64);
                }
            }
        }
        Ok(answer)
    }

    fn find_claim(&self, at: &Short, name: &[u8]) -> Result<Option<Claim>, StepError> {
        // One whose name is another has the same hash.
        let read = |entry: Entry<'_>| Some(if entry.name()? == name { Some(entry.claim(true)?) } else { None });
        match self.claims.find(&self.db, at, read)? {
            Some(None) => {
                let why = "two keys of claims have the same hash; use another key for one of them";
                Err(StepError::Refused(StoreError::Refused(why.to_owned())))
            }
            found => Ok(found.flatten()),
        }
    }

    /// Puts one as it was in another store.
    pub(super) fn put_claim(&mut self, claim: &ClaimRec) {
        let claim = claim.to_claim();
        let name = claim.key.to_name();
        self.claims.put(short(&name), claim.fence as i64, claim_entry::body(&claim, &name));
    }

    /// What is over takes no place, whether or not purge has come by.
    fn is_full_of_claims(&mut self) -> rusqlite::Result<bool> {
        if self.claims.is_full() {
            self.claims.purge(&self.db, self.now_ms, PURGED_WHEN_FULL)?;
        }
        Ok(self.claims.is_full())
    }
}

fn list(db: &Connection, query: &ClaimQuery, now_ms: i64) -> rusqlite::Result<Page<Claim>> {
    let before = query.before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
    let mut select = db.prepare_cached("SELECT claims FROM claim_blocks WHERE first < ?1 ORDER BY first DESC")?;
    let (mut blocks, mut found) = (select.query([before])?, Vec::new());
    while let Some(block) = blocks.next()? {
        let entries: Vec<Entry<'_>> = Entry::all(block.get_ref(0)?.as_blob()?).collect();
        for entry in entries.into_iter().rev().filter(|entry| entry.fence < before && is_meant(*entry, query, now_ms)) {
            if found.len() == query.limit {
                return Ok(Page { rows: found, more: true });
            }
            found.push(entry.claim(false).ok_or_else(unreadable)?);
        }
    }
    Ok(Page { rows: found, more: false })
}

fn is_meant(entry: Entry<'_>, query: &ClaimQuery, now_ms: i64) -> bool {
    let name = entry.name().unwrap_or_default();
    let (scope, key) = name.split_at(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
    !entry.is_over(now_ms)
        && query.state.is_none_or(|state| shown(entry, now_ms) == Some(state))
        && query.scope.as_ref().is_none_or(|wanted| wanted.as_bytes() == scope)
        && query.prefix.as_ref().is_none_or(|prefix| key.get(1..).is_some_and(|key| key.starts_with(prefix.as_bytes())))
}

/// See [`Claim::shown`].
fn shown(entry: Entry<'_>, now_ms: i64) -> Option<ShownState> {
    Some(match entry.state()? {
        ClaimState::Held if entry.until_ms()? <= now_ms => ShownState::Abandoned,
        ClaimState::Held => ShownState::Held,
        ClaimState::Completed => ShownState::Completed,
        ClaimState::Value => ShownState::Value,
    })
}

pub(super) fn counts(db: &Connection, now_ms: i64) -> rusqlite::Result<ClaimCounts> {
    let mut select = db.prepare_cached("SELECT claims FROM claim_blocks")?;
    let (mut blocks, mut counts) = (select.query([])?, ClaimCounts::default());
    while let Some(block) = blocks.next()? {
        Entry::all(block.get_ref(0)?.as_blob()?).filter_map(|entry| shown(entry, now_ms)).for_each(|state| counts.add(state, 1));
    }
    Ok(counts)
}

/// By fence; a page ends when its results are large together.
pub(super) fn dump(db: &Connection, after: Option<&After>, limit: usize, now_ms: i64) -> rusqlite::Result<Dumped> {
    let after = match after {
        Some(After::Number(fence)) => *fence as i64,
        _ => 0,
    };
    let blocks = "SELECT claims FROM claim_blocks
        WHERE first >= ifnull((SELECT max(first) FROM claim_blocks WHERE first <= ?1), ?1) ORDER BY first";
    let mut select = db.prepare_cached(blocks)?;
    let mut blocks = select.query(params![after])?;
    let (mut records, mut looked_at, mut bytes) = (Vec::new(), 0, 0);
    while let Some(block) = blocks.next()? {
        for entry in Entry::all(block.get_ref(0)?.as_blob()?).filter(|entry| entry.fence > after) {
            let claim = entry.claim(true).ok_or_else(unreadable)?;
            looked_at += 1;
            bytes += claim.result.as_ref().map_or(0, |result| result.bytes.len() as u64);
            let fence = claim.fence;
            if !claim.is_over(now_ms) {
                records.push(Moved::Claim(Box::new(ClaimRec::new(&claim))));
            }
            if looked_at >= limit || bytes >= PAGE_BYTES {
                return Ok((records, Some(After::Number(fence))));
            }
        }
    }
    Ok((records, None))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hapax_domain::claim::OnAbandoned;
    use hapax_testkit::hand_clock::HandClock;
    use hapax_testkit::store_fixture::START_MS;

    use super::*;
    use crate::Options;

    #[tokio::test]
    async fn on_a_full_disk_what_is_there_is_answered_and_nothing_is_added() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |disk_floor_bytes| {
            let options = Options { disk_floor_bytes, ..Options::default() };
            SqliteStore::open(&folder.path().join("s.db"), Arc::new(HandClock::at(START_MS)), &options).expect("it opens")
        };
        let claim = |key: &str| {
            let op = ClaimOp::Claim {
                token: "mine".to_owned(),
                ttl_ms: 1_000,
                lease_ms: 1_000,
                fingerprint: None,
                on_abandoned: OnAbandoned::Takeover,
                holder: None,
            };
            vec![(ClaimKey::new("jobs", key), op)]
        };
        let store = open(0);
        store.claims(claim("done")).await.expect("claimed");
        let complete = ClaimOp::Complete { token: "mine".to_owned(), result: None, keep_ms: None };
        store.claims(vec![(ClaimKey::new("jobs", "done"), complete)]).await.expect("completed");
        drop(store);
        let full = open(u64::MAX);
        let told = full.claims(claim("done")).await.expect("an answer");
        assert!(matches!(told[..], [ClaimAnswer::Completed { .. }]), "{told:?}");
        assert!(matches!(full.claims(claim("new")).await, Err(StoreError::Full { .. })));
    }
}
