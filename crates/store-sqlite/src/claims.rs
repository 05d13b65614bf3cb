//! Claims: rows appended by fence, and in memory which key has which fence. All that wait are decided in one transaction of the writer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use hapax_domain::claim::{
    Claim, ClaimAnswer, ClaimChange, ClaimKey, ClaimOp, ClaimResult, ClaimState, OnAbandoned, ShownState, decide,
};
use hapax_store::claims::check;
use hapax_store::moving::{Dumped, PAGE_BYTES};
use hapax_store::steps::records::ClaimRec;
use hapax_store::{After, ClaimCounts, ClaimQuery, Claims, Moved, Page, StoreError};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteStore;
use super::writer::{StepError, Writer};

/// What carries more than this is written in a transaction of its own.
const LARGE_BYTES: usize = 64 << 10;

const COLUMNS: &str =
    "fence, name, state, claimed, ends, token, until, lease, ttl, hold, fingerprint, holder, completed, content_type";
const PUT: &str = "INSERT OR REPLACE INTO claims VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
const GET: &str = "SELECT fence, name, state, claimed, ends, token, until, lease, ttl, hold, fingerprint, holder, completed, content_type, result
    FROM claims WHERE fence = ?1";
const REMOVE: &str = "DELETE FROM claims WHERE fence = ?1";

/// A key, as it is found in memory: half a BLAKE3 hash. What is found is compared with the key itself.
type Short = [u8; 16];

fn short(name: &[u8]) -> Short {
    let mut short = [0; 16];
    short.copy_from_slice(&blake3::hash(name).as_bytes()[..16]);
    short
}

/// Which key has which fence.
pub(super) struct ClaimIndex {
    fences: HashMap<Short, u64>,
    /// What was there before the batch, to be put back if it fails.
    undo: Vec<(Short, Option<u64>)>,
    most: Arc<AtomicUsize>,
}

impl ClaimIndex {
    pub(super) fn load(db: &Connection, most: Arc<AtomicUsize>) -> rusqlite::Result<Self> {
        let mut select = db.prepare("SELECT fence, name FROM claims")?;
        let mut rows = select.query([])?;
        let mut fences = HashMap::new();
        while let Some(row) = rows.next()? {
            fences.insert(short(row.get_ref(1)?.as_blob()?), row.get::<_, i64>(0)?.cast_unsigned());
        }
        Ok(Self { fences, undo: Vec::new(), most })
    }

    fn get(&self, key: &Short) -> Option<u64> {
        self.fences.get(key).copied()
    }

    fn set(&mut self, key: Short, fence: Option<u64>) {
        let before = match fence {
            Some(fence) => self.fences.insert(key, fence),
            None => self.fences.remove(&key),
        };
        self.undo.push((key, before));
    }

    fn is_full(&self) -> bool {
        self.fences.len() >= self.most.load(Ordering::Relaxed)
    }

    pub(super) fn committed(&mut self) {
        self.undo.clear();
    }

    pub(super) fn rolled_back(&mut self) {
        for (key, before) in std::mem::take(&mut self.undo).into_iter().rev() {
            match before {
                Some(fence) => self.fences.insert(key, fence),
                None => self.fences.remove(&key),
            };
        }
    }
}

#[async_trait]
impl Claims for SqliteStore {
    async fn claims(&self, ops: Vec<(ClaimKey, ClaimOp)>) -> Result<Vec<ClaimAnswer>, StoreError> {
        check(&ops)?;
        let bytes: usize = ops.iter().map(|(_, op)| op.bytes()).sum();
        let step = move |writer: &mut Writer| writer.ask_claims(&ops);
        if bytes > LARGE_BYTES {
            return self.write_alone("claiming", step).await;
        }
        self.write("claiming", false, step).await
    }

    async fn claim(&self, key: &ClaimKey) -> Result<Option<Claim>, StoreError> {
        let name = key.to_name();
        self.write("looking at a claim", true, move |writer| {
            let found = writer.find_claim(short(&name), &name)?;
            Ok(found.filter(|claim| !claim.is_over(writer.now_ms)))
        })
        .await
    }

    async fn list_claims(&self, query: ClaimQuery) -> Result<Page<Claim>, StoreError> {
        let now_ms = self.write("telling the time", true, |writer| Ok(writer.now_ms)).await?;
        self.read("listing claims", move |db| list(db, &query, now_ms)).await
    }

