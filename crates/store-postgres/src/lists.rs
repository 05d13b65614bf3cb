//! Questions: lists by number, threads, stories.

use std::sync::{Arc, LazyLock};

use deadpool_postgres::ClientWrapper;
use hapax_domain::age::Dated;
use hapax_domain::{EventId, ids};
use hapax_store::steps::Entry;
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, EventRec, Hash, ItemRec, MessageRec, OutRec, Queue, ThreadRec, thread_hash,
};
use hapax_store::{Answer, Copies, EventQuery, InboxQuery, OutboxQuery, PausedAccount, ThreadQuery};
use tokio_postgres::Row;

use super::failure::Failure;
use super::rows::{Fields, InTable, Param, numbers, plain_columns, read_all};
use super::sql_call::{SqlCall, run, run_one};
use super::texts::escape;

fn select<R: InTable>(rest: &str) -> String {
    format!("SELECT {} FROM {} {rest}", plain_columns::<R>(""), R::TABLE)
}

/// One statement for each index: the server plans a statement once, whatever its values are.
fn events_sql(of: &str) -> String {
    let rest = "WHERE number < $1::int8 AND ($2::text IS NULL OR kind = $2)";
    select::<EventRec>(&format!("{rest}{of} ORDER BY number DESC LIMIT $3::int8"))
}

static EVENTS: LazyLock<String> = LazyLock::new(|| events_sql(""));
static EVENTS_OF_CHANNEL: LazyLock<String> =
    LazyLock::new(|| events_sql(" AND left(channel, 64) COLLATE \"C\" = left($4::text, 64) AND channel = $4"));
/// Those in the thread that goes by this very name, and the others.
static EVENTS_OF_PEER: LazyLock<String> = LazyLock::new(|| {
    let own = "AND ($4::text IS NULL OR channel = $4) AND account = $5::text AND peer = $6::text";
    let named = events_sql(&format!(" {own} AND thread = $7::bytea AND NOT apart"));
    let apart = format!(" {own} AND apart AND peer IS NOT NULL AND md5(account || ' ' || peer) = md5($5 || ' ' || $6)");
    format!("({named}) UNION ALL ({}) ORDER BY number DESC LIMIT $3::int8", events_sql(&apart))
});

