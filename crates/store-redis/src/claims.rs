//! Claims: read, decided here, and written if they are still as they were read. They are beside the registry, since a key tells no account.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::Bytes;
use hapax_domain::claim::{Claim, ClaimAnswer, ClaimChange, ClaimKey, ClaimOp, ClaimState, decide};
use hapax_store::claims::check;
use hapax_store::moving::{Dumped, PAGE_BYTES};
use hapax_store::steps::record::{Column, Field, Record, Source, Value};
use hapax_store::steps::records::{ClaimRec, ResultRec};
use hapax_store::{After, ClaimCounts, ClaimQuery, Claims, Moved, Page, StoreError};

use super::RedisStore;
use super::row::{Row, int, odd};
use super::script::{self, Call};

/// What a record begins with: the change that wrote it, its fence and its state.
const VERSION_BYTES: usize = 8;
const FENCE_DIGITS: usize = 19;
const HEAD_BYTES: usize = VERSION_BYTES + FENCE_DIGITS + 1;

/// So often others may be faster before the caller is told.
const TRIES: usize = 64;
/// Records looked at by one call of a list, when most of them are not wanted.
const LOOKED_AT: usize = 500;
/// Claims with their results in one page of an export.
const DUMPED: usize = 64;

#[async_trait]
impl Claims for RedisStore {
    async fn claims(&self, ops: Vec<(ClaimKey, ClaimOp)>) -> Result<Vec<ClaimAnswer>, StoreError> {
        check(&ops)?;
        for _ in 0..TRIES {
            if let Some(answers) = self.try_claims(&ops).await? {
                return Ok(answers);
            }
        }
        Err(StoreError::Failed { what: "claiming", retryable: true, source: "others were faster each time".into() })
    }

    async fn claim(&self, key: &ClaimKey) -> Result<Option<Claim>, StoreError> {
        let mut seen = self.load_claims(&[key.to_name()], 0).await?;
        let found = seen.found.pop().flatten().map(|kept| kept.claim);
        Ok(found.filter(|claim| !claim.is_over(seen.now_ms)))
    }

    async fn list_claims(&self, query: ClaimQuery) -> Result<Page<Claim>, StoreError> {
        let now_ms = self.link.now_ms().await?;
        let wanted = |claim: &Claim| {
            !claim.is_over(now_ms)
                && query.scope.as_ref().is_none_or(|scope| *scope == claim.key.scope)
                && query.prefix.as_ref().is_none_or(|prefix| claim.key.key.starts_with(prefix))
                && query.state.is_none_or(|state| state == claim.shown(now_ms))
        };
        let (mut rows, mut before) = (Vec::new(), query.before);
        loop {
            let call = self.link.shared_call(&script::LIST_CLAIMS).arg(before.map(digits).unwrap_or_default()).arg("");
            let answer = self.link.run("listing claims", call.arg(LOOKED_AT).arg(0)).await?;
            let page = read_all(Row::new(answer)?)?;
            let full = page.len() == LOOKED_AT;
            before = page.last().map(|last| last.fence);
            rows.extend(page.into_iter().filter(wanted));
            if !full || rows.len() > query.limit {
                let more = rows.len() > query.limit;
                rows.truncate(query.limit);
                return Ok(Page { rows, more });
            }
        }
    }

    fn limit_claims(&self, most: usize) {
        self.claims_max.store(most, Ordering::Relaxed);
    }
}

/// A claim as it was read.
struct Kept {
    version: Vec<u8>,
    claim: Claim,
}

struct Seen {
    now_ms: i64,
    claims: usize,
    first_fence: u64,
    found: Vec<Option<Kept>>,
}

