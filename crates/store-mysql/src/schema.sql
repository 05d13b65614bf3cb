-- Version 1. Times are epoch milliseconds. What is known by a text is found by its hash, so that no collation, case or trailing blank can
-- ever take two names for one; the 16-byte keys beside texts only narrow down lists.

-- One row for every transaction that ever wrote: its id gives the transaction 1024 numbers, and tells afterwards whether it was committed.
CREATE TABLE IF NOT EXISTS hapax_numbers (
    id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at_s BIGINT NOT NULL
) ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS hapax_keys (
    k BINARY(32) NOT NULL PRIMARY KEY,
    event BIGINT UNSIGNED NOT NULL,
    at_ms BIGINT NOT NULL,
    fingerprint INT UNSIGNED NOT NULL,
    expires_ms BIGINT NOT NULL,
    KEY expiring (expires_ms)
) ENGINE=InnoDB;

-- Written once; only `replays` changes. `headers`, `body` and `webhook_events` are on the first event of a webhook, for all of them.
CREATE TABLE IF NOT EXISTS hapax_events (
    number BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    webhook BIGINT UNSIGNED NOT NULL,
    received_ms BIGINT NOT NULL,
    channel TEXT NOT NULL,
    kind VARCHAR(16) NOT NULL,
    account TEXT NOT NULL,
    id TEXT NOT NULL,
    peer TEXT,
    echo BOOLEAN NOT NULL,
    at_ms BIGINT,
    text LONGTEXT,
    place INT UNSIGNED NOT NULL,
    item BIGINT UNSIGNED,
    part BOOLEAN NOT NULL,
    thread BINARY(32),
    replays INT UNSIGNED NOT NULL,
    body_bytes BIGINT UNSIGNED NOT NULL,
    channel_key BINARY(16) NOT NULL,
    peer_key BINARY(16),
    webhook_events INT UNSIGNED,
    headers LONGBLOB,
    body LONGBLOB,
    KEY webhook (webhook),
    KEY of_channel (channel_key, number),
    KEY of_peer (peer_key, number),
    KEY of_thread (thread, number)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Open items. `events` lists the numbers of its events, eight bytes each.
CREATE TABLE IF NOT EXISTS hapax_items (
    number BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    received_ms BIGINT NOT NULL,
    channel TEXT NOT NULL,
    lane BINARY(32) NOT NULL,
    place TINYINT NOT NULL,
    events MEDIUMBLOB NOT NULL,
    events_ms BIGINT NOT NULL,
    webhook BIGINT UNSIGNED NOT NULL,
    attempt INT UNSIGNED NOT NULL,
    replay INT UNSIGNED,
    why LONGTEXT,
    due_ms BIGINT NOT NULL,
    channel_key BINARY(16) NOT NULL,
    first_event BIGINT UNSIGNED NOT NULL,
    KEY line (lane, place, number),
    UNIQUE KEY of_event (first_event, replay),
    KEY of_place (place, number)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The rows that order, exclusivity and fencing hang on. `held_number` and what follows is set while the lane is leased.
CREATE TABLE IF NOT EXISTS hapax_lanes (
    hash BINARY(32) NOT NULL PRIMARY KEY,
    queue TINYINT NOT NULL,
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    priority TINYINT NOT NULL,
    first BIGINT UNSIGNED NOT NULL,
    due_ms BIGINT NOT NULL,
    held_number BIGINT UNSIGNED,
    held_attempt INT UNSIGNED,
    held_fence BIGINT UNSIGNED,
    held_worker TEXT,
    held_leased_ms BIGINT,
    held_until_ms BIGINT,
    channel_key BINARY(16) NOT NULL,
    account_key BINARY(16) NOT NULL,
    KEY due (queue, channel_key, priority, due_ms, first)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The index holds all that a list of threads is narrowed by, so that only the rows that are shown are read.
CREATE TABLE IF NOT EXISTS hapax_threads (
    hash BINARY(32) NOT NULL PRIMARY KEY,
    account TEXT NOT NULL,
    peer TEXT NOT NULL,
    channel TEXT NOT NULL,
    last_ms BIGINT NOT NULL,
    last_text LONGTEXT,
    last_out BOOLEAN NOT NULL,
    unread BIGINT UNSIGNED NOT NULL,
    purged_to BIGINT UNSIGNED NOT NULL,
    channel_key BINARY(16) NOT NULL,
    account_key BINARY(16) NOT NULL,
    KEY newest (last_ms, channel_key, account_key)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS hapax_names (
    hash BINARY(32) NOT NULL PRIMARY KEY,
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    peer TEXT NOT NULL,
    thread BINARY(32) NOT NULL,
    KEY of_thread (thread)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS hapax_provider_names (
    hash BINARY(32) NOT NULL PRIMARY KEY,
    account TEXT NOT NULL,
    provider_id TEXT NOT NULL,
    message BIGINT UNSIGNED,
    early TEXT NOT NULL,
    heard_ms BIGINT NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS hapax_messages (
    number BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    created_ms BIGINT NOT NULL,
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    peer TEXT NOT NULL,
    request_id TEXT NOT NULL,
    fingerprint BINARY(32) NOT NULL,
    text LONGTEXT,
    payload LONGBLOB NOT NULL,
    priority TINYINT NOT NULL,
    reply_to BINARY(16),
    home BINARY(32) NOT NULL,
    thread BINARY(32) NOT NULL,
    provider_id TEXT,
    steps TEXT NOT NULL,
    why LONGTEXT,
    request BINARY(32) NOT NULL,
    UNIQUE KEY request (request),
    KEY of_thread (thread, number)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Messages that are still in the outbox.
CREATE TABLE IF NOT EXISTS hapax_outs (
    number BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    created_ms BIGINT NOT NULL,
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    lane BINARY(32) NOT NULL,
    priority TINYINT NOT NULL,
    attempt INT UNSIGNED NOT NULL,
    due_ms BIGINT,
    begun_ms BIGINT,
    in_doubt BOOLEAN NOT NULL,
    channel_key BINARY(16) NOT NULL,
    account_key BINARY(16) NOT NULL,
    KEY line (lane, number),
    KEY begun (account_key, begun_ms)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS hapax_attempts (
    queue TINYINT NOT NULL,
    of_number BIGINT UNSIGNED NOT NULL,
    item BIGINT UNSIGNED NOT NULL,
    item_ms BIGINT NOT NULL,
    attempt INT UNSIGNED NOT NULL,
    fence BIGINT UNSIGNED NOT NULL,
    worker TEXT NOT NULL,
    leased_ms BIGINT NOT NULL,
    ended_ms BIGINT NOT NULL,
    outcome TEXT NOT NULL,
    detail LONGTEXT NOT NULL,
    PRIMARY KEY (queue, of_number, fence)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS hapax_answers (
    event BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    status SMALLINT UNSIGNED NOT NULL,
    content_type TEXT,
    body LONGBLOB NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS hapax_copies (
    event BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    copies BIGINT UNSIGNED NOT NULL,
    conflicts BIGINT UNSIGNED NOT NULL,
    last_ms BIGINT NOT NULL
) ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS hapax_paused (
    channel_key BINARY(16) NOT NULL,
    account_key BINARY(16) NOT NULL,
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    why LONGTEXT NOT NULL,
    since_ms BIGINT NOT NULL,
    PRIMARY KEY (channel_key, account_key)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS hapax_settings (
    hash BINARY(32) NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    value LONGTEXT NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
