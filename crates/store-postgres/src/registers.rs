//! Settings, and registers that end after a time. A row that is over is taken for none, and purge removes it.

use deadpool_postgres::ClientWrapper;
use hapax_store::registers::Register;

use super::failure::Failure;
use super::rows::{Fields, Param};
use super::sql_call::{SqlCall, run_one};
use super::texts::escape;

/// Writes a statement in which `$1` is the time in place of the server's.
macro_rules! at_now {
    ($($part:literal)+) => {
        concat!(
            "WITH t AS (SELECT coalesce($1::int8, (extract(epoch FROM clock_timestamp()) * 1000)::int8) AS now_ms) ",
            $($part),+
        )
    };
}

const LOOK: &str =
    at_now!("SELECT s.value FROM hapax_settings s, t WHERE s.name = $2 AND (s.expires_ms IS NULL OR s.expires_ms > t.now_ms)");
/// What is over is in nobody's way.
const PUT: &str = at_now!(
    "INSERT INTO hapax_settings AS s (name, value, expires_ms) SELECT $2, $3, t.now_ms + $4::int8 FROM t
     ON CONFLICT (name) DO UPDATE SET value = excluded.value, expires_ms = excluded.expires_ms
     WHERE s.expires_ms <= (SELECT now_ms FROM t) RETURNING 1"
);
const REPLACE: &str = at_now!(
    "UPDATE hapax_settings s SET value = $3, expires_ms = t.now_ms + $4::int8 FROM t
     WHERE s.name = $2 AND s.value = $5 AND (s.expires_ms IS NULL OR s.expires_ms > t.now_ms) RETURNING 1"
);
const FORGET: &str = at_now!(
    "DELETE FROM hapax_settings s USING t
     WHERE s.name = $2 AND s.value = $3 AND (s.expires_ms IS NULL OR s.expires_ms > t.now_ms) RETURNING 1"
);

/// `now_ms` stands in for the server's clock.
pub(super) async fn amend(
    client: &ClientWrapper,
    name: &str,
    (expected, new): (Option<&str>, Option<&str>),
    keep_ms: Option<i64>,
    now_ms: Option<i64>,
) -> Result<Option<String>, Failure> {
    let at = || -> Vec<Param<'_>> { vec![Box::new(now_ms), Box::new(escape(name))] };
    let change = match (expected, new) {
        (None, None) => None,
        (None, Some(new)) => Some((PUT, vec![Box::new(escape(new)) as Param<'_>, Box::new(keep_ms)])),
        (Some(old), None) => Some((FORGET, vec![Box::new(escape(old)) as Param<'_>])),
        (Some(old), Some(new)) => {
            Some((REPLACE, vec![Box::new(escape(new)) as Param<'_>, Box::new(keep_ms), Box::new(escape(old))]))
        }
    };
    // Who has changed it has won, whatever others have made of it since.
    if let Some((sql, more)) = change
        && !run_one(client, SqlCall::new(sql, at().into_iter().chain(more).collect())).await?.is_empty()
    {
        return Ok(new.map(str::to_owned));
    }
    let found = run_one(client, SqlCall::new(LOOK, at())).await?;
    found.first().map(|row| Fields::new(row).text()).transpose()
}

const PUT_MOVED: &str = "INSERT INTO hapax_settings (name, value, expires_ms) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING";

pub(super) async fn put(client: &ClientWrapper, name: &str, register: &Register) -> Result<(), Failure> {
    let params: Vec<Param<'_>> = vec![Box::new(escape(name)), Box::new(escape(&register.value)), Box::new(register.ends_ms)];
    run_one(client, SqlCall::new(PUT_MOVED, params)).await.map(|_| ())
}

/// Whoever has one locked is about to put it anew.
const PURGE: &str = "DELETE FROM hapax_settings WHERE name IN
    (SELECT name FROM hapax_settings WHERE expires_ms <= $1::int8 ORDER BY expires_ms LIMIT $2::int8 FOR UPDATE SKIP LOCKED) RETURNING 1";

pub(super) async fn purge(client: &ClientWrapper, max: usize, now_ms: i64) -> Result<u64, Failure> {
    let over = SqlCall::new(PURGE, vec![Box::new(now_ms), Box::new(max as i64)]);
    Ok(run_one(client, over).await?.len() as u64)
}
