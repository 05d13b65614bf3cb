//! GOWA (go-whatsapp-web-multidevice): one event per webhook, except receipts, which name several messages.

use std::borrow::Cow;

use hapax_domain::{Event, EventKey, Kind, Status};
use http::{HeaderName, HeaderValue};
use secrecy::SecretString;
use serde::Deserialize;

use super::hmac::{HUB_SIGNATURE_HEADERS, HubSignature};
use super::lenient::{Flag, List, Text};
use super::reading::{Reading, name, peer_of};
use super::tape::{Part, Tape};
use super::whatsapp_web::{Named, is_lid, is_phone, without_device};
use super::{Parsed, Provider, RawRequest, Refused, Unsigned, Verified, json};

const NAME: &str = "gowa";
/// Worked out anew at every send, so they may differ between copies.
const VOLATILE: &[&str] = &["sender_display_name", "from_name"];
/// Members of a message that say who and when, or what it answers, but are not its content.
const ABOUT: &[&str] = &[
    "id",
    "chat_id",
    "from",
    "from_lid",
    "from_name",
    "sender_display_name",
    "timestamp",
    "is_from_me",
    "replied_to_id",
    "quoted_body",
];

pub(super) struct Gowa {
    signature: HubSignature,
}

impl Gowa {
    pub(super) fn new(secrets: &[SecretString]) -> Self {
        Self { signature: HubSignature::new(secrets) }
    }
}

impl Provider for Gowa {
    fn name(&self) -> &'static str {
        NAME
    }

    fn verify<'r>(&self, request: &'r RawRequest, _now_ms: i64) -> Result<Verified<'r>, Refused> {
        self.signature.check(&request.headers, &request.body)?;
        Ok(Verified::after_check(request))
    }

    fn parse(&self, request: &Verified<'_>) -> Parsed {
        let body = request.body();
        let mut reading = Reading::new(body);
        let read = Tape::of_bytes(body).and_then(|tape| {
            let envelope = tape.object(tape.root())?;
            Ok((tape, envelope))
        });
        match read {
            Ok((tape, envelope)) => read_envelope(&tape, &envelope, &mut reading),
            Err(why) => reading.take(body, || Err(why)),
        }
        reading.finish()
    }

    fn rewrap(&self, body: &[u8], keep: &[u32]) -> Option<Vec<u8>> {
        rewrap(std::str::from_utf8(body).ok()?, keep)
    }

    fn sign(&self, webhook: Unsigned<'_>, _now_ms: i64) -> Vec<(HeaderName, HeaderValue)> {
        self.signature.sign(webhook.body)
    }

    fn signature_headers(&self) -> &[HeaderName] {
        &HUB_SIGNATURE_HEADERS
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Envelope<'a> {
    event: Text<'a>,
    device_id: Text<'a>,
    timestamp: Text<'a>,
    payload: Option<Part<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Payload<'a> {
    id: Text<'a>,
    deleted_message_id: Text<'a>,
    ids: List<Part<'a>>,
    receipt_type: Text<'a>,
    chat_id: Text<'a>,
    from: Text<'a>,
    from_lid: Text<'a>,
    is_from_me: Flag,
    timestamp: Text<'a>,
    body: Option<Part<'a>>,
    reaction: Option<Part<'a>>,
}

fn read_envelope<'t>(tape: &Tape<'t>, envelope: &Envelope<'t>, reading: &mut Reading<'_>) {
    let whole = tape.text().as_bytes();
    let word = envelope.event.get().unwrap_or_default();
    match word {
        "chat_presence" => reading.ignore(),
        "message.ack" => match acks(tape, envelope) {
            Ok((account, payload)) => {
                for id in payload.ids.items().iter().copied() {
                    reading.take(id.get().as_bytes(), || ack(account, envelope, &payload, tape.words(Some(id))));
                }
                if payload.ids.items().is_empty() {
                    reading.ignore();
                }
            }
            Err(why) => reading.take(whole, || Err(why)),
        },
        "message" | "message.reaction" | "message.edited" | "message.revoked" | "message.deleted" => {
            reading.take(whole, || message(tape, envelope, word));
        }
        _ => reading.take(whole, || notice(tape, envelope)),
    }
}

