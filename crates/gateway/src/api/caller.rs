//! Who asks, and what they may see and do.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::middleware::Next;
use axum::response::Response;
use http::request::Parts;

use super::Problem;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Looks, and changes nothing.
    Read,
    /// Sends messages, and sees to those it sent.
    Send,
    /// Pulls, settles and claims.
    Work,
    /// Everything.
    Admin,
}

impl Scope {
    pub const ALL: [Scope; 4] = [Scope::Read, Scope::Send, Scope::Work, Scope::Admin];

    pub fn name(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Send => "send",
            Scope::Work => "work",
            Scope::Admin => "admin",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

/// What is kept of a token, and shown to nobody.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash(pub [u8; 32]);

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash")
    }
}

/// The holder of a token that was believed.
#[derive(Clone, Debug)]
pub struct Caller {
    pub(crate) name: Arc<str>,
    /// Which token it is.
    pub(crate) token: TokenHash,
    scopes: Vec<Scope>,
    /// `None`: all of them.
    channels: Option<Arc<[String]>>,
}

impl Caller {
    pub(super) fn new(name: &str, token: TokenHash, scopes: Vec<Scope>, channels: Option<&[String]>) -> Self {
        Self { name: Arc::from(name), token, scopes, channels: channels.map(Arc::from) }
    }

    /// The holder of the operator's own token.
    pub(super) fn operator(token: TokenHash) -> Self {
        Self::new("admin", token, vec![Scope::Admin], None)
    }

    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }

    /// Refuses what takes another scope.
    pub(crate) fn need(&self, scope: Scope) -> Result<(), Problem> {
        if self.may(scope) {
            return Ok(());
        }
        let takes = match scope {
            Scope::Admin => "`admin`".to_owned(),
            scope => format!("`{}` (or `admin`)", scope.name()),
        };
        Err(Problem::forbidden(format!("this takes a token of scope {takes}, and `{}` has another", self.name)))
    }

    pub fn sees(&self, channel: &str) -> bool {
        self.channels.as_ref().is_none_or(|channels| channels.iter().any(|own| own == channel))
    }

    /// True for a token that was made to send on this channel, and on no other: one that may stand in a path.
    pub fn sends_only_on(&self, channel: &str) -> bool {
        self.scopes.contains(&Scope::Send) && self.channels.as_deref().is_some_and(|channels| channels == [channel])
    }

    pub fn is_limited(&self) -> bool {
        self.channels.is_some()
    }

    /// Which channels to ask the store for, each by itself: the one that was asked for, those of the token, or (`None`) all at once. Rows of
    /// others are never read, so neither a row nor a cursor can tell of them.
    pub(super) fn narrow(&self, asked: Option<String>) -> Result<Vec<Option<String>>, Problem> {
        match (asked, self.channels.as_deref()) {
            (Some(asked), _) if !self.sees(&asked) => Err(self.not_of(&asked)),
            (None, Some(own)) => Ok(own.iter().cloned().map(Some).collect()),
            (asked, _) => Ok(vec![asked]),
        }
    }

    /// Who it is and what it may see, for what is made out for one caller only.
    pub(super) fn identity(&self) -> String {
        // Neither names of tokens nor names of channels have a line break in them.
        let channels = self.channels.as_deref().map_or_else(|| "*".to_owned(), |own| own.join("\n"));
        format!("{}\n{channels}", self.name)
    }

    /// Refuses what concerns a channel that is not the token's.
    pub(super) fn need_channel(&self, channel: &str) -> Result<(), Problem> {
        if self.sees(channel) { Ok(()) } else { Err(self.not_of(channel)) }
    }

    /// Refuses what concerns all channels to a token of some.
    pub(crate) fn need_all_channels(&self) -> Result<(), Problem> {
        if self.is_limited() {
            return Err(Problem::forbidden("this concerns all channels, and the token is limited to some; use one that is not"));
        }
        Ok(())
    }

    fn not_of(&self, channel: &str) -> Problem {
        let own = self.channels.as_deref().unwrap_or_default().join(", ");
        let channel: String = channel.chars().take(64).collect();
        Problem::forbidden(format!("the token is limited to {own}, and this is about `{channel}`"))
    }
}

/// The layer in front of all routes has put it there.
impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Caller>().cloned().ok_or_else(|| Problem::forbidden("nobody was asked for a token here"))
    }
}

/// Lets those pass whose token has the scope.
pub(super) async fn need(scope: Scope, caller: Caller, request: Request, next: Next) -> Result<Response, Problem> {
    caller.need(scope)?;
    Ok(next.run(request).await)
}
