//! WAHA: one event per webhook, signed with SHA-512. Its ids are put together of direction, chat, id and participant; only the id counts.

use hapax_domain::{Event, EventKey, Kind, Status, fingerprint};
use http::{HeaderName, HeaderValue};
use secrecy::SecretString;
use serde::Deserialize;

use super::hmac::{MacKeys, read_hex, sensitive};
use super::lenient::{Flag, Integer, Object, Text};
use super::reading::{Reading, content_of, name};
use super::settings::HmacAlgorithm;
use super::tape::{Part, Tape};
use super::whatsapp_web::{Named, People, whose, without_device};
use super::{Parsed, Provider, RawRequest, Refused, Unsigned, Verified};

const NAME: &str = "waha";
const HMAC: HeaderName = HeaderName::from_static("x-webhook-hmac");
const ALGORITHM: HeaderName = HeaderName::from_static("x-webhook-hmac-algorithm");
static SIGNATURE_HEADERS: [HeaderName; 2] = [HMAC, ALGORITHM];
/// What differs between copies: names of one person in two spellings, how far it has come, files that came later, the engine's own record.
const VOLATILE: &[&str] =
    &["_data", "ack", "ackName", "author", "from", "id", "media", "mediaUrl", "participant", "source", "to"];

pub(super) struct Waha {
    keys: MacKeys,
}

impl Waha {
    pub(super) fn new(secrets: &[SecretString]) -> Self {
        Self { keys: MacKeys::new(HmacAlgorithm::Sha512, secrets) }
    }
}

impl Provider for Waha {
    fn name(&self) -> &'static str {
        NAME
    }

    fn may_pass(&self, headers: &http::HeaderMap) -> bool {
        headers.contains_key(HMAC)
    }

    fn verify<'r>(&self, request: &'r RawRequest, _now_ms: i64) -> Result<Verified<'r>, Refused> {
        let header = request.headers.get(HMAC).ok_or(Refused::NoSignature)?;
        let claimed: [u8; 64] = read_hex(header.as_bytes()).ok_or(Refused::BadSignature)?;
        match self.keys.accept(&[&request.body], &[claimed]) {
            true => Ok(Verified::after_check(request)),
            false => Err(Refused::BadSignature),
        }
    }

    fn parse(&self, request: &Verified<'_>) -> Parsed {
        let body = request.body();
        let mut reading = Reading::new(body);
        let read = Tape::of_bytes(body).and_then(|tape| {
            let envelope: Envelope<'_> = tape.object(tape.root())?;
            Ok((tape, envelope))
        });
        match read {
            Ok((_, envelope)) if envelope.event.get() == Some("presence.update") => reading.ignore(),
            read => reading.take(body, || read.and_then(|(tape, envelope)| envelope.event(&tape))),
        }
        reading.finish()
    }

    fn sign(&self, webhook: Unsigned<'_>, _now_ms: i64) -> Vec<(HeaderName, HeaderValue)> {
        let code = self.keys.sign(&[webhook.body]).and_then(|mac| sensitive(&hex::encode(mac.as_bytes())));
        let both = code.zip(sensitive("sha512")).map(|(code, algorithm)| [(HMAC, code), (ALGORITHM, algorithm)]);
        both.into_iter().flatten().collect()
    }

    fn signature_headers(&self) -> &[HeaderName] {
        &SIGNATURE_HEADERS
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Envelope<'a> {
    /// Of the event, `evt_…`: the same in every copy, and for each kind of event another.
    id: Text<'a>,
    timestamp: Integer,
    event: Text<'a>,
    session: Text<'a>,
    payload: Option<Part<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Payload<'a> {
    id: Text<'a>,
    timestamp: Option<Part<'a>>,
    from: Text<'a>,
    to: Text<'a>,
    participant: Text<'a>,
    #[serde(rename = "fromMe")]
    from_me: Flag,
    body: Option<Part<'a>>,
    reaction: Option<Part<'a>>,
    ack: Integer,
    #[serde(rename = "editedMessageId")]
    edited_message_id: Text<'a>,
    #[serde(rename = "_data")]
    data: Object<EngineData<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Revoked<'a> {
    after: Option<Part<'a>>,
    #[serde(rename = "revokedMessageId")]
    revoked_message_id: Text<'a>,
}

#[derive(Deserialize)]
struct Vote<'a> {
    #[serde(borrow, default)]
    vote: Option<Part<'a>>,
}

/// Where the engines put the other name of a person: NOWEB in `key`, GOWS in `Info`.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct EngineData<'a> {
    key: Object<EngineKey<'a>>,
    #[serde(rename = "Info")]
    info: Object<EngineInfo<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct EngineKey<'a> {
    remote_jid_alt: Text<'a>,
    participant_alt: Text<'a>,
    sender_pn: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct EngineInfo<'a> {
    #[serde(rename = "SenderAlt")]
    sender_alt: Text<'a>,
    #[serde(rename = "RecipientAlt")]
    recipient_alt: Text<'a>,
}

