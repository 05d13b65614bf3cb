//! Names of peers and their threads: two records in one row, which is found by the hash of the name.
//!
//! Most people are known by the name their thread goes by, so the row of a thread nearly always has both halves, and another name only that of
//! the name. A half that is missing is null.

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use hapax_store::StoreError;
use hapax_store::steps::Changes;
use hapax_store::steps::record::{Field, Record, Value};
use hapax_store::steps::records::{Hash, NameRec, ThreadRec, thread_hash};

use super::link::Sets;
use super::rows::{InTable, name_of, put, written};
use super::save::in_order;
use super::sql::{List, ROWS_MAX, Sql, Values};

/// Those of the rows that have the half of a thread.
pub(super) fn threads(sets: &mut Sets) -> Result<Vec<ThreadRec>, StoreError> {
    let last = ThreadRec::plain_fields().iter().position(|field| field.column.name == "last_ms").unwrap_or_default();
    let rows = sets.read(|fields| if fields.is_null(last) { Ok(None) } else { ThreadRec::read(fields).map(Some) })?;
    Ok(rows.into_iter().flatten().collect())
}

/// A name that is new, and the thread that goes by it where that is new too.
struct NewPeer<'c> {
    name: &'c NameRec,
    thread: Option<&'c ThreadRec>,
}

/// The columns that only a thread has.
fn thread_half() -> impl Iterator<Item = &'static Field<ThreadRec>> {
    written::<ThreadRec>().filter(|field| !["account", "peer", "hash"].contains(&field.column.name))
}

static NEW_PEERS: LazyLock<String> = LazyLock::new(|| {
    let name = written::<NameRec>().map(|field| name_of::<NameRec>(&field.column));
    let thread = thread_half().map(|field| name_of::<ThreadRec>(&field.column));
    format!("INSERT INTO hapax_peers ({}) VALUES ", name.chain(thread).collect::<Vec<_>>().join(","))
});

/// Writes names and threads.
///
/// A name that is new has no row, unless that of a thread which goes by it was changed in the same step: such a thread is locked, and changed, by
/// whoever learns its name. A row that is there although it should not be is somebody else's who was faster.
pub(super) fn save(sql: &mut Sql, changes: &Changes) {
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
    names.sort_by_cached_key(|name| thread_hash(&name.account, &name.name));
    put_over(sql, &names);
    sql.add_rows(&NEW_PEERS, &new.into_values().collect::<Vec<_>>(), "", put_peer);
    put_over(sql, &new_threads.into_values().collect::<Vec<_>>());
    put_over(sql, &in_order(&changes.threads));
    remove(sql, &changes.gone_threads);
}

fn put_peer(peer: &NewPeer<'_>, values: &mut Values<'_>) {
    put(peer.name, values);
    for field in thread_half() {
        values.put(peer.thread.map_or(Value::Null, |thread| (field.value)(thread)));
    }
}

/// The half of a row that is there or not.
fn put_over<R: InTable>(sql: &mut Sql, records: &[&R]) {
    sql.add_rows(&R::texts().insert, records, &R::texts().over, |record, values| put(*record, values));
}

/// A thread goes with all names that lead to it. What of its row, or of theirs, is another's stays.
fn remove(sql: &mut Sql, gone: &[Hash]) {
    let mut gone = gone.to_vec();
    gone.sort_unstable();
    for some in gone.chunks(ROWS_MAX) {
        let some = List(some);
        let leave = "UPDATE hapax_peers FORCE INDEX (of_thread) SET peer = NULL, thread = NULL
                     WHERE thread IN ? AND thread <> hash AND last_ms IS NOT NULL AND hash NOT IN ?";
        sql.add(leave, &[&some, &some]);
        let leading = "DELETE p FROM hapax_peers AS p FORCE INDEX (of_thread) WHERE p.thread IN ? AND p.thread <> p.hash";
        sql.add(leading, &[&some]);
        sql.add("DELETE FROM hapax_peers WHERE hash IN ? AND (thread IS NULL OR thread = hash)", &[&some]);
        let silence = "UPDATE hapax_peers SET channel = NULL, last_ms = NULL, last_text = NULL, last_out = NULL, unread = NULL,
                       purged_to = NULL, read_to = NULL, channel_key = NULL, account_key = NULL WHERE hash IN ?";
        sql.add(silence, &[&some]);
    }
}
