//! `/`: how it goes, and what needs a person.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use http::HeaderMap;
use maud::{Markup, html};

use super::Web;
use super::components::{badge, copyable, count, empty, in_query, lasting, number, short, when_text};
use super::events::row;
use super::history::{Past, charts};
use super::hosts::host_of;
use super::icons::icon;
use super::layout::{Nav, page};
use super::trouble::Trouble;
use super::visitor::Visitor;
use crate::api::accounts::{self, Account};
use crate::api::channels::{self, Channel};
use crate::api::events::{self, EventsPage, EventsParams};
use crate::api::glance::glances;
use crate::api::list::Asked;
use crate::api::stats::{self, Stats};

const NEWEST: usize = 8;
/// Things of one kind that are named one by one.
const NAMED: usize = 5;
/// Channels that are shown here; `/channels` has all of them.
const CHANNELS: usize = 20;

pub(super) async fn show(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    headers: HeaderMap,
    past: Result<Query<Past>, QueryRejection>,
) -> Result<Markup, Trouble> {
    let (api, caller) = (&web.api, || visitor.caller.clone());
    let stats = web.counting.lately(api, &visitor.caller).await?;
    let Json(channels) = channels::list(State(Arc::clone(api)), caller()).await;
    let base = api.public_url.clone().unwrap_or_else(|| format!("http://{}", host_of(&headers).unwrap_or("127.0.0.1:4272")));
    let body = if stats.channels.is_none() {
        html! { (away(&stats)) }
    } else {
        let Json(paused) = accounts::list(State(Arc::clone(api)), caller()).await?;
        let ask = EventsParams { limit: Some(NEWEST), ..EventsParams::default() };
        let Json(newest) = events::list(State(Arc::clone(api)), caller(), Asked(ask)).await?;
        if newest.events.is_empty() {
            welcome(&channels.channels, &base, visitor.may_set_up())
        } else {
            let names: Vec<&str> = channels.channels.iter().map(|channel| channel.name.as_str()).collect();
            html! {
                (needs(&stats, &channels.channels, &paused.accounts, visitor.now_ms))
                (figures(&stats, visitor.now_ms))
                (charts(api, &visitor, &past.unwrap_or_default().0, &names).await?)
                (by_channel(&stats, &channels.channels, visitor.now_ms))
                (latest(&web, &newest, visitor.now_ms).await?)
            }
        }
    };
    let body = html! {
        header.head { h1 { "Overview" } (promise(&stats)) }
        div #overview data-live="replace" { (body) }
    };
    Ok(page(&visitor, "Overview", Nav::Overview, body))
}

/// How much of its promise the store keeps.
fn promise(stats: &Stats) -> Markup {
    html! {
        p.promise {
            @if stats.promise == "full" {
                (badge("full")) " promise: what was answered 200 is on disk"
            } @else {
                (badge("degraded")) " promise: " (stats.not_kept.join("; "))
            }
        }
    }
}

fn away(stats: &Stats) -> Markup {
    html! {
        p.notice.bad role="alert" { (icon("cross")) "The store cannot be asked now: " (stats.why.as_deref().unwrap_or_default()) }
        @if let Some(spool) = stats.spool.as_ref().filter(|spool| !spool.is_empty()) {
            section { h2 { "Waiting in the spool" } ul { @for channel in spool { li { (channel.channel) ": " (number(channel.waiting)) } } } }
        }
    }
}