impl RedisStore {
    /// Nothing, when somebody else was faster.
    async fn try_claims(&self, ops: &[(ClaimKey, ClaimOp)]) -> Result<Option<Vec<ClaimAnswer>>, StoreError> {
        let mut names: Vec<Vec<u8>> = ops.iter().map(|(key, _)| key.to_name()).collect();
        names.sort_unstable();
        names.dedup();
        let fences = if ops.iter().any(|(_, op)| op.may_add()) { ops.len() } else { 0 };
        let seen = self.load_claims(&names, fences).await?;
        let most = self.claims_max.load(Ordering::Relaxed);
        let (mut count, mut fence) = (seen.claims, seen.first_fence);
        let mut versions: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        let mut now: HashMap<Vec<u8>, Claim> = HashMap::new();
        for (name, kept) in names.into_iter().zip(seen.found) {
            if let Some(kept) = kept {
                versions.insert(name.clone(), kept.version);
                now.insert(name, kept.claim);
            }
        }
        let mut touched: Vec<Vec<u8>> = Vec::new();
        let mut answers = Vec::with_capacity(ops.len());
        for (key, op) in ops {
            let name = key.to_name();
            let (change, answer) = decide(now.get(&name), key, op, seen.now_ms, fence);
            fence += 1;
            match change {
                ClaimChange::Keep => {}
                ClaimChange::Put(_) if !now.contains_key(&name) && count >= most => {
                    answers.push(ClaimAnswer::NoRoom);
                    continue;
                }
                ClaimChange::Put(claim) => {
                    count += usize::from(now.insert(name.clone(), *claim).is_none());
                    touched.push(name);
                }
                ClaimChange::Remove => {
                    now.remove(&name);
                    count = count.saturating_sub(1);
                    touched.push(name);
                }
            }
            answers.push(answer);
        }
        touched.sort_unstable();
        touched.dedup();
        if touched.is_empty() {
            return Ok(Some(answers));
        }
        let mut call = self.link.shared_call(&script::SAVE_CLAIMS).arg(touched.len());
        for name in &touched {
            let seen = versions.get(name).map_or(&[][..], Vec::as_slice);
            call = with_claim(call.arg(&name[..]).arg(seen), now.get(name));
        }
        let saved = int(self.link.run_safely("saving claims", call).await?)? == 1;
        Ok(saved.then_some(answers))
    }

    async fn load_claims(&self, names: &[Vec<u8>], fences: usize) -> Result<Seen, StoreError> {
        let call = self.link.shared_call(&script::LOAD_CLAIMS).arg(fences).arg(names.len());
        let call = names.iter().fold(call, |call, name| call.arg(&name[..]));
        let mut answer = Row::new(self.link.run("looking at claims", call).await?)?;
        let (now_ms, claims, last) = (answer.int()?, answer.count()? as usize, answer.int()?.cast_unsigned());
        let read = |mut row: Row| match row.maybe_bytes()? {
            Some(record) => read_kept(&record, row.maybe_bytes()?).map(Some),
            None => Ok(None),
        };
        let found = answer.row()?.rows().map(|row| read(row?)).collect::<Result<_, StoreError>>()?;
        Ok(Seen { now_ms, claims, first_fence: (last + 1).saturating_sub(fences as u64), found })
    }

    pub(super) async fn count_claims(&self) -> Result<ClaimCounts, StoreError> {
        let call = self.link.shared_call(&script::COUNT_CLAIMS);
        let mut answer = Row::new(self.link.run("counting claims", call).await?)?;
        let (all, held, abandoned, values) = (answer.count()?, answer.count()?, answer.count()?, answer.count()?);
        let (held, completed) = (held.saturating_sub(abandoned), all.saturating_sub(held + values));
        Ok(ClaimCounts { held, abandoned, completed, values })
    }

    pub(super) async fn purge_claims(&self, max: usize) -> Result<bool, StoreError> {
        let call = self.link.shared_call(&script::PURGE_CLAIMS).arg(max);
        Ok(int(self.link.run("purging claims", call).await?)? >= max as i64)
    }

    pub(super) async fn put_claim(&self, claim: &ClaimRec) -> Result<(), StoreError> {
        let claim = claim.to_claim();
        let call = self.link.shared_call(&script::PUT_CLAIMS).arg(&claim.key.to_name()[..]);
        self.link.run_safely("putting a claim", with_claim(call, Some(&claim))).await.map(drop)
    }

    pub(super) async fn dump_claims(&self, after: Option<&After>, limit: usize) -> Result<Dumped, StoreError> {
        let from = match after {
            Some(After::Number(fence)) => *fence,
            _ => 0,
        };
        // Each result has a megabyte at most.
        let limit = limit.min(DUMPED).min((PAGE_BYTES >> 20) as usize * 4);
        let call = self.link.shared_call(&script::LIST_CLAIMS).arg("").arg(digits(from)).arg(limit).arg(1);
        let now_ms = self.link.now_ms().await?;
        let claims = read_all(Row::new(self.link.run("reading claims", call).await?)?)?;
        let next = claims.last().filter(|_| claims.len() >= limit).map(|last| After::Number(last.fence));
        let moved = |claim: &Claim| Moved::Claim(Box::new(ClaimRec::new(claim)));
        Ok((claims.iter().filter(|claim| !claim.is_over(now_ms)).map(moved).collect(), next))
    }
}

