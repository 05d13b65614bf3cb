-- The item of a lane that what comes next may become part of.
CREATE TABLE turns (
    channel INTEGER NOT NULL,
    lane BLOB NOT NULL,
    item INTEGER NOT NULL,
    PRIMARY KEY (channel, lane)
) WITHOUT ROWID;
CREATE INDEX turns_item ON turns (item);
