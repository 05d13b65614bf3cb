//! Every limit in one place. What has no limit can be made to fall over.

/// Largest webhook body where the channel sets no `max_body`. Meta posts up to 3 MB.
pub const BODY_MAX_BYTES: usize = 4 << 20;
/// Largest `max_body` a channel may ask for. GitHub posts up to 25 MB.
pub const BODY_CEILING_BYTES: usize = 32 << 20;
/// Most events one webhook may carry. Meta aggregates up to 1000.
pub const EVENTS_PER_WEBHOOK: usize = 1_000;
/// Longest provider id, account or peer that is kept readable. Longer ones are quarantined, never truncated.
pub const NAME_MAX_BYTES: usize = 8 << 10;
/// Deepest JSON an adapter follows.
pub const JSON_DEPTH: usize = 64;
/// Values and names in the JSON of one webhook: as many as in 25 MB of what GitHub posts. Each takes 16 bytes while it is read.
pub const JSON_VALUES_MAX: usize = 1 << 20;
/// All request headers kept for the target, together.
pub const KEPT_HEADERS_MAX_BYTES: usize = 8 << 10;
/// Request line and headers of any request.
pub const HEADER_MAX_BYTES: usize = 32 << 10;
/// .. where bots are served by their provider's API: some put a whole message into the query.
pub const BOT_HEADER_MAX_BYTES: usize = 96 << 10;
pub const HEADER_COUNT_MAX: usize = 100;
/// Time to send all headers; a slower client is cut off.
pub const HEADER_TIMEOUT_MS: u64 = 10_000;
/// Time to send the whole body; also the longest that a client may leave an answer lying.
pub const BODY_TIMEOUT_MS: u64 = 30_000;
/// Open connections at once; for more, strangers make room.
pub const CONNECTIONS_MAX: usize = 10_000;
/// Bodies held in memory at once where `limits.bodies` says nothing else; above it ingress answers 503.
pub const BODIES_IN_FLIGHT_BYTES: usize = 256 << 20;
/// Answers of a target that are kept (proxy mode) or read (replies).
pub const ANSWER_MAX_BYTES: usize = 1 << 20;
/// Most messages a handler may answer one event with.
pub const REPLIES_MAX: usize = 100;
/// Largest page of any list.
pub const PAGE_MAX: usize = 500;
pub const PAGE_DEFAULT: usize = 50;
/// The longest a `Retry-After` is believed.
pub const RETRY_AFTER_MAX_MS: i64 = 3_600_000;
/// Longer than any wait that hapax sets itself: backoff, `Retry-After`, a lease. What is due later was dated by a wrong clock, unless a
/// person asked for that time.
pub const WAIT_MAX_MS: i64 = 24 * 3_600_000;
/// Shortest secret that is accepted in a config.
pub const SECRET_MIN_BYTES: usize = 8;
/// Entries of the memory cache of completed keys.
pub const CACHE_KEYS: u64 = 100_000;
/// Longest request id of a send, as long as the `Idempotency-Key` of most APIs.
pub const REQUEST_ID_MAX_BYTES: usize = 255;
/// Largest request to send a message. Providers take texts of a few thousand characters, and files by link.
pub const MESSAGE_MAX_BYTES: usize = 256 << 10;
/// The longest a request to send waits for the outcome; shorter than the timeout of most proxies.
pub const SEND_WAIT_MAX_S: u64 = 25;
/// Items that one pull asks for, where it does not say, and at most: they come with their bodies.
pub const PULL_DEFAULT: usize = 1;
pub const PULL_MAX: usize = 64;
/// The bodies of one pull; one item is always given, whatever its size.
pub const PULL_MAX_BYTES: usize = 8 << 20;
/// The longest a pull waits for an item.
pub const PULL_WAIT_MAX_MS: i64 = 30_000;
/// Open streams of events, how many events a reader may lag behind before it is cut, and how far back one is resumed, in pages.
pub const STREAMS_MAX: usize = 200;
pub const STREAM_BUFFER: usize = 1_024;
pub const STREAM_RESUME_PAGES: usize = 2_000;
/// Pages of the web that listen for news at once.
pub const LIVE_PAGES_MAX: usize = 500;
/// Messages that one turn takes; those of one webhook are not parted.
pub const TURN_MEMBERS_MAX: usize = 50;
/// A header lists the events of an item up to so many: servers take headers of 8 KB.
pub const LISTED_EVENTS_MAX: usize = 150;
/// How much is kept of the reason that a worker gives, and of the name it goes by.
pub const WHY_MAX_CHARS: usize = 2_000;
pub const WORKER_MAX_CHARS: usize = 100;
/// Longest name of a register of the store; databases keep an index of them.
pub const REGISTER_NAME_MAX_BYTES: usize = 512;
/// Most that a register holds. A document of Firestore takes four of them.
pub const REGISTER_MAX_BYTES: usize = 256 << 10;
/// Largest body in parts that a bot may send; Telegram takes files of 50 MB.
pub const UPLOAD_MAX_BYTES: u64 = 64 << 20;
/// Largest other body of a bot's send: some write files into JSON.
pub const BOT_BODY_MAX_BYTES: usize = 16 << 20;
/// Files that wait to be sent, of one channel and in all; for more there is no room until some have left.
pub const PIECES_OF_CHANNEL_MAX_BYTES: u64 = 512 << 20;
pub const PIECES_MAX_BYTES: u64 = 2 << 30;
/// Largest piece of a file that is kept beside what is to be sent: a small write for every database.
pub const PIECE_MAX_BYTES: usize = 256 << 10;
/// Pieces that one step of a purge removes at most.
pub const PIECES_PURGED_MAX: usize = 32;
/// The longest that something is kept which is not kept for ever.
pub const KEEP_MAX_MS: i64 = 100 * 366 * 86_400_000;
/// Items with the bot that are told at once; no channel has as many calls in flight.
pub const WITH_BOT_MAX: usize = 1_000;
/// How far ahead a message may be written that is to be sent later.
pub const SEND_AHEAD_MAX_MS: i64 = 366 * 86_400_000;
/// How much of a message's text a list of threads shows.
pub const PREVIEW_CHARS: usize = 200;
/// How often a person may send one message once more. Then a new one has to be written.
pub const ROUNDS_MAX: usize = 50;
/// Names that a message had before; tries of one round may have had several.
pub const ROUNDS_KEPT: usize = 4 * ROUNDS_MAX;
/// Messages of one account that wait in a channel's outbox where `[limits]` says nothing else, and as many replies beside them; more are refused
/// until some have left.
pub const OUTBOX_MAX: usize = 200_000;

