//! What the gateways to WhatsApp Web (GOWA, WAHA, Evolution) have in common when they send: how numbers are written, bodies that say by
//! `method` or by a member of theirs what they are, and a history that is searched afterwards.

use super::body::{Body, check_text};
use super::{Found, Outgoing, Verdict};

pub(super) const PHONE_SERVER: &str = "@s.whatsapp.net";

/// WhatsApp cuts longer texts off.
const TEXT_MAX_CHARS: usize = 65_536;
/// By how much WhatsApp's clock may be behind ours.
const CLOCK_SLACK_MS: i64 = 5_000;

fn is_number(peer: &str) -> bool {
    (5..=20).contains(&peer.len()) && peer.bytes().all(|byte| byte.is_ascii_digit())
}

/// The digits of a number as people write it; nothing when it is none.
pub(super) fn digits_of(to: &str) -> Option<String> {
    let digits: String = to.chars().filter(|c| !matches!(c, '+' | ' ' | '-' | '(' | ')')).collect();
    is_number(&digits).then_some(digits)
}

/// The JID of a number as people write it; what is none stays as it is.
pub(crate) fn jid_of(to: &str) -> String {
    digits_of(to).map_or_else(|| to.to_owned(), |digits| format!("{digits}{PHONE_SERVER}"))
}

pub(super) fn is_jid(peer: &str) -> bool {
    let Some((user, server)) = peer.split_once('@') else { return false };
    let user_is_plain = user.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'_'));
    let servers = ["s.whatsapp.net", "c.us", "g.us", "lid", "newsletter", "broadcast"];
    !user.is_empty() && user_is_plain && servers.contains(&server)
}

/// Refuses whom no message can be for.
pub(super) fn check_peer(peer: &str, is_jid: impl FnOnce(&str) -> bool) -> Result<(), String> {
    match is_number(peer) || is_jid(peer) {
        true => Ok(()),
        false => Err("this is not a WhatsApp number; write 5 to 20 digits with the country code, or a JID".to_owned()),
    }
}

/// Checks what a person will read; `missing` says what to write where there is nothing.
pub(super) fn check_wording(text: Option<String>, missing: &str) -> Result<(), String> {
    check_text(&text.ok_or(missing)?, TEXT_MAX_CHARS)
}

/// What a body may ask for.
pub(super) struct Methods {
    /// What makes a message: the word in `method`, and the members by which such a body is known when it does not say. The last is the plain
    /// text.
    pub(super) sends: &'static [(&'static str, &'static [&'static str])],
    /// What makes a message out of another chat's, or one for all who follow: never out of a document that nobody has seen.
    pub(super) wider: &'static [&'static str],
    /// What makes no message of its own.
    pub(super) actions: &'static [&'static str],
}

impl Methods {
    /// What the body asks for.
    pub(super) fn of(&self, body: &Body<'_>) -> Result<&'static str, String> {
        if !body.has("method") {
            let plain = self.sends.last().map_or("", |(word, _)| word);
            return Ok(self.by_member(body).unwrap_or(plain));
        }
        let asked = body.text("method").unwrap_or_default();
        let others = self.wider.iter().chain(self.actions).copied();
        let known: Vec<&'static str> = self.sends().chain(others).collect();
        let found = known.iter().find(|word| **word == asked).copied();
        found.ok_or_else(|| format!("`method` is none of {}", known.join(", ")))
    }

    pub(super) fn by_member(&self, body: &Body<'_>) -> Option<&'static str> {
        let known = self.sends.iter().find(|(_, members)| members.iter().any(|member| body.has(member)));
        known.map(|(word, _)| *word)
    }

    fn sends(&self) -> impl Iterator<Item = &'static str> {
        self.sends.iter().map(|(word, _)| *word)
    }

    pub(super) fn make_message(&self, method: &str) -> bool {
        self.sends().chain(self.wider.iter().copied()).any(|word| word == method)
    }

    /// Only what says something in the chat may go out where nobody has seen it.
    pub(super) fn check_unattended(&self, method: &str) -> Result<(), String> {
        match self.sends().any(|word| word == method) {
            true => Ok(()),
            false => Err(format!("a document may ask for {} only", self.sends().collect::<Vec<_>>().join(", "))),
        }
    }

    /// False for presence, read and the like, which make nothing that could have an id.
    pub(super) fn make_message_of(&self, payload: &[u8]) -> bool {
        let method = Body::read(payload).and_then(|body| self.of(&body));
        method.is_ok_and(|method| self.make_message(method))
    }
}

/// What a good answer means.
pub(super) fn taken(gateway: &str, id: Option<&str>, makes_message: bool, message: &Outgoing<'_>) -> Verdict {
    match id {
        Some(id) => Verdict::Sent { provider_id: id.to_owned() },
        None if !makes_message => Verdict::Sent { provider_id: message.id.to_string() },
        None => Verdict::Unknown { why: format!("{gateway} took it without giving it an id") },
    }
}

/// From when on the history is searched, in the whole seconds that WhatsApp keeps: nothing older than the try can be it, if clocks agree.
pub(super) fn since_s(message: &Outgoing<'_>) -> Option<i64> {
    message.begun_ms.map(|begun_ms| (begun_ms - CLOCK_SLACK_MS).div_euclid(1_000))
}

/// What looks like the message in the history, each with its time.
pub(super) fn oldest_first(mut alike: Vec<(i64, String)>) -> Found {
    alike.sort();
    match alike.is_empty() {
        true => Found::Nothing,
        false => Found::OneOf { provider_ids: alike.into_iter().map(|(_, id)| id).collect() },
    }
}
