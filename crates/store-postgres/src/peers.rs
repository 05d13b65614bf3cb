//! Names of peers and their threads: two records in one row, which is found by the hash of the name.
//!
//! Most people are known by the name their thread goes by, so the row of a thread nearly always has both halves, and another name only that of
//! the name. A half that is missing is null.

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use hapax_store::steps::Changes;
use hapax_store::steps::record::{Field, Record, Type, Value};
use hapax_store::steps::records::{Hash, NameRec, ThreadRec, thread_hash};
use tokio_postgres::Row;

use super::even::value_of_all;
use super::failure::Failure;
use super::rows::{
    Fields, InTable, Param, array_of, arrays, hashes, in_order, insert, insert_into, name_of, rows_with, type_of, update, written,
};
use super::sql_call::SqlCall;

/// Those of the rows that have the half of a thread.
pub(super) fn threads(rows: &[Row]) -> Result<Vec<ThreadRec>, Failure> {
    let last = ThreadRec::plain_fields().iter().position(|field| field.column.name == "last_ms").unwrap_or_default();
    let mut threads = Vec::with_capacity(rows.len());
    for row in rows {
        if row.try_get::<_, Option<i64>>(last)?.is_some() {
            threads.push(ThreadRec::read(&mut Fields::new(row))?);
        }
    }
    Ok(threads)
}

/// A name that is new, and the thread that goes by it where that is new too.
struct NewPeer<'c> {
    name: &'c NameRec,
    thread: Option<&'c ThreadRec>,
}

/// The columns that only a thread has.
fn thread_half() -> impl Iterator<Item = &'static Field<ThreadRec>> + Clone {
    ThreadRec::plain_fields().iter().filter(|field| !["account", "peer"].contains(&field.column.name))
}

/// What the new threads of a batch mostly have in common; the rest is what was said last.
fn even_half() -> impl Iterator<Item = &'static Field<ThreadRec>> + Clone {
    thread_half().filter(|field| field.column.name != LAST_WORDS)
}

const LAST_WORDS: &str = "last_text";

/// The statements that put rows with both halves, or that of the name.
struct NewPeers {
    /// What the threads have in common goes as values.
    even: String,
    any: String,
}

static NEW_PEERS: LazyLock<NewPeers> = LazyLock::new(|| {
    let name: Vec<(&str, Type)> =
        written::<NameRec>().map(|field| (name_of::<NameRec>(&field.column), field.column.kind)).collect();
    let thread = |field: &'static Field<ThreadRec>| (name_of::<ThreadRec>(&field.column), field.column.kind);
    let any: Vec<(&str, Type)> = name.iter().copied().chain(thread_half().map(thread)).collect();
    let own: Vec<(&str, Type)> = name.iter().copied().chain([(LAST_WORDS, Type::Text), ("talks", Type::Bool)]).collect();
    let (names, even): (Vec<&str>, Vec<(&str, Type)>) =
        (name.iter().map(|(name, _)| *name).collect(), even_half().map(thread).collect());
    let value = |(at, (_, kind)): (usize, &(&str, Type))| {
        format!("CASE WHEN n.talks THEN ${}::{} END", own.len() + 1 + at, type_of(*kind))
    };
    let even_sql = format!(
        "INSERT INTO hapax_peers ({}, {LAST_WORDS}, {}) SELECT n.{}, n.{LAST_WORDS}, {} FROM {}",
        names.join(", "),
        even.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        names.join(", n."),
        even.iter().enumerate().map(value).collect::<Vec<_>>().join(", "),
        rows_with(&own)
    );
    NewPeers { even: even_sql, any: insert_into("hapax_peers", &any) }
});

fn put_new<'c>(new: &[NewPeer<'c>]) -> SqlCall<'c> {
    let name = written::<NameRec>().map(|field| array_of(field.column.kind, new.iter().map(|peer| (field.value)(peer.name))));
    let name: Vec<Param<'c>> = name.collect();
    let threads = || new.iter().filter_map(|peer| peer.thread);
    let even: Option<Vec<Param<'c>>> =
        even_half().map(|field| value_of_all(field.column.kind, threads().map(|thread| (field.value)(thread)))).collect();
    let half = |field: &'static Field<ThreadRec>| {
        let value = |peer: &NewPeer<'c>| peer.thread.map_or(Value::Null, |thread| (field.value)(thread));
        array_of(field.column.kind, new.iter().map(value))
    };
    let Some(even) = even else {
        return SqlCall::new(&*NEW_PEERS.any, name.into_iter().chain(thread_half().map(half)).collect());
    };
    let said = thread_half().filter(|field| field.column.name == LAST_WORDS).map(half);
    let talks = array_of(Type::Bool, new.iter().map(|peer| Value::Bool(peer.thread.is_some())));
    SqlCall::new(&*NEW_PEERS.even, name.into_iter().chain(said).chain([talks]).chain(even).collect())
}

