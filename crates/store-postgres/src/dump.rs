//! Whole tables in pages, to be moved to another store; and the little that an import needs beside the steps.

use deadpool_postgres::ClientWrapper;
use hapax_domain::{EventId, ids};
use hapax_store::registers::Register;
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, ClaimRec, EventRec, KeyRec, MessageRec, NameRec, ProviderNameRec, Queue, ThreadRec, thread_hash,
};
use hapax_store::{After, Copies, Moved, PausedAccount, Table};

use super::failure::Failure;
use super::rows::{Fields, InTable, Param, plain_columns, read_all};
use super::sql_call::{SqlCall, run_one};
use super::texts::escape;
use super::tx::BLOCK;

pub(super) async fn dump(
    client: &ClientWrapper,
    table: Table,
    after: Option<&After>,
    limit: usize,
) -> Result<Vec<Moved>, Failure> {
    match table {
        Table::Keys => page::<KeyRec>(client, after, limit, Moved::Key).await,
        Table::Threads => page::<ThreadRec>(client, after, limit, Moved::Thread).await,
        Table::Names => page::<NameRec>(client, after, limit, Moved::Name).await,
        Table::Events => page::<EventRec>(client, after, limit, Moved::Event).await,
        Table::Answers => page::<AnswerRec>(client, after, limit, Moved::Answer).await,
        Table::Messages => page::<MessageRec>(client, after, limit, Moved::Message).await,
        Table::ProviderNames => page::<ProviderNameRec>(client, after, limit, Moved::ProviderName).await,
        Table::Claims => page::<ClaimRec>(client, after, limit, |claim| Moved::Claim(Box::new(claim))).await,
        Table::Attempts => attempts(client, after, limit).await,
        Table::Copies => copies(client, after, limit).await,
        Table::Settings => settings(client, after, limit).await,
        Table::Pieces => super::pieces::dump(client, after, limit).await,
        Table::Paused | Table::Items | Table::Outs => Ok(Vec::new()),
    }
}

/// A page by the first column, which is the key.
async fn page<R: InTable>(
    client: &ClientWrapper,
    after: Option<&After>,
    limit: usize,
    moved: fn(R) -> Moved,
) -> Result<Vec<Moved>, Failure> {
    let key = R::KEY;
    let mut params: Vec<Param<'_>> = vec![Box::new(limit as i64)];
    let mut which = format!("WHERE {}", R::THERE);
    match after {
        Some(After::Number(number)) => params.push(Box::new(*number as i64)),
        Some(After::Hash(hash)) => params.push(Box::new(&hash[..])),
        Some(After::Name(Some((account, name)))) => params.push(Box::new(thread_hash(account, name).to_vec())),
        _ => {}
    }
    if params.len() > 1 {
        which.push_str(&format!(" AND {key} > $2"));
    }
    let sql = format!("SELECT {} FROM {} {which} ORDER BY {key} LIMIT $1::int8", plain_columns::<R>(""), R::TABLE);
    Ok(read_all(&run_one(client, SqlCall::new(sql, params)).await?)?.into_iter().map(moved).collect())
}

async fn attempts(client: &ClientWrapper, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, Failure> {
    let (queue, of, fence) = match after {
        Some(After::Attempt(queue, of, fence)) => (queue.code(), *of as i64, *fence as i64),
        _ => (Queue::Inbox.code(), 0, 0),
    };
    let sql = format!(
        "SELECT {} FROM hapax_attempts WHERE (queue, made_for, fence) > ($1, $2, $3)
         ORDER BY queue, made_for, fence LIMIT $4::int8",
        plain_columns::<AttemptRec>("")
    );
    let params: Vec<Param<'_>> = vec![Box::new(queue), Box::new(of), Box::new(fence), Box::new(limit as i64)];
    Ok(read_all(&run_one(client, SqlCall::new(sql, params)).await?)?.into_iter().map(Moved::Attempt).collect())
}

const COPIES: &str = "SELECT c.event, e.received_ms, c.copies, c.conflicts, c.last_ms, c.kept FROM hapax_copies c
    JOIN hapax_events e ON e.number = c.event WHERE c.event > $1 ORDER BY c.event LIMIT $2::int8";

async fn copies(client: &ClientWrapper, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, Failure> {
    let after = match after {
        Some(After::Number(number)) => *number as i64,
        _ => 0,
    };
    let rows = run_one(client, SqlCall::new(COPIES, vec![Box::new(after), Box::new(limit as i64)])).await?;
    let read = |row| {
        let mut fields = Fields::new(row);
        let (number, received_ms) = (fields.number()?, fields.take()?);
        let event = EventId(ids::numbered(received_ms, number));
        let (copies, conflicts, last_ms) = (fields.number()?, fields.number()?, fields.take()?);
        Ok(Moved::Copies(Copies { event, copies, conflicts, last_ms, kept: Copies::read_kept(&fields.text()?) }))
    };
    rows.iter().map(read).collect()
}

const SETTINGS: &str = "SELECT name, value, expires_ms FROM hapax_settings WHERE $1::text IS NULL OR name > $1
    ORDER BY name LIMIT $2::int8";

async fn settings(client: &ClientWrapper, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, Failure> {
    let after = match after {
        Some(After::Setting(name)) => Some(escape(name)),
        _ => None,
    };
    let rows = run_one(client, SqlCall::new(SETTINGS, vec![Box::new(after), Box::new(limit as i64)])).await?;
    let read = |row| {
        let mut fields = Fields::new(row);
        let (name, value) = (fields.text()?, fields.text()?);
        Ok(Moved::Setting { name, register: Register { value, ends_ms: fields.take()? } })
    };
    rows.iter().map(read).collect()
}

pub(super) async fn put_paused(client: &ClientWrapper, paused: &PausedAccount) -> Result<(), Failure> {
    super::upkeep::pause(client, &paused.channel, &paused.account, Some(&paused.why), paused.since_ms).await
}

pub(super) async fn forget(client: &ClientWrapper, name: &str) -> Result<(), Failure> {
    let ask = SqlCall::new("DELETE FROM hapax_settings WHERE name = $1", vec![Box::new(escape(name))]);
    run_one(client, ask).await.map(|_| ())
}

/// One value of the sequence stands for a block of numbers: the next one must begin above.
const RAISE: &str = "SELECT setval('hapax_numbers', GREATEST(nextval('hapax_numbers'), $1::int8))";

pub(super) async fn raise_numbers(client: &ClientWrapper, above: u64) -> Result<(), Failure> {
    run_one(client, SqlCall::new(RAISE, vec![Box::new((above / BLOCK) as i64)])).await.map(|_| ())
}
