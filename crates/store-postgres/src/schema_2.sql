-- Version 2. What providers call messages that nobody knows is found by its age, to be purged.
CREATE INDEX hapax_provider_names_by_age ON hapax_provider_names (heard_ms);

-- An account's name may be longer than an index takes.
DROP INDEX hapax_outs_begun;
DROP INDEX hapax_outs_unknown;
CREATE INDEX hapax_outs_begun ON hapax_outs (md5(account)) WHERE begun_ms IS NOT NULL;
CREATE INDEX hapax_outs_unknown ON hapax_outs (md5(account), number) WHERE unknown;
