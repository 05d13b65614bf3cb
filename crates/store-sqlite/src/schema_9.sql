-- Version 9.
-- What was learned of people since `threads` and `names` were written last: a row for each batch that learned something, gone when it is there.
CREATE TABLE learned (
    number INTEGER PRIMARY KEY,
    lessons BLOB NOT NULL
);
-- A thread is found by the names that lead to it. Where its peer's own name leads elsewhere, it stands aside and is looked for by itself.
ALTER TABLE threads ADD COLUMN aside INTEGER NOT NULL DEFAULT 0;
UPDATE threads SET aside = 1 WHERE NOT EXISTS
    (SELECT 1 FROM names n WHERE n.account = threads.account AND n.name = threads.peer AND n.thread = threads.thread);
CREATE INDEX threads_aside ON threads (account, peer) WHERE aside;
DROP INDEX threads_peer;
-- The names that lead to a thread. A table of its own in place of an index, so that both are written in the order of their keys.
CREATE TABLE thread_names (
    thread INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (thread, name)
) WITHOUT ROWID;
INSERT INTO thread_names SELECT thread, name FROM names ORDER BY thread, name;
DROP INDEX names_of_thread;
-- Items up to this number may wait under names that lead nowhere; those of an older version may all.
ALTER TABLE channels ADD COLUMN nameless_to INTEGER NOT NULL DEFAULT 0;
UPDATE channels SET nameless_to = max(ifnull((SELECT max(item) FROM inbox i WHERE i.channel = channels.id), 0),
    ifnull((SELECT max(number) FROM outbox o WHERE o.channel = channels.id), 0));
-- What says of most names that they lead nowhere (`known_names.rs`).
CREATE TABLE name_filters (
    filter_number INTEGER PRIMARY KEY,
    filter BLOB NOT NULL,
    room INTEGER NOT NULL
);
CREATE TABLE young_names (
    round INTEGER PRIMARY KEY,
    hashes BLOB NOT NULL
);
