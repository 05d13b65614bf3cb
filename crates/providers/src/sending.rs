//! The sending side of a provider, sans-I/O: what to ask of its API, and what its answer means.

use bytes::Bytes;
use hapax_domain::MessageId;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

mod answer;
mod body;
mod credentials;
pub(super) mod evolution;
pub(super) mod generic;
pub(super) mod gowa;
mod kept;
pub(super) mod messenger;
pub(super) mod slack;
pub(super) mod telegram;
#[cfg(test)]
mod tests;
pub(super) mod twilio;
pub(super) mod waha;
pub(super) mod whatsapp;
pub(crate) mod whatsapp_web;

pub(crate) use body::encoded as percent_encoded;
pub(crate) use credentials::Credentials;
pub(crate) use kept::KeptBody;

/// A message as the adapter sees it.
#[derive(Clone, Debug)]
pub struct Outgoing<'m> {
    pub id: MessageId,
    /// The provider's identity that sends: phone_number_id, device, bot.
    pub account: &'m str,
    pub peer: &'m str,
    /// JSON: `{"text": ".."}`, or the provider's own request body.
    pub payload: &'m Bytes,
    /// When the try began that nobody knows the outcome of; only for look-ups.
    pub begun_ms: Option<i64>,
}

/// One request to the provider's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub method: Method,
    /// Path and query, to be put behind the channel's `api_base`. May hold a token (Telegram): never logged.
    pub path: String,
    /// Values that are secret are marked sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: CallBody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallBody {
    Whole(Bytes),
    /// The bytes that are kept in pieces under this name, as they came from the bot. They are streamed, never held.
    Kept {
        name: String,
        length: u64,
    },
}

impl From<Bytes> for CallBody {
    fn from(bytes: Bytes) -> Self {
        CallBody::Whole(bytes)
    }
}

/// What somebody said to us, for the notice that an answer is being written.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'m> {
    pub account: &'m str,
    pub peer: &'m str,
    /// The provider's id of it.
    pub provider_id: &'m str,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct CallAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What the answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Sent {
        provider_id: String,
    },
    /// It did not go out; try again. `after_ms` is what the provider asked for; `whole_account` when all its sends must wait.
    Retry {
        why: String,
        after_ms: Option<i64>,
        whole_account: bool,
    },
    /// It did not go out: this chat is written to too fast, and waits, `after_ms` if the provider says how long. No message is at fault.
    SlowDown {
        why: String,
        after_ms: Option<i64>,
    },
    /// It did not go out and never will.
    Failed {
        why: String,
    },
    /// It did not go out, and nothing of this account will until a person has seen to it.
    StopAccount {
        why: String,
    },
    /// It may have gone out.
    Unknown {
        why: String,
    },
}

/// What a lookup of a message in doubt showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It was sent if one of these, oldest first, belongs to no other message of the account: they look alike.
    OneOf { provider_ids: Vec<String> },
    /// The provider does not know it (yet).
    Nothing,
    /// The lookup itself did not work.
    NoAnswer { why: String },
}

/// How this provider can be asked about a send whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconcile {
    /// Its webhooks carry our handle, or its echoes do: wait for them.
    ByWebhook,
    /// Its history can be searched.
    ByLookup,
    /// Not at all.
    No,
}

/// A kind of counterpart that messages can be sent through, set up with one channel's credentials.
pub trait Sending: Send + Sync {
    /// The spelling by which this provider's webhooks call the same peer, so that both directions are one thread.
    ///
    /// Asked once, before [`Sending::check`] and before anything is stored.
    fn peer(&self, to: &str) -> String {
        to.to_owned()
    }

    /// Says what is wrong with a message before it is stored: unreadable payload, empty or overlong text, bad number.
    fn check(&self, peer: &str, payload: &[u8]) -> Result<(), String>;

    /// Says what is wrong with a message that a front end has put into the store, where no code of the operator's has seen it: only what
    /// says something in the chat may go out so.
    fn check_unattended(&self, _payload: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// Makes the request that sends the message.
    fn call(&self, message: &Outgoing<'_>) -> Result<Call, String>;

    /// Says what the answer means. Where a good answer names nothing (a typing notice), the message's own id stands for it.
    fn classify(&self, message: &Outgoing<'_>, answer: &CallAnswer) -> Verdict;

    fn reconcile(&self) -> Reconcile {
        Reconcile::No
    }

    /// Makes the request that looks for the message in the provider's history; only for [`Reconcile::ByLookup`].
    fn lookup(&self, _message: &Outgoing<'_>) -> Option<Call> {
        None
    }

    fn found(&self, _message: &Outgoing<'_>, _answer: &CallAnswer) -> Found {
        Found::Nothing
    }

    /// Makes the request that shows that an answer to this is being written. `None`: this provider has no such thing.
    fn typing(&self, _heard: &Heard<'_>) -> Option<Call> {
        None
    }

    /// After how long that has to be shown again; a little less than it lasts.
    fn typing_every_ms(&self) -> u64 {
        4_500
    }

    /// What a person would read of the payload.
    fn text(&self, payload: &[u8]) -> Option<String>;

    /// Messages that the bot put into its answer to a webhook in the provider's own way (Telegram's `{"method": ..}`): peer and payload.
    ///
    /// An empty peer stands for the peer of the event that was answered.
    fn replies_in_answer(&self, _answer: &[u8], _content_type: Option<&str>) -> Vec<(String, Bytes)> {
        Vec::new()
    }
}
