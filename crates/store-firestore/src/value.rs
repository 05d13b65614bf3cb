//! Firestore's JSON: the fields of a document, written and read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hapax_store::StoreError;
use hapax_store::steps::records::Hash;
use serde_json::{Map, Value, json};

pub(super) fn text(text: &str) -> Value {
    json!({ "stringValue": text })
}

pub(super) fn int(number: i64) -> Value {
    json!({ "integerValue": number.to_string() })
}

/// Numbers have 62 bits, so they fit.
pub(super) fn number(number: u64) -> Value {
    json!({ "integerValue": number.to_string() })
}

pub(super) fn flag(flag: bool) -> Value {
    json!({ "booleanValue": flag })
}

pub(super) fn hash(hash: &Hash) -> Value {
    text(&hex::encode(hash))
}

/// Milliseconds since 1970 as a timestamp, within the years that Firestore has.
pub(super) fn time(at_ms: i64) -> Value {
    json!({ "timestampValue": written_time(at_ms) })
}

fn written_time(at_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(at_ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

pub(super) fn bytes(bytes: &[u8]) -> Value {
    json!({ "bytesValue": STANDARD.encode(bytes) })
}

pub(super) fn null() -> Value {
    json!({ "nullValue": null })
}

pub(super) fn map(fields: Fields) -> Value {
    json!({ "mapValue": { "fields": fields.0 } })
}

pub(super) fn list(values: Vec<Value>) -> Value {
    json!({ "arrayValue": { "values": values } })
}

/// A server's time in microseconds since 1970.
pub(super) fn micros(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(|time| time.as_microsecond())
}

/// The fields of a document that is to be written.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(pub(super) Map<String, Value>);

impl Fields {
    pub(super) fn with(mut self, name: &str, value: Value) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }

    pub(super) fn with_some<T>(self, name: &str, value: Option<T>, write: impl Fn(T) -> Value) -> Self {
        let value = value.map_or_else(null, write);
        self.with(name, value)
    }

    /// Takes over all fields of `more`.
    pub(super) fn and(mut self, more: Fields) -> Self {
        self.0.extend(more.0);
        self
    }
}

/// A document that was read.
#[derive(Clone, Debug)]
pub(super) struct Doc {
    pub(super) name: String,
    pub(super) fields: Map<String, Value>,
    pub(super) create_time: String,
    pub(super) update_time: String,
}

impl Doc {
    pub(super) fn read(document: Value) -> Result<Self, StoreError> {
        let Value::Object(mut document) = document else { return Err(broken("an answer", "a document")) };
        let mut take = |part: &str| match document.remove(part) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(broken("a document", part)),
        };
        let (name, update_time) = (take("name")?, take("updateTime")?);
        let create_time = match document.remove("createTime") {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let fields = match document.remove("fields") {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        Ok(Self { name, fields, create_time, update_time })
    }

    /// The last part of its name.
    pub(super) fn id(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }

    /// Whether there is such a field, whatever its kind; one that is empty is none.
    pub(super) fn has(&self, field: &str) -> bool {
        self.fields.get(field).is_some_and(|value| value.get("nullValue").is_none())
    }

    pub(super) fn maybe_map(&self, field: &str) -> Option<Map<String, Value>> {
        self.kept(field, "mapValue")?.get("fields")?.as_object().cloned()
    }

    fn lacks(&self, field: &str) -> StoreError {
        broken(&self.name, field)
    }

    fn kept(&self, field: &str, kind: &str) -> Option<&Value> {
        self.fields.get(field)?.get(kind)
    }

    pub(super) fn maybe_text(&self, field: &str) -> Option<String> {
        self.kept(field, "stringValue")?.as_str().map(str::to_owned)
    }

    pub(super) fn text(&self, field: &str) -> Result<String, StoreError> {
        self.maybe_text(field).ok_or_else(|| self.lacks(field))
    }

    pub(super) fn maybe_int(&self, field: &str) -> Option<i64> {
        whole(self.fields.get(field)?)
    }

    pub(super) fn int(&self, field: &str) -> Result<i64, StoreError> {
        self.maybe_int(field).ok_or_else(|| self.lacks(field))
    }

    pub(super) fn maybe_number(&self, field: &str) -> Option<u64> {
        self.maybe_int(field).and_then(|number| u64::try_from(number).ok())
    }

    pub(super) fn number(&self, field: &str) -> Result<u64, StoreError> {
        self.maybe_number(field).ok_or_else(|| self.lacks(field))
    }

    /// A field that is not there is false.
    pub(super) fn flag(&self, field: &str) -> bool {
        self.kept(field, "booleanValue").and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn maybe_time(&self, field: &str) -> Option<i64> {
        let text = self.kept(field, "timestampValue")?.as_str()?;
        text.parse::<jiff::Timestamp>().ok().map(|time| time.as_millisecond())
    }

    pub(super) fn maybe_hash(&self, field: &str) -> Option<Hash> {
        let mut hash = Hash::default();
        hex::decode_to_slice(self.kept(field, "stringValue")?.as_str()?, &mut hash).ok()?;
        Some(hash)
    }

    pub(super) fn hash(&self, field: &str) -> Result<Hash, StoreError> {
        self.maybe_hash(field).ok_or_else(|| self.lacks(field))
    }

    pub(super) fn maybe_bytes(&self, field: &str) -> Option<Vec<u8>> {
        STANDARD.decode(self.kept(field, "bytesValue")?.as_str()?).ok()
    }

    pub(super) fn bytes(&self, field: &str) -> Result<Vec<u8>, StoreError> {
        self.maybe_bytes(field).ok_or_else(|| self.lacks(field))
    }

    pub(super) fn numbers(&self, field: &str) -> Vec<u64> {
        let values = self.kept(field, "arrayValue").and_then(|list| list.get("values")).and_then(Value::as_array);
        values.into_iter().flatten().filter_map(|value| u64::try_from(whole(value)?).ok()).collect()
    }

    pub(super) fn texts(&self, field: &str) -> Vec<&str> {
        let values = self.kept(field, "arrayValue").and_then(|list| list.get("values")).and_then(Value::as_array);
        values.into_iter().flatten().filter_map(|value| value.get("stringValue")?.as_str()).collect()
    }
}

fn whole(value: &Value) -> Option<i64> {
    value.get("integerValue")?.as_str()?.parse().ok()
}

/// Turns a value that a front end wrote into plain JSON.
pub(super) fn plain_json(value: &Value) -> Option<Value> {
    let (kind, inner) = value.as_object()?.iter().next()?;
    match kind.as_str() {
        "nullValue" => Some(Value::Null),
        "booleanValue" | "doubleValue" | "stringValue" | "timestampValue" => Some(inner.clone()),
        "integerValue" => Some(inner.as_str()?.parse::<i64>().ok()?.into()),
        "arrayValue" => {
            let values = inner.get("values").and_then(Value::as_array);
            values.into_iter().flatten().map(plain_json).collect::<Option<Vec<_>>>().map(Value::Array)
        }
        "mapValue" => {
            let fields = inner.get("fields").and_then(Value::as_object);
            let plain = |(name, value): (&String, &Value)| Some((name.clone(), plain_json(value)?));
            fields.into_iter().flatten().map(plain).collect::<Option<Map<_, _>>>().map(Value::Object)
        }
        _ => None,
    }
}

/// Somebody else wrote, or changed, a document that only hapax writes.
pub(super) fn broken(what: &str, part: &str) -> StoreError {
    let source = format!("{what} has no readable `{part}`; was it changed by hand?").into();
    StoreError::Failed { what: "reading a document", retryable: false, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back_as_written() {
        let fields = Fields::default()
            .with("text", text("a/b"))
            .with("number", number(u64::MAX >> 2))
            .with("time", time(1_760_000_000_123))
            .with("hash", hash(&[7; 32]))
            .with("bytes", bytes(b"\0\xff"))
            .with("numbers", list(vec![number(1), number(2)]))
            .with_some("nothing", None::<&str>, text);
        let document = json!({ "name": "p/x", "fields": fields.0, "updateTime": "2025-10-09T08:53:20.123456Z" });
        let doc = Doc::read(document).expect("a document");
        assert_eq!((doc.id(), doc.text("text").ok()), ("x", Some("a/b".to_owned())));
        assert_eq!(doc.number("number").ok(), Some(u64::MAX >> 2));
        assert_eq!(doc.maybe_time("time"), Some(1_760_000_000_123));
        assert_eq!(doc.hash("hash").ok(), Some([7; 32]));
        assert_eq!(doc.bytes("bytes").ok(), Some(b"\0\xff".to_vec()));
        assert_eq!(doc.numbers("numbers"), [1, 2]);
        assert!(doc.text("nothing").is_err() && doc.maybe_text("nothing").is_none());
        assert_eq!(micros(&doc.update_time), Some(1_760_000_000_123_456));
    }

    #[test]
    fn a_payload_of_a_front_end_becomes_json() {
        let map = json!({ "mapValue": { "fields": { "a": { "integerValue": "3" }, "b": { "arrayValue": {} } } } });
        assert_eq!(plain_json(&map), Some(json!({ "a": 3, "b": [] })));
    }
}
