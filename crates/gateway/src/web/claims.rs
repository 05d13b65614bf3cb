//! `/claims`: keys that are held for other jobs, and what became of them.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use axum::{Form, Json};
use maud::{Markup, html};
use serde::Deserialize;

use super::Web;
use super::components::{badge, confirm, empty, in_query, pager, when_text};
use super::flash::Flash;
use super::icons::icon;
use super::layout::{Nav, page};
use super::trouble::Trouble;
use super::visitor::Visitor;
use crate::api::Scope;
use crate::api::audit::Noted;
use crate::api::claims::lists::{self, ClaimPage, ClaimParams, DeleteParams, Row};
use crate::api::list::Asked;

const ROWS: usize = 50;
const STATES: [&str; 4] = ["held", "abandoned", "completed", "value"];

#[derive(Deserialize)]
pub(super) struct Params {
    state: Option<String>,
    scope: Option<String>,
    key: Option<String>,
    cursor: Option<String>,
}

pub(super) async fn list(State(web): State<Arc<Web>>, visitor: Visitor, Asked(asked): Asked<Params>) -> Result<Markup, Trouble> {
    let given = |text: &Option<String>| text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let (state, scope, key) = (given(&asked.state), given(&asked.scope), given(&asked.key));
    let ask = ClaimParams {
        scope: scope.clone(),
        key: key.clone(),
        state: state.clone(),
        cursor: asked.cursor.clone(),
        limit: Some(ROWS),
    };
    let found = lists::list(State(Arc::clone(&web.api)), visitor.caller.clone(), Asked(ask)).await;
    let list = match found {
        Ok(Json(found)) => rows(&visitor, &found, asked.cursor.as_deref(), &query(&state, &scope, &key)),
        Err(problem) if problem.status().is_client_error() => {
            html! { p.notice.bad role="alert" { (icon("cross")) (problem.told().1) } }
        }
        Err(problem) => return Err(problem.into()),
    };
    let body = html! {
        header.head { h1 { "Claims" } p.quiet { "Keys that make a job happen once, whoever runs it." } }
        form.filter method="get" action="/claims" role="search" {
            span.field { (icon("search")) label.unseen for="key" { "Key" }
                input #key type="search" name="key" value=[key.as_deref()] placeholder="beginning of the key" maxlength="255" data-key="/"; }
            span.field { (icon("key")) label.unseen for="scope" { "Scope" }
                input #scope type="search" name="scope" value=[scope.as_deref()] placeholder="scope" maxlength="64"; }
            button type="submit" { "Filter" }
            span.quick { @for name in STATES { a href={ "/claims?state=" (name) } aria-current=[(state.as_deref() == Some(name)).then_some("true")] { (name) } } }
        }
        (list)
    };
    Ok(page(&visitor, "Claims", Nav::Claims, body))
}

fn query(state: &Option<String>, scope: &Option<String>, key: &Option<String>) -> String {
    let parts = [("state", state), ("scope", scope), ("key", key)];
    let parts = parts.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", in_query(value.as_deref()?))));
    parts.collect::<Vec<_>>().join("&")
}

fn rows(visitor: &Visitor, found: &ClaimPage, cursor: Option<&str>, query: &str) -> Markup {
    let path = if query.is_empty() { "/claims".to_owned() } else { format!("/claims?{query}") };
    html! {
        div #claims data-live=[cursor.is_none().then_some("replace")] {
            @if found.items.is_empty() {
                (empty("key", "No claims", html! {
                    p { "A claim makes a job happen once, across machines:" }
                    pre { code { "hapax once nightly-report -- ./report.sh" } }
                }))
            } @else {
                table.cards {
                    thead { tr { th { "State" } th { "Key" } th { "Scope" } th { "Held by" } th { "Claimed" } th { "Until" } th {} } }
                    tbody { @for claim in &found.items { (row(claim, visitor)) } }
                }
            }
            (pager(&path, "", cursor, found.next.as_deref(), None))
        }
    }
}

fn row(claim: &Row, visitor: &Visitor) -> Markup {
    let until = claim.lease_until.as_deref().or(claim.ends_at.as_deref());
    html! {
        tr {
            td { (badge(claim.state)) }
            td.main { span.clip title=(claim.key) { (claim.key) } }
            td data-label="Scope" { (claim.scope) }
            td data-label="Held by" { (claim.holder.as_deref().unwrap_or("–")) }
            td data-label="Claimed" { (when_text(&claim.claimed_at, visitor.now_ms)) }
            td data-label="Until" { @if let Some(until) = until { (when_text(until, visitor.now_ms)) } @else { "for ever" } }
            td {
                @if visitor.is_admin() {
                    (confirm("/claims/delete", "Delete", "cross",
                        "The key is forgotten: the next caller does the job, also if somebody is at it now or it was done before.",
                        &[("key", &claim.key), ("scope", &claim.scope)]))
                }
            }
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Which {
    key: String,
    scope: String,
}

pub(super) async fn delete(State(web): State<Arc<Web>>, visitor: Visitor, Form(which): Form<Which>) -> Result<Response, Trouble> {
    visitor.need(Scope::Admin)?;
    let (words, target) = (format!("The claim {} is forgotten.", which.key), Some(which.key.clone()));
    let ask = DeleteParams { key: which.key, scope: Some(which.scope) };
    let Json(_) = lists::delete(State(Arc::clone(&web.api)), visitor.caller.clone(), Asked(ask)).await?;
    let mut response = Flash::done(words).at("/claims");
    response.extensions_mut().insert(Noted { target, ..Noted::default() });
    Ok(response)
}
