//! `/channels` and `/channels/{name}`: each connection to a provider, where the provider posts, and how it is tried out.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use axum::{Form, Json};
use hapax_providers::samples;
use http::HeaderMap;
use maud::{Markup, html};
use serde::Deserialize;

use super::Web;
use super::components::{badge, copyable, empty, in_path, in_query, lasting, number, pager, part, short, when_text};
use super::flash::Flash;
use super::hosts::host_of;
use super::icons::icon;
use super::layout::{Nav, fitting, page};
use super::set_up;
use super::trouble::Trouble;
use super::visitor::Visitor;
use crate::api::channels::{self, AskTrigger, Channel};
use crate::api::list::Asked;
use crate::api::stats::Stats;
use crate::api::{Problem, Scope};

const ROWS: usize = 100;
/// A channel may have a bot for each account.
const DOWN_SHOWN: usize = 20;

#[derive(Deserialize)]
pub(super) struct Params {
    cursor: Option<String>,
}

pub(super) async fn list(State(web): State<Arc<Web>>, visitor: Visitor, Asked(asked): Asked<Params>) -> Result<Markup, Trouble> {
    let Json(found) = channels::list(State(Arc::clone(&web.api)), visitor.caller.clone()).await;
    let stats = web.counting.lately(&web.api, &visitor.caller).await?;
    fitting(ROWS, |most| std::future::ready(Ok(made(&visitor, &found.channels, &stats, asked.cursor.as_deref(), most)))).await
}

fn made(visitor: &Visitor, all: &[Channel], stats: &Stats, cursor: Option<&str>, most: usize) -> Markup {
    let (shown, next) = part(all, cursor, most);
    let body = html! {
        header.head { h1 { "Channels" } p.quiet { "Each is one connection to a provider, and stands in " code { "hapax.toml" } "." } }
        @if visitor.may_set_up() { p.actions { a.button href="/new-channel" { (icon("plug")) "Add a channel" } } }
        div #channels data-live=[cursor.is_none().then_some("replace")] {
            @if all.is_empty() {
                (empty("plug", "No channels", html! { p { "A channel connects a provider with your bot." } }))
            } @else {
                table.cards {
                    thead { tr { th { "Bot" } th { "Channel" } th { "Provider" } th { "Goes to" } th.num { "Waiting" } th.num { "Parked" } th { "Sends" } } }
                    tbody { @for channel in shown { (row(channel, stats)) } }
                }
            }
            (pager("/channels", "", cursor, next.as_deref(), None))
        }
    };
    page(visitor, "Channels", Nav::Channels, body)
}

fn row(channel: &Channel, stats: &Stats) -> Markup {
    let (waiting, parked) = counts(stats, &channel.name);
    html! {
        tr {
            td { (state(channel)) }
            td.main { a href={ "/channels/" (in_path(&channel.name)) } { (channel.name) } }
            td data-label="Provider" { (channel.provider) }
            td data-label="Goes to" { span.clip { (short(goes_to(channel))) } }
            td.num data-label="Waiting" { (number(waiting)) }
            td.num data-label="Parked" { (number(parked)) }
            td data-label="Sends" { @if channel.sends { "yes" } @else { "no" } }
        }
    }
}

fn counts(stats: &Stats, name: &str) -> (u64, u64) {
    let of = stats.channels.iter().flatten().find(|counts| counts.channel == name);
    of.map_or((0, 0), |counts| (counts.waiting + counts.leased, counts.parked))
}

fn state(channel: &Channel) -> Markup {
    match (channel.mode, channel.down.is_empty()) {
        ("pull", _) => badge("pulled"),
        (_, true) => badge("up"),
        (_, false) => badge("down"),
    }
}

fn goes_to(channel: &Channel) -> &str {
    if channel.mode == "pull" { "workers that pull" } else { channel.target.as_deref().unwrap_or("a target per account") }
}

