//! From Evolution's JSON to events. Only `data` tells events apart: the envelope differs between the global and the instance's webhook.

use bytes::Bytes;
use hapax_domain::{Event, EventKey, Kind, Status, fingerprint};
use serde::Deserialize;

use super::NAME;
use crate::lenient::{Flag, Object, Text};
use crate::reading::{Reading, content_of, name, seconds_to_ms};
use crate::tape::{Part, Tape};
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
    data: Option<Part<'a>>,
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
    message: Option<Part<'a>>,
    #[serde(rename = "messageType")]
    message_type: Text<'a>,
    #[serde(rename = "messageTimestamp")]
    timestamp: Option<Part<'a>>,
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
    sort: Option<Part<'a>>,
    #[serde(rename = "editedMessage")]
    edited: Option<Part<'a>>,
    #[serde(rename = "timestampMs")]
    timestamp_ms: Option<Part<'a>>,
}

pub(super) fn read(body: &Bytes) -> Parsed {
    let mut reading = Reading::new(body);
    let read = Tape::of_bytes(body).and_then(|tape| {
        let envelope: Envelope<'_> = tape.object(tape.root())?;
        Ok((tape, envelope))
    });
    match read {
        // History, told again at every pairing, and typing notices: nothing that has just happened.
        Ok((_, envelope))
            if matches!(envelope.event.get(), Some("messages.set" | "chats.set" | "contacts.set" | "presence.update")) =>
        {
            reading.ignore();
        }
        read => reading.take(body, || read.and_then(|(tape, envelope)| envelope.event(&tape))),
    }
    reading.finish()
}

impl<'t> Envelope<'t> {
    fn event(&self, tape: &Tape<'t>) -> Result<Event, String> {
        let word = name("event", self.event.get())?;
        let account = name("instance", self.instance.get())?;
        let of_data = || self.data.ok_or_else(|| "data is missing".to_owned());
        match word {
            "messages.upsert" | "send.message" => self.message(tape, account, of_data()?),
            "messages.update" => self.update(tape, account, of_data()?),
            "messages.edited" | "send.message.update" => self.edited(tape, account, of_data()?, word),
            "messages.delete" => self.deleted(tape, account, of_data()?),
            // Chats, contacts, groups, labels, calls, the connection, and what is yet to be invented.
            _ => self.without_id(tape, Kind::Notice, account, None, self.data),
        }
    }

    fn message(&self, tape: &Tape<'t>, account: &str, data: Part<'t>) -> Result<Event, String> {
        let record: Record<'_> = tape.object(data)?;
        let key = record.key.0.as_ref().ok_or("data.key is missing")?;
        let people = key.people(key.from_me.0);
        let content = record.message.filter(|message| !is_empty(tape, *message));
        // A stub must not claim the message's key: the full message may follow under the same id.
        let (kind, tag) = match content {
            None => (Kind::Notice, Some("stub")),
            Some(_) => (kind_of(record.message_type.get().unwrap_or_default()), None),
        };
        let event = match key.id.name() {
            None => self.without_id(tape, kind, account, record.timestamp.map(Part::get), Some(data))?,
            found => {
                let id = name("the message's id", found)?;
                let named = Named { provider: NAME, account, kind, id, from_me: key.from_me.0, tag };
                let fingerprint = tape.fingerprint_or_null(content, VOLATILE)?;
                let event = Event::new(kind, account, id, named.key(people.sender()), fingerprint);
                Event { guard: named.guard(people.lid()), ..event }
            }
        };
        let (peer, aliases) = people.peer()?;
        let (at_ms, text) = (seconds(record.timestamp), content.and_then(|content| wording_in(tape, content)));
        Ok(Event { peer, aliases, echo: key.from_me.0, at_ms, text, ..event })
    }

