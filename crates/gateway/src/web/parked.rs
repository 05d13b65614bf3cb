//! `/parked`: what waits for a person, with its reason; one by one or all of a channel goes back in line.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use axum::{Extension, Form, Json};
use maud::{Markup, html};
use serde::Deserialize;

use super::Web;
use super::bulk::{self, MOST, Offer, Until};
use super::components::{badge, confirm, count, dotted, empty, filter_box, number, pager, short, when_text};
use super::flash::Flash;
use super::icons::icon;
use super::layout::{Nav, fitting, page};
use super::trouble::Trouble;
use super::visitor::Visitor;
use crate::api::glance::{About, abouts};
use crate::api::inbox::{self, InboxPage, InboxParams, Item};
use crate::api::list::Asked;
use crate::api::redrive::{self, RedriveBody};
use crate::api::stats::Stats;
use crate::api::{Problem, Scope};

const ROWS: usize = 50;
/// Channels that have a button of their own, those with the most first.
const CHANNELS: usize = 10;

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
    let ask = InboxParams {
        q: Some(q.to_owned()),
        parked: Some(true),
        cursor: asked.cursor.clone(),
        limit: Some(most),
        ..InboxParams::default()
    };
    let found = inbox::list(State(Arc::clone(&web.api)), visitor.caller.clone(), Asked(ask)).await;
    let stats = web.counting.lately(&web.api, &visitor.caller).await?;
    let mut offers = html! {};
    let list = match found {
        Ok(Json(found)) => {
            if asked.cursor.is_none() && !q.is_empty() {
                offers = offered(web, visitor, &found, q).await?;
            }
            let abouts = abouts(&web.api, &found.items).await?;
            rows(visitor, &found, &abouts, q, asked.cursor.as_deref())
        }
        Err(problem) if problem.status().is_client_error() => {
            html! { p.notice.bad role="alert" { (icon("cross")) (problem.told().1) } }
        }
        Err(problem) => return Err(problem.into()),
    };
    let body = html! {
        header.head { h1 { "Parked" } p.quiet { "Their bot refused them, or nobody could read them. They wait for you; their threads went on." } }
        div.actions #bulk data-live="replace" { @if q.is_empty() { (all_of(visitor, &stats)) } @else { (offers) } }
        (filter_box("/parked", q, "channel:shop text:\"refund\"", &[]))
        (list)
    };
    Ok(page(visitor, "Parked", Nav::Parked, body))
}

/// All of a channel at once, with how many that are.
fn all_of(visitor: &Visitor, stats: &Stats) -> Markup {
    let mut channels: Vec<_> = stats.channels.iter().flatten().filter(|channel| channel.parked > 0).collect();
    channels.sort_by_key(|channel| std::cmp::Reverse(channel.parked));
    let total: u64 = channels.iter().map(|channel| channel.parked).sum();
    html! {
            @if visitor.is_admin() {
                @for channel in channels.iter().take(CHANNELS) {
                    @let words = format!("{} of {} {} back in line, with their failures forgotten; the bot is called again for each. Suspected \
                                          replays stay: those go back one by one.", count(channel.parked, "item", "items"), channel.channel,
                                          if channel.parked == 1 { "goes" } else { "go" });
                    (confirm("/parked/redrive", &format!("Redrive {} of {}", number(channel.parked), channel.channel), "up", &words,
                        &[("channel", &channel.channel)]))
                }
                @if channels.len() > 1 && !visitor.caller.is_limited() {
                    (confirm("/parked/redrive", &format!("Redrive all {}", number(total)), "up",
                        &format!("{} back in line, of all channels; the bots are called again for each.", count(total, "item goes", "items go")),
                        &[("all", "true")]))
                }
            }
    }
}

async fn matching(web: &Web, visitor: &Visitor, q: &str) -> Result<InboxPage, Problem> {
    let ask = InboxParams { q: Some(q.to_owned()), parked: Some(true), limit: Some(MOST), ..InboxParams::default() };
    Ok(inbox::list(State(Arc::clone(&web.api)), visitor.caller.clone(), Asked(ask)).await?.0)
}

