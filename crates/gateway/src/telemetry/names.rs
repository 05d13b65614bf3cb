//! Every metric name, in one place. Labels are `channel` and, where it says so, one more; what happens at a target that is not the channel's
//! default has the label `target` too, with the first account that goes there.

/// New events, on disk.
pub const ACCEPTED: &str = "hapax_events_accepted_total";
/// Copies that were suppressed.
pub const DUPLICATES: &str = "hapax_events_duplicate_total";
/// Copies with another content than the first.
pub const CONFLICTS: &str = "hapax_events_conflict_total";
/// Events parked because what was signed came before under another id.
pub const SUSPECTED: &str = "hapax_events_suspected_total";
/// New events without an id, known by a hash of what they say.
pub const FALLBACK_KEYS: &str = "hapax_events_fallback_key_total";
/// New events that nothing tells from a copy; a copy of one is delivered too.
pub const NO_KEY: &str = "hapax_events_without_key_total";
/// Signed parts that could not be read.
pub const QUARANTINED: &str = "hapax_events_quarantined_total";
/// Well-formed webhooks with nothing in them for us.
pub const IGNORED: &str = "hapax_webhooks_ignored_total";
/// Requests that got no further than ingress; label `why`.
pub const REFUSED: &str = "hapax_webhooks_refused_total";
/// Webhooks that went to the spool because the store was away.
pub const SPOOLED: &str = "hapax_spool_webhooks_total";
/// Webhooks that went from the spool to the store.
pub const DRAINED: &str = "hapax_spool_drained_total";
/// Webhooks in the spool; label `state`.
pub const SPOOL_ITEMS: &str = "hapax_spool_items";
/// Age of the oldest webhook in the spool, in seconds.
pub const SPOOL_OLDEST_SECONDS: &str = "hapax_spool_oldest_seconds";
/// Webhooks handed to the target unchecked because the store was away.
pub const PASSED: &str = "hapax_webhooks_passed_total";
/// Webhooks answered 200 and lost because the store was away.
pub const DROPPED: &str = "hapax_webhooks_dropped_total";
/// From the first byte of the body to the answer, in seconds.
pub const ACCEPT_SECONDS: &str = "hapax_accept_seconds";

pub const DELIVERED: &str = "hapax_deliveries_total";
/// Items handed to workers that asked for them.
pub const PULLED: &str = "hapax_items_pulled_total";
pub const RETRIED: &str = "hapax_delivery_retries_total";
pub const PARKED: &str = "hapax_items_parked_total";
pub const HANDED_BACK: &str = "hapax_items_handed_back_total";
/// Outcomes that did not count because another lease was given out since.
pub const FENCE_LOST: &str = "hapax_fences_lost_total";
/// Answers of targets that were not passed on, in proxy mode.
pub const ANSWERS_TOO_LONG: &str = "hapax_answers_too_long_total";
/// One request to the target, in seconds.
pub const DELIVERY_SECONDS: &str = "hapax_delivery_seconds";
pub const CIRCUIT_OPENED: &str = "hapax_circuit_opened_total";
/// 1 while the target is taken for dead.
pub const CIRCUIT_OPEN: &str = "hapax_circuit_open";
/// Since when it is; 0 while it is not.
pub const CIRCUIT_OPEN_SINCE: &str = "hapax_circuit_open_since_timestamp_seconds";
/// Times an item was put back because its account has no target.
pub const WITHOUT_TARGET: &str = "hapax_items_without_target_total";

/// Messages that handlers answered with.
pub const REPLIES: &str = "hapax_replies_total";
/// Replies that could not be read, and were not sent.
pub const REPLIES_BAD: &str = "hapax_replies_bad_total";

/// Messages and replies that found no room in the outbox.
pub const OUTBOX_REFUSED: &str = "hapax_outbox_refused_total";
/// Accounts whose outbox was found full, and from which nothing has left since.
pub const OUTBOX_FULL: &str = "hapax_outbox_full";

