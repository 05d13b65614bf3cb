-- Version 5.
-- When a setting ends; most never do.
ALTER TABLE hapax_settings ADD COLUMN IF NOT EXISTS expires_ms BIGINT;
CREATE INDEX IF NOT EXISTS hapax_settings_expiring ON hapax_settings (expires_ms) WHERE expires_ms IS NOT NULL;

-- Pieces of files that are to be sent. They are mostly compressed already.
CREATE TABLE IF NOT EXISTS hapax_pieces (
    name TEXT COLLATE "C" NOT NULL,
    n INT NOT NULL,
    channel TEXT COLLATE "C" NOT NULL,
    expires_ms BIGINT NOT NULL,
    size BIGINT NOT NULL,
    bytes BYTEA NOT NULL,
    PRIMARY KEY (name, n)
);
ALTER TABLE hapax_pieces ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE INDEX IF NOT EXISTS hapax_pieces_expiring ON hapax_pieces (expires_ms);
