DROP TABLE hapax_names;
DROP TABLE hapax_threads;
-- Most names lead to the thread that goes by them, and that is found by its hash.
CREATE INDEX hapax_peers_of_thread ON hapax_peers (thread) WHERE thread <> hash;
-- Lists of threads begin with the newest, and read no further than their page.
CREATE INDEX hapax_peers_newest ON hapax_peers (last_ms) WHERE last_ms IS NOT NULL;

-- A name of a channel is short: what is behind these characters is looked at in the row. Its order is that of bytes, which no update of the
-- system's own changes.
DROP INDEX IF EXISTS hapax_events_of_channel;
CREATE INDEX hapax_events_of_channel ON hapax_events (left(channel, 64) COLLATE "C", number);
