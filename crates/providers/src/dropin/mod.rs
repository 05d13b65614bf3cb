//! The drop-in side of a provider, sans-I/O: which call of the provider's API a bot makes, what it would send, and how answers and errors look.
//!
//! The way of one call: [`DropIn::route`] by its head alone, before any byte of the body is read; then an effect is read by
//! [`DropIn::effect`] or, where it brings files, by [`DropIn::effect_with_files`], and goes through the outbox. Everything else goes to the
//! provider as [`DropIn::forward`] says.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use secrecy::SecretString;

pub(crate) mod evolution;
pub(crate) mod gowa;
pub(crate) mod graph;
pub mod multipart;
mod parameters;
pub mod telegram;
#[cfg(test)]
mod tests;
pub(crate) mod waha;
mod wait;
mod written;

pub use multipart::Upload;
pub use wait::wait_of;

/// What can be known of a call before any byte of its body is read.
#[derive(Clone, Copy)]
pub struct Head<'h> {
    pub method: &'h Method,
    /// As it came, without the channel's prefix. May hold a token: never logged.
    pub path: &'h str,
    /// Without `?`. May hold a token and what people write: never logged.
    pub query: Option<&'h str>,
    pub headers: &'h HeaderMap,
}

/// Whose call it is and what it asks for.
#[derive(Clone, Debug)]
pub struct Routed {
    /// As the caller presented it, to be compared in constant time with the provider's and with hapax's own.
    pub token: Option<SecretString>,
    /// The provider's identity that acts, where the head names it; `None`: the body does, or the channel has one only.
    pub account: Option<String>,
    pub what: What,
    /// What else the path said that the effect is made from.
    pub(crate) aside: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It sends something: made twice, people see it twice. It goes through the outbox.
    Effect {
        /// As the provider's documentation spells it.
        method: String,
    },
    /// Edits, deletes, reactions, pins, answers to buttons: made twice, nobody can tell. Passes through, unless its run is over.
    Repeatable,
    SetWebhook,
    DeleteWebhook,
    WebhookInfo,
    Updates,
    /// It would cut off everybody who uses the same account.
    Refused {
        why: &'static str,
    },
    /// It may be an effect, and only the body tells: read it, then ask [`DropIn::by_body`].
    ByBody,
    Through,
}

/// What an effect would send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// `None`: the channel has one only.
    pub account: Option<String>,
    /// Spelt as webhooks spell it, so that both directions are one thread.
    pub peer: String,
    pub method: String,
    /// What [`Sending::call`](crate::sending::Sending::call) makes the same request from.
    pub payload: Bytes,
    /// What a person would read of it.
    pub text: Option<String>,
    /// Equal for calls that send the same, whatever their spelling.
    pub content: [u8; 16],
    /// The payload names the body in place of holding it: keep the body's bytes, as they came, under that name until it is sent.
    /// False: nothing but the payload is needed, and pieces that were kept may go.
    pub keeps_body: bool,
}

/// What the caller gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: StatusCode,
    pub content_type: &'static str,
    pub body: Bytes,
    /// For the header `Retry-After`.
    pub retry_after_s: Option<u64>,
}

/// Why the caller gets nothing better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Unauthorized,
    NotFound,
    TooLarge,
    /// What is wrong with the request, for its author.
    Unreadable(String),
    /// At least one second is said.
    SlowDown {
        seconds: u64,
    },
    /// The provider cannot be reached, or hapax cannot reach its store.
    Unavailable,
    Refused(String),
}

/// How a call that passes through is made at the provider.
#[derive(Debug)]
pub struct Forward {
    /// Path and query, to be put behind the channel's `api_base`. May hold a token: never logged.
    pub path: String,
    /// In place of the caller's headers of the same names. Values that are secret are marked sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Headers of the caller that stay here: they prove who he is to us, and to nobody else.
    pub without: Vec<HeaderName>,
}

/// A message that went out although its answer was never seen: a status, a look-up or a person has settled it.
#[derive(Clone, Copy, Debug)]
pub struct Settled<'s> {
    pub peer: &'s str,
    pub payload: &'s [u8],
    pub provider_id: &'s str,
    pub at_ms: i64,
}

/// A body that was read whole.
#[derive(Clone, Copy)]
pub struct Whole<'b> {
    pub content_type: Option<&'b str>,
    pub body: &'b [u8],
    /// Under which name the gateway will keep the body if [`Effect::keeps_body`] says so.
    pub name: &'b str,
}

