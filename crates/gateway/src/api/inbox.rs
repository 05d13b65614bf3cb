//! `/v1/inbox`: items on their way to the target, and those that wait for a person.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use hapax_store::{InboxQuery, InboxRow, ItemState};
use serde::{Deserialize, Serialize};

use super::time::rfc3339;
use super::{Api, Caller, Cursors, Problem, page_limit, page_of};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ask {
    channel: Option<String>,
    parked: Option<bool>,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct List {
    items: Vec<Item>,
    /// Give this as `after` to get the next page; not there on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Item {
    item: String,
    event: String,
    channel: String,
    events: u32,
    attempt: u32,
    /// How many failures were charged so far; `attempts` of the channel is the most there may be.
    failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    replay: Option<u32>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<Lease>,
    why: Option<String>,
    received_at: String,
}

#[derive(Serialize)]
struct Lease {
    worker: String,
    until: String,
    fence: u64,
}

pub(super) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    ask: Result<Query<Ask>, QueryRejection>,
) -> Result<Json<List>, Problem> {
    let Query(ask) = ask?;
    let cursors = Cursors::of(&api, &caller, "inbox", "");
    let query = InboxQuery {
        channel: None,
        parked: ask.parked,
        after: ask.after.as_deref().map(|after| Ok::<_, Problem>(cursors.read(after)?.parse()?)).transpose()?,
        limit: page_limit(ask.limit),
    };
    let of = |channel| api.store.inbox(InboxQuery { channel, ..query.clone() });
    let page = page_of(caller.narrow(ask.channel)?, query.limit, of, |a, b| a.item.cmp(&b.item)).await?;
    let next = page.rows.last().filter(|_| page.more).map(|row| cursors.write(&row.item.to_string()));
    Ok(Json(List { items: page.rows.into_iter().map(Item::from).collect(), next }))
}

impl From<InboxRow> for Item {
    fn from(row: InboxRow) -> Self {
        let state = row.state.name();
        let (due_at, lease) = match row.state {
            ItemState::Waiting { due_ms } => (Some(rfc3339(due_ms)), None),
            ItemState::Leased { worker, until_ms, fence } => {
                (None, Some(Lease { worker, until: rfc3339(until_ms), fence: fence.0 }))
            }
            ItemState::Parked | ItemState::Quarantined => (None, None),
        };
        Self {
            item: row.item.to_string(),
            event: row.event.to_string(),
            channel: row.channel,
            events: row.events,
            attempt: row.attempt,
            failures: row.failures,
            replay: row.replay,
            state,
            due_at,
            lease,
            why: row.why,
            received_at: rfc3339(row.received_ms),
        }
    }
}