    /// `keyId` is the message; `messageId` beside it is a row of Evolution's own database.
    fn update(&self, tape: &Tape<'t>, account: &str, data: Part<'t>) -> Result<Event, String> {
        let (update, key): (Update<'_>, Key<'_>) = (tape.object(data)?, tape.object(data)?);
        let word = name("data.status", update.status.get())?;
        // What becomes of a message that came in is no word about one of ours, and a contact may have given it the same id.
        let status = status_of(word).filter(|_| key.from_me.0);
        let kind = if status.is_some() { Kind::Status } else { Kind::Notice };
        let participant = key.participant.name().map(without_device).unwrap_or_default();
        let event = match update.key_id.name() {
            None => self.without_id(tape, kind, account, None, Some(data))?,
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
    fn edited(&self, tape: &Tape<'t>, account: &str, data: Part<'t>, word: &str) -> Result<Event, String> {
        let change: Protocol<'_> = tape.object(data)?;
        let key = change.key.0.as_ref().ok_or("data.key is missing")?;
        let edited = change.edited.filter(|edited| !is_empty(tape, *edited));
        let kind = match (edited, change.sort.map(Part::get)) {
            (Some(_), _) => Kind::Edit,
            // Zero, which many writers of JSON leave out.
            (None, None | Some("null" | "0" | "\"REVOKE\"")) => Kind::Delete,
            // The life of messages, keys, history: settings of the chat.
            (None, Some(_)) => Kind::Notice,
        };
        let own = word == "send.message.update";
        let people = key.people(own);
        let at = change.timestamp_ms.map(Part::get).map(unquoted).filter(|at| !matches!(*at, "" | "null" | "0"));
        let event = match (key.id.name(), at) {
            (Some(id), Some(at)) => {
                let id = name("data.key.id", Some(id))?;
                let content = json::canonical(data.get(), VOLATILE).ok_or("nested too deeply")?;
                let event_key = EventKey::new(NAME, account, kind, id, &["edited", people.sender(), at]).with(&content);
                Event::new(kind, account, id, event_key, tape.fingerprint(data, VOLATILE)?)
            }
            (_, at) => self.without_id(tape, kind, account, at, Some(data))?,
        };
        let (peer, aliases) = people.peer()?;
        let (at_ms, text) = (at.and_then(|at| at.parse().ok()), edited.and_then(|edited| wording_in(tape, edited)));
        // `fromMe` in this key is seen with the eyes of whoever made the change: it does not say that it was us.
        Ok(Event { peer, aliases, at_ms, text, echo: own, ..event })
    }

    /// A bare key when somebody took a message back, a whole record when we did so through the API.
    fn deleted(&self, tape: &Tape<'t>, account: &str, data: Part<'t>) -> Result<Event, String> {
        let record: Record<'_> = tape.object(data)?;
        let bare: Key<'_> = tape.object(data)?;
        let key = record.key.0.as_ref().unwrap_or(&bare);
        let people = key.people(key.from_me.0);
        let event = match key.id.name() {
            None => self.without_id(tape, Kind::Delete, account, record.timestamp.map(Part::get), Some(data))?,
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
    fn without_id(
        &self,
        tape: &Tape<'t>,
        kind: Kind,
        account: &str,
        at: Option<&str>,
        data: Option<Part<'t>>,
    ) -> Result<Event, String> {
        let content = content_of(&self.event, data.map_or("null", Part::get), VOLATILE)?;
        let at = at.filter(|at| *at != "null").or(self.date_time.name());
        Ok(Event::without_id(NAME, kind, account, at, &content, tape.fingerprint_or_null(data, VOLATILE)?))
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
fn is_empty<'t>(tape: &Tape<'t>, message: Part<'t>) -> bool {
    let says_something = |part: Part<'_>| !matches!(part.get(), "null" | "\"\"" | "{}" | "[]" | "false");
    !tape.members(message).any(|(name, part)| name != "messageContextInfo" && says_something(part))
}

pub(crate) fn wording(message: &str) -> Option<String> {
    let tape = Tape::of(message).ok()?;
    wording_in(&tape, tape.root())
}

fn wording_in<'t>(tape: &Tape<'t>, message: Part<'t>) -> Option<String> {
    let at = |path: &&[&str]| {
        let found = path.iter().try_fold(message, |part, member| tape.member(part, member));
        tape.words(found).filter(|text| !text.is_empty())
    };
    WORDING.iter().find_map(at)
}

fn unquoted(raw: &str) -> &str {
    raw.trim_matches('"')
}

/// Seconds as a number, or as a text.
fn seconds(timestamp: Option<Part<'_>>) -> Option<i64> {
    seconds_to_ms(unquoted(timestamp?.get()).parse().ok())
}
