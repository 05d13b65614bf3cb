//! What may be taken now: lanes that are due, and parked items that somebody wants back in line.

use std::sync::LazyLock;

use deadpool_postgres::ClientWrapper;
use hapax_domain::{Priority, ids};
use hapax_store::Redrive;
use hapax_store::steps::Due;
use hapax_store::steps::records::{ItemRec, LaneRec, Queue, priority_code};

use super::failure::Failure;
use super::rows::{Param, plain_columns, read_all};
use super::sql_call::{SqlCall, run_one};
use super::texts::escape;

/// Whoever else looks at the same time gets other lanes. Pauses stop sending only.
static DUE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {} FROM hapax_lanes AS l
         WHERE queue = $1::int2 AND channel = $2::text AND priority = $3::int2 AND due_ms <= $4::int8
           AND ((account = ANY ($5::text[])) = $7::bool OR (queue = 0 AND account = ''))
           AND (queue = 0 OR NOT EXISTS (SELECT 1 FROM hapax_paused p WHERE p.channel = l.channel AND p.account = l.account))
         ORDER BY due_ms, first LIMIT $6::int8 FOR UPDATE OF l SKIP LOCKED",
        plain_columns::<LaneRec>("l.")
    )
});

/// Asked for by priority, so that each question reads its part of the index only as far as it is due.
pub(super) async fn due(client: &ClientWrapper, due: &Due<'_>, now_ms: i64) -> Result<Vec<LaneRec>, Failure> {
    let priorities: &[Priority] = match due.queue {
        Queue::Inbox => &[Priority::Normal],
        Queue::Outbox => &Priority::ALL,
    };
    let mut lanes = Vec::new();
    for &priority in priorities {
        let room = due.max.saturating_sub(lanes.len());
        if room == 0 {
            break;
        }
        let resting: Vec<_> = due.resting.iter().map(|account| escape(account)).collect();
        let ask = SqlCall::new(
            &**DUE,
            vec![
                Box::new(due.queue.code()),
                Box::new(escape(due.channel)),
                Box::new(priority_code(priority)),
                Box::new(now_ms),
                Box::new(resting),
                Box::new(room as i64),
                Box::new(due.others),
            ],
        );
        lanes.extend(read_all::<LaneRec>(&run_one(client, ask).await?)?);
    }
    Ok(lanes)
}

/// A lane that is leased is due when its lease ends, or that of one it was joined with; one that was joined into another never is.
static HELD: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {} FROM hapax_lanes WHERE queue = 0 AND channel = $1::text AND priority = $2::int2 AND due_ms > $3::int8
           AND held_until_ms > $3 LIMIT $4::int8",
        plain_columns::<LaneRec>("")
    )
});

pub(super) async fn held(client: &ClientWrapper, channel: &str, now_ms: i64, limit: usize) -> Result<Vec<LaneRec>, Failure> {
    let (priority, limit) = (priority_code(Priority::Normal), limit as i64);
    let params: Vec<Param<'_>> = vec![Box::new(escape(channel)), Box::new(priority), Box::new(now_ms), Box::new(limit)];
    read_all(&run_one(client, SqlCall::new(&**HELD, params)).await?)
}

fn parked_sql(which: &str) -> String {
    let columns = plain_columns::<ItemRec>("");
    format!(
        "SELECT {columns} FROM hapax_items WHERE place = 1 AND number > $3::int8 AND {which} ORDER BY number LIMIT $1::int8 FOR UPDATE"
    )
}

static PARKED: LazyLock<String> = LazyLock::new(|| parked_sql("$2::text IS NULL"));
static PARKED_ITEM: LazyLock<String> = LazyLock::new(|| parked_sql("number = $2::int8"));
/// The item an event was put into knows all its events; a replay has one.
static PARKED_EVENT: LazyLock<String> = LazyLock::new(|| {
    parked_sql("(number = (SELECT item FROM hapax_events WHERE number = $2::int8) OR (first = $2::int8 AND replay IS NOT NULL))")
});
static PARKED_CHANNEL: LazyLock<String> = LazyLock::new(|| parked_sql("channel = $2::text"));

pub(super) async fn parked(client: &ClientWrapper, which: &Redrive, after: u64, max: usize) -> Result<Vec<ItemRec>, Failure> {
    let (max, after) = (Box::new(max as i64), Box::new(after as i64));
    let ask = match which {
        Redrive::All => SqlCall::new(&**PARKED, vec![max, Box::new(None::<String>), after]),
        Redrive::Item(item) => SqlCall::new(&**PARKED_ITEM, vec![max, Box::new(ids::number_of(item.0) as i64), after]),
        Redrive::Event(event) => SqlCall::new(&**PARKED_EVENT, vec![max, Box::new(ids::number_of(event.0) as i64), after]),
        Redrive::Channel(channel) => SqlCall::new(&**PARKED_CHANNEL, vec![max, Box::new(escape(channel)), after]),
    };
    read_all(&run_one(client, ask).await?)
}