    fn limit_claims(&self, most: usize) {
        self.0.claims_max.store(most, Ordering::Relaxed);
    }
}

/// How many that are over are removed at once to make room.
const PURGED_WHEN_FULL: usize = 100;

impl Writer {
    fn ask_claims(&mut self, ops: &[(ClaimKey, ClaimOp)]) -> Result<Vec<ClaimAnswer>, StepError> {
        // What is there is answered on a full disk too: who asks for what was done must not be made to wait.
        let adds = |(key, op): &(ClaimKey, ClaimOp)| op.may_add() && self.claims.get(&short(&key.to_name())).is_none();
        if ops.iter().any(adds) && !self.disk.has_room() {
            return Err(StepError::Refused(StoreError::Full { floor_mb: self.disk.floor_mb() }));
        }
        ops.iter().map(|(key, op)| self.ask_claim(key, op)).collect()
    }

    fn ask_claim(&mut self, key: &ClaimKey, op: &ClaimOp) -> Result<ClaimAnswer, StepError> {
        let name = key.to_name();
        let at = short(&name);
        let found = self.find_claim(at, &name)?;
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
                    self.db.prepare_cached(REMOVE)?.execute([found.fence as i64])?;
                }
                self.write_claim(&claim, &name)?;
                self.claims.set(at, Some(claim.fence));
            }
            ClaimChange::Remove => {
                if let Some(found) = found {
                    self.db.prepare_cached(REMOVE)?.execute([found.fence as i64])?;
                    self.claims.set(at, None);
                }
            }
        }
        Ok(answer)
    }

    fn find_claim(&self, at: Short, name: &[u8]) -> Result<Option<Claim>, StepError> {
        let Some(fence) = self.claims.get(&at) else { return Ok(None) };
        let found = self.db.prepare_cached(GET)?.query_row([fence as i64], read_whole).optional()?;
        match found {
            Some(claim) if claim.key.to_name() != name => {
                let why = "two keys of claims have the same hash; use another key for one of them";
                Err(StepError::Refused(StoreError::Refused(why.to_owned())))
            }
            found => Ok(found),
        }
    }

    fn write_claim(&self, claim: &Claim, name: &[u8]) -> rusqlite::Result<()> {
        let is_claim = claim.state != ClaimState::Value;
        let result = claim.result.as_ref();
        self.db.prepare_cached(PUT)?.execute(params![
            claim.fence as i64,
            name,
            claim.state.code(),
            claim.claimed_at_ms,
            claim.ends_ms,
            is_claim.then_some(&claim.token),
            is_claim.then_some(claim.lease_until_ms),
            is_claim.then_some(claim.lease_ms),
            is_claim.then_some(claim.ttl_ms),
            is_claim.then_some(claim.on_abandoned == OnAbandoned::Hold),
            claim.fingerprint,
            claim.holder,
            claim.completed_at_ms,
            result.and_then(|result| result.content_type.as_ref()),
            result.map(|result| &result.bytes[..]),
        ])?;
        Ok(())
    }

    /// Puts one as it was in another store.
    pub(super) fn put_claim(&mut self, claim: &ClaimRec) -> Result<(), StepError> {
        let claim = claim.to_claim();
        let name = claim.key.to_name();
        self.write_claim(&claim, &name)?;
        self.claims.set(short(&name), Some(claim.fence));
        Ok(())
    }

    /// What is over takes no place, whether or not purge has come by.
    fn is_full_of_claims(&mut self) -> rusqlite::Result<bool> {
        if self.claims.is_full() {
            self.purge_claims(PURGED_WHEN_FULL)?;
        }
        Ok(self.claims.is_full())
    }

    /// Removes at most `max` that are over; gives how many.
    pub(super) fn purge_claims(&mut self, max: usize) -> rusqlite::Result<usize> {
        let over: Vec<(i64, Vec<u8>)> = self
            .db
            .prepare_cached("SELECT fence, name FROM claims WHERE ends <= ?1 ORDER BY ends LIMIT ?2")?
            .query_map(params![self.now_ms, max as i64], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        for (fence, name) in &over {
            self.db.prepare_cached(REMOVE)?.execute([fence])?;
            self.claims.set(short(name), None);
        }
        Ok(over.len())
    }
}

