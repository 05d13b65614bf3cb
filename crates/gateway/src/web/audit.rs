//! `/audit`: who did what.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};
use serde::Deserialize;

use super::Web;
use super::components::{empty, pager, short, when};
use super::icons::icon;
use super::layout::{Nav, fitting, page};
use super::trouble::Trouble;
use super::visitor::Visitor;
use crate::api::Scope;
use crate::api::audit::page_of_deeds;
use crate::api::list::Asked;

const ROWS: usize = 100;

#[derive(Deserialize)]
pub(super) struct Params {
    cursor: Option<String>,
}

pub(super) async fn list(State(web): State<Arc<Web>>, visitor: Visitor, Asked(asked): Asked<Params>) -> Result<Markup, Trouble> {
    visitor.need(Scope::Admin)?;
    fitting(ROWS, |most| made(&web, &visitor, &asked, most)).await
}

async fn made(web: &Web, visitor: &Visitor, asked: &Params, most: usize) -> Result<Markup, Trouble> {
    let (deeds, next) = page_of_deeds(&web.api, &visitor.caller, asked.cursor.as_deref(), most).await?;
    let body = html! {
        header.head { h1 { "Audit" } p.quiet { "Who changed what, by page, command or API. The newest 5,000, for 90 days." } }
        div #audit data-live=[asked.cursor.is_none().then_some("replace")] {
            @if deeds.is_empty() {
                (empty("list", "Nothing was changed yet", html! { p { "Replays, redrives, retries, threads taken over and tokens are listed here." } }))
            } @else {
                table.cards {
                    thead { tr { th { "When" } th { "What" } th { "To" } th { "By" } th { "From" } th { "Result" } } }
                    tbody {
                        @for deed in &deeds {
                            tr {
                                td { (when(deed.at_ms, visitor.now_ms)) }
                                td.main { (deed.action) }
                                td data-label="To" { span.clip { (short(deed.target.as_deref().unwrap_or("–"))) } }
                                td data-label="By" { (deed.by) }
                                td data-label="From" { (deed.from.as_deref().unwrap_or("–")) }
                                td data-label="Result" { span.badge.good[deed.ok].bad[!deed.ok] { (icon(if deed.ok { "check" } else { "cross" })) (short(&deed.result)) } }
                            }
                        }
                    }
                }
            }
            (pager("/audit", "", asked.cursor.as_deref(), next.as_deref(), None))
        }
    };
    Ok(page(visitor, "Audit", Nav::Audit, body))
}
