//! `/v1/backup`: a copy of the store while it runs.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderValue, header};

use super::{Api, Caller, Problem};
use crate::backups::NoBackup;

/// Copies the whole store, as it is at one moment, for `hapax restore`.
#[utoipa::path(
    get,
    path = "/backup",
    operation_id = "backup",
    tag = "upkeep",
    responses(
        (status = 200, description = "The copy: a file for `hapax restore`, of as many bytes as `Content-Length` says", body = Vec<u8>, content_type = "application/vnd.sqlite3"),
        (status = 422, description = "The store is a server, which has tools of its own"),
        (status = 429, description = "Another one is being made"),
    ),
)]
pub(super) async fn backup(State(api): State<Arc<Api>>, caller: Caller) -> Result<Response, Problem> {
    caller.need_all_channels()?;
    let made = match api.backups.make().await {
        Ok(made) => made,
        Err(NoBackup::Busy) => return Err(Problem::too_many("a backup is being made; come again when it is done")),
        Err(NoBackup::OwnTools(tools)) => return Err(Problem::unprocessable(tools)),
        Err(NoBackup::Store(error)) => return Err(error.into()),
    };
    let bytes = made.bytes;
    let mut response = Response::new(Body::from_stream(made.read()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/vnd.sqlite3"));
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    Ok(response)
}