impl<'t> Envelope<'t> {
    fn event(&self, tape: &Tape<'t>) -> Result<Event, String> {
        let word = name("event", self.event.get())?;
        let session = name("session", self.session.get())?;
        let of_payload = || self.payload.ok_or_else(|| "payload is missing".to_owned());
        match word {
            "message" | "message.any" => self.message(tape, session, Kind::Message, None, of_payload()?),
            "message.reaction" => self.message(tape, session, Kind::Reaction, None, of_payload()?),
            "message.edited" => self.message(tape, session, Kind::Edit, None, of_payload()?),
            // A stub must not claim the message's key: the full message may follow under the same id.
            "message.waiting" => self.message(tape, session, Kind::Notice, Some("stub"), of_payload()?),
            "message.revoked" => self.revoked(tape, session, of_payload()?),
            "message.ack" | "message.ack.group" => self.ack(tape, session, of_payload()?),
            "poll.vote" => {
                let vote: Vote<'_> = tape.object(of_payload()?)?;
                self.message(tape, session, Kind::Action, Some("vote"), vote.vote.ok_or("payload.vote is missing")?)
            }
            _ => self.notice(tape, session, word),
        }
    }

    fn message(&self, tape: &Tape<'t>, session: &str, kind: Kind, tag: Option<&str>, part: Part<'t>) -> Result<Event, String> {
        let payload: Payload<'_> = tape.object(part)?;
        let (id, people) = (bare(payload.id.get().unwrap_or_default()), payload.people());
        let event = match id {
            "" => self.without_id(tape, kind, session, payload.timestamp, Some(part))?,
            id => {
                let id = name("the message's id", Some(id))?;
                // One engine gives every edit the id of the message: only the event itself tells such edits apart.
                let tag = match payload.edited_message_id.name() {
                    Some(edited) if edited == id => self.id.name(),
                    _ => tag,
                };
                let named = Named { provider: NAME, account: session, kind, id, from_me: payload.from_me.0, tag };
                let event = Event::new(kind, session, id, named.key(people.sender()), tape.fingerprint(part, VOLATILE)?);
                Event { guard: named.guard(people.lid()), ..event }
            }
        };
        let (peer, aliases) = people.peer()?;
        let reaction = || payload.reaction.and_then(|reaction| tape.member(reaction, "text"));
        let (at_ms, text) = (millis(payload.timestamp).or(self.timestamp.0), tape.words(payload.body.or_else(reaction)));
        let text = text.filter(|text| !text.is_empty());
        Ok(Event { peer, aliases, echo: payload.from_me.0, at_ms, text, ..event })
    }

    fn revoked(&self, tape: &Tape<'t>, session: &str, part: Part<'t>) -> Result<Event, String> {
        let revoked: Revoked<'_> = tape.object(part)?;
        if let Some(after) = revoked.after {
            let event = self.message(tape, session, Kind::Delete, None, after)?;
            return Ok(Event { text: None, ..event });
        }
        // Only the message that is gone has a name here.
        let event = match revoked.revoked_message_id.name() {
            None => self.without_id(tape, Kind::Delete, session, None, Some(part))?,
            found => {
                let id = name("revokedMessageId", found)?;
                let key = EventKey::new(NAME, session, Kind::Delete, id, &["revoked", self.id.get().unwrap_or_default()]);
                Event::new(Kind::Delete, session, id, key, tape.fingerprint(part, VOLATILE)?)
            }
        };
        Ok(Event { at_ms: self.timestamp.0, ..event })
    }

    fn ack(&self, tape: &Tape<'t>, session: &str, part: Part<'t>) -> Result<Event, String> {
        let payload: Payload<'_> = tape.object(part)?;
        let ack = payload.ack.0.ok_or("payload.ack is missing")?;
        // What becomes of a message that came in is no word about one of ours, and a contact may have given it the same id.
        let status = status_of(ack).filter(|_| payload.from_me.0);
        let kind = if status.is_some() { Kind::Status } else { Kind::Notice };
        let composite = payload.id.get().unwrap_or_default();
        let event = match bare(composite) {
            "" => self.without_id(tape, kind, session, None, Some(part))?,
            id => {
                let id = name("the message's id", Some(id))?;
                // In a group everybody's phone acknowledges for itself.
                let participant = payload.participant.name().or(Composite::read(composite).and_then(|id| id.participant));
                let participant = participant.map(usual).unwrap_or_default();
                let parts = [&*ack.to_string(), &*participant, whose(payload.from_me.0)];
                let key = EventKey::new(NAME, session, kind, id, &parts);
                Event::new(kind, session, id, key, fingerprint::of_bytes(parts.join("\n").as_bytes()))
            }
        };
        let (peer, aliases) = payload.people().peer()?;
        Ok(Event { peer, aliases, status, at_ms: self.timestamp.0, ..event })
    }

