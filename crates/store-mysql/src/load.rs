//! Loading what a step wants to see: one packet of statements, in the order of [`Wanted`], and what they answered.

use hapax_store::StoreError;
use hapax_store::steps::record::Record;
use hapax_store::steps::records::{
    ClaimRec, EventRec, Hash, ItemPlace, ItemRec, LaneRec, MessageRec, NameRec, OutRec, ProviderNameRec, ThreadRec, name_hash,
    thread_hash,
};
use hapax_store::steps::{Loaded, Wanted};

use super::alone;
use super::link::Sets;
use super::peers;
use super::rows::InTable;
use super::sql::{Fields, List, Literal, ROWS_MAX, Raw, Sql, account_key, channel_key};

/// Statements, and how the answer of each is read.
pub(super) struct Asked {
    pub(super) sql: Sql,
    pub(super) parts: Vec<Part>,
}

#[derive(Clone, Copy)]
pub(super) enum Part {
    Lanes,
    Items,
    LowestItems,
    Events,
    Names,
    Threads,
    SureNames,
    Sending,
    ProviderNames,
    Messages,
    Outs,
    LowestOuts,
    Waiting,
    Claims,
}

impl Asked {
    /// With `lock`, what the contract wants locked is locked until the end of the transaction, in the order of its key. The index is
    /// named each time: looking through a whole table, which the server may prefer while it is small, would lock what others work on.
    pub(super) fn new(wanted: &Wanted, lock: bool) -> Asked {
        let mut asked = Asked { sql: Sql::default(), parts: Vec::new() };
        let lock = if lock { " FOR UPDATE" } else { "" };
        asked.by::<LaneRec, _>(Part::Lanes, "PRIMARY", "hash", &wanted.lanes, lock);
        asked.items(&wanted.items);
        asked.lowest_items(&wanted.lowest_items);
        asked.by::<EventRec, _>(Part::Events, "PRIMARY", "number", &wanted.events, "");
        asked.by::<EventRec, _>(Part::Events, "PRIMARY", "number", &wanted.locked_events, lock);
        asked.rows(&EventRec::texts().with_body, Part::Events, EventRec::TABLE, ("PRIMARY", "number"), &wanted.bodies, "");
        asked.names(Part::Names, &wanted.names);
        asked.threads(&wanted.threads, lock);
        asked.names(Part::SureNames, &wanted.sure_names);
        asked.by::<NameRec, _>(Part::Names, "of_thread", "thread", &wanted.named, "");
        for account in &wanted.sending {
            let sending =
                "SELECT account FROM hapax_outs FORCE INDEX (begun) WHERE account_key = ? AND begun_ms IS NOT NULL LIMIT 1";
            asked.add(Part::Sending, sending, &[&account_key(account)]);
        }
        let names = hashes(&wanted.provider_names);
        asked.by::<ProviderNameRec, _>(Part::ProviderNames, "PRIMARY", "hash", &names, lock);
        asked.by::<MessageRec, _>(Part::Messages, "request", "request", &wanted.requests, lock);
        asked.by::<MessageRec, _>(Part::Messages, "PRIMARY", "number", &wanted.messages, lock);
        asked.by::<OutRec, _>(Part::Outs, "PRIMARY", "number", &wanted.outs, lock);
        for lane in &wanted.lowest_outs {
            let lowest =
                "SELECT ? FROM hapax_outs FORCE INDEX (line) WHERE lane = ? AND due_ms IS NOT NULL ORDER BY number LIMIT 2?";
            asked.add(Part::LowestOuts, lowest, &[&Raw(OutRec::columns()), lane, &Raw(lock)]);
        }
        let with_result = &ClaimRec::texts().with_body;
        asked.rows(with_result, Part::Claims, ClaimRec::TABLE, ("PRIMARY", "hash"), &wanted.claims, lock);
        for (channel, account) in &wanted.waiting {
            let waiting =
                "SELECT ?, ?, CAST(COALESCE(SUM(priority = 0), 0) AS UNSIGNED), CAST(COALESCE(SUM(priority <> 0), 0) AS UNSIGNED)
                           FROM hapax_outs FORCE INDEX (of_account) WHERE account_key = ? AND in_doubt = 0 AND channel_key = ?";
            let (channel_key, account_key) = (channel_key(channel), account_key(account));
            asked.add(Part::Waiting, waiting, &[channel, account, &account_key, &channel_key]);
        }
        asked
    }

