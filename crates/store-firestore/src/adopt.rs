//! Messages that a front end writes straight into the outbox: found, and made into messages like any other, once.
//!
//! A task of its own does this, beside all other work: whatever stands in such a document, nothing but the document itself waits for it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hapax_domain::Status;
use hapax_store::steps::records::request_hash;
use hapax_store::steps::{Engine, rejoin, submit};
use hapax_store::{NewMessage, StoreError, Submitted, ThreadQuery, Unspelt};
use serde_json::{Value, json};

use super::document::read;
use super::load::outbox_path;
use super::mend;
use super::outbox_request::OutboxRequest;
use super::query::Query;
use super::value::{Doc, Fields, flag, micros, null, text, time};
use super::writes::Writes;
use super::{FirestoreEngine, Inner, outbox_doc, paths};

/// So often is looked for new documents.
const EVERY: Duration = Duration::from_secs(1);
/// Documents of one look. Those that hapax knows already are queued too, and cannot be left out of the query.
const PAGE: usize = 300;
/// Looks at what was written last, each time.
const PAGES_MAX: usize = 10;
/// A document may be seen so much later than others that were written after it.
const LATE_MS: i64 = 10_000;
/// Threads looked at to find the one channel of an account, or the one account of a channel.
const THREADS_MAX: usize = 20;

/// A document that becomes a message, as it was seen.
pub(super) struct Adoption {
    pub(super) path: String,
    pub(super) update_time: String,
}

/// How far was looked.
#[derive(Default)]
struct Looked {
    /// Of those in the order of `createdAt`: where the next look begins.
    written_after: Option<Value>,
    /// Of all, in the order of their names: the last document of the page before, when there are more.
    behind: Option<String>,
    /// The last trouble, which is told once.
    trouble: String,
}

/// What became of a document.
enum Taken {
    Adopted,
    Refused,
    /// It is left as it is, for now.
    Left,
}

/// Looks for documents until the store is gone.
pub(super) async fn keep_adopting(inner: Weak<Inner>) {
    let mut looked = Looked::default();
    loop {
        match inner.upgrade() {
            Some(inner) => FirestoreEngine::on(&inner).adopt_new(&mut looked).await,
            None => return,
        }
        tokio::time::sleep(EVERY).await;
    }
}

impl FirestoreEngine {
    /// Takes over the documents of front ends that are there, oldest first. Any number of instances may do so at the same time: each
    /// document is taken over by one of them.
    async fn adopt_new(&self, looked: &mut Looked) {
        let mut trouble = String::new();
        let mut found = Vec::new();
        for page in [self.written_lately(looked).await, self.next_by_name(looked).await] {
            match page {
                Ok(page) => found.extend(page),
                Err(error) => trouble = error.to_string(),
            }
        }
        let mut names = HashSet::new();
        found.retain(|doc: &Doc| names.insert(doc.name.clone()));
        let (known, mut new): (Vec<Doc>, Vec<Doc>) = found.into_iter().partition(|doc| doc.has("number"));
        for doc in &known {
            if let Err(error) = self.correct(doc).await {
                trouble = error.to_string();
            }
        }
        new.sort_by_cached_key(|doc| (written_micros(doc), created_micros(doc), doc.name.clone()));
        // What comes behind one that could not be taken over in the same thread must not overtake it.
        let mut held: HashSet<[Option<String>; 3]> = HashSet::new();
        for doc in &new {
            let thread = ["channel", "account", "to"].map(|field| doc.maybe_text(field));
            if held.contains(&thread) {
                continue;
            }
            match self.take(doc).await {
                Ok(Taken::Adopted) => self.wake(),
                Ok(Taken::Refused | Taken::Left) => {}
                Err(error) => {
                    held.insert(thread);
                    trouble = error.to_string();
                }
            }
        }
        if looked.trouble != trouble {
            if !trouble.is_empty() {
                tracing::warn!(error = %trouble, "documents of front ends wait: some cannot be taken over now");
            }
            looked.trouble = trouble;
        }
    }

