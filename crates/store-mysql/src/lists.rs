//! Lists, in the order of an index wherever there is one, so that a page costs the same on any size of table.

use std::sync::Arc;

use hapax_domain::{EventId, Priority, ids};
use hapax_store::steps::Entry;
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, EventRec, Hash, ItemPlace, ItemRec, LaneRec, MessageRec, OutRec, Queue, ThreadRec, priority_code,
    thread_hash,
};
use hapax_store::{Answer, Copies, EventQuery, InboxQuery, OutboxQuery, PausedAccount, StoreError, ThreadQuery};

use super::alone;
use super::rows::{InTable, ListKey, PAUSED, list_of_thread, read_paused};
use super::sql::{List, Literal, ROWS_MAX, Raw, Sql, account_key, channel_key};
use super::{MysqlEngine, load};

pub(super) const LISTED_EVENTS: &str =
    "hapax_event_lists l FORCE INDEX (PRIMARY) STRAIGHT_JOIN hapax_events e FORCE INDEX (PRIMARY) ON e.number = l.number";

/// A SELECT that is put together from conditions.
pub(super) struct Select<'s> {
    text: String,
    values: Vec<Box<dyn Literal + Send + 's>>,
}

impl<'s> Select<'s> {
    pub(super) fn new(columns: &str, from: &str) -> Self {
        Self { text: format!("SELECT {columns} FROM {from} WHERE TRUE"), values: Vec::new() }
    }

    /// Events that are listed under something. The list is walked, and each event looked up: the server may not turn it round.
    fn listed(list: ListKey) -> Self {
        let mut select = Self::new(&load::qualified("e", EventRec::columns()), LISTED_EVENTS);
        select.and("l.list = ?", list);
        select
    }

    pub(super) fn and(&mut self, condition: &str, value: impl Literal + Send + 's) {
        self.text.push_str(" AND ");
        self.text.push_str(condition);
        self.values.push(Box::new(value));
    }

    pub(super) fn and_if(&mut self, condition: &str, value: Option<impl Literal + Send + 's>) {
        if let Some(value) = value {
            self.and(condition, value);
        }
    }

    /// Ends it with `order` and `limit`, and adds it to the statements.
    pub(super) fn into(mut self, sql: &mut Sql, order: &str, limit: usize) {
        self.text.push_str(&format!(" ORDER BY {order} LIMIT {limit}"));
        let values: Vec<&dyn Literal> = self.values.iter().map(|value| &**value as &dyn Literal).collect();
        sql.add(&self.text, &values);
    }
}

