//! The keys of `provider = "generic"`: where the id, the thread and the signature are.

use hapax_providers::settings::{Encoding, FieldSource, GenericSettings, HmacAlgorithm, SignatureRule};
use secrecy::SecretString;

use super::mistake::Mistakes;
use super::secret::{self, Unsigned};
use super::section::{Found, Section, refuse_unknown};

const SIGNATURE_KEYS: &[&str] = &["type", "header", "encoding", "prefix", "user"];

/// What most senders do: Meta, GitHub, GOWA and who learnt from them.
const USUAL_HEADER: &str = "X-Hub-Signature-256";
const USUAL_PREFIX: &str = "sha256=";

pub(super) fn read(
    channel: &str,
    own: &Found<'_>,
    section: &Section<'_>,
    secrets: Option<Vec<SecretString>>,
    allow_unsigned: bool,
    mistakes: &mut Mistakes,
) -> Option<GenericSettings> {
    let id_parts = section.get("id_parts").and_then(|found| found.texts(mistakes)).unwrap_or_default();
    Some(GenericSettings {
        channel: channel.to_owned(),
        id: section.get("id").and_then(|found| read_place(&found, mistakes)),
        id_parts: id_parts.iter().filter_map(|(found, _)| read_place(found, mistakes)).collect(),
        thread: section.get("thread").and_then(|found| read_place(&found, mistakes)),
        signature: read_signature(own, section, secrets, allow_unsigned, mistakes)?,
    })
}

fn read_place(found: &Found<'_>, mistakes: &mut Mistakes) -> Option<FieldSource> {
    match FieldSource::read(found.text(mistakes)?) {
        Ok(place) => Some(place),
        Err(what) => {
            found.refuse(mistakes, what);
            None
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Hmac(HmacAlgorithm),
    Token,
    Basic,
    None,
}

const TYPES: [(&str, Type); 5] = [
    ("hmac-sha256", Type::Hmac(HmacAlgorithm::Sha256)),
    ("hmac-sha512", Type::Hmac(HmacAlgorithm::Sha512)),
    ("token", Type::Token),
    ("basic", Type::Basic),
    ("none", Type::None),
];

pub(super) fn read_signature(
    own: &Found<'_>,
    section: &Section<'_>,
    secrets: Option<Vec<SecretString>>,
    allow_unsigned: bool,
    mistakes: &mut Mistakes,
) -> Option<SignatureRule> {
    let Some(found) = section.get("signature") else {
        // Where there is a secret it is checked, whatever `allow_unsigned` says.
        let without = secrets.is_none() && allow_unsigned;
        let unsigned = if allow_unsigned { Unsigned::Allowed } else { Unsigned::NotAllowed };
        let secrets = secret::require(own, secrets, unsigned, mistakes);
        return Some(if without { SignatureRule::None } else { usual(secrets) });
    };
    let table = found.table(mistakes)?;
    refuse_unknown(table, &found.path, SIGNATURE_KEYS, &[], mistakes);
    let keys = Section::new(vec![(found.path.clone(), table)]);
    let Some(kind) = keys.get("type") else {
        found.refuse(mistakes, "`type` is missing; write signature = { type = \"hmac-sha256\", header = \"X-Signature\" }");
        return None;
    };
    let kind_value = kind.choice(&TYPES, &[], mistakes)?;
    if kind_value == Type::None {
        if !allow_unsigned {
            kind.refuse(mistakes, "without a signature anybody could post here; if that is meant, add allow_unsigned = true");
        } else if secrets.is_some() {
            kind.refuse(
                mistakes,
                "there is a secret and nothing is checked with it; take the secret out, or choose another type",
            );
        }
        return Some(SignatureRule::None);
    }
    let secrets = secret::require(own, secrets, Unsigned::NotAllowed, mistakes);
    read_rule(kind_value, &found, &keys, secrets, mistakes)
}

fn usual(secrets: Vec<SecretString>) -> SignatureRule {
    SignatureRule::Hmac {
        algorithm: HmacAlgorithm::Sha256,
        encoding: Encoding::Hex,
        header: http::HeaderName::from_static("x-hub-signature-256"),
        prefix: USUAL_PREFIX.to_owned(),
        secrets,
    }
}

fn read_rule(
    kind: Type,
    found: &Found<'_>,
    keys: &Section<'_>,
    secrets: Vec<SecretString>,
    mistakes: &mut Mistakes,
) -> Option<SignatureRule> {
    let prefix = keys.get("prefix").and_then(|found| found.text(mistakes)).unwrap_or_default().to_owned();
    match kind {
        Type::Hmac(algorithm) => {
            let words = [("hex", Encoding::Hex), ("base64", Encoding::Base64)];
            let encoding = match keys.get("encoding") {
                Some(found) => found.choice(&words, &[], mistakes)?,
                None => Encoding::Hex,
            };
            Some(SignatureRule::Hmac { algorithm, encoding, header: read_header(found, keys, mistakes)?, prefix, secrets })
        }
        Type::Token => Some(SignatureRule::Token { header: read_header(found, keys, mistakes)?, prefix, secrets }),
        Type::Basic => match keys.get("user") {
            Some(user) => Some(SignatureRule::Basic { user: user.text(mistakes)?.to_owned(), passwords: secrets }),
            None => {
                found.refuse(mistakes, "type \"basic\" needs `user`; the channel's secret is the password");
                None
            }
        },
        Type::None => Some(SignatureRule::None),
    }
}

fn read_header(found: &Found<'_>, keys: &Section<'_>, mistakes: &mut Mistakes) -> Option<http::HeaderName> {
    let Some(header) = keys.get("header") else {
        found.refuse(mistakes, format!("`header` is missing; name the header, like header = \"{USUAL_HEADER}\""));
        return None;
    };
    let name = header.text(mistakes)?;
    match http::HeaderName::try_from(name) {
        Ok(name) => Some(name),
        Err(_) => {
            header.refuse(mistakes, format!("`{name}` is not a header name; write one like \"{USUAL_HEADER}\""));
            None
        }
    }
}