pub(super) async fn events(
    client: &ClientWrapper,
    query: &EventQuery,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<EventRec>, Failure> {
    let before = before.map_or(i64::MAX, |before| before as i64);
    let mut values: Vec<Param<'_>> = vec![Box::new(before), Box::new(query.kind.map(|kind| kind.name())), Box::new(limit as i64)];
    let channel = query.channel.as_deref().map(escape);
    let sql = match &query.thread {
        Some(thread) => {
            values.push(Box::new(channel));
            values.push(Box::new(escape(&thread.account)));
            values.push(Box::new(escape(&thread.peer)));
            values.push(Box::new(thread_hash(&thread.account, &thread.peer).to_vec()));
            &EVENTS_OF_PEER
        }
        None if channel.is_some() => {
            values.push(Box::new(channel));
            &EVENTS_OF_CHANNEL
        }
        None => &EVENTS,
    };
    read_all(&run_one(client, SqlCall::new(&***sql, values)).await?)
}

/// Those that have rows, and those that are in the rows of their lanes, which are never parked.
fn items_sql(place: &str, alone: bool) -> String {
    let found = |number: &str| format!("WHERE ($1::int8 IS NULL OR {number} > $1) AND ($2::text IS NULL OR channel = $2)");
    let rows = select::<ItemRec>(&format!("{}{place} ORDER BY number LIMIT $3::int8", found("number")));
    if !alone {
        return rows;
    }
    format!(
        "({rows}) UNION ALL (SELECT {} FROM hapax_lanes {} AND alone_ms IS NOT NULL ORDER BY first LIMIT $3::int8)
         ORDER BY number LIMIT $3::int8",
        *super::alone::COLUMNS,
        found("first"),
    )
}

static ITEMS: LazyLock<String> = LazyLock::new(|| items_sql("", true));
static ITEMS_PARKED: LazyLock<String> = LazyLock::new(|| items_sql(" AND place <> 0", false));
static ITEMS_IN_LANES: LazyLock<String> = LazyLock::new(|| items_sql(" AND place = 0", true));

pub(super) async fn items(
    client: &ClientWrapper,
    query: &InboxQuery,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<ItemRec>, Failure> {
    let sql = match query.parked {
        None => &ITEMS,
        Some(true) => &ITEMS_PARKED,
        Some(false) => &ITEMS_IN_LANES,
    };
    let after = after.map(|after| after as i64);
    let channel = query.channel.as_deref().map(escape);
    let ask = SqlCall::new(&***sql, vec![Box::new(after), Box::new(channel), Box::new(limit as i64)]);
    read_all(&run_one(client, ask).await?)
}

static REPLAYS: LazyLock<String> =
    LazyLock::new(|| select::<ItemRec>("WHERE first = $1::int8 AND replay IS NOT NULL ORDER BY number"));

pub(super) async fn replays(client: &ClientWrapper, event: u64) -> Result<Vec<ItemRec>, Failure> {
    read_all(&run_one(client, SqlCall::new(&**REPLAYS, vec![Box::new(event as i64)])).await?)
}

static ATTEMPTS: LazyLock<String> =
    LazyLock::new(|| select::<AttemptRec>("WHERE queue = $1::int2 AND made_for = ANY($2::int8[]) ORDER BY fence"));

pub(super) async fn attempts(client: &ClientWrapper, queue: Queue, of: &[u64]) -> Result<Vec<AttemptRec>, Failure> {
    read_all(&run_one(client, SqlCall::new(&**ATTEMPTS, vec![Box::new(queue.code()), numbers(of)])).await?)
}

const COPIES: &str = "SELECT c.event, e.received_ms, c.copies, c.conflicts, c.last_ms, c.kept
    FROM hapax_copies c JOIN hapax_events e ON e.number = c.event WHERE c.event = ANY($1::int8[])";

pub(super) async fn copies(client: &ClientWrapper, events: &[u64]) -> Result<Vec<Copies>, Failure> {
    let read = |row| {
        let mut fields = Fields::new(row);
        let (number, received_ms) = (fields.number()?, fields.take()?);
        let event = EventId(ids::numbered(received_ms, number));
        let (copies, conflicts, last_ms) = (fields.number()?, fields.number()?, fields.take()?);
        Ok(Copies { event, copies, conflicts, last_ms, kept: Copies::read_kept(&fields.text()?) })
    };
    run_one(client, SqlCall::new(COPIES, vec![numbers(events)])).await?.iter().map(read).collect()
}

static ANSWER: LazyLock<String> = LazyLock::new(|| select::<AnswerRec>("WHERE event = $1::int8"));

pub(super) async fn answer(client: &ClientWrapper, event: u64) -> Result<Option<Answer>, Failure> {
    let rows = run_one(client, SqlCall::new(&**ANSWER, vec![Box::new(event as i64)])).await?;
    Ok(read_all::<AnswerRec>(&rows)?.pop().map(|kept| kept.answer))
}

static THREADS: LazyLock<String> = LazyLock::new(|| {
    select::<ThreadRec>(
        "WHERE ($1::text IS NULL OR channel = $1) AND ($2::text IS NULL OR account = $2)
           AND last_ms <= $3::int8 AND (last_ms < $3 OR (account, name) < ($4::text, $5::text))
         ORDER BY last_ms DESC, account DESC, name DESC LIMIT $6::int8",
    )
});

pub(super) async fn threads(client: &ClientWrapper, query: &ThreadQuery, limit: usize) -> Result<Vec<ThreadRec>, Failure> {
    let before = query.before.as_ref();
    let ask = SqlCall::new(
        &**THREADS,
        vec![
            Box::new(query.channel.as_deref().map(escape)),
            Box::new(query.account.as_deref().map(escape)),
            Box::new(before.map_or(i64::MAX, |(at_ms, _)| *at_ms)),
            Box::new(before.map(|(_, id)| escape(&id.account))),
            Box::new(before.map(|(_, id)| escape(&id.peer))),
            Box::new(limit as i64),
        ],
    );
    read_all(&run_one(client, ask).await?)
}

const NAMES_OF: &str = "SELECT name FROM hapax_peers WHERE thread = $1::bytea AND thread <> hash
    UNION ALL SELECT name FROM hapax_peers WHERE hash = $1 AND thread = hash ORDER BY name";

pub(super) async fn names_of(client: &ClientWrapper, account: &str, peer: &str) -> Result<Vec<String>, Failure> {
    let rows = run_one(client, SqlCall::new(NAMES_OF, vec![Box::new(thread_hash(account, peer).to_vec())])).await?;
    rows.iter().map(|row| Fields::new(row).text()).collect()
}

fn entries_sql<R: InTable>() -> String {
    select::<R>(
        "WHERE thread = $1::bytea AND number > $2::int8 AND ($3::int8 IS NULL OR number < $3) ORDER BY number DESC LIMIT $4::int8",
    )
}

static EVENT_ENTRIES: LazyLock<String> = LazyLock::new(entries_sql::<EventRec>);
static MESSAGE_ENTRIES: LazyLock<String> = LazyLock::new(entries_sql::<MessageRec>);

pub(super) async fn entries(
    client: &ClientWrapper,
    thread: &Hash,
    above: u64,
    below: Option<u64>,
    limit: usize,
) -> Result<Vec<Entry>, Failure> {
    let ask = |sql: &'static str| {
        let below = below.map(|below| below as i64);
        SqlCall::new(sql, vec![Box::new(&thread[..]), Box::new(above as i64), Box::new(below), Box::new(limit as i64)])
    };
    let answers = run(client, &[ask(&EVENT_ENTRIES), ask(&MESSAGE_ENTRIES)]).await?;
    let [events, messages] = &answers[..] else { return Ok(Vec::new()) };
    let events = read_all::<EventRec>(events)?.into_iter().map(|event| Entry::Event(Arc::new(event)));
    let messages = read_all::<MessageRec>(messages)?.into_iter().map(|message| Entry::Message(Arc::new(message)));
    let mut entries: Vec<Entry> = events.chain(messages).collect();
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.number()));
    entries.truncate(limit);
    Ok(entries)
}

