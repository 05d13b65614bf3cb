//! `/settings`: what this instance runs with, without its secrets.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use hapax_domain::units::write_bytes;
use maud::{Markup, html};
use serde::Deserialize;

use super::Web;
use super::components::{badge, lasting, number, pager, part, short};
use super::layout::{Nav, fitting, page};
use super::trouble::Trouble;
use super::visitor::Visitor;
use crate::api::Scope;
use crate::api::channels::{self, Channel};
use crate::api::list::Asked;
use crate::api::stats::Stats;

/// Channels of one page.
const CHANNELS: usize = 50;

#[derive(Deserialize)]
pub(super) struct Params {
    cursor: Option<String>,
}

pub(super) async fn show(State(web): State<Arc<Web>>, visitor: Visitor, Asked(asked): Asked<Params>) -> Result<Markup, Trouble> {
    visitor.need(Scope::Admin)?;
    visitor.caller.need_all_channels()?;
    let Json(found) = channels::list(State(Arc::clone(&web.api)), visitor.caller.clone()).await;
    let stats = web.counting.lately(&web.api, &visitor.caller).await?;
    fitting(CHANNELS, |most| std::future::ready(Ok(made(&web, &visitor, &found.channels, &stats, asked.cursor.as_deref(), most))))
        .await
}

fn made(web: &Web, visitor: &Visitor, all: &[Channel], stats: &Stats, cursor: Option<&str>, most: usize) -> Markup {
    let (shown, next) = part(all, cursor, most);
    let body = html! {
        header.head { h1 { "Settings" } p.quiet { "What this instance runs with. It is changed in " code { "hapax.toml" } "; " code { "hapax config show" } " prints all of it." } }
        section { h2 { "This server" } dl.pairs { @for (name, value) in &web.shown { div { dt { code { (name) } } dd { (short(value)) } } } } }
        section { h2 { "Store" } (store(stats)) }
        @for channel in shown { section { h2 { "Channel " (channel.name) span.tag { (channel.provider) } } (of_channel(channel)) } }
        (pager("/settings", "", cursor, next.as_deref(), None))
    };
    page(visitor, "Settings", Nav::Settings, body)
}

fn store(stats: &Stats) -> Markup {
    let figure = |n: Option<u64>| n.map_or_else(|| "–".to_owned(), number);
    html! {
        dl.pairs {
            div { dt { "promise" } dd { (badge(stats.promise)) @for why in &stats.not_kept { p { (why) } } } }
            div { dt { "keys" } dd { (figure(stats.keys)) } }
            div { dt { "events" } dd { (figure(stats.events)) } }
            div { dt { "size" } dd { (stats.store_bytes.map_or_else(|| "–".to_owned(), |bytes| write_bytes(i64::try_from(bytes).unwrap_or(i64::MAX)))) } }
        }
    }
}

/// Whether there is a secret is shown, and nothing of it.
fn of_channel(channel: &Channel) -> Markup {
    let pairs = [
        ("target", channel.target.clone().unwrap_or_else(|| "–".to_owned())),
        ("secret", "set, hidden".to_owned()),
        ("token", if channel.sends { "set, hidden".to_owned() } else { "not set: it does not send".to_owned() }),
        ("mode", channel.mode.to_owned()),
        ("deliver", channel.deliver.join(", ")),
        ("window", lasting(channel.window_ms)),
        ("retention", lasting(channel.retention_ms)),
        ("attempts", channel.attempts.to_string()),
        ("timeout", lasting(channel.timeout_ms)),
        ("lease", lasting(channel.lease_ms)),
        ("on_poison", channel.on_poison.to_owned()),
        ("on_store_failure", channel.on_store_failure.to_owned()),
        ("max_body", number(channel.max_body as u64)),
    ];
    html! { dl.pairs { @for (name, value) in pairs { div { dt { code { (name) } } dd { (short(&value)) } } } } }
}