/// Messages the provider took.
pub const SENT: &str = "hapax_messages_sent_total";
pub const SEND_RETRIED: &str = "hapax_send_retries_total";
pub const SEND_FAILED: &str = "hapax_messages_failed_total";
/// Sends whose outcome nobody knows.
pub const SEND_UNKNOWN: &str = "hapax_messages_unknown_total";
/// Sends in doubt that a lookup found.
pub const RECONCILED: &str = "hapax_messages_reconciled_total";
pub const SEND_HANDED_BACK: &str = "hapax_messages_handed_back_total";
/// Times an account was stopped by what its provider said.
pub const ACCOUNT_PAUSED: &str = "hapax_accounts_paused_total";
pub const SEND_FENCE_LOST: &str = "hapax_send_fences_lost_total";
/// One call to the provider, in seconds.
pub const SEND_SECONDS: &str = "hapax_send_seconds";

/// What bots sent by their provider's own API.
pub const DROPIN_SENDS: &str = "hapax_dropin_sends_total";
/// .. that was asked for before, by the same run or an earlier one, and not sent again.
pub const DROPIN_AGAIN: &str = "hapax_dropin_sends_again_total";
/// .. in other words than before.
pub const DROPIN_REWORDED: &str = "hapax_dropin_sends_reworded_total";
/// Bots that were told to slow down.
pub const DROPIN_COME_BACK: &str = "hapax_dropin_slow_downs_total";
/// Events that the bot answered before it worked on them.
pub const DROPIN_EARLY: &str = "hapax_dropin_early_answers_total";
/// Sends beyond what is kept apart for one event.
pub const DROPIN_BOOKS_FULL: &str = "hapax_dropin_books_full_total";
/// Calls of bots that passed through to the provider.
pub const DROPIN_THROUGH: &str = "hapax_dropin_passed_through_total";
pub const DROPIN_NOT_REACHED: &str = "hapax_dropin_not_reached_total";
pub const DROPIN_POLLS: &str = "hapax_dropin_polls_total";

/// Commands that came through the Redis door.
pub const RESP_COMMANDS: &str = "hapax_resp_commands_total";
/// .. and what was refused there; label `why`.
pub const RESP_REFUSED: &str = "hapax_resp_refused_total";

/// Calls the store could not answer; label `call`.
pub const STORE_FAILED: &str = "hapax_store_failures_total";
/// Requests with a token that nobody has.
pub const TOKENS_REFUSED: &str = "hapax_tokens_refused_total";
/// Connections that could not be taken from the kernel.
pub const ACCEPT_FAILED: &str = "hapax_connections_failed_total";
/// Connections closed to make room for others.
pub const CONNECTIONS_CUT: &str = "hapax_connections_cut_total";
pub const CONNECTIONS: &str = "hapax_connections";
pub const PURGED_KEYS: &str = "hapax_purged_keys_total";
pub const PURGED_EVENTS: &str = "hapax_purged_events_total";
pub const PURGE_LAST_RUN: &str = "hapax_purge_last_run_timestamp_seconds";
/// Times the config was read anew; label `outcome`.
pub const RELOADS: &str = "hapax_reloads_total";
/// When the config that is in force was read, by a start or a reload.
pub const CONFIG_READ: &str = "hapax_config_read_timestamp_seconds";
/// 1 while the last reload was refused: the file says something else than what is in force.
pub const CONFIG_REFUSED: &str = "hapax_config_refused";
/// Notices to `notify`; label `outcome`.
pub const NOTICES: &str = "hapax_notices_total";
/// Copies of the store; label `outcome`.
pub const BACKUPS: &str = "hapax_backups_total";
/// When the last whole one was made; 0 while there is none of this run.
pub const BACKUP_LAST: &str = "hapax_backup_last_timestamp_seconds";

