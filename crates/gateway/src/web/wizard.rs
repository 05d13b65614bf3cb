//! `/new-channel`: from a provider, a name and a bot to what goes into the file, and to what is done at the provider. Where the file may be written
//! from here, it is.

use std::sync::Arc;

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use maud::{Markup, html};
use secrecy::SecretString;
use serde::Deserialize;

use super::components::copyable;
use super::hosts::host_of;
use super::icons::icon;
use super::layout::{Nav, page};
use super::trouble::Trouble;
use super::visitor::Visitor;
use super::{NewChannel, Web, set_up};
use crate::api::audit::Noted;
use crate::api::{Problem, Scope};

/// With how people know them.
const PROVIDERS: [(&str, &str); 14] = [
    ("whatsapp", "WhatsApp (Meta's Cloud API)"),
    ("telegram", "Telegram"),
    ("messenger", "Messenger"),
    ("instagram", "Instagram"),
    ("gowa", "GOWA (WhatsApp Web)"),
    ("evolution", "Evolution API (WhatsApp Web)"),
    ("waha", "WAHA (WhatsApp Web)"),
    ("slack", "Slack"),
    ("twilio", "Twilio"),
    ("stripe", "Stripe"),
    ("github", "GitHub"),
    ("shopify", "Shopify"),
    ("standard", "Standard Webhooks"),
    ("generic", "Anything else that signs"),
];
const NAME_MAX_BYTES: usize = 64;
const VALUE_MAX_BYTES: usize = 4_096;

/// What was chosen. Nothing of it is secret, except that an address may hold a password: so it is in no address of ours.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Chosen {
    #[serde(default)]
    provider: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    target: String,
}

pub(super) async fn begin(visitor: Visitor) -> Result<Markup, Trouble> {
    allowed(&visitor)?;
    Ok(page(&visitor, "A new channel", Nav::Channels, html! { (head()) (first(&Chosen::default(), None)) }))
}

/// Shows what has to be done for it.
pub(super) async fn plan(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    headers: HeaderMap,
    chosen: Result<Form<Chosen>, FormRejection>,
) -> Result<Response, Trouble> {
    allowed(&visitor)?;
    let Form(chosen) = chosen.map_err(|rejection| Problem::bad_request(rejection.body_text()))?;
    planned(&web, &visitor, &headers, &chosen, None)
}

fn planned(
    web: &Web,
    visitor: &Visitor,
    headers: &HeaderMap,
    chosen: &Chosen,
    trouble: Option<String>,
) -> Result<Response, Trouble> {
    if let Err(why) = check(web, chosen) {
        let body = html! { (head()) (first(chosen, Some(&why))) };
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, page(visitor, "A new channel", Nav::Channels, body)).into_response());
    }
    let address = address(web, headers, &chosen.name);
    let status = if trouble.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let body = html! {
        (head())
        @if let Some(trouble) = &trouble { p.notice.bad role="alert" { (icon("cross")) span.lines { (trouble) } } }
        section { h2 { "Webhook address" } p { (copyable(&address)) }
            @if web.api.public_url.is_none() { p.quiet { "By the name you reach this page under. The provider must reach it from outside, over https." } } }
        (set_up::steps(&chosen.provider, &chosen.name, &chosen.target, &address))
        (writing(web, chosen, &address))
    };
    Ok((status, page(visitor, "A new channel", Nav::Channels, body)).into_response())
}

fn head() -> Markup {
    html! {
        nav.crumbs aria-label="Where you are" { a href="/channels" { "Channels" } }
        header.head { h1 { "A new channel" } p.quiet { "One connection of a provider with your bot." } }
    }
}

fn first(chosen: &Chosen, trouble: Option<&str>) -> Markup {
    html! {
        @if let Some(trouble) = trouble { p.notice.bad role="alert" { (icon("cross")) (trouble) } }
        form.panel method="post" action="/new-channel" autocomplete="off" {
            label for="provider" { "Provider" }
            select #provider name="provider" required { @for (name, about) in PROVIDERS { option value=(name) selected[name == chosen.provider] { (about) } } }
            label for="name" { "Name" }
            input #name name="name" value=(chosen.name) required pattern="[A-Za-z0-9_\\-]{1,64}" maxlength=(NAME_MAX_BYTES) placeholder="shop" aria-describedby="name-about";
            p.quiet #name-about { "It is part of the webhook address, and stands beside everything that comes in by it." }
            label for="target" { "Your bot" }
            input #target name="target" type="url" value=(chosen.target) maxlength="2000" placeholder="http://127.0.0.1:3000/webhook" aria-describedby="target-about";
            p.quiet #target-about { "Where its webhooks went until now. Leave it empty if workers pull." }
            button.primary type="submit" { "Show what to do" (icon("right")) }
        }
    }
}