fn account_of<'e>(envelope: &'e Envelope<'_>) -> Result<&'e str, String> {
    name("device_id", envelope.device_id.get())
}

fn payload_of<'a>(tape: &Tape<'a>, envelope: &Envelope<'a>) -> Result<Payload<'a>, String> {
    tape.object(envelope.payload.ok_or("payload is missing")?)
}

fn acks<'e, 'a>(tape: &Tape<'a>, envelope: &'e Envelope<'a>) -> Result<(&'e str, Payload<'a>), String> {
    let payload = payload_of(tape, envelope)?;
    match payload.ids {
        List::Items(_) => Ok((account_of(envelope)?, payload)),
        List::Absent | List::Odd => Err("payload.ids is no array".to_owned()),
    }
}

/// One message of a receipt.
fn ack(account: &str, envelope: &Envelope<'_>, payload: &Payload<'_>, id: Option<String>) -> Result<Event, String> {
    let id = id.ok_or("an id that is no text")?;
    let id = name("a message id", Some(&id))?;
    let receipt = name("receipt_type", payload.receipt_type.get())?;
    let status = match receipt {
        "delivered" => Some(Status::Delivered),
        // Read by ourselves on another device: read all the same.
        "read" | "read-self" => Some(Status::Read),
        "played" => Some(Status::Played),
        _ => None,
    };
    let kind = if status.is_some() { Kind::Status } else { Kind::Notice };
    let people = People::new(payload, receipt == "read-self");
    let key = EventKey::new(NAME, account, kind, id, &[receipt, &people.sender]);
    let (peer, aliases) = people.peer()?;
    // The other ids of the receipt are not part of this event: a receipt for fewer messages is still the same.
    let parts = [account, id, receipt, &people.sender, envelope.timestamp.get().unwrap_or_default()].join("\n");
    let event = Event::new(kind, account, id, key, hapax_domain::fingerprint::of_bytes(parts.as_bytes()));
    Ok(Event { peer, aliases, status, at_ms: instant(&envelope.timestamp), ..event })
}

fn message<'t>(tape: &Tape<'t>, envelope: &Envelope<'t>, word: &str) -> Result<Event, String> {
    let account = account_of(envelope)?;
    let payload = payload_of(tape, envelope)?;
    let people = People::new(&payload, payload.is_from_me.0);
    let (kind, id, tag) = match word {
        "message.reaction" => (Kind::Reaction, &payload.id, None),
        "message.edited" => (Kind::Edit, &payload.id, None),
        "message.revoked" => (Kind::Delete, &payload.id, None),
        // It has no id of its own, only that of the message it removes.
        "message.deleted" => (Kind::Delete, &payload.deleted_message_id, Some("deleted")),
        // A stub must not claim the message's key: the full message may follow under the same id.
        _ if is_stub(tape, envelope.payload) => (Kind::Notice, &payload.id, Some("stub")),
        _ => (Kind::Message, &payload.id, None),
    };
    let event = match id.name() {
        None => without_id(tape, envelope, kind, account, payload.timestamp.name())?,
        found => {
            let id = name("the message's id", found)?;
            let named = Named { provider: NAME, account, kind, id, from_me: payload.is_from_me.0, tag };
            let event = Event::new(kind, account, id, named.key(&people.sender), tape.fingerprint_root(VOLATILE)?);
            Event { guard: named.guard(people.sender_lid()), ..event }
        }
    };
    let (peer, aliases) = people.peer()?;
    let at_ms = instant(&payload.timestamp).or_else(|| instant(&envelope.timestamp));
    let text = tape.words(payload.body.or(payload.reaction));
    Ok(Event { peer, aliases, echo: payload.is_from_me.0, at_ms, text, ..event })
}

/// Known by all it says (who, where, when, what), without what changes between copies.
fn without_id(tape: &Tape<'_>, envelope: &Envelope<'_>, kind: Kind, account: &str, at: Option<&str>) -> Result<Event, String> {
    let content = json::canonical(tape.root().get(), VOLATILE).ok_or("nested too deeply")?;
    let at = at.or(envelope.timestamp.name());
    Ok(Event::without_id(NAME, kind, account, at, &content, tape.fingerprint_root(VOLATILE)?))
}