fn outs_sql(which: &str) -> String {
    select::<OutRec>(&format!(
        "WHERE ($1::int8 IS NULL OR number > $1) AND ($2::text IS NULL OR channel = $2) AND ($3::text IS NULL OR account = $3)
         {which} ORDER BY number LIMIT $4::int8"
    ))
}

static OUTS: LazyLock<String> = LazyLock::new(|| outs_sql(""));
static OUTS_UNKNOWN: LazyLock<String> = LazyLock::new(|| {
    outs_sql(
        "AND unknown AND NOT EXISTS
         (SELECT 1 FROM hapax_lanes l WHERE l.hash = hapax_outs.lane AND l.held_number = hapax_outs.number)",
    )
});

pub(super) async fn outs(
    client: &ClientWrapper,
    query: &OutboxQuery,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<OutRec>, Failure> {
    let sql: &'static str = if query.unknown { &OUTS_UNKNOWN } else { &OUTS };
    let ask = SqlCall::new(
        sql,
        vec![
            Box::new(after.map(|after| after as i64)),
            Box::new(query.channel.as_deref().map(escape)),
            Box::new(query.account.as_deref().map(escape)),
            Box::new(limit as i64),
        ],
    );
    read_all(&run_one(client, ask).await?)
}

pub(super) async fn paused(client: &ClientWrapper) -> Result<Vec<PausedAccount>, Failure> {
    let rows = run_one(client, SqlCall::new("SELECT channel, account, why, since_ms FROM hapax_paused", vec![])).await?;
    let read = |row| {
        let mut fields = Fields::new(row);
        Ok(PausedAccount { channel: fields.text()?, account: fields.text()?, why: fields.text()?, since_ms: fields.take()? })
    };
    let mut paused = rows.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
    paused.sort_by(|a, b| (&a.channel, &a.account).cmp(&(&b.channel, &b.account)));
    Ok(paused)
}

const WEBHOOKS_AFTER: &str = "SELECT number, received_ms FROM hapax_events WHERE number > $1::int8 AND number = webhook
    ORDER BY number LIMIT $2::int8";
const MESSAGES_AFTER: &str = "SELECT number, created_ms FROM hapax_messages AS m WHERE number > $1::int8
    AND NOT EXISTS (SELECT 1 FROM hapax_outs o WHERE o.number = m.number) ORDER BY number LIMIT $2::int8";

pub(super) async fn webhooks_after(client: &ClientWrapper, after: u64, max: usize) -> Result<Vec<Dated>, Failure> {
    dated(client, WEBHOOKS_AFTER, after, max).await
}

pub(super) async fn messages_after(client: &ClientWrapper, after: u64, max: usize) -> Result<Vec<Dated>, Failure> {
    dated(client, MESSAGES_AFTER, after, max).await
}

async fn dated(client: &ClientWrapper, sql: &'static str, after: u64, max: usize) -> Result<Vec<Dated>, Failure> {
    let rows = run_one(client, SqlCall::new(sql, vec![Box::new(after as i64), Box::new(max as i64)])).await?;
    let read = |row: &Row| {
        let mut fields = Fields::new(row);
        Ok(Dated { number: fields.number()?, at_ms: fields.take()? })
    };
    rows.iter().map(read).collect()
}

static EVENTS_OF: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {0} FROM hapax_events WHERE number = ANY($1::int8[])
         UNION ALL
         SELECT {0} FROM hapax_events WHERE webhook <> number AND webhook = ANY($1::int8[])",
        plain_columns::<EventRec>("")
    )
});

