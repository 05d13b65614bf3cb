//! Pieces of files that are to be sent, a document each: a quarter of what Firestore allows for one.

use std::collections::BTreeMap;

use bytes::Bytes;
use hapax_store::pieces::Piece;
use hapax_store::{After, Moved, StoreError};
use serde_json::json;

use super::query::Query;
use super::upkeep::delete_as_seen;
use super::value::{Doc, Fields, bytes, int, number, text, time};
use super::writes::Writes;
use super::{FirestoreEngine, paths};

/// Documents that are removed by one call.
const DROPPED: usize = 100;
/// Documents that are looked at by one call, without what they hold.
const COUNTED: usize = 1_000;

/// The pieces of a name stand together, in their order.
fn path(name: &str, n: u32) -> String {
    format!("{}-{n:08x}", paths::hashed(paths::FILES, blake3::hash(name.as_bytes()).as_bytes()))
}

impl FirestoreEngine {
    pub(super) async fn put_file_piece(&self, piece: &Piece) -> Result<(), StoreError> {
        let fields = Fields::default()
            .with("name", text(&piece.name))
            .with("n", int(piece.n.into()))
            .with("channel", text(piece.channel()))
            .with("expires_at", time(piece.ends_ms))
            .with("size", number(piece.bytes.len() as u64))
            .with("bytes", bytes(&piece.bytes));
        let mut put = Writes::default();
        put.put(self.inner.client.name(&path(&piece.name, piece.n)), fields);
        self.ask_commit(&put).await
    }

    pub(super) async fn file_piece(&self, name: &str, n: u32) -> Result<Option<Bytes>, StoreError> {
        let got = self.inner.client.get(&[path(name, n)], None).await?;
        got.docs.first().map(|doc| doc.bytes("bytes").map(Bytes::from)).transpose()
    }

    pub(super) async fn drop_file(&self, name: &str) -> Result<(), StoreError> {
        loop {
            let of = Query::new(paths::FILES).equal("name", text(name)).only(&["n"]).limit(DROPPED);
            let found = self.inner.client.run(&of).await?;
            let full = found.len() == DROPPED;
            let dropped = found.into_iter().map(|doc| json!({ "delete": doc.name })).collect();
            self.write_each(dropped).await?;
            if !full {
                return Ok(());
            }
        }
    }

    pub(super) async fn files_held(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let mut held: BTreeMap<String, u64> = BTreeMap::new();
        let mut behind = None;
        loop {
            let page = Query::new(paths::FILES).lowest_first("__name__").behind(behind).only(&["channel", "size"]);
            let found = self.inner.client.run(&page.limit(COUNTED)).await?;
            for doc in &found {
                *held.entry(doc.text("channel")?).or_default() += doc.number("size")?;
            }
            match found.last() {
                Some(last) if found.len() == COUNTED => behind = Some(vec![json!({ "referenceValue": last.name })]),
                _ => return Ok(held.into_iter().collect()),
            }
        }
    }

    pub(super) async fn purge_files(&self, max: usize) -> Result<u64, StoreError> {
        let over = Query::new(paths::FILES).at_most("expires_at", time(self.clock_ms().await?));
        let over = self.inner.client.run(&over.lowest_first("expires_at").only(&["expires_at"]).limit(max)).await?;
        self.write_each(over.into_iter().map(delete_as_seen).collect()).await
    }

    pub(super) async fn dump_files(&self, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, StoreError> {
        let behind = match after {
            Some(After::Piece(name, n)) => Some(path(name, *n)),
            _ => None,
        };
        let read = |doc: &Doc| {
            let (name, n) = (doc.text("name")?, doc.number("n")? as u32);
            let ends_ms = doc.maybe_time("expires_at").unwrap_or_default();
            Ok(Moved::Piece(Piece { name, n, ends_ms, bytes: doc.bytes("bytes")?.into() }))
        };
        self.read(self.by_name(paths::FILES, behind.as_deref(), limit), read).await
    }
}
