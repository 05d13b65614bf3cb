//! Slack's Events API: one event per webhook, signed together with the time of the attempt.

use bytes::Bytes;
use hapax_domain::{Event, EventKey, Kind, MessageId};
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;
use serde::Deserialize;

use super::hmac::{MacKeys, read_hex, sensitive};
use super::lenient::{Integer, Object, Text};
use super::reading::{Reading, name, seconds_to_ms};
use super::redact::{REDACTED, Secret};
use super::settings::HmacAlgorithm;
use super::tape::{Part, Tape};
use super::{Parsed, Provider, RawRequest, Refused, Reply, Unsigned, Verified, json};

const NAME: &str = "slack";
/// By this, the same in every webhook of an app, bots knew Slack before there were signatures.
const TOKEN: Secret = Secret { name: "token", anywhere: false };
/// How far the signed time may be from ours, either way.
const TOLERANCE_S: u64 = 300;
/// The kind of metadata by which our own messages are known again.
pub(super) const HANDLE: &str = "hapax_message";
/// Who else may see the event: one of several, and not always the same one; and what is not kept.
const VOLATILE: &[&str] = &["authorizations", "authed_users", "event_context", TOKEN.name];
const SIGNATURE: HeaderName = HeaderName::from_static("x-slack-signature");
const TIME: HeaderName = HeaderName::from_static("x-slack-request-timestamp");

/// The retry headers are left out with the signature: what is taken in may be a second try whose first never came, and many bots drop
/// whatever has such a header.
static SIGNATURE_HEADERS: [HeaderName; 4] =
    [SIGNATURE, TIME, HeaderName::from_static("x-slack-retry-num"), HeaderName::from_static("x-slack-retry-reason")];

pub(super) struct Slack {
    keys: MacKeys,
}

impl Slack {
    pub(super) fn new(secrets: &[SecretString]) -> Self {
        Self { keys: MacKeys::new(HmacAlgorithm::Sha256, secrets) }
    }
}

impl Provider for Slack {
    fn name(&self) -> &'static str {
        NAME
    }

    fn may_pass(&self, headers: &HeaderMap) -> bool {
        headers.contains_key(SIGNATURE)
    }

    fn challenge(&self, request: &Verified<'_>) -> Option<Reply> {
        let tape = Tape::of_bytes(request.body()).ok()?;
        let asked: Envelope<'_> = tape.object(tape.root()).ok()?;
        let challenge = asked.challenge.get().filter(|_| asked.is_handshake())?;
        Some(Reply { status: 200, content_type: "text/plain", body: challenge.to_owned() })
    }

    fn verify<'r>(&self, request: &'r RawRequest, now_ms: i64) -> Result<Verified<'r>, Refused> {
        let header = request.headers.get(SIGNATURE).ok_or(Refused::NoSignature)?;
        let time = request.headers.get(TIME).and_then(|time| time.to_str().ok()).ok_or(Refused::BadSignature)?;
        let digits = header.as_bytes().strip_prefix(b"v0=").ok_or(Refused::BadSignature)?;
        let claimed: [u8; 32] = read_hex(digits).ok_or(Refused::BadSignature)?;
        if !self.keys.accept(&[b"v0:", time.as_bytes(), b":", &request.body], &[claimed]) {
            return Err(Refused::BadSignature);
        }
        let signed_s: i64 = time.parse().map_err(|_| Refused::BadSignature)?;
        if now_ms.div_euclid(1_000).abs_diff(signed_s) > TOLERANCE_S {
            return Err(Refused::Stale);
        }
        Ok(Verified::after_check(request).signed_at(seconds_to_ms(Some(signed_s))).with_body(self.redact_kept(&request.body)))
    }

    fn redact_kept(&self, body: &Bytes) -> Option<Bytes> {
        TOKEN.blanked(body, |_| format!("\"{REDACTED}\"")).map(Bytes::from)
    }

    fn parse(&self, request: &Verified<'_>) -> Parsed {
        let body = request.body();
        let mut reading = Reading::new(body);
        match Tape::of_bytes(body).and_then(|tape| read(&tape)) {
            Ok(None) => reading.ignore(),
            Ok(Some(event)) => reading.take(body, || Ok(event)),
            Err(why) => reading.take(body, || Err(why)),
        }
        reading.finish()
    }

    /// Our own handle is nothing to the bot.
    fn restore(&self, body: &[u8]) -> Option<Vec<u8>> {
        let text = std::str::from_utf8(body).ok().filter(|text| text.contains(HANDLE))?;
        let event = json::member(text, "event")?.get();
        let metadata: Metadata<'_> = json::object(json::member(event, "metadata")?.get()).ok()?;
        metadata.handle()?;
        let members = json::members(event)?;
        let others = members.iter().filter(|(name, _)| name != "metadata");
        let mut without = Vec::with_capacity(event.len());
        json::write_object(&mut without, others.map(|(name, raw)| (name.as_ref(), raw.get().as_bytes().into())));
        json::with_member_replaced(text, "event", &without)
    }

    fn sign(&self, webhook: Unsigned<'_>, now_ms: i64) -> Vec<(HeaderName, HeaderValue)> {
        let time = now_ms.div_euclid(1_000).to_string();
        let mac = self.keys.sign(&[b"v0:", time.as_bytes(), b":", webhook.body]);
        let value = mac.and_then(|mac| sensitive(&format!("v0={}", hex::encode(mac.as_bytes()))));
        match (value, sensitive(&time)) {
            (Some(value), Some(time)) => vec![(SIGNATURE, value), (TIME, time)],
            _ => Vec::new(),
        }
    }

    fn signature_headers(&self) -> &[HeaderName] {
        &SIGNATURE_HEADERS
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Envelope<'a> {
    #[serde(rename = "type")]
    sort: Text<'a>,
    challenge: Text<'a>,
    team_id: Text<'a>,
    api_app_id: Text<'a>,
    event_id: Text<'a>,
    event_time: Integer,
    /// Of `app_rate_limited`, which has neither an event nor its id.
    minute_rate_limited: Integer,
    event: Option<Part<'a>>,
}

