-- Version 3: what an index would hold for every event and every key, though most have nothing to be found by, or are found together.

-- Where the events of a webhook, of a peer and of a thread are found, for those events that have one.
CREATE TABLE IF NOT EXISTS hapax_event_lists (
    list BINARY(16) NOT NULL,
    number BIGINT UNSIGNED NOT NULL,
    PRIMARY KEY (list, number)
) ENGINE=InnoDB;

-- Keys that were claimed together and expire together, 32 bytes each, known by the lowest number of their events.
CREATE TABLE IF NOT EXISTS hapax_expiring (
    expires_ms BIGINT NOT NULL,
    event BIGINT UNSIGNED NOT NULL,
    packed LONGBLOB NOT NULL,
    PRIMARY KEY (expires_ms, event)
) ENGINE=InnoDB;
INSERT INTO hapax_expiring (expires_ms, event, packed) SELECT expires_ms, event, k FROM hapax_keys
    ON DUPLICATE KEY UPDATE packed = VALUES(packed);

SET @unlisted = IF((SELECT COUNT(*) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_events' AND INDEX_NAME = 'webhook') > 0,
    'ALTER TABLE hapax_events DROP KEY webhook, DROP KEY of_peer, DROP KEY of_thread, DROP COLUMN peer_key', 'DO 0');
PREPARE unlisted FROM @unlisted;
EXECUTE unlisted;
DEALLOCATE PREPARE unlisted;

SET @unlisted = IF((SELECT COUNT(*) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_keys' AND INDEX_NAME = 'expiring') > 0,
    'ALTER TABLE hapax_keys DROP KEY expiring', 'DO 0');
PREPARE unlisted FROM @unlisted;
EXECUTE unlisted;
DEALLOCATE PREPARE unlisted
