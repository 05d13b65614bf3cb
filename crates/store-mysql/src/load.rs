//! Loading what a step wants to see: one packet of statements, in the order of [`Wanted`], and what they answered.

use hapax_store::StoreError;
use hapax_store::steps::records::{Hash, Place, name_hash, thread_hash};
use hapax_store::steps::{Loaded, Wanted};

use super::link::Sets;
use super::rows::{
    EVENT, EVENT_CARRIED, ITEM, LANE, MESSAGE, NAME, OUT, PROVIDER_NAME, THREAD, read_event, read_event_with_body, read_item,
    read_lane, read_message, read_name, read_out, read_provider_name, read_thread,
};
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
    Bodies,
    Names,
    Threads,
    SureNames,
    Sending,
    ProviderNames,
    Messages,
    Outs,
    LowestOuts,
    Waiting,
}

impl Asked {
    /// With `lock`, what the contract wants locked is locked until the end of the transaction, in the order of its key. The index is
    /// named each time: looking through a whole table, which the server may prefer while it is small, would lock what others work on.
    pub(super) fn of(wanted: &Wanted, lock: bool) -> Asked {
        let mut asked = Asked { sql: Sql::default(), parts: Vec::new() };
        let lock = if lock { " FOR UPDATE" } else { "" };
        asked.by(Part::Lanes, LANE, "hapax_lanes", "PRIMARY", "hash", &wanted.lanes, lock);
        asked.by(Part::Items, ITEM, "hapax_items", "PRIMARY", "number", &wanted.items, "");
        asked.lowest_items(&wanted.lowest_items);
        asked.by(Part::Events, EVENT, "hapax_events", "PRIMARY", "number", &wanted.events, "");
        asked.by(Part::Events, EVENT, "hapax_events", "PRIMARY", "number", &wanted.locked_events, lock);
        let with_body = format!("{EVENT},{EVENT_CARRIED}");
        asked.by(Part::Bodies, &with_body, "hapax_events", "PRIMARY", "number", &wanted.bodies, "");
        asked.by(Part::Names, NAME, "hapax_names", "PRIMARY", "hash", &hashes(&wanted.names), "");
        asked.by(Part::Threads, THREAD, "hapax_threads", "PRIMARY", "hash", &wanted.threads, lock);
        asked.by(Part::SureNames, NAME, "hapax_names", "PRIMARY", "hash", &hashes(&wanted.sure_names), "");
        asked.by(Part::Names, NAME, "hapax_names", "of_thread", "thread", &wanted.named, "");
        for account in &wanted.sending {
            let sending =
                "SELECT account FROM hapax_outs FORCE INDEX (begun) WHERE account_key = ? AND begun_ms IS NOT NULL LIMIT 1";
            asked.add(Part::Sending, sending, &[&account_key(account)]);
        }
        let names = hashes(&wanted.provider_names);
        asked.by(Part::ProviderNames, PROVIDER_NAME, "hapax_provider_names", "PRIMARY", "hash", &names, lock);
        asked.by(Part::Messages, MESSAGE, "hapax_messages", "request", "request", &wanted.requests, lock);
        asked.by(Part::Messages, MESSAGE, "hapax_messages", "PRIMARY", "number", &wanted.messages, lock);
        asked.by(Part::Outs, OUT, "hapax_outs", "PRIMARY", "number", &wanted.outs, lock);
        for lane in &wanted.lowest_outs {
            let lowest =
                "SELECT ? FROM hapax_outs FORCE INDEX (line) WHERE lane = ? AND due_ms IS NOT NULL ORDER BY number LIMIT 2?";
            asked.add(Part::LowestOuts, lowest, &[&Raw(OUT), lane, &Raw(lock)]);
        }
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

    #[expect(clippy::too_many_arguments, reason = "one line for each list of `Wanted`")]
    fn by<T: Literal + Ord + Clone>(
        &mut self,
        part: Part,
        columns: &str,
        table: &str,
        index: &str,
        key: &str,
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

    /// One statement for all lanes: MariaDB has no `LATERAL`.
    fn lowest_items(&mut self, lanes: &[Hash]) {
        for some in lanes.chunks(ROWS_MAX / 5) {
            let one = "(SELECT ? FROM hapax_items FORCE INDEX (line) WHERE lane = ? AND place = ? ORDER BY number LIMIT 2)";
            let all = vec![one; some.len()].join(" UNION ALL ");
            let place = Place::InLane.code();
            let values: Vec<&dyn Literal> = some.iter().flat_map(|lane| [&Raw(ITEM) as &dyn Literal, lane, &place]).collect();
            self.add(Part::LowestItems, &all, &values);
        }
    }

    /// Reads what the statements answered.
    pub(super) fn read(parts: &[Part], mut sets: Sets) -> Result<Loaded, StoreError> {
        let mut loaded = Loaded::default();
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
        Part::Lanes => loaded.lanes.extend(sets.read(read_lane)?.into_iter().map(|lane| (lane.hash, lane))),
        Part::Items => loaded.items.extend(sets.read(read_item)?.into_iter().map(|item| (item.number, item))),
        Part::LowestItems => {
            for item in sets.read(read_item)? {
                loaded.lowest.entry(item.lane).or_default().push(item.number);
                loaded.items.insert(item.number, item);
            }
        }
        // An event that is wanted both ways keeps what it carries: bodies come after.
        Part::Events => loaded.events.extend(sets.read(read_event)?.into_iter().map(|event| (event.number, event))),
        Part::Bodies => {
            loaded.events.extend(sets.read(read_event_with_body)?.into_iter().map(|event| (event.number, event)));
        }
        Part::Names => {
            let names = sets.read(read_name)?.into_iter();
            loaded.names.extend(names.map(|name| ((name.account, name.name), name.peer)));
        }
        Part::SureNames => {
            let names = sets.read(read_name)?.into_iter();
            loaded.sure_names.extend(names.map(|name| ((name.account, name.name), name.peer)));
        }
        Part::Threads => {
            let threads = sets.read(read_thread)?.into_iter();
            loaded.threads.extend(threads.map(|thread| (thread_hash(&thread.account, &thread.peer), thread)));
        }
        Part::Sending => loaded.sending.extend(sets.read(|fields| fields.next::<String>())?),
        Part::ProviderNames => {
            let names = sets.read(read_provider_name)?.into_iter();
            loaded.provider_names.extend(names.map(|name| (name_hash(&name.account, &name.provider_id), name)));
        }
        Part::Messages => {
            loaded.messages.extend(sets.read(read_message)?.into_iter().map(|message| (message.number, message)));
        }
        Part::Outs => loaded.outs.extend(sets.read(read_out)?.into_iter().map(|out| (out.number, out))),
        Part::LowestOuts => {
            for out in sets.read(read_out)? {
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

fn hashes(names: &[(String, String)]) -> Vec<Hash> {
    names.iter().map(|(account, name)| name_hash(account, name)).collect()
}

/// The columns of one of several tables.
pub(super) fn qualified(table: &str, columns: &str) -> String {
    columns.split(',').map(|column| format!("{table}.{}", column.trim())).collect::<Vec<_>>().join(",")
}
