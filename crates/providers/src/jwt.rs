//! Tokens that prove who posts without proving what: HS256, as Evolution makes them for every event.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use secrecy::SecretString;
use serde::Deserialize;

use super::Refused;
use super::hmac::{MacKeys, sensitive};
use super::lenient::{Integer, Text};
use super::reading::seconds_to_ms;
use super::settings::HmacAlgorithm;

/// How long past its end a token is believed. Evolution makes one per event, good for 10 minutes, and sends it with every retry, the last of
/// them some 34 minutes later; a refusal would end the retries and lose the event.
const LEEWAY_S: i64 = 25 * 60;
/// How far a sender's clock may be ahead.
const AHEAD_S: i64 = 5 * 60;
/// What Evolution gives its tokens.
const LIFE_S: i64 = 600;
const PREFIX: &str = "Bearer ";
/// `{"alg":"HS256","typ":"JWT"}`
const HEAD: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";
static HEADERS: [HeaderName; 1] = [header::AUTHORIZATION];

pub(super) struct Jwt(MacKeys);

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    alg: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Claims {
    iat: Integer,
    exp: Integer,
}

impl Jwt {
    pub(super) fn new(secrets: &[SecretString]) -> Self {
        Self(MacKeys::new(HmacAlgorithm::Sha256, secrets))
    }

    pub(super) fn headers(&self) -> &'static [HeaderName] {
        &HEADERS
    }

    /// Gives the time at which the token was made, where it says so.
    pub(super) fn check(&self, headers: &HeaderMap, now_ms: i64) -> Result<Option<i64>, Refused> {
        let value = headers.get(header::AUTHORIZATION).ok_or(Refused::NoSignature)?;
        let claims = self.claims(value).ok_or(Refused::BadSignature)?;
        let now_s = now_ms.div_euclid(1_000);
        // A token without an end would be good for ever.
        let ends_s = claims.exp.0.ok_or(Refused::BadSignature)?;
        if ends_s.saturating_add(LEEWAY_S) < now_s || claims.iat.0.is_some_and(|iat| iat.saturating_sub(AHEAD_S) > now_s) {
            return Err(Refused::Stale);
        }
        Ok(seconds_to_ms(claims.iat.0))
    }

    /// What the token says, when one of our secrets made it.
    fn claims(&self, value: &HeaderValue) -> Option<Claims> {
        let value = value.to_str().ok()?;
        let (scheme, token) = value.split_at_checked(PREFIX.len())?;
        let mut parts = token.split('.');
        let (head, claims, code) = (parts.next()?, parts.next()?, parts.next()?);
        if !scheme.eq_ignore_ascii_case(PREFIX) || parts.next().is_some() {
            return None;
        }
        let code = URL_SAFE_NO_PAD.decode(code).ok()?;
        let accepted = self.0.accept(&[head.as_bytes(), b".", claims.as_bytes()], &[code]);
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        // A token that asks for another algorithm was not made by Evolution, whatever its code.
        let head = decode(head)?;
        let is_ours = serde_json::from_slice::<Head<'_>>(&head).is_ok_and(|head| head.alg.get() == Some("HS256"));
        if accepted && is_ours { serde_json::from_slice(&decode(claims)?).ok() } else { None }
    }

    pub(super) fn sign(&self, now_ms: i64) -> Vec<(HeaderName, HeaderValue)> {
        let now_s = now_ms.div_euclid(1_000);
        let claims = format!(r#"{{"iat":{now_s},"exp":{},"app":"evolution","action":"webhook"}}"#, now_s + LIFE_S);
        let claims = URL_SAFE_NO_PAD.encode(claims);
        let mac = self.0.sign(&[HEAD.as_bytes(), b".", claims.as_bytes()]);
        let token = mac.map(|mac| format!("{PREFIX}{HEAD}.{claims}.{}", URL_SAFE_NO_PAD.encode(mac.as_bytes())));
        token.and_then(|token| sensitive(&token)).map(|value| (header::AUTHORIZATION, value)).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: i64 = 1_760_000_000;

    fn jwt(secret: &str) -> Jwt {
        Jwt::new(&[SecretString::from(secret)])
    }

    fn headers(value: &str) -> HeaderMap {
        [(header::AUTHORIZATION, HeaderValue::from_str(value).expect("a value"))].into_iter().collect()
    }

    #[test]
    fn the_token_of_rfc_7519_in_its_common_form_is_read() {
        // From jwt.io: HS256, secret `your-256-bit-secret`. It has no end, so it is not believed, but its code is right.
        let known = "Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c";
        let value = HeaderValue::from_static(known);
        assert_eq!(jwt("your-256-bit-secret").claims(&value).and_then(|claims| claims.iat.0), Some(1_516_239_022));
        assert!(jwt("another secret").claims(&value).is_none());
        assert_eq!(jwt("your-256-bit-secret").check(&headers(known), NOW_S * 1_000), Err(Refused::BadSignature));
    }

    #[test]
    fn a_retry_with_the_first_token_passes_for_35_minutes() {
        let jwt = jwt("a-long-secret");
        let made: HeaderMap = jwt.sign(NOW_S * 1_000).into_iter().collect();
        let at = |after_s: i64| jwt.check(&made, (NOW_S + after_s) * 1_000);
        for good in [-300, 0, 600, 35 * 60] {
            assert_eq!(at(good), Ok(Some(NOW_S * 1_000)), "{good}");
        }
        for stale in [-301, 35 * 60 + 1] {
            assert_eq!(at(stale), Err(Refused::Stale), "{stale}");
        }
    }

    #[test]
    fn another_algorithm_or_shape_is_refused() {
        let secret = SecretString::from("a-long-secret");
        let keys = MacKeys::new(HmacAlgorithm::Sha256, std::slice::from_ref(&secret));
        let token = |head: &str, claims: &str| {
            let (head, claims) = (URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(claims));
            let code = keys.sign(&[head.as_bytes(), b".", claims.as_bytes()]).expect("a code");
            format!("{head}.{claims}.{}", URL_SAFE_NO_PAD.encode(code.as_bytes()))
        };
        let good = token(r#"{"alg":"HS256"}"#, r#"{"exp":1760000600}"#);
        let check = |value: &str| jwt("a-long-secret").check(&headers(value), NOW_S * 1_000);
        assert_eq!(check(&format!("bearer {good}")), Ok(None));
        for odd in [
            good.clone(),
            format!("Basic  {good}"),
            format!("Bearer {good}.x"),
            format!("Bearer {}", good.replace('.', "")),
            format!("Bearer {}", token(r#"{"alg":"none"}"#, r#"{"exp":1760000600}"#)),
            format!("Bearer {}", token("no json", r#"{"exp":1760000600}"#)),
            format!("Bearer {}", token(r#"{"alg":"HS256"}"#, r#"{"exp":"soon"}"#)),
            format!("Bearer {}", token(r#"{"alg":"HS256"}"#, "[]")),
        ] {
            assert_eq!(check(&odd), Err(Refused::BadSignature), "{odd}");
        }
    }
}
