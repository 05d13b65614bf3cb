-- Version 1. Numbers of events and items come from one counter that only grows; times are epoch milliseconds.

CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;

CREATE TABLE channels (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

-- Append-only: a row is written once and only ever removed by purge. `webhook` names the row that holds headers and body for all
-- events of one webhook. `item` says where it was put in line; NULL means it was kept and delivered nowhere. A message belongs to a
-- `thread`, and `prev` is the number of what was said before it there (0: nothing), so that a thread is read backwards without an index.
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
    text TEXT,
    thread INTEGER,
    prev INTEGER,
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

-- What goes out. `steps` holds when each status was heard of; `thread` and `prev` as in events.
CREATE TABLE messages (
    number INTEGER PRIMARY KEY,
    created INTEGER NOT NULL,
    channel INTEGER NOT NULL,
    account TEXT NOT NULL,
    peer TEXT NOT NULL,
    request BLOB NOT NULL,
    request_id TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    text TEXT,
    payload BLOB NOT NULL,
    priority INTEGER NOT NULL,
    reply_to BLOB,
    thread INTEGER NOT NULL,
    prev INTEGER NOT NULL,
    provider_id TEXT,
    steps TEXT NOT NULL,
    why TEXT
);
CREATE UNIQUE INDEX messages_request ON messages (request);
CREATE INDEX messages_provider ON messages (account, provider_id) WHERE provider_id IS NOT NULL;

-- Messages that are not done. `begun` is set while nobody can say whether it was sent; `unknown` when it has left its lane for that.
CREATE TABLE outbox (
    number INTEGER PRIMARY KEY,
    channel INTEGER NOT NULL,
    account TEXT NOT NULL,
    account_key INTEGER NOT NULL,
    lane BLOB,
    priority INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    due INTEGER,
    begun INTEGER,
    unknown INTEGER NOT NULL
);
CREATE INDEX outbox_channel ON outbox (channel, number);
CREATE INDEX outbox_begun ON outbox (account) WHERE begun IS NOT NULL;

CREATE TABLE out_leases (
    channel INTEGER NOT NULL,
    item INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    worker TEXT NOT NULL,
    leased INTEGER NOT NULL,
    ends INTEGER NOT NULL
);

CREATE TABLE tries (
    number INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    worker TEXT NOT NULL,
    leased INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (number, fence)
) WITHOUT ROWID;

-- Statuses that came before the provider's answer told us the id they speak of.
CREATE TABLE early (
    account TEXT NOT NULL,
    provider_id TEXT NOT NULL,
    heard INTEGER NOT NULL,
    steps TEXT NOT NULL,
    PRIMARY KEY (account, provider_id)
) WITHOUT ROWID;

CREATE TABLE paused (
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    why TEXT NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (channel, account)
) WITHOUT ROWID;

-- A thread's last words are written a little later than they were said; `last` is the number they are of, and what was said since
-- is in events and messages.
CREATE TABLE threads (
    thread INTEGER PRIMARY KEY,
    channel INTEGER NOT NULL,
    account TEXT NOT NULL,
    peer TEXT NOT NULL,
    last INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    last_text TEXT,
    last_out INTEGER NOT NULL,
    unread INTEGER NOT NULL
);
CREATE INDEX threads_peer ON threads (account, peer);
CREATE INDEX threads_last ON threads (last_at) WHERE last > 0;

CREATE TABLE names (
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    thread INTEGER NOT NULL,
    PRIMARY KEY (account, name)
) WITHOUT ROWID;

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
INSERT INTO meta VALUES ('events', 0), ('events_to', 0), ('threads_to', 0), ('last_number', 0), ('last_fence', 0);
