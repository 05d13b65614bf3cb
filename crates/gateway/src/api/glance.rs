//! What a list of events shows beside their rows: how often each came and was tried, and what its provider calls it.

use hapax_domain::EventId;
use hapax_store::EventDetail;

use super::events::{Event, own_type};
use super::inbox::Item;
use super::list::ASKED_AT_ONCE;
use super::{Api, Problem};

/// An event comes with its body: of larger ones nothing more is read for a list.
const READ_MAX_BYTES: u64 = 64 << 10;
/// Bodies that are held at the same time.
const HELD_MAX_BYTES: u64 = 8 * READ_MAX_BYTES;

#[derive(Clone, Debug, Default)]
pub(crate) struct Glance {
    pub(crate) copies: u64,
    pub(crate) conflicts: u64,
    pub(crate) attempts: u32,
    pub(crate) event_type: Option<String>,
}

impl Glance {
    fn at(api: &Api, detail: &EventDetail) -> Self {
        let tried = detail.attempts.iter().map(|row| row.attempt).chain(detail.open.iter().map(|row| row.attempt)).max();
        Self {
            copies: detail.copies.map_or(0, |copies| copies.copies),
            conflicts: detail.copies.map_or(0, |copies| copies.conflicts),
            attempts: tried.unwrap_or_default(),
            event_type: own_type(api, detail),
        }
    }
}

/// One for each row, in their order; none for what is too large, or gone since. The store is asked for as many at once as may be held.
pub(crate) async fn glances(api: &Api, rows: &[Event]) -> Result<Vec<Option<Glance>>, Problem> {
    let mut glances: Vec<Option<Glance>> = Vec::with_capacity(rows.len());
    for rows in parts(rows) {
        let id = |row: &Event| if row.body_bytes <= READ_MAX_BYTES { row.id.parse::<EventId>().ok() } else { None };
        let ids: Vec<Option<EventId>> = rows.iter().map(id).collect();
        let mut found = api.store.details(ids.iter().flatten().copied().collect()).await?.into_iter();
        glances.extend(ids.iter().map(|id| id.and_then(|_| found.next()?).map(|detail| Glance::at(api, &detail))));
    }
    Ok(glances)
}

/// Rows whose bodies are held together.
fn parts(mut rows: &[Event]) -> impl Iterator<Item = &[Event]> {
    std::iter::from_fn(move || {
        let mut held_bytes = 0;
        let mut fits = |row: &Event| {
            held_bytes += if row.body_bytes <= READ_MAX_BYTES { row.body_bytes } else { 0 };
            held_bytes <= HELD_MAX_BYTES
        };
        let part = rows.iter().position(|row| !fits(row)).unwrap_or(rows.len());
        let (part, rest) = rows.split_at(part);
        rows = rest;
        (!part.is_empty()).then_some(part)
    })
}

/// Whom an item is from, and what its provider calls its event.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) peer: Option<String>,
    pub(crate) name: String,
}

/// One for each item, in their order; none for what is gone since.
pub(crate) async fn abouts(api: &Api, items: &[Item]) -> Result<Vec<Option<About>>, Problem> {
    let mut abouts = Vec::with_capacity(items.len());
    // Nobody knows how long their bodies are.
    for items in items.chunks(ASKED_AT_ONCE) {
        let ids: Vec<EventId> = items.iter().map(|item| item.event.parse()).collect::<Result<_, _>>()?;
        let about = |detail: EventDetail| {
            let name = own_type(api, &detail).unwrap_or_else(|| detail.row.kind.name().to_owned());
            About { peer: detail.row.peer, name }
        };
        abouts.extend(api.store.details(ids).await?.into_iter().map(|detail| detail.map(about)));
    }
    Ok(abouts)
}
