//! `/v1/tokens`: named tokens, each with its scopes and, if wanted, its channels. All of them are one setting of the store, changed only as it
//! was seen, so that instances do not overwrite each other; of the tokens themselves only hashes are kept.

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use hapax_store::{Store, StoreError};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::audit::Noted;
use super::auth::hash_token;
use super::caller::TokenHash;
use super::time::rfc3339;
use super::{Api, Caller, Code, Problem, Scope};

/// The setting that holds them.
pub(super) const SETTING: &str = "tokens";
const TOKENS_MAX: usize = 100;
const NAME_MAX_BYTES: usize = 64;
/// Somebody else may change the list at the same time, but hardly this often.
const CHANGE_TRIES: u32 = 20;

#[derive(Default, Deserialize, Serialize)]
struct Stored {
    tokens: Vec<Token>,
}

/// One token as it is stored.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Token {
    name: String,
    /// [`hash_token`], in hex.
    hash: String,
    /// Scopes of a later version are skipped.
    scopes: Vec<String>,
    channels: Option<Vec<String>>,
    created_ms: i64,
    pub(super) used_ms: Option<i64>,
}

impl Token {
    pub(super) fn hash(&self) -> Option<[u8; 32]> {
        let mut hash = [0; 32];
        hex::decode_to_slice(&self.hash, &mut hash).ok().map(|()| hash)
    }

    pub(super) fn caller(&self, hash: [u8; 32]) -> Caller {
        let scopes = self.scopes.iter().filter_map(|name| Scope::from_name(name)).collect();
        Caller::new(&self.name, TokenHash(hash), scopes, self.channels.as_deref())
    }
}

/// The tokens that a store has now.
pub(super) async fn read(store: &dyn Store) -> Result<Vec<Token>, StoreError> {
    Ok(parse(store.amend(SETTING, None, None, None).await?.as_deref())?.tokens)
}

/// Writes down when a token was last used. A list that was changed meanwhile is left as it is: the next use will tell.
pub(super) async fn note_use(store: &dyn Store, hash: &[u8; 32], at_ms: i64) -> Result<(), StoreError> {
    let Some(before) = store.amend(SETTING, None, None, None).await? else { return Ok(()) };
    let mut stored = parse(Some(&before))?;
    let Some(token) = stored.tokens.iter_mut().find(|token| token.hash().as_ref() == Some(hash)) else { return Ok(()) };
    token.used_ms = token.used_ms.max(Some(at_ms));
    let after = serde_json::to_string(&stored).map_err(|_| damaged())?;
    store.amend(SETTING, Some(&before), Some(&after), None).await.map(drop)
}

/// Changes the list as it was seen, and again when somebody was faster.
async fn change<T>(store: &dyn Store, mut with: impl FnMut(&mut Vec<Token>) -> Result<T, Problem>) -> Result<T, Problem> {
    let mut before = store.amend(SETTING, None, None, None).await?;
    for _ in 0..CHANGE_TRIES {
        let mut stored = parse(before.as_deref())?;
        let changed = with(&mut stored.tokens)?;
        let after = serde_json::to_string(&stored).map_err(|_| damaged())?;
        let now = store.amend(SETTING, before.as_deref(), Some(&after), None).await?;
        if now.as_deref() == Some(after.as_str()) {
            return Ok(changed);
        }
        before = now;
    }
    Err(StoreError::Busy.into())
}

fn parse(text: Option<&str>) -> Result<Stored, StoreError> {
    text.map_or_else(|| Ok(Stored::default()), |text| serde_json::from_str(text).map_err(|_| damaged()))
}

fn damaged() -> StoreError {
    StoreError::Refused("the list of tokens in the store cannot be read; set HAPAX_ADMIN_TOKEN to get in".to_owned())
}

#[derive(Serialize, ToSchema)]
#[schema(as = Tokens)]
pub(crate) struct List {
    pub(crate) tokens: Vec<Shown>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = NamedToken)]
pub(crate) struct Shown {
    pub(crate) name: String,
    pub(crate) scopes: Vec<String>,
    /// Null: all of them.
    pub(crate) channels: Option<Vec<String>>,
    pub(crate) created_at: String,
    /// To the minute; null: never.
    pub(crate) used_at: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = NewToken)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskToken {
    pub(crate) name: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) channels: Option<Vec<String>>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = CreatedToken)]
pub(crate) struct Created {
    #[serde(flatten)]
    pub(crate) shown: Shown,
    /// Shown this once.
    pub(crate) token: String,
}

#[derive(Serialize, ToSchema)]
#[schema(as = RevokedToken)]
pub(crate) struct Revoked {
    pub(crate) name: String,
    revoked: bool,
}