    /// Sessions, groups, labels, calls and what is yet to be invented: known by the event's own id.
    fn notice(&self, tape: &Tape<'t>, session: &str, word: &str) -> Result<Event, String> {
        let event = match self.id.name() {
            None => self.without_id(tape, Kind::Notice, session, None, self.payload)?,
            found => {
                let id = name("id", found)?;
                let key = EventKey::new(NAME, session, Kind::Notice, id, &[word]);
                Event::new(Kind::Notice, session, id, key, tape.fingerprint_or_null(self.payload, &[])?)
            }
        };
        Ok(Event { at_ms: self.timestamp.0, ..event })
    }

    fn without_id(
        &self,
        tape: &Tape<'t>,
        kind: Kind,
        session: &str,
        at: Option<Part<'t>>,
        part: Option<Part<'t>>,
    ) -> Result<Event, String> {
        let content = content_of(&self.event, part.map_or("null", Part::get), &["_data"])?;
        let at = at.map(|at| at.get().to_owned());
        let at = at.or_else(|| self.timestamp.0.map(|at| at.to_string()));
        Ok(Event::without_id(NAME, kind, session, at.as_deref(), &content, tape.fingerprint_or_null(part, VOLATILE)?))
    }
}

impl Payload<'_> {
    fn people(&self) -> People {
        let from_me = self.from_me.0;
        let composite = self.id.get().and_then(Composite::read);
        let key = self.data.0.as_ref().and_then(|data| data.key.0.as_ref());
        let info = self.data.0.as_ref().and_then(|data| data.info.0.as_ref());
        let other_end = if from_me { self.to.name() } else { self.from.name() };
        let chat = [
            composite.as_ref().map(|id| id.chat).or(other_end),
            key.and_then(|key| key.remote_jid_alt.name()),
            info.and_then(|info| info.recipient_alt.name()).filter(|_| from_me),
        ];
        let sender = [
            self.participant.name().or(composite.and_then(|id| id.participant)),
            key.and_then(|key| key.participant_alt.name()),
            key.and_then(|key| key.sender_pn.name()),
            info.and_then(|info| info.sender_alt.name()),
        ];
        let (chat, sender) = (chat.map(|jid| jid.map(usual)), sender.map(|jid| jid.map(usual)));
        People::new(&chat.each_ref().map(Option::as_deref), &sender.each_ref().map(Option::as_deref), from_me)
    }
}

/// `{fromMe}_{chat}_{id}[_{participant}]`.
struct Composite<'i> {
    chat: &'i str,
    id: &'i str,
    participant: Option<&'i str>,
}

impl<'i> Composite<'i> {
    fn read(text: &'i str) -> Option<Self> {
        let rest = text.strip_prefix("true_").or_else(|| text.strip_prefix("false_"))?;
        let (chat, rest) = rest.split_once('_').filter(|(chat, rest)| chat.contains('@') && !rest.is_empty())?;
        let tail = rest.rsplit_once('_').filter(|(id, participant)| !id.is_empty() && participant.contains('@'));
        let (id, participant) = tail.map_or((rest, None), |(id, participant)| (id, Some(participant)));
        Some(Self { chat, id, participant })
    }
}

/// The id alone, however it came: in acks, edits and lookups it comes both ways.
pub(super) fn bare(id: &str) -> &str {
    Composite::read(id).map_or(id, |composite| composite.id)
}

/// As WAHA writes most of them: without the device, and phones under `c.us` whatever the engine calls them.
pub(super) fn usual(jid: &str) -> String {
    let jid = without_device(jid);
    jid.strip_suffix("@s.whatsapp.net").map_or_else(|| jid.to_string(), |user| format!("{user}@c.us"))
}

fn status_of(ack: i64) -> Option<Status> {
    match ack {
        -1 => Some(Status::Failed),
        1 => Some(Status::Sent),
        2 => Some(Status::Delivered),
        3 => Some(Status::Read),
        4 => Some(Status::Played),
        // Pending among them, which is less than sent.
        _ => None,
    }
}

/// Seconds, sometimes with a fraction.
fn millis(timestamp: Option<Part<'_>>) -> Option<i64> {
    let seconds: f64 = timestamp?.get().parse().ok()?;
    (seconds > 0.0 && seconds < 1e11).then_some((seconds * 1_000.0).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bare_id_is_found_in_every_form() {
        for (text, id) in [
            ("false_5511@c.us_3EB0AA", "3EB0AA"),
            ("true_12@g.us_3EB0X_9999@lid", "3EB0X"),
            ("true_12-34@g.us_A_B_5511@c.us", "A_B"),
            ("3EB0AA", "3EB0AA"),
            ("false_no chat_3EB0AA", "false_no chat_3EB0AA"),
            ("true_5511@c.us_", "true_5511@c.us_"),
            ("true_", "true_"),
            ("", ""),
        ] {
            assert_eq!(bare(text), id, "{text}");
        }
    }
}
