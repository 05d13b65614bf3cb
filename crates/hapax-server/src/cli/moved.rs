//! What stands in the file of an export: one JSON object a line, each a record as it is described. Bytes are base64, times milliseconds since
//! 1970; what has a name goes by it.

mod object;

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hapax_domain::EventId;
use hapax_store::pieces::Piece;
use hapax_store::registers::Register;
use hapax_store::{Copies, Moved, PausedAccount};
use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use self::object::{Object, read};

/// The only version of the file so far.
pub(super) const VERSION: u32 = 1;
pub(super) const EXPORT: &str = "export";

/// True for what belongs to one installation: who holds the old one's tokens must not open the new one.
pub(super) fn is_private(record: &Moved) -> bool {
    matches!(record, Moved::Setting { name, .. } if hapax_gateway::api::auth::is_never_moved(name))
}

/// One line, after the first.
pub(super) enum Line {
    Record(Box<Moved>),
    End(End),
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Head {
    /// Always `export`.
    pub(super) hapax: String,
    pub(super) version: u32,
    pub(super) program: String,
    pub(super) made_ms: i64,
}

/// The last line: without it the file is not whole.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) records: u64,
    /// BLAKE3 of all lines before this one.
    pub(super) blake3: String,
}

/// What a record says that no hapax has written.
#[derive(Clone, Debug)]
pub(super) struct Odd(String);

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Serialize, Deserialize)]
struct Setting {
    name: String,
    value: String,
    /// Not there where it is kept for ever, as in every file of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ends_ms: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct PieceOf {
    name: String,
    n: u32,
    ends_ms: i64,
    /// Base64.
    bytes: String,
}

#[derive(Serialize, Deserialize)]
struct Paused {
    channel: String,
    account: String,
    why: String,
    since_ms: i64,
}

#[derive(Serialize, Deserialize)]
struct CopiesOf {
    event: String,
    copies: u64,
    conflicts: u64,
    last_ms: i64,
    /// Not there in a file of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept: Option<String>,
}

/// A line is an object with one entry, whose name says what it is.
impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_map(Some(1))?;
        match self {
            Line::End(end) => line.serialize_entry("end", end)?,
            Line::Record(record) => match &**record {
                Moved::Setting { name, register } => {
                    let Register { value, ends_ms } = register.clone();
                    line.serialize_entry("setting", &Setting { name: name.clone(), value, ends_ms })?;
                }
                Moved::Paused(paused) => {
                    let PausedAccount { channel, account, why, since_ms } = paused.clone();
                    line.serialize_entry("paused", &Paused { channel, account, why, since_ms })?;
                }
                Moved::Copies(copies) => {
                    let Copies { event, copies, conflicts, last_ms, kept } = *copies;
                    let (event, kept) = (event.to_string(), kept.map(|kept| kept.to_string()));
                    line.serialize_entry("copies", &CopiesOf { event, copies, conflicts, last_ms, kept })?;
                }
                Moved::Piece(piece) => {
                    let Piece { name, n, ends_ms, bytes } = piece.clone();
                    line.serialize_entry("piece", &PieceOf { name, n, ends_ms, bytes: BASE64_STANDARD.encode(bytes) })?;
                }
                Moved::Key(key) => line.serialize_entry("key", &Object(key))?,
                Moved::Thread(thread) => line.serialize_entry("thread", &Object(thread))?,
                Moved::Name(name) => line.serialize_entry("name", &Object(name))?,
                Moved::Event(event) => line.serialize_entry("event", &Object(event))?,
                Moved::Answer(answer) => line.serialize_entry("answer", &Object(answer))?,
                Moved::Item(item) => line.serialize_entry("item", &Object(item))?,
                Moved::Message(message) => line.serialize_entry("message", &Object(message))?,
                Moved::ProviderName(name) => line.serialize_entry("provider_name", &Object(name))?,
                Moved::Out(out) => line.serialize_entry("out", &Object(out))?,
                Moved::Attempt(attempt) => line.serialize_entry("attempt", &Object(attempt))?,
                Moved::Claim(claim) => line.serialize_entry("claim", &Object(&**claim))?,
            },
        }
        line.end()
    }
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut entries = Map::deserialize(deserializer)?.into_iter();
        let (Some((kind, entry)), None) = (entries.next(), entries.next()) else {
            return Err(D::Error::custom("it is not one record"));
        };
        if kind == "end" {
            return serde_json::from_value(entry).map(Line::End).map_err(D::Error::custom);
        }
        record(&kind, entry).map(|record| Line::Record(Box::new(record))).map_err(D::Error::custom)
    }
}