/// One thing that a person should see to, with where that is done.
struct Need {
    tone: &'static str,
    shape: &'static str,
    words: Markup,
    todo: Option<(String, &'static str)>,
}

/// What waits for a person, before everything else.
fn needs(stats: &Stats, channels: &[Channel], paused: &[Account], now_ms: i64) -> Markup {
    let needs = needed(stats, channels, paused, now_ms);
    html! {
        section.needs aria-labelledby="needs-title" {
            h2 #needs-title { "Needs a person" }
            @if needs.is_empty() {
                p.calm { (icon("check")) "Nothing does." }
            } @else {
                ul { @for need in &needs {
                    li class=(need.tone) {
                        (icon(need.shape)) span { (need.words) }
                        @if let Some((path, label)) = &need.todo { a.button href=(path) { (label) } }
                    }
                } }
            }
        }
    }
}

fn needed(stats: &Stats, channels: &[Channel], paused: &[Account], now_ms: i64) -> Vec<Need> {
    let mut needs = Vec::new();
    let down = channels.iter().flat_map(|channel| channel.down.iter().map(move |down| (channel, down)));
    let bots = down.clone().count();
    for (channel, down) in down.take(NAMED) {
        let words = html! { "The bot of " strong { (channel.name) } " does not answer since " (when_text(&down.since, now_ms)) ": " (short(&down.why)) };
        needs.push(Need {
            tone: "bad",
            shape: "cross",
            words,
            todo: Some((filtered("/events", &channel.name, "waiting"), "See what waits")),
        });
    }
    needs.extend(more(bots, "bot does", "bots do", "not answer", "/channels"));
    for account in paused.iter().take(NAMED) {
        let (name, why) = (short(&account.account), short(&account.why));
        let words = html! { "Account " strong { (name) } " of " strong { (account.channel) } " does not send: " (why) };
        needs.push(Need { tone: "bad", shape: "pause", words, todo: Some(("/accounts".to_owned(), "See to it")) });
    }
    needs.extend(more(paused.len(), "account does", "accounts do", "not send", "/accounts"));
    if let Some(unknown) = stats.outbox.as_ref().map(|outbox| outbox.unknown).filter(|unknown| *unknown > 0) {
        let words = html! { strong { (count(unknown, "message", "messages")) } " in doubt: it may have gone out, or not" };
        needs.push(Need {
            tone: "doubt",
            shape: "question",
            words,
            todo: Some(("/outbox?q=state:unknown".to_owned(), "Decide")),
        });
    }
    for channel in stats.full_outboxes.iter().take(NAMED) {
        let words =
            html! { "The outbox of " strong { (channel) } " is full: nothing more is taken until some of it has been sent" };
        let todo = Some((format!("/outbox?q={}", in_query(&format!("channel:{channel}"))), "Look at it"));
        needs.push(Need { tone: "bad", shape: "send", words, todo });
    }
    needs.extend(more(stats.full_outboxes.len(), "outbox is", "outboxes are", "full", "/outbox"));
    let channels: Vec<_> = stats.channels.iter().flatten().filter(|counts| counts.parked + counts.quarantined > 0).collect();
    for counts in channels.iter().take(NAMED) {
        for (state, shape, tone, number_of) in
            [("parked", "pause", "warn", counts.parked), ("quarantined", "shield", "bad", counts.quarantined)]
        {
            if number_of > 0 {
                let words =
                    html! { strong { (count(number_of, "item", "items")) } " " (state) " on " strong { (counts.channel) } };
                let todo = Some((filtered("/events", &counts.channel, state), "Look at them"));
                needs.push(Need { tone, shape, words, todo });
            }
        }
    }
    needs.extend(more(channels.len(), "channel has", "channels have", "parked or quarantined items", "/parked"));
    needs
}

/// Those of a kind that are not named one by one.
fn more(all: usize, one: &str, many: &str, what: &str, path: &str) -> Option<Need> {
    let left = all.checked_sub(NAMED).filter(|left| *left > 0)?;
    let words = html! { strong { (count(left as u64, &format!("more {one}"), &format!("more {many}"))) } " " (what) };
    Some(Need { tone: "warn", shape: "alert", words, todo: Some((path.to_owned(), "See all")) })
}

fn filtered(path: &str, channel: &str, state: &str) -> String {
    format!("{path}?q={}", in_query(&format!("channel:{channel} state:{state}")))
}

/// The numbers of now.
fn figures(stats: &Stats, now_ms: i64) -> Markup {
    let sum = |of: fn(&stats::Channel) -> u64| stats.channels.iter().flatten().map(of).sum::<u64>();
    let queue = |name: &str, number_of: Option<u64>, tone: &str, oldest_at: Option<&str>| {
        html! {
            @if let Some(number_of) = number_of {
                div class={ "figure " @if number_of > 0 { (tone) } } { dt { (name) }
                    dd { (number(number_of)) @if let Some(at) = oldest_at { small { "oldest " (oldest(at, now_ms)) } } } }
            }
        }
    };
    let figure = |name: &str, number_of: Option<u64>, tone: &str| queue(name, number_of, tone, None);
    // All times are written alike, so the least of them is the oldest.
    let to_bots = stats.channels.iter().flatten().filter_map(|counts| counts.oldest_at.as_deref()).min();
    html! {
        section aria-labelledby="now-title" {
            h2 #now-title { "Now" }
            dl.figures {
                (figure("Events kept", stats.events, ""))
                (queue("Waiting for the bot", Some(sum(|counts| counts.waiting)), "wait", to_bots))
                (figure("With the bot", Some(sum(|counts| counts.leased)), "busy"))
                (queue("Waiting to be sent", stats.outbox.as_ref().map(|outbox| outbox.waiting), "wait",
                    stats.outbox.as_ref().and_then(|outbox| outbox.oldest_at.as_deref())))
                (figure("In doubt", stats.outbox.as_ref().map(|outbox| outbox.unknown), "doubt"))
                (figure("Parked", Some(sum(|counts| counts.parked)), "warn"))
                (figure("Keys remembered", stats.keys, ""))
                (figure("Claims held", stats.claims.as_ref().map(|claims| claims.held), "busy"))
            }
        }
    }
}

fn by_channel(stats: &Stats, channels: &[Channel], now_ms: i64) -> Markup {
    let of = |name: &str| stats.channels.iter().flatten().find(|counts| counts.channel == name);
    html! {
        section aria-labelledby="channels-title" {
            h2 #channels-title { "Channels" @if channels.len() > CHANNELS { a.more href="/channels" { "All " (number(channels.len() as u64)) } } }
            table.cards {
                thead { tr { th { "Channel" } th { "Provider" } th { "Bot" } th.num { "Waiting" } th.num { "With the bot" } th.num { "Parked" } th { "Oldest" } } }
                tbody { @for channel in channels.iter().take(CHANNELS) {
                    @let counts = of(&channel.name);
                    @let cell = |of: fn(&stats::Channel) -> u64| counts.map_or(0, of);
                    tr data-key=(channel.name) {
                        td.main { a href={ "/events?q=channel:" (in_query(&channel.name)) } { (channel.name) } }
                        td data-label="Provider" { (channel.provider) }
                        td data-label="Bot" { @if channel.mode == "pull" { "pulls" } @else if channel.down.is_empty() { (badge("up")) } @else { (badge("down")) } }
                        td.num data-label="Waiting" { (number(cell(|counts| counts.waiting))) }
                        td.num data-label="With the bot" { (number(cell(|counts| counts.leased))) }
                        td.num data-label="Parked" { (number(cell(|counts| counts.parked))) }
                        td data-label="Oldest" { @match counts.and_then(|counts| counts.oldest_at.as_deref()) { Some(at) => (oldest(at, now_ms)), None => "–" } }
                    }
                } }
            }
        }
    }
}

fn oldest(at: &str, now_ms: i64) -> Markup {
    match at.parse::<jiff::Timestamp>() {
        Ok(time) => html! { span title=(at) { (lasting((now_ms - time.as_millisecond()).max(0))) } },
        Err(_) => html! { (at) },
    }
}

async fn latest(web: &Web, newest: &EventsPage, now_ms: i64) -> Result<Markup, Trouble> {
    let glances = glances(&web.api, &newest.events).await?;
    Ok(html! {
        section aria-labelledby="latest-title" {
            h2 #latest-title { "Latest" a.more href="/events" { "All events" } }
            table.cards {
                thead { tr { th { "State" } th { "Event" } th { "From" } th { "Channel" } th.num { "Copies" } th.num { "Attempts" } th { "Received" } } }
                tbody { @for (event, glance) in newest.events.iter().zip(&glances) { (row(event, glance.as_ref(), now_ms)) } }
            }
        }
    })
}

/// What a first visit shows: how the first webhook gets here.
fn welcome(channels: &[Channel], base: &str, may_set_up: bool) -> Markup {
    let sample = |provider: &str| {
        hapax_providers::samples::list().iter().map(|(name, _)| *name).find(|name| name.split('.').next() == Some(provider))
    };
    let first = channels.iter().find_map(|channel| sample(channel.provider));
    empty(
        "in",
        "Nothing has come in yet",
        html! {
            @if let Some(sample) = first {
                p { "Send a signed sample five times, as a nervous provider would:" }
                (copyable(&format!("hapax trigger {sample} --times 5")))
                p.quiet { "This page turns into the overview when it arrives: one event, four copies suppressed." }
            }
            @if may_set_up { p { a.button href="/new-channel" { (icon("plug")) "Add a channel" } } }
            @if channels.is_empty() {
                p { "There is no channel yet. One connects a provider with your bot." }
            } @else {
                p { "Or give your provider the address of its channel:" }
                table.cards {
                    thead { tr { th { "Channel" } th { "Provider" } th { "Webhook address" } } }
                    tbody { @for channel in channels.iter().take(CHANNELS) { tr {
                        td.main { (channel.name) } td data-label="Provider" { (channel.provider) }
                        td data-label="Webhook address" { (copyable(&format!("{base}{}", channel.path))) }
                    } } }
                }
            }
        },
    )
}
