-- Version 11.
-- The names that lead to a thread besides its peer's own stand in its row (`thread_names.rs`), and have no rows of their own.
ALTER TABLE threads ADD COLUMN names TEXT;
UPDATE threads SET names = other.names FROM (
    SELECT thread, group_concat(length(CAST(name AS BLOB)) || ':' || name, '') AS names FROM (
        SELECT n.thread, n.name FROM thread_names n JOIN threads t ON t.thread = n.thread WHERE n.name <> t.peer ORDER BY n.thread, n.name)
    GROUP BY thread) AS other WHERE other.thread = threads.thread;
DROP TABLE thread_names;
