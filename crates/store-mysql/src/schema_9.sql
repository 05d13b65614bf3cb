-- Version 9. A name of a peer and the thread that goes by it are one row: the name half says which thread the name leads to, the thread half
-- what was said in it, and either may be missing. Both are found by the hash of account and name, so whoever learns a name meets whoever begins a
-- thread that goes by it. Names are brought here in `open.rs`, which can make their hashes.
CREATE TABLE IF NOT EXISTS hapax_peers (
    hash BINARY(32) NOT NULL PRIMARY KEY,
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    peer TEXT,
    thread BINARY(32),
    channel TEXT,
    last_ms BIGINT,
    last_text LONGTEXT,
    last_out BOOLEAN,
    unread BIGINT UNSIGNED,
    purged_to BIGINT UNSIGNED,
    read_to BIGINT UNSIGNED,
    channel_key BINARY(16),
    account_key BINARY(16),
    KEY newest (last_ms, channel_key, account_key),
    KEY of_thread (thread)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
INSERT INTO hapax_peers (hash, account, name, channel, last_ms, last_text, last_out, unread, purged_to, read_to, channel_key, account_key)
    SELECT hash, account, peer, channel, last_ms, last_text, last_out, unread, purged_to, read_to, channel_key, account_key
    FROM hapax_threads ON DUPLICATE KEY UPDATE hash = VALUES(hash)
