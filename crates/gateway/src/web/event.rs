//! `/events/{id}`: the story of one event, and what it says.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use axum::{Form, Json};
use hapax_domain::filter::{FILTER_MAX_BYTES, Word, written};
use http::HeaderMap;
use maud::{Markup, html};
use serde::Deserialize;

use super::components::{
    badge, beginning, confirm, copyable, count, in_path, in_query, number, short, when, when_text, written_bytes,
};
use super::flash::Flash;
use super::hosts::host_of;
use super::icons::icon;
use super::layout::{Nav, page};
use super::trouble::Trouble;
use super::visitor::Visitor;
use super::{Web, once};
use crate::api::Scope;
use crate::api::events::{self, Detail};
use crate::api::redrive::{self, RedriveBody};
use crate::api::story::{self, Story};

/// Larger bodies are shown in part: a page stays below 100 KB.
const BODY_SHOWN_BYTES: usize = 28 << 10;
const ANSWER_SHOWN_BYTES: usize = 6 << 10;
const HEADERS_SHOWN: usize = 20;
/// Of a long story the end is shown.
const STORY_SHOWN_BYTES: usize = 32 << 10;
const WORDS_SHOWN_BYTES: usize = 1_500;
/// What a step takes beside its words.
const STEP_BYTES: usize = 330;

