//! One thing that happened, as a provider's adapter read it from a webhook.

use super::{EventKey, MessageId, Status, ThreadId};

/// What sort of thing happened. Part of the event key: one message id appears in several kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Message,
    Status,
    Reaction,
    Edit,
    Delete,
    /// A pressed button or a callback query.
    Action,
    /// Anything else that names itself: payments, pushes, account updates, stubs of messages still to come.
    Notice,
}

impl Kind {
    pub const ALL: [Kind; 7] =
        [Kind::Message, Kind::Status, Kind::Reaction, Kind::Edit, Kind::Delete, Kind::Action, Kind::Notice];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Message => "message",
            Kind::Status => "status",
            Kind::Reaction => "reaction",
            Kind::Edit => "edit",
            Kind::Delete => "delete",
            Kind::Action => "action",
            Kind::Notice => "notice",
        }
    }

    /// True when such an event waits its turn behind the others of its thread. Statuses and notices are lanes of their own.
    pub fn waits_in_thread(self) -> bool {
        !matches!(self, Kind::Status | Kind::Notice)
    }

    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// How surely an event's key tells its copies from other events that look alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// The provider names it, or the channel says what does.
    #[default]
    Named,
    /// It has no id. The key is made of all it says, its time included, and is believed only while the provider retries.
    Fallback,
    /// It has neither an id nor a time: it may be a copy or not, so it is never taken for one.
    Unknown,
}

impl Identity {
    /// What stands before the id that is shown for an event without one.
    pub fn mark(self) -> &'static str {
        match self {
            Identity::Named => "",
            Identity::Fallback => "fallback:",
            Identity::Unknown => "unknown:",
        }
    }

    /// Reads it off the id that is shown.
    pub fn of_shown(id: &str) -> Self {
        let marked = [Identity::Fallback, Identity::Unknown].into_iter().find(|identity| id.starts_with(identity.mark()));
        marked.unwrap_or_default()
    }
}

/// An event before any store has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: Kind,
    /// The provider's own identity inside the channel: phone_number_id, device, bot.
    pub account: String,
    /// The provider's id, readable beside the key; without one, the mark of its identity and a hash, or empty.
    pub id: String,
    pub key: EventKey,
    pub identity: Identity,
    /// How long the key is remembered, where that is not the channel's window.
    pub window_ms: Option<i64>,
    /// Claimed beside the key: what else the same thing may be recognised by. It stands for what was signed, where the id was not, or for the
    /// message under another name of who wrote it.
    pub guard: Option<EventKey>,
    /// What comes under another key while its guard is held is a copy of the first, and only counted; otherwise it is a suspected replay.
    pub guard_suppresses: bool,
    /// Whom it is about; `None` where the provider knows no conversations (payments, pushes).
    pub peer: Option<String>,
    /// Other names of the same peer (phone, lid, bsuid), never the one in `peer`.
    pub aliases: Vec<String>,
    /// Our own message, seen again through the provider. Never an inbound message.
    pub echo: bool,
    /// For `Kind::Status`: what the provider says happened to the message named by `id`.
    pub status: Option<Status>,
    /// Our own message, when the provider names it by the handle we gave it (`biz_opaque_callback_data`).
    pub handle: Option<MessageId>,
    /// When the provider says it happened.
    pub at_ms: Option<i64>,
    /// What a person would read, where there is such a thing.
    pub text: Option<String>,
    /// Equal for copies, different for another content under the same key. See [`super::fingerprint`].
    pub fingerprint: u32,
    /// Its place among the events of its webhook; `rewrap` picks events by it.
    pub index: u32,
}

impl Event {
    /// Starts an event from what every event has; adapters fill in the rest by struct update.
    pub fn new(kind: Kind, account: &str, id: &str, key: EventKey, fingerprint: u32) -> Self {
        Self {
            kind,
            account: account.to_owned(),
            id: id.to_owned(),
            key,
            identity: Identity::Named,
            window_ms: None,
            guard: None,
            guard_suppresses: false,
            peer: None,
            aliases: Vec::new(),
            echo: false,
            status: None,
            handle: None,
            at_ms: None,
            text: None,
            fingerprint,
            index: 0,
        }
    }

    /// Starts an event that names no id, from all it says. `at` is its provider's time, as it stands there.
    pub fn without_id(provider: &str, kind: Kind, account: &str, at: Option<&str>, content: &[u8], fingerprint: u32) -> Self {
        let identity = if at.is_some() { Identity::Fallback } else { Identity::Unknown };
        let key = EventKey::new(provider, account, kind, "", &[identity.mark(), at.unwrap_or_default()]).with(content);
        let id = format!("{}{}", identity.mark(), hex::encode(&key.0[..8]));
        Self { identity, ..Self::new(kind, account, &id, key, fingerprint) }
    }

    /// What it says happened to a message of ours: a status, or, as an echo, that it was sent.
    pub fn says(&self) -> Option<Status> {
        match self.echo {
            true => (self.kind == Kind::Message).then_some(Status::Sent),
            false => self.status,
        }
    }

    pub fn thread(&self) -> Option<ThreadId> {
        self.peer.as_ref().map(|peer| ThreadId { account: self.account.clone(), peer: peer.clone() })
    }

    /// The ordering key: events with the same lane are delivered one at a time, in the order accepted. `None`: a lane of its own.
    pub fn lane(&self) -> Option<ThreadId> {
        if self.kind.waits_in_thread() { self.thread() } else { None }
    }
}