pub(super) async fn events(
    engine: &MysqlEngine,
    query: &EventQuery,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<EventRec>, StoreError> {
    let (mut select, number) = match (&query.thread, &query.channel) {
        (Some(thread), _) => {
            let mut select = Select::listed(list_of_thread(&thread_hash(&thread.account, &thread.peer)));
            select.and("CAST(e.account AS BINARY) = ?", thread.account.as_bytes());
            select.and("CAST(e.peer AS BINARY) = ?", thread.peer.as_bytes());
            (select, "l.number")
        }
        (None, Some(_)) => (Select::new(EventRec::columns(), "hapax_events e FORCE INDEX (of_channel)"), "e.number"),
        (None, None) => (Select::new(EventRec::columns(), "hapax_events e FORCE INDEX (PRIMARY)"), "e.number"),
    };
    select.and_if("e.channel_key = ?", query.channel.as_ref().map(|channel| channel_key(channel)));
    select.and_if("e.kind = ?", query.kind.map(|kind| kind.name()));
    select.and_if(&format!("{number} < ?"), before);
    let mut sql = Sql::default();
    select.into(&mut sql, &format!("{number} DESC"), limit);
    engine.ask(sql).await?.records()
}

pub(super) async fn items(
    engine: &MysqlEngine,
    query: &InboxQuery,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<ItemRec>, StoreError> {
    // Each place is a range of its index; those that are on their way are most of the table.
    let places: &[Option<ItemPlace>] = match query.parked {
        None => &[None],
        Some(false) => &[Some(ItemPlace::InLane)],
        Some(true) => &[Some(ItemPlace::Parked), Some(ItemPlace::Quarantined)],
    };
    let mut sql = Sql::default();
    let channel = query.channel.as_ref().map(|channel| channel_key(channel));
    // Those in the rows of their lanes are never parked. Asked for first: one that gets a row of its own meanwhile may be seen twice, but is
    // not missed.
    let alone = query.parked != Some(true);
    if alone {
        let mut select = Select::new(&alone::COLUMNS, "hapax_lanes FORCE INDEX (by_first)");
        select.and_if("channel_key = ?", channel);
        select.and("alone_ms IS NOT NULL AND first > ?", after.unwrap_or_default());
        select.into(&mut sql, "first", limit);
    }
    for place in places {
        let index = if place.is_some() { "of_place" } else { "PRIMARY" };
        let mut select = Select::new(ItemRec::columns(), &format!("hapax_items FORCE INDEX ({index})"));
        select.and_if("place = ?", place.map(ItemPlace::code));
        select.and_if("channel_key = ?", channel);
        select.and_if("number > ?", after);
        select.into(&mut sql, "number", limit);
    }
    let mut sets = engine.ask(sql).await?;
    let mut items = Vec::new();
    for _ in 0..places.len() + usize::from(alone) {
        items.extend(sets.records::<ItemRec>()?);
    }
    // Of two, the row is later.
    items.reverse();
    items.sort_by_key(|item: &ItemRec| item.number);
    items.dedup_by_key(|item| item.number);
    items.truncate(limit);
    Ok(items)
}

/// A lane that is leased is due when its lease ends, or that of one it was joined with; one that was joined into another never is.
pub(super) async fn held(engine: &MysqlEngine, channel: &str, now_ms: i64, limit: usize) -> Result<Vec<LaneRec>, StoreError> {
    let mut sql = Sql::default();
    let held = "SELECT ? FROM hapax_lanes FORCE INDEX (due)
                WHERE queue = ? AND channel_key = ? AND priority = ? AND due_ms > ? AND held_until_ms > ? LIMIT ?";
    let (queue, priority) = (Queue::Inbox.code(), priority_code(Priority::Normal));
    sql.add(held, &[&Raw(LaneRec::columns()), &queue, &channel_key(channel), &priority, &now_ms, &now_ms, &limit]);
    engine.ask(sql).await?.records()
}

pub(super) async fn replays(engine: &MysqlEngine, event: u64) -> Result<Vec<ItemRec>, StoreError> {
    let mut sql = Sql::default();
    let replays = "SELECT ? FROM hapax_items FORCE INDEX (of_event) WHERE first_event = ? AND replay IS NOT NULL ORDER BY number";
    sql.add(replays, &[&Raw(ItemRec::columns()), &event]);
    engine.ask(sql).await?.records()
}

pub(super) async fn attempts(engine: &MysqlEngine, queue: Queue, of: &[u64]) -> Result<Vec<AttemptRec>, StoreError> {
    let mut sql = Sql::default();
    let chunks = of.chunks(ROWS_MAX);
    let statements = chunks.len();
    for some in chunks {
        let select = "SELECT ? FROM hapax_attempts WHERE queue = ? AND of_number IN ?";
        sql.add(select, &[&Raw(AttemptRec::columns()), &queue.code(), &List(some)]);
    }
    let mut sets = engine.ask(sql).await?;
    let mut attempts = Vec::new();
    for _ in 0..statements {
        attempts.extend(sets.records::<AttemptRec>()?);
    }
    attempts.sort_by_key(|attempt: &AttemptRec| attempt.fence);
    Ok(attempts)
}

pub(super) async fn copies(engine: &MysqlEngine, events: &[u64]) -> Result<Vec<Copies>, StoreError> {
    let (mut sql, chunks) = (Sql::default(), events.chunks(ROWS_MAX));
    let statements = chunks.len();
    for some in chunks {
        let select = "SELECT c.event, e.received_ms, c.copies, c.conflicts, c.last_ms, c.kept FROM hapax_copies c
                      JOIN hapax_events e ON e.number = c.event WHERE c.event IN ?";
        sql.add(select, &[&List(some)]);
    }
    let mut sets = engine.ask(sql).await?;
    let mut found = Vec::new();
    for _ in 0..statements {
        found.extend(sets.read(|fields| {
            let (number, received_ms) = (fields.next()?, fields.next()?);
            let event = EventId(ids::numbered(received_ms, number));
            let (copies, conflicts, last_ms) = (fields.next()?, fields.next()?, fields.next()?);
            Ok(Copies { event, copies, conflicts, last_ms, kept: Copies::read_kept(&fields.next::<String>()?) })
        })?);
    }
    Ok(found)
}

pub(super) async fn answer(engine: &MysqlEngine, event: u64) -> Result<Option<Answer>, StoreError> {
    let mut sql = Sql::default();
    sql.add("SELECT ? FROM hapax_answers WHERE event = ?", &[&Raw(AnswerRec::columns()), &event]);
    Ok(engine.ask(sql).await?.records::<AnswerRec>()?.pop().map(|kept| kept.answer))
}

/// Newest first by the index, then by id as bytes, which no index can hold: so the time of the page's last row is found first, and only rows
/// from then on are sorted.
pub(super) async fn threads(engine: &MysqlEngine, query: &ThreadQuery, limit: usize) -> Result<Vec<ThreadRec>, StoreError> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let select = |columns: &str| {
        let mut select = Select::new(columns, "hapax_peers FORCE INDEX (newest)");
        select.and("last_ms IS NOT ?", None::<i64>);
        select.and_if("channel_key = ?", query.channel.as_ref().map(|channel| channel_key(channel)));
        select.and_if("account_key = ?", query.account.as_ref().map(|account| account_key(account)));
        if let Some((at_ms, id)) = &query.before {
            select.and("last_ms <= ?", *at_ms);
            let id = format!("(CAST(account AS BINARY), CAST(name AS BINARY)) < ({}, {})", bytes(&id.account), bytes(&id.peer));
            select.and(&format!("(last_ms < ? OR {id})"), *at_ms);
        }
        select
    };
    let mut sql = Sql::default();
    select("last_ms").into(&mut sql, "last_ms DESC", limit);
    let from = engine.ask(sql).await?.read(|fields| fields.next::<i64>())?;
    let Some(&from_ms) = from.last() else { return Ok(Vec::new()) };
    let mut page = select(ThreadRec::columns());
    page.and("last_ms >= ?", from_ms);
    let mut sql = Sql::default();
    page.into(&mut sql, "last_ms DESC, CAST(account AS BINARY) DESC, CAST(name AS BINARY) DESC", limit);
    engine.ask(sql).await?.records()
}

fn bytes(text: &str) -> String {
    let mut sql = String::new();
    text.as_bytes().put(&mut sql);
    sql
}

pub(super) async fn names_of(engine: &MysqlEngine, account: &str, peer: &str) -> Result<Vec<String>, StoreError> {
    let mut sql = Sql::default();
    sql.add("SELECT name FROM hapax_peers WHERE thread = ?", &[&thread_hash(account, peer)]);
    let mut names = engine.ask(sql).await?.read(|fields| fields.next::<String>())?;
    names.sort_unstable();
    Ok(names)
}

pub(super) async fn thread_entries(
    engine: &MysqlEngine,
    thread: &Hash,
    above: u64,
    below: Option<u64>,
    limit: usize,
) -> Result<Vec<Entry>, StoreError> {
    let mut sql = Sql::default();
    let messages = Select::new(MessageRec::columns(), "hapax_messages FORCE INDEX (of_thread)");
    for (mut select, number) in [(Select::listed(list_of_thread(thread)), "l.number"), (messages, "number")] {
        select.and("thread = ?", *thread);
        select.and(&format!("{number} > ?"), above);
        select.and_if(&format!("{number} < ?"), below);
        select.into(&mut sql, &format!("{number} DESC"), limit);
    }
    let mut sets = engine.ask(sql).await?;
    let events = sets.records::<EventRec>()?.into_iter().map(|event| Entry::Event(Arc::new(event)));
    let messages = sets.records::<MessageRec>()?.into_iter().map(|message| Entry::Message(Arc::new(message)));
    let mut entries: Vec<Entry> = events.chain(messages).collect();
    entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.number()));
    entries.truncate(limit);
    Ok(entries)
}

