//! Loads what a step wants to see, in one round trip: the wanted kinds only, in the order of the contract.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use deadpool_postgres::ClientWrapper;
use hapax_store::steps::record::Record;
use hapax_store::steps::records::{
    ClaimRec, EventRec, Hash, ItemRec, LaneRec, MessageRec, NameRec, OutRec, ProviderNameRec, ThreadRec, name_hash,
};
use hapax_store::steps::{Loaded, Wanted};
use tokio_postgres::Row;

use super::alone::items_sql;
use super::failure::Failure;
use super::peers;
use super::rows::{Fields, InTable, Param, all_columns, hashes, key_type, numbers, plain_columns, read_all};
use super::sql_call::{SqlCall, run};
use super::texts::escape;

/// A statement in two forms: with row locks, and without.
struct Reading {
    plain: String,
    locked: String,
}

impl Reading {
    /// Rows by their keys, locked in the order of the keys.
    fn by_key<R: InTable>() -> Self {
        let (key, kind) = (R::KEY, key_type::<R>());
        Self::by::<R>(&format!("{key} = ANY($1::{kind}[]) ORDER BY {key}"))
    }

    /// With their bodies.
    fn whole_by_key<R: InTable>() -> Self {
        let (key, kind) = (R::KEY, key_type::<R>());
        let plain = format!("SELECT {} FROM {} WHERE {key} = ANY($1::{kind}[]) ORDER BY {key}", all_columns::<R>(), R::TABLE);
        let locked = format!("{plain} FOR UPDATE");
        Self { plain, locked }
    }

    fn by<R: InTable>(found: &str) -> Self {
        let plain = format!("SELECT {} FROM {} WHERE {found}", plain_columns::<R>(""), R::TABLE);
        let locked = format!("{plain} FOR UPDATE");
        Self { plain, locked }
    }

    /// The first rows for each of the wanted values.
    fn first_of_each<R: InTable>(wanted: &str, found: &str, max: usize) -> Self {
        let each = |lock: &str| {
            format!(
                "SELECT {} FROM UNNEST($1::{wanted}[]) AS w (wanted) CROSS JOIN LATERAL
                 (SELECT {} FROM {} WHERE {found} ORDER BY number LIMIT {max}{lock}) AS r",
                plain_columns::<R>("r."),
                plain_columns::<R>(""),
                R::TABLE
            )
        };
        Self { plain: each(""), locked: each(" FOR UPDATE") }
    }

    fn get(&self, lock: bool) -> &str {
        if lock { &self.locked } else { &self.plain }
    }
}

static LANES: LazyLock<Reading> = LazyLock::new(Reading::by_key::<LaneRec>);
static ITEMS: LazyLock<String> = LazyLock::new(|| items_sql("number = ANY($1::int8[])", "first = ANY($1::int8[])"));
static LOWEST_ITEMS: LazyLock<Reading> =
    LazyLock::new(|| Reading::first_of_each::<ItemRec>("bytea", "lane = w.wanted AND place = 0", 2));
static EVENTS: LazyLock<Reading> = LazyLock::new(Reading::by_key::<EventRec>);
static BODIES: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {} FROM hapax_events WHERE number = ANY($1::int8[])", all_columns::<EventRec>()));
static NAMES: LazyLock<String> = LazyLock::new(|| {
    let (columns, there) = (plain_columns::<NameRec>(""), NameRec::THERE);
    format!("SELECT {columns} FROM hapax_peers WHERE hash = ANY($1::bytea[]) AND {there}")
});
static NAMED: LazyLock<String> = LazyLock::new(|| {
    let columns = plain_columns::<NameRec>("");
    format!(
        "SELECT {columns} FROM hapax_peers WHERE thread = ANY($1::bytea[]) AND thread <> hash
         UNION ALL SELECT {columns} FROM hapax_peers WHERE hash = ANY($1) AND thread = hash"
    )
});
/// A name that leads elsewhere is not locked: who comes by it locks the thread it leads to later, and would wait in a circle for who comes by both.
static THREADS: LazyLock<Reading> = LazyLock::new(|| {
    let columns = plain_columns::<ThreadRec>("");
    let own = "(last_ms IS NOT NULL OR thread = hash)";
    let plain = format!("SELECT {columns} FROM hapax_peers WHERE hash = ANY($1::bytea[]) AND {own} ORDER BY hash");
    let locked = format!("{plain} FOR UPDATE");
    Reading { plain, locked }
});
const SENDING: &str = "SELECT w.account FROM UNNEST($1::text[]) AS w (account)
    WHERE EXISTS (SELECT 1 FROM hapax_outs o WHERE md5(o.account) = md5(w.account) AND o.account = w.account AND o.begun_ms IS NOT NULL)";
