//! Whole collections in pages, to be moved to another store; and the little that an import needs beside the steps.

use std::time::Duration;

use hapax_store::steps::records::{AnswerRec, name_hash};
use hapax_store::{After, Moved, PausedAccount, StoreError, Table};
use serde_json::{Value, json};

use super::document::read;
use super::numbers::lead_micros;
use super::query::Query;
use super::registers::{read_register, setting_path};
use super::value::{Doc, Fields, hash, int, number, text};
use super::writes::Writes;
use super::{FirestoreEngine, codec, paths};

/// Numbers of another store that are ahead of the server's clock by more are not waited for.
const LEAD_MAX: Duration = Duration::from_secs(5);
/// Events looked at at once for those that were copied.
const COPIES_PAGE: usize = 300;

impl FirestoreEngine {
    pub(super) async fn dump_page(&self, table: Table, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, StoreError> {
        match table {
            Table::Keys => self.by_hash(paths::KEYS, after, limit, |doc| Ok(Moved::Key(read(doc)?))).await,
            Table::Names => {
                let read = |doc: &Doc| Ok(Moved::Name(read(doc)?));
                self.by_hash(paths::NAMES, after, limit, read).await
            }
            Table::ProviderNames => {
                let read = |doc: &Doc| Ok(Moved::ProviderName(read(doc)?));
                self.by_hash(paths::PROVIDER_NAMES, after, limit, read).await
            }
            Table::Threads => {
                let behind = match after {
                    Some(After::Hash(thread)) => Some(vec![hash(thread)]),
                    _ => None,
                };
                let threads = Query::new(paths::THREADS).lowest_first("hash").behind(behind).limit(limit);
                self.read(threads, |doc| Ok(Moved::Thread(read(doc)?))).await
            }
            Table::Events => {
                let events = by_number(paths::EVENTS, after, limit).only(codec::plain_event());
                self.read(events, |doc| Ok(Moved::Event(read(doc)?))).await
            }
            Table::Messages => {
                let docs = self.outbox_docs(by_number(paths::OUTBOX, after, limit), limit).await?;
                docs.iter().map(|doc| Ok(Moved::Message(read(doc)?))).collect()
            }
            Table::Copies => self.dump_copies(after, limit).await,
            Table::Answers => self.dump_answers(after, limit).await,
            Table::Attempts => {
                let behind = match after {
                    Some(After::Attempt(queue, of, fence)) => Some(codec::attempt_path_of(*queue, *of, *fence)),
                    _ => None,
                };
                let read = |doc: &Doc| Ok(Moved::Attempt(read(doc)?));
                self.read(self.by_name(paths::ATTEMPTS, behind.as_deref(), limit), read).await
            }
            Table::Settings => {
                // The layout's version is a document without a name.
                let behind = match after {
                    Some(After::Setting(name)) => Some(vec![text(name)]),
                    _ => None,
                };
                let settings = Query::new(paths::SETTINGS).lowest_first("name").behind(behind).limit(limit);
                let read = |doc: &Doc| Ok(Moved::Setting { name: doc.text("name")?, register: read_register(doc)? });
                self.read(settings, read).await
            }
            Table::Claims => self.dump_claims(after, limit).await,
            Table::Pieces => self.dump_files(after, limit).await,
            Table::Paused | Table::Items | Table::Outs => Ok(Vec::new()),
        }
    }

    /// In the order of the documents' names, behind this path.
    pub(super) fn by_name(&self, collection: &'static str, behind: Option<&str>, limit: usize) -> Query {
        let behind = behind.map(|path| vec![json!({ "referenceValue": self.inner.client.name(path) })]);
        Query::new(collection).lowest_first("__name__").behind(behind).limit(limit)
    }

    async fn by_hash(
        &self,
        collection: &'static str,
        after: Option<&After>,
        limit: usize,
        read: impl Fn(&Doc) -> Result<Moved, StoreError>,
    ) -> Result<Vec<Moved>, StoreError> {
        let behind = match after {
            Some(After::Hash(hash)) => Some(paths::hashed(collection, hash)),
            Some(After::Name(Some((account, name)))) => Some(paths::hashed(collection, &name_hash(account, name))),
            _ => None,
        };
        self.read(self.by_name(collection, behind.as_deref(), limit), read).await
    }

    /// Counts stand on the events, of which few were copied: all are looked through.
    async fn dump_copies(&self, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, StoreError> {
        let mut after = after.cloned();
        let mut copies = Vec::new();
        loop {
            let events = by_number(paths::EVENTS, after.as_ref(), COPIES_PAGE).only(codec::plain_event());
            let page = self.inner.client.run(&events).await?;
            for doc in &page {
                copies.extend(codec::read_copies(doc)?.map(Moved::Copies));
            }
            copies.truncate(limit);
            match page.last() {
                Some(last) if page.len() == COPIES_PAGE && copies.len() < limit => {
                    after = Some(After::Number(last.number("number")?));
                }
                _ => return Ok(copies),
            }
        }
    }

    async fn dump_answers(&self, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, StoreError> {
        let behind = match after {
            Some(After::Number(event)) => Some(paths::numbered(paths::ANSWERS, *event)),
            _ => None,
        };
        let mut answers = Vec::new();
        for doc in self.inner.client.run(&self.by_name(paths::ANSWERS, behind.as_deref(), limit)).await? {
            let mut kept: AnswerRec = read(&doc)?;
            kept.answer.body = super::load::whole_body(&self.inner.client, &doc, kept.answer.body).await?;
            answers.push(Moved::Answer(kept));
        }
        Ok(answers)
    }

    pub(super) async fn put_pause(&self, paused: &PausedAccount) -> Result<(), StoreError> {
        let PausedAccount { channel, account, why, since_ms } = paused;
        let name = self.inner.client.name(&paths::hashed(paths::PAUSED, &name_hash(channel, account)));
        let fields = Fields::default().with("channel", text(channel)).with("account", text(account)).with("why", text(why));
        let mut pause = Writes::default();
        pause.put(name, fields.with("since_ms", int(*since_ms)));
        self.ask_commit(&pause).await
    }

    pub(super) async fn forget_setting(&self, name: &str) -> Result<(), StoreError> {
        let mut forget = Writes::default();
        forget.delete(self.inner.client.name(&setting_path(name)));
        self.ask_commit(&forget).await
    }

    /// Numbers are made of the server's time: those of other stores are below it, unless they come from a Firestore whose clock is ahead.
    pub(super) async fn outgrow(&self, above: u64) -> Result<(), StoreError> {
        let lead = Duration::from_micros(lead_micros(above, self.read_clock().await?));
        if lead > LEAD_MAX {
            return Err(StoreError::Refused(format!(
                "the other store's numbers are {} s ahead of Firestore's clock, by which new ones are made; import again after that",
                lead.as_secs()
            )));
        }
        if !lead.is_zero() {
            tokio::time::sleep(lead).await;
        }
        Ok(())
    }
}

fn by_number(collection: &'static str, after: Option<&After>, limit: usize) -> Query {
    let after: Option<Value> = match after {
        Some(After::Number(after)) => Some(number(*after)),
        _ => None,
    };
    Query::new(collection).above("number", after).lowest_first("number").limit(limit)
}
