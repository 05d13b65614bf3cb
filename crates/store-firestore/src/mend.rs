//! Documents of the outbox that somebody else has written over.
//!
//! Front ends write into the same collection as hapax, so any field of a document may be lost or be of another kind. What never changes of a
//! message is kept beside its request, and what does change is kept in its thread's entry: from both the document is made again. One
//! that was removed stays removed.

use std::collections::HashMap;

use hapax_store::StoreError;
use hapax_store::steps::records::MessageRec;

use super::client::Client;
use super::document::read;
use super::load::outbox_path;
use super::outbox_doc;
use super::paths;
use super::query::Query;
use super::value::{Doc, Fields, number, text};

/// A document as it should be.
pub(super) struct Mended {
    /// With the name, and the time of the last change, of the one that was found.
    pub(super) doc: Doc,
}

impl Mended {
    /// All that is written to make it so.
    pub(super) fn fields(&self) -> Fields {
        Fields(self.doc.fields.clone())
    }
}

/// Whether it is a whole message. Extra fields do no harm.
pub(super) fn is_whole(doc: &Doc) -> bool {
    read::<MessageRec>(doc).is_ok() && outbox_doc::read_out(doc).is_ok()
}

/// Finds the message that this document was made for, and makes the document again. `None`: no message was, or too little is known of it.
pub(super) async fn mend(client: &Client, found: &Doc) -> Result<Option<Mended>, StoreError> {
    let requests = client.run(&Query::new(paths::REQUESTS).equal("doc", text(found.id())).limit(1)).await?;
    match requests.first() {
        Some(request) => made_again(client, request, found).await,
        None => Ok(None),
    }
}

/// Makes the documents of messages again that are not found by their numbers.
pub(super) async fn mend_numbers(client: &Client, numbers: &[u64]) -> Result<Vec<Mended>, StoreError> {
    let requests = Query::new(paths::REQUESTS);
    let requests = client.run_any(&requests, "number", numbers.iter().map(|at| number(*at)).collect()).await?;
    let by_path: HashMap<String, &Doc> = requests
        .iter()
        .filter_map(|request| Some((format!("{}/{}", paths::OUTBOX, request.maybe_text("doc")?), request)))
        .collect();
    let paths: Vec<String> = by_path.keys().cloned().collect();
    let mut mended = Vec::new();
    for found in client.get(&paths, None).await?.docs {
        if let Some(request) = by_path.get(&outbox_path(&found)) {
            mended.extend(made_again(client, request, &found).await?);
        }
    }
    Ok(mended)
}

async fn made_again(client: &Client, request: &Doc, found: &Doc) -> Result<Option<Mended>, StoreError> {
    let Some(kept) = request.maybe_map("kept") else { return Ok(None) };
    let kept = Doc { fields: kept, ..found.clone() };
    let (Some(thread), Some(id)) = (kept.maybe_text("threadId"), kept.maybe_text("messageId")) else { return Ok(None) };
    let entry = client.get(&[format!("{}/{thread}/{}/{id}", paths::THREADS, paths::ENTRIES)], None).await?;
    let Some(entry) = entry.docs.first() else { return Ok(None) };
    let moving = outbox_doc::moving_fields().filter_map(|name| Some((name.to_owned(), entry.fields.get(name)?.clone())));
    let mut doc = kept;
    doc.fields.extend(moving);
    doc.fields.extend(outbox_doc::lease_fields(None).0);
    if !is_whole(&doc) {
        return Ok(None);
    }
    Ok(Some(Mended { doc }))
}

/// Those of the documents that are whole, with those that can be made whole again; the rest is left out.
pub(super) async fn whole_ones(client: &Client, found: Vec<Doc>) -> Result<(Vec<Doc>, Vec<Mended>), StoreError> {
    let (whole, damaged): (Vec<Doc>, Vec<Doc>) = found.into_iter().partition(is_whole);
    let mut mended = Vec::new();
    for doc in &damaged {
        match mend(client, doc).await? {
            Some(one) => mended.push(one),
            None => tracing::warn!(document = doc.id(), "a document of the outbox cannot be read; it is passed by"),
        }
    }
    Ok((whole, mended))
}
