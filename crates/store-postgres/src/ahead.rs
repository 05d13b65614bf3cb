//! Begins a transaction with what its step looks at first.

use std::collections::HashSet;

use deadpool_postgres::ClientWrapper;
use futures_util::future::{join, join_all};
use hapax_store::steps::{Ahead, First, FirstKey, Loaded};

use super::failure::Failure;
use super::load::{self, Part};
use super::rows::Fields;
use super::sql_call::{SqlCall, prepare, send};

/// Draws one value of the sequence, and claims the keys with numbers of its block. The condition is that of `claim.rs`.
const CLAIM: &str = "WITH t AS MATERIALIZED (
        SELECT nextval('hapax_numbers') AS block, coalesce($5::int8, (extract(epoch FROM clock_timestamp()) * 1000)::int8) AS now_ms
    ), won AS (
        INSERT INTO hapax_keys (key, event, at_ms, fingerprint, expires_ms)
        SELECT n.key, t.block * $6::int8 + n.nth, t.now_ms, n.fingerprint, t.now_ms + n.window_ms
        FROM t CROSS JOIN UNNEST($1::bytea[], $2::int8[], $3::int4[], $4::int8[]) AS n (key, nth, fingerprint, window_ms)
        ON CONFLICT (key) DO NOTHING RETURNING key
    ) SELECT t.block, t.now_ms, won.key FROM t LEFT JOIN won ON true";

/// The value of the sequence, the time, and what was asked for ahead.
pub(super) type Begun = (u64, i64, Ahead);

/// Begins a transaction, claims, and loads. `now_ms` in place of the server's clock.
pub(super) async fn begin(client: &ClientWrapper, first: &First, block: u64, now_ms: Option<i64>) -> Result<Begun, Failure> {
    let wanted = Ahead::wanted(first);
    let (parts, loads): (Vec<Part>, Vec<SqlCall<'_>>) = load::asks(&wanted, true).into_iter().unzip();
    let mut asks = vec![claim(&first.claimed, block, now_ms)];
    asks.extend(loads);
    // Known to the connection before the transaction begins, so that all goes in one round trip.
    let statements = prepare(client, &asks).await?;
    let sent = join_all(asks.iter().zip(&statements).map(|(ask, statement)| send(client, statement, ask)));
    let (begun, answers) = join(client.batch_execute("BEGIN"), sent).await;
    begun?;
    let mut answers = answers.into_iter();
    let (mut drawn, mut now_ms, mut won) = (0, 0, HashSet::new());
    for row in answers.next().unwrap_or_else(|| Ok(Vec::new()))? {
        let mut fields = Fields::new(&row);
        (drawn, now_ms) = (fields.number()?, fields.take()?);
        won.extend(fields.maybe_hash()?);
    }
    let mut loaded = Loaded::default();
    for (part, rows) in parts.into_iter().zip(answers) {
        load::put(&mut loaded, part, &rows?)?;
    }
    Ok((drawn, now_ms, Ahead::new(first, won, &wanted, loaded)))
}

fn claim(keys: &[FirstKey], block: u64, now_ms: Option<i64>) -> SqlCall<'_> {
    let hashes: Vec<&[u8]> = keys.iter().map(|key| &key.key[..]).collect();
    let nths: Vec<i64> = keys.iter().map(|key| key.nth as i64).collect();
    let fingerprints: Vec<i32> = keys.iter().map(|key| key.fingerprint as i32).collect();
    let windows: Vec<i64> = keys.iter().map(|key| key.window_ms).collect();
    let params = vec![
        Box::new(hashes) as _,
        Box::new(nths) as _,
        Box::new(fingerprints) as _,
        Box::new(windows) as _,
        Box::new(now_ms) as _,
        Box::new(block as i64) as _,
    ];
    SqlCall::new(CLAIM, params)
}
