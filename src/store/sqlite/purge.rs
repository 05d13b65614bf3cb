//! Forgetting, in small steps: periods of keys by dropping them, webhooks after their retention.

use std::collections::HashSet;

use rusqlite::{Row, params};

use super::writer::{StepError, Writer};
use crate::store::Purged;

/// How far the events were looked through for one retention.
#[derive(Default)]
pub(super) struct Sweep {
    /// Everything up to this number was looked at.
    to: i64,
    /// Webhooks that were old and still open when looked at; looked at again in every step.
    passed: Vec<Webhook>,
    restarted_ms: i64,
}

/// Old and open webhooks kept in mind; those beyond are found again when the sweep starts over.
const PASSED_MAX: usize = 1_000;
const RESTART_MS: i64 = 3_600_000;

/// What purge reads of a webhook: the row that holds its body.
#[derive(Clone, Copy)]
struct Webhook {
    number: i64,
    received: i64,
    channel: i64,
    /// No event of the same webhook has a higher number.
    last: i64,
}

impl Webhook {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let number = row.get(0)?;
        let last = number + row.get::<_, i64>(3)? - 1;
        Ok(Self { number, received: row.get(1)?, channel: row.get(2)?, last })
    }
}

impl Writer {
    pub(super) fn purge(&mut self, retention: &[(String, i64)], max: usize) -> Result<Purged, StepError> {
        let keys = self.keys.drop_expired(&self.db, self.now_ms / 1_000)?;
        let mut spans: Vec<i64> = retention.iter().map(|(_, keep_ms)| *keep_ms).collect();
        spans.sort_unstable();
        spans.dedup();
        let mut purged = Purged { keys, events: 0, more: keys > 0 };
        for &keep_ms in &spans {
            // A channel that is not listed any more is kept as long as the one that is kept longest.
            let longest = spans.last().copied();
            let keep_of =
                |name: &str| retention.iter().find(|(listed, _)| listed == name).map_or(longest, |(_, keep)| Some(*keep));
            let channels = self.channels.iter().filter(|(name, _)| keep_of(name) == Some(keep_ms)).map(|(_, id)| *id).collect();
            let mut sweep = self.sweeps.remove(&keep_ms).unwrap_or_default();
            let step = self.sweep(&mut sweep, keep_ms, &channels, max);
            self.sweeps.insert(keep_ms, sweep);
            let (removed, more) = step?;
            purged.events += removed;
            purged.more |= more;
        }
        if purged.events > 0 {
            // The counter must never fall back onto numbers whose rows are gone.
            self.db
                .prepare_cached("UPDATE meta SET value = ?1 WHERE name = 'last_number'")?
                .execute([self.last_number as i64])?;
            self.count.in_batch -= purged.events as i64;
            self.count.write_now = true;
        }
        Ok(purged)
    }

    /// Looks at the next `max` webhooks; gives how many events it removed, and whether there are more to look at.
    fn sweep(&mut self, sweep: &mut Sweep, keep_ms: i64, channels: &HashSet<i64>, max: usize) -> rusqlite::Result<(u64, bool)> {
        if self.now_ms - sweep.restarted_ms >= RESTART_MS {
            *sweep = Sweep { restarted_ms: self.now_ms, ..Sweep::default() };
        }
        let webhooks: Vec<Webhook> = self
            .db
            .prepare_cached(
                "SELECT number, received, channel, webhook_events FROM events WHERE number > ?1 AND webhook = number
                 ORDER BY number LIMIT ?2",
            )?
            .query_map(params![sweep.to, max as i64], Webhook::read)?
            .collect::<Result<_, _>>()?;
        let old = webhooks.iter().take_while(|webhook| webhook.received + keep_ms <= self.now_ms).count();
        let mut removed = 0;
        for webhook in &webhooks[..old] {
            sweep.to = webhook.number;
            if channels.contains(&webhook.channel) {
                removed += self.remove_or_pass(*webhook, sweep)?;
            }
        }
        if old == max {
            return Ok((removed, true));
        }
        // At the end of the old ones: those that were open may have been settled meanwhile.
        for webhook in std::mem::take(&mut sweep.passed) {
            removed += self.remove_or_pass(webhook, sweep)?;
        }
        Ok((removed, false))
    }

    fn remove_or_pass(&mut self, webhook: Webhook, sweep: &mut Sweep) -> rusqlite::Result<u64> {
        if self.is_open(webhook)? {
            if sweep.passed.len() < PASSED_MAX {
                sweep.passed.push(webhook);
            }
            return Ok(0);
        }
        let range = [webhook.number, webhook.last];
        for delete in [
            "DELETE FROM attempts WHERE first IN (SELECT number FROM events WHERE number BETWEEN ?1 AND ?2 AND webhook = ?1)",
            "DELETE FROM copies WHERE number IN (SELECT number FROM events WHERE number BETWEEN ?1 AND ?2 AND webhook = ?1)",
            "DELETE FROM answers WHERE item IN (SELECT number FROM events WHERE number BETWEEN ?1 AND ?2 AND webhook = ?1)",
        ] {
            self.db.prepare_cached(delete)?.execute(range)?;
        }
        let delete = "DELETE FROM events WHERE number BETWEEN ?1 AND ?2 AND webhook = ?1";
        Ok(self.db.prepare_cached(delete)?.execute(range)? as u64)
    }

    /// True while an event of the webhook waits, is parked, or is being replayed.
    fn is_open(&self, webhook: Webhook) -> rusqlite::Result<bool> {
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