    /// Those that were written since the last look, and a little before, in the order of `createdAt`.
    async fn written_lately(&self, looked: &mut Looked) -> Result<Vec<Doc>, StoreError> {
        let queued = Query::new(paths::OUTBOX).equal("status", text(Status::Queued.name()));
        let mut found: Vec<Doc> = Vec::new();
        let (mut behind, mut last_micros) = (None, None);
        for _ in 0..PAGES_MAX {
            let ordered = queued.clone().above("createdAt", looked.written_after.clone()).lowest_first("createdAt");
            let page = self.inner.client.run(&ordered.lowest_first("__name__").behind(behind.take()).limit(PAGE)).await?;
            let full = page.len() == PAGE;
            // A time that somebody made up may be far ahead: the server's own is not.
            last_micros = page.iter().map(written_micros).max().max(last_micros);
            behind = page.last().and_then(|last| Some(vec![last.fields.get("createdAt")?.clone(), reference(&last.name)]));
            found.extend(page);
            if !full || behind.is_none() {
                break;
            }
        }
        if let Some(last) = last_micros {
            looked.written_after = Some(time(last / 1_000 - LATE_MS));
        }
        Ok(found)
    }

    /// The next page of all, whatever their fields.
    async fn next_by_name(&self, looked: &mut Looked) -> Result<Vec<Doc>, StoreError> {
        let from = looked.behind.take().map(|name| vec![reference(&name)]);
        let queued = Query::new(paths::OUTBOX).equal("status", text(Status::Queued.name()));
        let page = self.inner.client.run(&queued.lowest_first("__name__").behind(from).limit(PAGE)).await?;
        if page.len() == PAGE {
            looked.behind = page.last().map(|doc| doc.name.clone());
        }
        Ok(page)
    }

    /// Makes a document that hapax has taken over, and that says `queued`, say the truth again.
    async fn correct(&self, doc: &Doc) -> Result<(), StoreError> {
        if !mend::is_whole(doc) {
            return match self.make_whole(doc).await? {
                true => Ok(()),
                false => self.refuse(doc, "it has fields that only hapax writes, and no message was made from it").await,
            };
        }
        let truth = outbox_doc::progress_fields(&read(doc)?);
        if truth.0.get("status") == doc.fields.get("status") {
            return Ok(());
        }
        self.write_as_seen(doc, truth).await
    }

    /// Makes a document again that a message was made of, and puts the message back in line if it has lost its place. False: none was.
    async fn make_whole(&self, doc: &Doc) -> Result<bool, StoreError> {
        let Some(mended) = mend::mend(&self.inner.client, doc).await? else { return Ok(false) };
        let now = self.inner.client.get(&[outbox_path(doc)], None).await?;
        // Another instance may have taken it over, or mended it, meanwhile.
        if now.docs.iter().any(|doc| !mend::is_whole(doc)) {
            rejoin(self, mended.doc.number("number")?).await?;
            self.wake();
        }
        Ok(true)
    }

    async fn take(&self, doc: &Doc) -> Result<Taken, StoreError> {
        if self.make_whole(doc).await? {
            // Written a second time: the first one counts.
            return Ok(Taken::Left);
        }
        let message = match self.read_new(doc).await? {
            Ok(message) => message,
            Err(Unspelt::NotHere) => return self.leave_unknown(doc).await,
            Err(Unspelt::Wrong(why)) => return self.refuse(doc, &why).await.map(|()| Taken::Refused),
        };
        match self.adopt(doc, message).await {
            Err(error) if !error.retryable() => self.refuse(doc, &error.to_string()).await.map(|()| Taken::Refused),
            other => other,
        }
    }

    async fn adopt(&self, doc: &Doc, message: NewMessage) -> Result<Taken, StoreError> {
        let request = paths::hashed(paths::REQUESTS, &request_hash(&message.account, &message.request_id));
        if !self.inner.client.get(&[request], None).await?.docs.is_empty() {
            let why = "the document's id was the request id of another message of this account";
            return self.refuse(doc, why).await.map(|()| Taken::Refused);
        }
        let adoption = Adoption { path: outbox_path(doc), update_time: doc.update_time.clone() };
        let engine = FirestoreEngine { inner: Arc::clone(&self.inner), adoption: Some(Arc::new(adoption)) };
        match submit(&engine, message).await? {
            Submitted::New(_) => Ok(Taken::Adopted),
            // Another instance was faster, and has changed the document.
            Submitted::Replayed(_) | Submitted::Mismatch(_) => Ok(Taken::Left),
        }
    }

