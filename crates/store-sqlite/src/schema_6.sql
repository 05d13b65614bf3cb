-- Version 6.
-- Claims: keys that are held for any job. Rows are appended in the order of their fences; which key has which fence stands in memory,
-- built from here when the file is opened: there is no index of keys to be written for each of them.
CREATE TABLE claims (
    fence INTEGER PRIMARY KEY,
    name BLOB NOT NULL,
    state INTEGER NOT NULL,
    claimed INTEGER NOT NULL,
    ends INTEGER,
    token TEXT,
    until INTEGER,
    lease INTEGER,
    ttl INTEGER,
    hold INTEGER,
    fingerprint TEXT,
    holder TEXT,
    completed INTEGER,
    content_type TEXT,
    result BLOB
);
CREATE INDEX claims_end ON claims (ends) WHERE ends IS NOT NULL;
