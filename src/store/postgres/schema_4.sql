-- Version 4.
-- What was charged to an item so far.
ALTER TABLE hapax_items ADD COLUMN IF NOT EXISTS failures INT NOT NULL DEFAULT 0;

-- Replies that found no room in the outbox wait with their item; what waits there is counted by account.
ALTER TABLE hapax_items ADD COLUMN replies bytea;
CREATE INDEX hapax_outs_of_account ON hapax_outs (md5(account), priority) WHERE NOT unknown;