impl Envelope<'_> {
    fn is_handshake(&self) -> bool {
        self.sort.get() == Some("url_verification")
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Happening<'a> {
    #[serde(rename = "type")]
    sort: Text<'a>,
    subtype: Text<'a>,
    channel: Text<'a>,
    ts: Text<'a>,
    event_ts: Text<'a>,
    item: Object<Item<'a>>,
    reaction: Option<Part<'a>>,
    /// The message as it is now, where one was changed.
    message: Object<Said<'a>>,
}

/// What somebody said, and through which app.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Said<'a> {
    text: Option<Part<'a>>,
    app_id: Text<'a>,
    bot_profile: Object<BotProfile<'a>>,
    metadata: Object<Metadata<'a>>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    channel: Text<'a>,
}

#[derive(Deserialize)]
struct BotProfile<'a> {
    #[serde(borrow, default)]
    app_id: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Metadata<'a> {
    event_type: Text<'a>,
    event_payload: Object<Handle<'a>>,
}

#[derive(Deserialize)]
struct Handle<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
}

impl Metadata<'_> {
    /// The message of ours that carries it.
    pub(super) fn handle(&self) -> Option<MessageId> {
        let ours = self.event_type.get() == Some(HANDLE);
        self.event_payload.0.as_ref().filter(|_| ours)?.id.get()?.parse().ok()
    }
}

impl Said<'_> {
    fn is_by(&self, app: &str) -> bool {
        let profile = self.bot_profile.0.as_ref().and_then(|profile| profile.app_id.name());
        !app.is_empty() && self.app_id.name().or(profile) == Some(app)
    }
}

impl Happening<'_> {
    fn kind(&self) -> Kind {
        match (self.sort.get().unwrap_or_default(), self.subtype.name()) {
            ("app_mention", _) => Kind::Message,
            ("message", None | Some("bot_message" | "file_share" | "me_message" | "thread_broadcast")) => Kind::Message,
            ("message", Some("message_changed")) => Kind::Edit,
            ("message", Some("message_deleted")) => Kind::Delete,
            ("reaction_added" | "reaction_removed", _) => Kind::Reaction,
            _ => Kind::Notice,
        }
    }

    fn channel(&self) -> Option<&str> {
        self.channel.name().or_else(|| self.item.0.as_ref()?.channel.name())
    }
}

/// Nothing for a handshake.
fn read(tape: &Tape<'_>) -> Result<Option<Event>, String> {
    let envelope: Envelope<'_> = tape.object(tape.root())?;
    if envelope.is_handshake() {
        return Ok(None);
    }
    let account = match envelope.team_id.name() {
        Some(team) => name("team_id", Some(team))?,
        None => "",
    };
    let app = envelope.api_app_id.get().unwrap_or_default();
    let fingerprint = tape.fingerprint_root(VOLATILE)?;
    let happening: Option<(Happening<'_>, Said<'_>)> =
        envelope.event.and_then(|part| Some((tape.object(part).ok()?, tape.object(part).ok()?)));
    let kind = happening.as_ref().map(|(happening, _)| happening).map_or(Kind::Notice, Happening::kind);
    let event = match envelope.event_id.name() {
        None => {
            name("neither an event_id nor a type: the type", envelope.sort.get())?;
            let content = json::canonical(tape.root().get(), VOLATILE).ok_or("nested too deeply")?;
            let ts = || happening.as_ref().and_then(|(told, _)| told.event_ts.name().or(told.ts.name())).map(str::to_owned);
            let at = envelope.event_time.0.or(envelope.minute_rate_limited.0).map(|at| at.to_string()).or_else(ts);
            Event::without_id(NAME, kind, account, at.as_deref(), &content, fingerprint)
        }
        found => {
            let id = name("event_id", found)?;
            Event::new(kind, account, id, EventKey::new(NAME, account, kind, id, &[app]), fingerprint)
        }
    };
    let event = Event { at_ms: seconds_to_ms(envelope.event_time.0.or(envelope.minute_rate_limited.0)), ..event };
    match happening {
        Some((happening, said)) => with_happening(tape, event, &happening, &said, app).map(Some),
        None => Ok(Some(event)),
    }
}

