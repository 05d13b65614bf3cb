-- Version 9.
-- Lists of threads begin with the newest, and read no further than their page.
CREATE INDEX IF NOT EXISTS hapax_threads_newest ON hapax_threads (last_ms);
