//! What the provider says about our own messages: statuses and echoes. And what a person says: retry, cancel, pause.

use rusqlite::{OptionalExtension, params};

use super::lanes::{Line, Waiting};
use super::outbox::{account_key, message_number};
use super::rows::{message_id, steps_of, steps_text};
use super::writer::{StepError, Writer};
use crate::domain::{Event, MessageId, Status, Steps};
use crate::store::Changed;

impl Writer {
    /// Takes note of a status; true when it is about a message of ours.
    pub(super) fn hear_status(&mut self, event: &Event) -> rusqlite::Result<bool> {
        let Some(status) = event.status else { return Ok(false) };
        let at_ms = event.at_ms.unwrap_or(self.now_ms);
        let by_handle = match event.handle {
            Some(id) => self.message_of_account(id, &event.account)?,
            None => None,
        };
        if let Some(number) = by_handle {
            self.name_message(number, &event.id)?;
        }
        let number = match by_handle {
            Some(number) => Some(number),
            None => self.by_provider_id(&event.account, &event.id)?,
        };
        let Some(number) = number else {
            self.hear_early(event, status, at_ms)?;
            return Ok(false);
        };
        self.hear_step(number, status, at_ms)?;
        if self.open_message(number)?.is_some_and(|open| open.unknown) && !self.is_leased(number)? {
            self.settle_by_known_id_at(number, None, at_ms)?;
        }
        Ok(true)
    }

    /// Takes note of our own message seen again; true when it settles a send that was in doubt.
    pub(super) fn hear_echo(&mut self, event: &Event) -> rusqlite::Result<bool> {
        let (Some(text), Some(peer)) = (&event.text, &event.peer) else { return Ok(false) };
        let number: Option<i64> = self
            .db
            .prepare_cached(
                "SELECT o.number FROM outbox o JOIN messages m ON m.number = o.number
                 WHERE o.account = ?1 AND o.begun IS NOT NULL AND o.unknown = 1 AND m.peer = ?2 AND m.text = ?3
                   AND NOT EXISTS (SELECT 1 FROM out_leases l WHERE l.item = o.number) ORDER BY o.number LIMIT 1",
            )?
            .query_row(params![event.account, peer, text], |row| row.get(0))
            .optional()?;
        let Some(number) = number else { return Ok(false) };
        self.name_message(number, &event.id)?;
        self.settle_by_known_id(number, None)
    }

    fn message_of_account(&self, id: MessageId, account: &str) -> rusqlite::Result<Option<i64>> {
        let number = message_number(id);
        let created: Option<i64> = self
            .db
            .prepare_cached("SELECT created FROM messages WHERE number = ?1 AND account = ?2")?
            .query_row(params![number, account], |row| row.get(0))
            .optional()?;
        Ok(created.filter(|created| message_id(*created, number) == id).map(|_| number))
    }

    fn by_provider_id(&self, account: &str, provider_id: &str) -> rusqlite::Result<Option<i64>> {
        self.db
            .prepare_cached("SELECT number FROM messages WHERE account = ?1 AND provider_id = ?2 ORDER BY number DESC LIMIT 1")?
            .query_row([account, provider_id], |row| row.get(0))
            .optional()
    }

    /// Keeps a status for a message that is being sent under a name we do not know yet.
    fn hear_early(&self, event: &Event, status: Status, at_ms: i64) -> rusqlite::Result<()> {
        let sending = self
            .db
            .prepare_cached("SELECT 1 FROM outbox WHERE account = ?1 AND begun IS NOT NULL LIMIT 1")?
            .exists([&event.account])?;
        if !sending {
            return Ok(());
        }
        let mut steps = self.early(&event.account, &event.id)?.unwrap_or_default();
        steps.hear(status, at_ms);
        self.db.prepare_cached("INSERT OR REPLACE INTO early VALUES (?1, ?2, ?3, ?4)")?.execute(params![
            event.account,
            event.id,
            self.now_ms,
            steps_text(&steps)
        ])?;
        Ok(())
    }

    fn early(&self, account: &str, provider_id: &str) -> rusqlite::Result<Option<Steps>> {
        let text: Option<String> = self
            .db
            .prepare_cached("SELECT steps FROM early WHERE account = ?1 AND provider_id = ?2")?
            .query_row([account, provider_id], |row| row.get(0))
            .optional()?;
        Ok(text.map(|text| steps_of(&text)))
    }

    /// Learns what the provider calls a message, and takes over the statuses that came before.
    pub(super) fn name_message(&self, number: i64, provider_id: &str) -> rusqlite::Result<()> {
        let account: Option<String> = self
            .db
            .prepare_cached("UPDATE messages SET provider_id = ?2 WHERE number = ?1 RETURNING account")?
            .query_row(params![number, provider_id], |row| row.get(0))
            .optional()?;
        let Some(account) = account else { return Ok(()) };
        if let Some(early) = self.early(&account, provider_id)? {
            for (status, at_ms) in early.iter() {
                self.hear_step(number, status, at_ms)?;
            }
            self.db
                .prepare_cached("DELETE FROM early WHERE account = ?1 AND provider_id = ?2")?
                .execute([&*account, provider_id])?;
        }
        Ok(())
    }