    fn add(&mut self, part: Part, statement: &str, values: &[&dyn Literal]) {
        self.sql.add(statement, values);
        self.parts.push(part);
    }

    fn by<R: InTable, T: Literal + Ord + Clone>(&mut self, part: Part, index: &str, key: &str, of: &[T], lock: &str) {
        self.rows(R::columns(), part, R::TABLE, (index, key), of, lock);
    }

    fn rows<T: Literal + Ord + Clone>(
        &mut self,
        columns: &str,
        part: Part,
        table: &str,
        (index, key): (&str, &str),
        of: &[T],
        lock: &str,
    ) {
        let mut of = of.to_vec();
        of.sort_unstable();
        of.dedup();
        for some in of.chunks(ROWS_MAX) {
            let select = format!("SELECT {columns} FROM {table} FORCE INDEX ({index}) WHERE {key} IN ? ORDER BY {key}{lock}");
            self.add(part, &select, &[&List(some)]);
        }
    }

    fn names(&mut self, part: Part, names: &[(String, String)]) {
        let mut of: Vec<Hash> = names.iter().map(|(account, name)| thread_hash(account, name)).collect();
        of.sort_unstable();
        of.dedup();
        for some in of.chunks(ROWS_MAX) {
            let names = "SELECT ? FROM hapax_peers FORCE INDEX (PRIMARY) WHERE hash IN ? AND thread IS NOT NULL ORDER BY hash";
            self.add(part, names, &[&Raw(NameRec::columns()), &List(some)]);
        }
    }

    /// A name that leads elsewhere is not locked: who comes by it locks the thread it leads to later, and would wait in a circle for who comes by
    /// both.
    fn threads(&mut self, threads: &[Hash], lock: &str) {
        let mut of = threads.to_vec();
        of.sort_unstable();
        of.dedup();
        for some in of.chunks(ROWS_MAX) {
            // A list of one, or of one twice, is a row that the server locks before it looks at the rest of the condition. Of a range it lets go what
            // does not fit. No hash is all zeros.
            let some = if let [one] = some { &[[0; 32], *one] } else { some };
            let threads = "SELECT ? FROM hapax_peers FORCE INDEX (PRIMARY)
                           WHERE hash IN ? AND (last_ms IS NOT NULL OR thread = hash) ORDER BY hash?";
            self.add(Part::Threads, threads, &[&Raw(ThreadRec::columns()), &List(some), &Raw(lock)]);
        }
    }

    /// In one statement, so that one that gets a row of its own meanwhile is seen once.
    fn items(&mut self, items: &[u64]) {
        for some in items.chunks(ROWS_MAX) {
            let both = "SELECT ? FROM hapax_items FORCE INDEX (PRIMARY) WHERE number IN ? UNION ALL
                SELECT ? FROM hapax_lanes FORCE INDEX (by_first) WHERE first IN ? AND alone_ms IS NOT NULL";
            let (rows, alone, some) = (Raw(ItemRec::columns()), Raw(&alone::COLUMNS), List(some));
            self.add(Part::Items, both, &[&rows, &some, &alone, &some]);
        }
    }

