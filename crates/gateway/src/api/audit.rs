//! `/v1/audit`: who did what, when, from where, and how it ended. No texts, no secrets.

pub(super) mod kept;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hapax_providers::form::{pairs, percent_decoded};
use http::{Method, Uri};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use self::kept::Deed;
use super::list::{Asked, page, page_limit};
use super::time::rfc3339;
use super::{Api, Caller, Code, Cursors, Problem};
use crate::connections::peer::Peer;

/// Put beside an answer by who knows more than the path tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted {
    /// What it was done to.
    pub(crate) target: Option<String>,
    /// What came of it.
    pub(crate) result: Option<String>,
    /// Nothing was done, though a page says so kindly.
    pub(crate) failed: bool,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditParams {
    /// Where the page begins: the `next` of the page before.
    cursor: Option<String>,
    /// How many rows at most: 1 to 500, 50 unless told.
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct Entry {
    at: String,
    /// The name of the token; `admin` is the operator's own.
    by: String,
    /// The address it came from; null where there was none.
    from: Option<String>,
    /// `replay`, `redrive`, `token create`, `thread pause` and so on.
    action: String,
    /// The id or name of what it was done to.
    target: Option<String>,
    /// `ok`, what came of it, or the code of the error.
    result: String,
    ok: bool,
}

page!(AuditPage { entries: Entry });

/// Lists who did what, newest first.
#[utoipa::path(
    get,
    path = "/audit",
    operation_id = "listAudit",
    tag = "upkeep",
    params(AuditParams),
    responses((status = 200, description = "One page, newest first", body = AuditPage)),
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Asked(ask): Asked<AuditParams>,
) -> Result<Json<AuditPage>, Problem> {
    let (deeds, next) = page_of_deeds(&api, &caller, ask.cursor.as_deref(), page_limit(ask.limit)).await?;
    Ok(Json(AuditPage::new(deeds, next, None)))
}

/// One page, and where the next begins.
pub(crate) async fn page_of_deeds(
    api: &Api,
    caller: &Caller,
    cursor: Option<&str>,
    limit: usize,
) -> Result<(Vec<Deed>, Option<String>), Problem> {
    caller.need_all_channels()?;
    let cursors = Cursors::new(api, caller, "audit", "");
    let bad = || Problem::new(Code::InvalidCursor, "the cursor is not from a page of this list");
    let before = cursors.place(cursor, |place| place.parse().map_err(|_| bad()))?;
    let (deeds, next) = api.audit.read(before, limit).await?;
    Ok((deeds, next.map(|place| cursors.write(&place.to_string()))))
}

/// Notes what changes something. It is done to its end, and noted, also when the caller hangs up.
pub(crate) async fn noted(api: Arc<Api>, caller: Caller, request: Request, next: Next) -> Response {
    let Some((action, target)) = deed(request.method(), request.uri()) else { return next.run(request).await };
    let from = request.extensions().get::<Peer>().map(|peer| api.auth.origin(*peer, request.headers()));
    let noted = tokio::spawn(async move {
        let response = next.run(request).await;
        let more = response.extensions().get::<Noted>().cloned().unwrap_or_default();
        let ok = (response.status().is_success() || response.status().is_redirection()) && !more.failed;
        let result = match (ok, more.result, response.extensions().get::<Code>()) {
            (_, Some(result), _) => result,
            (true, None, _) => "ok".to_owned(),
            (false, _, Some(code)) => code.name().to_owned(),
            (false, _, None) => response.status().as_u16().to_string(),
        };
        api.audit.note(&caller.name, from, &action, more.target.or(target), result, ok).await;
        response
    });
    noted.await.unwrap_or_else(|_| broke_off())
}

fn broke_off() -> Response {
    Problem::new(Code::StoreRefused, "it broke off in the middle; look whether it was done").into_response()
}

/// What programs ask all day, and whose paths need not be taken apart to know that.
const DAILY: [&str; 5] = ["/messages", "/pull", "/settle", "/extend", "/claims"];