/// Suspected replays of a channel that are kept, and how much of them in all, the last one not counted; further ones say the same as the first, and are only counted.
pub const SUSPECTS_MAX: u64 = 1_000;
pub const SUSPECTS_MAX_BYTES: u64 = 64 << 20;

/// Contents that are kept beside an event for one reason, see `store::keep_beside`.
pub const BESIDE_MAX: u32 = 8;
/// How much is kept of each.
pub const BESIDE_MAX_BYTES: usize = 256 << 10;

/// Parked items that a redrive of `max` looks at; those that cannot be moved, because their replies find no room, count too.
pub fn redrive_looks_at(max: usize) -> usize {
    max.saturating_mul(2).saturating_add(200)
}

/// The beginning of a text, for lists.
pub fn preview(text: &str) -> String {
    if text.len() <= PREVIEW_CHARS { text.to_owned() } else { text.chars().take(PREVIEW_CHARS).collect() }
}
/// Links that are followed from a name to the one its thread goes by. Names are written so that one is enough; older versions left chains.
pub const NAME_HOPS_MAX: usize = 16;
/// Lanes that one lane of a server's store speaks for, because their names turned out to be one person's. What waits in a further one goes on beside.
pub const LANES_JOINED_MAX: usize = 16;

/// Longest scope and key of a claim; databases keep an index of them.
pub const CLAIM_SCOPE_MAX_BYTES: usize = 64;
pub const CLAIM_KEY_MAX_BYTES: usize = 255;
pub const CLAIM_TOKEN_MAX_BYTES: usize = 64;
pub const CLAIM_FINGERPRINT_MAX_BYTES: usize = 255;
pub const CLAIM_HOLDER_MAX_BYTES: usize = 255;
pub const CLAIM_TYPE_MAX_BYTES: usize = 255;
/// Most that a completed claim keeps of what its job came to.
pub const CLAIM_RESULT_MAX_BYTES: usize = 1 << 20;
/// The longest that a completed claim is kept, and that a holder may go without a heartbeat.
pub const CLAIM_KEEP_MAX_MS: i64 = 366 * 86_400_000;
pub const CLAIM_LEASE_MAX_MS: i64 = WAIT_MAX_MS;
/// How long the fence of a claim that was let go is remembered where several processes ask: longer than any of their transactions lasts.
pub const CLAIM_GONE_KEPT_MS: i64 = 120_000;
/// Claims that are kept where `[claims]` says nothing else; for more there is no room until some have ended.
pub const CLAIMS_MAX: usize = 1_000_000;
/// Claims of one batch.
pub const CLAIM_BATCH_MAX: usize = 500;
