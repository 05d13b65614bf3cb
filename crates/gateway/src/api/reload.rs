//! `/v1/reload`: the config is read anew and applied while hapax runs.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;

use super::audit::Noted;
use super::{Api, Caller, Problem};

#[derive(Serialize, ToSchema)]
#[schema(as = Reloaded)]
pub(super) struct Done {
    /// Channels that there were not before.
    added: Vec<String>,
    /// Channels of which some key, secrets included, is another.
    changed: Vec<String>,
    /// Channels that are gone. What waits in them stays in the store.
    removed: Vec<String>,
}

/// Reads the config anew and applies it, without losing a request.
#[utoipa::path(
    post,
    path = "/reload",
    operation_id = "reload",
    tag = "upkeep",
    responses(
        (status = 200, description = "It is applied", body = Done),
        (status = 422, description = "It is refused: `detail` has all reasons, a line each, and nothing has changed"),
    ),
)]
pub(super) async fn reload(State(api): State<Arc<Api>>, caller: Caller) -> Result<(Extension<Noted>, Json<Done>), Problem> {
    caller.need_all_channels()?;
    match api.reloads.ask().await {
        Ok(done) => {
            let noted = Noted { target: done.in_short(), ..Noted::default() };
            Ok((Extension(noted), Json(Done { added: done.added, changed: done.changed, removed: done.removed })))
        }
        Err(reasons) => Err(Problem::unprocessable(reasons.join("\n"))),
    }
}