fn record(kind: &str, entry: Value) -> Result<Moved, Odd> {
    Ok(match kind {
        "setting" => {
            let Setting { name, value, ends_ms } = twin(entry)?;
            Moved::Setting { name, register: Register { value, ends_ms } }
        }
        "piece" => {
            let PieceOf { name, n, ends_ms, bytes } = twin(entry)?;
            let bytes = BASE64_STANDARD.decode(bytes).map_err(|_| Odd("`bytes` is not base64".to_owned()))?;
            Moved::Piece(Piece { name, n, ends_ms, bytes: bytes.into() })
        }
        "paused" => {
            let Paused { channel, account, why, since_ms } = twin(entry)?;
            Moved::Paused(PausedAccount { channel, account, why, since_ms })
        }
        "copies" => {
            let CopiesOf { event, copies, conflicts, last_ms, kept } = twin(entry)?;
            let kept = kept.as_deref().map(event_id).transpose()?;
            Moved::Copies(Copies { event: event_id(&event)?, copies, conflicts, last_ms, kept })
        }
        "key" => Moved::Key(read(entry)?),
        "thread" => Moved::Thread(read(entry)?),
        "name" => Moved::Name(read(entry)?),
        "event" => Moved::Event(read(entry)?),
        "answer" => Moved::Answer(read(entry)?),
        "item" => Moved::Item(read(entry)?),
        "message" => Moved::Message(read(entry)?),
        "provider_name" => Moved::ProviderName(read(entry)?),
        "out" => Moved::Out(read(entry)?),
        "attempt" => Moved::Attempt(read(entry)?),
        "claim" => Moved::Claim(Box::new(read(entry)?)),
        other => return Err(Odd(format!("there is no such record: `{other}`"))),
    })
}

fn twin<T: serde::de::DeserializeOwned>(entry: Value) -> Result<T, Odd> {
    serde_json::from_value(entry).map_err(|why| Odd(why.to_string()))
}

fn event_id(id: &str) -> Result<EventId, Odd> {
    id.parse().map_err(|_| Odd("that is no event's id".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As versions before the records were described wrote them.
    const LINES: [&str; 9] = [
        r#"{"setting":{"name":"n","value":"v"}}"#,
        r#"{"setting":{"name":"n","value":"v","ends_ms":7}}"#,
        r#"{"key":{"key":"AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=","event":4,"at_ms":5,"fingerprint":4294967295,"expires_ms":6}}"#,
        r#"{"thread":{"account":"a","peer":"p","channel":"c","last_ms":1,"last_text":null,"last_direction":"out","unread":2,"purged_to":3,"read_to":4}}"#,
        r#"{"event":{"number":7,"webhook":7,"received_ms":1,"channel":"c","kind":"message","account":"a","id":"i","peer":null,"echo":true,"at_ms":-1,"text":"olá","index":3,"item":9,"part":false,"thread":null,"replays":0,"body_bytes":2,"carried":{"headers":"AP8=","body":"e30=","events":2}}}"#,
        r#"{"item":{"number":9,"received_ms":1,"channel":"c","lane":"AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=","place":"quarantined","events":[7,8],"events_ms":2,"webhook":7,"attempt":4,"failures":2,"replay":null,"why":"w","due_ms":5}}"#,
        r#"{"provider_name":{"account":"a","provider_id":"p","message":null,"early":[["sent",4],["read",5]],"heard_ms":3}}"#,
        r#"{"attempt":{"queue":"outbox","of":1,"item":2,"item_ms":3,"attempt":4,"fence":5,"worker":"w","leased_ms":6,"ended_ms":7,"outcome":"o","detail":"d"}}"#,
        r#"{"piece":{"name":"c/u","n":3,"ends_ms":7,"bytes":"AP8="}}"#,
    ];

    #[test]
    fn a_line_is_read_and_written_as_ever() {
        for text in LINES {
            let line: Line = serde_json::from_str(text).expect("it can be read");
            assert_eq!(serde_json::to_string(&line).expect("it can be written"), text);
        }
    }

    #[test]
    fn what_no_version_wrote_is_named() {
        for (from, to, named) in [
            ("\"quarantined\"", "\"lost\"", "`place`"),
            ("\"attempt\":4,\"failures\"", "\"failures\"", "`attempt`"),
            ("AwMD", "AwM", "`lane`"),
            ("\"item\":{", "\"poem\":{", "`poem`"),
        ] {
            let odd = serde_json::from_str::<Line>(&LINES[5].replacen(from, to, 1));
            assert!(odd.err().is_some_and(|why| why.to_string().contains(named)), "{named}");
        }
        let older = LINES[5].replacen("\"failures\":2,", "", 1);
        assert!(serde_json::from_str::<Line>(&older).is_ok(), "a file of a version that did not count them");
    }
}
