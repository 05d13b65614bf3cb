//! Evolution API: one event per webhook, proved by a token or a fixed header, never by a signature over the body.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

use super::generic::check::Check;
use super::jwt::Jwt;
use super::redact::{REDACTED, Secret};
use super::settings::EvolutionProof;
use super::{Parsed, Provider, RawRequest, Refused, Unsigned, Verified};

mod events;

pub(super) use events::wording;

const NAME: &str = "evolution";
/// Evolution puts the instance's own key into the body, where it is set to.
const APIKEY: Secret = Secret { name: "apikey", anywhere: true };
/// Stands in for the key that the channel sends with, so that it can be put back for the bot.
const OUR_KEY: &str = "[token]";

pub(super) struct Evolution {
    proof: Proof,
    token: Option<SecretString>,
}

enum Proof {
    Jwt(Jwt),
    Header(Check),
}

impl Evolution {
    pub(super) fn new(proof: &EvolutionProof, token: Option<&SecretString>) -> Self {
        let proof = match proof {
            EvolutionProof::Jwt { secrets } => Proof::Jwt(Jwt::new(secrets)),
            EvolutionProof::Header(rule) => Proof::Header(Check::new(rule)),
        };
        Self { proof, token: token.cloned() }
    }

    /// The body without the instance's key.
    fn redacted(&self, body: &Bytes, kept: bool) -> Option<Bytes> {
        let stands_in = |given: &str| {
            let given = given.as_bytes();
            let is_ours = self.token.as_ref().is_some_and(|token| bool::from(token.expose_secret().as_bytes().ct_eq(given)));
            // Only we put that in, and only what we kept may have it.
            let stood_in = kept && given == OUR_KEY.as_bytes();
            format!("\"{}\"", if is_ours || stood_in { OUR_KEY } else { REDACTED })
        };
        APIKEY.blanked(body, stands_in).map(Bytes::from)
    }
}

impl Provider for Evolution {
    fn name(&self) -> &'static str {
        NAME
    }

    fn may_pass(&self, headers: &HeaderMap) -> bool {
        match &self.proof {
            Proof::Jwt(jwt) => jwt.headers().iter().any(|name| headers.contains_key(name)),
            Proof::Header(check) => check.may_pass(headers),
        }
    }

    fn verify<'r>(&self, request: &'r RawRequest, now_ms: i64) -> Result<Verified<'r>, Refused> {
        let signed_ms = match &self.proof {
            Proof::Jwt(jwt) => jwt.check(&request.headers, now_ms)?,
            Proof::Header(check) => check.check(&request.headers, &request.body).map(|()| None)?,
        };
        Ok(Verified::after_check(request).signed_at(signed_ms).with_body(self.redacted(&request.body, false)))
    }

    fn redact_kept(&self, body: &Bytes) -> Option<Bytes> {
        self.redacted(body, true)
    }

    fn parse(&self, request: &Verified<'_>) -> Parsed {
        events::read(request.body())
    }

    fn restore(&self, body: &[u8]) -> Option<Vec<u8>> {
        let token = serde_json::Value::from(self.token.as_ref()?.expose_secret()).to_string();
        APIKEY.replaced(body, |given| (given == OUR_KEY).then(|| token.clone()))
    }

    fn sign(&self, webhook: Unsigned<'_>, now_ms: i64) -> Vec<(HeaderName, HeaderValue)> {
        match &self.proof {
            Proof::Jwt(jwt) => jwt.sign(now_ms),
            Proof::Header(check) => check.sign(webhook.body),
        }
    }

    fn signature_headers(&self) -> &[HeaderName] {
        match &self.proof {
            Proof::Jwt(jwt) => jwt.headers(),
            Proof::Header(check) => check.headers(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A version that redacted less, or nothing, may have kept a webhook in the spool; one that we kept has our own stand-in in it.
    #[test]
    fn what_was_kept_is_redacted_again_and_our_stand_in_stays() {
        let evolution = Evolution::new(&EvolutionProof::Jwt { secrets: vec![] }, Some(&"our-own-key".into()));
        let again = |body: &str| {
            let kept = evolution.redact_kept(&Bytes::from(body.to_owned())).expect("something to look at");
            String::from_utf8(kept.to_vec()).expect("a text")
        };
        assert_eq!(again(r#"{"apikey":"S3CRET"}"#), r#"{"apikey":"[redacted]"}"#);
        assert_eq!(again(r#"{"apikey":"our-own-key"}"#), r#"{"apikey":"[token]"}"#);
        for kept in [r#"{"apikey":"[token]"}"#, r#"{"apikey":"[redacted]"}"#] {
            assert_eq!(again(kept), kept);
        }
        let came = evolution.redacted(&Bytes::from_static(br#"{"apikey":"[token]"}"#), false);
        assert_eq!(came.as_deref(), Some(&br#"{"apikey":"[redacted]"}"#[..]), "nobody else may write it");
    }
}
