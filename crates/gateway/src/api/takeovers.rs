//! `/v1/threads/{id}/pause` and `/resume`: a person takes a thread over from the bot, and hands it back.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use hapax_domain::ThreadId;
use hapax_store::ThreadRow;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::events::read_thread;
use super::thread_view::{self, LOOK_AT_ONE};
use super::threads::{self, Thread};
use super::time::rfc3339;
use super::{Api, Caller, Problem};
use crate::takeover::{Mode, NotPaused, Pause};

#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PauseBody {
    /// What becomes of what comes in meanwhile: `wait` (unless told), or `done`: the bot never gets it.
    mode: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = PausedThread)]
pub(crate) struct Paused {
    pub(crate) mode: &'static str,
    pub(crate) since: String,
    /// The name of the token.
    pub(crate) by: String,
}

/// Takes a conversation over from the bot: what comes in waits, visibly, or is marked as done.
#[utoipa::path(
    post,
    path = "/threads/{id}/pause",
    operation_id = "pauseThread",
    tag = "threads",
    params(("id" = String, Path, description = "`{account}__{peer}`")),
    request_body(content = Option<PauseBody>, content_type = "application/json"),
    responses((status = 200, description = "The bot gets nothing more of it", body = Thread), (status = 404), (status = 422)),
)]
pub(super) async fn pause(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(id): Path<String>,
    ask: Result<Option<Json<PauseBody>>, JsonRejection>,
) -> Result<Json<Thread>, Problem> {
    let asked = ask?.map(|Json(ask)| ask).unwrap_or_default().mode;
    let Some(mode) = Mode::from_name(asked.as_deref().unwrap_or(Mode::Wait.name())) else {
        return Err(Problem::bad_request("`mode` is `wait` or `done`"));
    };
    let id = read_thread(&id)?;
    take_over(&api, &caller, &id, mode).await?;
    threads::shown(&api, &caller, threads::find(&api, &caller, &id).await?.row).await
}

/// Hands a conversation back to the bot, which gets what waited, in order.
#[utoipa::path(
    post,
    path = "/threads/{id}/resume",
    operation_id = "resumeThread",
    tag = "threads",
    params(("id" = String, Path, description = "`{account}__{peer}`")),
    responses((status = 200, description = "The bot gets it again", body = Thread), (status = 404)),
)]
pub(super) async fn resume(State(api): State<Arc<Api>>, caller: Caller, Path(id): Path<String>) -> Result<Json<Thread>, Problem> {
    let id = read_thread(&id)?;
    hand_back(&api, &caller, &id).await?;
    threads::shown(&api, &caller, threads::find(&api, &caller, &id).await?.row).await
}

pub(crate) async fn take_over(api: &Api, caller: &Caller, id: &ThreadId, mode: Mode) -> Result<Pause, Problem> {
    let person = person(api, caller, id).await?;
    api.takeovers.pause(&person, mode, &caller.name).await.map_err(|not| match not {
        NotPaused::Full => Problem::unprocessable(NotPaused::Full.to_string()),
        NotPaused::Store(error) => error.into(),
    })
}

/// Handing back what is not paused changes nothing.
pub(crate) async fn hand_back(api: &Api, caller: &Caller, id: &ThreadId) -> Result<Option<Pause>, Problem> {
    let person = person(api, caller, id).await?;
    Ok(api.takeovers.resume(&person).await?)
}

/// The thread that goes on under this name, with all names of the person. A pause holds for all channels that speak in it, so it takes a token of
/// all of them.
async fn person(api: &Api, caller: &Caller, id: &ThreadId) -> Result<ThreadRow, Problem> {
    let asked = threads::find(api, caller, id).await?;
    let person = api.store.person(id).await?.ok_or_else(|| threads::no_such_thread(id))?;
    // The asked one may be all the caller's, from before it was known whose it is.
    let seen = thread_view::view(api, caller, person.clone(), LOOK_AT_ONE, Some(&person.id)).await?;
    if asked.shared || seen.is_none_or(|seen| seen.shared) {
        let why = "another channel speaks in this thread too, and would be paused with it; use a token of all its channels";
        return Err(Problem::forbidden(why));
    }
    Ok(person)
}

impl From<Pause> for Paused {
    fn from(pause: Pause) -> Self {
        Self { mode: pause.mode.name(), since: rfc3339(pause.since_ms), by: pause.by }
    }
}
