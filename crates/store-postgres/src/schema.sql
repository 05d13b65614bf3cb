-- Everything hapax keeps, version 1. Times are milliseconds since 1970, hashes 32 bytes, numbers come from one sequence.
-- Texts pass through `texts.rs`: PostgreSQL's TEXT cannot hold the character NUL.

-- One value of it stands for a block of numbers. It must hand out its values in order: no cache.
CREATE SEQUENCE hapax_numbers AS BIGINT START 1 CACHE 1;

CREATE TABLE hapax_keys (
    key BYTEA PRIMARY KEY,
    event BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    fingerprint INT NOT NULL,
    expires_ms BIGINT NOT NULL
);
CREATE INDEX hapax_keys_expire ON hapax_keys (expires_ms);

CREATE TABLE hapax_events (
    number BIGINT PRIMARY KEY,
    webhook BIGINT NOT NULL,
    received_ms BIGINT NOT NULL,
    channel TEXT NOT NULL,
    kind TEXT NOT NULL,
    account TEXT NOT NULL,
    id TEXT NOT NULL,
    peer TEXT,
    echo BOOLEAN NOT NULL,
    at_ms BIGINT,
    text TEXT,
    ordinal INT NOT NULL,
    item BIGINT,
    part BOOLEAN NOT NULL,
    thread BYTEA,
    replays INT NOT NULL,
    body_bytes BIGINT NOT NULL,
    headers BYTEA,
    body BYTEA,
    webhook_events INT
);
CREATE INDEX hapax_events_of_thread ON hapax_events (thread, number) WHERE thread IS NOT NULL;
-- Most webhooks have one event, which carries the webhook itself and is found by its number.
CREATE INDEX hapax_events_of_webhook ON hapax_events (webhook) WHERE webhook <> number;

CREATE TABLE hapax_items (
    number BIGINT PRIMARY KEY,
    received_ms BIGINT NOT NULL,
    channel TEXT NOT NULL,
    lane BYTEA NOT NULL,
    place SMALLINT NOT NULL,
    first BIGINT NOT NULL,
    events BYTEA NOT NULL,
    events_ms BIGINT NOT NULL,
    webhook BIGINT NOT NULL,
    attempt INT NOT NULL,
    replay INT,
    why TEXT,
    due_ms BIGINT NOT NULL
);
CREATE INDEX hapax_items_in_lane ON hapax_items (lane, number) WHERE place = 0;
CREATE INDEX hapax_items_parked ON hapax_items (number) WHERE place <> 0;
-- Unique: two replays of an event at the same moment get different numbers, since the bot tells them apart by these.
CREATE UNIQUE INDEX hapax_items_replays ON hapax_items (first, replay) WHERE replay IS NOT NULL;

CREATE TABLE hapax_lanes (
    hash BYTEA PRIMARY KEY,
    queue SMALLINT NOT NULL,
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    priority SMALLINT NOT NULL,
    first BIGINT NOT NULL,
    due_ms BIGINT NOT NULL,
    held_number BIGINT,
    held_attempt INT,
    held_fence BIGINT,
    held_worker TEXT,
    held_leased_ms BIGINT,
    held_until_ms BIGINT
);
CREATE INDEX hapax_lanes_due ON hapax_lanes (queue, channel, priority, due_ms, first);

CREATE TABLE hapax_threads (
    hash BYTEA PRIMARY KEY,
    account TEXT COLLATE "C" NOT NULL,
    peer TEXT COLLATE "C" NOT NULL,
    channel TEXT NOT NULL,
    last_ms BIGINT NOT NULL,
    last_text TEXT,
    last_out BOOLEAN NOT NULL,
    unread BIGINT NOT NULL,
    purged_to BIGINT NOT NULL
);

CREATE TABLE hapax_names (
    hash BYTEA PRIMARY KEY,
    account TEXT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    peer TEXT NOT NULL,
    thread BYTEA NOT NULL
);
CREATE INDEX hapax_names_of_thread ON hapax_names (thread);

CREATE TABLE hapax_provider_names (
    hash BYTEA PRIMARY KEY,
    account TEXT NOT NULL,
    provider_id TEXT NOT NULL,
    message BIGINT,
    early TEXT NOT NULL,
    heard_ms BIGINT NOT NULL
);

CREATE TABLE hapax_messages (
    number BIGINT PRIMARY KEY,
    request BYTEA NOT NULL UNIQUE,
    created_ms BIGINT NOT NULL,
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    peer TEXT NOT NULL,
    request_id TEXT NOT NULL,
    fingerprint BYTEA NOT NULL,
    text TEXT,
    payload BYTEA NOT NULL,
    priority SMALLINT NOT NULL,
    reply_to BYTEA,
    home BYTEA NOT NULL,
    thread BYTEA NOT NULL,
    provider_id TEXT,
    steps TEXT NOT NULL,
    why TEXT
);
CREATE INDEX hapax_messages_of_thread ON hapax_messages (thread, number);

CREATE TABLE hapax_outs (
    number BIGINT PRIMARY KEY,
    created_ms BIGINT NOT NULL,
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    lane BYTEA NOT NULL,
    priority SMALLINT NOT NULL,
    attempt INT NOT NULL,
    due_ms BIGINT,
    begun_ms BIGINT,
    unknown BOOLEAN NOT NULL
);
CREATE INDEX hapax_outs_in_lane ON hapax_outs (lane, number) WHERE due_ms IS NOT NULL;
CREATE INDEX hapax_outs_begun ON hapax_outs (account) WHERE begun_ms IS NOT NULL;
CREATE INDEX hapax_outs_unknown ON hapax_outs (account, number) WHERE unknown;

CREATE TABLE hapax_attempts (
    queue SMALLINT NOT NULL,
    made_for BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    item BIGINT NOT NULL,
    item_ms BIGINT NOT NULL,
    attempt INT NOT NULL,
    worker TEXT NOT NULL,
    leased_ms BIGINT NOT NULL,
    ended_ms BIGINT NOT NULL,
    outcome TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (queue, made_for, fence)
);

CREATE TABLE hapax_answers (
    event BIGINT PRIMARY KEY,
    status INT NOT NULL,
    content_type TEXT,
    body BYTEA NOT NULL
);

CREATE TABLE hapax_copies (
    event BIGINT PRIMARY KEY,
    copies BIGINT NOT NULL,
    conflicts BIGINT NOT NULL,
    last_ms BIGINT NOT NULL
);

CREATE TABLE hapax_paused (
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    why TEXT NOT NULL,
    since_ms BIGINT NOT NULL,
    PRIMARY KEY (channel, account)
);

CREATE TABLE hapax_settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- One row per transaction that wrote something: it tells whether the transaction was committed when the answer to its commit was lost.
CREATE TABLE hapax_nonces (
    nonce BIGINT PRIMARY KEY,
    at_ms BIGINT NOT NULL
);
