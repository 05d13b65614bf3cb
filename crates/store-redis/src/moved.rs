//! What was moved here from another store: its numbers name no account, and its keys belong to nobody that is known.
//!
//! A moved id is looked for in all accounts, one small question each: a map from ids to accounts would have to be in another slot than the
//! accounts, and could not be purged together with them. Moved keys are in sixteen slots of their own, because a key outlives its event and
//! does not tell its account; they never change, so a claim may look there first and then take the key in the account's own slot. When
//! the last of them has ended, nobody looks there any more.

use futures_util::future::try_join_all;
use hapax_domain::{EventId, EventKey, fingerprint};
use hapax_store::{Accepted, Arrival, NewEvent, Purged, StoreError};
use uuid::Uuid;

use super::RedisStore;
use super::place::{Location, Mark, Seq};
use super::registry::WasMoved;
use super::row::{Row, int};
use super::script;

/// How many slots moved keys are spread over: one for each value of their first four bits.
const PARTS: u8 = 16;

pub(super) fn part_of(key: &[u8; 32]) -> u8 {
    key[0] >> 4
}

pub(super) fn parts() -> impl Iterator<Item = u8> {
    0..PARTS
}

impl RedisStore {
    /// Where the event (`e`), item (`i`) or message (`m`) of an id is. What was made here may be gone; what was moved here was there a moment ago.
    pub(super) async fn place_of(&self, kind: &str, id: Uuid) -> Result<Option<Location>, StoreError> {
        let moved = self.registry.moved(&self.link).await?;
        let Some(mark) = Mark::new(id, moved.to) else { return Ok(None) };
        let (seq, at_s) = (mark.seq(), mark.at_s);
        if let Some(account) = mark.account() {
            return Ok(Some(Location { account, seq, at_s }));
        }
        let accounts = self.registry.accounts(&self.link).await?;
        let found = try_join_all(accounts.iter().map(|entry| async {
            let (root, mut command) = (self.link.root(entry.account), redis::cmd("EXISTS"));
            command.arg(format!("{root}{kind}:{seq}"));
            Ok::<_, StoreError>((entry.account, int(self.link.ask("looking for an account", &root, command).await?)? == 1))
        }));
        let account = found.await?.into_iter().find(|(_, is_there)| *is_there).map(|(account, _)| account);
        Ok(account.map(|account| Location { account, seq, at_s }))
    }

    /// Which events of a webhook are copies of events that were moved here.
    pub(super) async fn copies_of_moved(&self, arrival: &Arrival, moved: WasMoved) -> Result<Vec<Option<Accepted>>, StoreError> {
        let keys: Vec<Option<EventKey>> = arrival.events.iter().map(|new| Some(new.event.key)).collect();
        let held = self.held_by_moved(&keys, moved).await?;
        let copy = |(new, held): (&NewEvent, Option<(Seq, i64, i64)>)| {
            let (seq, at_ms, held) = held?;
            let id = EventId(seq.id(at_ms, 0));
            let is_same = u32::try_from(held).is_ok_and(|held| fingerprint::is_copy(held, new.event.fingerprint));
            Some(if is_same { Accepted::Duplicate(id) } else { Accepted::Conflict(id) })
        };
        Ok(arrival.events.iter().zip(held).map(copy).collect())
    }

    /// Which of these keys events hold that were moved here: their numbers, times and fingerprints.
    pub(super) async fn held_by_moved(
        &self,
        keys: &[Option<EventKey>],
        moved: WasMoved,
    ) -> Result<Vec<Option<(Seq, i64, i64)>>, StoreError> {
        let mut held = vec![None; keys.len()];
        if !moved.has_keys {
            return Ok(held);
        }
        let asked = parts().filter_map(|part| {
            let of_part =
                |(index, key): (usize, &Option<EventKey>)| key.filter(|key| part_of(&key.0) == part).map(|key| (index, key));
            let wanted: Vec<(usize, EventKey)> = keys.iter().enumerate().filter_map(of_part).collect();
            (!wanted.is_empty()).then_some(async move {
                let call = self.link.call_at(&script::FIND_KEYS, &self.link.root_of_moved(part)).arg(wanted.len());
                let call = wanted.iter().fold(call, |call, (_, key)| call.arg(&key.0[..]));
                Ok::<_, StoreError>((Row::new(self.link.run("looking for moved keys", call).await?)?, wanted))
            })
        });
        for (mut answer, wanted) in try_join_all(asked).await? {
            for (index, _) in wanted {
                let Some(mut row) = answer.maybe_row()? else { continue };
                held[index] = Some((row.seq()?, row.int()?, row.int()?));
            }
        }
        Ok(held)
    }

    pub(super) async fn count_moved_keys(&self) -> Result<u64, StoreError> {
        if !self.registry.moved(&self.link).await?.has_keys {
            return Ok(0);
        }
        let counts = try_join_all(parts().map(|part| async move {
            let (root, mut command) = (self.link.root_of_moved(part), redis::cmd("ZCARD"));
            command.arg(format!("{root}keys:"));
            int(self.link.ask("counting moved keys", &root, command).await?)
        }));
        Ok(counts.await?.into_iter().sum::<i64>().cast_unsigned())
    }

    /// Forgets moved keys after their window.
    pub(super) async fn purge_moved_keys(&self, max: usize) -> Result<Purged, StoreError> {
        let mut purged = Purged::default();
        if !self.registry.moved(&self.link).await?.has_keys {
            return Ok(purged);
        }
        let mut left = 0;
        for part in parts() {
            let call = self.link.call_at(&script::PURGE_KEYS, &self.link.root_of_moved(part)).arg(max).maybe_int(None);
            let mut answer = Row::new(self.link.run("purging moved keys", call).await?)?;
            purged.keys += answer.count()?;
            purged.more |= answer.flag()?;
            left += answer.count()?;
        }
        if left == 0 {
            self.link.run("purging moved keys", self.link.shared_call(&script::FORGET_MOVED_KEYS)).await?;
            self.registry.forget();
        }
        Ok(purged)
    }
}
