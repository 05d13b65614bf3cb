-- Version 10.
-- Claims are written twice, and cheaply both times: what a batch has changed as one row of `claim_changes`, and much later, many at once, in
-- the order of their fences, into `claim_blocks`. A block has the claims from the fence `first` up to the next block's, one behind the other
-- (`claim_entry.rs`); `ends` is when the first of them ends. What was in `claims` is taken over, and the table dropped, when the file is opened.
CREATE TABLE claim_changes (number INTEGER PRIMARY KEY, changes BLOB NOT NULL);
CREATE TABLE claim_blocks (first INTEGER PRIMARY KEY, ends INTEGER, claims BLOB NOT NULL);
CREATE INDEX claim_blocks_end ON claim_blocks (ends) WHERE ends IS NOT NULL;
