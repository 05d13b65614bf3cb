//! What becomes of our own messages: one is loaded as a whole, the rule of `domain` decides, and what it says is kept. And what a person
//! says: retry, cancel, pause.

use std::sync::Arc;

use hapax_domain::{Changed, Event, MessageId, Outgoing, PendingSend, SendOutcome, Status, Steps, Word};
use hapax_store::steps::records::read_past;
use rusqlite::{OptionalExtension, params};

use super::lanes::{Line, Waiting};
use super::outbox::{account_key, message_number};
use super::rows::{message_id, steps_of, steps_text};
use super::writer::{StepError, Writer};

/// A message as the rules see it, and what its place in a lane is made of.
#[derive(Clone)]
pub(super) struct Loaded {
    pub(super) state: Outgoing,
    pub(super) channel: i64,
    pub(super) account: Arc<str>,
    pub(super) created: i64,
    pub(super) line: Line,
}

impl Writer {
    pub(super) fn load_message(&self, number: i64) -> rusqlite::Result<Option<Loaded>> {
        self.db
            .prepare_cached(
                "SELECT m.steps, m.provider_id, m.why, m.past, m.channel, m.account, m.priority, m.created,
                    o.attempt, o.failures, o.due, o.begun, o.unknown, o.lane IS NULL
                 FROM messages m LEFT JOIN outbox o ON o.number = m.number WHERE m.number = ?1",
            )?
            .query_row([number], |row| {
                let place = match row.get::<_, Option<u32>>(8)? {
                    None => None,
                    Some(attempt) => {
                        let (unknown, alone): (bool, bool) = (row.get(12)?, row.get(13)?);
                        let (due_ms, begun_ms, held) = (row.get(10)?, row.get(11)?, alone && !unknown);
                        Some(PendingSend { attempt, failures: row.get(9)?, due_ms, begun_ms, unknown, held })
                    }
                };
                let account: String = row.get(5)?;
                Ok(Loaded {
                    state: Outgoing {
                        steps: steps_of(&row.get::<_, String>(0)?),
                        provider_id: row.get(1)?,
                        why: row.get(2)?,
                        past: read_past(row.get::<_, Option<String>>(3)?.as_deref()),
                        place,
                    },
                    channel: row.get(4)?,
                    line: Line { priority: row.get(6)?, account: account_key(&account) },
                    account: account.into(),
                    created: row.get(7)?,
                })
            })
            .optional()
    }

    /// Keeps what became of a message, and moves it from lane to lane accordingly. `lane` is the one it was in, where that is known.
    pub(super) fn keep(&mut self, number: i64, was: &Loaded, state: &Outgoing, lane: Option<u64>) -> rusqlite::Result<()> {
        self.pending.sends.change(number, state);
        self.sends.change(number, state);
        let (before, after) = (was.state.place, state.place);
        if before == after {
            return Ok(());
        }
        let Some(place) = after else {
            self.pending.sends.leave(number);
            self.sends.more_wait(was.channel, was.line, -i64::from(before.is_some_and(|before| !before.unknown)));
            self.leave_lane(number, was.channel, lane);
            return Ok(());
        };
        // Nearly all that happens to one that stays: its sending begins, for the first time.
        if let (Some(before), Some(begun_ms)) = (before, place.begun_ms)
            && before.begun_ms.is_none()
            && place == (PendingSend { begun_ms: Some(begun_ms), ..before })
        {
            self.pending.sends.begin(number, begun_ms);
            return Ok(());
        }
        self.write_sends()?;
        self.sends.waiting.clear();
        self.move_message(number, was, (before, place), lane)
    }

