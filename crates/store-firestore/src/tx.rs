//! One transaction: reads as it goes, writes all at once in one `:commit`, and only if what it has seen is still so.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::try_join;
use hapax_domain::{Priority, ids};
use hapax_store::steps::records::{ItemPlace, ItemRec, KeyRec, LaneRec, Queue, priority_code};
use hapax_store::steps::{Changes, Due, Loaded, Tx, TxError, Wanted};
use hapax_store::{PausedAccount, Redrive, StoreError};
use serde_json::{Value, json};

use super::adopt::Adoption;
use super::client::Fault;
use super::document::{fields_of, read};
use super::gate::Pass;
use super::load::load;
use super::numbers::lead_micros;
use super::query::Query;
use super::read_set::ReadSet;
use super::value::{Doc, Fields, flag, int, micros, number, text, time};
use super::writes::Writes;
use super::{FirestoreEngine, Inner, paths};

/// How long a transaction's own word is kept: much longer than any commit may take.
const NONCE_MS: i64 = 3_600_000;
/// How long the fate of a commit is asked for.
const DOUBT_PATIENCE: Duration = Duration::from_secs(5);
const DOUBT_WAIT: Duration = Duration::from_millis(100);
/// Lanes looked through for those whose accounts do not rest, at most.
const LANES_MAX: usize = 2_000;
const LANES_MORE: usize = 50;

pub struct FirestoreTx {
    pub(super) inner: Arc<Inner>,
    /// The document of a front end that the one new message of this transaction is made from.
    pub(super) adoption: Option<Arc<Adoption>>,
    pub(super) read_set: ReadSet,
    pub(super) writes: Writes,
    now_ms: i64,
    begun_micros: i64,
    pub(super) nonce: String,
    last_number: Option<u64>,
    /// Once they were asked for.
    paused: Option<Vec<PausedAccount>>,
    pass: Pass,
}

impl FirestoreTx {
    /// `now_ms` is the store's clock, `begun_micros` the server's.
    pub(super) fn new(engine: &FirestoreEngine, pass: Pass, read_set: ReadSet, (now_ms, begun_micros): (i64, i64)) -> Self {
        let nonce = hex::encode(rand::random::<[u8; 16]>());
        let (inner, adoption, writes) = (Arc::clone(&engine.inner), engine.adoption.clone(), Writes::default());
        Self { inner, adoption, read_set, writes, now_ms, begun_micros, nonce, last_number: None, paused: None, pass }
    }

    fn nonce_name(&self) -> String {
        self.inner.client.name(&format!("{}/{}", paths::NONCES, self.nonce))
    }

    /// With the word of who made it: the transaction, or the question what became of it.
    fn nonce_fields(&self, committed: bool) -> Fields {
        Fields::default().with("expires_at", time(self.begun_micros / 1_000 + NONCE_MS)).with("committed", flag(committed))
    }

    /// Adds to the writes what protects the decisions they rest on.
    ///
    /// A lane guards the line of what waits in it, so whoever saw a lane and writes anything changes it: somebody else who found its
    /// line empty, or its lowest to be another, comes to nothing. All other documents that count are checked to be as they were seen.
    fn guard(&mut self) {
        for lane in self.read_set.lanes.keys() {
            self.writes.touch(self.inner.client.name(&paths::hashed(paths::LANES, lane)), &self.nonce);
        }
        for name in std::mem::take(&mut self.read_set.locked) {
            self.writes.verify(name);
        }
        self.writes.create(self.nonce_name(), self.nonce_fields(true));
    }

    /// Asks what became of a commit without an answer: whoever makes the nonce's document first decides it.
    async fn resolve(&self, fault: Fault) -> Result<(), TxError> {
        let mut question = Writes::default();
        question.create(self.nonce_name(), self.nonce_fields(false));
        let body = question.commit(&HashMap::new())?;
        let begun = Instant::now();
        loop {
            let never = match self.inner.client.call("commit", &body).await {
                Ok(_) => Some(true),
                // The answer to an earlier question may have been lost as well.
                Err(answer) if answer.exists_already() => self.made_by_question().await,
                Err(_) => None,
            };
            match never {
                Some(true) => return Err(TxError::Failed(fault.error("a commit"))),
                Some(false) => return Ok(()),
                None if begun.elapsed() < DOUBT_PATIENCE => tokio::time::sleep(DOUBT_WAIT).await,
                None => return Err(TxError::Failed(fault.error("a commit of which nobody knows whether it was done"))),
            }
        }
    }

