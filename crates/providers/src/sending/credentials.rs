//! What proves to a provider's API who asks. Goes into requests, and out of everything that is said about them.

use http::{HeaderName, HeaderValue, header};
use secrecy::{ExposeSecret, SecretString};

use crate::hmac::sensitive;

/// Longest piece of a provider's own words that is kept.
const WORDS_MAX_CHARS: usize = 300;

pub(crate) struct Credentials(Option<SecretString>);

impl Credentials {
    pub(crate) fn new(token: Option<&SecretString>) -> Self {
        Self(token.cloned())
    }

    /// The token itself; an error that says what to do when there is none.
    pub(crate) fn token(&self) -> Result<&str, String> {
        match &self.0 {
            Some(token) => Ok(token.expose_secret()),
            None => Err("the channel has no `token`; add it to its config".to_owned()),
        }
    }

    pub(crate) fn bearer(&self) -> Result<(HeaderName, HeaderValue), String> {
        authorization(&format!("Bearer {}", self.token()?))
    }

    /// `user:password` is sent as such, anything else as a bearer token, and nothing where nothing was given.
    pub(crate) fn basic_or_bearer(&self) -> Result<Option<(HeaderName, HeaderValue)>, String> {
        use base64::Engine;
        let Some(token) = &self.0 else { return Ok(None) };
        let token = token.expose_secret();
        let value = match token.contains(':') {
            true => format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(token)),
            false => format!("Bearer {token}"),
        };
        authorization(&value).map(Some)
    }

    /// Makes a provider's words fit to be kept and shown: short, and without the token, which some of them quote.
    pub(super) fn fit_to_show(&self, words: &str) -> String {
        let words = match &self.0 {
            Some(token) if !token.expose_secret().is_empty() => words.replace(token.expose_secret(), "[token]"),
            _ => words.to_owned(),
        };
        let shown: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(WORDS_MAX_CHARS).collect();
        if shown.chars().count() < words.chars().count() { shown + ".." } else { shown }
    }
}

fn authorization(value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let value = sensitive(value).ok_or("the channel's `token` cannot stand in a header; take out line breaks and odd letters")?;
    Ok((header::AUTHORIZATION, value))
}

/// Every call that carries JSON says so.
pub(super) fn json_content() -> (HeaderName, HeaderValue) {
    (header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
}
