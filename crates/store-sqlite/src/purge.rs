//! Forgetting, in small steps: periods of keys by dropping them, webhooks after their retention.

use std::collections::{HashMap, HashSet};

use hapax_domain::age::{Dated, sift};
use hapax_store::Purged;
use hapax_store::pieces::purged_at_once;
use rusqlite::{Row, params};

use super::writer::{StepError, Writer};

/// How far the events were looked through for one retention.
#[derive(Default)]
pub(super) struct Sweep {
    /// Everything up to this number was looked at.
    to: i64,
    /// Webhooks that were old and still open when looked at; looked at again in every step.
    passed: Vec<Webhook>,
    restarted_ms: i64,
    /// The first row of this round that was too young: it is where the next one begins.
    young_from: Option<i64>,
    /// See [`sift`].
    witness: Option<Dated>,
}

/// Old and open webhooks kept in mind; those beyond are found again when the sweep starts over.
const PASSED_MAX: usize = 1_000;
const RESTART_MS: i64 = 3_600_000;

/// What purge reads of a webhook: the row that holds its body.
#[derive(Clone, Copy)]
pub(super) struct Webhook {
    number: i64,
    received: i64,
    channel: i64,
    /// No event of the same webhook has a higher number.
    last: i64,
    events: usize,
}

/// The last number of the webhook `w`: each event took at most one for itself and one for its thread, unless it came from another store.
pub(super) const LAST_OF_WEBHOOK: &str =
    "coalesce((SELECT s.last FROM spans s WHERE s.webhook = w.number), w.number + 2 * (w.webhook_events - 1))";

fn dated(number: i64, at_ms: i64) -> Dated {
    Dated { number: number.cast_unsigned(), at_ms }
}

impl Webhook {
    pub(super) fn number(self) -> i64 {
        self.number
    }

    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { number: row.get(0)?, received: row.get(1)?, channel: row.get(2)?, last: row.get(3)?, events: row.get(4)? })
    }
}

impl Writer {
    pub(super) fn purge(&mut self, retention: &[(String, i64)], max: usize) -> Result<Purged, StepError> {
        super::clock::write(&self.db, self.now_ms)?;
        let keys = self.keys.drop_expired(&self.db, self.now_ms / 1_000)?;
        let mut spans: Vec<i64> = retention.iter().map(|(_, keep_ms)| *keep_ms).collect();
        spans.sort_unstable();
        spans.dedup();
        let more = self.keys.numbering.forget_moved(&self.db, self.now_ms / 1_000)?;
        let guards = self.purge_guards(max)?;
        let most = self.purge_registers(max)?.max(guards as usize).max(self.claims.purge(&self.db, self.now_ms, max)?);
        let some = purged_at_once(max);
        let more = more || self.purge_pieces(some)? >= some;
        let mut purged = Purged { keys: keys + guards, events: 0, more: more || keys > 0 || most >= max };
        // Threads come last: what is gone by now may have been the last of one. Once begun they are gone through to the end before anything else
        // is looked at again, or two rounds that keep starting each other anew would never end.
        let threads_begun = self.threads_swept != (0, 0);
        let mut threads_next = true;
        if !threads_begun {
            let (removed, more) = self.purge_events(retention, &spans, max)?;
            purged.events += removed;
            threads_next = !(self.purge_messages(retention, &spans, max)? || more);
        }
        let (threads, more) = match threads_next {
            true => self.purge_threads(retention, &spans, max)?,
            false => (0, true),
        };
        purged.more |= more;
        self.purge_joins(max)?;
        if purged.events + threads > 0 {
            // The counter must never fall back onto numbers whose rows are gone.
            self.db
                .prepare_cached("UPDATE meta SET value = ?1 WHERE name = 'last_number'")?
                .execute([self.last_number as i64])?;
            self.count.in_batch -= purged.events as i64;
            self.count.write_now = true;
        }
        Ok(purged)
    }

