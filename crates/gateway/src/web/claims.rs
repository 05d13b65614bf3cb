//! `/claims`: keys that are held for other jobs, and what became of them.

use std::sync::Arc;

use axum::Form;
use axum::extract::{Path, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::Web;
use super::bulk::{self, MOST, Offer, Until};
use super::components::{badge, confirm, empty, in_query, pager, short, when_text};
use super::flash::Flash;
use super::icons::icon;
use super::layout::{Nav, fitting, page};
use super::trouble::Trouble;
use super::visitor::Visitor;
use crate::api::claims::{
    self,
    lists::{self, ClaimPage, ClaimParams, DeleteParams, Row},
};
use crate::api::list::Asked;
use crate::api::{Problem, Scope};

const ROWS: usize = 50;
const STATES: [&str; 4] = ["held", "abandoned", "completed", "value"];

#[derive(Deserialize)]
pub(super) struct Params {
    state: Option<String>,
    scope: Option<String>,
    key: Option<String>,
    cursor: Option<String>,
}

/// Which claims are looked for.
struct Sought {
    state: Option<String>,
    scope: Option<String>,
    key: Option<String>,
}

impl Sought {
    fn new(state: Option<&str>, scope: Option<&str>, key: Option<&str>) -> Self {
        let given = |text: Option<&str>| text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        Self { state: given(state), scope: given(scope), key: given(key) }
    }

    async fn find(&self, web: &Web, visitor: &Visitor, cursor: Option<String>, limit: usize) -> Result<ClaimPage, Problem> {
        let (state, scope, key) = (self.state.clone(), self.scope.clone(), self.key.clone());
        let ask = ClaimParams { scope, key, state, cursor, limit: Some(limit) };
        Ok(lists::list(State(Arc::clone(&web.api)), visitor.caller.clone(), Asked(ask)).await?.0)
    }
}

pub(super) async fn list(State(web): State<Arc<Web>>, visitor: Visitor, Asked(asked): Asked<Params>) -> Result<Markup, Trouble> {
    fitting(ROWS, |most| made(&web, &visitor, &asked, most)).await
}

async fn made(web: &Web, visitor: &Visitor, asked: &Params, most: usize) -> Result<Markup, Trouble> {
    let sought = Sought::new(asked.state.as_deref(), asked.scope.as_deref(), asked.key.as_deref());
    let mut offers = html! {};
    let list = match sought.find(web, visitor, asked.cursor.clone(), most).await {
        Ok(found) => {
            if asked.cursor.is_none() && visitor.is_admin() {
                offers = offered(web, visitor, &found, &sought).await?;
            }
            rows(visitor, &found, asked.cursor.as_deref(), &query(&sought))
        }
        Err(problem) if problem.status().is_client_error() => {
            html! { p.notice.bad role="alert" { (icon("cross")) (problem.told().1) } }
        }
        Err(problem) => return Err(problem.into()),
    };
    let Sought { state, scope, key } = &sought;
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
        div.actions #bulk data-live="replace" { (offers) }
        (list)
    };
    Ok(page(visitor, "Claims", Nav::Claims, body))
}

/// What can be done to all that match, with how many that are.
async fn offered(web: &Web, visitor: &Visitor, page: &ClaimPage, sought: &Sought) -> Result<Markup, Trouble> {
    let all = if page.next.is_some() { Some(sought.find(web, visitor, None, MOST).await?) } else { None };
    let all = all.as_ref().unwrap_or(page);
    let more = all.next.is_some();
    let end = Offer {
        action: "/claims/all/end",
        verb: "Release",
        shape: "key",
        many: all.items.iter().filter(|claim| is_held(claim)).count(),
        more,
        words: "Of those that are held, each holder loses its claim, and the next caller does the job.",
    };
    let delete = Offer {
        action: "/claims/all/delete",
        verb: "Delete",
        shape: "cross",
        many: all.items.len(),
        more,
        words: "The keys are forgotten: the next callers do the jobs, also where somebody is at one now or it was done before.",
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (state, scope, key) = (text(&sought.state), text(&sought.scope), text(&sought.key));
    let hidden = [("state", state.as_str()), ("scope", scope.as_str()), ("key", key.as_str())];
    Ok(html! { @for offer in [end, delete] { (offer.show(&hidden, visitor.now_ms)) } })
}

fn is_held(claim: &Row) -> bool {
    matches!(claim.state, "held" | "abandoned")
}

fn query(sought: &Sought) -> String {
    let parts = [("state", &sought.state), ("scope", &sought.scope), ("key", &sought.key)];
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
            td.main { span.clip title=(claim.key) { (short(&claim.key)) } }
            td data-label="Scope" { (claim.scope) }
            td data-label="Held by" { (claim.holder.as_deref().unwrap_or("–")) }
            td data-label="Claimed" { (when_text(&claim.claimed_at, visitor.now_ms)) }
            td data-label="Until" { @if let Some(until) = until { (when_text(until, visitor.now_ms)) } @else { "for ever" } }
            td.does {
                @if visitor.is_admin() {
                    @if is_held(claim) {
                        (confirm("/claims/end", "Release", "key", "Its holder loses it, and the next caller does the job.",
                            &[("key", &claim.key), ("scope", &claim.scope)]))
                    }
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
    let key = which.key.clone();
    let ask = DeleteParams { key: which.key, scope: Some(which.scope) };
    let done = lists::delete(State(Arc::clone(&web.api)), visitor.caller.clone(), Asked(ask)).await;
    Ok(Flash::of(done.map(|_| format!("The claim {} is forgotten.", short(&key))))?.at_with("/claims", Some(key)))
}

/// Ends one that is held.
pub(super) async fn end(State(web): State<Arc<Web>>, visitor: Visitor, Form(which): Form<Which>) -> Result<Response, Trouble> {
    visitor.need(Scope::Admin)?;
    let done = claims::end(&web.api, &visitor.caller, &which.key, &which.scope).await;
    let flash = Flash::of(done.map(|()| format!("The claim {} is free.", short(&which.key))))?;
    Ok(flash.at_with("/claims", Some(which.key)))
}

#[derive(Deserialize)]
pub(super) struct Bulk {
    state: Option<String>,
    scope: Option<String>,
    key: Option<String>,
    until: Until,
}

/// Ends or deletes all that match.
pub(super) async fn bulk(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Path(verb): Path<String>,
    Form(asked): Form<Bulk>,
) -> Result<Response, Trouble> {
    visitor.need(Scope::Admin)?;
    let ends = match verb.as_str() {
        "end" => true,
        "delete" => false,
        _ => return Err(Problem::not_found("there is nothing like that to do with claims").into()),
    };
    let sought = Sought::new(asked.state.as_deref(), asked.scope.as_deref(), asked.key.as_deref());
    let found = sought.find(&web, &visitor, None, MOST).await?;
    let meant = found.items.into_iter().filter(|claim| asked.until.covers(&claim.claimed_at) && (!ends || is_held(claim)));
    let act = |claim: Row| {
        let (api, caller) = (Arc::clone(&web.api), visitor.caller.clone());
        async move {
            if ends {
                return claims::end(&api, &caller, &claim.key, &claim.scope).await.map(|()| 1);
            }
            let ask = DeleteParams { key: claim.key, scope: Some(claim.scope) };
            lists::delete(State(api), caller, Asked(ask)).await.map(|_| 1)
        }
    };
    let outcome = bulk::each(meant, act).await;
    let flash = match ends {
        true => outcome.told("claim is free", "claims are free"),
        false => outcome.told("claim is forgotten", "claims are forgotten"),
    };
    Ok(flash.at("/claims"))
}
