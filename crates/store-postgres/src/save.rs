//! Writes what a step decided: one statement per kind, whatever the number of records.

use std::sync::LazyLock;

use hapax_store::steps::Changes;
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, ClaimRec, EventRec, ItemRec, LaneRec, MessageRec, OutRec, ProviderNameRec,
};

use super::even::NewRows;
use super::peers;
use super::rows::{InTable, Param, arrays, changed_arrays, hashes, in_order, insert, numbers, update, update_only};
use super::sql_call::SqlCall;

static NEW_EVENTS: LazyLock<NewRows> = LazyLock::new(NewRows::of::<EventRec>);
const REPLAYS: &str = "UPDATE hapax_events AS t SET replays = n.replays
    FROM UNNEST($1::int8[], $2::int4[]) AS n (number, replays) WHERE t.number = n.number";
const GONE_EVENTS: [&str; 4] = [
    "DELETE FROM hapax_events WHERE number = ANY($1::int8[])",
    "DELETE FROM hapax_attempts WHERE queue = 0 AND made_for = ANY($1::int8[])",
    "DELETE FROM hapax_answers WHERE event = ANY($1::int8[])",
    "DELETE FROM hapax_copies WHERE event = ANY($1::int8[])",
];
const FORGOTTEN_EVENTS: [&str; 2] = [
    "UPDATE hapax_events SET text = NULL WHERE number = ANY($1::int8[])",
    "DELETE FROM hapax_answers WHERE event = ANY($1::int8[])",
];
const FORGOTTEN_BODIES: &str = "UPDATE hapax_events SET body_bytes = 0,
    headers = CASE WHEN headers IS NULL THEN NULL ELSE ''::bytea END, body = CASE WHEN body IS NULL THEN NULL ELSE ''::bytea END
    WHERE number = ANY($1::int8[])";
static NEW_ITEMS: LazyLock<String> = LazyLock::new(insert::<ItemRec>);
static ITEMS: LazyLock<String> = LazyLock::new(update::<ItemRec>);
const GONE_ITEMS: &str = "DELETE FROM hapax_items WHERE number = ANY($1::int8[])";
static NEW_LANES: LazyLock<NewRows> = LazyLock::new(NewRows::of::<LaneRec>);
static LANES: LazyLock<String> = LazyLock::new(update::<LaneRec>);
const GONE_LANES: &str = "DELETE FROM hapax_lanes WHERE hash = ANY($1::bytea[])";
static NEW_PROVIDER_NAMES: LazyLock<String> = LazyLock::new(insert::<ProviderNameRec>);
static PROVIDER_NAMES: LazyLock<String> = LazyLock::new(update::<ProviderNameRec>);
const GONE_PROVIDER_NAMES: &str = "DELETE FROM hapax_provider_names WHERE hash = ANY($1::bytea[])";
static NEW_MESSAGES: LazyLock<String> = LazyLock::new(insert::<MessageRec>);
static MESSAGES: LazyLock<String> = LazyLock::new(|| update_only::<MessageRec>(&MessageRec::CHANGING));
const FORGOTTEN_MESSAGES: &str = "UPDATE hapax_messages SET text = NULL, payload = ''::bytea WHERE number = ANY($1::int8[])";
const GONE_MESSAGES: [&str; 2] = [
    "DELETE FROM hapax_messages WHERE number = ANY($1::int8[])",
    "DELETE FROM hapax_attempts WHERE queue = 1 AND made_for = ANY($1::int8[])",
];
static NEW_OUTS: LazyLock<String> = LazyLock::new(insert::<OutRec>);
static OUTS: LazyLock<String> = LazyLock::new(update::<OutRec>);
const GONE_OUTS: &str = "DELETE FROM hapax_outs WHERE number = ANY($1::int8[])";
static NEW_CLAIMS: LazyLock<String> = LazyLock::new(insert::<ClaimRec>);
static CLAIMS: LazyLock<String> = LazyLock::new(update::<ClaimRec>);
const GONE_CLAIMS: &str = "DELETE FROM hapax_claims WHERE hash = ANY($1::bytea[])";
static ATTEMPTS: LazyLock<String> = LazyLock::new(insert::<AttemptRec>);
static ANSWERS: LazyLock<String> = LazyLock::new(|| {
    let put = "ON CONFLICT (event) DO UPDATE
        SET status = excluded.status, content_type = excluded.content_type, body = excluded.body";
    format!("{} {put}", insert::<AnswerRec>())
});