    /// A step of the sweep of each retention; gives how many events went, and whether there are more to look at.
    fn purge_events(&mut self, retention: &[(String, i64)], spans: &[i64], max: usize) -> rusqlite::Result<(u64, bool)> {
        let (mut events, mut any_more) = (0, false);
        for &keep_ms in spans {
            // A channel that is not listed any more is kept as long as the one that is kept longest.
            let longest = spans.last().copied();
            let keep_of =
                |name: &str| retention.iter().find(|(listed, _)| listed == name).map_or(longest, |(_, keep)| Some(*keep));
            let channels = self.channels.iter().filter(|(name, _)| keep_of(name) == Some(keep_ms)).map(|(_, id)| *id).collect();
            let mut sweep = self.sweeps.remove(&keep_ms).unwrap_or_default();
            let step = self.sweep(&mut sweep, keep_ms, &channels, max);
            self.sweeps.insert(keep_ms, sweep);
            let (removed, more) = step?;
            events += removed;
            any_more |= more;
        }
        Ok((events, any_more))
    }

    fn purge_guards(&mut self, max: usize) -> rusqlite::Result<u64> {
        let expired = "DELETE FROM guards WHERE key IN (SELECT key FROM guards WHERE expires <= ?1 LIMIT ?2)";
        Ok(self.db.prepare_cached(expired)?.execute(params![self.now_ms, max as i64])? as u64)
    }

    /// Looks at the next webhooks, with about `max` events in all; gives how many events it removed, and whether there are more to look at.
    fn sweep(&mut self, sweep: &mut Sweep, keep_ms: i64, channels: &HashSet<i64>, max: usize) -> rusqlite::Result<(u64, bool)> {
        if self.now_ms - sweep.restarted_ms >= RESTART_MS {
            *sweep = Sweep { restarted_ms: self.now_ms, witness: sweep.witness, ..Sweep::default() };
        }
        let (webhooks, full) = self.webhooks_above(sweep.to, max)?;
        let dated: Vec<Dated> = webhooks.iter().map(|webhook| dated(webhook.number, webhook.received)).collect();
        let sifted = sift(&dated, sweep.witness, keep_ms, self.now_ms, full);
        sweep.witness = sifted.witness;
        let by_number: HashMap<u64, Webhook> =
            webhooks.into_iter().map(|webhook| (webhook.number.cast_unsigned(), webhook)).collect();
        let mut removed = 0;
        for webhook in sifted.old.iter().filter_map(|row| by_number.get(&row.number)) {
            if channels.contains(&webhook.channel) {
                removed += self.remove_or_pass(*webhook, sweep)?;
            }
        }
        sweep.to = sifted.to.map_or(sweep.to, u64::cast_signed);
        let is_young = |row: &&Dated| row.at_ms <= self.now_ms && row.at_ms.saturating_add(keep_ms) > self.now_ms;
        let young = dated.iter().find(is_young).map(|row| row.number.cast_signed());
        sweep.young_from = sweep.young_from.or(young);
        if sifted.more {
            return Ok((removed, true));
        }
        sweep.to = sweep.young_from.take().map_or(sweep.to, |young| sweep.to.min(young - 1));
        // At the end of the old ones: those that were open may have been settled meanwhile.
        let mut passed = std::mem::take(&mut sweep.passed).into_iter();
        while removed < max as u64
            && let Some(webhook) = passed.next()
        {
            removed += self.remove_or_pass(webhook, sweep)?;
        }
        sweep.passed.extend(passed);
        Ok((removed, removed >= max as u64))
    }

    /// The next webhooks, until they have `max` events together; and whether there may be more. Never reads on: who looks for one more webhook
    /// may have to read a thousand events to find it.
    fn webhooks_above(&self, number: i64, max: usize) -> rusqlite::Result<(Vec<Webhook>, bool)> {
        let mut select = self.db.prepare_cached(&format!(
            "SELECT w.number, w.received, w.channel, {LAST_OF_WEBHOOK}, w.webhook_events FROM events w
             WHERE w.number > ?1 AND w.webhook = w.number ORDER BY w.number"
        ))?;
        let mut rows = select.query([number])?;
        let (mut webhooks, mut events) = (Vec::new(), 0);
        while events < max {
            let Some(row) = rows.next()? else { return Ok((webhooks, false)) };
            let webhook = Webhook::read(row)?;
            events += webhook.events.max(1);
            webhooks.push(webhook);
        }
        Ok((webhooks, true))
    }

