//! Who looks at a page.

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;

use super::cookies;
use super::flash::Flash;
use super::trouble::Trouble;
use crate::api::{Caller, Problem, Scope};

/// The person in front of the browser, as far as the token tells.
#[derive(Clone)]
pub(super) struct Visitor {
    pub(super) caller: Caller,
    pub(super) now_ms: i64,
    /// What the action before came to.
    pub(super) flash: Option<Flash>,
    /// How far their clock is ahead of UTC, where a script has told.
    pub(super) zone_ms: i64,
    /// Where the session is kept.
    pub(super) session: String,
    /// A page that was open asks for itself.
    pub(super) live: bool,
}

/// Set by the script.
const ZONE_COOKIE: &str = "hapax_zone";
const MINUTE_MS: i64 = 60_000;
/// No place on earth is further ahead or behind.
const ZONE_MAX_MIN: i64 = 14 * 60;

/// How far the clock of whoever asks is ahead of UTC.
pub(super) fn zone_ms(headers: &HeaderMap) -> i64 {
    let minutes = cookies::read(headers, ZONE_COOKIE).and_then(|minutes| minutes.parse::<i64>().ok());
    minutes.filter(|minutes| minutes.abs() <= ZONE_MAX_MIN).unwrap_or_default() * MINUTE_MS
}

impl Visitor {
    pub(super) fn is_admin(&self) -> bool {
        self.caller.may(Scope::Admin)
    }

    /// Whether they may add channels: those are for everybody.
    pub(super) fn may_set_up(&self) -> bool {
        self.is_admin() && !self.caller.is_limited()
    }

    pub(super) fn need(&self, scope: Scope) -> Result<(), Trouble> {
        Ok(self.caller.need(scope)?)
    }
}

/// The session has put it there.
impl<S: Sync> FromRequestParts<S> for Visitor {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Trouble> {
        let visitor = parts.extensions.get::<Visitor>().cloned();
        visitor.ok_or_else(|| Trouble::from(Problem::forbidden("nobody has signed in here")))
    }
}
