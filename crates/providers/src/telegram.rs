//! Telegram Bot API: one update per webhook, a plain secret in a header, and no word about which bot it is.

use hapax_domain::{Event, EventKey, Kind};
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::hmac::sensitive;
use super::lenient::{Integer, List, Object};
use super::reading::{Reading, name, seconds_to_ms};
use super::tape::{Part, Tape};
use super::tokens::Tokens;
use super::{Parsed, Provider, RawRequest, Refused, Unsigned, Verified, json};

const NAME: &str = "telegram";
static SECRET_HEADERS: [HeaderName; 1] = [HeaderName::from_static("x-telegram-bot-api-secret-token")];

pub(super) struct Telegram {
    tokens: Tokens,
    /// The first secret, for signing.
    secret: Option<SecretString>,
    bot: String,
}

impl Telegram {
    pub(super) fn new(secrets: &[SecretString], bot: &str) -> Self {
        Self { tokens: Tokens::new(secrets), secret: secrets.first().cloned(), bot: bot.to_owned() }
    }
}

impl Provider for Telegram {
    fn name(&self) -> &'static str {
        NAME
    }

    /// The token in the header is all there is to check.
    fn may_pass(&self, headers: &HeaderMap) -> bool {
        headers.get(&SECRET_HEADERS[0]).is_some_and(|token| self.tokens.accept(token.as_bytes()))
    }

    fn verify<'r>(&self, request: &'r RawRequest, _now_ms: i64) -> Result<Verified<'r>, Refused> {
        let token = request.headers.get(&SECRET_HEADERS[0]).ok_or(Refused::NoSignature)?;
        if self.tokens.accept(token.as_bytes()) { Ok(Verified::after_check(request)) } else { Err(Refused::BadSignature) }
    }

    fn parse(&self, request: &Verified<'_>) -> Parsed {
        Reading::whole(request.body(), |body| read(&self.bot, body))
    }

    fn sign(&self, _webhook: Unsigned<'_>, _now_ms: i64) -> Vec<(HeaderName, HeaderValue)> {
        let value = self.secret.as_ref().and_then(|secret| sensitive(secret.expose_secret()));
        value.map(|value| (SECRET_HEADERS[0].clone(), value)).into_iter().collect()
    }

    fn signature_headers(&self) -> &[HeaderName] {
        &SECRET_HEADERS
    }
}

#[derive(Deserialize)]
struct UpdateId {
    #[serde(default)]
    update_id: Integer,
}

/// What hapax looks at in any kind of update.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Happening<'a> {
    date: Integer,
    edit_date: Integer,
    chat: Object<Chat>,
    /// Where a button was pressed.
    message: Object<InChat>,
    /// Who did it, where that says more than the chat.
    from: Object<Chat>,
    user: Object<Chat>,
    text: Option<Part<'a>>,
    caption: Option<Part<'a>>,
    data: Option<Part<'a>>,
    new_reaction: List<Object<Emoji<'a>>>,
}

#[derive(Deserialize)]
struct Chat {
    #[serde(default)]
    id: Integer,
}

#[derive(Deserialize)]
struct InChat {
    #[serde(default)]
    chat: Object<Chat>,
}

#[derive(Deserialize)]
struct Emoji<'a> {
    #[serde(borrow, default)]
    emoji: Option<Part<'a>>,
}

fn read(bot: &str, body: &str) -> Result<Event, String> {
    let tape = Tape::of(body)?;
    let update: UpdateId = tape.object(tape.root())?;
    let account = name("the bot's name", Some(bot))?;
    // Exactly one other member says what happened. It may be of a kind that did not exist when this was written.
    let (word, part) = tape.members(tape.root()).find(|(word, _)| word != "update_id").ok_or("an update without content")?;
    let happening: Happening<'_> = tape.object(part)?;
    let kind = kind_of(&word);
    let peer = match kind {
        Kind::Message | Kind::Edit => Some(happening.chat().ok_or("chat.id is missing")?),
        // What happens in no chat is answered to the person, whose private chat has the person's number.
        _ => happening.chat().or_else(|| happening.person()),
    };
    let fingerprint = tape.fingerprint_root(&[])?;
    let event = match update.update_id.0 {
        Some(id) => {
            let id = id.to_string();
            Event::new(kind, account, &id, EventKey::new(NAME, account, kind, &id, &[]), fingerprint)
        }
        None => {
            let content = json::canonical(body, &[]).ok_or("nested too deeply")?;
            let at = happening.at_ms().map(|at_ms| at_ms.to_string());
            Event::without_id(NAME, kind, account, at.as_deref(), &content, fingerprint)
        }
    };
    Ok(Event { peer, at_ms: happening.at_ms(), text: tape.words(happening.words()), ..event })
}

fn kind_of(word: &str) -> Kind {
    match word {
        "message" | "channel_post" | "business_message" => Kind::Message,
        "callback_query" => Kind::Action,
        "message_reaction" => Kind::Reaction,
        "deleted_business_messages" => Kind::Delete,
        _ if word.starts_with("edited_") => Kind::Edit,
        _ => Kind::Notice,
    }
}

impl<'a> Happening<'a> {
    fn person(&self) -> Option<String> {
        let person = self.from.0.as_ref().or(self.user.0.as_ref())?;
        person.id.0.map(|id| id.to_string())
    }

    fn chat(&self) -> Option<String> {
        let in_message = || self.message.0.as_ref().and_then(|message| message.chat.0.as_ref());
        let chat = self.chat.0.as_ref().or_else(in_message)?;
        chat.id.0.map(|id| id.to_string())
    }

    fn at_ms(&self) -> Option<i64> {
        seconds_to_ms(self.edit_date.0.or(self.date.0))
    }

    fn words(&self) -> Option<Part<'a>> {
        let emoji = || self.new_reaction.items().first().and_then(|reaction| reaction.0.as_ref()?.emoji);
        self.text.or(self.caption).or(self.data).or_else(emoji)
    }
}
