-- Version 3. Events are listed by channel and by peer, whose names may be longer than an index takes.
CREATE INDEX hapax_events_of_channel ON hapax_events (md5(channel), number);
CREATE INDEX hapax_events_of_peer ON hapax_events (md5(account || ' ' || peer), number) WHERE peer IS NOT NULL;
