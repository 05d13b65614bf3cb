//! The scripts: one per method, each with the parts it shares with others in front of it.

use std::sync::LazyLock;

use redis::{Cmd, Script, ToRedisArgs};

macro_rules! text {
    ($name:literal) => {
        include_str!(concat!("scripts/", $name, ".lua"))
    };
}

/// Declares scripts by the parts they are made of, in order.
macro_rules! scripts {
    ($($name:ident = $($part:literal)+;)+) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| Script::new(concat!($(text!($part), "\n"),+)));)+

        #[cfg(test)]
        pub(super) fn all() -> Vec<(&'static str, &'static Script)> {
            vec![$((stringify!($name), &*$name)),+]
        }
    };
}

scripts! {
    ACCEPT = "common" "joins" "lanes" "threads" "messages" "accept";
    NOTE_COPIES = "common" "note_copies";
    LEASE_INBOX = "common" "joins" "lanes" "threads" "lease_inbox";
    EXTEND = "common" "joins" "lanes" "threads" "messages" "extend";
    SETTLE_INBOX = "common" "joins" "lanes" "threads" "messages" "settle_inbox";
    SUBMIT = "common" "joins" "lanes" "threads" "messages" "submit";
    LEASE_OUTBOX = "common" "joins" "lanes" "threads" "messages" "lease_outbox";
    BEGIN = "common" "joins" "lanes" "threads" "messages" "begin";
    SETTLE_OUTBOX = "common" "joins" "lanes" "threads" "messages" "outcomes" "settle_outbox";
    SETTLE_LATE = "common" "joins" "lanes" "threads" "messages" "outcomes" "settle_late";
    RETRY_MESSAGE = "common" "joins" "lanes" "threads" "messages" "retry_message";
    CANCEL_MESSAGE = "common" "joins" "lanes" "threads" "messages" "cancel_message";
    FIRST_DUE = "common" "first_due";
    PAUSE_ACCOUNT = "common" "pause_account";
    MARK_READ = "common" "threads" "mark_read";
    REDRIVE = "common" "joins" "lanes" "threads" "messages" "again" "redrive";
    REPLAY = "common" "joins" "lanes" "threads" "again" "replay";
    FOLLOW_CLOCK = "common" "joins" "lanes" "threads" "messages" "follow_clock";
    PURGE = "common" "purge";
    FORGET = "common" "threads" "forget";
    PURGE_KEYS = "common" "purge_keys";
    PURGE_THREADS = "common" "purge_threads";
    LIST_EVENTS = "common" "joins" "lanes" "telling" "list_events";
    SHOW_EVENT = "common" "joins" "lanes" "telling" "show_event";
    LIST_INBOX = "common" "joins" "lanes" "telling" "list_inbox";
    WITH_BOT = "common" "joins" "lanes" "threads" "with_bot";
    ANSWER = "common" "answer";
    LIST_THREADS = "common" "joins" "lanes" "telling" "list_threads";
    SHOW_THREAD = "common" "joins" "lanes" "threads" "telling" "show_thread";
    SHOW_PERSON = "common" "joins" "lanes" "threads" "telling" "show_person";
    THREAD_MESSAGES = "common" "threads" "thread_messages";
    SHOW_MESSAGE = "common" "joins" "lanes" "telling" "show_message";
    FIND_MESSAGE = "common" "find_message";
    LIST_OUTBOX = "common" "joins" "lanes" "threads" "messages" "telling" "list_outbox";
    PAUSED_ACCOUNTS = "common" "paused_accounts";
    STATS = "common" "stats";
    REGISTER = "common" "register";
    NAME_ACCOUNT = "common" "name_account";
    REGISTRY = "common" "registry";
    AMEND = "common" "registers" "amend";
    PUT_REGISTER = "common" "registers" "put_register";
    PURGE_REGISTERS = "common" "registers" "purge_registers";
    DUMP_REGISTERS = "common" "dump_registers";
    LOAD_CLAIMS = "common" "load_claims";
    SAVE_CLAIMS = "common" "claims" "save_claims";
    PUT_CLAIMS = "common" "claims" "put_claims";
    LIST_CLAIMS = "common" "list_claims";
    COUNT_CLAIMS = "common" "count_claims";
    PURGE_CLAIMS = "common" "claims" "purge_claims";
    PUT_PIECE = "common" "pieces" "put_piece";
    DROP_PIECES = "common" "pieces" "drop_pieces";
    PURGE_PIECES = "common" "pieces" "purge_pieces";
    DUMP_PIECES = "common" "dump_pieces";
    MIGRATE = "common" "migrate";
    UPGRADE_MESSAGES = "common" "joins" "lanes" "threads" "messages" "upgrade_messages";
    UPGRADE_LANES = "common" "joins" "lanes" "threads" "messages" "upgrade_lanes";
    PING = "common" "ping";
    FIND_KEYS = "common" "find_keys";
    FORGET_MOVED_KEYS = "common" "forget_moved_keys";
    DUMP_KEYS = "common" "dumping" "dump_keys";
    DUMP_THREADS = "common" "dumping" "dump_threads";
    DUMP_EVENTS = "common" "dumping" "dump_events";
    DUMP_STORIES = "common" "dumping" "dump_stories";
    DUMP_ITEMS = "common" "joins" "lanes" "threads" "dumping" "dump_items";
    DUMP_MESSAGES = "common" "joins" "lanes" "threads" "dumping" "dump_messages";
    DUMP_EARLY = "common" "dumping" "dump_early";
    BEGIN_IMPORT = "common" "begin_import";
    PUT_PAUSED = "common" "put_paused";
    PUT_KEYS = "common" "put_keys";
    PUT_THREADS = "common" "put_threads";
    PUT_NAMES = "common" "threads" "put_names";
    PUT_EVENTS = "common" "put_events";
    PUT_ANSWERS = "common" "put_answers";
    PUT_ITEMS = "common" "joins" "lanes" "threads" "messages" "again" "replays" "put_items";
    PUT_MESSAGES = "common" "joins" "lanes" "threads" "put_messages";
    PUT_PROVIDER_NAMES = "common" "put_provider_names";
    PUT_OUTS = "common" "joins" "lanes" "threads" "messages" "put_outs";
    PUT_ATTEMPTS = "common" "replays" "put_attempts";
    RAISE = "common" "raise";
    END_IMPORT = "common" "end_import";
}

