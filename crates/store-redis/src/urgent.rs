//! Whose turn it is, where a channel has several accounts: a look over all of them before the leap, which each account's own script makes.

use futures_util::future::join_all;
use hapax_domain::Priority;
use hapax_store::StoreError;

use super::RedisStore;
use super::registry::AccountInChannel;
use super::row::Row;
use super::script;

/// How many leases to ask of which accounts.
type Shares<'s> = Vec<(&'s AccountInChannel, usize)>;
/// A lane that is due: its priority, since when, its place in the line, and whose it is.
type Head<'s> = (usize, i64, Vec<u8>, &'s AccountInChannel);

impl RedisStore {
    /// The accounts with the lanes of the inbox that were due longest.
    pub(super) async fn first_to_deliver<'s>(
        &self,
        entries: &'s [AccountInChannel],
        max: usize,
    ) -> Result<Shares<'s>, StoreError> {
        self.shares(entries, false, &["due".to_owned()], max).await
    }

    /// The accounts with the lanes of the outbox that go first, replies before the rest. Those that are paused have no turn.
    pub(super) async fn first_to_send<'s>(&self, entries: &'s [AccountInChannel], max: usize) -> Result<Shares<'s>, StoreError> {
        let lines: Vec<_> = (0..Priority::ALL.len()).map(|priority| format!("od:{priority}")).collect();
        self.shares(entries, true, &lines, max).await
    }

    /// Divides `max` among the accounts by the first due lanes of their lines: by priority, then by time, then by their first item. An account
    /// whose node does not answer has no turn, and does not hold up those of the other nodes.
    async fn shares<'s>(
        &self,
        entries: &'s [AccountInChannel],
        sends: bool,
        lines: &[String],
        max: usize,
    ) -> Result<Shares<'s>, StoreError> {
        if let [only] = entries {
            return Ok(vec![(only, max)]);
        }
        let looks = join_all(entries.iter().map(|entry| self.heads(entry, sends, lines, max))).await;
        let (mut heads, mut silent) = (Vec::new(), None);
        let mut answered = entries.is_empty();
        for look in looks {
            match look {
                Ok(found) => (answered, _) = (true, heads.extend(found)),
                Err(error) => silent = Some(error),
            }
        }
        if let (false, Some(error)) = (answered, silent) {
            return Err(error);
        }
        heads.sort_by(|a: &Head<'_>, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
        let mut shares: Shares<'s> = Vec::new();
        for (.., entry) in heads.into_iter().take(max) {
            match shares.iter_mut().find(|(known, _)| known.account == entry.account) {
                Some((_, count)) => *count += 1,
                None => shares.push((entry, 1)),
            }
        }
        Ok(shares)
    }

    async fn heads<'s>(
        &self,
        entry: &'s AccountInChannel,
        sends: bool,
        lines: &[String],
        max: usize,
    ) -> Result<Vec<Head<'s>>, StoreError> {
        let call = self.link.call(&script::FIRST_DUE, entry.account).arg(&*entry.channel).arg(max).flag(sends).arg(lines);
        let mut heads = Vec::new();
        for (priority, line) in Row::new(self.link.run("looking for work", call).await?)?.rows().enumerate() {
            let mut line = line?;
            while let Some(member) = line.maybe_bytes()? {
                heads.push((priority, line.int()?, member, entry));
            }
        }
        Ok(heads)
    }
}