pub(super) async fn show(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Result<Markup, Trouble> {
    let Json(found) = channels::list(State(Arc::clone(&web.api)), visitor.caller.clone()).await;
    let channel = found.channels.into_iter().find(|channel| channel.name == name);
    let Some(channel) = channel else {
        return Err(Problem::not_found("there is no channel of that name; hapax.toml names them").into());
    };
    let stats = web.counting.lately(&web.api, &visitor.caller).await?;
    let (waiting, parked) = counts(&stats, &channel.name);
    let here = format!("http://{}", host_of(&headers).unwrap_or("127.0.0.1:4272"));
    let address = format!("{}{}", web.api.public_url.as_deref().unwrap_or(&here), channel.path);
    let body = html! {
        nav.crumbs aria-label="Where you are" { a href="/channels" { "Channels" }
            a href={ "/events?q=channel:" (in_query(&channel.name)) } { "its events" } a href={ "/parked?q=channel:" (in_query(&channel.name)) } { "its parked items" }
            a href={ "/?range=day&channel=" (in_query(&channel.name)) } { "its last day" } }
        header.head { h1 { (channel.name) " " (state(&channel)) } p.quiet { (channel.provider) } }
        div #channel data-live="replace" {
            @for down in channel.down.iter().take(DOWN_SHOWN) {
                p.notice.bad { (icon("cross")) span { "The bot is down since " (when_text(&down.since, visitor.now_ms)) ": " (short(&down.why))
                    ". Nothing is charged; it is tried again " (when_text(&down.next_try_at, visitor.now_ms)) "." } }
            }
            dl.facts {
                div { dt { "Waiting" } dd { (number(waiting)) } }
                div { dt { "Parked" } dd { (number(parked)) } }
                div { dt { "Goes to" } dd { (goes_to(&channel)) } }
                div { dt { "Mode" } dd { (channel.mode) } }
                div { dt { "Sends" } dd { @if channel.sends { "yes" } @else { "no: it has no token" } } }
                div { dt { "Copies are known for" } dd { (lasting(channel.window_ms)) } }
                div { dt { "Events are kept for" } dd { (lasting(channel.retention_ms)) } }
                div { dt { "Attempts" } dd { (channel.attempts) } }
                div { dt { "Timeout" } dd { (lasting(channel.timeout_ms)) } }
                div { dt { "When the store is away" } dd { (channel.on_store_failure) } }
            }
        }
        section { h2 { "Webhook address" } p { (copyable(&address)) }
            @if web.api.public_url.is_none() { p.quiet { "By the name you reach this page under. The provider must reach it from outside, over https; set " code { "public_url" } " and it is shown here." } } }
        (set_up::steps(channel.provider, &channel.name, channel.target.as_deref().unwrap_or("http://127.0.0.1:3000/webhook"), &address))
        @if visitor.is_admin() { (trial(&channel)) }
    };
    Ok(page(&visitor, &channel.name, Nav::Channels, body))
}

/// The form that posts a sample to ourselves.
fn trial(channel: &Channel) -> Markup {
    let own = |name: &&(&'static str, &'static str)| name.0.split('.').next() == Some(channel.provider);
    let samples: Vec<_> = samples::list().iter().filter(own).collect();
    html! {
        section {
            h2 { "Try it" }
            @if samples.is_empty() { p.quiet { "There is no sample for this provider." } } @else {
                form.trial method="post" action={ "/channels/" (in_path(&channel.name)) "/trigger" } {
                    label for="kind" { "Sample" }
                    select #kind name="kind" { @for (name, about) in &samples { option value=(name) { (name) ": " (about) } } }
                    button.primary type="submit" { (icon("bolt")) "Post it, signed" }
                }
                p.quiet { "It goes through the same door as the provider's own, and to the bot." }
            }
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Trial {
    kind: String,
}

pub(super) async fn trigger(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Path(name): Path<String>,
    Form(trial): Form<Trial>,
) -> Result<Response, Trouble> {
    visitor.need(Scope::Admin)?;
    let ask = AskTrigger { kind: trial.kind, nonce: rand::random() };
    let path = format!("/channels/{}", in_path(&name));
    let Json(said) = channels::trigger(State(Arc::clone(&web.api)), visitor.caller.clone(), Path(name), Ok(Json(ask))).await?;
    let flash = match said.status {
        200..=299 => Flash::done(format!("{} was taken: {}. It is the newest of the events.", said.sample, said.status)),
        status => Flash::failed(format!("{} was refused with {status}: {}", said.sample, said.answer)),
    };
    Ok(flash.at(&path))
}