/// The rest of a row that is there, or a row that may be there.
fn over<R: InTable>(half: impl Iterator<Item = &'static str>) -> String {
    let sets: Vec<String> = half.map(|column| format!("{column} = excluded.{column}")).collect();
    format!("{} ON CONFLICT (hash) DO UPDATE SET {}", insert::<R>(), sets.join(", "))
}

static NAMES: LazyLock<String> = LazyLock::new(|| {
    let changed = "WHERE hapax_peers.thread IS DISTINCT FROM excluded.thread";
    format!("{} {changed}", over::<NameRec>(["peer", "thread"].into_iter()))
});
static NEW_THREADS: LazyLock<String> =
    LazyLock::new(|| over::<ThreadRec>(thread_half().map(|field| name_of::<ThreadRec>(&field.column))));
static THREADS: LazyLock<String> = LazyLock::new(update::<ThreadRec>);

/// A thread goes with all names that lead to it. What of its row, or of theirs, is another's stays.
const GONE: [&str; 4] = [
    "UPDATE hapax_peers SET peer = NULL, thread = NULL
     WHERE thread = ANY($1::bytea[]) AND thread <> hash AND last_ms IS NOT NULL AND hash <> ALL($1)",
    "DELETE FROM hapax_peers WHERE thread = ANY($1::bytea[]) AND thread <> hash",
    "DELETE FROM hapax_peers WHERE hash = ANY($1::bytea[]) AND (thread IS NULL OR thread = hash)",
    "UPDATE hapax_peers SET channel = NULL, last_ms = NULL, last_text = NULL, last_out = NULL, unread = NULL, purged_to = NULL,
     read_to = NULL WHERE hash = ANY($1::bytea[])",
];

/// The statements that write names and threads.
///
/// A name that is new has no row, unless that of a thread which goes by it was changed in the same step: such a thread is locked, and changed, by
/// whoever learns its name. A row that is there although it should not be is somebody else's who was faster.
pub(super) fn asks<'c>(changes: &'c Changes, asks: &mut Vec<SqlCall<'c>>) {
    let key = |thread: &ThreadRec| thread_hash(&thread.account, &thread.peer);
    let mut new_threads: BTreeMap<Hash, &ThreadRec> = changes.new_threads.iter().map(|thread| (key(thread), thread)).collect();
    let there: HashSet<Hash> =
        if changes.new_names.is_empty() { HashSet::new() } else { changes.threads.iter().map(key).collect() };
    let mut new: BTreeMap<Hash, NewPeer<'_>> = BTreeMap::new();
    let mut names: Vec<&NameRec> = changes.names.iter().collect();
    for name in &changes.new_names {
        let hash = thread_hash(&name.account, &name.name);
        if changes.moved || there.contains(&hash) {
            names.push(name);
        } else {
            new.insert(hash, NewPeer { name, thread: new_threads.remove(&hash) });
        }
    }
    if !new.is_empty() {
        asks.push(put_new(&new.into_values().collect::<Vec<_>>()));
    }
    if !names.is_empty() {
        names.sort_by_cached_key(|name| thread_hash(&name.account, &name.name));
        asks.push(SqlCall::new(&**NAMES, arrays(&names)));
    }
    if !new_threads.is_empty() {
        asks.push(SqlCall::new(&**NEW_THREADS, arrays(&new_threads.into_values().collect::<Vec<_>>())));
    }
    if !changes.threads.is_empty() {
        asks.push(SqlCall::new(&**THREADS, arrays(&in_order(&changes.threads))));
    }
    if !changes.gone_threads.is_empty() {
        asks.extend(GONE.iter().map(|sql| SqlCall::new(*sql, vec![hashes(&changes.gone_threads)])));
    }
}

/// Names by the accounts and names themselves, as parameters.
pub(super) fn name_hashes(names: &[(String, String)]) -> Param<'_> {
    Box::new(names.iter().map(|(account, name)| thread_hash(account, name).to_vec()).collect::<Vec<_>>())
}
