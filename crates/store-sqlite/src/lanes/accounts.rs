//! A line for each account, where some of them rest: those are passed by, however much waits there. Before that all are in one line, because
//! whose an item is would have to be read for each.

use rusqlite::{Connection, OptionalExtension};

use super::super::outbox::account_key;
use super::{ChannelLanes, Lanes, Tables};

impl Lanes {
    /// Makes each account have a line of its own, so that one that rests is passed by, however much waits in it.
    pub(crate) fn tell_accounts_apart(&mut self, db: &Connection, channel: i64) -> rusqlite::Result<()> {
        let tables = self.tables;
        self.of(db, channel)?.tell_accounts_apart(db, tables, channel)
    }
}

impl ChannelLanes {
    fn tell_accounts_apart(&mut self, db: &Connection, tables: Tables, channel: i64) -> rusqlite::Result<()> {
        if std::mem::replace(&mut self.by_account, true) {
            return Ok(());
        }
        let firsts: Vec<(u64, i64)> =
            self.lanes.iter().filter_map(|(&number, lane)| Some((number, lane.items.front()?.item))).collect();
        for (number, first) in firsts {
            // Of one account are all in a lane.
            let account = account_of(db, tables, channel, first)?;
            self.leave_line(number);
            if let Some(lane) = self.lanes.get_mut(&number) {
                lane.items.iter_mut().for_each(|place| place.line.account = account);
            }
            self.take_turn(number);
        }
        self.lines.retain(|_, turns| !turns.is_empty());
        Ok(())
    }
}

/// Whose an item is, as lines tell accounts apart; zero for one of no account.
pub(super) fn account_of(db: &Connection, tables: Tables, channel: i64, item: i64) -> rusqlite::Result<i64> {
    let Some(select) = tables.account else { return Ok(0) };
    let account: Option<String> = db.prepare_cached(select)?.query_row([channel, item], |row| row.get(0)).optional()?;
    Ok(account.filter(|account| !account.is_empty()).map_or(0, |account| account_key(&account)))
}
