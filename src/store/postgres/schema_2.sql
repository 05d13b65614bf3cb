-- Version 2: what providers call messages that nobody knows is found by its age, to be purged.
CREATE INDEX hapax_provider_names_by_age ON hapax_provider_names (heard_ms);
