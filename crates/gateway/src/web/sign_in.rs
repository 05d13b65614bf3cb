//! The door: a token or a one-time link becomes a session, and a session ends.

use std::sync::Arc;

use axum::extract::rejection::{FormRejection, QueryRejection};
use axum::extract::{Form, Query, Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Extension, RequestExt};
use hapax_providers::form::pairs;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode, Uri, header};
use maud::{Markup, html};
use serde::Deserialize;

use super::components::in_query;
use super::guard::is_https;
use super::hosts::{host_of, is_loopback};
use super::trouble::Trouble;
use super::visitor::Visitor;
use super::{Web, icons, layout, session};
use crate::api::{Problem, Scope, TokenHash, sign_in_links};
use crate::connections::peer::Peer;

/// As much of a form as is read of somebody who has not signed in: a text, each sign of which may take nine.
const WRITTEN_MAX_BYTES: usize = 128 << 10;
const OVER: &str = "Nothing was done: you are not signed in, or not any more.";

#[derive(Deserialize, Default)]
pub(super) struct Asked {
    next: Option<String>,
    code: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Entered {
    #[serde(default)]
    token: String,
    code: Option<String>,
    next: Option<String>,
}

/// Shows the form; whoever is in already is sent on.
pub(super) async fn form(
    State(web): State<Arc<Web>>,
    asked: Result<Query<Asked>, QueryRejection>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    let peer = peer.map(|peer| peer.0);
    let Query(asked) = asked.unwrap_or_default();
    let next = own_path(asked.next.as_deref());
    if asked.code.is_none() && session::find(&web, &headers, peer).await?.is_some() {
        return Ok(Redirect::to(next).into_response());
    }
    let plain = is_plain(&web, &headers, peer);
    Ok(Door { next, code: asked.code.as_deref(), plain, ..Door::default() }.show().into_response())
}

/// Takes the token, or the code of a link. A wrong token is answered late, and later each time.
pub(super) async fn enter(State(web): State<Arc<Web>>, request: Request) -> Result<Response, Trouble> {
    let (headers, peer) = (request.headers().clone(), request.extensions().get::<Peer>().copied());
    let entered: Result<Form<Entered>, FormRejection> = request.extract().await;
    let Form(entered) = entered.map_err(|rejection| Problem::bad_request(rejection.body_text()))?;
    let next = own_path(entered.next.as_deref());
    let known = match entered.code.as_deref().filter(|code| !code.is_empty()) {
        Some(code) => by_link(&web, code).await,
        None => by_token(&web, entered.token.trim(), &headers, peer).await,
    };
    let token = match known {
        Ok(token) => token,
        Err(problem) => {
            let (status, (_, why)) = (problem.status(), problem.told());
            let door = Door { next, why: Some(&why), plain: is_plain(&web, &headers, peer), ..Door::default() };
            return Ok((status, door.show()).into_response());
        }
    };
    if let Some(caller) = web.api.auth.still_believes(&token.0).await {
        let from = peer.map(|peer| web.api.auth.origin(peer, &headers));
        web.api.audit.note(&caller.name, from, "sign in", None, "ok".to_owned(), true).await;
    }
    let cookie = session::open(&web, token, is_https(&web, &headers, peer)).await?;
    let mut response = Redirect::to(next).into_response();
    response.headers_mut().extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
    Ok(response)
}

async fn by_token(web: &Web, token: &str, headers: &HeaderMap, peer: Option<Peer>) -> Result<TokenHash, Problem> {
    if token.is_empty() {
        return Err(Problem::unauthorized("Paste a token."));
    }
    let caller = web.api.auth.holder(token, headers, peer).await.map_err(|problem| match problem.status() {
        StatusCode::UNAUTHORIZED => Problem::unauthorized("This server does not know that token. Was all of it copied?"),
        _ => problem,
    })?;
    caller.need(Scope::Read)?;
    Ok(caller.token)
}

async fn by_link(web: &Web, code: &str) -> Result<TokenHash, Problem> {
    let old = "This link was used before, or it is too old. Make another with `hapax token link`, or paste a token.";
    let token = sign_in_links::take(&web.api.auth, &*web.api.store, code).await?.ok_or_else(|| Problem::unauthorized(old))?;
    let caller = web.api.auth.still_believes(&token.0).await.ok_or_else(|| Problem::unauthorized(old))?;
    caller.need(Scope::Read)?;
    Ok(token)
}

#[derive(Deserialize)]
pub(super) struct Leaving {
    everywhere: Option<String>,
}

/// Ends this session, or all that were made with its token.
pub(super) async fn sign_out(
    State(web): State<Arc<Web>>,
    Extension(visitor): Extension<Visitor>,
    leaving: Result<Form<Leaving>, FormRejection>,
) -> Result<Response, Trouble> {
    let store = &*web.api.store;
    if leaving.is_ok_and(|leaving| leaving.0.everywhere.is_some()) {
        session::close_all(store, visitor.caller.token).await?;
    }
    session::close(store, &visitor.session).await?;
    let mut response = Redirect::to("/sign-in").into_response();
    response.headers_mut().extend(session::forget().map(|cookie| (header::SET_COOKIE, cookie)));
    Ok(response)
}

/// Where to go on: a path of ours, whatever was asked for.
fn own_path(next: Option<&str>) -> &str {
    let own = |path: &&str| {
        let plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        path.starts_with('/') && !path.starts_with("//") && !path.starts_with("/sign-in") && plain
    };
    next.filter(own).unwrap_or("/")
}

/// Whether what is typed here can be read on the way.
fn is_plain(web: &Web, headers: &HeaderMap, peer: Option<Peer>) -> bool {
    !is_https(web, headers, peer) && !host_of(headers).is_some_and(is_loopback)
}

/// What somebody wants who has not signed in, or not any more. What was to be done is not done later by itself, and what was written is not lost.
pub(super) async fn first(web: &Web, request: Request) -> Response {
    let (head, body) = request.into_parts();
    if matches!(head.method, Method::GET | Method::HEAD) {
        return match head.uri.path_and_query().map_or("/", PathAndQuery::as_str) {
            "/" => Redirect::to("/sign-in"),
            next => Redirect::to(&format!("/sign-in?next={}", in_query(next))),
        }
        .into_response();
    }
    let thread = head.uri.path().strip_suffix("/send").filter(|path| path.starts_with("/threads/"));
    let written = match thread {
        Some(_) => axum::body::to_bytes(body, WRITTEN_MAX_BYTES).await.ok().and_then(|form| written_in(&form)),
        None => None,
    };
    let from = head.headers.get(header::REFERER).and_then(|from| from.to_str().ok()?.parse::<Uri>().ok());
    let from = from.as_ref().and_then(Uri::path_and_query).map(PathAndQuery::as_str);
    let peer = head.extensions.get::<Peer>().copied();
    let door =
        Door { next: own_path(thread.or(from)), why: Some(OVER), written, plain: is_plain(web, &head.headers, peer), code: None };
    (StatusCode::UNAUTHORIZED, door.show()).into_response()
}

/// The text of a form.
fn written_in(form: &[u8]) -> Option<String> {
    let form = std::str::from_utf8(form).ok()?;
    let (_, text) = pairs(form).find(|(name, _)| *name == "text")?;
    Some(text.replace("\r\n", "\n")).filter(|text| !text.trim().is_empty())
}

/// The page that lets people in.
#[derive(Default)]
struct Door<'d> {
    next: &'d str,
    /// Of a link that works once.
    code: Option<&'d str>,
    why: Option<&'d str>,
    /// What was to be sent, and was not.
    written: Option<String>,
    /// What is typed here can be read on the way.
    plain: bool,
}

