-- Version 3. The numbers of events whose keys were moved here from another store, which a claim has no room for: it holds `place` instead.
-- In `meta`, `moved_keys` counts them, `moved_until` is the second the last of them ends, and `numbers_from` is what claims made here
-- are counted from. See `numbering.rs`.

CREATE TABLE moved_numbers (place INTEGER PRIMARY KEY, number INTEGER NOT NULL);