pub(super) async fn events_of(client: &ClientWrapper, webhooks: &[u64]) -> Result<Vec<EventRec>, Failure> {
    let numbers: Vec<i64> = webhooks.iter().map(|number| *number as i64).collect();
    let mut events: Vec<EventRec> = read_all(&run_one(client, SqlCall::new(&**EVENTS_OF, vec![Box::new(numbers)])).await?)?;
    events.sort_by_key(|event| (event.webhook, event.number));
    Ok(events)
}

#[cfg(test)]
mod tests {
    use hapax_testkit::servers::Engine;
    use tokio_postgres::NoTls;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_list_of_threads_reads_its_page_and_no_more() {
        let Some(server) = Engine::Postgres.shared().await else { return };
        let url = server.fresh().await;
        drop(crate::open(&url, None).await.expect("a fresh database opens"));
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("it answers");
        tokio::spawn(connection);
        client
            .batch_execute(
                "INSERT INTO hapax_peers (hash, account, name, channel, last_ms, last_out, unread, purged_to)
                 SELECT int8send(n), '7', n::text, 'shop', n, false, 0, 0 FROM generate_series(1, 50000) AS n;
                 ANALYZE hapax_peers; SET plan_cache_mode = force_generic_plan",
            )
            .await
            .expect("threads");
        let prepare = format!("PREPARE threads (text, text, int8, text, text, int8) AS {}", &**THREADS);
        client.batch_execute(&prepare).await.expect("it is prepared");
        for page in ["NULL, NULL, 9223372036854775807, NULL, NULL, 51", "'shop', NULL, 25000, '7', '25000', 51"] {
            let plan = client.simple_query(&format!("EXPLAIN (ANALYZE) EXECUTE threads ({page})")).await.expect("a plan");
            let plan = format!("{plan:?}");
            assert!(plan.contains("hapax_peers_newest") && !plan.contains("Seq Scan"), "{plan}");
        }
        server.remove(&url).await;
    }
}