    /// Looks at the next `max` messages that went out; ended ones go after their retention, and with them their tries.
    fn purge_messages(&mut self, retention: &[(String, i64)], spans: &[i64], max: usize) -> rusqlite::Result<bool> {
        let (Some(shortest), Some(longest)) = (spans.first(), spans.last()) else { return Ok(false) };
        let rows: Vec<(Dated, i64, i64, bool)> = self
            .db
            .prepare_cached(
                "SELECT m.number, m.created, m.channel, m.thread, EXISTS (SELECT 1 FROM outbox o WHERE o.number = m.number) FROM messages m
                 WHERE m.number > ?1 ORDER BY m.number LIMIT ?2",
            )?
            .query_map(params![self.messages_swept, max as i64], |row| {
                Ok((dated(row.get(0)?, row.get(1)?), row.get(2)?, row.get(3)?, row.get(4)?))
            })?
            .collect::<Result<_, _>>()?;
        let page: Vec<Dated> = rows.iter().map(|(row, ..)| *row).collect();
        let sifted = sift(&page, self.messages_witness, *shortest, self.now_ms, rows.len() == max);
        self.messages_witness = sifted.witness;
        let ended = rows.iter().filter(|row| !row.3);
        let ended: HashMap<u64, (i64, i64)> = ended.map(|(row, channel, thread, _)| (row.number, (*channel, *thread))).collect();
        for row in &sifted.old {
            let Some(&(channel, thread)) = ended.get(&row.number) else { continue };
            let (number, name) = (row.number.cast_signed(), self.channel_name(channel));
            let keep = retention.iter().find(|(listed, _)| **listed == *name).map_or(*longest, |(_, keep)| *keep);
            if row.at_ms + keep <= self.now_ms {
                self.keep_last_words(number)?;
                self.threads.forget(&self.db, thread, 1)?;
                self.db.prepare_cached("DELETE FROM messages WHERE number = ?1")?.execute([number])?;
                self.db.prepare_cached("DELETE FROM tries WHERE number = ?1")?.execute([number])?;
                self.db.prepare_cached("DELETE FROM provider_names WHERE number = ?1")?.execute([number])?;
            }
        }
        // What was left is looked at again in the next round.
        let more = sifted.more;
        self.messages_swept = sifted.to.filter(|_| more).map_or(0, u64::cast_signed);
        if !sifted.old.is_empty() {
            let last_number = self.last_number as i64;
            self.db.prepare_cached("UPDATE meta SET value = ?1 WHERE name = 'last_number'")?.execute([last_number])?;
        }
        let early = "DELETE FROM early WHERE (account, provider_id) IN (SELECT account, provider_id FROM early WHERE heard <= ?1 LIMIT ?2)";
        let removed = self.db.prepare_cached(early)?.execute([self.now_ms - longest, max as i64])?;
        Ok(more || removed == max)
    }

