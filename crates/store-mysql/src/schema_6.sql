-- Version 6.
-- Claims: keys that are held for any job.
CREATE TABLE IF NOT EXISTS hapax_claims (
    hash BINARY(32) NOT NULL,
    scope VARCHAR(64) NOT NULL,
    k VARCHAR(255) NOT NULL,
    state TINYINT NOT NULL,
    token VARCHAR(64) NOT NULL,
    fence BIGINT UNSIGNED NOT NULL,
    fingerprint VARCHAR(255),
    hold TINYINT NOT NULL,
    holder VARCHAR(255),
    claimed_ms BIGINT NOT NULL,
    lease_ms BIGINT NOT NULL,
    until_ms BIGINT NOT NULL,
    ttl_ms BIGINT NOT NULL,
    completed_ms BIGINT,
    ends_ms BIGINT,
    result_bytes BIGINT UNSIGNED NOT NULL,
    content_type VARCHAR(255),
    result MEDIUMBLOB,
    PRIMARY KEY (hash),
    KEY by_fence (fence),
    KEY ending (ends_ms)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
