//! Who looks at a page.

use axum::extract::FromRequestParts;
use http::request::Parts;

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
    /// Where the session is kept.
    pub(super) session: String,
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