static PROVIDER_NAMES: LazyLock<Reading> = LazyLock::new(Reading::by_key::<ProviderNameRec>);
static REQUESTS: LazyLock<Reading> = LazyLock::new(|| Reading::by::<MessageRec>("request = ANY($1::bytea[]) ORDER BY number"));
static MESSAGES: LazyLock<Reading> = LazyLock::new(Reading::by_key::<MessageRec>);
static OUTS: LazyLock<Reading> = LazyLock::new(Reading::by_key::<OutRec>);
static CLAIMS: LazyLock<Reading> = LazyLock::new(Reading::whole_by_key::<ClaimRec>);
static LOWEST_OUTS: LazyLock<Reading> =
    LazyLock::new(|| Reading::first_of_each::<OutRec>("bytea", "lane = w.wanted AND due_ms IS NOT NULL", 2));

/// By channel and account: the replies, and the rest.
const WAITING: &str = "SELECT w.channel, w.account, count(o.number) FILTER (WHERE o.priority = 0), count(o.number) FILTER (WHERE o.priority <> 0)
    FROM UNNEST($1::text[], $2::text[]) AS w (channel, account)
    LEFT JOIN hapax_outs o ON md5(o.account) = md5(w.account) AND o.account = w.account AND o.channel = w.channel AND NOT o.unknown
    GROUP BY w.channel, w.account";

/// Where the rows of a statement go.
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

/// Loads what there is, beside what was `loaded` before; with locks where the contract wants them, or without any.
pub(super) async fn load(client: &ClientWrapper, wanted: &Wanted, lock: bool, mut loaded: Loaded) -> Result<Loaded, Failure> {
    let (parts, asks): (Vec<Part>, Vec<SqlCall<'_>>) = asks(wanted, lock).into_iter().unzip();
    for (part, rows) in parts.into_iter().zip(run(client, &asks).await?) {
        put(&mut loaded, part, &rows)?;
    }
    Ok(loaded)
}

pub(super) fn asks(wanted: &Wanted, lock: bool) -> Vec<(Part, SqlCall<'_>)> {
    let all = [
        (Part::Lanes, LANES.get(lock), some(&wanted.lanes, hashes)),
        (Part::Items, &**ITEMS, some(&wanted.items, numbers)),
        (Part::LowestItems, LOWEST_ITEMS.get(false), some(&wanted.lowest_items, hashes)),
        (Part::Events, EVENTS.get(false), some(&wanted.events, numbers)),
        (Part::Events, EVENTS.get(lock), some(&wanted.locked_events, numbers)),
        (Part::Events, &**BODIES, some(&wanted.bodies, numbers)),
        (Part::Names, &**NAMES, some(&wanted.names, peers::name_hashes)),
        (Part::Threads, THREADS.get(lock), some(&wanted.threads, hashes)),
        (Part::SureNames, &**NAMES, some(&wanted.sure_names, peers::name_hashes)),
        (Part::Names, &**NAMED, some(&wanted.named, hashes)),
        (Part::Sending, SENDING, some(&wanted.sending, texts)),
        (Part::ProviderNames, PROVIDER_NAMES.get(lock), some(&wanted.provider_names, name_hashes)),
        (Part::Messages, REQUESTS.get(lock), some(&wanted.requests, hashes)),
        (Part::Messages, MESSAGES.get(lock), some(&wanted.messages, numbers)),
        (Part::Outs, OUTS.get(lock), some(&wanted.outs, numbers)),
        (Part::Claims, CLAIMS.get(lock), some(&wanted.claims, hashes)),
        (Part::LowestOuts, LOWEST_OUTS.get(lock), some(&wanted.lowest_outs, hashes)),
    ];
    let mut asks: Vec<(Part, SqlCall<'_>)> =
        all.into_iter().filter_map(|(part, sql, param)| Some((part, SqlCall::new(sql, vec![param?])))).collect();
    if !wanted.waiting.is_empty() {
        let (channels, accounts): (Vec<_>, Vec<_>) =
            wanted.waiting.iter().map(|(channel, account)| (escape(channel), escape(account))).unzip();
        asks.push((Part::Waiting, SqlCall::new(WAITING, vec![Box::new(channels), Box::new(accounts)])));
    }
    asks
}

fn some<'w, T>(wanted: &'w [T], param: impl Fn(&'w [T]) -> Param<'w>) -> Option<Param<'w>> {
    (!wanted.is_empty()).then(|| param(wanted))
}

/// A batch names the same account many times; it is looked through once.
fn texts(texts: &[String]) -> Param<'_> {
    let distinct: BTreeSet<&String> = texts.iter().collect();
    Box::new(distinct.into_iter().map(|text| escape(text)).collect::<Vec<_>>())
}

