//! The writes of one transaction: one per document, each with what must hold for it.

use std::collections::{BTreeMap, HashMap};

use hapax_store::StoreError;
use serde_json::{Value, json};

use super::value::{Fields, text};

/// Firestore takes requests of 10 MiB; the rest is room for its own words.
const COMMIT_MAX_BYTES: usize = 9_900_000;

#[derive(Clone, Debug)]
enum Write {
    /// It must not be there yet.
    Create(Fields),
    /// These fields change; it must be as it was seen, or be there at all.
    Update(Fields),
    /// These fields are set, whether it is there or not; if it was looked at, it must be as it was seen.
    Put(Fields),
    Delete,
    /// It must be as it was seen.
    Verify,
}

#[derive(Default)]
pub(super) struct Writes(BTreeMap<String, Write>);

impl Writes {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether something is written to this document already.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn create(&mut self, name: String, fields: Fields) {
        self.0.insert(name, Write::Create(fields));
    }

    pub(super) fn update(&mut self, name: String, fields: Fields) {
        self.merge(name, fields, Write::Update);
    }

    pub(super) fn put(&mut self, name: String, fields: Fields) {
        self.merge(name, fields, Write::Put);
    }

    /// Takes back what was to be written to this document.
    pub(super) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Several records may live in one document, which is written once.
    fn merge(&mut self, name: String, fields: Fields, write: fn(Fields) -> Write) {
        let merged = match self.0.remove(&name) {
            Some(Write::Create(known)) => Write::Create(known.and(fields)),
            Some(Write::Update(known)) => Write::Update(known.and(fields)),
            Some(Write::Put(known)) => write(known.and(fields)),
            Some(Write::Delete) => Write::Delete,
            Some(Write::Verify) | None => write(fields),
        };
        self.0.insert(name, merged);
    }

    pub(super) fn delete(&mut self, name: String) {
        self.0.insert(name, Write::Delete);
    }

    /// Makes sure that nobody changes the document before this transaction ends.
    pub(super) fn verify(&mut self, name: String) {
        self.0.entry(name).or_insert(Write::Verify);
    }

    /// Changes the document in nothing that matters, so that others who have seen it before this transaction come to nothing.
    pub(super) fn touch(&mut self, name: String, nonce: &str) {
        self.0.entry(name).or_insert_with(|| Write::Update(Fields::default().with("touched", text(nonce))));
    }

    /// The body of `:commit`.
    pub(super) fn commit(&self, seen: &HashMap<String, Option<String>>) -> Result<Value, StoreError> {
        let writes: Vec<Value> = self.0.iter().map(|(name, write)| written(name, write, seen.get(name))).collect();
        let bytes: usize = writes.iter().map(|write| write.to_string().len() + 1).sum();
        if bytes > COMMIT_MAX_BYTES {
            return Err(StoreError::Refused(format!(
                "this takes {bytes} bytes in one step, and Firestore takes at most 10 MiB; lower `max_body` of the channel, or use another store"
            )));
        }
        Ok(json!({ "writes": writes }))
    }
}

fn written(name: &str, write: &Write, seen: Option<&Option<String>>) -> Value {
    let as_seen = match seen {
        Some(Some(time)) => Some(json!({ "updateTime": time })),
        Some(None) => Some(json!({ "exists": false })),
        None => None,
    };
    let update = |fields: &Fields, masked: bool, must: Option<Value>| {
        let mut update = json!({ "update": { "name": name, "fields": fields.0 } });
        if masked {
            let paths: Vec<&String> = fields.0.keys().collect();
            update["updateMask"] = json!({ "fieldPaths": paths });
        }
        if let Some(must) = must {
            update["currentDocument"] = must;
        }
        update
    };
    match write {
        Write::Create(fields) => update(fields, false, Some(json!({ "exists": false }))),
        Write::Update(fields) => update(fields, true, as_seen.or_else(|| Some(json!({ "exists": true })))),
        Write::Put(fields) => update(fields, true, as_seen),
        Write::Verify => update(&Fields::default(), true, as_seen),
        Write::Delete => match as_seen {
            Some(must) => json!({ "delete": name, "currentDocument": must }),
            None => json!({ "delete": name }),
        },
    }
}