    /// One statement for all lanes: MariaDB has no `LATERAL`.
    fn lowest_items(&mut self, lanes: &[Hash]) {
        for some in lanes.chunks(ROWS_MAX / 5) {
            let one = "(SELECT ? FROM hapax_items FORCE INDEX (line) WHERE lane = ? AND place = ? ORDER BY number LIMIT 2)";
            let all = vec![one; some.len()].join(" UNION ALL ");
            let place = ItemPlace::InLane.code();
            let columns = Raw(ItemRec::columns());
            let values: Vec<&dyn Literal> = some.iter().flat_map(|lane| [&columns as &dyn Literal, lane, &place]).collect();
            self.add(Part::LowestItems, &all, &values);
        }
    }

    /// Reads what the statements answered, beside what was `loaded` before.
    pub(super) fn read(parts: &[Part], mut sets: Sets, mut loaded: Loaded) -> Result<Loaded, StoreError> {
        for part in parts {
            read_part(*part, &mut sets, &mut loaded)?;
        }
        // The statements ask for order in each lane; a union of them does not promise it.
        loaded.lowest.values_mut().for_each(|lowest| lowest.sort_unstable());
        Ok(loaded)
    }
}

fn read_part(part: Part, sets: &mut Sets, loaded: &mut Loaded) -> Result<(), StoreError> {
    match part {
        Part::Lanes => loaded.lanes.extend(keyed::<LaneRec>(sets)?),
        Part::Items => loaded.items.extend(keyed::<ItemRec>(sets)?),
        Part::LowestItems => {
            for item in sets.records::<ItemRec>()? {
                loaded.lowest.entry(item.lane).or_default().push(item.number);
                loaded.items.insert(item.number, item);
            }
        }
        // An event that is wanted both ways keeps what it carries: bodies come after.
        Part::Events => loaded.events.extend(keyed::<EventRec>(sets)?),
        Part::Names => {
            let names = sets.records::<NameRec>()?.into_iter();
            loaded.names.extend(names.map(|name| ((name.account, name.name), name.peer)));
        }
        Part::SureNames => {
            let names = sets.records::<NameRec>()?.into_iter();
            loaded.sure_names.extend(names.map(|name| ((name.account, name.name), name.peer)));
        }
        Part::Threads => loaded.threads.extend(peers::threads(sets)?.into_iter().map(|thread| (thread.key(), thread))),
        Part::Sending => loaded.sending.extend(sets.read(|fields| fields.next::<String>())?),
        Part::ProviderNames => loaded.provider_names.extend(keyed::<ProviderNameRec>(sets)?),
        Part::Messages => loaded.messages.extend(keyed::<MessageRec>(sets)?),
        Part::Claims => loaded.claims.extend(keyed::<ClaimRec>(sets)?),
        Part::Outs => loaded.outs.extend(keyed::<OutRec>(sets)?),
        Part::LowestOuts => {
            for out in sets.records::<OutRec>()? {
                loaded.lowest.entry(out.lane).or_default().push(out.number);
                loaded.outs.insert(out.number, out);
            }
        }
        Part::Waiting => {
            let read = |fields: &mut Fields| {
                Ok((fields.next::<String>()?, fields.next::<String>()?, fields.next::<u64>()?, fields.next::<u64>()?))
            };
            for (channel, account, replies, rest) in sets.read(read)? {
                loaded.waiting.insert((channel.clone(), account.clone(), true), replies as usize);
                loaded.waiting.insert((channel, account, false), rest as usize);
            }
        }
    }
    Ok(())
}

fn keyed<R: Record>(sets: &mut Sets) -> Result<impl Iterator<Item = (R::Key, R)>, StoreError> {
    Ok(sets.records::<R>()?.into_iter().map(|record| (record.key(), record)))
}

fn hashes(names: &[(String, String)]) -> Vec<Hash> {
    names.iter().map(|(account, name)| name_hash(account, name)).collect()
}

/// The columns of one of several tables.
pub(super) fn qualified(table: &str, columns: &str) -> String {
    columns.split(',').map(|column| format!("{table}.{}", column.trim())).collect::<Vec<_>>().join(",")
}
