//! `/threads`: who talks with whom, the newest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use maud::{Markup, html};
use serde::Deserialize;

use super::Web;
use super::components::{empty, filter_box, in_path, number, pager, short, when_text};
use super::icons::icon;
use super::layout::{Nav, fitting, page};
use super::trouble::Trouble;
use super::visitor::Visitor;
use crate::api::list::Asked;
use crate::api::threads::{self, Thread, ThreadsPage, ThreadsParams};

const ROWS: usize = 50;
const QUICK: &[&str] = &["since:1h", "since:1d"];

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
    let ask =
        ThreadsParams { q: Some(q.to_owned()), cursor: asked.cursor.clone(), limit: Some(most), ..ThreadsParams::default() };
    let found = threads::list(State(Arc::clone(&web.api)), visitor.caller.clone(), Asked(ask)).await;
    let list = match found {
        Ok(Json(found)) => rows(visitor, &found, q, asked.cursor.as_deref()),
        Err(problem) if problem.status().is_client_error() => {
            html! { p.notice.bad role="alert" { (icon("cross")) (problem.told().1) } }
        }
        Err(problem) => return Err(problem.into()),
    };
    let body = html! {
        header.head { h1 { "Threads" } p.quiet { "Who talks with whom, the newest first. A search looks at the last message of each." } }
        (filter_box("/threads", q, "channel:shop text:\"refund\" since:1d", QUICK))
        (list)
    };
    Ok(page(visitor, "Threads", Nav::Threads, body))
}

fn rows(visitor: &Visitor, found: &ThreadsPage, q: &str, cursor: Option<&str>) -> Markup {
    html! {
        div #threads data-live=[cursor.is_none().then_some("replace")] {
            @if found.threads.is_empty() { (none(q)) } @else {
                ul.talks { @for thread in &found.threads { (row(thread, visitor)) } }
            }
            (pager("/threads", q, cursor, found.next.as_deref(), found.looked_at))
        }
    }
}

fn row(thread: &Thread, visitor: &Visitor) -> Markup {
    let text = thread.last_message_text.as_deref().filter(|text| !text.is_empty());
    html! {
        li {
            a href={ "/threads/" (in_path(&thread.id)) } {
                (face(&thread.peer))
                span.talk {
                    span.who { strong { (short(&thread.peer)) } span.tag { (thread.channel) }
                        @if thread.paused.is_some() { span.tag.warn { (icon("pause")) "taken over" } } }
                    span.said { @if thread.last_direction == "out" { (icon("send")) span.unseen { "You: " } }
                        (short(text.unwrap_or("(no text)"))) }
                }
                span.when { (when_text(&thread.last_message_at, visitor.now_ms))
                    @if thread.unread > 0 { span.unread { (number(thread.unread)) span.unseen { " unread" } } } }
            }
        }
    }
}

/// A sign for a person: the last two signs of what they are called, on a colour of their own.
pub(super) fn face(peer: &str) -> Markup {
    let own = peer.split('@').next().unwrap_or(peer);
    let signs: Vec<char> = own.chars().filter(|sign| sign.is_alphanumeric()).collect();
    let last: String = signs[signs.len().saturating_sub(2)..].iter().collect();
    let tone = peer.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 6;
    html! { span class={ "face tone-" (tone) } aria-hidden="true" { (last.to_uppercase()) } }
}

fn none(q: &str) -> Markup {
    match q {
        "" => empty(
            "chat",
            "Nobody has written yet",
            html! {
                p { "A thread begins with the first message, in or out. Try one:" }
                pre { code { "hapax trigger whatsapp.text" } }
            },
        ),
        _ => empty(
            "search",
            "Nothing matches",
            html! {
                p { "A thread is found by its channel, its account and its last message." }
                p { a.button href="/threads" { "Show all" } }
            },
        ),
    }
}
