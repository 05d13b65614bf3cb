//! `/v1/redrive`: parked items go back in line.

use std::sync::Arc;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::{Extension, Json};
use hapax_store::Redrive;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::audit::Noted;
use super::{Api, Caller, Problem, event_ref, events};

/// Most items one call puts back; more need another call.
const REDRIVE_MAX: usize = 10_000;

/// Exactly one of these.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedriveBody {
    pub(crate) item: Option<String>,
    pub(crate) event: Option<String>,
    pub(crate) channel: Option<String>,
    pub(crate) all: Option<bool>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Redriven {
    pub(crate) redriven: usize,
    /// True when there may be more: call again.
    pub(crate) more: bool,
}

/// Puts parked items back in line, with their failures forgotten.
#[utoipa::path(
    post,
    path = "/redrive",
    operation_id = "redrive",
    tag = "inbox",
    request_body = RedriveBody,
    responses((status = 200, description = "How many are in line again", body = Redriven), (status = 404)),
)]
pub(crate) async fn redrive(
    State(api): State<Arc<Api>>,
    caller: Caller,
    ask: Result<Json<RedriveBody>, JsonRejection>,
) -> Result<(Extension<Noted>, Json<Redriven>), Problem> {
    let Json(ask) = ask?;
    let which = match (ask.item, ask.event, ask.channel, ask.all) {
        (Some(item), None, None, None) => Redrive::Item(item.parse()?),
        (None, Some(event), None, None) => Redrive::Event(event_ref::resolve(&api, &caller, &event).await?),
        (None, None, Some(channel), None) => Redrive::Channel(channel),
        (None, None, None, Some(true)) => Redrive::All,
        _ => {
            let todo = "say what to redrive with exactly one of {\"item\":\"itm_..\"}, {\"event\":\"evt_..\"}, {\"channel\":\"..\"}, {\"all\":true}";
            return Err(Problem::bad_request(todo));
        }
    };
    match &which {
        Redrive::Channel(channel) => caller.need_channel(channel)?,
        Redrive::Event(event) if caller.is_limited() => drop(events::find(&api, &caller, &event.to_string()).await?),
        // Which channel an item is of is not known before it is in line again.
        Redrive::Item(_) | Redrive::All => caller.need_all_channels()?,
        Redrive::Event(_) => {}
    }
    let target = match &which {
        Redrive::Item(item) => item.to_string(),
        Redrive::Event(event) => event.to_string(),
        Redrive::Channel(channel) => channel.clone(),
        Redrive::All => "all".to_owned(),
    };
    let redriven = api.store.redrive(which, REDRIVE_MAX).await?;
    let noted = Noted { target: Some(target), result: Some(format!("{redriven} in line again")), ..Noted::default() };
    Ok((Extension(noted), Json(Redriven { redriven, more: redriven == REDRIVE_MAX })))
}
