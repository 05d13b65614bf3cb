-- Version 4.
-- What was charged to an item so far.
ALTER TABLE inbox ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE parked ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