/// Lists the named tokens, without the tokens themselves.
#[utoipa::path(
    get,
    path = "/tokens",
    operation_id = "listTokens",
    tag = "tokens",
    responses((status = 200, description = "All of them", body = List)),
)]
pub(crate) async fn list(State(api): State<Arc<Api>>, caller: Caller) -> Result<Json<List>, Problem> {
    caller.need_all_channels()?;
    Ok(Json(List { tokens: read(&*api.store).await?.into_iter().map(Shown::from).collect() }))
}

/// Makes a named token.
#[utoipa::path(
    post,
    path = "/tokens",
    operation_id = "createToken",
    tag = "tokens",
    request_body = AskToken,
    responses((status = 201, description = "The token, shown this once", body = Created), (status = 409)),
)]
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    caller: Caller,
    ask: Result<Json<AskToken>, JsonRejection>,
) -> Result<(StatusCode, Extension<Noted>, Json<Created>), Problem> {
    caller.need_all_channels()?;
    let Json(ask) = ask?;
    check(&api, &ask)?;
    let secret = format!("hpx_{}", hex::encode(rand::random::<[u8; 32]>()));
    let hash = hex::encode(hash_token(&secret));
    let AskToken { name, scopes, channels } = ask;
    let token = Token { name, hash, scopes, channels, created_ms: api.clock.now_ms(), used_ms: None };
    change(&*api.store, |tokens| {
        // What was made in a try before this one, and came to be known late, is ours.
        if tokens.iter().any(|known| known.hash == token.hash) {
            return Ok(());
        }
        if tokens.iter().any(|known| known.name == token.name) {
            let detail = format!("there is a token `{}` already; revoke it first, or choose another name", token.name);
            return Err(Problem::new(Code::NameTaken, detail));
        }
        if tokens.len() >= TOKENS_MAX {
            return Err(Problem::unprocessable(format!("there are {TOKENS_MAX} tokens already; revoke one first")));
        }
        tokens.push(token.clone());
        Ok(())
    })
    .await?;
    api.auth.changed();
    api.auth.telemetry.token_created(&token.name, &caller.name);
    let result = Some(format!("made, with {}", token.scopes.join(", ")));
    let noted = Noted { target: Some(token.name.clone()), result, ..Noted::default() };
    Ok((StatusCode::CREATED, Extension(noted), Json(Created { shown: token.into(), token: secret })))
}

/// Revokes a named token.
#[utoipa::path(
    delete,
    path = "/tokens/{name}",
    operation_id = "revokeToken",
    tag = "tokens",
    params(("name" = String, Path, description = "The name of the token")),
    responses((status = 200, description = "It opens nothing any more", body = Revoked), (status = 404)),
)]
pub(crate) async fn revoke(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Revoked>, Problem> {
    caller.need_all_channels()?;
    let mut tried = false;
    change(&*api.store, |tokens| {
        let found = tokens.iter().position(|token| token.name == name);
        match found {
            Some(at) => drop(tokens.remove(at)),
            // Gone since our own try before.
            None if tried => {}
            None => {
                let name: String = name.chars().take(NAME_MAX_BYTES).collect();
                return Err(Problem::not_found(format!("there is no token `{name}`; GET /v1/tokens lists them")));
            }
        }
        tried = true;
        Ok(())
    })
    .await?;
    api.auth.changed();
    api.auth.telemetry.token_revoked(&name, &caller.name);
    Ok(Json(Revoked { name, revoked: true }))
}

fn check(api: &Api, ask: &AskToken) -> Result<(), Problem> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    if ask.name.is_empty() || ask.name.len() > NAME_MAX_BYTES || !ask.name.bytes().all(plain) {
        return Err(Problem::bad_request("`name` is 1 to 64 of a-z, 0-9, `-` and `_`"));
    }
    if ask.scopes.is_empty() || ask.scopes.iter().any(|name| Scope::from_name(name).is_none()) {
        let known = Scope::ALL.map(Scope::name).join(", ");
        return Err(Problem::bad_request(format!("`scopes` is a list of at least one of {known}")));
    }
    let configured = |name: &String| api.channels.get(name).is_some();
    match &ask.channels {
        Some(channels) if channels.is_empty() => {
            Err(Problem::bad_request("`channels` is empty; name some, or leave it out for all"))
        }
        Some(channels) => match channels.iter().find(|name| !configured(name)) {
            Some(odd) => Err(Problem::bad_request(format!("there is no channel `{odd}`; GET /v1/channels lists them"))),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

impl From<Token> for Shown {
    fn from(token: Token) -> Self {
        Self {
            name: token.name,
            scopes: token.scopes,
            channels: token.channels,
            created_at: rfc3339(token.created_ms),
            used_at: token.used_ms.map(rfc3339),
        }
    }
}
