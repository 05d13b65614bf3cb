-- Version 2: what providers call messages that nobody knows is found by its age, to be purged. MySQL cannot be told to add an index only
-- where there is none.
SET @by_age = IF((SELECT COUNT(*) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME = 'hapax_provider_names' AND INDEX_NAME = 'by_age') = 0,
    'ALTER TABLE hapax_provider_names ADD KEY by_age (heard_ms)', 'DO 0');
PREPARE by_age FROM @by_age;
EXECUTE by_age;
DEALLOCATE PREPARE by_age
