//! Messages that a front end writes straight into the outbox: found, and made into messages like any other, once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::load::outbox_path;
use super::query::Query;
use super::value::{Doc, Fields, flag, null, plain_json, text};
use super::writes::Writes;
use super::{FirestoreEngine, outbox_doc, paths};
use crate::domain::key::KeyHasher;
use crate::domain::limits::{MESSAGE_MAX_BYTES, NAME_MAX_BYTES, REQUEST_ID_MAX_BYTES};
use crate::domain::{Priority, Status};
use crate::store::steps::submit;
use crate::store::{NewMessage, StoreError, Submitted, ThreadQuery};

/// So often is looked for new documents.
const EVERY: Duration = Duration::from_secs(1);
/// Documents looked at each time. Those that hapax knows already are queued too, and cannot be left out of the query.
const PAGE: usize = 300;
/// Threads looked at to find the one channel of an account, or the one account of a channel.
const THREADS_MAX: usize = 20;

/// A document that becomes a message, as it was seen.
pub(super) struct Adoption {
    pub(super) path: String,
    pub(super) update_time: String,
}

impl FirestoreEngine {
    /// Looks for documents of front ends, unless that was done a moment ago, and takes them over. Any number of instances may do so at
    /// the same time: each document is taken over by one of them.
    pub(super) async fn adopt_new(&self) -> Result<(), StoreError> {
        let Ok(mut looked) = self.inner.looked.try_lock() else { return Ok(()) };
        if looked.at.is_some_and(|at| at.elapsed() < EVERY) {
            return Ok(());
        }
        looked.at = Some(Instant::now());
        let behind = looked.behind.take();
        let from = behind.map(|name| vec![serde_json::json!({ "referenceValue": name })]);
        let queued = Query::of(paths::OUTBOX).equal("status", text(Status::Queued.name()));
        let page = self.inner.client.run(&queued.lowest_first("__name__").behind(from).limit(PAGE)).await?;
        if page.len() == PAGE {
            looked.behind = page.last().map(|doc| doc.name.clone());
        }
        for doc in page.iter().filter(|doc| !doc.fields.contains_key("number")) {
            match self.adopt(doc).await {
                Err(error) if !error.retryable() => self.refuse(doc, &error.to_string()).await?,
                other => other?,
            }
        }
        Ok(())
    }

    async fn adopt(&self, doc: &Doc) -> Result<(), StoreError> {
        let submitted = match self.read_new(doc).await? {
            Ok(message) => {
                let adoption = Adoption { path: outbox_path(doc), update_time: doc.update_time.clone() };
                let engine = FirestoreEngine { inner: Arc::clone(&self.inner), adoption: Some(Arc::new(adoption)) };
                submit(&engine, message).await?
            }
            Err(why) => return self.refuse(doc, &why).await,
        };
        match submitted {
            Submitted::New(_) => Ok(()),
            // Another instance was faster, which has changed the document; or the request id was used before.
            Submitted::Replayed(_) | Submitted::Mismatch(_) => {
                self.refuse(doc, "the document's id was the request id of another message of this account").await
            }
        }
    }

    /// Says on the document why it is not sent, if it still is as it was seen.
    async fn refuse(&self, doc: &Doc, why: &str) -> Result<(), StoreError> {
        let failed = Fields::default()
            .with("status", text(Status::Failed.name()))
            .with("error", text(why))
            .with("open", flag(false))
            .with("nextAttemptAt", null());
        let mut refusal = Writes::default();
        refusal.update(doc.name.clone(), failed.and(outbox_doc::lease_fields(None)));
        let seen = HashMap::from([(doc.name.clone(), Some(doc.update_time.clone()))]);
        match self.inner.client.call("commit", &refusal.commit(&seen)?).await {
            Ok(_) => Ok(()),
            Err(fault) if fault.crossed() => Ok(()),
            Err(fault) => Err(fault.error("refusing a document of the outbox")),
        }
    }

