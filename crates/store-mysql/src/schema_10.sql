-- Version 10: what version 9 has put into one table.
DROP TABLE IF EXISTS hapax_names;
DROP TABLE IF EXISTS hapax_threads