/// What a request does, and to what, by its path, which is the same below `/v1` and for pages. What handlers and programs do all day is no deed: it stands in the stories.
fn deed(method: &Method, uri: &Uri) -> Option<(String, Option<String>)> {
    if *method == Method::POST && DAILY.contains(&uri.path()) {
        return None;
    }
    let looks = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let decoded = |part: &str| percent_decoded(part).unwrap_or_else(|| part.to_owned());
    let parts: Vec<String> = uri.path().trim_matches('/').split('/').map(decoded).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let one = |action: &str, target: &str| Some((action.to_owned(), Some(target.to_owned())));
    match (method.as_str(), &parts[..]) {
        // It changes nothing, and whoever has it has everything.
        ("GET" | "HEAD", ["backup"]) => Some(("backup".to_owned(), None)),
        _ if looks => None,
        ("POST", ["messages" | "pull" | "settle" | "extend"] | ["threads", _, "read" | "send"]) => None,
        ("POST", ["parked", "redrive"]) => Some(("redrive".to_owned(), None)),
        ("POST", ["new-channel"]) => None,
        ("POST", ["new-channel", "write"]) => Some(("channel add".to_owned(), None)),
        ("POST", ["claims", action @ ("delete" | "end")]) => Some((format!("claim {action}"), None)),
        ("POST", ["claims", "all", action]) => Some((format!("claims {action}"), None)),
        ("POST", ["claims", ..]) => None,
        ("POST", ["accounts", "all", action]) => Some((format!("accounts {action}"), None)),
        ("POST", ["accounts", action]) => Some((format!("account {action}"), None)),
        ("POST", ["events", id, action]) => one(action, id),
        ("POST", ["messages", id, action]) => one(&format!("message {action}"), id),
        ("POST", ["threads", id, action]) => one(&format!("thread {action}"), id),
        ("POST", ["channels", name, action]) => one(action, name),
        ("POST", ["accounts", channel, account, action]) => one(&format!("account {action}"), &format!("{channel} {account}")),
        ("POST", ["tokens"]) => Some(("token create".to_owned(), None)),
        ("DELETE", ["tokens", name]) | ("POST", ["tokens", name, "revoke"]) => one("token revoke", name),
        ("DELETE", ["claims"]) => {
            let key = pairs(uri.query().unwrap_or_default()).find(|(name, _)| *name == "key");
            Some(("claim delete".to_owned(), key.map(|(_, key)| key.to_string())))
        }
        ("POST", rest) => Some((rest.join(" "), None)),
        (method, rest) => {
            Some((format!("{} {}", method.to_lowercase(), rest.first().unwrap_or(&"")), rest.get(1).map(|id| (*id).to_owned())))
        }
    }
}

impl From<Deed> for Entry {
    fn from(deed: Deed) -> Self {
        let Deed { at_ms, by, from, action, target, result, ok } = deed;
        Self { at: rfc3339(at_ms), by, from, action, target, result, ok }
    }
}

/// Where somebody is, as it is written down.
pub(super) fn address(from: Option<IpAddr>) -> Option<String> {
    from.map(|from| from.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeds_are_named_and_daily_work_is_none() {
        let named = |method: Method, path: &str| deed(&method, &path.parse().expect("a path"));
        let some = |action: &str, target: Option<&str>| Some((action.to_owned(), target.map(str::to_owned)));
        assert_eq!(named(Method::POST, "/events/evt_1/replay"), some("replay", Some("evt_1")));
        assert_eq!(named(Method::POST, "/threads/7__a%20b/pause"), some("thread pause", Some("7__a b")));
        assert_eq!(named(Method::DELETE, "/tokens/ana"), some("token revoke", Some("ana")));
        assert_eq!(named(Method::POST, "/redrive"), some("redrive", None));
        assert_eq!(named(Method::POST, "/something/new"), some("something new", None), "what is added later is noted too");
        for path in
            ["/messages", "/pull", "/settle", "/extend", "/claims", "/claims/complete", "/claims/release", "/threads/7__1/read"]
        {
            assert_eq!(named(Method::POST, path), None, "{path}");
        }
        assert_eq!(named(Method::DELETE, "/claims?scope=s&key=a%20b"), some("claim delete", Some("a b")));
        assert_eq!(named(Method::POST, "/threads/7__1/send"), None);
        assert_eq!(named(Method::GET, "/events"), None);
        assert_eq!(named(Method::GET, "/backup"), some("backup", None), "a copy of everything");
    }
}