fn name_hashes(names: &[(String, String)]) -> Param<'_> {
    Box::new(names.iter().map(|(account, name)| name_hash(account, name).to_vec()).collect::<Vec<_>>())
}

pub(super) fn put(loaded: &mut Loaded, part: Part, rows: &[Row]) -> Result<(), Failure> {
    match part {
        Part::Lanes => loaded.lanes.extend(read_all::<LaneRec>(rows)?.into_iter().map(|lane| (lane.hash, lane))),
        Part::Items => loaded.items.extend(read_all::<ItemRec>(rows)?.into_iter().map(|item| (item.number, item))),
        Part::LowestItems => {
            for item in read_all::<ItemRec>(rows)? {
                add_lowest(loaded, item.lane, item.number);
                loaded.items.insert(item.number, item);
            }
        }
        Part::Events => loaded.events.extend(read_all::<EventRec>(rows)?.into_iter().map(|event| (event.number, event))),
        Part::Names => {
            let names = read_all::<NameRec>(rows)?.into_iter();
            loaded.names.extend(names.map(|name| ((name.account, name.name), name.peer)));
        }
        Part::SureNames => {
            let names = read_all::<NameRec>(rows)?.into_iter();
            loaded.sure_names.extend(names.map(|name| ((name.account, name.name), name.peer)));
        }
        Part::Threads => loaded.threads.extend(peers::threads(rows)?.into_iter().map(|thread| (thread.key(), thread))),
        Part::Sending => {
            for row in rows {
                loaded.sending.insert(Fields::new(row).text()?);
            }
        }
        Part::ProviderNames => {
            loaded.provider_names.extend(read_all::<ProviderNameRec>(rows)?.into_iter().map(|name| (name.key(), name)));
        }
        Part::Messages => {
            loaded.messages.extend(read_all::<MessageRec>(rows)?.into_iter().map(|message| (message.number, message)));
        }
        Part::Outs => loaded.outs.extend(read_all::<OutRec>(rows)?.into_iter().map(|out| (out.number, out))),
        Part::Claims => loaded.claims.extend(read_all::<ClaimRec>(rows)?.into_iter().map(|claim| (claim.hash, claim))),
        Part::LowestOuts => {
            for out in read_all::<OutRec>(rows)? {
                add_lowest(loaded, out.lane, out.number);
                loaded.outs.insert(out.number, out);
            }
        }
        Part::Waiting => {
            for row in rows {
                let mut fields = Fields::new(row);
                let (channel, account) = (fields.text()?, fields.text()?);
                let (replies, rest) = (fields.number()? as usize, fields.number()? as usize);
                loaded.waiting.insert((channel.clone(), account.clone(), true), replies);
                loaded.waiting.insert((channel, account, false), rest);
            }
        }
    }
    Ok(())
}

fn add_lowest(loaded: &mut Loaded, lane: Hash, number: u64) {
    let lowest = loaded.lowest.entry(lane).or_default();
    lowest.push(number);
    lowest.sort_unstable();
    lowest.dedup();
}
