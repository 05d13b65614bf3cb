//! What is over loses its words, in the file too: pages are overwritten, not only let go.

use std::collections::BTreeSet;

use hapax_domain::ids::number_of;
use hapax_domain::{EventId, MessageId};
use hapax_store::{Forget, Forgotten};
use rusqlite::OptionalExtension;

use super::purge::{LAST_OF_WEBHOOK, Webhook};
use super::rows::{event_id, message_id};
use super::writer::{StepError, Writer};

impl Writer {
    pub(super) fn forget(&mut self, what: &Forget) -> Result<Forgotten, StepError> {
        self.overwrite(true)?;
        let forgotten = self.forget_all(what);
        self.overwrite(false)?;
        Ok(forgotten?)
    }

    /// Whether what is removed from pages is overwritten with zeros.
    fn overwrite(&self, on: bool) -> rusqlite::Result<()> {
        self.db.query_row(&format!("PRAGMA secure_delete = {}", u8::from(on)), [], |_| Ok(()))
    }

    fn forget_all(&mut self, what: &Forget) -> rusqlite::Result<Forgotten> {
        let mut forgotten = Forgotten::default();
        let events: BTreeSet<EventId> = what.events.iter().copied().collect();
        for id in events {
            match self.forget_event(id)? {
                Some(true) => forgotten.events += 1,
                Some(false) => forgotten.open += 1,
                None => {}
            }
        }
        for id in what.messages.iter().copied().collect::<BTreeSet<MessageId>>() {
            match self.forget_message(id)? {
                Some(true) => forgotten.messages += 1,
                Some(false) => forgotten.open += 1,
                None => {}
            }
        }
        for thread in &what.threads {
            self.threads.forget_words(&self.db, &thread.account, &thread.peer)?;
        }
        Ok(forgotten)
    }

    /// `None`: there is no such event; `false`: it is open.
    fn forget_event(&mut self, id: EventId) -> rusqlite::Result<Option<bool>> {
        let number = number_of(id.0) as i64;
        let found = self
            .db
            .prepare_cached(&format!(
                "SELECT w.number, w.received, w.channel, {LAST_OF_WEBHOOK}, w.webhook_events, e.received
                 FROM events e JOIN events w ON w.number = e.webhook WHERE e.number = ?1"
            ))?
            .query_row([number], |row| Ok((Webhook::read(row)?, row.get::<_, i64>(5)?)))
            .optional()?;
        let Some((webhook, received_ms)) = found else { return Ok(None) };
        if event_id(received_ms, number as u64) != id {
            return Ok(None);
        }
        if self.is_open(webhook)? {
            return Ok(Some(false));
        }
        self.db.prepare_cached("UPDATE events SET text = NULL WHERE number = ?1")?.execute([number])?;
        let empty = "UPDATE events SET headers = x'', body = x'' WHERE number = ?1";
        self.db.prepare_cached(empty)?.execute([webhook.number()])?;
        let answer = "DELETE FROM answers WHERE item = (SELECT item FROM events WHERE number = ?1)";
        self.db.prepare_cached(answer)?.execute([number])?;
        Ok(Some(true))
    }

    /// `None`: there is no such message; `false`: it is in the outbox.
    fn forget_message(&mut self, id: MessageId) -> rusqlite::Result<Option<bool>> {
        let number = number_of(id.0) as i64;
        let found = self
            .db
            .prepare_cached(
                "SELECT m.created, EXISTS (SELECT 1 FROM outbox o WHERE o.number = m.number) FROM messages m WHERE m.number = ?1",
            )?
            .query_row([number], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?)))
            .optional()?;
        let Some((created_ms, waits)) = found else { return Ok(None) };
        if message_id(created_ms, number) != id {
            return Ok(None);
        }
        if !waits {
            self.db.prepare_cached("UPDATE messages SET text = NULL, payload = x'' WHERE number = ?1")?.execute([number])?;
        }
        Ok(Some(!waits))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use bytes::Bytes;
    use hapax_domain::ThreadId;
    use hapax_store::prelude::*;
    use hapax_store::{Arrival, Outcome};
    use hapax_testkit::hand_clock::HandClock;
    use hapax_testkit::store_fixture::{START_MS, accept, lease, message, webhook};

    use super::super::{Options, SqliteStore};
    use super::*;

    const WORDS: &str = "nobody shall read this again";

    fn open_at(path: &Path) -> SqliteStore {
        let options = Options { disk_floor_bytes: 0, ..Options::default() };
        SqliteStore::open(path, Arc::new(HandClock::at(START_MS)), &options).expect("it opens")
    }

    /// How often the words stand in the file. Opening a store merges its log into it.
    fn found_in(path: &Path) -> usize {
        drop(open_at(path));
        let bytes = std::fs::read(path).expect("the file");
        bytes.windows(WORDS.len()).filter(|window| *window == WORDS.as_bytes()).count()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn words_leave_the_file_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.db");
        let store = open_at(&path);
        let mut event = message("m1", "ana");
        event.text = Some(WORDS.to_owned());
        let body = Bytes::from(format!("{{\"text\":\"{}\"}}", WORDS.repeat(2_000)));
        let id = accept(&store, Arrival { body, ..webhook(vec![event]) }).await[0].event();
        let held = lease(&store, 1).await.remove(0);
        let delivered = Outcome::Delivered { status: 200, answer: None, replies: Vec::new() };
        store.settle_inbox(held.lane, held.fence, delivered).await.expect("settled");
        drop(store);
        assert!(found_in(&path) > 1_000, "they are there before");

        let store = open_at(&path);
        let threads = vec![ThreadId { account: "acc".to_owned(), peer: "ana".to_owned() }];
        let what = Forget { events: vec![id], messages: Vec::new(), threads };
        assert_eq!(store.forget(what).await.expect("forgotten").events, 1);
        drop(store);
        assert_eq!(found_in(&path), 0);
    }
}
