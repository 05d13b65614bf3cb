//! Settings, pauses, purging, counting and proofs of life.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{try_join, try_join_all};
use hapax_domain::age::Dated;
use hapax_store::steps::UPGRADING;
use hapax_store::steps::records::{EventRec, ItemPlace, Queue, name_hash};
use hapax_store::{ChannelCounts, Copies, Stats, StoreError};
use serde_json::{Value, json};

use super::client::Got;
use super::document::read;
use super::query::Query;
use super::tx::stamp;
use super::value::{Doc, Fields, flag, int, number, text, time};
use super::writes::Writes;
use super::{FirestoreEngine, SCHEMA, codec, paths};

/// A database that does not answer so long after the start is not there.
const OPEN_PATIENCE: Duration = Duration::from_secs(15);
const OPEN_WAIT: Duration = Duration::from_millis(200);
/// Pages of old names that one step looks through, when most of them are of messages that are still there.
const NAME_PAGES_MAX: usize = 20;
/// Writes of one `batchWrite`.
const BATCH_MAX: usize = 500;

/// What was changed meanwhile, such as a key that was claimed anew, stays.
pub(super) fn delete_as_seen(doc: Doc) -> Value {
    json!({ "delete": doc.name, "currentDocument": { "updateTime": doc.update_time } })
}

/// Adds to an event's counts of copies.
pub(super) fn counting(name: &str, copies: &Copies) -> Value {
    let mut transforms = vec![
        json!({ "fieldPath": "copies", "increment": number(copies.copies) }),
        json!({ "fieldPath": "conflicts", "increment": number(copies.conflicts) }),
        json!({ "fieldPath": "copied_ms", "maximum": int(copies.last_ms) }),
    ];
    if let Some(kept) = copies.kept {
        // An array, because nothing else is written without being read and overwrites nothing; its first counts.
        let values = json!({ "values": [{ "stringValue": kept.to_string() }] });
        transforms.push(json!({ "fieldPath": "kept", "appendMissingElements": values }));
    }
    json!({
        "update": { "name": name, "fields": {} },
        "updateMask": {},
        "updateTransforms": transforms,
        "currentDocument": { "exists": true },
    })
}

impl FirestoreEngine {
    /// The server's time in microseconds; refuses a database that a newer hapax has written.
    pub(super) async fn read_clock(&self) -> Result<i64, StoreError> {
        Ok(self.read_with_clock(Vec::new()).await?.read_micros)
    }

    /// Reads documents, and with them the server's time.
    pub(super) async fn read_with_clock(&self, mut paths: Vec<String>) -> Result<Got, StoreError> {
        paths.insert(0, format!("{}/schema", paths::SETTINGS));
        let got = self.inner.client.get(&paths, None).await?;
        let schema = self.inner.client.name(&paths[0]);
        let schema = got.docs.iter().find(|doc| doc.name == schema);
        let version = schema.and_then(|doc| doc.maybe_int("version")).unwrap_or(SCHEMA);
        if version > SCHEMA {
            return Err(StoreError::Refused(format!(
                "the database was written by a newer hapax (layout {version}; this one knows {SCHEMA}): use that one, or another database"
            )));
        }
        Ok(got)
    }

    /// Proves that the database is there and of our layout. One that is just starting is waited for.
    pub(super) async fn check_schema(&self) -> Result<(), StoreError> {
        let begun = Instant::now();
        loop {
            match self.settle_schema().await {
                Err(error) if error.retryable() && begun.elapsed() < OPEN_PATIENCE => {
                    tokio::time::sleep(OPEN_WAIT).await;
                }
                settled => return settled,
            }
        }
    }

    async fn settle_schema(&self) -> Result<(), StoreError> {
        let name = self.inner.client.name(&format!("{}/schema", paths::SETTINGS));
        let found = self.read_with_clock(Vec::new()).await?.docs.into_iter().find(|doc| doc.name == name);
        let mut schema = Writes::default();
        let fields = Fields::default().with("version", int(SCHEMA));
        match found.and_then(|doc| doc.maybe_int("version")) {
            None => {
                schema.create(name, fields);
                return self.create_once(&schema).await.map(|_| ());
            }
            Some(version) if version < SCHEMA => {
                self.amend_setting(UPGRADING, (None, Some("")), None).await?;
                schema.put(name, fields);
            }
            Some(_) => return Ok(()),
        }
        let body = schema.commit(&std::collections::HashMap::new())?;
        self.inner.client.call("commit", &body).await.map_err(|fault| fault.error("writing the layout down"))?;
        Ok(())
    }