pub(super) async fn outs(
    engine: &MysqlEngine,
    query: &OutboxQuery,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<OutRec>, StoreError> {
    let mut select = Select::new(&load::qualified("o", OutRec::columns()), "hapax_outs o FORCE INDEX (PRIMARY)");
    select.and_if("o.channel_key = ?", query.channel.as_ref().map(|channel| channel_key(channel)));
    select.and_if("o.account_key = ?", query.account.as_ref().map(|account| account_key(account)));
    select.and_if("o.number > ?", after);
    if query.unknown {
        let not_leased = "NOT EXISTS (SELECT 1 FROM hapax_lanes l WHERE l.hash = o.lane AND l.held_number = o.number)";
        select.and(&format!("o.in_doubt = ? AND {not_leased}"), true);
    }
    let mut sql = Sql::default();
    select.into(&mut sql, "o.number", limit);
    engine.ask(sql).await?.records()
}

pub(super) async fn paused(engine: &MysqlEngine) -> Result<Vec<PausedAccount>, StoreError> {
    let mut sql = Sql::default();
    sql.add("SELECT ? FROM hapax_paused", &[&Raw(PAUSED)]);
    let mut paused = engine.ask(sql).await?.read(read_paused)?;
    paused.sort_unstable_by(|a, b| (&a.channel, &a.account).cmp(&(&b.channel, &b.account)));
    Ok(paused)
}
