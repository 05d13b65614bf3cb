-- Version 9. A name of a peer and the thread that goes by it are one row: the name half says which thread the name leads to, the thread half
-- what was said in it, and either may be missing. Both are found by the hash of account and name, so whoever learns a name meets whoever begins a
-- thread that goes by it. Threads and names are brought here in `open.rs`, which can make the hashes of names. What was brought before a
-- migration was cut off may be old by now.
DROP TABLE IF EXISTS hapax_peers;
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
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
