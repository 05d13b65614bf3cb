//! `/events`: what came in, newest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use maud::{Markup, html};
use serde::Deserialize;
use tokio::time::Instant;

use super::Web;
use super::components::{badge, dotted, empty, filter_box, number, pager, short, when_text};
use super::layout::{Nav, fitting, page};
use super::trouble::Trouble;
use super::visitor::Visitor;
use crate::api::Problem;
use crate::api::events::{self, Event, EventsPage, EventsParams};
use crate::api::glance::{Glance, glances};
use crate::api::list::Asked;

/// Each row is looked at once more, for its copies.
const ROWS: usize = 40;
const QUICK: &[&str] = &["state:parked", "state:waiting", "kind:message", "kind:status", "since:1h"];

#[derive(Deserialize)]
pub(super) struct Params {
    #[serde(default)]
    q: String,
    cursor: Option<String>,
}

pub(super) async fn list(State(web): State<Arc<Web>>, visitor: Visitor, Asked(asked): Asked<Params>) -> Result<Markup, Trouble> {
    fitting(ROWS, |most| made(&web, &visitor, &asked, most)).await
}

/// What a page shows.
pub(super) struct Found {
    list: EventsPage,
    glances: Vec<Option<Glance>>,
}

async fn find(web: &Web, visitor: &Visitor, ask: EventsParams) -> Result<Found, Problem> {
    let Json(list) = events::list(State(Arc::clone(&web.api)), visitor.caller.clone(), Asked(ask)).await?;
    let glances = glances(&web.api, &list.events).await?;
    Ok(Found { list, glances })
}

async fn made(web: &Web, visitor: &Visitor, asked: &Params, most: usize) -> Result<Markup, Trouble> {
    let q = asked.q.trim();
    let ask = EventsParams { q: Some(q.to_owned()), cursor: asked.cursor.clone(), limit: Some(most), ..EventsParams::default() };
    let found = match &asked.cursor {
        // Pages that were told of the same moment find the same.
        None if visitor.live => {
            let (asked, since) = ((visitor.caller.token, q, most), web.live.told_of());
            web.live.found.find(asked, since, Instant::now(), find(web, visitor, ask)).await
        }
        _ => find(web, visitor, ask).await.map(Arc::new),
    };
    let list = match found {
        Ok(found) => rows(visitor, &found, q, asked.cursor.as_deref()),
        // A filter that cannot be read is mended in the box where it stands.
        Err(problem) if problem.status().is_client_error() => {
            html! { p.notice.bad role="alert" { (super::icons::icon("cross")) (problem.told().1) } }
        }
        Err(problem) => return Err(problem.into()),
    };
    let body = html! {
        header.head { h1 { "Events" } p.quiet { "Everything that came in, newest first." } }
        (filter_box("/events", q, "channel:shop state:parked since:1h text:\"refund\"", QUICK))
        (list)
    };
    Ok(page(visitor, "Events", Nav::Events, body))
}

fn rows(visitor: &Visitor, Found { list, glances }: &Found, q: &str, cursor: Option<&str>) -> Markup {
    let is_first = cursor.is_none();
    let nothing = list.events.is_empty();
    html! {
        div #events data-live=[is_first.then_some("list")] {
            @if nothing { (none(q)) } @else {
                table.cards {
                    thead { tr { th { "State" } th { "Event" } th { "From" } th { "Channel" } th.num { "Copies" } th.num { "Attempts" } th { "Received" } } }
                    tbody { @for (event, glance) in list.events.iter().zip(glances) { (row(event, glance.as_ref(), visitor.now_ms)) } }
                }
            }
            (pager("/events", q, cursor, list.next.as_deref(), list.looked_at))
        }
    }
}

/// One event in a list. The overview has it too.
pub(super) fn row(event: &Event, glance: Option<&Glance>, now_ms: i64) -> Markup {
    let kind = glance.and_then(|glance| glance.event_type.as_deref()).unwrap_or(event.kind);
    let tally = |number_of: Option<u64>| {
        html! {
            @match number_of { Some(0) => span.zero { "0" }, Some(n) => (number(n)), None => span.zero title="Too large to look into for a list" { "…" } }
        }
    };
    html! {
        tr data-key=(event.id) {
            td { (badge(event.state)) }
            td.main { a href={ "/events/" (event.id) } { (dotted(kind)) } @if event.echo { span.tag { "echo" } } }
            td data-label="From" { span.clip title=[event.peer.as_deref().map(short)] { (short(event.peer.as_deref().unwrap_or("–"))) } }
            td data-label="Channel" { (event.channel) }
            td.num data-label="Copies" { (tally(glance.map(|glance| glance.copies))) @if glance.is_some_and(|glance| glance.conflicts > 0) { span.tag.warn { "conflict" } } }
            td.num data-label="Attempts" { (tally(glance.map(|glance| glance.attempts.into()))) }
            td data-label="Received" { (when_text(&event.received_at, now_ms)) }
        }
    }
}

fn none(q: &str) -> Markup {
    match q {
        "" => empty(
            "in",
            "Nothing has come in yet",
            html! {
                p { "Send a signed sample to one of your channels:" }
                pre { code { "hapax trigger whatsapp.text --times 5" } }
                p.quiet { "It appears here by itself: once, and four copies suppressed." }
            },
        ),
        _ => empty(
            "search",
            "Nothing matches",
            html! {
                p { "A filter is made of words like " code { "channel:shop" } ", " code { "state:parked" } ", " code { "kind:message" } ", "
                    code { "since:1h" } " and " code { "text:\"refund\"" } "; " code { "-" } " in front turns one round." }
                p { a.button href="/events" { "Show everything" } }
            },
        ),
    }
}
