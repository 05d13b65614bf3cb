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
