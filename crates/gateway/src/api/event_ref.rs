//! Which event a path names: an id, whole or in its short form; the beginning of one; or `latest`.

use axum::http::StatusCode;
use hapax_domain::EventId;
use hapax_domain::limits::PAGE_MAX;
use hapax_store::{EventQuery, EventRow, Reason};

use super::list::page_of;
use super::{Api, Caller, Problem};

/// How far back a beginning is looked for, in pages.
const PAGES_MAX: usize = 20;
/// Among so many the latest is looked for.
const LATEST_OF: usize = 50;

/// Finds the id that is meant, among the events that the caller sees.
pub(super) async fn resolve(api: &Api, caller: &Caller, text: &str) -> Result<EventId, Problem> {
    if text == "latest" {
        let newest = newest_before(api, caller, None, LATEST_OF).await?;
        // What hapax itself has kept beside an event did not come in.
        let came_in = newest.iter().find(|row| Reason::of_shown(&row.provider_id).is_none()).or(newest.first());
        return came_in.map(|row| row.id).ok_or_else(|| Problem::not_found("nothing has come in yet"));
    }
    let begins = text.strip_prefix(EventId::PREFIX).is_some_and(EventId::may_begin_with);
    match text.parse::<EventId>() {
        Err(_) if begins => by_beginning(api, caller, text).await,
        // The beginning of a short form may be one too, of an event that there never was.
        Ok(id) if begins && api.store.event(id).await?.is_none() => match by_beginning(api, caller, text).await {
            Err(problem) if problem.status() == StatusCode::NOT_FOUND => Ok(id),
            found => found,
        },
        read => Ok(read?),
    }
}

async fn by_beginning(api: &Api, caller: &Caller, text: &str) -> Result<EventId, Problem> {
    let wanted = text.to_ascii_lowercase();
    let (mut found, mut before) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let rows = newest_before(api, caller, before, PAGE_MAX).await?;
        // Times make whole ids begin with 0, and short forms never do: no beginning is one of both.
        let begins = |id: &EventId| id.to_string().starts_with(&wanted) || id.short().starts_with(&wanted);
        found.extend(rows.iter().map(|row| row.id).filter(begins));
        match rows.last() {
            Some(last) if rows.len() == PAGE_MAX && found.len() < 2 => before = Some(last.id),
            _ => break,
        }
    }
    match found.as_slice() {
        [] => Err(Problem::not_found(format!("none of the newest {} events begins with {text}", PAGES_MAX * PAGE_MAX))),
        [only] => Ok(*only),
        [one, other, ..] => {
            let shown = |id: &EventId| if id.short().starts_with(&wanted) { id.short() } else { id.to_string() };
            Err(Problem::bad_request(format!("{} and {} begin with {text}; write more of it", shown(one), shown(other))))
        }
    }
}

async fn newest_before(api: &Api, caller: &Caller, before: Option<EventId>, limit: usize) -> Result<Vec<EventRow>, Problem> {
    let of = |channel| api.store.events(EventQuery { channel, before, limit, ..EventQuery::default() });
    Ok(page_of(caller.narrow(None)?, limit, of, |a, b| b.id.cmp(&a.id)).await?.rows)
}