/// A kind of counterpart whose own API hapax speaks, set up with one channel's credentials.
pub trait DropIn: Send + Sync {
    /// What the call asks for; `None` when this is no path of the provider's.
    fn route(&self, head: &Head<'_>) -> Option<Routed>;

    /// What a call routed as [`What::ByBody`] asks for. Never answers `ByBody` again.
    fn by_body(&self, _routed: &Routed, _query: Option<&str>, _content_type: Option<&str>, _body: &[u8]) -> What {
        What::Through
    }

    /// Reads an effect from its query and a body that brings no file: JSON, a form, nothing, whatever the provider takes.
    ///
    /// A body in parts is understood too; a large one is streamed through [`multipart::Reader`] for [`DropIn::effect_with_files`] instead.
    fn effect(&self, routed: &Routed, query: Option<&str>, whole: &Whole<'_>) -> Result<Effect, Reply>;

    /// The same from `multipart/form-data`, whose bytes were kept in pieces while they came; with or without files.
    fn effect_with_files(&self, routed: &Routed, query: Option<&str>, upload: &Upload<'_>) -> Result<Effect, Reply>;

    /// Whom a [`What::Repeatable`] call is about, as far as its query and body tell.
    fn peer_of(&self, routed: &Routed, query: Option<&str>, content_type: Option<&str>, body: &[u8]) -> Option<String>;

    /// Every error in the provider's own shape: an answer that they cannot read kills some bots at start.
    fn reply(&self, refusal: &Refusal) -> Reply;

    /// The success that a caller gets when only the provider's id is known.
    fn stand_in(&self, settled: &Settled<'_>) -> Reply;

    /// The same call with the channel's own credentials in place of the caller's. An error says what the channel lacks.
    fn forward(&self, head: &Head<'_>) -> Result<Forward, String>;
}

impl Refusal {
    /// For the header `Retry-After`: never less than a second, which some would not take for a wait.
    fn retry_after_s(&self) -> Option<u64> {
        match self {
            Refusal::SlowDown { seconds } => Some((*seconds).max(1)),
            _ => None,
        }
    }

    /// As the gateways that are written for Node say it: the status, and words beside the status's own.
    fn as_node_says_it(&self) -> (StatusCode, String) {
        match self {
            Refusal::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized".to_owned()),
            Refusal::NotFound => (StatusCode::NOT_FOUND, "Not Found".to_owned()),
            Refusal::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "request entity too large".to_owned()),
            Refusal::Unreadable(why) => (StatusCode::BAD_REQUEST, why.clone()),
            Refusal::Refused(why) => (StatusCode::FORBIDDEN, why.clone()),
            Refusal::SlowDown { seconds } => (StatusCode::TOO_MANY_REQUESTS, format!("retry after {} s", (*seconds).max(1))),
            Refusal::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable".to_owned()),
        }
    }
}

impl Reply {
    /// JSON, as all these providers speak.
    pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { status, content_type: "application/json", body: body.into(), retry_after_s: None }
    }
}

/// The parts of a body that was read whole; `None`: it has none.
fn parts_of(whole: &Whole<'_>) -> Option<Result<multipart::Parts, Refusal>> {
    let content_type = whole.content_type.filter(|_| multipart::is_multipart(whole.content_type))?;
    Some(multipart::read_whole(content_type, whole.body).map_err(|bad| match bad {
        multipart::BadParts::TooLarge => Refusal::TooLarge,
        other => Refusal::Unreadable(other.to_string()),
    }))
}

impl<'w> Whole<'w> {
    fn upload(&self, parts: &'w multipart::Parts) -> Upload<'w> {
        let content_type = self.content_type.unwrap_or_default();
        Upload { name: self.name, content_type, length: self.body.len() as u64, parts }
    }
}

/// Longer than any name of a chat that a provider has.
const PEER_MAX_BYTES: usize = 256;

fn check_peer(peer: &str) -> Result<(), Refusal> {
    match peer.len() {
        1..=PEER_MAX_BYTES => Ok(()),
        _ => Err(Refusal::Unreadable("chat not found".to_owned())),
    }
}

/// The path, unless it has a part that would climb out of it on the way: whoever rewrites it must see the same path as the provider.
fn plain_path(path: &str) -> Option<&str> {
    let climbs = |segment: &str| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
    (path.starts_with('/') && !path.contains('\\') && !path.split('/').any(climbs)).then_some(path)
}