/// All that match, with how many that are.
async fn offered(web: &Web, visitor: &Visitor, page: &InboxPage, q: &str) -> Result<Markup, Trouble> {
    if !visitor.is_admin() {
        return Ok(html! {});
    }
    let all = if page.next.is_some() { Some(matching(web, visitor, q).await?) } else { None };
    let all = all.as_ref().unwrap_or(page);
    let offer = Offer {
        action: "/parked/redrive",
        verb: "Redrive",
        shape: "up",
        many: all.items.iter().filter(|item| item.state == "parked").count(),
        more: all.next.is_some(),
        words: "They go back in line with their failures forgotten, and the bot is called again for each.",
    };
    Ok(offer.show(&[("q", q)], visitor.now_ms))
}

fn rows(visitor: &Visitor, found: &InboxPage, abouts: &[Option<About>], q: &str, cursor: Option<&str>) -> Markup {
    html! {
        div #parked data-live=[cursor.is_none().then_some("replace")] {
            @if found.items.is_empty() {
                (empty("check", if q.is_empty() { "Nothing waits for you" } else { "Nothing matches" }, html! {
                    p { "What a bot refuses for good, or fails too often, is parked here with the reason." }
                }))
            } @else {
                table.cards {
                    thead { tr { th { "State" } th { "Event" } th { "From" } th { "Why" } th { "Channel" } th.num { "Attempts" } th { "Received" } th {} } }
                    tbody { @for (item, about) in found.items.iter().zip(abouts) { (row(item, about.as_ref(), visitor)) } }
                }
            }
            (pager("/parked", q, cursor, found.next.as_deref(), found.looked_at))
        }
    }
}

fn row(item: &Item, about: Option<&About>, visitor: &Visitor) -> Markup {
    let peer = about.and_then(|about| about.peer.as_deref());
    html! {
        tr data-key=(item.item) {
            td { (badge(item.state)) }
            td.main { a href={ "/events/" (item.event) } { (dotted(about.map_or("an event", |about| &about.name))) } }
            td data-label="From" { span.clip title=[peer.map(short)] { (short(peer.unwrap_or("–"))) } }
            td.why data-label="Why" { (short(item.why.as_deref().unwrap_or("no reason was given"))) }
            td data-label="Channel" { (item.channel) }
            td.num data-label="Attempts" { (item.attempt) }
            td data-label="Received" { (when_text(&item.received_at, visitor.now_ms)) }
            td.does {
                @if visitor.is_admin() && item.state == "parked" {
                    (confirm("/parked/redrive", "Redrive", "up", "It goes back in line with its failures forgotten, and the bot is called again.",
                        &[("event", &item.event)]))
                }
            }
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Which {
    event: Option<String>,
    channel: Option<String>,
    all: Option<bool>,
    q: Option<String>,
    until: Option<Until>,
}

pub(super) async fn redrive(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Form(which): Form<Which>,
) -> Result<Response, Trouble> {
    visitor.need(Scope::Admin)?;
    if let (Some(q), Some(until)) = (&which.q, which.until) {
        return Ok(redrive_matching(&web, &visitor, q.trim(), until).await?.at("/parked"));
    }
    let ask = RedriveBody { event: which.event, channel: which.channel, all: which.all, ..RedriveBody::default() };
    let (Extension(noted), Json(done)) =
        redrive::redrive(State(Arc::clone(&web.api)), visitor.caller.clone(), Ok(Json(ask))).await?;
    let flash = match done.redriven {
        0 => Flash::failed("Nothing of that was parked any more, or it has to go back one by one."),
        n if done.more => {
            Flash::done(format!("{} back in line, and more are left: press it again.", count(n as u64, "item is", "items are")))
        }
        n => Flash::done(format!("{} back in line.", count(n as u64, "item is", "items are"))),
    };
    let mut response = flash.at("/parked");
    response.extensions_mut().insert(noted);
    Ok(response)
}

/// Each by itself, so that also suspected replays go back: somebody has looked for these.
async fn redrive_matching(web: &Web, visitor: &Visitor, q: &str, until: Until) -> Result<Flash, Trouble> {
    let found = matching(web, visitor, q).await?;
    let meant = found.items.into_iter().filter(|item| item.state == "parked" && until.covers(&item.received_at));
    let act = |item: Item| {
        let ask = RedriveBody { event: Some(item.event), ..RedriveBody::default() };
        let (api, caller) = (State(Arc::clone(&web.api)), visitor.caller.clone());
        async move { redrive::redrive(api, caller, Ok(Json(ask))).await.map(|(_, Json(done))| done.redriven as u64) }
    };
    Ok(bulk::each(meant, act).await.told("item is back in line", "items are back in line"))
}
