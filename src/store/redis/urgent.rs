//! Whose turn it is, where a channel has several accounts: a look over all of them before the leap, which each account's own script makes.

use futures_util::future::try_join_all;

use super::RedisStore;
use super::registry::Seat;
use super::row::{Row, int};
use crate::domain::Priority;
use crate::store::StoreError;

/// How many leases to ask of which accounts.
type Shares<'s> = Vec<(&'s Seat, usize)>;

impl RedisStore {
    /// The accounts with the lanes of the inbox that were due longest.
    pub(super) async fn first_to_deliver<'s>(&self, seats: &'s [Seat], max: usize) -> Result<Shares<'s>, StoreError> {
        if let [only] = seats {
            return Ok(vec![(only, max)]);
        }
        let line = |seat: &'s Seat| (0, seat, format!("{}due:{}", self.link.root(seat.account), seat.channel));
        self.shares(seats.iter().map(line), max).await
    }

    /// The accounts with the lanes of the outbox that go first, replies before the rest. Those that are paused have no turn.
    pub(super) async fn first_to_send<'s>(&self, seats: &'s [Seat], max: usize) -> Result<Shares<'s>, StoreError> {
        if let [only] = seats {
            return Ok(vec![(only, max)]);
        }
        let is_awake = |seat: &'s Seat| async move {
            let mut command = redis::cmd("HEXISTS");
            command.arg(format!("{}paused:", self.link.root(seat.account))).arg(&*seat.channel);
            let paused = int(self.link.ask("looking for paused accounts", &command).await?)? != 0;
            Ok::<_, StoreError>((!paused).then_some(seat))
        };
        let awake: Vec<&Seat> = try_join_all(seats.iter().map(is_awake)).await?.into_iter().flatten().collect();
        let lines = awake.into_iter().flat_map(|seat| {
            let line = move |priority| format!("{}od:{priority}:{}", self.link.root(seat.account), seat.channel);
            (0..Priority::ALL.len()).map(move |priority| (priority, seat, line(priority)))
        });
        self.shares(lines, max).await
    }

    /// Divides `max` among the accounts by the first due lanes of their lines: by priority, then by time, then by their first item.
    async fn shares<'s>(
        &self,
        lines: impl Iterator<Item = (usize, &'s Seat, String)>,
        max: usize,
    ) -> Result<Shares<'s>, StoreError> {
        let now = self.link.now_ms().await?;
        let look = |(priority, seat, line): (usize, &'s Seat, String)| async move {
            let mut command = redis::cmd("ZRANGEBYSCORE");
            command.arg(line).arg("-inf").arg(now).arg("WITHSCORES").arg("LIMIT").arg(0).arg(max);
            let mut answer = Row::of(self.link.ask("looking for work", &command).await?)?;
            let mut heads = Vec::new();
            while let Some(member) = answer.maybe_bytes()? {
                heads.push((priority, answer.int()?, member, seat));
            }
            Ok::<_, StoreError>(heads)
        };
        let mut heads: Vec<_> = try_join_all(lines.map(look)).await?.into_iter().flatten().collect();
        heads.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
        let mut shares: Shares<'s> = Vec::new();
        for (.., seat) in heads.into_iter().take(max) {
            match shares.iter_mut().find(|(known, _)| known.account == seat.account) {
                Some((_, count)) => *count += 1,
                None => shares.push((seat, 1)),
            }
        }
        Ok(shares)
    }
}