/// 1 for what the store promises now; label `promise`.
pub const STORE_PROMISE: &str = "hapax_store_promise";
/// Keys in the memory in front of the store.
pub const MEMORY_KEYS: &str = "hapax_memory_keys";
/// Events answered by that memory in place of the store.
pub const MEMORY_HITS: &str = "hapax_memory_hits_total";
pub const STORE_KEYS: &str = "hapax_store_keys";
pub const STORE_EVENTS: &str = "hapax_store_events";
pub const STORE_BYTES: &str = "hapax_store_bytes";
pub const STORE_LOG_BYTES: &str = "hapax_store_log_bytes";
/// Messages on their way out, and those in doubt; label `state`.
pub const OUTBOX_ITEMS: &str = "hapax_outbox_items";
/// Age of the oldest message on its way out, in seconds.
pub const OUTBOX_OLDEST_SECONDS: &str = "hapax_outbox_oldest_seconds";
/// Claims asked for over `/v1`; label `answer`.
pub const CLAIMS_ASKED: &str = "hapax_claims_asked_total";
/// Words of holders that came too late: the claim was another's by then.
pub const CLAIMS_LOST: &str = "hapax_claims_lost_total";
/// Claims that are kept; label `state`.
pub const CLAIMS: &str = "hapax_claims";
/// Open items; label `state`.
pub const INBOX_ITEMS: &str = "hapax_inbox_items";
/// Age of the oldest item on its way, in seconds.
pub const INBOX_OLDEST_SECONDS: &str = "hapax_inbox_oldest_seconds";

/// Spans that the collector of traces took.
pub const SPANS_EXPORTED: &str = "hapax_spans_exported_total";
/// Spans that are lost: the collector did not take them, or too many waited for it.
pub const SPANS_DROPPED: &str = "hapax_spans_dropped_total";

/// 1; which hapax this is stands in its labels.
pub const BUILD_INFO: &str = "hapax_build_info";

/// What [`CLAIMS_ASKED`] tells apart.
pub(super) const CLAIM_ANSWERS: &[&str] =
    &["claimed", "taken_over", "completed", "in_progress", "held", "mismatch", "no_room", "other"];

/// The calls that [`STORE_FAILED`] counts: each is there from the first scrape, at zero.
pub(super) const STORE_CALLS: &[&str] = &[
    "accept",
    "amend",
    "answer",
    "begin",
    "claims",
    "events",
    "extend",
    "extend_outbox",
    "inbox",
    "lease_inbox",
    "lease_outbox",
    "note_copies",
    "outbox",
    "pause_account",
    "ping",
    "purge",
    "put_piece",
    "settle_inbox",
    "settle_outbox",
    "spool",
    "stats",
    "submit",
];

