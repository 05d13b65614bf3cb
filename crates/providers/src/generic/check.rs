//! The ways in which a generic webhook proves where it comes from.

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use secrecy::{ExposeSecret, SecretString};

use crate::Refused;
use crate::hmac::{MacKeys, sensitive};
use crate::settings::{Encoding, SignatureRule};
use crate::tokens::Tokens;

/// Reads base64 with and without padding, since senders disagree.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(crate) struct Check {
    rule: Rule,
    /// The header that carries the proof; none when there is no proof.
    headers: Vec<HeaderName>,
    /// What stands before the proof in the header.
    prefix: String,
}

enum Rule {
    Hmac { keys: MacKeys, encoding: Encoding },
    Token { tokens: Tokens, first: Option<SecretString> },
    Unsigned,
}

impl Check {
    pub(crate) fn new(rule: &SignatureRule) -> Self {
        match rule {
            SignatureRule::Hmac { algorithm, encoding, header, prefix, secrets } => Self {
                rule: Rule::Hmac { keys: MacKeys::new(*algorithm, secrets), encoding: *encoding },
                headers: vec![header.clone()],
                prefix: prefix.clone(),
            },
            SignatureRule::Token { header, prefix, secrets } => Self::token(header.clone(), prefix, secrets),
            SignatureRule::Basic { user, passwords } => {
                let credentials =
                    |password: &SecretString| SecretString::from(STANDARD.encode(format!("{user}:{}", password.expose_secret())));
                let credentials: Vec<SecretString> = passwords.iter().map(credentials).collect();
                Self::token(header::AUTHORIZATION, "Basic ", &credentials)
            }
            SignatureRule::None => Self { rule: Rule::Unsigned, headers: Vec::new(), prefix: String::new() },
        }
    }

    fn token(header: HeaderName, prefix: &str, secrets: &[SecretString]) -> Self {
        let rule = Rule::Token { tokens: Tokens::new(secrets), first: secrets.first().cloned() };
        Self { rule, headers: vec![header], prefix: prefix.to_owned() }
    }

    pub(crate) fn headers(&self) -> &[HeaderName] {
        &self.headers
    }

    /// What can be said before the body has come.
    pub(crate) fn may_pass(&self, headers: &HeaderMap) -> bool {
        match (&self.rule, self.headers.first()) {
            (Rule::Hmac { .. }, Some(header)) => headers.contains_key(header),
            (Rule::Token { .. } | Rule::Unsigned, _) | (_, None) => self.check(headers, &[]).is_ok(),
        }
    }

    pub(crate) fn check(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), Refused> {
        let Some(header) = self.headers.first() else {
            return Ok(());
        };
        let value = headers.get(header).ok_or(Refused::NoSignature)?.as_bytes();
        let proof = without_prefix(value, self.prefix.as_bytes()).ok_or(Refused::BadSignature)?;
        let accepted = match &self.rule {
            Rule::Hmac { keys, encoding } => {
                let claimed = match encoding {
                    Encoding::Hex => hex::decode(proof).map_err(|_| Refused::BadSignature)?,
                    Encoding::Base64 => BASE64.decode(proof).map_err(|_| Refused::BadSignature)?,
                };
                keys.accept(&[body], &[claimed])
            }
            Rule::Token { tokens, .. } => tokens.accept(proof),
            Rule::Unsigned => true,
        };
        if accepted { Ok(()) } else { Err(Refused::BadSignature) }
    }

    pub(crate) fn sign(&self, body: &[u8]) -> Vec<(HeaderName, HeaderValue)> {
        let proof = match &self.rule {
            Rule::Hmac { keys, encoding } => keys.sign(&[body]).map(|mac| match encoding {
                Encoding::Hex => hex::encode(mac.as_bytes()),
                Encoding::Base64 => STANDARD.encode(mac.as_bytes()),
            }),
            Rule::Token { first, .. } => first.as_ref().map(|secret| secret.expose_secret().to_owned()),
            Rule::Unsigned => None,
        };
        let value = proof.and_then(|proof| sensitive(&format!("{}{proof}", self.prefix)));
        self.headers.first().cloned().zip(value).into_iter().collect()
    }
}

/// Strips the prefix whatever its case: `bearer` and `Bearer` are one scheme.
fn without_prefix<'v>(value: &'v [u8], prefix: &[u8]) -> Option<&'v [u8]> {
    let (start, rest) = value.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}
