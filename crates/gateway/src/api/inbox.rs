//! `/v1/inbox`: items on their way to the target, and those that wait for a person.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use hapax_store::{InboxQuery, InboxRow, ItemState};
use serde::{Deserialize, Serialize};

use super::list::{Asked, List, page_limit, page_of};
use super::time::rfc3339;
use super::{Api, Caller, Cursors, Problem};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InboxParams {
    channel: Option<String>,
    parked: Option<bool>,
    after: Option<String>,
    limit: Option<usize>,
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
    Asked(ask): Asked<InboxParams>,
) -> Result<Json<List<Item>>, Problem> {
    let cursors = Cursors::new(&api, &caller, "inbox", "");
    let query = InboxQuery {
        channel: None,
        parked: ask.parked,
        after: cursors.place(ask.after.as_deref(), |place| Ok(place.parse()?))?,
        limit: page_limit(ask.limit),
    };
    let of = |channel| api.store.inbox(InboxQuery { channel, ..query.clone() });
    let page = page_of(caller.narrow(ask.channel)?, query.limit, of, |a, b| a.item.cmp(&b.item)).await?;
    Ok(Json(List::new("items", page, |row| cursors.write(&row.item.to_string()))))
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