/// Name and help text, as `/metrics` shows them.
pub(super) const COUNTERS: &[(&str, &str)] = &[
    (ACCEPTED, "New events, on disk"),
    (DUPLICATES, "Copies that were suppressed"),
    (CONFLICTS, "Copies with another content than the first"),
    (SUSPECTED, "Events parked because the same signed content came before under another id"),
    (FALLBACK_KEYS, "New events without an id, known by a hash of what they say"),
    (NO_KEY, "New events without an id or a time: a copy of one is delivered too"),
    (QUARANTINED, "Signed parts that could not be read"),
    (IGNORED, "Webhooks with nothing in them to take in"),
    (REFUSED, "Requests that got no further than ingress"),
    (SPOOLED, "Webhooks that went to the spool because the store was away"),
    (DRAINED, "Webhooks that went from the spool to the store"),
    (PASSED, "Webhooks handed to the target unchecked because the store was away"),
    (DROPPED, "Webhooks answered 200 and lost because the store was away"),
    (MEMORY_HITS, "Events answered by the memory in front of the store"),
    (DELIVERED, "Items the target took"),
    (PULLED, "Items handed to workers that asked for them"),
    (RETRIED, "Attempts that failed and will be repeated"),
    (PARKED, "Items that wait for a person"),
    (HANDED_BACK, "Items put back without charging the attempt"),
    (FENCE_LOST, "Outcomes refused because another lease was given out since"),
    (ANSWERS_TOO_LONG, "Answers too long to be passed on to the caller, in proxy mode"),
    (CIRCUIT_OPENED, "Times a target was taken for dead"),
    (WITHOUT_TARGET, "Times an item was put back because its account has no target"),
    (REPLIES, "Messages that handlers answered with"),
    (REPLIES_BAD, "Replies that could not be read, and were not sent"),
    (OUTBOX_REFUSED, "Messages, and answers with replies, that found no room in the outbox"),
    (SENT, "Messages the provider took"),
    (SEND_RETRIED, "Sends that did not go out and will be repeated"),
    (SEND_FAILED, "Messages that will never go out"),
    (SEND_UNKNOWN, "Sends whose outcome nobody knows"),
    (RECONCILED, "Sends in doubt that a lookup found"),
    (SEND_HANDED_BACK, "Messages put back before they were begun"),
    (ACCOUNT_PAUSED, "Times an account was stopped by what its provider said"),
    (SEND_FENCE_LOST, "Outcomes of sends refused because another lease was given out since"),
    (DROPIN_SENDS, "Sends of bots by their provider's own API"),
    (DROPIN_AGAIN, "Sends of bots that were asked for before, and not sent again"),
    (DROPIN_REWORDED, "Sends of bots that were asked for before in other words"),
    (DROPIN_COME_BACK, "Sends of bots that were answered with the provider's \"slow down\""),
    (DROPIN_EARLY, "Events that the bot answered before it worked on them"),
    (DROPIN_BOOKS_FULL, "Sends of bots beyond what is kept apart for one event"),
    (DROPIN_THROUGH, "Calls of bots that passed through to the provider"),
    (DROPIN_NOT_REACHED, "Calls of bots that did not get through to the provider"),
    (DROPIN_POLLS, "Calls of bots that asked for updates"),
    (RESP_COMMANDS, "Commands that came through the Redis door"),
    (RESP_REFUSED, "What was refused at the Redis door"),
    (STORE_FAILED, "Calls the store could not answer"),
    (TOKENS_REFUSED, "Requests with a token that nobody has"),
    (CLAIMS_ASKED, "Claims asked for over /v1, by what was answered"),
    (CLAIMS_LOST, "Words of holders that came too late"),
    (ACCEPT_FAILED, "Connections that could not be taken from the kernel"),
    (CONNECTIONS_CUT, "Connections closed to make room for others"),
    (PURGED_KEYS, "Keys removed after their window"),
    (PURGED_EVENTS, "Events removed after their retention"),
    (SPANS_EXPORTED, "Spans that the collector of traces took"),
    (SPANS_DROPPED, "Spans that the collector of traces did not take, or that found no room to wait for it"),
    (RELOADS, "Times the config was read anew, by how that ended"),
    (NOTICES, "Notices to `notify`, by whether they were taken"),
    (BACKUPS, "Copies of the store, by how they ended"),
];

pub(super) const GAUGES: &[(&str, &str)] = &[
    (CIRCUIT_OPEN, "1 while the target is taken for dead"),
    (CIRCUIT_OPEN_SINCE, "Since when the target is taken for dead; 0 while it is not"),
    (OUTBOX_FULL, "Accounts whose outbox was found full, and from which nothing has left since"),
    (CONNECTIONS, "Open connections"),
    (PURGE_LAST_RUN, "When purge last came to its end"),
    (CONFIG_READ, "When the config that is in force was read"),
    (CONFIG_REFUSED, "1 while the last reload was refused, and the config of before is in force"),
    (BACKUP_LAST, "When the last whole backup was made; 0 while there is none of this run"),
    (SPOOL_ITEMS, "Webhooks in the spool"),
    (SPOOL_OLDEST_SECONDS, "Age of the oldest webhook in the spool"),
    (STORE_PROMISE, "1 for what the store promises now"),
    (MEMORY_KEYS, "Keys in the memory in front of the store"),
    (STORE_KEYS, "Keys remembered"),
    (STORE_EVENTS, "Events kept"),
    (STORE_BYTES, "Size of the store"),
    (STORE_LOG_BYTES, "Size of the store's write-ahead log"),
    (INBOX_ITEMS, "Open items"),
    (CLAIMS, "Claims that are kept, by their state"),
    (OUTBOX_ITEMS, "Messages on their way out, and those in doubt"),
    (OUTBOX_OLDEST_SECONDS, "Age of the oldest message on its way out"),
    (INBOX_OLDEST_SECONDS, "Age of the oldest item on its way"),
    (BUILD_INFO, "1; the labels say which hapax this is"),
];

pub(super) const HISTOGRAMS: &[(&str, &str)] = &[
    (ACCEPT_SECONDS, "From the first byte of a webhook's body to its answer"),
    (DELIVERY_SECONDS, "One request to the target"),
    (SEND_SECONDS, "One call to the provider"),
];

pub(super) const BUCKETS_SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];