    /// Reads what a front end wants sent, or says what is wrong with it.
    async fn read_new(&self, doc: &Doc) -> Result<Result<NewMessage, String>, StoreError> {
        let mut wish = match Wish::read(doc) {
            Ok(wish) => wish,
            Err(why) => return Ok(Err(why)),
        };
        let (channel, account) = match (wish.channel.clone(), wish.account.clone()) {
            (Some(channel), Some(account)) => (channel, account),
            (channel, account) => match self.complete(channel, account).await? {
                Ok(both) => both,
                Err(why) => return Ok(Err(why)),
            },
        };
        if let Some(spelling) = self.inner.spelling.get() {
            match spelling(&channel, &wish.to, &wish.payload) {
                Ok(peer) => wish.to = peer,
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(wish.message(doc, channel, account)))
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

/// A document's fields, checked.
struct Wish {
    channel: Option<String>,
    account: Option<String>,
    to: String,
    text: Option<String>,
    payload: Bytes,
    priority: Priority,
}

impl Wish {
    fn read(doc: &Doc) -> Result<Self, String> {
        let short = |what: &str, name: &String| match name.trim().is_empty() || name.len() > NAME_MAX_BYTES {
            true => Err(format!("`{what}` is empty or too long")),
            false => Ok(()),
        };
        let (channel, account) = (doc.maybe_text("channel"), doc.maybe_text("account"));
        let to = doc.maybe_text("to").or_else(|| doc.maybe_int("to").map(|to| to.to_string()));
        let to = to.ok_or("`to` is missing: say whom the message is for")?;
        for (what, name) in [("channel", channel.as_ref()), ("account", account.as_ref()), ("to", Some(&to))] {
            name.map_or(Ok(()), |name| short(what, name))?;
        }
        if channel.is_none() && account.is_none() {
            return Err("say with `channel` or `account` who sends".to_owned());
        }
        if doc.id().len() > REQUEST_ID_MAX_BYTES {
            return Err(format!("the document's id is the request id and has at most {REQUEST_ID_MAX_BYTES} bytes"));
        }
        let priority = match doc.maybe_text("priority") {
            None => Priority::Normal,
            Some(name) => Priority::from_name(&name).ok_or("there is no such `priority`; use reply, normal or bulk")?,
        };
        let (text, payload) = what_to_send(doc)?;
        Ok(Self { channel, account, to, text, payload, priority })
    }

    fn message(self, doc: &Doc, channel: String, account: String) -> NewMessage {
        let mut fingerprint = KeyHasher::new("outbox document");
        for part in [doc.name.as_bytes(), channel.as_bytes(), account.as_bytes(), self.to.as_bytes(), &self.payload] {
            fingerprint.part(part);
        }
        NewMessage {
            channel: channel.into(),
            account,
            peer: self.to,
            request_id: doc.id().to_owned(),
            fingerprint: fingerprint.finish(),
            text: self.text,
            payload: self.payload,
            priority: self.priority,
            reply_to: None,
            send_at_ms: None,
        }
    }
}

/// A text, or the provider's own request body as a map or as JSON in a text.
fn what_to_send(doc: &Doc) -> Result<(Option<String>, Bytes), String> {
    let payload = match doc.fields.get("payload").and_then(plain_json) {
        None | Some(serde_json::Value::Null) => None,
        Some(serde_json::Value::String(json)) => Some(json),
        Some(map) => Some(map.to_string()),
    };
    let (text, payload) = match (doc.maybe_text("text").filter(|text| !text.trim().is_empty()), payload) {
        (Some(text), None) => (Some(text.clone()), serde_json::json!({ "text": text }).to_string()),
        (text, Some(payload)) if payload.starts_with('{') => (text, payload),
        (_, Some(_)) => return Err("`payload` must be a map: the provider's own request body".to_owned()),
        (None, None) => return Err("say what to send with `text` or `payload`".to_owned()),
    };
    match payload.len() > MESSAGE_MAX_BYTES {
        true => Err(format!("the message is larger than {MESSAGE_MAX_BYTES} bytes")),
        false => Ok((text, payload.into())),
    }
}
