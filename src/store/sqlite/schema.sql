-- Version 1. Numbers of events and items come from one counter that only grows; times are epoch milliseconds.

CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;

CREATE TABLE channels (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

-- Append-only: a row is written once and only ever removed by purge. `webhook` names the row that holds headers and body for all
-- events of one webhook. `item` says where it was put in line; NULL means it was kept and delivered nowhere.
CREATE TABLE events (
    number INTEGER PRIMARY KEY,
    received INTEGER NOT NULL,
    channel INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    echo INTEGER NOT NULL,
    place INTEGER NOT NULL,
    webhook INTEGER NOT NULL,
    webhook_events INTEGER NOT NULL,
    item INTEGER,
    account TEXT NOT NULL,
    provider_id TEXT NOT NULL,
    peer TEXT,
    at INTEGER,
    headers BLOB,
    body BLOB
);

-- Items on their way, appended per channel; the writer keeps their lanes in memory (`lanes.rs`). `lane` is NULL for the lane of a single event,
-- which nothing else can ever join. `members` lists the numbers of the events (8 bytes each) when there is more than the first.
CREATE TABLE inbox (
    channel INTEGER NOT NULL,
    item INTEGER NOT NULL,
    lane BLOB,
    first INTEGER NOT NULL,
    members BLOB,
    attempt INTEGER NOT NULL,
    replay INTEGER,
    received INTEGER NOT NULL,
    due INTEGER NOT NULL,
    why TEXT,
    PRIMARY KEY (channel, item)
) WITHOUT ROWID;
CREATE INDEX inbox_replays ON inbox (first) WHERE replay IS NOT NULL;

-- Items somebody works on now. A small table of its own, so that leasing touches no page of a long inbox.
CREATE TABLE leases (
    channel INTEGER NOT NULL,
    item INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    worker TEXT NOT NULL,
    leased INTEGER NOT NULL,
    ends INTEGER NOT NULL
);

-- Items that wait for a person.
CREATE TABLE parked (
    item INTEGER PRIMARY KEY,
    channel INTEGER NOT NULL,
    first INTEGER NOT NULL,
    members BLOB,
    attempt INTEGER NOT NULL,
    replay INTEGER,
    received INTEGER NOT NULL,
    why TEXT NOT NULL,
    quarantined INTEGER NOT NULL
);
CREATE INDEX parked_first ON parked (first);

CREATE TABLE attempts (
    first INTEGER NOT NULL,
    item INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    received INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    worker TEXT NOT NULL,
    leased INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (first, item, fence)
) WITHOUT ROWID;

CREATE TABLE copies (
    number INTEGER PRIMARY KEY,
    copies INTEGER NOT NULL,
    conflicts INTEGER NOT NULL,
    last INTEGER NOT NULL
);

CREATE TABLE answers (
    item INTEGER PRIMARY KEY,
    status INTEGER NOT NULL,
    content_type TEXT,
    body BLOB NOT NULL
);

-- Identity by period: `keys_N` is the log of an open period, `sealed_N` the sorted table of a closed one; `filter` says quickly what
-- is not in it. A period is forgotten by dropping its table once its last key has expired.
CREATE TABLE periods (
    period INTEGER PRIMARY KEY,
    opened INTEGER NOT NULL,
    keys INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    sealed INTEGER NOT NULL,
    filter BLOB
);

-- `events` counts the rows up to number `events_to`; those after it are few and counted when asked.
INSERT INTO meta VALUES ('events', 0), ('events_to', 0), ('last_number', 0), ('last_fence', 0);