/// The statements for all changes, in the order in which every step takes its locks.
pub(super) fn asks(changes: &Changes) -> Vec<SqlCall<'_>> {
    let mut asks = Vec::new();
    asks_of_lanes(changes, &mut asks);
    peers::asks(changes, &mut asks);
    asks_of_events(changes, &mut asks);
    asks_of_messages(changes, &mut asks);
    put(&mut asks, &NEW_CLAIMS, &changes.new_claims);
    put(&mut asks, &CLAIMS, &changes.claims);
    put_keys(&mut asks, &[GONE_CLAIMS], &changes.gone_claims, hashes);
    put(&mut asks, &ATTEMPTS, &changes.attempts);
    put(&mut asks, &ANSWERS, &changes.answers);
    asks
}

fn asks_of_lanes<'c>(changes: &'c Changes, asks: &mut Vec<SqlCall<'c>>) {
    put_new(asks, &NEW_LANES, &changes.new_lanes);
    put(asks, &LANES, &changes.lanes);
    put_keys(asks, &[GONE_LANES], &changes.gone_lanes, hashes);
}

fn asks_of_events<'c>(changes: &'c Changes, asks: &mut Vec<SqlCall<'c>>) {
    put_new(asks, &NEW_EVENTS, &changes.new_events);
    if !changes.replays.is_empty() {
        let (of, replays): (Vec<i64>, Vec<i32>) = changes.replays.iter().map(|(of, count)| (*of as i64, *count as i32)).unzip();
        asks.push(SqlCall::new(REPLAYS, vec![Box::new(of), Box::new(replays)]));
    }
    put_keys(asks, &GONE_EVENTS, &changes.gone_events, event_numbers);
    put_keys(asks, &FORGOTTEN_EVENTS, &changes.forgotten_events, numbers);
    put_keys(asks, &[FORGOTTEN_BODIES], &changes.forgotten_bodies, event_numbers);
    put(asks, &NEW_ITEMS, &changes.new_items);
    put(asks, &ITEMS, &changes.items);
    put_keys(asks, &[GONE_ITEMS], &changes.gone_items, numbers);
}

fn asks_of_messages<'c>(changes: &'c Changes, asks: &mut Vec<SqlCall<'c>>) {
    put(asks, &NEW_PROVIDER_NAMES, &changes.new_provider_names);
    put(asks, &PROVIDER_NAMES, &changes.provider_names);
    put_keys(asks, &[GONE_PROVIDER_NAMES], &changes.gone_provider_names, hashes);
    put(asks, &NEW_MESSAGES, &changes.new_messages);
    if !changes.messages.is_empty() {
        asks.push(SqlCall::new(&**MESSAGES, changed_arrays(&in_order(&changes.messages), &MessageRec::CHANGING)));
    }
    put_keys(asks, &[FORGOTTEN_MESSAGES], &changes.forgotten_messages, message_numbers);
    put_keys(asks, &GONE_MESSAGES, &changes.gone_messages, numbers);
    put(asks, &NEW_OUTS, &changes.new_outs);
    put(asks, &OUTS, &changes.outs);
    put_keys(asks, &[GONE_OUTS], &changes.gone_outs, numbers);
}

fn put<'c, R: InTable>(asks: &mut Vec<SqlCall<'c>>, sql: &'static str, records: &'c [R]) {
    if !records.is_empty() {
        asks.push(SqlCall::new(sql, arrays(&in_order(records))));
    }
}

fn put_new<'c, R: InTable>(asks: &mut Vec<SqlCall<'c>>, sql: &'static NewRows, records: &'c [R]) {
    if !records.is_empty() {
        asks.push(sql.put(&in_order(records)));
    }
}

fn event_numbers(events: &[EventRec]) -> Param<'_> {
    Box::new(events.iter().map(|event| event.number as i64).collect::<Vec<i64>>())
}

fn message_numbers(messages: &[MessageRec]) -> Param<'_> {
    Box::new(messages.iter().map(|message| message.number as i64).collect::<Vec<i64>>())
}

fn put_keys<'c, K>(asks: &mut Vec<SqlCall<'c>>, sqls: &[&'static str], keys: &'c [K], param: fn(&'c [K]) -> Param<'c>) {
    if !keys.is_empty() {
        asks.extend(sqls.iter().map(|sql| SqlCall::new(*sql, vec![param(keys)])));
    }
}