    async fn made_by_question(&self) -> Option<bool> {
        let got = self.inner.client.get(&[format!("{}/{}", paths::NONCES, self.nonce)], None).await.ok()?;
        Some(!got.docs.first()?.flag("committed"))
    }

    /// Ends only when the server's time is past the last number, so that who begins later gets higher ones.
    async fn outlast(&self, answer: &Value) {
        let ended = answer.get("commitTime").and_then(Value::as_str).and_then(micros);
        if let (Some(number), Some(ended)) = (self.last_number, ended) {
            let lead = lead_micros(number, ended);
            if lead > 0 {
                tokio::time::sleep(Duration::from_micros(lead)).await;
            }
        }
    }

    fn see_items(&mut self, docs: &[Doc]) -> Result<Vec<ItemRec>, StoreError> {
        docs.iter()
            .map(|doc| {
                self.read_set.saw(doc);
                read(doc)
            })
            .collect()
    }

    /// Lanes that may be taken now, those that are due longest; says how many it has asked for.
    fn due_first(&self, due: &Due<'_>) -> (Query, usize) {
        let enough = due.max + due.resting.len().min(LANES_MORE) + LANES_MORE;
        let by_time = lanes_of(due).at_most("due_ms", int(self.now_ms)).lowest_first("due_ms").limit(enough);
        (by_time, enough)
    }

    /// Lanes that may be taken now where there are more than one look shows: each priority by itself is exact.
    async fn find_lanes(&self, due: &Due<'_>, paused: &[String]) -> Result<Vec<Doc>, StoreError> {
        let enough = due.max + LANES_MORE;
        let mut found = Vec::new();
        for priority in Priority::ALL.into_iter().filter(|priority| due.queue == Queue::Outbox || *priority == Priority::Normal) {
            let of_priority = lanes_of(due).equal("priority", int(priority_code(priority).into()));
            let ordered = of_priority.at_most("due_ms", int(self.now_ms)).lowest_first("due_ms").lowest_first("first");
            let (mut behind, mut looked, mut taken) = (None, 0, 0);
            while looked < LANES_MAX && taken < due.max {
                let page = self.inner.client.run(&ordered.clone().behind(behind).limit(enough)).await?;
                let Some(last) = page.last() else { break };
                behind = Some(vec![int(last.int("due_ms")?), number(last.number("first")?)]);
                looked += page.len();
                let full = page.len() == enough;
                taken += page.iter().filter(|doc| !rests(doc, due, paused)).count();
                found.extend(page);
                if !full {
                    break;
                }
            }
        }
        Ok(found)
    }
}

fn lanes_of(due: &Due<'_>) -> Query {
    Query::new(paths::LANES).equal("queue", int(due.queue.code().into())).equal("channel", text(due.channel))
}

fn rests(lane: &Doc, due: &Due<'_>, paused: &[String]) -> bool {
    lane.maybe_text("account").is_some_and(|account| due.rests(&account) || paused.contains(&account))
}

#[async_trait]
impl Tx for FirestoreTx {
    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    fn number(&mut self) -> u64 {
        let number = self.inner.numbers.next(self.begun_micros);
        self.last_number = Some(number);
        number
    }

    /// Looks who holds the keys; that a free one is still free is checked by the commit.
    async fn claim(&mut self, keys: &[KeyRec]) -> Result<Vec<Option<KeyRec>>, TxError> {
        let key_paths: Vec<String> = keys.iter().map(|key| paths::hashed(paths::KEYS, &key.key)).collect();
        let got = self.read_set.get(&self.inner.client, &key_paths).await?;
        let known: HashMap<&str, &Doc> = got.docs.iter().map(|doc| (doc.id(), doc)).collect();
        let mut holders = Vec::with_capacity(keys.len());
        for (key, path) in keys.iter().zip(&key_paths) {
            let name = self.inner.client.name(path);
            let Some(doc) = known.get(hex::encode(key.key).as_str()) else {
                self.writes.create(name, fields_of(key));
                holders.push(None);
                continue;
            };
            let holder = read::<KeyRec>(doc)?;
            let over = holder.expires_ms <= self.now_ms;
            if over {
                self.read_set.saw(doc);
                self.writes.update(name, fields_of(key));
            }
            holders.push((!over).then_some(holder));
        }
        Ok(holders)
    }

