//! `/outbox`: messages on their way out, and those in doubt, the oldest first.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use axum::{Form, Json};
use maud::{Markup, html};
use serde::Deserialize;

use super::Web;
use super::bulk::{self, MOST, Offer, Until};
use super::components::{badge, confirm, empty, filter_box, in_path, pager, short, when_text};
use super::icons::icon;
use super::layout::{Nav, fitting, page};
use super::trouble::Trouble;
use super::visitor::Visitor;
use crate::api::list::Asked;
use crate::api::outbox::{self, Item, OutboxPage, OutboxParams};
use crate::api::{Problem, Scope, messages};

const ROWS: usize = 50;
/// One that may have gone out is never said to have failed.
const GIVEN_UP: &str = "What waits leaves the outbox and counts as failed. What is in doubt leaves it and stays in doubt: hapax looks no further for it.";
const QUICK: &[&str] = &["state:unknown", "state:queued", "state:sending"];

#[derive(Deserialize)]
pub(super) struct Params {
    #[serde(default)]
    q: String,
    cursor: Option<String>,
}

pub(super) async fn list(State(web): State<Arc<Web>>, visitor: Visitor, Asked(asked): Asked<Params>) -> Result<Markup, Trouble> {
    fitting(ROWS, |most| made(&web, &visitor, &asked, most)).await
}

async fn made(web: &Web, visitor: &Visitor, asked: &Params, most: usize) -> Result<Markup, Trouble> {
    let q = asked.q.trim();
    let ask = OutboxParams { q: Some(q.to_owned()), cursor: asked.cursor.clone(), limit: Some(most), ..OutboxParams::default() };
    let found = outbox::list(State(Arc::clone(&web.api)), visitor.caller.clone(), Asked(ask)).await;
    let mut offers = html! {};
    let list = match found {
        Ok(Json(found)) => {
            offers = if asked.cursor.is_none() { offered(web, visitor, &found, q).await? } else { offers };
            rows(visitor, &found, q, asked.cursor.as_deref())
        }
        Err(problem) if problem.status().is_client_error() => {
            html! { p.notice.bad role="alert" { (icon("cross")) (problem.told().1) } }
        }
        Err(problem) => return Err(problem.into()),
    };
    let body = html! {
        header.head { h1 { "Outbox" } p.quiet { "On their way out, the oldest first. What is in doubt is not sent again by itself." } }
        div.actions #bulk data-live="replace" { (offers) }
        (filter_box("/outbox", q, "channel:shop state:unknown", QUICK))
        (list)
    };
    Ok(page(visitor, "Outbox", Nav::Outbox, body))
}

async fn matching(web: &Web, visitor: &Visitor, q: &str) -> Result<OutboxPage, Problem> {
    let ask = OutboxParams { q: Some(q.to_owned()), limit: Some(MOST), ..OutboxParams::default() };
    Ok(outbox::list(State(Arc::clone(&web.api)), visitor.caller.clone(), Asked(ask)).await?.0)
}

/// What can be done to all that match, with how many that are.
async fn offered(web: &Web, visitor: &Visitor, page: &OutboxPage, q: &str) -> Result<Markup, Trouble> {
    if !visitor.caller.may(Scope::Send) {
        return Ok(html! {});
    }
    let all = if page.next.is_some() { Some(matching(web, visitor, q).await?) } else { None };
    let all = all.as_ref().unwrap_or(page);
    let more = all.next.is_some();
    let retry = Offer {
        action: "/outbox/retry",
        verb: "Send once more",
        shape: "repeat",
        many: all.items.iter().filter(|item| is_in_doubt(item)).count(),
        more,
        words: "Of those in doubt each is sent once more: what did go out the first time arrives twice.",
    };
    let cancel =
        Offer { action: "/outbox/cancel", verb: "Give up", shape: "cross", many: all.items.len(), more, words: GIVEN_UP };
    Ok(html! { @for offer in [retry, cancel] { (offer.show(&[("q", q)], visitor.now_ms)) } })
}

#[derive(Deserialize)]
pub(super) struct Bulk {
    #[serde(default)]
    q: String,
    until: Until,
}

/// Sends all in doubt once more, or gives all up, of those that match.
pub(super) async fn bulk(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Path(verb): Path<String>,
    Form(asked): Form<Bulk>,
) -> Result<Response, Trouble> {
    visitor.need(Scope::Send)?;
    let retries = match verb.as_str() {
        "retry" => true,
        "cancel" => false,
        _ => return Err(Problem::not_found("there is nothing like that to do with messages").into()),
    };
    let found = matching(&web, &visitor, asked.q.trim()).await?;
    let meant = found.items.into_iter().filter(|item| asked.until.covers(&item.created_at) && (!retries || is_in_doubt(item)));
    let act = |item: Item| {
        let (api, caller, id) = (State(Arc::clone(&web.api)), visitor.caller.clone(), Path(item.id));
        async move {
            match retries {
                true => messages::retry(api, caller, id).await.map(|_| 1),
                false => messages::cancel(api, caller, id).await.map(|_| 1),
            }
        }
    };
    let outcome = bulk::each(meant, act).await;
    let flash = match retries {
        true => outcome.told("message is in line once more", "messages are in line once more"),
        false => outcome.told("message is given up", "messages are given up"),
    };
    Ok(flash.at("/outbox"))
}

fn is_in_doubt(item: &Item) -> bool {
    item.place.as_ref().is_some_and(|place| place.state == "unknown")
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
            td.main { a href={ "/threads/" (in_path(&item.thread)) "#" (item.id) } { (short(&item.to)) } }
            td.words data-label="Message" { span.clip { (short(item.text.as_deref().unwrap_or("(no text)"))) } @if let Some(why) = &item.why { p.quiet { (short(why)) } } }
            td data-label="Channel" { (item.channel) }
            td.num data-label="Tries" { (item.place.as_ref().map_or(0, |place| place.attempt)) }
            td data-label="Since" { (when_text(&item.created_at, visitor.now_ms)) }
            td.does {
                @if visitor.caller.may(Scope::Send) {
                    @if in_doubt {
                        (confirm(&format!("/messages/{}/retry", item.id), "Send once more", "repeat",
                            "If the first try did go out, the person gets it twice. Send it once more?", &[]))
                    }
                    (confirm(&format!("/messages/{}/cancel", item.id), "Give up", "cross",
                        GIVEN_UP, &[]))
                }
            }
        }
    }
}
