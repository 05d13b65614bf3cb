-- Version 6.
-- Claims: keys that are held for any job. What a job came to is mostly small, and read as a whole.
CREATE TABLE IF NOT EXISTS hapax_claims (
    hash BYTEA PRIMARY KEY,
    scope TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    state SMALLINT NOT NULL,
    token TEXT COLLATE "C" NOT NULL,
    fence BIGINT NOT NULL,
    fingerprint TEXT COLLATE "C",
    hold BOOLEAN NOT NULL,
    holder TEXT COLLATE "C",
    claimed_ms BIGINT NOT NULL,
    lease_ms BIGINT NOT NULL,
    until_ms BIGINT NOT NULL,
    ttl_ms BIGINT NOT NULL,
    completed_ms BIGINT,
    ends_ms BIGINT,
    result_bytes BIGINT NOT NULL,
    content_type TEXT COLLATE "C",
    result BYTEA
);
CREATE INDEX IF NOT EXISTS hapax_claims_fence ON hapax_claims (fence);
CREATE INDEX IF NOT EXISTS hapax_claims_ending ON hapax_claims (ends_ms) WHERE ends_ms IS NOT NULL;
