//! What a transaction has seen, and what it expects to see.

use std::collections::{BTreeSet, HashMap};

use hapax_store::steps::First;
use hapax_store::steps::records::{Hash, LaneRec, name_hash, request_hash, thread_hash};
use hapax_store::{StoreError, asked_request_id};

use super::client::{Client, Got};
use super::load::outbox_path;
use super::mend::Mended;
use super::paths;
use super::value::{Doc, Fields};

/// Where a message's documents are.
#[derive(Clone, Debug)]
pub(super) struct MessagePlace {
    /// The path of its document in the outbox.
    pub(super) path: String,
    /// The document of its thread; `None` when only the lane has told where it is.
    pub(super) thread_doc: Option<String>,
}

/// All that a transaction has seen: what it writes is only written if that is still so.
#[derive(Default)]
pub(super) struct ReadSet {
    /// By name: when it was last changed, or `None` when it was not there.
    pub(super) times: HashMap<String, Option<String>>,
    pub(super) lanes: HashMap<Hash, LaneRec>,
    pub(super) messages: HashMap<u64, MessagePlace>,
    /// Ids of the documents of threads.
    pub(super) threads: HashMap<Hash, String>,
    /// How many pieces the results of claims have beside their documents.
    pub(super) claim_pieces: HashMap<Hash, usize>,
    /// Names of documents other than lanes that must not change until the end.
    pub(super) locked: Vec<String>,
    /// Documents that somebody else has written over, by name, as they should be.
    pub(super) mended: Vec<(String, Fields)>,
    /// Documents that were read with the clock, by name; `None`: it was not there.
    ahead: HashMap<String, Option<Doc>>,
    /// What the document of a thread is called, whether it is there or not.
    thread_docs: HashMap<Hash, String>,
    /// What the document of a request's message is most likely called.
    request_docs: HashMap<Hash, String>,
}

impl ReadSet {
    /// The paths of what a step will look at.
    pub(super) fn expect(&mut self, first: &First) -> Vec<String> {
        let mut expected: BTreeSet<String> = BTreeSet::new();
        expected.extend(first.keys.iter().map(|key| paths::hashed(paths::KEYS, key)));
        expected.extend(first.lanes.iter().map(|lane| paths::hashed(paths::LANES, lane)));
        expected.extend(first.claims.iter().map(|claim| paths::hashed(paths::CLAIMS, claim)));
        for (account, name) in &first.names {
            expected.insert(paths::hashed(paths::NAMES, &name_hash(account, name)));
        }
        for (account, peer) in &first.threads {
            expected.insert(self.know_thread(account, peer));
        }
        for (account, request_id) in &first.requests {
            let request = request_hash(account, request_id);
            let [likely, ..] = paths::outbox_doc_ids(account, request_id, &request);
            let likely = format!("{}/{likely}", paths::OUTBOX);
            expected.insert(paths::hashed(paths::REQUESTS, &request));
            // One that is kept apart is rare: its document is read when it is there.
            if *asked_request_id(request_id) == **request_id {
                expected.insert(likely.clone());
            }
            self.request_docs.insert(request, likely);
        }
        expected.into_iter().collect()
    }

    pub(super) fn fetched(&mut self, got: Got) {
        self.ahead.extend(got.docs.into_iter().map(|doc| (doc.name.clone(), Some(doc))));
        self.ahead.extend(got.missing.into_iter().map(|name| (name, None)));
    }

    /// Looks up documents by path, and asks only for those that were not read ahead.
    pub(super) async fn get(&self, client: &Client, paths: &[String]) -> Result<Got, StoreError> {
        let mut unknown = Vec::new();
        let mut known = Got { docs: vec![], missing: vec![], read_micros: 0 };
        for path in paths {
            let name = client.name(path);
            match self.ahead.get(&name) {
                Some(Some(doc)) => known.docs.push(doc.clone()),
                Some(None) => known.missing.push(name),
                None => unknown.push(path.clone()),
            }
        }
        let got = client.get(&unknown, None).await?;
        known.docs.extend(got.docs);
        known.missing.extend(got.missing);
        Ok(known)
    }

    /// Takes note of how a thread's document is called; gives its path.
    pub(super) fn know_thread(&mut self, account: &str, peer: &str) -> String {
        let id = self.thread_docs.entry(thread_hash(account, peer)).or_insert_with(|| paths::thread_doc_id(account, peer));
        format!("{}/{id}", paths::THREADS)
    }

    /// The path of a thread's document, if it is known how it is called.
    pub(super) fn thread_path(&self, thread: &Hash) -> Option<String> {
        self.thread_docs.get(thread).map(|id| format!("{}/{id}", paths::THREADS))
    }

    /// Takes note of where a request's message is, if its document was read ahead.
    pub(super) fn know_request(&mut self, client: &Client, request: &Hash, number: u64) {
        let Some(path) = self.request_docs.get(request) else { return };
        let doc = self.ahead.get(&client.name(path)).and_then(Option::as_ref);
        if doc.is_some_and(|doc| doc.maybe_number("number") == Some(number)) {
            self.messages.entry(number).or_insert(MessagePlace { path: path.clone(), thread_doc: None });
        }
    }

    /// Takes note of what a document should say; gives it as if it said so.
    pub(super) fn mend(&mut self, mended: Mended) -> Doc {
        tracing::warn!(
            document = mended.doc.id(),
            "a document of the outbox was written over by somebody else; it is read as it should be"
        );
        self.mended.push((mended.doc.name.clone(), mended.fields()));
        mended.doc
    }

    /// The first sight counts: what was decided rests on it.
    pub(super) fn saw(&mut self, doc: &Doc) {
        self.times.entry(doc.name.clone()).or_insert_with(|| Some(doc.update_time.clone()));
    }

    pub(super) fn missed(&mut self, names: Vec<String>) {
        for name in names {
            self.times.entry(name).or_insert(None);
        }
    }

    pub(super) fn lock(&mut self, doc: &Doc) {
        self.saw(doc);
        self.locked.push(doc.name.clone());
    }

    pub(super) fn saw_lane(&mut self, doc: &Doc, lane: &LaneRec) {
        self.saw(doc);
        if let (Some(held), Some(path)) = (&lane.held, doc.maybe_text("held_doc")) {
            self.messages.entry(held.number).or_insert(MessagePlace { path, thread_doc: None });
        }
        self.lanes.entry(lane.hash).or_insert_with(|| lane.clone());
    }

    pub(super) fn saw_message(&mut self, doc: &Doc) -> Result<(), StoreError> {
        self.lock(doc);
        let place = MessagePlace { path: outbox_path(doc), thread_doc: doc.maybe_text("threadId") };
        self.messages.insert(doc.number("number")?, place);
        Ok(())
    }
}
