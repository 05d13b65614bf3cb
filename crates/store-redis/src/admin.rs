//! What keeps the store in order: purging, registers, and the proof that it can be written to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use hapax_domain::ThreadId;
use hapax_store::pieces::purged_at_once;
use hapax_store::registers::{Register, check};
use hapax_store::{Forget, Forgotten, Purged, Registers, StoreError};
use redis::{Script, Value};

use super::RedisStore;
use super::place::Location;
use super::row::{Row, int, letter, odd};
use super::script::{self, Call};

/// What is to be forgotten of one account.
#[derive(Default)]
struct OfAccount<'f> {
    events: Vec<Location>,
    messages: Vec<Location>,
    threads: Vec<&'f str>,
}

#[async_trait]
impl Registers for RedisStore {
    async fn remember(&self, name: &str, value: &str) -> Result<String, StoreError> {
        Ok(self.amend(name, None, Some(value), None).await?.unwrap_or_default())
    }

    async fn amend(
        &self,
        name: &str,
        expected: Option<&str>,
        new: Option<&str>,
        keep_ms: Option<i64>,
    ) -> Result<Option<String>, StoreError> {
        let keep_ms = check(name, new, keep_ms)?;
        self.amend_register(name, (expected, new), keep_ms).await
    }
}

impl RedisStore {
    /// Makes a call that begins something for an account, under the number it has in the registry. The script refuses when the number is not,
    /// or no longer, the account's: then the server has lost its data, and the account is registered anew.
    pub(super) async fn begin_for(
        &self,
        account: &str,
        channel: &Arc<str>,
        what: &'static str,
        script: &'static Script,
        args: impl Fn(Call, u32) -> Call,
    ) -> Result<(u32, Value), StoreError> {
        for _ in 0..2 {
            let number = self.registry.enter(&self.link, account, channel).await?;
            let answer = self.link.run_safely(what, args(self.link.call(script, number).arg(account), number)).await?;
            match letter(&answer) {
                Ok(b'U') => self.registry.forget(),
                _ => return Ok((number, answer)),
            }
        }
        Err(odd("an account that cannot be registered"))
    }

    /// Goes over all accounts, a step of `max` each.
    pub(super) async fn purge_some(&self, retention: &[(String, i64)], max: usize) -> Result<Purged, StoreError> {
        let entries = self.registry.entries(&self.link, None).await?;
        for entry in &entries {
            let call = self.link.call(&script::FOLLOW_CLOCK, entry.account).arg(&*entry.channel);
            if int(self.link.run_safely("following the clock", call).await?)? == 1 {
                tracing::warn!(channel = %entry.channel, "the server's clock was set back; what waits is moved with it");
            }
        }
        let mut purged = self.purge_moved_keys(max).await?;
        let registers = self.link.shared_call(&script::PURGE_REGISTERS).arg(max);
        purged.more |= int(self.link.run("purging registers", registers).await?)? >= max as i64;
        purged.more |= self.purge_claims(max).await?;
        purged.more |= self.purge_pieces(purged_at_once(max)).await?;
        let longest = retention.iter().map(|(_, keep_ms)| *keep_ms).max();
        let mut accounts: Vec<u32> = entries.iter().map(|entry| entry.account).collect();
        accounts.dedup();
        for account in accounts {
            let call = self.link.call(&script::PURGE_KEYS, account).arg(max).maybe_int(longest);
            let mut answer = Row::new(self.link.run("purging keys", call).await?)?;
            purged.keys += answer.count()?;
            purged.more |= answer.flag()?;
        }
        for entry in &entries {
            let listed = retention.iter().find(|(channel, _)| **channel == *entry.channel).map(|(_, keep_ms)| *keep_ms);
            let Some(keep_ms) = listed.or(longest) else { continue };
            let call = self.link.call(&script::PURGE, entry.account).arg(&*entry.channel).arg(keep_ms).arg(max);
            let mut answer = Row::new(self.link.run("purging", call).await?)?;
            purged.events += answer.count()?;
            purged.more |= answer.flag()?;
        }
        if !purged.more {
            // Last of all: what is gone by now may have been the last of a thread.
            for entry in &entries {
                let listed = retention.iter().find(|(channel, _)| **channel == *entry.channel).map(|(_, keep_ms)| *keep_ms);
                let Some(keep_ms) = listed.or(longest) else { continue };
                self.purge_threads(entry.account, &entry.channel, keep_ms, max).await?;
            }
        }
        Ok(purged)
    }

