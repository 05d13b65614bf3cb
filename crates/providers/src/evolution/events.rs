//! From Evolution's JSON to events. Only `data` tells events apart: the envelope differs between the global and the instance's webhook.

use bytes::Bytes;
use hapax_domain::{Event, EventKey, Kind, Status, fingerprint};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::NAME;
use crate::lenient::{Flag, Object, Text};
use crate::reading::{Reading, content_of, fingerprint_of, name, seconds_to_ms};
use crate::whatsapp_web::{Named, People, whose, without_device};
use crate::{Parsed, json};

/// Added or renewed on the way, so they may differ between copies: files, links to files, delivery marks.
const VOLATILE: &[&str] = &["base64", "mediaUrl", "messageContextInfo", "status", "pushName"];
/// What a person would read, by where it stands in `data.message`.
const WORDING: [&[&str]; 11] = [
    &["conversation"],
    &["extendedTextMessage", "text"],
    &["imageMessage", "caption"],
    &["videoMessage", "caption"],
    &["documentMessage", "caption"],
    &["documentWithCaptionMessage", "message", "documentMessage", "caption"],
    &["reactionMessage", "text"],
    &["buttonsResponseMessage", "selectedDisplayText"],
    &["templateButtonReplyMessage", "selectedDisplayText"],
    &["listResponseMessage", "title"],
    &["pollCreationMessage", "name"],
];

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Envelope<'a> {
    event: Text<'a>,
    instance: Text<'a>,
    /// The same in the copies of one event, and otherwise not to be believed: local time that says it is UTC.
    date_time: Text<'a>,
    data: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Key<'a> {
    id: Text<'a>,
    remote_jid: Text<'a>,
    remote_jid_alt: Text<'a>,
    previous_remote_jid: Text<'a>,
    sender_pn: Text<'a>,
    sender_lid: Text<'a>,
    participant: Text<'a>,
    participant_alt: Text<'a>,
    participant_pn: Text<'a>,
    participant_lid: Text<'a>,
    from_me: Flag,
}

impl Key<'_> {
    fn people(&self, from_me: bool) -> People {
        let chat = [&self.remote_jid, &self.remote_jid_alt, &self.previous_remote_jid].map(Text::name);
        let sender = [
            &self.participant,
            &self.participant_alt,
            &self.participant_pn,
            &self.participant_lid,
            &self.sender_pn,
            &self.sender_lid,
        ];
        People::new(&chat, &sender.map(Text::name), from_me)
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Record<'a> {
    key: Object<Key<'a>>,
    message: Option<&'a RawValue>,
    #[serde(rename = "messageType")]
    message_type: Text<'a>,
    #[serde(rename = "messageTimestamp")]
    timestamp: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Update<'a> {
    #[serde(rename = "keyId")]
    key_id: Text<'a>,
    status: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Protocol<'a> {
    key: Object<Key<'a>>,
    #[serde(rename = "type")]
    sort: Option<&'a RawValue>,
    #[serde(rename = "editedMessage")]
    edited: Option<&'a RawValue>,
    #[serde(rename = "timestampMs")]
    timestamp_ms: Option<&'a RawValue>,
}

pub(super) fn read(body: &Bytes) -> Parsed {
    let mut reading = Reading::new(body);
    let text = std::str::from_utf8(body).map_err(|_| "the body is not UTF-8".to_owned());
    match text.and_then(json::object::<Envelope<'_>>) {
        // History, told again at every pairing, and typing notices: nothing that has just happened.
        Ok(envelope)
            if matches!(envelope.event.get(), Some("messages.set" | "chats.set" | "contacts.set" | "presence.update")) =>
        {
            reading.ignore();
        }
        read => reading.take(body, || read.and_then(|envelope| envelope.event())),
    }
    reading.finish()
}

