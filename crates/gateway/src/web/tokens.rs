//! `/tokens`: who may get in, and with what.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::FormRejection;
use axum::extract::{Form, Path, State};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::Web;
use super::components::{confirm, copyable, in_path, pager, part, short, when_text};
use super::flash::Flash;
use super::icons::icon;
use super::layout::{Nav, fitting, page};
use super::trouble::Trouble;
use super::visitor::Visitor;
use crate::api::list::Asked;
use crate::api::tokens::{self, AskToken, Created, Shown};
use crate::api::{Problem, Scope};

const SCOPES: [(&str, &str); 4] = [
    ("read", "look at everything, change nothing"),
    ("send", "send messages, take threads over"),
    ("work", "pull, settle, claim"),
    ("admin", "all of it"),
];

const ROWS: usize = 100;

#[derive(Deserialize)]
pub(super) struct Params {
    cursor: Option<String>,
}

pub(super) async fn list(State(web): State<Arc<Web>>, visitor: Visitor, Asked(asked): Asked<Params>) -> Result<Markup, Trouble> {
    visitor.need(Scope::Admin)?;
    shown(&web, &visitor, asked.cursor.as_deref(), None, None).await
}

async fn shown(
    web: &Web,
    visitor: &Visitor,
    cursor: Option<&str>,
    made: Option<&Created>,
    trouble: Option<&str>,
) -> Result<Markup, Trouble> {
    let Json(found) = tokens::list(State(Arc::clone(&web.api)), visitor.caller.clone()).await?;
    fitting(ROWS, |most| {
        let (rows, next) = part(&found.tokens, cursor, most);
        let list = html! { (table(rows, visitor)) (pager("/tokens", "", cursor, next.as_deref(), None)) };
        std::future::ready(Ok(written(web, visitor, &list, made, trouble)))
    })
    .await
}

fn written(web: &Web, visitor: &Visitor, list: &Markup, made: Option<&Created>, trouble: Option<&str>) -> Markup {
    let body = html! {
        header.head { h1 { "Tokens" } p.quiet { "Named tokens beside the operator's own. Only their hashes are kept." } }
        @if let Some(made) = made {
            div.notice.good role="status" { (icon("key")) div { p { strong { (made.shown.name) } " is made. Copy it now: it is shown this once." } p { (copyable(&made.token)) } } }
        }
        @if let Some(trouble) = trouble { p.notice.bad role="alert" { (icon("cross")) (trouble) } }
        (list)
        (form(web))
    };
    page(visitor, "Tokens", Nav::Tokens, body)
}

fn table(all: &[Shown], visitor: &Visitor) -> Markup {
    html! {
        @if !all.is_empty() {
            table.cards {
                thead { tr { th { "Name" } th { "Scopes" } th { "Channels" } th { "Made" } th { "Last used" } th {} } }
                tbody {
                    @for token in all {
                        tr {
                            td.main { strong { (token.name) } }
                            td data-label="Scopes" { (token.scopes.join(", ")) }
                            td data-label="Channels" { @if let Some(channels) = &token.channels { span.clip { (short(&channels.join(", "))) } } @else { "all" } }
                            td data-label="Made" { (when_text(&token.created_at, visitor.now_ms)) }
                            td data-label="Last used" { @if let Some(used) = &token.used_at { (when_text(used, visitor.now_ms)) } @else { "never" } }
                            td.does { (confirm(&format!("/tokens/{}/revoke", in_path(&token.name)), "Revoke", "cross",
                                "It opens nothing any more, at once here and within three seconds on other instances. Sessions begun with it end.", &[])) }
                        }
                    }
                }
            }
        }
    }
}

fn form(web: &Web) -> Markup {
    html! {
        section {
            h2 { "A new token" }
            form.panel method="post" action="/tokens" autocomplete="off" {
                label for="name" { "Name" }
                input #name name="name" required pattern="[a-z0-9_\\-]{1,64}" maxlength="64" placeholder="shop-bot";
                fieldset { legend { "Scopes" } @for (name, about) in SCOPES { label.choice { input type="checkbox" name=(format!("scope_{name}")) value="1"; span { (name) ": " (about) } } } }
                label for="channels" { "Only these channels, or all if empty" }
                input #channels name="channels" placeholder=(short(&web.api.channels.iter().map(|channel| channel.name().to_string()).collect::<Vec<_>>().join(", ")));
                button.primary type="submit" { (icon("key")) "Make it" }
            }
        }
    }
}

#[derive(Deserialize)]
pub(super) struct New {
    name: String,
    #[serde(default)]
    channels: String,
    scope_read: Option<String>,
    scope_send: Option<String>,
    scope_work: Option<String>,
    scope_admin: Option<String>,
}

/// The token is shown in the answer itself, and nowhere else: it is in no address, no cookie and no cache.
pub(super) async fn create(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    new: Result<Form<New>, FormRejection>,
) -> Result<Response, Trouble> {
    visitor.need(Scope::Admin)?;
    let Form(new) = new.map_err(|rejection| Problem::bad_request(rejection.body_text()))?;
    let asked = [("read", &new.scope_read), ("send", &new.scope_send), ("work", &new.scope_work), ("admin", &new.scope_admin)];
    let scopes = asked.into_iter().filter(|(_, asked)| asked.is_some()).map(|(name, _)| name.to_owned()).collect();
    let channels: Vec<String> = new.channels.split([',', ' ']).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let ask = AskToken { name: new.name, scopes, channels: (!channels.is_empty()).then_some(channels) };
    match tokens::create(State(Arc::clone(&web.api)), visitor.caller.clone(), Ok(Json(ask))).await {
        Ok((_, noted, Json(made))) => Ok((noted, shown(&web, &visitor, None, Some(&made), None).await?).into_response()),
        Err(problem) if problem.status().is_client_error() => {
            let (status, (_, why)) = (problem.status(), problem.told());
            Ok((status, shown(&web, &visitor, None, None, Some(&why)).await?).into_response())
        }
        Err(problem) => Err(problem.into()),
    }
}

pub(super) async fn revoke(State(web): State<Arc<Web>>, visitor: Visitor, Path(name): Path<String>) -> Result<Response, Trouble> {
    visitor.need(Scope::Admin)?;
    let target = Some(name.clone());
    let done = tokens::revoke(State(Arc::clone(&web.api)), visitor.caller.clone(), Path(name)).await;
    let flash = Flash::of(done.map(|Json(revoked)| format!("The token {} opens nothing any more.", revoked.name)))?;
    Ok(flash.at_with("/tokens", target))
}
