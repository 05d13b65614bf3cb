//! `/v1/channels/{name}/seen`: messages that were handled before hapax was there. Their keys are claimed, so that copies of them go nowhere.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use bytes::Bytes;
use hapax_domain::{ChannelKey, Event, Kind, fingerprint};
use hapax_providers::seen::{self, Seen};
use hapax_store::{Arrival, Disposition, KeptHeaders, NewEvent};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Api, Caller, Problem};
use crate::channels::Channel;

/// The largest list of one call, and the most that its lines may be together.
const LINES_MAX: usize = 1_000;
pub(super) const BODY_MAX_BYTES: usize = 1 << 20;
/// Keys that are claimed in one step of the store.
const STEP_KEYS: usize = 500;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AskSeen {
    /// 1,000 at most.
    seen: Vec<Line>,
}

/// One message that was handled already. Which parts are needed depends on the provider.
#[derive(Deserialize, ToSchema)]
#[schema(as = SeenMessage)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    /// The provider's own id.
    id: String,
    /// The provider's own identity in the channel: phone_number_id, page, device, team, shop, account SID.
    account: Option<String>,
    /// Who wrote it (messenger, instagram, gowa, evolution, waha).
    sender: Option<String>,
    /// Slack's app id, Shopify's topic.
    scope: Option<String>,
    /// Only as this kind; without it, as every kind that the id may come as.
    kind: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = SeenClaimed)]
pub(super) struct Claimed {
    /// Messages of which a key was won now.
    claimed: usize,
    /// Messages that were known already.
    known: usize,
    /// Lines that say too little, and count for nothing.
    refused: Vec<RefusedLine>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = SeenRefused)]
pub(super) struct RefusedLine {
    /// Its place in the list, from 0.
    index: usize,
    why: String,
}

/// Claims the keys of messages that were handled before, so that copies of them are recognised. Asked twice, it changes nothing more.
#[utoipa::path(
    post,
    path = "/channels/{name}/seen",
    operation_id = "importSeen",
    tag = "channels",
    params(("name" = String, Path, description = "The channel")),
    request_body = AskSeen,
    responses((status = 200, description = "What became of each line", body = Claimed), (status = 404)),
)]
pub(super) async fn import(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(name): Path<String>,
    ask: Result<Json<AskSeen>, JsonRejection>,
) -> Result<Json<Claimed>, Problem> {
    caller.need_channel(&name)?;
    let Json(ask) = ask?;
    if ask.seen.len() > LINES_MAX {
        return Err(Problem::unprocessable(format!("{} are too many at once; send {LINES_MAX} at most", ask.seen.len())));
    }
    let no_channel = || Problem::not_found(format!("there is no channel `{name}`; GET /v1/channels lists them"));
    let channel = api.channels.get(name.as_str()).ok_or_else(no_channel)?;
    let mut refused = Vec::new();
    // Each event with the line it is of.
    let mut events: Vec<(usize, NewEvent)> = Vec::new();
    let key = ChannelKey::new(&name);
    for (index, line) in ask.seen.iter().enumerate() {
        match line.events(channel, &key) {
            Ok(of_line) => events.extend(of_line.into_iter().map(|event| (index, event))),
            Err(why) => refused.push(RefusedLine { index, why }),
        }
    }
    let mut won = vec![false; ask.seen.len()];
    while !events.is_empty() {
        let step: Vec<(usize, NewEvent)> = events.drain(..events.len().min(STEP_KEYS)).collect();
        let (lines, events): (Vec<usize>, Vec<NewEvent>) = step.into_iter().unzip();
        let arrival = Arrival {
            channel: Arc::clone(channel.name()),
            window_ms: channel.settings.window_ms,
            headers: KeptHeaders::default(),
            body: Bytes::new(),
            events,
            coalesce: None,
        };
        let accepted = api.store.accept(arrival.into()).await?;
        for (line, accepted) in lines.into_iter().zip(accepted) {
            won[line] |= accepted.is_new();
        }
    }
    let claimed = won.iter().filter(|won| **won).count();
    Ok(Json(Claimed { claimed, known: ask.seen.len() - claimed - refused.len(), refused }))
}

impl Line {
    /// Events that say nothing but that they were: kept, delivered nowhere, and equal to whatever comes under their keys.
    fn events(&self, channel: &Channel, key: &ChannelKey) -> Result<Vec<NewEvent>, String> {
        let kind = match self.kind.as_deref() {
            None => None,
            Some(name) => Some(Kind::from_name(name).ok_or_else(|| format!("`{name}` is no kind of event"))?),
        };
        let (account, sender, scope) = (self.account.as_deref(), self.sender.as_deref(), self.scope.as_deref());
        let found = seen::keys(&channel.settings.provider, &Seen { id: &self.id, account, sender, scope, kind })?;
        let event = |(kind, found): (Kind, hapax_domain::EventKey)| {
            let event = Event::new(kind, account.unwrap_or_default(), &self.id, found.in_channel(key), fingerprint::UNKNOWN);
            NewEvent { event, disposition: Disposition::Keep }
        };
        Ok(found.into_iter().map(event).collect())
    }
}
