//! `/v1/outbox`: messages on their way out, and those in doubt.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use hapax_domain::filter::{Filter, Grammar, Word};
use hapax_domain::{MessageId, ThreadId};
use hapax_store::{MessageRow, OutboxPlace, OutboxQuery, OutboxState, Store, StoreError, asked_request_id};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::filtered::{self, Look};
use super::list::{Asked, page, page_limit, page_of};
use super::time::rfc3339;
use super::{Api, Caller, Cursors, Problem};

/// Messages looked through for one that is not in doubt.
const OUTBOX_LOOKED_AT: usize = 200;
const GRAMMAR: Grammar = Grammar {
    words: &[Word::Channel, Word::Account, Word::Thread, Word::State, Word::Text, Word::Since, Word::Before],
    states: &["queued", "leased", "sending", "unknown"],
    kinds: &[],
};

#[derive(Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutboxParams {
    /// A filter, as `channel:shop state:parked since:1h text:"refund"`.
    pub(crate) q: Option<String>,
    pub(crate) channel: Option<String>,
    pub(crate) account: Option<String>,
    /// Only those in doubt.
    pub(crate) unknown: Option<bool>,
    /// Where the page begins: the `next` of the page before.
    pub(crate) cursor: Option<String>,
    /// How many rows at most: 1 to 500, 50 unless told.
    pub(crate) limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = OutboxItem)]
pub(crate) struct Item {
    pub(crate) id: String,
    pub(crate) channel: String,
    pub(crate) account: String,
    pub(crate) to: String,
    pub(crate) thread: String,
    pub(crate) request_id: String,
    pub(crate) text: Option<String>,
    pub(crate) priority: &'static str,
    pub(crate) status: &'static str,
    pub(crate) created_at: String,
    pub(crate) why: Option<String>,
    #[serde(flatten)]
    #[schema(value_type = OutboxPosition)]
    pub(crate) place: Option<OutboxPosition>,
}

page!(OutboxPage { items: Item });

/// Where a message stands in the outbox.
#[derive(Serialize, ToSchema)]
pub(crate) struct OutboxPosition {
    /// queued, leased, sending or unknown.
    pub(crate) state: &'static str,
    pub(crate) attempt: u32,
    /// Tries that failed through the message's own fault: what `send_attempts` bounds.
    pub(crate) failures: u32,
    pub(crate) worker: Option<String>,
    pub(crate) lease_until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due_at: Option<String>,
    /// When the provider is asked what became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) check_at: Option<String>,
}

/// Lists messages on their way out, oldest first.
#[utoipa::path(
    get,
    path = "/outbox",
    operation_id = "listOutbox",
    tag = "outbox",
    params(OutboxParams),
    responses((status = 200, description = "One page, oldest first", body = OutboxPage)),
)]
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Asked(ask): Asked<OutboxParams>,
) -> Result<Json<OutboxPage>, Problem> {
    let filter = filtered::read(&api, &caller, ask.q.as_deref(), &GRAMMAR)?.and(Word::Channel, ask.channel)?;
    let filter = filter.and(Word::Account, ask.account)?;
    let cursors = Cursors::new(&api, &caller, "outbox", ask.q.as_deref().unwrap_or_default());
    let query = OutboxQuery {
        channel: None,
        account: filter.wanted(Word::Account).map(str::to_owned),
        unknown: ask.unknown.unwrap_or_default() || filter.wanted(Word::State) == Some("unknown"),
        after: cursors.place(ask.cursor.as_deref(), |place| Ok(place.parse()?))?,
        limit: page_limit(ask.limit),
    };
    let channels = caller.narrow(filter.wanted(Word::Channel).map(str::to_owned))?;
    let fetch = async |after: Option<MessageId>, limit: usize| {
        let of = |channel| api.store.outbox(OutboxQuery { channel, after, limit, ..query.clone() });
        Ok::<_, Problem>(page_of(channels.clone(), limit, of, |a, b| a.id.cmp(&b.id)).await?)
    };
    let filter = filter.without(&[Word::Channel, Word::Account]);
    let cursor = |id: MessageId| cursors.write(&id.to_string());
    if filter.is_empty() {
        let page = fetch(query.after, query.limit).await?;
        let next = page.next(|row| cursor(row.id));
        return Ok(Json(OutboxPage::new(api.shown(&caller, page.rows), next, None)));
    }
    let read = async |row: MessageRow| Ok(Some(row));
    let found = filtered::find(query.limit, query.after, fetch, |row| row.id, |row| look(&filter, row), read).await?;
    Ok(Json(OutboxPage::new(api.shown(&caller, found.rows), found.next.map(cursor), Some(found.looked_at))))
}

/// When the oldest message was made that waits to be sent and is not in doubt.
pub(crate) async fn oldest_waiting(store: &dyn Store, channel: Option<&str>) -> Result<Option<i64>, StoreError> {
    // Most often the first is it; messages in doubt may stand before it.
    for limit in [1, OUTBOX_LOOKED_AT] {
        let query = OutboxQuery { channel: channel.map(str::to_owned), limit, ..OutboxQuery::default() };
        let page = store.outbox(query).await?;
        let waits =
            |row: &&MessageRow| row.outbox.as_ref().is_some_and(|place| !matches!(place.state, OutboxState::Unknown { .. }));
        let oldest = page.rows.iter().find(waits);
        if oldest.is_some() || !page.more {
            return Ok(oldest.map(|row| row.created_ms));
        }
    }
    Ok(None)
}

fn look(filter: &Filter, row: &MessageRow) -> Look {
    let thread = || ThreadId { account: row.account.clone(), peer: row.peer.clone() }.to_string();
    let text = || row.text.clone().unwrap_or_default() + "\n" + &filtered::texts_in(&row.payload);
    let fits = filter.allows(Word::Channel, |channel| channel == row.channel)
        && filter.allows(Word::Account, |account| account == row.account)
        && filter.allows(Word::Thread, |asked| thread() == asked)
        && filter.allows(Word::State, |state| row.outbox.as_ref().is_some_and(|place| place.state.name() == state))
        && filtered::text_fits(filter, text);
    match filtered::look_at_time(filter, row.created_ms, false) {
        Look::Keep if !fits => Look::Skip,
        look => look,
    }
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
