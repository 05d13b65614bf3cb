//! `/v1/inbox`: items on their way to the target, and those that wait for a person.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use hapax_domain::ItemId;
use hapax_domain::filter::{Filter, Grammar, Word};
use hapax_store::{InboxQuery, InboxRow, ItemState};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::filtered::{self, KINDS, Look};
use super::list::{Asked, page, page_limit, page_of};
use super::time::rfc3339;
use super::{Api, Caller, Cursors, Problem};

const GRAMMAR: Grammar = Grammar {
    words: &[
        Word::Channel,
        Word::Account,
        Word::Thread,
        Word::Kind,
        Word::State,
        Word::Type,
        Word::Text,
        Word::Since,
        Word::Before,
    ],
    states: &["waiting", "leased", "parked", "quarantined"],
    kinds: KINDS,
};

#[derive(Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct InboxParams {
    /// A filter, as `channel:shop state:parked since:1h text:"refund"`.
    pub(crate) q: Option<String>,
    pub(crate) channel: Option<String>,
    pub(crate) parked: Option<bool>,
    /// Where the page begins: the `next` of the page before.
    pub(crate) cursor: Option<String>,
    /// How many rows at most: 1 to 500, 50 unless told.
    pub(crate) limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = InboxItem)]
pub(crate) struct Item {
    pub(crate) item: String,
    pub(crate) event: String,
    pub(crate) channel: String,
    pub(crate) events: u32,
    pub(crate) attempt: u32,
    /// How many failures were charged so far; `attempts` of the channel is the most there may be.
    pub(crate) failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replay: Option<u32>,
    pub(crate) state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<Lease>,
    pub(crate) why: Option<String>,
    pub(crate) received_at: String,
}

page!(InboxPage { items: Item });

#[derive(Serialize, ToSchema)]
pub(crate) struct Lease {
    pub(crate) worker: String,
    pub(crate) until: String,
    pub(crate) fence: u64,
}

/// Lists items on their way to the target, and those that wait for a person, oldest first.
#[utoipa::path(
    get,
    path = "/inbox",
    operation_id = "listInbox",
    tag = "inbox",
    params(InboxParams),
    responses((status = 200, description = "One page, oldest first", body = InboxPage)),
)]
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Asked(ask): Asked<InboxParams>,
) -> Result<Json<InboxPage>, Problem> {
    let filter = filtered::read(&api, &caller, ask.q.as_deref(), &GRAMMAR)?.and(Word::Channel, ask.channel)?;
    let cursors = Cursors::new(&api, &caller, "inbox", ask.q.as_deref().unwrap_or_default());
    let waits_for_a_person = filter.wanted(Word::State).map(|state| matches!(state, "parked" | "quarantined"));
    let query = InboxQuery {
        channel: None,
        parked: ask.parked.or(waits_for_a_person),
        after: cursors.place(ask.cursor.as_deref(), |place| Ok(place.parse()?))?,
        limit: page_limit(ask.limit),
    };
    let channels = caller.narrow(filter.wanted(Word::Channel).map(str::to_owned))?;
    let fetch = async |after: Option<ItemId>, limit: usize| {
        let of = |channel| api.store.inbox(InboxQuery { channel, after, limit, ..query.clone() });
        Ok::<_, Problem>(page_of(channels.clone(), limit, of, |a, b| a.item.cmp(&b.item)).await?)
    };
    let filter = filter.without(&[Word::Channel]);
    let cursor = |id: ItemId| cursors.write(&id.to_string());
    if filter.is_empty() {
        let page = fetch(query.after, query.limit).await?;
        let next = page.next(|row| cursor(row.item));
        return Ok(Json(InboxPage::new(page.rows, next, None)));
    }
    let read = async |row: InboxRow| Ok(filtered::event_fits(&api, row.event, &filter).await?.then_some(row));
    let found = filtered::find(query.limit, query.after, fetch, |row| row.item, |row| look(&filter, row), read).await?;
    Ok(Json(InboxPage::new(found.rows, found.next.map(cursor), Some(found.looked_at))))
}

/// What can be told of an item without reading its event.
fn look(filter: &Filter, row: &InboxRow) -> Look {
    let fits = filter.allows(Word::Channel, |channel| channel == row.channel)
        && filter.allows(Word::State, |state| state == row.state.name());
    let is_of_the_event = [Word::Account, Word::Thread, Word::Kind, Word::Type, Word::Text].iter().any(|word| filter.asks(*word));
    match filtered::look_at_time(filter, row.received_ms, false) {
        Look::Keep if !fits => Look::Skip,
        Look::Keep if is_of_the_event => Look::Read,
        look => look,
    }
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
