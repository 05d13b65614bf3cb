//! What keeps the store in order: purging, settings, and the proof that it can be written to.

use super::RedisStore;
use super::row::{Row, odd};
use super::script;
use crate::domain::ThreadId;
use crate::store::{Purged, StoreError};

impl RedisStore {
    /// Goes over all accounts, a step of `max` each.
    pub(super) async fn purge_some(&self, retention: &[(String, i64)], max: usize) -> Result<Purged, StoreError> {
        let seats = self.registry.seats(&self.link, None).await?;
        let mut purged = Purged::default();
        let mut accounts: Vec<u32> = seats.iter().map(|seat| seat.account).collect();
        accounts.dedup();
        for account in accounts {
            let call = self.link.call(&script::PURGE_KEYS, account).arg(max);
            let mut answer = Row::of(self.link.run("purging keys", call).await?)?;
            purged.keys += answer.count()?;
            purged.more |= answer.flag()?;
        }
        let longest = retention.iter().map(|(_, keep_ms)| *keep_ms).max();
        for seat in &seats {
            let listed = retention.iter().find(|(channel, _)| **channel == *seat.channel).map(|(_, keep_ms)| *keep_ms);
            let Some(keep_ms) = listed.or(longest) else { continue };
            let call = self.link.call(&script::PURGE, seat.account).arg(&*seat.channel).arg(keep_ms).arg(max);
            let mut answer = Row::of(self.link.run("purging", call).await?)?;
            purged.events += answer.count()?;
            purged.more |= answer.flag()?;
        }
        Ok(purged)
    }

    pub(super) async fn remember_once(&self, name: &str, value: &str) -> Result<String, StoreError> {
        let call = self.link.shared_call(&script::REMEMBER).arg(name).arg(value);
        match self.link.run_safely("remembering a setting", call).await? {
            redis::Value::BulkString(text) => String::from_utf8(text).map_err(|_| odd("a text that is none")),
            _ => Err(odd("no text")),
        }
    }

    pub(super) async fn mark_thread_read(&self, thread: &ThreadId) -> Result<bool, StoreError> {
        let Some(account) = self.registry.find(&self.link, &thread.account).await? else { return Ok(false) };
        let call = self.link.call(&script::MARK_READ, account).arg(&thread.peer);
        Ok(super::row::int(self.link.run("marking a thread as read", call).await?)? == 1)
    }

    pub(super) async fn prove_writable(&self) -> Result<(), StoreError> {
        self.link.run("writing to redis", self.link.shared_call(&script::PING)).await.map(drop)
    }
}
