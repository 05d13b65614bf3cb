-- Version 5. Every statement can be run again: columns are added behind a look at information_schema.

-- When a setting ends; most never do.
SET @added = IF((SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_settings' AND COLUMN_NAME = 'expires_ms') = 0,
    'ALTER TABLE hapax_settings ADD COLUMN expires_ms BIGINT, ADD KEY expiring (expires_ms)', 'DO 0');
PREPARE added FROM @added;
EXECUTE added;
DEALLOCATE PREPARE added;

-- Pieces of files that are to be sent. `hash` is of the name.
CREATE TABLE IF NOT EXISTS hapax_pieces (
    hash BINARY(32) NOT NULL,
    n INT UNSIGNED NOT NULL,
    name TEXT NOT NULL,
    channel VARCHAR(512) NOT NULL,
    expires_ms BIGINT NOT NULL,
    size BIGINT UNSIGNED NOT NULL,
    bytes MEDIUMBLOB NOT NULL,
    PRIMARY KEY (hash, n),
    KEY expiring (expires_ms),
    KEY of_channel (channel, size)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
