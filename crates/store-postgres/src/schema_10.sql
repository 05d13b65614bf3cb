-- Version 10. A name of a peer and the thread that goes by it are one row: the name half says which thread the name leads to, the thread half
-- what was said in it, and either may be missing. Both are found by the hash of account and name, so whoever learns a name meets whoever begins a
-- thread that goes by it.
-- An instance of the version before that still runs waits, and finds its tables gone.
LOCK TABLE hapax_names, hapax_threads IN ACCESS EXCLUSIVE MODE;
CREATE TABLE hapax_peers (
    hash BYTEA PRIMARY KEY,
    account TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    peer TEXT,
    thread BYTEA,
    channel TEXT,
    last_ms BIGINT,
    last_text TEXT,
    last_out BOOLEAN,
    unread BIGINT,
    purged_to BIGINT,
    read_to BIGINT
);
INSERT INTO hapax_peers (hash, account, name, peer, thread, channel, last_ms, last_text, last_out, unread, purged_to, read_to)
    SELECT t.hash, t.account, t.peer, n.peer, n.thread, t.channel, t.last_ms, t.last_text, t.last_out, t.unread, t.purged_to, t.read_to
    FROM hapax_threads t LEFT JOIN hapax_names n ON n.account = t.account AND n.name = t.peer;
