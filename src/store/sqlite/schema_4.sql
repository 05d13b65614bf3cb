-- Version 4.
-- What was charged to an item so far.
ALTER TABLE inbox ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE parked ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;

-- How many events and messages of a thread there are, up to `last`: one of which none is left can be purged. Names are found by their thread.
ALTER TABLE threads ADD COLUMN entries INTEGER NOT NULL DEFAULT 0;
UPDATE threads SET entries = said.entries FROM (
    SELECT e.thread, count(*) AS entries FROM (SELECT thread, number FROM events WHERE thread IS NOT NULL UNION ALL SELECT thread, number FROM messages) e
    JOIN threads t ON t.thread = e.thread AND e.number <= t.last GROUP BY e.thread) AS said WHERE said.thread = threads.thread;
CREATE INDEX names_of_thread ON names (thread);
