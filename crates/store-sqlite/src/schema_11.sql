-- Version 11.
-- The names that lead to a thread besides its peer's own stand in its row (`thread_names.rs`), and have no rows of their own. Thread by thread,
-- so that no more than the names of one are in memory.
ALTER TABLE threads ADD COLUMN names TEXT;
UPDATE threads SET names = (
    SELECT group_concat(length(CAST(n.name AS BLOB)) || ':' || n.name, '') FROM thread_names n
    WHERE n.thread = threads.thread AND n.name <> threads.peer);
DROP TABLE thread_names;