pub(super) async fn show(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<Markup, Trouble> {
    let api = &web.api;
    let Json(detail) = events::one(State(Arc::clone(api)), visitor.caller.clone(), Path(id)).await?;
    let id = detail.event.id.clone();
    let Json(story) = story::tell(State(Arc::clone(api)), visitor.caller.clone(), Path(id.clone())).await?;
    let (before, after) = events::neighbours(api, &detail.event).await?;
    let title = short(detail.event_type.as_deref().unwrap_or(detail.event.kind));
    let base = api.public_url.clone().unwrap_or_else(|| format!("http://{}", host_of(&headers).unwrap_or("127.0.0.1:4272")));
    let body = html! {
        nav.crumbs aria-label="Where you are" {
            a href="/events" { "Events" }
            @if let Some(thread) = detail.event.thread.as_ref().filter(|thread| thread.len() < FILTER_MAX_BYTES / 2) {
                a href={ "/events?q=" (in_query(&written(Word::Thread, thread))) } { "this thread" }
            }
            span.step {
                @if let Some(before) = &before { a.button href={ "/events/" (before) } rel="prev" data-key="k" { (icon("left")) "Earlier" } }
                @if let Some(after) = &after { a.button href={ "/events/" (after) } rel="next" data-key="j" { "Later" (icon("right")) } }
            }
        }
        header.head #event-head data-live="replace" { h1 { (title) " " (badge(detail.event.state)) } (facts(&detail, visitor.now_ms)) }
        (actions(&visitor, &detail, &id, &base))
        div.columns {
            section #story data-live="replace" aria-labelledby="story-title" { h2 #story-title { "Story" } (time_line(&story, visitor.now_ms)) }
            div {
                (body_of(&detail))
                (answer_of(&detail))
                (headers_of(&detail))
            }
        }
    };
    Ok(page(&visitor, &title, Nav::Events, body))
}

#[derive(Deserialize)]
pub(super) struct Pressed {
    #[serde(default)]
    once: String,
}

/// Delivers it once more. A double click is one click.
pub(super) async fn replay(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Path(id): Path<String>,
    Form(pressed): Form<Pressed>,
) -> Result<Response, Trouble> {
    visitor.need(Scope::Admin)?;
    if !once::is_first(&*web.api.store, &pressed.once).await? {
        return Ok(Flash::done("It was put in line already, by the same click.").at(&format!("/events/{}", in_path(&id))));
    }
    let (_, Json(replayed)) = events::replay(State(Arc::clone(&web.api)), visitor.caller.clone(), Path(id)).await?;
    let words = "It is in line once more, as a new item: neither hapax nor the bot takes it for a copy.";
    Ok(Flash::done(words).at(&format!("/events/{}", replayed.event)))
}

/// Puts what is parked of it back in line.
pub(super) async fn redrive(State(web): State<Arc<Web>>, visitor: Visitor, Path(id): Path<String>) -> Result<Response, Trouble> {
    visitor.need(Scope::Admin)?;
    let ask = RedriveBody { event: Some(id.clone()), ..RedriveBody::default() };
    let (_, Json(done)) = redrive::redrive(State(Arc::clone(&web.api)), visitor.caller.clone(), Ok(Json(ask))).await?;
    let flash = match done.redriven {
        0 => Flash::failed("Nothing of it was parked any more."),
        n => Flash::done(format!("{} back in line, with their failures forgotten.", count(n as u64, "item is", "items are"))),
    };
    Ok(flash.at(&format!("/events/{}", in_path(&id))))
}

fn facts(detail: &Detail, now_ms: i64) -> Markup {
    let event = &detail.event;
    html! {
        dl.facts {
            div { dt { "Received" } dd { (when_text(&event.received_at, now_ms)) } }
            div { dt { "Channel" } dd { a href={ "/events?q=channel:" (in_query(&event.channel)) } { (event.channel) } } }
            @if let Some(peer) = &event.peer { div { dt { "From" } dd { span.clip title=(short(peer)) { (short(peer)) } } } }
            div { dt { "Account" } dd { span.clip title=(short(&event.account)) { (short(&event.account)) } } }
            div { dt { "Copies" } dd { (number(detail.copies)) @if detail.conflicts > 0 { " (" (count(detail.conflicts, "conflict", "conflicts")) ")" } } }
            div { dt { "Event" } dd { (copyable(&event.id)) } }
            @if !event.provider_id.is_empty() { div { dt { "Provider's id" } dd { (copyable_or_short(&event.provider_id)) } } }
        }
    }
}

/// What is shown in part would be copied in part.
fn copyable_or_short(text: &str) -> Markup {
    let shown = short(text);
    if shown == text {
        copyable(text)
    } else {
        html! { code { (shown) } }
    }
}

fn actions(visitor: &Visitor, detail: &Detail, id: &str, base: &str) -> Markup {
    let is_parked = detail.open.iter().any(|item| item.state == "parked");
    let curl = format!("curl -s {base}/v1/events/{id} -H \"Authorization: Bearer $HAPAX_ADMIN_TOKEN\"");
    html! {
        div.actions {
            @if visitor.is_admin() {
                @if is_parked {
                    (confirm(&format!("/events/{id}/redrive"), "Redrive", "up",
                        "It goes back in line with its failures forgotten, and the bot is called again.", &[]))
                }
                (confirm(&format!("/events/{id}/replay"), "Replay", "repeat",
                    "The bot gets this event once more, as a new item with the same event id. What it did the first time it may do again.",
                    &[("once", &once::new())]))
            }
            details.confirm { summary.button { (icon("copy")) "As curl" } div { p { "From a terminal, with a token:" } (copyable(&curl)) } }
        }
    }
}

/// What happened, in order.
fn time_line(story: &Story, now_ms: i64) -> Markup {
    let mut room = STORY_SHOWN_BYTES;
    let fits = |step: &&story::Step| {
        let words: usize = beginning(&step.words, WORDS_SHOWN_BYTES).0.chars().map(written_bytes).sum();
        room.checked_sub(STEP_BYTES + words).inspect(|left| room = *left).is_some()
    };
    let skipped = story.steps.len() - story.steps.iter().rev().take_while(fits).count();
    html! {
        @if skipped > 0 { p.quiet { "The first " (number(skipped as u64)) " steps are not shown; " code { "hapax story" } " tells all." } }
        ol.story {
            @for step in story.steps.iter().skip(skipped) {
                @let (tone, shape) = look(&step.step);
                li class=(tone) {
                    span.bead { (icon(shape)) }
                    div { p.what { strong { (step.step) } @if let Some(attempt) = step.attempt { span.tag { "attempt " (attempt) } } (when(step.at_ms, now_ms)) } p { (beginning(&step.words, WORDS_SHOWN_BYTES).0) } }
                }
            }
        }
    }
}

fn look(step: &str) -> (&'static str, &'static str) {
    match step {
        "received" => ("quiet", "in"),
        "claimed" => ("quiet", "key"),
        "copies" => ("quiet", "copies"),
        "leased" => ("busy", "arrow"),
        "delivered" | "read" | "played" => ("good", "checks"),
        "sent" => ("good", "check"),
        "waiting" | "queued" => ("wait", "clock"),
        "retry" | "retried" | "handed back" => ("warn", "repeat"),
        "parked" => ("warn", "pause"),
        "conflict" | "quarantined" | "no id" => ("bad", "shield"),
        "failed" | "target down" | "no target" => ("bad", "cross"),
        "likely cause" => ("warn", "alert"),
        "unknown" => ("doubt", "question"),
        "sending" => ("busy", "up"),
        _ => ("quiet", "dot"),
    }
}

fn body_of(detail: &Detail) -> Markup {
    let text = match detail.body_encoding {
        "text" => pretty(&detail.body),
        _ => detail.body.clone(),
    };
    let (shown, cut) = beginning(&text, BODY_SHOWN_BYTES);
    html! {
        section {
            h2 { "Body" span.tag { (number(detail.event.body_bytes)) " bytes" } @if detail.body_encoding == "base64" { span.tag { "base64" } } }
            @if detail.body_encoding == "hidden" { p.quiet { "Bodies are hidden from this token (" code { "hide_payloads" } ")." } }
            @else {
                pre.body tabindex="0" { code { (shown) } }
                @if cut { p.quiet { "This is the beginning. " code { "hapax show " (detail.event.id) } " prints all of it." } }
            }
        }
    }
}

fn answer_of(detail: &Detail) -> Markup {
    html! {
        @if let Some(answer) = &detail.bot_answer {
            section {
                h2 { "The bot's last answer" span.tag { (answer.status) } }
                @if answer.beginning.is_empty() { p.quiet { (number(answer.bytes as u64)) " bytes" } }
                @else { pre.body tabindex="0" { code { (beginning(&pretty(&answer.beginning), ANSWER_SHOWN_BYTES).0) } } }
            }
        }
    }
}

fn headers_of(detail: &Detail) -> Markup {
    html! {
        @if !detail.headers.is_empty() {
            details.fold {
                summary { "Headers" span.tag { (detail.headers.len()) } }
                dl.pairs { @for header in detail.headers.iter().take(HEADERS_SHOWN) { div { dt { (short(&header.name)) } dd { (short(&header.value)) } } } }
            }
        }
    }
}

/// JSON with its lines apart; anything else as it is.
fn pretty(text: &str) -> String {
    let parsed = serde_json::from_str::<serde_json::Value>(text).ok();
    parsed.and_then(|json| serde_json::to_string_pretty(&json).ok()).unwrap_or_else(|| text.to_owned())
}
