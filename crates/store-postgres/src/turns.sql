-- The item of a lane that what comes next may become part of.
ALTER TABLE hapax_lanes ADD COLUMN IF NOT EXISTS turn BIGINT;