    async fn load(&mut self, wanted: &Wanted) -> Result<Loaded, TxError> {
        Ok(load(&self.inner.client, wanted, &mut self.read_set).await?)
    }

    async fn due_lanes(&mut self, due: &Due<'_>) -> Result<Vec<LaneRec>, TxError> {
        let engine = FirestoreEngine::on(&self.inner);
        let (query, enough) = self.due_first(due);
        let mut found = if due.queue == Queue::Inbox || self.paused.is_some() {
            self.inner.client.run(&query).await?
        } else {
            let (found, paused) = try_join(self.inner.client.run(&query), engine.paused_accounts()).await?;
            self.paused = Some(paused);
            found
        };
        let paused = self.paused.iter().flatten().filter(|paused| paused.channel == due.channel);
        let paused: Vec<String> = paused.map(|paused| paused.account.clone()).collect();
        if found.len() == enough {
            found = self.find_lanes(due, &paused).await?;
        }
        let mut lanes = Vec::new();
        for doc in found.into_iter().filter(|doc| !rests(doc, due, &paused)) {
            lanes.push((read::<LaneRec>(&doc)?, doc));
        }
        lanes.sort_by_key(|(lane, _)| (lane.priority, lane.due_ms, lane.first));
        lanes.truncate(due.max);
        for (lane, doc) in &lanes {
            self.read_set.saw_lane(doc, lane);
        }
        Ok(lanes.into_iter().map(|(lane, _)| lane).collect())
    }

    async fn parked(&mut self, which: &Redrive, after: u64, max: usize) -> Result<Vec<ItemRec>, TxError> {
        let items = Query::new(paths::ITEMS).equal("place", int(ItemPlace::Parked.code().into())).limit(max);
        let by_number = items.clone().lowest_first("number").behind((after > 0).then(|| vec![number(after)]));
        let found = match which {
            Redrive::Item(id) => {
                let item = self.inner.client.get(&[paths::numbered(paths::ITEMS, ids::number_of(id.0))], None).await?.docs;
                let own: Vec<ItemRec> = self.see_items(&item)?;
                return Ok(own
                    .into_iter()
                    .filter(|item| item.place == ItemPlace::Parked && item.number > after && item.item_id() == *id)
                    .collect());
            }
            Redrive::Event(id) => by_number.contains("events", number(ids::number_of(id.0))),
            Redrive::Channel(channel) => by_number.equal("channel", text(channel)),
            Redrive::All => by_number,
        };
        let docs = self.inner.client.run(&found).await?;
        Ok(self.see_items(&docs)?)
    }

    async fn save(&mut self, changes: Changes) -> Result<(), TxError> {
        self.save_all(&changes).await?;
        Ok(())
    }

    async fn commit(mut self) -> Result<(), TxError> {
        if self.writes.is_empty() {
            return Ok(());
        }
        self.guard();
        let body = self.writes.commit(&self.read_set.times)?;
        match self.inner.client.call("commit", &body).await {
            Ok(answer) => {
                self.pass.went_well();
                self.outlast(&answer).await;
                Ok(())
            }
            Err(fault) if fault.in_doubt() => self.resolve(fault).await,
            Err(fault) if fault.crossed() => {
                // What the server had done and then tried again crosses itself: the nonce tells.
                if self.made_by_question().await == Some(false) {
                    return Ok(());
                }
                self.pass.crossed();
                Err(fault.trouble("a commit"))
            }
            Err(fault) => Err(fault.trouble("a commit")),
        }
    }
}

/// Sets one field of a document to the server's time, which proves that it can be written.
pub(super) fn stamp(name: &str) -> Value {
    let stamped = json!({ "fieldPath": "expires_at", "setToServerValue": "REQUEST_TIME" });
    json!({ "writes": [{ "update": { "name": name, "fields": {} }, "updateMask": {}, "updateTransforms": [stamped] }] })
}
