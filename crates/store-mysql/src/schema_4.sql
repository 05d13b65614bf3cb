-- Version 4. Every statement can be run again: columns are added behind a look at information_schema.

-- What was charged to an item so far.
SET @adding = IF((SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_items' AND COLUMN_NAME = 'failures') = 0,
    'ALTER TABLE hapax_items ADD COLUMN failures INT UNSIGNED NOT NULL DEFAULT 0', 'DO 0');
PREPARE adding FROM @adding;
EXECUTE adding;
DEALLOCATE PREPARE adding;

-- Replies that found no room in the outbox wait with their item; what waits there is counted by account.
SET @kept = IF((SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_items' AND COLUMN_NAME = 'replies') = 0,
    'ALTER TABLE hapax_items ADD COLUMN replies LONGBLOB', 'DO 0');
PREPARE kept FROM @kept;
EXECUTE kept;
DEALLOCATE PREPARE kept;
SET @counted = IF((SELECT COUNT(*) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_outs' AND INDEX_NAME = 'of_account') = 0,
    'ALTER TABLE hapax_outs ADD KEY of_account (account_key, in_doubt, channel_key, priority)', 'DO 0');
PREPARE counted FROM @counted;
EXECUTE counted;
DEALLOCATE PREPARE counted;
-- The random nonce of a transaction: its id may come again after a crash of the server.
SET @nonces = IF((SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_numbers' AND COLUMN_NAME = 'nonce') = 0,
    'ALTER TABLE hapax_numbers ADD COLUMN nonce BINARY(16)', 'DO 0');
PREPARE nonces FROM @nonces;
EXECUTE nonces;
DEALLOCATE PREPARE nonces;

-- The latest time that was seen here: a clock that shows less was set back.
CREATE TABLE IF NOT EXISTS hapax_clock (
    one TINYINT NOT NULL PRIMARY KEY,
    seen_ms BIGINT NOT NULL
) ENGINE=InnoDB;
INSERT INTO hapax_clock (one, seen_ms) VALUES (1, 0) ON DUPLICATE KEY UPDATE one = one;
-- The first event that was kept beside the one whose copies are counted, or nothing.
SET @kept = IF((SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_copies' AND COLUMN_NAME = 'kept') = 0,
    'ALTER TABLE hapax_copies ADD COLUMN kept VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT ''''', 'DO 0');
PREPARE kept FROM @kept;
EXECUTE kept;
DEALLOCATE PREPARE kept;
-- What is behind a message: its tries, doubts that are left, and what was before a person's retries. Tries that its budget is charged with.
SET @added = IF((SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_messages' AND COLUMN_NAME = 'past') = 0,
    'ALTER TABLE hapax_messages ADD COLUMN past LONGTEXT', 'DO 0');
PREPARE added FROM @added;
EXECUTE added;
DEALLOCATE PREPARE added;
-- A retry left the former name on a message that waits to be sent anew: that name is of a round that is over. MySQL assigns in the order
-- written, so the name is put aside before it is taken away.
UPDATE hapax_messages SET
    past = JSON_OBJECT('tries', 0, 'rounds', JSON_ARRAY(JSON_OBJECT('provider_id', provider_id, 'steps', ''))),
    provider_id = NULL
    WHERE provider_id IS NOT NULL AND number IN (SELECT number FROM hapax_outs WHERE begun_ms IS NULL);
SET @added = IF((SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_outs' AND COLUMN_NAME = 'failures') = 0,
    'ALTER TABLE hapax_outs ADD COLUMN failures INT UNSIGNED NOT NULL DEFAULT 0', 'DO 0');
PREPARE added FROM @added;
EXECUTE added;
DEALLOCATE PREPARE added;
-- Entries up to this number were marked as read.
SET @added = IF((SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_threads' AND COLUMN_NAME = 'read_to') = 0,
    'ALTER TABLE hapax_threads ADD COLUMN read_to BIGINT UNSIGNED NOT NULL DEFAULT 0', 'DO 0');
PREPARE added FROM @added;
EXECUTE added;
DEALLOCATE PREPARE added;
-- The name that the thread of a lane goes by; the lane that speaks for this one because their names turned out to be one person's, and the
-- lanes that this one speaks for.
SET @added = IF((SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_lanes' AND COLUMN_NAME = 'joined') = 0,
    'ALTER TABLE hapax_lanes ADD COLUMN peer TEXT, ADD COLUMN joined_to BINARY(32), ADD COLUMN joined BLOB', 'DO 0');
PREPARE added FROM @added;
EXECUTE added;
DEALLOCATE PREPARE added;