    /// A send in doubt whose provider id was heard of has been sent.
    pub(super) fn settle_by_known_id(&mut self, number: i64, lane: Option<u64>) -> rusqlite::Result<bool> {
        self.settle_by_known_id_at(number, lane, self.now_ms)
    }

    fn settle_by_known_id_at(&mut self, number: i64, lane: Option<u64>, at_ms: i64) -> rusqlite::Result<bool> {
        let channel: Option<i64> = self
            .db
            .prepare_cached(
                "SELECT o.channel FROM outbox o JOIN messages m ON m.number = o.number
                 WHERE o.number = ?1 AND o.begun IS NOT NULL AND m.provider_id IS NOT NULL",
            )?
            .query_row([number], |row| row.get(0))
            .optional()?;
        let Some(channel) = channel else { return Ok(false) };
        self.db.prepare_cached("DELETE FROM outbox WHERE number = ?1")?.execute([number])?;
        match lane {
            Some(lane) => {
                self.outgoing.remove(channel, lane, number);
            }
            None => self.outgoing.forget(channel, number),
        }
        self.hear_step(number, Status::Sent, at_ms)?;
        self.set_why(number, None)?;
        Ok(true)
    }

    fn is_leased(&self, number: i64) -> rusqlite::Result<bool> {
        self.db.prepare_cached("SELECT 1 FROM out_leases WHERE item = ?1")?.exists([number])
    }

    fn existing(&self, id: MessageId) -> rusqlite::Result<Option<(i64, i64, Steps)>> {
        let number = message_number(id);
        let found = self
            .db
            .prepare_cached("SELECT created, channel, steps FROM messages WHERE number = ?1")?
            .query_row([number], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?)))
            .optional()?;
        let found = found.filter(|(created, ..)| message_id(*created, number) == id);
        Ok(found.map(|(created, channel, steps)| (created, channel, steps_of(&steps))))
    }

    pub(super) fn retry_message(&mut self, id: MessageId) -> Result<Changed, StepError> {
        let Some((created, channel, steps)) = self.existing(id)? else { return Ok(Changed::NotFound) };
        let number = message_number(id);
        let open = self.open_message(number)?;
        let failed = open.is_none() && steps.status() == Status::Failed;
        let doubted = open.is_some_and(|open| open.unknown);
        if !(failed || doubted) || self.is_leased(number)? {
            return Ok(Changed::TooLate);
        }
        let (account, priority) = self
            .db
            .prepare_cached("SELECT account, priority FROM messages WHERE number = ?1")?
            .query_row([number], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u8>(1)?)))?;
        let fresh = Steps::new(vec![(Status::Queued, created)]);
        self.db
            .prepare_cached("UPDATE messages SET steps = ?2, why = NULL WHERE number = ?1")?
            .execute(params![number, steps_text(&fresh)])?;
        self.outgoing.forget(channel, number);
        let line = Line { priority, account: account_key(&account) };
        let lane = Some(self.lane_of_message(number)?);
        self.put_out(channel, &account, Waiting { item: number, lane, due: self.now_ms, line })?;
        Ok(Changed::Done)
    }

    pub(super) fn cancel_message(&mut self, id: MessageId) -> Result<Changed, StepError> {
        let Some((_, channel, _)) = self.existing(id)? else { return Ok(Changed::NotFound) };
        let number = message_number(id);
        let leased = self.is_leased(number)?;
        match self.open_message(number)? {
            Some(open) if !leased && open.unknown => {
                self.db.prepare_cached("DELETE FROM outbox WHERE number = ?1")?.execute([number])?;
                self.outgoing.forget(channel, number);
                self.set_why(number, Some("given up while in doubt"))?;
                Ok(Changed::Done)
            }
            Some(_) if !leased => {
                self.end_message(number, channel, None, Status::Failed, Some("cancelled"))?;
                Ok(Changed::Done)
            }
            _ => Ok(Changed::TooLate),
        }
    }

    pub(super) fn pause_account(&mut self, channel: &str, account: &str, why: Option<&str>) -> Result<(), StepError> {
        match why {
            Some(why) => self
                .db
                .prepare_cached("INSERT INTO paused VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET why = excluded.why")?
                .execute(params![channel, account, why, self.now_ms])?,
            None => {
                self.db.prepare_cached("DELETE FROM paused WHERE channel = ?1 AND account = ?2")?.execute([channel, account])?
            }
        };
        self.work_made = true;
        Ok(())
    }
}