    pub(super) async fn clock_ms(&self) -> Result<i64, StoreError> {
        match &self.inner.clock {
            Some(clock) => Ok(clock.now_ms()),
            None => Ok(self.read_clock().await? / 1_000),
        }
    }

    /// Makes a document, however often it is tried; false when it was there.
    pub(super) async fn create_once(&self, writes: &Writes) -> Result<bool, StoreError> {
        let body = writes.commit(&std::collections::HashMap::new())?;
        match self.inner.client.call("commit", &body).await {
            Ok(_) => Ok(true),
            Err(fault) if fault.exists_already() => Ok(false),
            Err(fault) => Err(fault.error("making a document")),
        }
    }

    pub(super) async fn pause_or_resume(&self, channel: &str, account: &str, why: Option<&str>) -> Result<(), StoreError> {
        let name = self.inner.client.name(&paths::hashed(paths::PAUSED, &name_hash(channel, account)));
        let Some(why) = why else {
            let mut resume = Writes::default();
            resume.delete(name);
            return self.ask_commit(&resume).await;
        };
        let mut pause = Writes::default();
        let since_ms = self.clock_ms().await?;
        let paused = Fields::default().with("channel", text(channel)).with("account", text(account)).with("why", text(why));
        pause.create(name.clone(), paused.with("since_ms", int(since_ms)));
        if self.create_once(&pause).await? {
            return Ok(());
        }
        let mut again = Writes::default();
        again.put(name, Fields::default().with("why", text(why)));
        self.ask_commit(&again).await
    }

    /// A commit that may be made twice without harm.
    pub(super) async fn ask_commit(&self, writes: &Writes) -> Result<(), StoreError> {
        let body = writes.commit(&std::collections::HashMap::new())?;
        self.inner.client.ask("a write", "commit", &body).await.map(|_| ())
    }

    /// Makes writes that do not depend on each other; returns how many were done. One that is refused keeps none of the others back.
    pub(super) async fn write_each(&self, writes: Vec<Value>) -> Result<u64, StoreError> {
        let mut done = 0;
        for writes in writes.chunks(BATCH_MAX) {
            let answer = self.inner.client.call("batchWrite", &json!({ "writes": writes })).await;
            let answer = answer.map_err(|fault| fault.error("writing documents"))?;
            let statuses = answer.get("status").and_then(Value::as_array);
            let fine = |status: &&Value| status.get("code").and_then(Value::as_i64).unwrap_or_default() == 0;
            done += statuses.into_iter().flatten().filter(fine).count() as u64;
        }
        Ok(done)
    }

    pub(super) async fn purge_expired(&self, max: usize) -> Result<u64, StoreError> {
        let over = |collection, now_ms: i64| {
            Query::new(collection).at_most("expires_at", time(now_ms)).lowest_first("expires_at").only(&["expires_at"]).limit(max)
        };
        let (now_ms, server_ms) = (self.clock_ms().await?, self.read_clock().await? / 1_000);
        let (keys, nonces) = (over(paths::KEYS, now_ms), over(paths::NONCES, server_ms));
        let (keys, nonces) = try_join(self.inner.client.run(&keys), self.inner.client.run(&nonces)).await?;
        let keys = self.write_each(keys.into_iter().map(delete_as_seen).collect()).await?;
        self.write_each(nonces.into_iter().map(delete_as_seen).collect()).await?;
        Ok(keys)
    }

    /// Removes old names that are nobody's. Those of messages that are still in the outbox are passed by.
    pub(super) async fn purge_old_names(&self, before_ms: i64, max: usize) -> Result<u64, StoreError> {
        let (mut removed, mut behind) = (0, None);
        for _ in 0..NAME_PAGES_MAX {
            let old = Query::new(paths::PROVIDER_NAMES).at_most("heard_ms", int(before_ms)).lowest_first("heard_ms");
            let page = self.inner.client.run(&old.lowest_first("__name__").behind(behind).limit(max)).await?;
            let named: Vec<u64> = page.iter().filter_map(|doc| doc.maybe_number("message")).collect();
            let there = Query::new(paths::OUTBOX).only(&["number"]);
            let there = self.inner.client.run_any(&there, "number", named.into_iter().map(number).collect()).await?;
            let there: HashSet<u64> = there.iter().filter_map(|doc| doc.maybe_number("number")).collect();
            let full = page.len() == max;
            behind = match page.last() {
                Some(last) => Some(vec![int(last.int("heard_ms")?), json!({ "referenceValue": last.name })]),
                None => None,
            };
            let nobodys = |doc: &Doc| doc.maybe_number("message").is_none_or(|message| !there.contains(&message));
            removed += self.write_each(page.into_iter().filter(nobodys).map(delete_as_seen).collect()).await?;
            if !full || removed as usize >= max {
                break;
            }
        }
        Ok(removed)
    }

