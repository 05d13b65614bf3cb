//! Secrets: long enough, not a well-known default, and never shown.

use hapax_domain::limits::SECRET_MIN_BYTES;
use hapax_providers::{is_standard_key, is_standard_public_key};
use secrecy::{ExposeSecret, SecretString};

use super::mistake::Mistakes;
use super::section::{Found, Section};
use super::targets;

/// Words from manuals and examples: whoever knows the manual could sign.
const WELL_KNOWN: [&str; 9] =
    ["secret", "changeme", "change-me", "change_me", "password", "12345678", "your-secret", "your_secret", "your-webhook-secret"];

/// Telegram's own rule for `secret_token`.
const TELEGRAM_MAX_BYTES: usize = 256;

pub(super) fn read_secret(found: &Found<'_>, mistakes: &mut Mistakes) -> Option<SecretString> {
    let text = found.text(mistakes)?;
    match objection(text) {
        Some(what) => {
            found.refuse(mistakes, what);
            None
        }
        None => Some(SecretString::from(text)),
    }
}

fn objection(text: &str) -> Option<String> {
    let make = "make one with `openssl rand -hex 24` and set it at the provider too";
    if text.is_empty() {
        Some(format!("the secret is empty; {make}"))
    } else if text.eq_ignore_ascii_case("secret") {
        Some(format!("`secret` is GOWA's default and known to everybody; {make}"))
    } else if WELL_KNOWN.iter().any(|known| text.eq_ignore_ascii_case(known)) {
        Some(format!("this secret stands in every manual and is known to everybody; {make}"))
    } else if text.len() < SECRET_MIN_BYTES {
        Some(format!("the secret is too short ({} bytes, at least {SECRET_MIN_BYTES}); {make}", text.len()))
    } else {
        None
    }
}

/// Reads `secret` or `secrets`. `None`: neither is there. An empty list means that they are there and wrong.
pub(super) fn read_secrets(own: &Found<'_>, section: &Section<'_>, mistakes: &mut Mistakes) -> Option<Vec<SecretString>> {
    let (one, many) = (section.get("secret"), section.get("secrets"));
    let prefix = format!("{}.", own.path);
    let (one, many) = match (one, many) {
        (Some(one), Some(many)) => match (one.path.starts_with(&prefix), many.path.starts_with(&prefix)) {
            (true, false) => (Some(one), None),
            (false, true) => (None, Some(many)),
            _ => {
                many.refuse(mistakes, "both `secret` and `secrets` are set; keep `secrets = [..]` while rotating, else `secret`");
                return Some(Vec::new());
            }
        },
        other => other,
    };
    if let Some(one) = one {
        return Some(read_secret(&one, mistakes).into_iter().collect());
    }
    let many = many?;
    let list = many.texts(mistakes).unwrap_or_default();
    if list.is_empty() && matches!(&many.entry.node, super::tree::Node::List(entries) if entries.is_empty()) {
        many.refuse(mistakes, "the list is empty; write at least one secret");
    }
    Some(list.iter().filter_map(|(found, _)| read_secret(found, mistakes)).collect())
}

/// Insists on a secret. `unsigned` is what the channel could do instead, if it may.
pub(super) fn require(
    own: &Found<'_>,
    secrets: Option<Vec<SecretString>>,
    unsigned: Unsigned,
    mistakes: &mut Mistakes,
) -> Vec<SecretString> {
    if secrets.is_none() {
        match unsigned {
            Unsigned::Allowed => {}
            Unsigned::NotAllowed => {
                own.refuse(mistakes, "no `secret`: anybody could post here; add the sender's secret, or allow_unsigned = true");
            }
            Unsigned::NotPossible => {
                own.refuse(mistakes, "no `secret`: anybody could post here; add the one that the provider signs with");
            }
        }
    }
    secrets.unwrap_or_default()
}

/// Whether a channel does without a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsigned {
    Allowed,
    NotAllowed,
    /// The provider signs, so unsigned webhooks are not its own.
    NotPossible,
}

pub(super) fn check_standard(own: &Found<'_>, section: &Section<'_>, secrets: &[SecretString], mistakes: &mut Mistakes) {
    let found = section.get("secret").or_else(|| section.get("secrets"));
    let found = found.as_ref().unwrap_or(own);
    if !secrets.iter().all(|secret| is_standard_key(secret.expose_secret())) {
        found.refuse(mistakes, "behind `whsec_`, `whpk_` or `whsk_` stands a key in base64, and this is none; copy it again");
    }
    let only_public = !secrets.is_empty() && secrets.iter().all(|secret| is_standard_public_key(secret.expose_secret()));
    if only_public && targets::has_any(section) && section.get("sign_with").is_none() {
        let what = "with a public key nothing can be signed for the target; add sign_with = \"..\", a secret of the target's own";
        found.refuse(mistakes, what);
    }
}

pub(super) fn check_telegram(own: &Found<'_>, section: &Section<'_>, secrets: &[SecretString], mistakes: &mut Mistakes) {
    let allowed = |text: &str| {
        text.len() <= TELEGRAM_MAX_BYTES && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    if !secrets.iter().all(|secret| allowed(secret.expose_secret())) {
        let found = section.get("secret").or_else(|| section.get("secrets"));
        let what = "Telegram takes only A-Z, a-z, 0-9, `_` and `-` in a secret_token, at most 256; choose another";
        found.as_ref().unwrap_or(own).refuse(mistakes, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_and_short_secrets_are_refused_without_being_shown() {
        for bad in ["", "secret", "SECRET", "changeme", "hunter2"] {
            assert!(objection(bad).is_some(), "{bad}");
        }
        assert!(!objection("hunter2").expect("refused").contains("hunter2"));
        assert_eq!(objection("whsec_test"), None);
    }
}