impl Envelope<'_> {
    fn event(&self) -> Result<Event, String> {
        let word = name("event", self.event.get())?;
        let account = name("instance", self.instance.get())?;
        let data = self.data.map(RawValue::get);
        let of_data = || data.ok_or_else(|| "data is missing".to_owned());
        match word {
            "messages.upsert" | "send.message" => self.message(account, of_data()?),
            "messages.update" => self.update(account, of_data()?),
            "messages.edited" | "send.message.update" => self.edited(account, of_data()?, word),
            "messages.delete" => self.deleted(account, of_data()?),
            // Chats, contacts, groups, labels, calls, the connection, and what is yet to be invented.
            _ => self.without_id(Kind::Notice, account, None, data.unwrap_or("null")),
        }
    }

    fn message(&self, account: &str, data: &str) -> Result<Event, String> {
        let record: Record<'_> = json::object(data)?;
        let key = record.key.0.as_ref().ok_or("data.key is missing")?;
        let people = key.people(key.from_me.0);
        let content = record.message.map(RawValue::get).filter(|message| !is_empty(message));
        // A stub must not claim the message's key: the full message may follow under the same id.
        let (kind, tag) = match content {
            None => (Kind::Notice, Some("stub")),
            Some(_) => (kind_of(record.message_type.get().unwrap_or_default()), None),
        };
        let event = match key.id.name() {
            None => self.without_id(kind, account, record.timestamp.map(RawValue::get), data)?,
            found => {
                let id = name("the message's id", found)?;
                let named = Named { provider: NAME, account, kind, id, from_me: key.from_me.0, tag };
                let fingerprint = fingerprint_of(content.unwrap_or("null"), VOLATILE)?;
                let event = Event::new(kind, account, id, named.key(people.sender()), fingerprint);
                Event { guard: named.guard(people.lid()), ..event }
            }
        };
        let (peer, aliases) = people.peer()?;
        let (at_ms, text) = (seconds(record.timestamp), content.and_then(wording));
        Ok(Event { peer, aliases, echo: key.from_me.0, at_ms, text, ..event })
    }

    /// `keyId` is the message; `messageId` beside it is a row of Evolution's own database.
    fn update(&self, account: &str, data: &str) -> Result<Event, String> {
        let (update, key): (Update<'_>, Key<'_>) = (json::object(data)?, json::object(data)?);
        let word = name("data.status", update.status.get())?;
        // What becomes of a message that came in is no word about one of ours, and a contact may have given it the same id.
        let status = status_of(word).filter(|_| key.from_me.0);
        let kind = if status.is_some() { Kind::Status } else { Kind::Notice };
        let participant = key.participant.name().map(without_device).unwrap_or_default();
        let event = match update.key_id.name() {
            None => self.without_id(kind, account, None, data)?,
            found => {
                let id = name("data.keyId", found)?;
                let parts = [word, &*participant, whose(key.from_me.0)];
                let event_key = EventKey::new(NAME, account, kind, id, &parts);
                Event::new(kind, account, id, event_key, fingerprint::of_bytes(parts.join("\n").as_bytes()))
            }
        };
        let (peer, aliases) = key.people(true).peer()?;
        Ok(Event { peer, aliases, status, ..event })
    }

    /// A change to a message that is there already. It has no id of its own, and its key is written by whoever made the change, so all it says
    /// is part of what tells it apart.
    fn edited(&self, account: &str, data: &str, word: &str) -> Result<Event, String> {
        let change: Protocol<'_> = json::object(data)?;
        let key = change.key.0.as_ref().ok_or("data.key is missing")?;
        let edited = change.edited.map(RawValue::get).filter(|edited| !is_empty(edited));
        let kind = match (edited, change.sort.map(RawValue::get)) {
            (Some(_), _) => Kind::Edit,
            // Zero, which many writers of JSON leave out.
            (None, None | Some("null" | "0" | "\"REVOKE\"")) => Kind::Delete,
            // The life of messages, keys, history: settings of the chat.
            (None, Some(_)) => Kind::Notice,
        };
        let own = word == "send.message.update";
        let people = key.people(own);
        let at = change.timestamp_ms.map(RawValue::get).map(unquoted).filter(|at| !matches!(*at, "" | "null" | "0"));
        let event = match (key.id.name(), at) {
            (Some(id), Some(at)) => {
                let id = name("data.key.id", Some(id))?;
                let content = json::canonical(data, VOLATILE).ok_or("nested too deeply")?;
                let event_key = EventKey::new(NAME, account, kind, id, &["edited", people.sender(), at]).with(&content);
                Event::new(kind, account, id, event_key, fingerprint_of(data, VOLATILE)?)
            }
            (_, at) => self.without_id(kind, account, at, data)?,
        };
        let (peer, aliases) = people.peer()?;
        let (at_ms, text) = (at.and_then(|at| at.parse().ok()), edited.and_then(wording));
        // `fromMe` in this key is seen with the eyes of whoever made the change: it does not say that it was us.
        Ok(Event { peer, aliases, at_ms, text, echo: own, ..event })
    }

    /// A bare key when somebody took a message back, a whole record when we did so through the API.
    fn deleted(&self, account: &str, data: &str) -> Result<Event, String> {
        let record: Record<'_> = json::object(data)?;
        let bare: Key<'_> = json::object(data)?;
        let key = record.key.0.as_ref().unwrap_or(&bare);
        let people = key.people(key.from_me.0);
        let event = match key.id.name() {
            None => self.without_id(Kind::Delete, account, record.timestamp.map(RawValue::get), data)?,
            found => {
                let id = name("the message's id", found)?;
                let parts = [people.sender(), whose(key.from_me.0), "deleted"];
                let (kind, tag) = (Kind::Delete, Some("deleted"));
                let named = Named { provider: NAME, account, kind, id, from_me: key.from_me.0, tag };
                let fingerprint = fingerprint::of_bytes(parts.join("\n").as_bytes());
                Event {
                    guard: named.guard(people.lid()),
                    ..Event::new(kind, account, id, named.key(people.sender()), fingerprint)
                }
            }
        };
        let (peer, aliases) = people.peer()?;
        Ok(Event { peer, aliases, echo: key.from_me.0, ..event })
    }

    /// Known by all that `data` says, and by the time; the envelope's own is the same in every copy.
    fn without_id(&self, kind: Kind, account: &str, at: Option<&str>, data: &str) -> Result<Event, String> {
        let content = content_of(&self.event, data, VOLATILE)?;
        let at = at.filter(|at| *at != "null").or(self.date_time.name());
        Ok(Event::without_id(NAME, kind, account, at, &content, fingerprint_of(data, VOLATILE)?))
    }
}

