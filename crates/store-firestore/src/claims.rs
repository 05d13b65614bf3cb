//! Claims, a document each; what of a result finds no room in it stands in a piece. What becomes of one is decided in the steps.

use futures_util::future::{try_join, try_join3};
use hapax_domain::claim::{ClaimState, ShownState};
use hapax_domain::limits::CLAIM_GONE_KEPT_MS;
use hapax_store::claims::GONE;
use hapax_store::steps::Changes;
use hapax_store::steps::record::Record;
use hapax_store::steps::records::{ClaimRec, Hash};
use hapax_store::{After, ClaimCounts, ClaimQuery, Moved, StoreError};
use serde_json::json;

use super::client::Client;
use super::document::{InDocument, Shape, fields_of, name_of, read, read_with_body, split};
use super::load::whole_body;
use super::query::Query;
use super::tx::FirestoreTx;
use super::upkeep::delete_as_seen;
use super::value::{Doc, Fields, bytes, int, null, number, text, time};
use super::{FirestoreEngine, paths};

/// Documents looked at by one call of a list, when most of them are not wanted.
const LOOKED_AT: usize = 500;

impl InDocument for ClaimRec {
    const PLACES: &'static [(&'static str, &'static str, Shape)] =
        &[("hash", "", Shape::Id), ("ends_ms", "expires_at", Shape::Time), ("result", "result", Shape::Inline)];
}

fn plain() -> Vec<&'static str> {
    ClaimRec::plain_fields().iter().map(name_of).filter(|name| !name.is_empty()).collect()
}

pub(super) fn path(hash: &Hash) -> String {
    paths::hashed(paths::CLAIMS, hash)
}

/// A record with its whole result.
pub(super) async fn read_whole(client: &Client, doc: &Doc) -> Result<ClaimRec, StoreError> {
    let mut claim = read_with_body::<ClaimRec>(doc)?;
    if let Some(result) = &mut claim.result {
        result.bytes = whole_body(client, doc, std::mem::take(&mut result.bytes)).await?;
    }
    Ok(claim)
}

/// All fields, so that nothing of what was there before is left.
fn fields(claim: &ClaimRec) -> Fields {
    let fields = fields_of(claim);
    match &claim.result {
        Some(result) => fields.with("pieces", int(split(&result.bytes).1.len() as i64)),
        None => fields.with("content_type", null()).with("result", null()).with("pieces", int(0)),
    }
}

impl FirestoreTx {
    pub(super) fn save_claims(&mut self, changes: &Changes) {
        for claim in &changes.new_claims {
            self.writes.create(self.inner.client.name(&path(&claim.hash)), fields(claim));
            self.save_result(claim);
        }
        for claim in &changes.claims {
            self.remove_result(&claim.hash);
            self.writes.update(self.inner.client.name(&path(&claim.hash)), fields(claim));
            self.save_result(claim);
        }
        for hash in &changes.gone_claims {
            self.remove_result(hash);
            self.writes.delete(self.inner.client.name(&path(hash)));
        }
    }

    fn save_result(&mut self, claim: &ClaimRec) {
        let Some(result) = &claim.result else { return };
        for (index, piece) in split(&result.bytes).1.into_iter().enumerate() {
            let name = self.inner.client.name(&paths::piece(&path(&claim.hash), index));
            self.writes.forget(&name);
            self.writes.put(name, Fields::default().with("bytes", bytes(piece)));
        }
    }

    fn remove_result(&mut self, hash: &Hash) {
        for index in 0..self.read_set.claim_pieces.get(hash).copied().unwrap_or_default() {
            self.writes.delete(self.inner.client.name(&paths::piece(&path(hash), index)));
        }
    }
}

impl FirestoreEngine {
    pub(super) async fn claims_listed(&self, query: &ClaimQuery, now_ms: i64, limit: usize) -> Result<Vec<ClaimRec>, StoreError> {
        let state = query.state.map(|state| match state {
            ShownState::Held | ShownState::Abandoned => ClaimState::Held,
            ShownState::Completed => ClaimState::Completed,
            ShownState::Value => ClaimState::Value,
        });
        let wanted = |claim: &ClaimRec| {
            claim.ends_ms.is_none_or(|ends_ms| ends_ms > now_ms)
                && query.prefix.as_ref().is_none_or(|prefix| claim.key.starts_with(prefix))
                && query.state.is_none_or(|state| state == claim.to_claim().shown(now_ms))
        };
        let (mut rows, mut before) = (Vec::new(), query.before);
        loop {
            let page = Query::new(paths::CLAIMS)
                .equal_if("scope", query.scope.as_deref().map(text))
                .equal_if("state", state.map(|state| int(state.code().into())))
                .below("fence", before.map(number))
                .highest_first("fence")
                .only(&plain())
                .limit(LOOKED_AT);
            let page = self.read(page, read::<ClaimRec>).await?;
            let full = page.len() == LOOKED_AT;
            before = page.last().map(|last| last.fence);
            rows.extend(page.into_iter().filter(wanted));
            if !full || rows.len() >= limit {
                rows.truncate(limit);
                return Ok(rows);
            }
        }
    }

    pub(super) async fn claims_counted(&self, now_ms: i64) -> Result<ClaimCounts, StoreError> {
        let of = |state: ClaimState| Query::new(paths::CLAIMS).equal("state", int(state.code().into()));
        let client = &self.inner.client;
        let over = of(ClaimState::Held).at_most("until_ms", int(now_ms)).lowest_first("until_ms");
        let held = try_join(client.count(of(ClaimState::Held)), client.count(over));
        let values = of(ClaimState::Value).equal("token", text(""));
        let ((held, abandoned), completed, values) =
            try_join3(held, client.count(of(ClaimState::Completed)), client.count(values)).await?;
        Ok(ClaimCounts { held: held.saturating_sub(abandoned), abandoned, completed, values })
    }

    /// What was claimed anew meanwhile stays, and so do for a while the fences of those that were let go.
    pub(super) async fn claims_purged(&self, max: usize) -> Result<u64, StoreError> {
        let now_ms = self.clock_ms().await?;
        let over = Query::new(paths::CLAIMS).at_most("expires_at", time(now_ms)).lowest_first("expires_at");
        let mut over = self.inner.client.run(&over.only(&["pieces", "token", "claimed_ms"]).limit(max)).await?;
        let is_kept = |doc: &Doc| {
            let gone = doc.maybe_text("token").is_some_and(|token| token == GONE);
            gone && doc.maybe_int("claimed_ms").is_some_and(|gone_ms| gone_ms > now_ms - CLAIM_GONE_KEPT_MS)
        };
        over.retain(|doc| !is_kept(doc));
        let mut pieces = Vec::new();
        for doc in &over {
            let of = format!("{}/{}", paths::CLAIMS, doc.id());
            let count = doc.maybe_int("pieces").unwrap_or_default().max(0) as usize;
            pieces.extend((0..count).map(|index| json!({ "delete": self.inner.client.name(&paths::piece(&of, index)) })));
        }
        let removed = self.write_each(over.into_iter().map(delete_as_seen).collect()).await?;
        self.write_each(pieces).await?;
        Ok(removed)
    }

    pub(super) async fn dump_claims(&self, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, StoreError> {
        let behind = match after {
            Some(After::Hash(hash)) => Some(path(hash)),
            _ => None,
        };
        let page = self.by_name(paths::CLAIMS, behind.as_deref(), limit).only(&plain());
        self.read(page, |doc| Ok(Moved::Claim(Box::new(read(doc)?)))).await
    }
}