    /// Writes down where a message stands, in whichever way it has come there.
    fn move_message(
        &mut self,
        number: i64,
        was: &Loaded,
        (before, place): (Option<PendingSend>, PendingSend),
        lane: Option<u64>,
    ) -> rusqlite::Result<()> {
        let moves = before.is_none_or(|before| before.is_alone() != place.is_alone());
        let name = if place.is_alone() || !moves { None } else { Some(self.lane_of_message(number)?) };
        if before.is_none() {
            let enter = "INSERT INTO outbox (number, channel, account, account_key, priority, attempt, unknown)
                         VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6)";
            self.db.prepare_cached(enter)?.execute(params![
                number,
                was.channel,
                was.account,
                was.line.account,
                was.line.priority,
                place.unknown
            ])?;
        }
        self.db
            .prepare_cached(
                "UPDATE outbox SET attempt = ?2, failures = ?3, due = ?4, begun = ?5, unknown = ?6 WHERE number = ?1",
            )?
            .execute(params![number, place.attempt, place.failures, place.due_ms, place.begun_ms, place.unknown])?;
        if moves {
            let put = self.last_number as i64 + 1;
            self.db
                .prepare_cached("UPDATE outbox SET lane = ?2, put = ?3 WHERE number = ?1")?
                .execute(params![number, name, put])?;
        }
        let was_due = before.and_then(|before| before.due_ms);
        match (lane, place.due_ms) {
            (Some(lane), Some(due)) if !moves && was_due.is_some() => self.outgoing.postpone(was.channel, lane, number, due),
            (_, due) if !moves && due == was_due => {}
            (lane, due) => {
                self.leave_lane(number, was.channel, lane.filter(|_| before.is_some()));
                if let Some(due) = due {
                    self.outgoing.add(&self.db, was.channel, Waiting::new(number, name, due, was.line))?;
                }
            }
        }
        Ok(())
    }

    fn leave_lane(&mut self, number: i64, channel: i64, lane: Option<u64>) {
        if let Some(lane) = lane.or_else(|| self.outgoing.lane_of(channel, number)) {
            self.outgoing.remove(channel, lane, number);
        }
    }

    /// Takes note of a status or an echo; true when it is about a message of ours.
    pub(super) fn hear_word(&mut self, event: &Event) -> rusqlite::Result<bool> {
        let Some(status) = event.says() else { return Ok(false) };
        let at_ms = event.at_ms.unwrap_or(self.now_ms);
        self.write_sends()?;
        let by_handle = match event.handle {
            Some(id) => self.message_of_account(id, &event.account)?,
            None => None,
        };
        let word = Word { provider_id: &event.id, status, at_ms, by_handle: by_handle.is_some() };
        let number = match by_handle {
            Some(number) => Some(number),
            None => self.by_provider_id(&event.account, &event.id)?,
        };
        let Some(number) = number else {
            if !event.echo {
                self.hear_early(event, status, at_ms)?;
            }
            return Ok(false);
        };
        let Some(was) = self.message_now(number)? else { return Ok(true) };
        let mut state = was.state.clone();
        let early = match state.is_named_by(&word) {
            true => self.name(number, &event.account, &event.id)?,
            false => Steps::default(),
        };
        state.hear(&word, &early, self.is_leased(number)?);
        self.keep(number, &was, &state, None)?;
        Ok(true)
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

    pub(super) fn by_provider_id(&self, account: &str, provider_id: &str) -> rusqlite::Result<Option<i64>> {
        self.db
            .prepare_cached("SELECT number FROM provider_names WHERE account = ?1 AND provider_id = ?2")?
            .query_row([account, provider_id], |row| row.get(0))
            .optional()
    }

    /// Keeps a status for a message that is being sent under a name we do not know yet.
    fn hear_early(&mut self, event: &Event, status: Status, at_ms: i64) -> rusqlite::Result<()> {
        let sending = self
            .db
            .prepare_cached("SELECT 1 FROM outbox WHERE account = ?1 AND begun IS NOT NULL LIMIT 1")?
            .exists([&event.account])?;
        if !sending {
            return Ok(());
        }
        let mut steps = self.early(&event.account, &event.id)?.unwrap_or_default();
        steps.hear(status, at_ms);
        self.any_early = Some(true);
        self.db.prepare_cached("INSERT OR REPLACE INTO early VALUES (?1, ?2, ?3, ?4)")?.execute(params![
            event.account,
            event.id,
            self.now_ms,
            steps_text(&steps)
        ])?;
        Ok(())
    }

    /// Whether anything was heard of under a name that we did not know.
    fn any_early(&mut self) -> rusqlite::Result<bool> {
        let any = match self.any_early {
            Some(any) => any,
            None => self.db.prepare_cached("SELECT 1 FROM early LIMIT 1")?.exists([])?,
        };
        self.any_early = Some(any);
        Ok(any)
    }

    fn early(&self, account: &str, provider_id: &str) -> rusqlite::Result<Option<Steps>> {
        let text: Option<String> = self
            .db
            .prepare_cached("SELECT steps FROM early WHERE account = ?1 AND provider_id = ?2")?
            .query_row([account, provider_id], |row| row.get(0))
            .optional()?;
        Ok(text.map(|text| steps_of(&text)))
    }

    /// Makes a name lead to the message; gives what was heard under it before.
    pub(super) fn name(&mut self, number: i64, account: &str, provider_id: &str) -> rusqlite::Result<Steps> {
        self.pending.sends.name(number, account, provider_id);
        if !self.any_early()? {
            return Ok(Steps::default());
        }
        let Some(early) = self.early(account, provider_id)? else { return Ok(Steps::default()) };
        self.db.prepare_cached("DELETE FROM early WHERE account = ?1 AND provider_id = ?2")?.execute([account, provider_id])?;
        Ok(early)
    }

    fn is_leased(&self, number: i64) -> rusqlite::Result<bool> {
        self.db.prepare_cached("SELECT 1 FROM out_leases WHERE item = ?1")?.exists([number])
    }

    /// Ends a try whose lease was another's by the time it was known what it came to.
    pub(super) fn settle_late(&mut self, id: MessageId, attempt: u32, outcome: &SendOutcome) -> Result<Changed, StepError> {
        let number = message_number(id);
        let Some(was) = self.message_now(number)?.filter(|message| message_id(message.created, number) == id) else {
            return Ok(Changed::NotFound);
        };
        let leased = self.is_leased(number)?;
        if !was.state.takes_late(attempt, outcome, leased) {
            return Ok(Changed::TooLate);
        }
        let mut state = was.state.clone();
        if let SendOutcome::Sent { provider_id } = outcome {
            state.call_it(provider_id, &self.name(number, &was.account, provider_id)?);
        }
        state.settle_late(attempt, outcome, leased, self.now_ms);
        let lane = self.outgoing.lane_of(was.channel, number);
        self.keep(number, &was, &state, lane)?;
        self.work_made = true;
        Ok(Changed::Done)
    }

    /// Retries or cancels, as the rule says.
    pub(super) fn change_message(
        &mut self,
        id: MessageId,
        change: impl Fn(&mut Outgoing, bool, i64) -> Changed,
    ) -> Result<Changed, StepError> {
        let number = message_number(id);
        let Some(was) = self.message_now(number)?.filter(|message| message_id(message.created, number) == id) else {
            return Ok(Changed::NotFound);
        };
        let mut state = was.state.clone();
        let changed = change(&mut state, self.is_leased(number)?, self.now_ms);
        if changed == Changed::Done {
            self.keep(number, &was, &state, None)?;
            self.work_made = true;
        }
        Ok(changed)
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