/// Groups, labels, calls and what is yet to be invented.
fn notice<'t>(tape: &Tape<'t>, envelope: &Envelope<'t>) -> Result<Event, String> {
    let account = account_of(envelope)?;
    name("event", envelope.event.get())?;
    let payload = payload_of(tape, envelope).ok();
    let at = payload.as_ref().and_then(|payload| payload.timestamp.name());
    let event = without_id(tape, envelope, Kind::Notice, account, at)?;
    Ok(Event { at_ms: instant(&envelope.timestamp), ..event })
}

/// True when nothing in the payload could be content; flags, nulls and empty values are none.
fn is_stub<'t>(tape: &Tape<'t>, payload: Option<Part<'t>>) -> bool {
    let says_something = |part: Part<'_>| !matches!(part.get(), "true" | "false" | "null" | "\"\"" | "{}" | "[]");
    !payload
        .is_some_and(|payload| tape.members(payload).any(|(name, part)| !ABOUT.contains(&name.as_ref()) && says_something(part)))
}

fn instant(timestamp: &Text<'_>) -> Option<i64> {
    timestamp.get()?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

/// Who is in it, by the best name known: the same person may come as a phone number or as a LID.
struct People<'p> {
    chat: Option<Cow<'p, str>>,
    /// Part of the key: the sender's phone chooses message ids, so a hostile contact can reuse another's. Empty when unknown.
    sender: Cow<'p, str>,
    lid: Option<Cow<'p, str>>,
    from_me: bool,
}

impl<'p> People<'p> {
    fn new(payload: &'p Payload<'_>, from_me: bool) -> Self {
        let chat = payload.chat_id.name().map(without_device);
        let lid = payload.from_lid.name().map(without_device);
        let from = payload.from.name().map(without_device).or_else(|| lid.clone());
        let phone_of_chat = chat.clone().filter(|chat| !from_me && is_phone(chat));
        let sender = match from {
            Some(from) if is_lid(&from) => phone_of_chat.unwrap_or(from),
            Some(from) => from,
            None => phone_of_chat.unwrap_or_default(),
        };
        Self { chat, sender, lid, from_me }
    }

    /// The name of whoever wrote that webhooks may know alone.
    fn sender_lid(&self) -> Option<&str> {
        let lid = self.lid.as_deref().or(Some(&*self.sender).filter(|sender| is_lid(sender)));
        lid.filter(|_| !self.from_me)
    }

    /// The chat is the peer; in a chat with one person, that person's other names are its aliases.
    fn peer(&self) -> Result<(Option<String>, Vec<String>), String> {
        let chat = self.chat.as_deref();
        let sender = (!self.from_me).then_some(self.sender.as_ref());
        let lid = self.lid.as_deref().filter(|_| !self.from_me);
        match chat {
            Some(chat) if is_lid(chat) => peer_of(&[sender.filter(|sender| is_phone(sender)), Some(chat), lid]),
            Some(chat) if is_phone(chat) => peer_of(&[Some(chat), sender.filter(|sender| is_phone(sender)), lid]),
            Some(group) => peer_of(&[Some(group)]),
            None => peer_of(&[sender, lid]),
        }
    }
}

/// A receipt with fewer ids. Everything else is one event and cannot be split.
fn rewrap(body: &str, keep: &[u32]) -> Option<Vec<u8>> {
    let tape = Tape::of(body).ok()?;
    let envelope: Envelope<'_> = tape.object(tape.root()).ok()?;
    if envelope.event.get() != Some("message.ack") {
        return None;
    }
    let payload = envelope.payload?.get();
    let ids = json::items(json::member(payload, "ids")?.get())?;
    let kept: Vec<&str> = keep.iter().filter_map(|index| ids.get(*index as usize).map(|id| id.get())).collect();
    if kept.is_empty() {
        return None;
    }
    let mut ids = Vec::new();
    json::write_array(&mut ids, kept.into_iter());
    let payload = json::with_member_replaced(payload, "ids", &ids)?;
    json::with_member_replaced(body, "payload", &payload)
}