/// Of one width, so that they sort as text.
fn digits(fence: u64) -> String {
    format!("{fence:0FENCE_DIGITS$}")
}

/// The record, the result, the end, and the end of the lease where it is held; nothing but a mark where it goes.
fn with_claim(call: Call, claim: Option<&Claim>) -> Call {
    let Some(claim) = claim else {
        return call.arg("").arg("").arg("").arg("");
    };
    let held_until = (claim.state == ClaimState::Held).then_some(claim.lease_until_ms);
    let result = claim.result.as_ref().map(|result| &result.bytes[..]);
    call.arg(&write_record(&ClaimRec::new(claim))[..]).maybe(result).maybe_int(claim.ends_ms).maybe_int(held_until)
}

/// The fields that are kept in the record; the bytes of the result are kept apart.
fn fields() -> impl Iterator<Item = &'static Field<ClaimRec>> {
    ClaimRec::FIELDS.iter().filter(|field| field.column.name != "result")
}

/// Head and fields; each of these is a letter, and what it says behind its length.
fn write_record(claim: &ClaimRec) -> Vec<u8> {
    let mut record = rand::random::<[u8; VERSION_BYTES]>().to_vec();
    record.extend(digits(claim.fence).bytes());
    record.extend(claim.state.code().to_string().bytes());
    for field in fields() {
        let (letter, bytes): (u8, Cow<'_, [u8]>) = match (field.value)(claim) {
            Value::Null => (b'-', Cow::Borrowed(&[])),
            Value::Int(number) => (b'i', number.to_le_bytes().to_vec().into()),
            Value::Bool(flag) => (b'f', vec![u8::from(flag)].into()),
            Value::Text(text) => (b't', text.into_owned().into_bytes().into()),
            Value::Bytes(bytes) => (b'b', bytes.into_owned().into()),
        };
        record.push(letter);
        record.extend((bytes.len() as u32).to_le_bytes());
        record.extend(bytes.as_ref());
    }
    record
}

/// A record that is read from the left. What a newer version wrote behind it is left alone.
struct Reading<'r>(&'r [u8]);

impl Source for Reading<'_> {
    type Error = StoreError;

    fn value(&mut self, column: &Column) -> Result<Value<'_>, StoreError> {
        let Some((&letter, rest)) = self.0.split_first().filter(|_| column.name != "result") else { return Ok(Value::Null) };
        let (length, rest) = rest.split_first_chunk().ok_or_else(|| odd("a claim that is cut"))?;
        let (value, rest) =
            rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(|| odd("a claim that is cut"))?;
        self.0 = rest;
        let text = || std::str::from_utf8(value).map_err(|_| odd("a claim whose text is none"));
        Ok(match letter {
            b'-' => Value::Null,
            b'i' => Value::Int(i64::from_le_bytes(value.try_into().map_err(|_| odd("a claim without its numbers"))?)),
            b'f' => Value::Bool(value == [1]),
            b't' => Value::Text(Cow::Borrowed(text()?)),
            _ => Value::Bytes(Cow::Borrowed(value)),
        })
    }

    /// Its kind is in the record and its bytes are not: the result is put together by hand.
    fn has_bodies(&self) -> bool {
        false
    }

    fn unreadable(&self, _: &Column) -> StoreError {
        odd("a claim that this version does not know")
    }
}

fn read_kept(record: &[u8], result: Option<Vec<u8>>) -> Result<Kept, StoreError> {
    let (head, fields) = record.split_at_checked(HEAD_BYTES).ok_or_else(|| odd("a claim without its head"))?;
    let mut reading = Reading(fields);
    let mut claim = ClaimRec::read(&mut reading)?;
    let kind = ClaimRec::FIELDS.iter().find(|field| field.column.name == "content_type");
    let content_type = match kind.map(|kind| reading.value(&kind.column)).transpose()? {
        Some(Value::Text(kind)) => kind.into_owned(),
        _ => String::new(),
    };
    claim.result = result.map(|bytes| ResultRec { content_type, bytes: Bytes::from(bytes) });
    Ok(Kept { version: head[..VERSION_BYTES].to_vec(), claim: claim.to_claim() })
}

fn read_all(rows: Row) -> Result<Vec<Claim>, StoreError> {
    let read = |mut row: Row| Ok(read_kept(&row.bytes()?, row.maybe_bytes()?)?.claim);
    rows.rows().map(|row| read(row?)).collect()
}
