-- Version 8. Every statement can be run again: columns are added behind a look at information_schema.

-- When the first item of a lane came, where that item has no row of its own: what was taken in, by itself, and waits.
SET @added = IF((SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_lanes' AND COLUMN_NAME = 'alone_ms') = 0,
    'ALTER TABLE hapax_lanes ADD COLUMN alone_ms BIGINT, ADD KEY by_first (first)', 'DO 0');
PREPARE added FROM @added;
EXECUTE added;
DEALLOCATE PREPARE added
