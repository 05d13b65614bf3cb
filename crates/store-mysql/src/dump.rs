//! Whole tables in pages, to be moved to another store; and the little that an import needs beside the steps.

use hapax_domain::{EventId, ids};
use hapax_store::registers::Register;
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, ClaimRec, EventRec, Hash, KeyRec, MessageRec, NameRec, ProviderNameRec, Queue, ThreadRec, thread_hash,
};
use hapax_store::{After, Copies, Moved, PausedAccount, StoreError, Table};

use super::MysqlEngine;
use super::registers::setting_hash;
use super::rows::InTable;
use super::sql::{Raw, Sql, account_key, channel_key};
use super::tx::BLOCK;
use super::upkeep::write;

pub(super) async fn dump(
    engine: &MysqlEngine,
    table: Table,
    after: Option<&After>,
    limit: usize,
) -> Result<Vec<Moved>, StoreError> {
    match table {
        Table::Keys => page::<KeyRec>(engine, "k", " WHERE TRUE", after, limit, Moved::Key).await,
        Table::Threads => page::<ThreadRec>(engine, "hash", " WHERE last_ms IS NOT NULL", after, limit, Moved::Thread).await,
        Table::Names => page::<NameRec>(engine, "hash", " WHERE thread IS NOT NULL", after, limit, Moved::Name).await,
        Table::Events => page::<EventRec>(engine, "number", " WHERE TRUE", after, limit, Moved::Event).await,
        Table::Messages => page::<MessageRec>(engine, "number", " WHERE TRUE", after, limit, Moved::Message).await,
        Table::ProviderNames => page::<ProviderNameRec>(engine, "hash", " WHERE TRUE", after, limit, Moved::ProviderName).await,
        Table::Answers => page::<AnswerRec>(engine, "event", " WHERE TRUE", after, limit, Moved::Answer).await,
        Table::Claims => {
            page::<ClaimRec>(engine, "hash", " WHERE TRUE", after, limit, |claim| Moved::Claim(Box::new(claim))).await
        }
        Table::Copies => copies(engine, after, limit).await,
        Table::Attempts => attempts(engine, after, limit).await,
        Table::Settings => settings(engine, after, limit).await,
        Table::Pieces => super::pieces::dump(engine, after, limit).await,
        Table::Paused | Table::Items | Table::Outs => Ok(Vec::new()),
    }
}

async fn page<R: InTable>(
    engine: &MysqlEngine,
    key: &str,
    there: &str,
    after: Option<&After>,
    limit: usize,
    moved: fn(R) -> Moved,
) -> Result<Vec<Moved>, StoreError> {
    let select = |above: &str| format!("SELECT {} FROM {}{there}{above} ORDER BY {key} LIMIT ?", R::columns(), R::TABLE);
    let above = || select(&format!(" AND {key} > ?"));
    let mut sql = Sql::default();
    match after {
        Some(After::Number(number)) => sql.add(&above(), &[number, &limit]),
        Some(After::Hash(hash)) => sql.add(&above(), &[hash, &limit]),
        Some(After::Name(Some((account, name)))) => sql.add(&above(), &[&thread_hash(account, name), &limit]),
        _ => sql.add(&select(""), &[&limit]),
    }
    Ok(engine.ask(sql).await?.records()?.into_iter().map(moved).collect())
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
    sql.add(page, &[&Raw(AttemptRec::columns()), &queue, &queue, &of, &of, &fence, &limit]);
    Ok(engine.ask(sql).await?.records()?.into_iter().map(Moved::Attempt).collect())
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

async fn settings(engine: &MysqlEngine, after: Option<&After>, limit: usize) -> Result<Vec<Moved>, StoreError> {
    let after = match after {
        Some(After::Setting(name)) => setting_hash(name),
        _ => Hash::default(),
    };
    let mut sql = Sql::default();
    sql.add("SELECT name, value, expires_ms FROM hapax_settings WHERE hash > ? ORDER BY hash LIMIT ?", &[&after, &limit]);
    engine.ask(sql).await?.read(|fields| {
        let (name, value) = (fields.next()?, fields.next()?);
        Ok(Moved::Setting { name, register: Register { value, ends_ms: fields.next()? } })
    })
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
