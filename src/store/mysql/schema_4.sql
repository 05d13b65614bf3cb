-- Version 4. Every statement can be run again: columns are added behind a look at information_schema.

-- What was charged to an item so far.
SET @adding = IF((SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_items' AND COLUMN_NAME = 'failures') = 0,
    'ALTER TABLE hapax_items ADD COLUMN failures INT UNSIGNED NOT NULL DEFAULT 0', 'DO 0');
PREPARE adding FROM @adding;
EXECUTE adding;
DEALLOCATE PREPARE adding
