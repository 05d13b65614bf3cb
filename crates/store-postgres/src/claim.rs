//! Who holds a key: one INSERT decides it, and nothing is read before.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use deadpool_postgres::ClientWrapper;
use hapax_store::steps::record::Record;
use hapax_store::steps::records::{Hash, KeyRec};

use super::failure::Failure;
use super::rows::{Fields, Param, all_columns, arrays, in_order, insert, read_all, rows_of};
use super::sql_call::{SqlCall, run_one};

/// Waits for whoever is about to commit the same key. Rows that are there already are neither locked nor written, so that a storm of
/// copies costs the server no more than looking.
static CLAIM: LazyLock<String> = LazyLock::new(|| format!("{} ON CONFLICT (key) DO NOTHING RETURNING key", insert::<KeyRec>()));

static HOLDERS: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {} FROM hapax_keys WHERE key = ANY($1::bytea[])", all_columns::<KeyRec>()));

/// Takes over keys whose window is over.
static TAKE_OVER: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE hapax_keys AS t SET event = n.event, at_ms = n.at_ms, fingerprint = n.fingerprint, expires_ms = n.expires_ms
         FROM {} WHERE t.key = n.key AND t.expires_ms <= $6::int8 RETURNING t.key",
        rows_of::<KeyRec>(KeyRec::FIELDS.iter())
    )
});

/// For each of the keys, who else holds it; `None` when it is ours now. Those that were `tried` with the beginning are not tried again.
pub(super) async fn claim(
    client: &ClientWrapper,
    keys: &[KeyRec],
    now_ms: i64,
    mut tried: Option<HashSet<Hash>>,
) -> Result<Vec<Option<KeyRec>>, Failure> {
    let mut open = in_order(keys);
    let mut holders: HashMap<Hash, KeyRec> = HashMap::new();
    while !open.is_empty() {
        let won = match tried.take() {
            Some(won) => won,
            None => won(client, SqlCall::new(&**CLAIM, arrays(&open))).await?,
        };
        open.retain(|key| !won.contains(&key.key));
        if open.is_empty() {
            break;
        }
        let held: HashMap<Hash, KeyRec> = holders_of(client, &open).await?;
        let over = |key: &&KeyRec| held.get(&key.key).is_some_and(|holder| holder.expires_ms <= now_ms);
        let expired: Vec<&KeyRec> = open.iter().copied().filter(over).collect();
        // One that was purged, or that another instance took over since, is tried again.
        let taken = if expired.is_empty() { HashSet::new() } else { take_over(client, &expired, now_ms).await? };
        open.retain(|key| !taken.contains(&key.key) && held.get(&key.key).is_none_or(|holder| holder.expires_ms <= now_ms));
        holders.extend(held.into_iter().filter(|(_, holder)| holder.expires_ms > now_ms));
    }
    Ok(keys.iter().map(|key| holders.remove(&key.key)).collect())
}

async fn won(client: &ClientWrapper, ask: SqlCall<'_>) -> Result<HashSet<Hash>, Failure> {
    run_one(client, ask).await?.iter().map(|row| Fields::new(row).hash()).collect()
}

async fn holders_of(client: &ClientWrapper, keys: &[&KeyRec]) -> Result<HashMap<Hash, KeyRec>, Failure> {
    let wanted: Vec<&[u8]> = keys.iter().map(|key| &key.key[..]).collect();
    let rows = run_one(client, SqlCall::new(&**HOLDERS, vec![Box::new(wanted)])).await?;
    Ok(read_all::<KeyRec>(&rows)?.into_iter().map(|key| (key.key, key)).collect())
}

async fn take_over(client: &ClientWrapper, keys: &[&KeyRec], now_ms: i64) -> Result<HashSet<Hash>, Failure> {
    let mut params: Vec<Param<'_>> = arrays(keys);
    params.push(Box::new(now_ms));
    won(client, SqlCall::new(&**TAKE_OVER, params)).await
}
