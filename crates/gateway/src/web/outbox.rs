//! `/outbox`: messages on their way out, and those in doubt, the oldest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use maud::{Markup, html};
use serde::Deserialize;

use super::Web;
use super::components::{badge, confirm, empty, filter_box, in_path, pager, when_text};
use super::icons::icon;
use super::layout::{Nav, page};
use super::trouble::Trouble;
use super::visitor::Visitor;
use crate::api::Scope;
use crate::api::list::Asked;
use crate::api::outbox::{self, Item, OutboxPage, OutboxParams};

const ROWS: usize = 50;
const QUICK: &[&str] = &["state:unknown", "state:queued", "state:sending"];

#[derive(Deserialize)]
pub(super) struct Params {
    #[serde(default)]
    q: String,
    cursor: Option<String>,
}

pub(super) async fn list(State(web): State<Arc<Web>>, visitor: Visitor, Asked(asked): Asked<Params>) -> Result<Markup, Trouble> {
    let q = asked.q.trim();
    let ask = OutboxParams { q: Some(q.to_owned()), cursor: asked.cursor.clone(), limit: Some(ROWS), ..OutboxParams::default() };
    let found = outbox::list(State(Arc::clone(&web.api)), visitor.caller.clone(), Asked(ask)).await;
    let list = match found {
        Ok(Json(found)) => rows(&visitor, &found, q, asked.cursor.as_deref()),
        Err(problem) if problem.status().is_client_error() => {
            html! { p.notice.bad role="alert" { (icon("cross")) (problem.told().1) } }
        }
        Err(problem) => return Err(problem.into()),
    };
    let body = html! {
        header.head { h1 { "Outbox" } p.quiet { "On their way out, the oldest first. What is in doubt is not sent again by itself." } }
        (filter_box("/outbox", q, "channel:shop state:unknown", QUICK))
        (list)
    };
    Ok(page(&visitor, "Outbox", Nav::Outbox, body))
}

fn rows(visitor: &Visitor, found: &OutboxPage, q: &str, cursor: Option<&str>) -> Markup {
    html! {
        div #outbox data-live=[cursor.is_none().then_some("replace")] {
            @if found.items.is_empty() {
                (empty("send", if q.is_empty() { "Nothing waits to be sent" } else { "Nothing matches" }, html! {
                    p { "Messages stand here from the moment they are written until the provider has them." }
                }))
            } @else {
                table.cards {
                    thead { tr { th { "State" } th { "To" } th { "Message" } th { "Channel" } th.num { "Tries" } th { "Since" } th {} } }
                    tbody { @for item in &found.items { (row(item, visitor)) } }
                }
            }
            (pager("/outbox", q, cursor, found.next.as_deref(), found.looked_at))
        }
    }
}

fn row(item: &Item, visitor: &Visitor) -> Markup {
    let state = item.place.as_ref().map_or(item.status, |place| place.state);
    let in_doubt = state == "unknown";
    html! {
        tr data-key=(item.id) {
            td { (badge(state)) }
            td.main { a href={ "/threads/" (in_path(&item.thread)) "#" (item.id) } { (item.to) } }
            td data-label="Message" { span.clip { (item.text.as_deref().unwrap_or("(no text)")) } @if let Some(why) = &item.why { " " span.quiet { (why) } } }
            td data-label="Channel" { (item.channel) }
            td.num data-label="Tries" { (item.place.as_ref().map_or(0, |place| place.attempt)) }
            td data-label="Since" { (when_text(&item.created_at, visitor.now_ms)) }
            td {
                @if visitor.caller.may(Scope::Send) {
                    @if in_doubt {
                        (confirm(&format!("/messages/{}/retry", item.id), "Send once more", "repeat",
                            "If the first try did go out, the person gets it twice. Send it once more?", &[]))
                    }
                    (confirm(&format!("/messages/{}/cancel", item.id), "Give up", "cross",
                        "It leaves the outbox and counts as failed. What may have gone out already stays with the person.", &[]))
                }
            }
        }
    }
}