    /// One step for each account.
    pub(super) async fn forget_words(&self, what: &Forget) -> Result<Forgotten, StoreError> {
        let mut accounts: BTreeMap<u32, OfAccount<'_>> = BTreeMap::new();
        for id in what.events.iter().collect::<BTreeSet<_>>() {
            if let Some(place) = self.place_of("e", id.0).await? {
                accounts.entry(place.account).or_default().events.push(place);
            }
        }
        for id in what.messages.iter().collect::<BTreeSet<_>>() {
            if let Some(place) = self.place_of("m", id.0).await? {
                accounts.entry(place.account).or_default().messages.push(place);
            }
        }
        for thread in &what.threads {
            if let Some(account) = self.registry.find(&self.link, &thread.account).await? {
                accounts.entry(account).or_default().threads.push(&thread.peer);
            }
        }
        let mut forgotten = Forgotten::default();
        for (account, OfAccount { events, messages, threads }) in accounts {
            let mut call = self.link.call(&script::FORGET, account);
            for places in [events, messages] {
                call = call.arg(places.len());
                call = places.iter().fold(call, |call, place| call.arg(place.seq.to_string()).arg(place.at_s));
            }
            call = threads.iter().fold(call.arg(threads.len()), |call, peer| call.arg(*peer));
            let mut answer = Row::new(self.link.run_safely("forgetting", call).await?)?;
            let (events, messages, open) = (answer.count()?, answer.count()?, answer.count()?);
            forgotten = forgotten.and(Forgotten { events, messages, open });
        }
        Ok(forgotten)
    }

    /// Goes over all threads that are old, a few at a time.
    async fn purge_threads(&self, account: u32, channel: &str, keep_ms: i64, max: usize) -> Result<(), StoreError> {
        let mut skip = Some(0);
        while let Some(from) = skip {
            let call = self.link.call(&script::PURGE_THREADS, account).arg(channel).arg(keep_ms).arg(from).arg(max);
            skip = match self.link.run("purging threads", call).await? {
                Value::Int(next) => Some(next),
                _ => None,
            };
        }
        Ok(())
    }

    pub(super) async fn amend_register(
        &self,
        name: &str,
        (expected, new): (Option<&str>, Option<&str>),
        keep_ms: Option<i64>,
    ) -> Result<Option<String>, StoreError> {
        let call = self.link.shared_call(&script::AMEND).arg(name).maybe(expected).maybe(new).maybe_int(keep_ms);
        match self.link.run_safely("amending a register", call).await? {
            Value::Nil => Ok(None),
            Value::BulkString(text) => String::from_utf8(text).map(Some).map_err(|_| odd("a text that is none")),
            _ => Err(odd("no text")),
        }
    }

    pub(super) async fn put_register(&self, name: &str, register: &Register) -> Result<(), StoreError> {
        let call = self.link.shared_call(&script::PUT_REGISTER).arg(name).arg(&register.value).maybe_int(register.ends_ms);
        self.link.run_safely("putting a register", call).await.map(drop)
    }

    pub(super) async fn mark_thread_read(&self, thread: &ThreadId) -> Result<bool, StoreError> {
        let Some(account) = self.registry.find(&self.link, &thread.account).await? else { return Ok(false) };
        let call = self.link.call(&script::MARK_READ, account).arg(&thread.peer);
        Ok(int(self.link.run("marking a thread as read", call).await?)? == 1)
    }

    /// Asks every node that has something of ours.
    pub(super) async fn prove_writable(&self) -> Result<(), StoreError> {
        let entries = self.registry.entries(&self.link, None).await?;
        let calls = self.link.calls_on_all_nodes(&script::PING, entries.iter().map(|entry| entry.account));
        try_join_all(calls.into_iter().map(|call| self.link.run("writing to redis", call))).await.map(drop)
    }
}
