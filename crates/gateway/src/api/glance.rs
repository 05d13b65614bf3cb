//! What a list of events shows beside their rows: how often each came and was tried, and what its provider calls it.

use futures_util::{StreamExt, TryStreamExt, stream};
use hapax_domain::EventId;

use super::events::{Event, own_type};
use super::inbox::Item;
use super::list::ASKED_AT_ONCE;
use super::{Api, Problem};

/// An event comes with its body: of larger ones nothing more is read for a list.
const READ_MAX_BYTES: u64 = 64 << 10;

#[derive(Clone, Debug, Default)]
pub(crate) struct Glance {
    pub(crate) copies: u64,
    pub(crate) conflicts: u64,
    pub(crate) attempts: u32,
    pub(crate) event_type: Option<String>,
}

/// One for each row, in their order; none for what is too large, or gone since.
pub(crate) async fn glances(api: &Api, rows: &[Event]) -> Result<Vec<Option<Glance>>, Problem> {
    let ids = rows.iter().map(|row| (row.body_bytes <= READ_MAX_BYTES).then(|| row.id.parse::<EventId>().ok()).flatten());
    let looks = ids.map(|id| async move {
        let Some(id) = id else { return Ok::<_, Problem>(None) };
        let Some(detail) = api.store.event(id).await? else { return Ok(None) };
        let tried = detail.attempts.iter().map(|row| row.attempt).chain(detail.open.iter().map(|row| row.attempt)).max();
        Ok(Some(Glance {
            copies: detail.copies.map_or(0, |copies| copies.copies),
            conflicts: detail.copies.map_or(0, |copies| copies.conflicts),
            attempts: tried.unwrap_or_default(),
            event_type: own_type(api, &detail),
        }))
    });
    stream::iter(looks.collect::<Vec<_>>()).buffered(ASKED_AT_ONCE).try_collect().await
}

/// Whom an item is from, and what its provider calls its event.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) peer: Option<String>,
    pub(crate) name: String,
}

/// One for each item, in their order; none for what is gone since.
pub(crate) async fn abouts(api: &Api, items: &[Item]) -> Result<Vec<Option<About>>, Problem> {
    let looks = items.iter().map(|item| item.event.parse::<EventId>().ok()).map(|id| async move {
        let Some(id) = id else { return Ok::<_, Problem>(None) };
        let Some(detail) = api.store.event(id).await? else { return Ok(None) };
        let name = own_type(api, &detail).unwrap_or_else(|| detail.row.kind.name().to_owned());
        Ok(Some(About { peer: detail.row.peer, name }))
    });
    stream::iter(looks.collect::<Vec<_>>()).buffered(ASKED_AT_ONCE).try_collect().await
}
