-- Version 4.
-- What was charged to an item so far.
ALTER TABLE hapax_items ADD COLUMN IF NOT EXISTS failures INT NOT NULL DEFAULT 0;

-- Replies that found no room in the outbox wait with their item; what waits there is counted by account.
ALTER TABLE hapax_items ADD COLUMN IF NOT EXISTS replies bytea;
CREATE INDEX IF NOT EXISTS hapax_outs_of_account ON hapax_outs (md5(account), priority) WHERE NOT unknown;
-- The random part of a transaction's nonce: values of the sequence may come again after a crash of the server.
ALTER TABLE hapax_nonces ADD COLUMN IF NOT EXISTS salt BYTEA;

-- The latest time that was seen here: a clock that shows less was set back.
ALTER TABLE hapax_schema ADD COLUMN IF NOT EXISTS seen_ms BIGINT NOT NULL DEFAULT 0;
-- The first event that was kept beside the one whose copies are counted, or nothing.
ALTER TABLE hapax_copies ADD COLUMN IF NOT EXISTS kept TEXT NOT NULL DEFAULT '';
-- What is behind a message: its tries, doubts that are left, and what was before a person's retries. Tries that its budget is charged with.
ALTER TABLE hapax_messages ADD COLUMN IF NOT EXISTS past text;
-- A retry left the former name on a message that waits to be sent anew: that name is of a round that is over.
UPDATE hapax_messages SET provider_id = NULL,
    past = json_build_object('tries', 0, 'rounds', json_build_array(json_build_object('provider_id', provider_id, 'steps', '')))::text
    WHERE provider_id IS NOT NULL AND number IN (SELECT number FROM hapax_outs WHERE begun_ms IS NULL);
ALTER TABLE hapax_outs ADD COLUMN IF NOT EXISTS failures int4 NOT NULL DEFAULT 0;
-- Entries up to this number were marked as read.
ALTER TABLE hapax_threads ADD COLUMN IF NOT EXISTS read_to int8 NOT NULL DEFAULT 0;
-- The name that the thread of a lane goes by; the lane that speaks for this one because their names turned out to be one person's, and the
-- lanes that this one speaks for.
ALTER TABLE hapax_lanes ADD COLUMN IF NOT EXISTS peer TEXT;
ALTER TABLE hapax_lanes ADD COLUMN IF NOT EXISTS joined_to BYTEA;
ALTER TABLE hapax_lanes ADD COLUMN IF NOT EXISTS joined BYTEA;
