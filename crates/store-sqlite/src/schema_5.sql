-- Version 5.
-- Named values that are changed only as they were seen; those with an end are gone by then. Settings were in `meta` before.
CREATE TABLE registers (
    name TEXT NOT NULL,
    ends INTEGER,
    value TEXT NOT NULL
);
CREATE UNIQUE INDEX registers_name ON registers (name);
CREATE INDEX registers_end ON registers (ends) WHERE ends IS NOT NULL;
INSERT INTO registers (name, value) SELECT substr(name, 9), value FROM meta WHERE name LIKE 'setting:%';
DELETE FROM meta WHERE name LIKE 'setting:%';

-- Pieces of files that are to be sent.
CREATE TABLE pieces (
    name TEXT NOT NULL,
    n INTEGER NOT NULL,
    ends INTEGER NOT NULL,
    size INTEGER NOT NULL,
    bytes BLOB NOT NULL
);
CREATE UNIQUE INDEX pieces_name ON pieces (name, n);
CREATE INDEX pieces_end ON pieces (ends, name, size);