    pub(super) async fn carriers_after(&self, after: u64, max: usize) -> Result<Vec<Dated>, StoreError> {
        let carriers = Query::new(paths::EVENTS).equal("carrier", flag(true)).above("number", Some(number(after)));
        let carriers = carriers.lowest_first("number").only(&["number", "received_ms"]).limit(max);
        let found = self.inner.client.run(&carriers).await?;
        found.iter().map(|doc| Ok(Dated { number: doc.number("number")?, at_ms: doc.int("received_ms")? })).collect()
    }

    pub(super) async fn events_of_webhooks(&self, webhooks: &[u64]) -> Result<Vec<EventRec>, StoreError> {
        let wanted = webhooks.iter().map(|webhook| number(*webhook)).collect();
        let events = self.inner.client.run_any(&Query::new(paths::EVENTS).only(codec::plain_event()), "webhook", wanted).await?;
        let mut events = events.iter().map(read::<EventRec>).collect::<Result<Vec<_>, _>>()?;
        events.sort_by_key(|event| (event.webhook, event.number));
        Ok(events)
    }

    pub(super) async fn ended_after(&self, after: u64, max: usize) -> Result<Vec<Dated>, StoreError> {
        let ended = Query::new(paths::OUTBOX).equal("open", flag(false)).above("number", Some(number(after)));
        let found = self.inner.client.run(&ended.lowest_first("number").only(&["number", "createdAt"]).limit(max)).await?;
        // One that somebody else has written over is passed by.
        let dated = |doc: &Doc| Some(Dated { number: doc.maybe_number("number")?, at_ms: doc.maybe_time("createdAt")? });
        Ok(found.iter().filter_map(dated).collect())
    }

    pub(super) async fn count_all(&self) -> Result<Stats, StoreError> {
        let client = &self.inner.client;
        let open = |unknown| client.count(Query::new(paths::OUTBOX).equal("open", flag(true)).equal("unknown", flag(unknown)));
        let (keys, events) = try_join(client.count(Query::new(paths::KEYS)), client.count(Query::new(paths::EVENTS))).await?;
        let (waiting, unknown) = try_join(open(false), open(true)).await?;
        let channels = try_join_all(self.channels().await?.into_iter().map(|channel| self.count_channel(channel))).await?;
        Ok(Stats { keys, events, channels, outbox_waiting: waiting, outbox_unknown: unknown, ..Stats::default() })
    }

    /// Channels that have items, in order, each found behind the one before.
    async fn channels(&self) -> Result<Vec<String>, StoreError> {
        let mut channels: Vec<String> = Vec::new();
        loop {
            let behind = channels.last().map(|last| text(last));
            let next = Query::new(paths::ITEMS).above("channel", behind).lowest_first("channel").only(&["channel"]).limit(1);
            match self.inner.client.run(&next).await?.first() {
                Some(doc) => channels.push(doc.text("channel")?),
                None => return Ok(channels),
            }
        }
    }

    async fn count_channel(&self, channel: String) -> Result<ChannelCounts, StoreError> {
        let client = &self.inner.client;
        let at =
            |place: ItemPlace| Query::new(paths::ITEMS).equal("channel", text(&channel)).equal("place", int(place.code().into()));
        let lanes = Query::new(paths::LANES).equal("queue", int(Queue::Inbox.code().into())).equal("channel", text(&channel));
        let leased = lanes.equal("leased", flag(true));
        let (waiting, leased) = try_join(client.count(at(ItemPlace::InLane)), client.count(leased)).await?;
        let (parked, quarantined) =
            try_join(client.count(at(ItemPlace::Parked)), client.count(at(ItemPlace::Quarantined))).await?;
        let oldest = client.run(&at(ItemPlace::InLane).lowest_first("received_ms").only(&["received_ms"]).limit(1)).await?;
        let oldest_ms = oldest.first().map(|doc| doc.int("received_ms")).transpose()?;
        Ok(ChannelCounts { channel, waiting: waiting.saturating_sub(leased), leased, parked, quarantined, oldest_ms })
    }

    /// Writes a document of this instance's own: several instances proving their life must not wait for each other.
    pub(super) async fn prove(&self) -> Result<(), StoreError> {
        let name = self.inner.client.name(&format!("{}/ping-{:016x}", paths::NONCES, self.inner.instance));
        self.inner.client.ask("a proof of life", "commit", &stamp(&name)).await.map(|_| ())
    }

    pub(super) fn hint(&self) -> Arc<tokio::sync::Notify> {
        Arc::clone(&self.inner.work)
    }
}
