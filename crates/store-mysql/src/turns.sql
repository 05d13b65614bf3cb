-- The item of a lane that what comes next may become part of.
SET @added = IF((SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_lanes' AND COLUMN_NAME = 'turn') = 0,
    'ALTER TABLE hapax_lanes ADD COLUMN turn BIGINT UNSIGNED', 'DO 0');
PREPARE added FROM @added;
EXECUTE added;
DEALLOCATE PREPARE added;
