-- Version 8.
-- Who works on an item is no part of the process that owns this file: its lease outlives that.
ALTER TABLE leases ADD COLUMN outside INTEGER NOT NULL DEFAULT 0;
