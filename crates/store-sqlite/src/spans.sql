-- Version 2. Where a webhook of another store ends: the numbers of its events may lie further apart than ours ever do.
CREATE TABLE spans (webhook INTEGER PRIMARY KEY, last INTEGER NOT NULL);