    /// Looks at the next `max` threads whose last words are old, or from the future: those go with what said them. Gives how many it removed, and whether there are more to look at.
    fn purge_threads(&mut self, retention: &[(String, i64)], spans: &[i64], max: usize) -> rusqlite::Result<(u64, bool)> {
        let (Some(shortest), Some(longest)) = (spans.first(), spans.last()) else { return Ok((0, false)) };
        let (at, thread) = self.threads_swept;
        let rows: Vec<(i64, i64, i64)> = self
            .db
            .prepare_cached(
                "SELECT thread, last_at, channel FROM threads WHERE last > 0 AND (last_at <= ?1 OR last_at > ?5)
                 AND (last_at, thread) > (?2, ?3) ORDER BY last_at, thread LIMIT ?4",
            )?
            .query_map(params![self.now_ms - shortest, at, thread, max as i64, self.now_ms], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?
            .collect::<Result<_, _>>()?;
        let mut removed = 0;
        for &(thread, _, channel) in &rows {
            let name = self.channel_name(channel);
            let keep = retention.iter().find(|(listed, _)| **listed == *name).map_or(*longest, |(_, keep)| *keep);
            removed += u64::from(self.threads.purge(&self.db, thread, self.now_ms - keep, self.now_ms)?);
        }
        if removed > 0 {
            self.note_all_nameless()?;
        }
        let more = rows.len() == max;
        self.threads_swept = if more { rows.last().map_or((0, 0), |row| (row.1, row.0)) } else { (0, 0) };
        Ok((removed, more))
    }

    fn remove_or_pass(&mut self, webhook: Webhook, sweep: &mut Sweep) -> rusqlite::Result<u64> {
        if self.is_open(webhook)? {
            let known = sweep.passed.iter().any(|passed| passed.number == webhook.number);
            if sweep.passed.len() < PASSED_MAX && !known {
                sweep.passed.push(webhook);
            }
            return Ok(0);
        }
        self.keep_last_words(webhook.last)?;
        let range = [webhook.number, webhook.last];
        let said: Vec<(i64, i64)> = self
            .db
            .prepare_cached(
                "SELECT thread, count(*) FROM events WHERE number BETWEEN ?1 AND ?2 AND webhook = ?1 AND thread IS NOT NULL GROUP BY thread",
            )?
            .query_map(range, |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        for (thread, entries) in said {
            self.threads.forget(&self.db, thread, entries)?;
        }
        for delete in [
            "DELETE FROM attempts WHERE first IN (SELECT number FROM events WHERE number BETWEEN ?1 AND ?2 AND webhook = ?1)",
            "DELETE FROM copies WHERE number IN (SELECT number FROM events WHERE number BETWEEN ?1 AND ?2 AND webhook = ?1)",
            "DELETE FROM answers WHERE item IN (SELECT number FROM events WHERE number BETWEEN ?1 AND ?2 AND webhook = ?1)",
        ] {
            self.db.prepare_cached(delete)?.execute(range)?;
        }
        self.db.prepare_cached("DELETE FROM spans WHERE webhook = ?1")?.execute([webhook.number])?;
        let delete = "DELETE FROM events WHERE number BETWEEN ?1 AND ?2 AND webhook = ?1";
        Ok(self.db.prepare_cached(delete)?.execute(range)? as u64)
    }

    /// Before something goes that the last words of its thread would be read from after a crash, they are written.
    fn keep_last_words(&mut self, number: i64) -> rusqlite::Result<()> {
        let written_to: i64 =
            self.db.prepare_cached("SELECT value FROM meta WHERE name = 'threads_to'")?.query_row([], |row| row.get(0))?;
        match number > written_to {
            true => self.threads.write_some(&self.db, self.now_ms, self.last_number, true),
            false => Ok(()),
        }
    }

    /// True while an event of the webhook waits, is parked, or is being replayed.
    pub(super) fn is_open(&self, webhook: Webhook) -> rusqlite::Result<bool> {
        self.db
            .prepare_cached(
                "SELECT 1 FROM events e WHERE e.number BETWEEN ?1 AND ?2 AND e.webhook = ?1
                 AND (EXISTS (SELECT 1 FROM inbox i WHERE i.channel = e.channel AND i.item = e.item)
                   OR EXISTS (SELECT 1 FROM inbox i WHERE i.first = e.number AND i.replay IS NOT NULL)
                   OR EXISTS (SELECT 1 FROM parked p WHERE p.item = e.item)
                   OR EXISTS (SELECT 1 FROM parked p WHERE p.first = e.number))",
            )?
            .exists([webhook.number, webhook.last])
    }
}