/// A row without its result.
fn read(row: &Row<'_>) -> rusqlite::Result<Claim> {
    let name = row.get_ref(1)?.as_blob()?;
    let unreadable = || rusqlite::Error::InvalidColumnType(1, "name".to_owned(), rusqlite::types::Type::Blob);
    let claimed_at_ms: i64 = row.get(3)?;
    Ok(Claim {
        key: ClaimKey::from_name(name).ok_or_else(unreadable)?,
        state: ClaimState::from_code(row.get(2)?).ok_or_else(unreadable)?,
        token: row.get::<_, Option<String>>(5)?.unwrap_or_default(),
        fence: row.get::<_, i64>(0)?.cast_unsigned(),
        fingerprint: row.get(10)?,
        on_abandoned: if row.get::<_, Option<bool>>(9)? == Some(true) { OnAbandoned::Hold } else { OnAbandoned::Takeover },
        holder: row.get(11)?,
        claimed_at_ms,
        lease_ms: row.get::<_, Option<i64>>(7)?.unwrap_or_default(),
        lease_until_ms: row.get::<_, Option<i64>>(6)?.unwrap_or(claimed_at_ms),
        ttl_ms: row.get::<_, Option<i64>>(8)?.unwrap_or_default(),
        completed_at_ms: row.get(12)?,
        result: None,
        ends_ms: row.get(4)?,
    })
}

fn read_whole(row: &Row<'_>) -> rusqlite::Result<Claim> {
    let bytes: Option<Vec<u8>> = row.get(14)?;
    let content_type: Option<String> = row.get(13)?;
    let result = bytes.map(|bytes| ClaimResult { content_type, bytes: bytes.into() });
    Ok(Claim { result, ..read(row)? })
}

fn list(db: &Connection, query: &ClaimQuery, now_ms: i64) -> rusqlite::Result<Page<Claim>> {
    let state = match query.state {
        None => "TRUE",
        Some(ShownState::Held) => "state = 0 AND until > ?1",
        Some(ShownState::Abandoned) => "state = 0 AND until <= ?1",
        Some(ShownState::Completed) => "state = 1",
        Some(ShownState::Value) => "state = 2",
    };
    let sql = format!(
        "SELECT {COLUMNS} FROM claims WHERE fence < ?2 AND (ends IS NULL OR ends > ?1) AND {state}
         AND (?3 IS NULL OR substr(name, 1, instr(name, x'00') - 1) = ?3)
         AND (?4 IS NULL OR substr(name, instr(name, x'00') + 1, length(?4)) = ?4) ORDER BY fence DESC LIMIT ?5"
    );
    let before = query.before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
    let (scope, prefix) = (query.scope.as_ref().map(String::as_bytes), query.prefix.as_ref().map(String::as_bytes));
    let limit = query.limit as i64 + 1;
    let mut rows: Vec<Claim> =
        db.prepare_cached(&sql)?.query_map(params![now_ms, before, scope, prefix, limit], read)?.collect::<Result<_, _>>()?;
    let more = rows.len() > query.limit;
    rows.truncate(query.limit);
    Ok(Page { rows, more })
}

pub(super) fn counts(db: &Connection, now_ms: i64) -> rusqlite::Result<ClaimCounts> {
    let sql = "SELECT count(*) FILTER (WHERE state = 0 AND until > ?1), count(*) FILTER (WHERE state = 0),
        count(*) FILTER (WHERE state = 1), count(*) FROM claims";
    db.prepare_cached(sql)?.query_row([now_ms], |row| {
        let count = |at: usize| row.get::<_, u64>(at);
        let (held, claimed, completed, all) = (count(0)?, count(1)?, count(2)?, count(3)?);
        let values = all.saturating_sub(claimed + completed);
        Ok(ClaimCounts { held, abandoned: claimed.saturating_sub(held), completed, values })
    })
}

/// By fence; a page ends when its results are large together.
pub(super) fn dump(db: &Connection, after: Option<&After>, limit: usize, now_ms: i64) -> rusqlite::Result<Dumped> {
    let after = match after {
        Some(After::Number(fence)) => *fence as i64,
        _ => 0,
    };
    let sql = format!("SELECT {COLUMNS}, result FROM claims WHERE fence > ?1 ORDER BY fence");
    let mut select = db.prepare_cached(&sql)?;
    let mut rows = select.query([after])?;
    let (mut records, mut looked_at, mut bytes) = (Vec::new(), 0, 0);
    while let Some(row) = rows.next()? {
        let claim = read_whole(row)?;
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
    Ok((records, None))
}

#[cfg(test)]
mod tests {
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
