-- Version 4.
-- What was charged to an item so far.
ALTER TABLE hapax_items ADD COLUMN IF NOT EXISTS failures INT NOT NULL DEFAULT 0;
