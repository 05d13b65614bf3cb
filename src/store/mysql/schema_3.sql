-- Version 3: where the events of a webhook, of a peer and of a thread are found, for those events that have one. An index would hold an entry for
-- every event, and most writes would be to say that there is nothing to find.
CREATE TABLE IF NOT EXISTS hapax_event_lists (
    list BINARY(16) NOT NULL,
    number BIGINT UNSIGNED NOT NULL,
    PRIMARY KEY (list, number)
) ENGINE=InnoDB;
SET @unlisted = IF((SELECT COUNT(*) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_events' AND INDEX_NAME = 'webhook') > 0,
    'ALTER TABLE hapax_events DROP KEY webhook, DROP KEY of_peer, DROP KEY of_thread, DROP COLUMN peer_key', 'DO 0');
PREPARE unlisted FROM @unlisted;
EXECUTE unlisted;
DEALLOCATE PREPARE unlisted