    /// Says on the document that nobody here has its channel. An instance that has takes it over.
    async fn leave_unknown(&self, doc: &Doc) -> Result<Taken, StoreError> {
        let channel = doc.maybe_text("channel").or_else(|| doc.maybe_text("account")).unwrap_or_default();
        let why = format!("channel `{channel}` is not configured, or cannot send; it waits until one that runs can");
        if doc.maybe_text("error").as_ref() != Some(&why) {
            self.write_as_seen(doc, Fields::default().with("error", text(&why))).await?;
        }
        Ok(Taken::Left)
    }

    /// Says on the document why it is not sent, if it still is as it was seen.
    async fn refuse(&self, doc: &Doc, why: &str) -> Result<(), StoreError> {
        let failed = Fields::default()
            .with("status", text(Status::Failed.name()))
            .with("error", text(why))
            .with("open", flag(false))
            .with("number", null())
            .with("inLine", flag(false))
            .with("begun", flag(false))
            .with("unknown", flag(false))
            .with("nextAttemptAt", null());
        self.write_as_seen(doc, failed.and(outbox_doc::lease_fields(None))).await
    }

    /// Changes the document if it still is as it was seen; else somebody else has, and it is looked at again.
    async fn write_as_seen(&self, doc: &Doc, fields: Fields) -> Result<(), StoreError> {
        let mut change = Writes::default();
        change.update(doc.name.clone(), fields);
        let seen = HashMap::from([(doc.name.clone(), Some(doc.update_time.clone()))]);
        match self.inner.client.call("commit", &change.commit(&seen)?).await {
            Ok(_) => Ok(()),
            Err(fault) if fault.crossed() => Ok(()),
            Err(fault) => Err(fault.error("changing a document of the outbox")),
        }
    }

    /// Reads what a front end wants sent, or says what is wrong with it.
    async fn read_new(&self, doc: &Doc) -> Result<Result<NewMessage, Unspelt>, StoreError> {
        let wrong = |why| Ok(Err(Unspelt::Wrong(why)));
        // The server's time at which it was written is near enough.
        let mut request = match OutboxRequest::read(doc, created_micros(doc) / 1_000) {
            Ok(request) => request,
            Err(why) => return wrong(why),
        };
        let (channel, account) = match (request.channel.clone(), request.account.clone()) {
            (Some(channel), Some(account)) => (channel, account),
            (channel, account) => match self.complete(channel, account).await? {
                Ok(both) => both,
                Err(why) => return wrong(why),
            },
        };
        let Some(spelling) = self.inner.spelling.get() else { return Ok(Err(Unspelt::NotHere)) };
        match spelling(&channel, &request.to, request.draft.payload.as_bytes()) {
            Ok(peer) => request.to = peer,
            Err(unspelt) => return Ok(Err(unspelt)),
        }
        Ok(Ok(request.message(doc, channel, account)))
    }

    /// Finds the account of a channel, or the channel of an account, by who has talked there. A channel where nobody has talked yet
    /// is its own account, as Telegram's bots are.
    async fn complete(
        &self,
        channel: Option<String>,
        account: Option<String>,
    ) -> Result<Result<(String, String), String>, StoreError> {
        let query = ThreadQuery { channel: channel.clone(), account: account.clone(), ..ThreadQuery::default() };
        let mut found: Vec<(String, String)> =
            self.threads(&query, THREADS_MAX).await?.into_iter().map(|thread| (thread.channel, thread.account)).collect();
        found.sort_unstable();
        found.dedup();
        Ok(match (found.as_slice(), channel, account) {
            ([both], _, _) => Ok(both.clone()),
            ([], Some(channel), None) => Ok((channel.clone(), channel)),
            (_, Some(channel), _) => Err(format!("channel `{channel}` has several accounts: say which with `account`")),
            (_, None, Some(account)) => {
                Err(format!("account `{account}` is in no channel that is known, or in several: name the `channel`"))
            }
            (_, None, None) => Err("say with `channel` or `account` who sends".to_owned()),
        })
    }
}

fn reference(name: &str) -> Value {
    json!({ "referenceValue": name })
}

fn created_micros(doc: &Doc) -> i64 {
    micros(&doc.create_time).unwrap_or_default()
}

/// When it was written: what the rules make front ends say, unless that is later than the server knows.
fn written_micros(doc: &Doc) -> i64 {
    let said = doc.fields.get("createdAt").and_then(|at| at.get("timestampValue")).and_then(Value::as_str).and_then(micros);
    said.unwrap_or(i64::MAX).min(created_micros(doc))
}