fn with_happening<'t>(
    tape: &Tape<'t>,
    event: Event,
    happening: &Happening<'t>,
    said: &Said<'t>,
    app: &str,
) -> Result<Event, String> {
    let peer = happening.channel().map(|channel| name("channel", Some(channel))).transpose()?;
    // Anybody's app may write metadata; only Slack says whose app it was.
    let handle = said.metadata.0.as_ref().filter(|_| said.is_by(app)).and_then(Metadata::handle);
    // A changed message says itself what it is now.
    let said = happening.message.0.as_ref().unwrap_or(said);
    let echo = event.kind != Kind::Notice && said.is_by(app);
    let id = match (event.kind, peer, happening.ts.name()) {
        // Slack's own name of a message. A mention is told of twice, as a message and as a mention: both show the same.
        (Kind::Message, Some(channel), Some(ts)) if event.identity == hapax_domain::Identity::Named => {
            name("channel and ts", Some(&message_id(channel, ts)))?.to_owned()
        }
        _ => event.id,
    };
    let at_ms = instant(&happening.event_ts).or_else(|| instant(&happening.ts)).or(event.at_ms);
    let text = tape.words(said.text.or(happening.reaction));
    Ok(Event { id, peer: peer.map(str::to_owned), echo, handle, at_ms, text, ..event })
}

/// A message is named by its channel and the time in it.
pub(super) fn message_id(channel: &str, ts: &str) -> String {
    format!("{channel}:{ts}")
}

/// `1760000000.000100` in milliseconds.
fn instant(ts: &Text<'_>) -> Option<i64> {
    let (seconds, fraction) = ts.get()?.split_once('.')?;
    let thousandths: i64 = fraction.get(..3)?.parse().ok()?;
    seconds_to_ms(seconds.parse().ok())?.checked_add(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "msg_0190000000007000800000000000002a";

    fn message(app: &str) -> String {
        format!(
            r#"{{"type":"event_callback","team_id":"T1","api_app_id":"A1","event_id":"Ev1","event":{{"type":"message","channel":"C1","ts":"1.000100","app_id":"{app}","text":"a","metadata":{{"event_type":"hapax_message","event_payload":{{"id":"{ID}"}}}}}}}}"#
        )
    }

    /// Versions that keep the token and versions that do not see the same event.
    #[test]
    fn the_token_makes_no_other_event() {
        let read = |body: &str| Tape::of(body).and_then(|tape| read(&tape)).unwrap().unwrap();
        let of = |token: &str| read(&message("A1").replacen('{', &format!(r#"{{"token":"{token}","#), 1));
        assert_eq!(of("a"), of("b"));
        assert_eq!(of("a").fingerprint, read(&message("A1")).fingerprint);
    }

    #[test]
    fn our_handle_is_believed_of_our_own_app_only() {
        let read = |app: &str| Tape::of(&message(app)).and_then(|tape| read(&tape)).unwrap().unwrap();
        let of = |app: &str| (read(app).echo, read(app).handle.map(|id| id.to_string()));
        assert_eq!(of("A1"), (true, Some(ID.to_owned())));
        assert_eq!(of("A2"), (false, None));
        assert_eq!(of(""), (false, None));
    }

    #[test]
    fn the_bot_does_not_see_our_handle() {
        let slack = Slack::new(&[]);
        let restored = slack.restore(message("A1").as_bytes()).map(|body| String::from_utf8(body).unwrap_or_default());
        let expected = r#"{"type":"event_callback","team_id":"T1","api_app_id":"A1","event_id":"Ev1","event":{"type":"message","channel":"C1","ts":"1.000100","app_id":"A1","text":"a"}}"#;
        assert_eq!(restored.as_deref(), Some(expected));
        assert_eq!(slack.restore(message("A1").replace("\"hapax_message\"", "\"order\"").as_bytes()), None);
        assert_eq!(slack.restore(b"hapax_message"), None);
    }
}
