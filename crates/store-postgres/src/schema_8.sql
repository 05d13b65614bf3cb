-- Version 8.
-- When the first item of a lane came, where that item has no row of its own: what was taken in, by itself, and waits.
ALTER TABLE hapax_lanes ADD COLUMN IF NOT EXISTS alone_ms BIGINT;
CREATE INDEX IF NOT EXISTS hapax_lanes_alone ON hapax_lanes (first) WHERE alone_ms IS NOT NULL;

-- Most events are in the thread of the very name they came under, and are found there. Of those that were written before nobody knows.
ALTER TABLE hapax_events ADD COLUMN IF NOT EXISTS apart BOOLEAN NOT NULL DEFAULT true;
DROP INDEX IF EXISTS hapax_events_of_peer;
CREATE INDEX hapax_events_of_peer ON hapax_events (md5(account || ' ' || peer), number) WHERE apart AND peer IS NOT NULL;