/// The form that writes the file, or why there is none.
fn writing(web: &Web, chosen: &Chosen, address: &str) -> Markup {
    let Some(file) = &web.config_file else { return html! {} };
    if let Some(why) = file.closed() {
        return html! { p.notice.quiet.closed { (icon("shield")) span { "These pages do not write " code { (file.name()) } ": " (why) } } };
    }
    html! {
        section {
            h2 { "Or have it written" }
            form.panel method="post" action="/new-channel/write" autocomplete="off" {
                @for (name, value) in [("provider", &chosen.provider), ("name", &chosen.name), ("target", &chosen.target)] { input type="hidden" name=(name) value=(value); }
                @for (key, example) in set_up::examples(&chosen.provider, address) {
                    label for={ "key-" (key) } { (key) }
                    @if is_secret(key) {
                        input id={ "key-" (key) } name=(key) type="password" autocomplete="new-password" spellcheck="false" maxlength=(VALUE_MAX_BYTES) placeholder=(example);
                    } @else {
                        input id={ "key-" (key) } name=(key) value=(example) spellcheck="false" maxlength=(VALUE_MAX_BYTES);
                    }
                }
                p.quiet { "What stays empty is taken from the environment, by the name that is shown. Secrets go into the file and are not shown again." }
                button.primary type="submit" { (icon("check")) "Write it to " (file.name()) }
            }
        }
    }
}

fn is_secret(key: &str) -> bool {
    matches!(key, "secret" | "verify_token" | "token")
}

/// What was chosen, and the values of its keys. Without `Debug`: some are secret.
#[derive(Deserialize)]
pub(super) struct Filled {
    #[serde(flatten)]
    chosen: Chosen,
    #[serde(flatten)]
    values: std::collections::BTreeMap<String, String>,
}

/// Puts it into the file. It is read when hapax starts, or reloads.
pub(super) async fn write(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    headers: HeaderMap,
    filled: Result<Form<Filled>, FormRejection>,
) -> Result<Response, Trouble> {
    allowed(&visitor)?;
    let Form(Filled { chosen, mut values }) = filled.map_err(|_| Problem::bad_request("the form could not be read"))?;
    let Some(file) = web.config_file.clone() else { return Err(Problem::not_found("there is no file to write").into()) };
    let why = file.closed().or_else(|| check(&web, &chosen).err());
    if let Some(why) = why {
        return noted(planned(&web, &visitor, &headers, &chosen, Some(why))?, &chosen, false);
    }
    let address = address(&web, &headers, &chosen.name);
    let mut keys = vec![("provider", SecretString::from(chosen.provider.clone()))];
    for (key, example) in set_up::examples(&chosen.provider, &address) {
        let given = values.remove(key).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        keys.push((key, SecretString::from(given.unwrap_or(example))));
    }
    if !chosen.target.is_empty() {
        keys.push(("target", SecretString::from(chosen.target.clone())));
    }
    let channel = NewChannel { name: chosen.name.clone(), keys };
    let (name, adding) = (file.name(), tokio::task::spawn_blocking(move || file.add(&channel)));
    match adding.await.unwrap_or_else(|_| Err("it broke off; look into the file".to_owned())) {
        Ok(()) => noted(written(&visitor, &chosen, &name, &address).into_response(), &chosen, true),
        Err(why) => {
            let why = format!("Nothing was written to {name}:\n{why}");
            noted(planned(&web, &visitor, &headers, &chosen, Some(why))?, &chosen, false)
        }
    }
}

fn written(visitor: &Visitor, chosen: &Chosen, file: &str, address: &str) -> Markup {
    let body = html! {
        (head())
        p.notice.good role="status" { (icon("check")) span { strong { (chosen.name) } " stands in " code { (file) } "." } }
        section {
            h2 { "Next" }
            ol.steps.numbered {
                li { "Restart hapax, or have it read the file again: " (copyable("hapax reload")) }
                li { "Give the provider the address: " (copyable(address)) }
                li { "Try it: " (copyable(&format!("hapax doctor --channel {}", chosen.name))) }
            }
        }
    };
    page(visitor, "A new channel", Nav::Channels, body)
}

/// What stands in the list of who did what: the name, and no value.
fn noted(mut response: Response, chosen: &Chosen, ok: bool) -> Result<Response, Trouble> {
    let name: String = chosen.name.chars().take(NAME_MAX_BYTES).collect();
    let result = Some(if ok { "written" } else { "not written" }.to_owned());
    response.extensions_mut().insert(Noted { target: Some(name), result, failed: !ok });
    Ok(response)
}

fn allowed(visitor: &Visitor) -> Result<(), Trouble> {
    visitor.need(Scope::Admin)?;
    Ok(visitor.caller.need_all_channels()?)
}

fn address(web: &Web, headers: &HeaderMap, name: &str) -> String {
    let here = || format!("http://{}", host_of(headers).unwrap_or("127.0.0.1:4272"));
    format!("{}/in/{name}", web.api.public_url.clone().unwrap_or_else(here))
}

fn check(web: &Web, chosen: &Chosen) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let named = !chosen.name.is_empty() && chosen.name.len() <= NAME_MAX_BYTES && chosen.name.bytes().all(plain);
    let http = chosen.target.starts_with("http://") || chosen.target.starts_with("https://");
    if !PROVIDERS.iter().any(|(name, _)| *name == chosen.provider) {
        return Err("Choose a provider from the list.".to_owned());
    }
    if !named {
        return Err("A name is made of up to 64 letters, digits, `-` and `_`.".to_owned());
    }
    if web.api.channels.iter().any(|channel| **channel.name() == *chosen.name) {
        return Err(format!("There is a channel {} already.", chosen.name));
    }
    if !chosen.target.is_empty() && (!http || chosen.target.chars().any(|sign| sign.is_control() || sign.is_whitespace())) {
        return Err("The address of a bot begins with http:// or https://.".to_owned());
    }
    Ok(())
}
