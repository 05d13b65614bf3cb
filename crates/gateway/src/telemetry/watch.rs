//! Happenings as values, for whoever watches the server from inside the process.

use std::sync::Arc;

use hapax_domain::{EventId, Kind, MessageId, ThreadId};

/// One thing a person at the terminal would want to see.
#[derive(Clone, Debug)]
pub enum Happening {
    Accepted {
        channel: Arc<str>,
        event: EventId,
        kind: Kind,
        thread: Option<ThreadId>,
        text: Option<String>,
    },
    Suppressed {
        channel: Arc<str>,
        event: EventId,
        conflict: bool,
    },
    Quarantined {
        channel: Arc<str>,
        event: EventId,
        why: String,
    },
    Refused {
        channel: Arc<str>,
        why: &'static str,
    },
    /// The store is away, and the webhook was spooled, passed or dropped.
    InTrouble {
        channel: Arc<str>,
        did: &'static str,
    },
    Delivered {
        channel: Arc<str>,
        event: EventId,
        attempt: u32,
        status: u16,
        took_ms: u64,
    },
    Retried {
        channel: Arc<str>,
        event: EventId,
        attempt: u32,
        wait_ms: i64,
        why: String,
    },
    Parked {
        channel: Arc<str>,
        event: EventId,
        why: String,
    },
    CircuitOpened {
        channel: Arc<str>,
        wait_ms: i64,
        why: String,
    },
    CircuitClosed {
        channel: Arc<str>,
    },
    RepliesBad {
        channel: Arc<str>,
        event: EventId,
        why: String,
    },
    Sent {
        channel: Arc<str>,
        message: MessageId,
        attempt: u32,
        took_ms: u64,
    },
    SendRetried {
        channel: Arc<str>,
        message: MessageId,
        attempt: u32,
        wait_ms: i64,
        why: String,
    },
    SendFailed {
        channel: Arc<str>,
        message: MessageId,
        why: String,
    },
    SendUnknown {
        channel: Arc<str>,
        message: MessageId,
        why: String,
    },
    Reconciled {
        channel: Arc<str>,
        message: MessageId,
    },
    AccountPaused {
        channel: Arc<str>,
        account: String,
        why: String,
    },
    StoreUnavailable {
        call: &'static str,
        why: String,
    },
}