fn kind_of(message_type: &str) -> Kind {
    match message_type {
        "reactionMessage" => Kind::Reaction,
        "buttonsResponseMessage" | "listResponseMessage" | "templateButtonReplyMessage" | "interactiveResponseMessage" => {
            Kind::Action
        }
        _ => Kind::Message,
    }
}

fn status_of(word: &str) -> Option<Status> {
    match word {
        "SERVER_ACK" => Some(Status::Sent),
        "DELIVERY_ACK" => Some(Status::Delivered),
        "READ" => Some(Status::Read),
        "PLAYED" => Some(Status::Played),
        "ERROR" => Some(Status::Failed),
        // DELETED and EDITED among them: some versions say DELETED of any update that has no status.
        _ => None,
    }
}

/// True when nothing in it could be content.
fn is_empty(message: &str) -> bool {
    let says_something = |raw: &RawValue| !matches!(raw.get(), "null" | "\"\"" | "{}" | "[]" | "false");
    let members = json::members(message).unwrap_or_default();
    !members.iter().any(|(name, raw)| name != "messageContextInfo" && says_something(raw))
}

pub(crate) fn wording(message: &str) -> Option<String> {
    let at = |path: &&[&str]| {
        let (last, outer) = path.split_last()?;
        let inner = outer.iter().try_fold(message, |part, member| json::member(part, member).map(RawValue::get))?;
        json::text(json::member(inner, last)).filter(|text| !text.is_empty())
    };
    WORDING.iter().find_map(at)
}

fn unquoted(raw: &str) -> &str {
    raw.trim_matches('"')
}

/// Seconds as a number, or as a text.
fn seconds(timestamp: Option<&RawValue>) -> Option<i64> {
    seconds_to_ms(unquoted(timestamp?.get()).parse().ok())
}
