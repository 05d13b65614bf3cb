-- Version 4.
-- What was charged to an item so far.
ALTER TABLE inbox ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE parked ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;

-- How many events and messages of a thread there are, up to `last`: one of which none is left can be purged. Names are found by their thread.
ALTER TABLE threads ADD COLUMN entries INTEGER NOT NULL DEFAULT 0;
UPDATE threads SET entries = said.entries FROM (
    SELECT e.thread, count(*) AS entries FROM (SELECT thread, number FROM events WHERE thread IS NOT NULL UNION ALL SELECT thread, number FROM messages) e
    JOIN threads t ON t.thread = e.thread AND e.number <= t.last GROUP BY e.thread) AS said WHERE said.thread = threads.thread;
CREATE INDEX names_of_thread ON names (thread);
-- Replies that found no room in the outbox wait with their item.
ALTER TABLE parked ADD COLUMN replies BLOB;

-- How many messages of an account wait or are being sent, replies apart from the rest. Kept by triggers, so that no way into the outbox or out of it
-- is forgotten.
CREATE TABLE outbox_counts (
    channel INTEGER NOT NULL,
    account_key INTEGER NOT NULL,
    reply INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    PRIMARY KEY (channel, account_key, reply)
) WITHOUT ROWID;
INSERT INTO outbox_counts SELECT channel, account_key, priority = 0, count(*) FROM outbox WHERE unknown = 0 GROUP BY 1, 2, 3;
CREATE TRIGGER outbox_entered AFTER INSERT ON outbox WHEN NEW.unknown = 0 BEGIN
    INSERT INTO outbox_counts VALUES (NEW.channel, NEW.account_key, NEW.priority = 0, 1)
        ON CONFLICT DO UPDATE SET waiting = waiting + 1;
END;
CREATE TRIGGER outbox_left AFTER DELETE ON outbox WHEN OLD.unknown = 0 BEGIN
    UPDATE outbox_counts SET waiting = waiting - 1
        WHERE channel = OLD.channel AND account_key = OLD.account_key AND reply = (OLD.priority = 0);
END;
CREATE TRIGGER outbox_doubted AFTER UPDATE OF unknown ON outbox WHEN NEW.unknown <> OLD.unknown BEGIN
    INSERT INTO outbox_counts VALUES (NEW.channel, NEW.account_key, NEW.priority = 0, OLD.unknown - NEW.unknown)
        ON CONFLICT DO UPDATE SET waiting = waiting + excluded.waiting;
END;
-- By how much the ends of a period's keys are moved: below zero when the clock was set back after they were claimed.
ALTER TABLE periods ADD COLUMN moved_s INTEGER NOT NULL DEFAULT 0;
-- What events were signed with, where their ids were not: few, and kept for their window.
CREATE TABLE guards (
    key BLOB PRIMARY KEY,
    event INTEGER NOT NULL,
    at INTEGER NOT NULL,
    expires INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX guards_expire ON guards (expires);

-- The first event that was kept beside the one whose copies are counted, or nothing.
ALTER TABLE copies ADD COLUMN kept TEXT NOT NULL DEFAULT '';
-- What is behind a message: its tries, doubts that are left, and what was before a person's retries. Tries that its budget is charged with.
ALTER TABLE messages ADD COLUMN past TEXT;
ALTER TABLE outbox ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;

-- What providers call messages, now and before a person's retries: the message that was last called so.
CREATE TABLE provider_names (
    account TEXT NOT NULL,
    provider_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (account, provider_id)
) WITHOUT ROWID;
CREATE INDEX provider_names_number ON provider_names (number);
INSERT OR REPLACE INTO provider_names SELECT account, provider_id, number FROM messages WHERE provider_id IS NOT NULL ORDER BY number;
DROP INDEX messages_provider;
-- A retry left the former name on a message that waits to be sent anew: that name is of a round that is over.
UPDATE messages SET past = json_object('tries', 0, 'rounds', json_array(json_object('provider_id', provider_id, 'steps', ''))),
    provider_id = NULL
    WHERE provider_id IS NOT NULL AND number IN (SELECT number FROM outbox WHERE begun IS NULL);

-- Entries up to this number were marked as read.
ALTER TABLE threads ADD COLUMN read_to INTEGER NOT NULL DEFAULT 0;

-- Whose lane an item is in, where its event is from another name of theirs; and the number that would have been next when it was put there, where
-- that is not its own.
ALTER TABLE inbox ADD COLUMN peer TEXT;
ALTER TABLE inbox ADD COLUMN put INTEGER;
ALTER TABLE outbox ADD COLUMN put INTEGER;
-- What was put into `lane` up to `to_number` is in `into_lane` now, that of `peer`: both turned out to be one person's. Gone when none of it is left.
CREATE TABLE joined_lanes (
    lane BLOB NOT NULL,
    to_number INTEGER NOT NULL,
    into_lane BLOB NOT NULL,
    channel INTEGER NOT NULL,
    peer TEXT NOT NULL,
    PRIMARY KEY (lane, to_number)
) WITHOUT ROWID;
CREATE INDEX joined_lanes_into ON joined_lanes (into_lane);
CREATE INDEX joined_lanes_age ON joined_lanes (channel, to_number);
