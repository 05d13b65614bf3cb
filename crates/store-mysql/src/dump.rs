//! Whole tables in pages, to be moved to another store; and the little that an import needs beside the steps.

use hapax_domain::{EventId, ids};
use hapax_store::steps::records::{AnswerRec, Queue};
use hapax_store::{After, Copies, Moved, PausedAccount, StoreError, Table};

use super::MysqlEngine;
use super::rows::{
    ANSWER, ATTEMPT, EVENT, KEY, MESSAGE, NAME, PROVIDER_NAME, THREAD, read_answer, read_attempt, read_event, read_key,
    read_message, read_name, read_provider_name, read_thread,
};
use super::sql::{Fields, Raw, Sql, account_key, channel_key};
use super::tx::BLOCK;
use super::upkeep::{setting_hash, write};

type Read = fn(&mut Fields) -> Result<Moved, StoreError>;

pub(super) async fn dump(
    engine: &MysqlEngine,
    table: Table,
    after: Option<&After>,
    limit: usize,
) -> Result<Vec<Moved>, StoreError> {
    let (name, key, columns, read): (&str, &str, &str, Read) = match table {
        Table::Keys => ("hapax_keys", "k", KEY, |fields| Ok(Moved::Key(read_key(fields)?))),
        Table::Threads => ("hapax_threads", "hash", THREAD, |fields| Ok(Moved::Thread(read_thread(fields)?))),
        Table::Names => ("hapax_names", "hash", NAME, |fields| Ok(Moved::Name(read_name(fields)?))),
        Table::Events => ("hapax_events", "number", EVENT, |fields| Ok(Moved::Event(read_event(fields)?))),
        Table::Messages => ("hapax_messages", "number", MESSAGE, |fields| Ok(Moved::Message(read_message(fields)?))),
        Table::ProviderNames => {
            ("hapax_provider_names", "hash", PROVIDER_NAME, |fields| Ok(Moved::ProviderName(read_provider_name(fields)?)))
        }
        Table::Answers => ("hapax_answers", "event", ANSWERS, moved_answer),
        Table::Copies => return copies(engine, after, limit).await,
        Table::Attempts => return attempts(engine, after, limit).await,
        Table::Settings => return settings(engine).await,
        Table::Paused | Table::Items | Table::Outs => return Ok(Vec::new()),
    };
    let mut sql = Sql::default();
    match after {
        Some(After::Number(number)) => {
            sql.add(&format!("SELECT {columns} FROM {name} WHERE {key} > ? ORDER BY {key} LIMIT ?"), &[number, &limit]);
        }
        Some(After::Hash(hash)) => {
            sql.add(&format!("SELECT {columns} FROM {name} WHERE {key} > ? ORDER BY {key} LIMIT ?"), &[hash, &limit]);
        }
        _ => sql.add(&format!("SELECT {columns} FROM {name} ORDER BY {key} LIMIT ?"), &[&limit]),
    }
    engine.ask(sql).await?.read(read)
}

/// The event once for us, and once for the reader of answers, who passes over it.
const ANSWERS: &str = "event,event,status,content_type,body";

fn moved_answer(fields: &mut Fields) -> Result<Moved, StoreError> {
    debug_assert!(ANSWERS.ends_with(ANSWER));
    Ok(Moved::Answer(AnswerRec { event: fields.next()?, answer: read_answer(fields)? }))
}

async fn attempts(engine: &MysqlEngine, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, StoreError> {
    let (queue, of, fence) = match after {
        Some(After::Attempt(queue, of, fence)) => (queue.code(), *of, *fence),
        _ => (Queue::Inbox.code(), 0, 0),
    };
    let mut sql = Sql::default();
    // Written out: MariaDB looks through the whole index for a comparison of rows.
    let page = "SELECT ? FROM hapax_attempts FORCE INDEX (PRIMARY)
                WHERE queue >= ? AND (queue > ? OR of_number > ? OR (of_number = ? AND fence > ?))
                ORDER BY queue, of_number, fence LIMIT ?";
    sql.add(page, &[&Raw(ATTEMPT), &queue, &queue, &of, &of, &fence, &limit]);
    engine.ask(sql).await?.read(|fields| Ok(Moved::Attempt(read_attempt(fields)?)))
}

async fn copies(engine: &MysqlEngine, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, StoreError> {
    let after = match after {
        Some(After::Number(number)) => *number,
        _ => 0,
    };
    let mut sql = Sql::default();
    let page = "SELECT c.event, e.received_ms, c.copies, c.conflicts, c.last_ms, c.kept FROM hapax_copies c
                JOIN hapax_events e ON e.number = c.event WHERE c.event > ? ORDER BY c.event LIMIT ?";
    sql.add(page, &[&after, &limit]);
    engine.ask(sql).await?.read(|fields| {
        let (number, received_ms) = (fields.next()?, fields.next()?);
        let event = EventId(ids::numbered(received_ms, number));
        let (copies, conflicts, last_ms) = (fields.next()?, fields.next()?, fields.next()?);
        Ok(Moved::Copies(Copies { event, copies, conflicts, last_ms, kept: Copies::read_kept(&fields.next::<String>()?) }))
    })
}

async fn settings(engine: &MysqlEngine) -> Result<Vec<Moved>, StoreError> {
    let mut sql = Sql::default();
    sql.add("SELECT name, value FROM hapax_settings ORDER BY hash", &[]);
    engine.ask(sql).await?.read(|fields| Ok(Moved::Setting { name: fields.next()?, value: fields.next()? }))
}

pub(super) async fn put_paused(engine: &MysqlEngine, paused: &PausedAccount) -> Result<(), StoreError> {
    let PausedAccount { channel, account, why, since_ms } = paused;
    let mut sql = Sql::default();
    sql.add(
        "INSERT INTO hapax_paused (channel_key, account_key, channel, account, why, since_ms) VALUES (?, ?, ?, ?, ?, ?)
         ON DUPLICATE KEY UPDATE why = VALUES(why), since_ms = VALUES(since_ms)",
        &[&channel_key(channel), &account_key(account), channel, account, why, since_ms],
    );
    write(engine, sql).await
}

pub(super) async fn forget(engine: &MysqlEngine, name: &str) -> Result<(), StoreError> {
    let mut sql = Sql::default();
    sql.add("DELETE FROM hapax_settings WHERE hash = ?", &[&setting_hash(name)]);
    write(engine, sql).await
}

/// A row of the transactions stands for a block of numbers, and the next row gets a higher id: so one row is put at the block itself.
pub(super) async fn raise_numbers(engine: &MysqlEngine, above: u64) -> Result<(), StoreError> {
    let id = above / BLOCK + 1;
    let mut sql = Sql::default();
    let put = "INSERT INTO hapax_numbers (id, at_s) VALUES (?, UNIX_TIMESTAMP()) ON DUPLICATE KEY UPDATE id = id";
    sql.add(put, &[&id]);
    write(engine, sql).await
}