/// One call, packed as it goes over the wire. It may be sent more than once: the name that a script's call has makes that one call.
pub(super) struct Call {
    /// `None`: a plain command that changes nothing.
    pub(super) script: Option<&'static Script>,
    /// What its keys begin with; it tells where they are.
    pub(super) root: String,
    pub(super) command: Cmd,
}

impl Call {
    pub(super) fn arg(mut self, value: impl ToRedisArgs) -> Self {
        self.command.arg(value);
        self
    }

    /// What may be missing goes behind a plus sign, so that it differs from what is empty.
    pub(super) fn maybe(mut self, value: Option<impl AsRef<[u8]>>) -> Self {
        match value {
            None => self.command.arg(""),
            Some(value) => self.command.arg([b"+", value.as_ref()].concat()),
        };
        self
    }

    pub(super) fn maybe_int(self, value: Option<i64>) -> Self {
        self.maybe(value.map(|value| value.to_string()))
    }

    pub(super) fn flag(self, value: bool) -> Self {
        self.arg(if value { "1" } else { "0" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_domain::{Priority, Status};

    #[test]
    fn no_two_scripts_are_the_same() {
        let mut hashes: Vec<_> = all().into_iter().map(|(_, script)| script.get_hash().to_owned()).collect();
        let count = hashes.len();
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
    }

    /// The scripts know statuses and priorities by their place in these lists.
    #[test]
    fn statuses_and_priorities_are_numbered_as_the_scripts_expect() {
        assert_eq!(Status::ALL.map(Status::name)[1..5], ["sending", "unknown", "sent", "failed"]);
        assert_eq!(Priority::ALL.map(Priority::name), ["reply", "normal", "bulk"]);
    }
}
