//! `/v1/messages/{id}`: one message that goes out, with the times of its steps and the evidence of every try.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use hapax_domain::limits::ROUNDS_MAX;
use hapax_domain::{MessageId, ThreadId};
use hapax_store::{Changed, MessageRow, TryRow, asked_request_id};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::outbox::OutboxPosition;
use super::story::Step;
use super::time::rfc3339;
use super::{Api, Caller, Problem, send_story};

#[derive(Serialize, ToSchema)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) status: &'static str,
    pub(crate) channel: String,
    pub(crate) account: String,
    pub(crate) to: String,
    pub(crate) thread: String,
    pub(crate) request_id: String,
    pub(crate) text: Option<String>,
    /// What the provider was or will be given, in its own words.
    #[schema(value_type = Option<Object>)]
    pub(crate) payload: Option<Box<RawValue>>,
    pub(crate) priority: &'static str,
    /// The event whose handler answered with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reply_to: Option<String>,
    pub(crate) created_at: String,
    pub(crate) provider_id: Option<String>,
    pub(crate) why: Option<String>,
    pub(crate) steps: Vec<Reached>,
    /// Where it stands in the outbox; nothing once it has left it.
    pub(crate) outbox: Option<OutboxPosition>,
    pub(crate) tries: Vec<Try>,
    pub(crate) story: Vec<Step>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Reached {
    status: &'static str,
    at: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Try {
    attempt: u32,
    fence: u64,
    worker: String,
    leased_at: String,
    ended_at: String,
    outcome: String,
    detail: String,
}

/// Shows one message that goes out, with the evidence of every try.
#[utoipa::path(
    get,
    path = "/messages/{id}",
    operation_id = "getMessage",
    tag = "messages",
    params(("id" = String, Path, description = "`msg_…`")),
    responses((status = 200, description = "The message", body = Message), (status = 404)),
)]
pub(crate) async fn one(State(api): State<Arc<Api>>, caller: Caller, Path(id): Path<String>) -> Result<Json<Message>, Problem> {
    show(&api, &caller, read_id(&id)?).await
}

/// Sends a message that failed or is in doubt once more.
#[utoipa::path(
    post,
    path = "/messages/{id}/retry",
    operation_id = "retryMessage",
    tag = "messages",
    params(("id" = String, Path, description = "`msg_…`")),
    responses((status = 200, description = "It is in line again", body = Message), (status = 404), (status = 409)),
)]
pub(crate) async fn retry(State(api): State<Arc<Api>>, caller: Caller, Path(id): Path<String>) -> Result<Json<Message>, Problem> {
    let id = read_id(&id)?;
    make_sure_it_is_seen(&api, &caller, id).await?;
    match api.store.retry_message(id).await? {
        Changed::Done => show(&api, &caller, id).await,
        Changed::NotFound => Err(no_such_message(id)),
        Changed::TooLate => Err(Problem::too_late(format!(
            "{id} cannot be sent once more{}; only messages that failed or are in doubt can, {ROUNDS_MAX} times. Write a new one",
            standing(&api, id).await
        ))),
    }
}

/// Takes a message out of the outbox, or gives up one in doubt.
#[utoipa::path(
    post,
    path = "/messages/{id}/cancel",
    operation_id = "cancelMessage",
    tag = "messages",
    params(("id" = String, Path, description = "`msg_…`")),
    responses((status = 200, description = "It has left the outbox", body = Message), (status = 404), (status = 409)),
)]
pub(crate) async fn cancel(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Message>, Problem> {
    let id = read_id(&id)?;
    make_sure_it_is_seen(&api, &caller, id).await?;
    match api.store.cancel_message(id).await? {
        Changed::Done => {
            let row = find(&api, &caller, id).await?;
            api.telemetry.outbox_has_room(&row.channel, &row.account);
            show(&api, &caller, id).await
        }
        Changed::NotFound => Err(no_such_message(id)),
        Changed::TooLate => Err(Problem::too_late(format!(
            "{id} cannot be cancelled{}; only messages that wait or are in doubt can",
            standing(&api, id).await
        ))),
    }
}

fn read_id(text: &str) -> Result<MessageId, Problem> {
    Ok(text.parse()?)
}

/// A message of a channel that the caller does not see is not there.
async fn find(api: &Api, caller: &Caller, id: MessageId) -> Result<MessageRow, Problem> {
    let found = api.store.message(id).await?.filter(|row| caller.sees(&row.channel));
    found.ok_or_else(|| no_such_message(id))
}

async fn make_sure_it_is_seen(api: &Api, caller: &Caller, id: MessageId) -> Result<(), Problem> {
    if caller.is_limited() { find(api, caller, id).await.map(drop) } else { Ok(()) }
}

async fn show(api: &Api, caller: &Caller, id: MessageId) -> Result<Json<Message>, Problem> {
    let row = api.shown_one(caller, find(api, caller, id).await?);
    let story = send_story::steps(&row, api.clock.now_ms());
    Ok(Json(Message::new(row, story)))
}

async fn standing(api: &Api, id: MessageId) -> String {
    match api.store.message(id).await {
        Ok(Some(row)) => match row.outbox {
            Some(place) => format!(": it is {} now", place.state.name()),
            None => format!(": it is {}", row.steps.status().name()),
        },
        Ok(None) | Err(_) => String::new(),
    }
}

fn no_such_message(id: MessageId) -> Problem {
    let detail =
        format!("there is no message {id}; it may be past its channel's `retention`. GET /v1/threads leads to what there is");
    Problem::not_found(detail)
}

impl Message {
    fn new(row: MessageRow, story: Vec<Step>) -> Self {
        let payload = String::from_utf8(row.payload.to_vec()).ok().and_then(|text| RawValue::from_string(text).ok());
        Self {
            id: row.id.to_string(),
            status: row.steps.status().name(),
            thread: ThreadId { account: row.account.clone(), peer: row.peer.clone() }.to_string(),
            channel: row.channel,
            account: row.account,
            to: row.peer,
            request_id: asked_request_id(&row.request_id).to_owned(),
            text: row.text,
            payload,
            priority: row.priority.name(),
            reply_to: row.reply_to.map(|event| event.to_string()),
            created_at: rfc3339(row.created_ms),
            provider_id: row.provider_id,
            why: row.why,
            steps: row.steps.iter().map(|(status, at_ms)| Reached { status: status.name(), at: rfc3339(at_ms) }).collect(),
            outbox: row.outbox.map(OutboxPosition::from),
            tries: row.tries.into_iter().map(Try::from).collect(),
            story,
        }
    }
}

impl From<TryRow> for Try {
    fn from(row: TryRow) -> Self {
        Self {
            attempt: row.attempt,
            fence: row.fence.0,
            worker: row.worker,
            leased_at: rfc3339(row.leased_ms),
            ended_at: rfc3339(row.ended_ms),
            outcome: row.outcome,
            detail: row.detail,
        }
    }
}
