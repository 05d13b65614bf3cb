//! `/accounts`: accounts that do not send until a person has seen to them.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use axum::{Form, Json};
use maud::{Markup, html};
use serde::Deserialize;

use super::Web;
use super::bulk::{self, MOST, Offer, Until};
use super::components::{badge, confirm, empty, pager, part, short, when_text};
use super::flash::Flash;
use super::layout::{Nav, fitting, page};
use super::trouble::Trouble;
use super::visitor::Visitor;
use crate::api::Scope;
use crate::api::accounts::{self, Account};
use crate::api::list::Asked;

const ROWS: usize = 50;

#[derive(Deserialize)]
pub(super) struct Params {
    cursor: Option<String>,
}

pub(super) async fn list(State(web): State<Arc<Web>>, visitor: Visitor, Asked(asked): Asked<Params>) -> Result<Markup, Trouble> {
    let Json(found) = accounts::list(State(Arc::clone(&web.api)), visitor.caller.clone()).await?;
    fitting(ROWS, |most| std::future::ready(Ok(made(&visitor, &found.accounts, asked.cursor.as_deref(), most)))).await
}

fn made(visitor: &Visitor, all: &[Account], cursor: Option<&str>, most: usize) -> Markup {
    let (shown, next) = part(all, cursor, most);
    let body = html! {
        header.head { h1 { "Accounts" } p.quiet { "Those that their provider has stopped. The others send, and are not listed." } }
        div #accounts data-live=[cursor.is_none().then_some("replace")] {
            @if visitor.is_admin() { (offer(all.len()).show(&[], visitor.now_ms)) }
            @if all.is_empty() {
                (empty("check", "Every account may send", html! {
                    p { "An account stops when its provider says that nothing of it will be sent: a token that expired, a policy, a device that is off." }
                }))
            } @else {
                table.cards {
                    thead { tr { th { "State" } th { "Account" } th { "Channel" } th { "Why" } th { "Since" } th {} } }
                    tbody {
                        @for account in shown {
                            tr {
                                td { (badge(account.state)) }
                                td.main { (short(&account.account)) }
                                td data-label="Channel" { (account.channel) }
                                td data-label="Why" { (short(&account.why)) }
                                td data-label="Since" { (when_text(&account.since, visitor.now_ms)) }
                                td.does {
                                    @if visitor.is_admin() {
                                        (confirm("/accounts/resume", "Resume", "repeat",
                                            "It sends again, beginning with what waits. Mend the cause first, or it stops again.",
                                            &[("channel", &account.channel), ("account", &account.account)]))
                                    }
                                }
                            }
                        }
                    }
                }
            }
            (pager("/accounts", "", cursor, next.as_deref(), None))
        }
    };
    page(visitor, "Accounts", Nav::Accounts, body)
}

/// In a form, not in the path: what a provider calls an account may be anything, `..` too.
#[derive(Deserialize)]
pub(super) struct Which {
    channel: String,
    account: String,
}

pub(super) async fn resume(State(web): State<Arc<Web>>, visitor: Visitor, Form(which): Form<Which>) -> Result<Response, Trouble> {
    visitor.need(Scope::Admin)?;
    let target = Some(format!("{} {}", which.channel, which.account));
    let (api, path) = (State(Arc::clone(&web.api)), Path((which.channel, which.account)));
    let done = accounts::resume(api, visitor.caller.clone(), Ok(path)).await;
    let flash = Flash::of(done.map(|Json(resumed)| format!("Account {} sends again.", short(&resumed.account))))?;
    Ok(flash.at_with("/accounts", target))
}

fn offer(paused: usize) -> Offer<'static> {
    Offer {
        action: "/accounts/all/resume",
        verb: "Resume",
        shape: "repeat",
        many: paused.min(MOST),
        more: paused > MOST,
        words: "They send again, beginning with what waits. Mend the cause first, or they stop again.",
    }
}

#[derive(Deserialize)]
pub(super) struct Bulk {
    until: Until,
}

/// All that were stopped send again.
pub(super) async fn resume_all(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Form(asked): Form<Bulk>,
) -> Result<Response, Trouble> {
    visitor.need(Scope::Admin)?;
    let Json(found) = accounts::list(State(Arc::clone(&web.api)), visitor.caller.clone()).await?;
    let meant = found.accounts.into_iter().filter(|account| asked.until.covers(&account.since)).take(MOST);
    let act = |account: Account| {
        let (api, caller) = (State(Arc::clone(&web.api)), visitor.caller.clone());
        async move { accounts::resume(api, caller, Ok(Path((account.channel, account.account)))).await.map(|_| 1) }
    };
    Ok(bulk::each(meant, act).await.told("account sends again", "accounts send again").at("/accounts"))
}