impl Door<'_> {
    fn show(&self) -> Markup {
        let Door { next, code, why, written, plain } = self;
        let body = html! {
            section.door {
                h1 { (layout::brand()) "Sign in" }
                @if let Some(why) = why { p.notice.bad role="alert" { (icons::icon("alert")) (why) } }
                @if let Some(written) = written {
                    label for="written" { "What you wrote; copy it before you go on" }
                    textarea #written readonly rows="4" { "\n" (written) }
                }
                @if *plain {
                    p.notice.warn { (icons::icon("alert")) "This page came over plain http: whoever is on the way can read what you type." }
                }
                form method="post" action="/sign-in" {
                    input type="hidden" name="next" value=(next);
                    @if let Some(code) = code {
                        p { "You came by a link that works once." }
                        input type="hidden" name="code" value=(code);
                        button.primary type="submit" autofocus { "Continue" }
                    } @else {
                        label for="token" { "Token" }
                        input #token type="password" name="token" autocomplete="current-password" autofocus required
                            spellcheck="false" autocapitalize="off";
                        button.primary type="submit" { "Sign in" }
                    }
                }
                @if code.is_none() { (where_tokens_are()) }
            }
        };
        layout::bare("Sign in", body)
    }
}

fn where_tokens_are() -> Markup {
    html! {
        details.help {
            summary { "Where is my token?" }
            p { "The first start wrote one to " code { "hapax.token" } ", beside the database. Where " code { "HAPAX_ADMIN_TOKEN" }
                " is set, that is it." }
            p { "In a terminal, " code { "hapax token link" } " prints a link that signs you in, and "
                code { "hapax token create NAME --scope read" } " makes a token for somebody who only looks." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_goes_on_to_a_page_of_ours_only() {
        for (next, path) in [
            (Some("/events?q=a%20b"), "/events?q=a%20b"),
            (None, "/"),
            (Some("https://evil.example/"), "/"),
            (Some("//evil.example/"), "/"),
            (Some("/\\evil.example/"), "/"),
            (Some("/\t/evil.example/"), "/"),
            (Some("javascript:alert(1)"), "/"),
            (Some("/sign-in?next=/"), "/"),
            (Some("/a\r\nSet-Cookie: x"), "/"),
        ] {
            assert_eq!(own_path(next), path, "{next:?}");
        }
    }
}
