//! `/v1/outbox`: messages on their way out, and those in doubt.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use hapax_domain::ThreadId;
use hapax_store::{MessageRow, OutboxPlace, OutboxQuery, OutboxState, asked_request_id};
use serde::{Deserialize, Serialize};

use super::list::{Asked, List, page_limit, page_of};
use super::time::rfc3339;
use super::{Api, Caller, Cursors, Problem};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OutboxParams {
    channel: Option<String>,
    account: Option<String>,
    /// Only those in doubt.
    unknown: Option<bool>,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Item {
    id: String,
    channel: String,
    account: String,
    to: String,
    thread: String,
    request_id: String,
    text: Option<String>,
    priority: &'static str,
    status: &'static str,
    created_at: String,
    why: Option<String>,
    #[serde(flatten)]
    place: Option<OutboxPosition>,
}

/// Where a message stands in the outbox.
#[derive(Serialize)]
pub(super) struct OutboxPosition {
    /// queued, leased, sending or unknown.
    state: &'static str,
    attempt: u32,
    /// Tries that failed through the message's own fault: what `send_attempts` bounds.
    failures: u32,
    worker: Option<String>,
    lease_until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<String>,
    /// When the provider is asked what became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    check_at: Option<String>,
}

pub(super) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Asked(ask): Asked<OutboxParams>,
) -> Result<Json<List<Item>>, Problem> {
    let cursors = Cursors::new(&api, &caller, "outbox", "");
    let query = OutboxQuery {
        channel: None,
        account: ask.account,
        unknown: ask.unknown.unwrap_or_default(),
        after: cursors.place(ask.after.as_deref(), |place| Ok(place.parse()?))?,
        limit: page_limit(ask.limit),
    };
    let of = |channel| api.store.outbox(OutboxQuery { channel, ..query.clone() });
    let page = page_of(caller.narrow(ask.channel)?, query.limit, of, |a, b| a.id.cmp(&b.id)).await?;
    Ok(Json(List::new("items", page, |row| cursors.write(&row.id.to_string()))))
}

impl From<MessageRow> for Item {
    fn from(row: MessageRow) -> Self {
        Self {
            id: row.id.to_string(),
            thread: ThreadId { account: row.account.clone(), peer: row.peer.clone() }.to_string(),
            channel: row.channel,
            account: row.account,
            to: row.peer,
            request_id: asked_request_id(&row.request_id).to_owned(),
            text: row.text,
            priority: row.priority.name(),
            status: row.steps.status().name(),
            created_at: rfc3339(row.created_ms),
            why: row.why,
            place: row.outbox.map(OutboxPosition::from),
        }
    }
}

impl From<OutboxPlace> for OutboxPosition {
    fn from(place: OutboxPlace) -> Self {
        let state = place.state.name();
        let (attempt, failures) = (place.attempt, place.failures);
        let bare = Self { state, attempt, failures, worker: None, lease_until: None, fence: None, due_at: None, check_at: None };
        match place.state {
            OutboxState::Waiting { due_ms } => Self { due_at: Some(rfc3339(due_ms)), ..bare },
            OutboxState::Leased { worker, until_ms, fence, .. } => {
                Self { worker: Some(worker), lease_until: Some(rfc3339(until_ms)), fence: Some(fence.0), ..bare }
            }
            OutboxState::Unknown { check_ms } => Self { check_at: check_ms.map(rfc3339), ..bare },
        }
    }
}
