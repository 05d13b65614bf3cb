//! `/v1/accounts`: accounts that do not send until a person has seen to them.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use hapax_store::PausedAccount;
use serde::Serialize;
use utoipa::ToSchema;

use super::time::rfc3339;
use super::{Api, Caller, Problem};

#[derive(Serialize, ToSchema)]
#[schema(as = Accounts)]
pub(crate) struct List {
    pub(crate) accounts: Vec<Account>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Account {
    pub(crate) channel: String,
    pub(crate) account: String,
    /// `paused`: the others send, and are not listed.
    pub(crate) state: &'static str,
    pub(crate) why: String,
    pub(crate) since: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Resumed {
    channel: String,
    pub(crate) account: String,
    /// Why it had been paused.
    why: String,
}

/// Lists accounts that do not send until a person has seen to them.
#[utoipa::path(
    get,
    path = "/accounts",
    operation_id = "listAccounts",
    tag = "accounts",
    responses((status = 200, description = "Those that are paused", body = List)),
)]
pub(crate) async fn list(State(api): State<Arc<Api>>, caller: Caller) -> Result<Json<List>, Problem> {
    let paused = api.store.paused_accounts().await?.into_iter().filter(|paused| caller.sees(&paused.channel));
    Ok(Json(List { accounts: paused.map(Account::from).collect() }))
}

/// Lets a paused account send again.
#[utoipa::path(
    post,
    path = "/accounts/{channel}/{account}/resume",
    operation_id = "resumeAccount",
    tag = "accounts",
    params(("channel" = String, Path, description = "The channel"), ("account" = String, Path, description = "The provider's own id of the account")),
    responses((status = 200, description = "It sends again", body = Resumed), (status = 404)),
)]
pub(crate) async fn resume(
    State(api): State<Arc<Api>>,
    caller: Caller,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Json<Resumed>, Problem> {
    let Path((channel, account)) = path?;
    caller.need_channel(&channel)?;
    let mut paused = api.store.paused_accounts().await?.into_iter();
    let Some(found) = paused.find(|paused| paused.channel == channel && paused.account == account) else {
        return Err(Problem::not_found("no such account is paused; GET /v1/accounts lists those that are"));
    };
    api.store.pause_account(&channel, &account, None).await?;
    Ok(Json(Resumed { channel, account, why: found.why }))
}

impl From<PausedAccount> for Account {
    fn from(row: PausedAccount) -> Self {
        Self { channel: row.channel, account: row.account, state: "paused", why: row.why, since: rfc3339(row.since_ms) }
    }
}
