//! What every request to a page must show before anything is done for it: a name that is ours, and, where something is to be done, that it was
//! our own page that asked.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, header};

use super::Web;
use super::hosts::{bare, host_of};
use super::trouble::Trouble;
use crate::api::Problem;
use crate::connections::peer::Peer;

pub(super) async fn check(State(web): State<Arc<Web>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let Some(host) = host_of(headers).filter(|host| web.hosts.allow(host)) else {
        let host: String = host_of(headers).unwrap_or("(none)").chars().take(100).collect();
        let todo = "add it to `hosts` in hapax.toml, or set `public_url`, if this is a name of this server";
        return Trouble::from(Problem::forbidden(format!("the pages are not served under the name {host}; {todo}")))
            .into_response();
    };
    let looks = matches!(*request.method(), Method::GET | Method::HEAD);
    if !looks && !is_own(headers, host, web.api.public_url.as_deref()) {
        let detail = "this did not come from a page of this server, so nothing was done; open the page here and try again";
        return Trouble::from(Problem::forbidden(detail)).into_response();
    }
    next.run(request).await
}

/// Whether our own page asks. Browsers say so by themselves, and no page can make them lie; who says nothing is nobody's page.
fn is_own(headers: &HeaderMap, host: &str, public_url: Option<&str>) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    match (text("sec-fetch-site"), text(header::ORIGIN.as_str())) {
        (Some(site), _) => site == "same-origin",
        (None, Some(origin)) => {
            let own = origin.split_once("://").is_some_and(|(_, named)| named.eq_ignore_ascii_case(host));
            own || public_url.is_some_and(|url| url.eq_ignore_ascii_case(origin))
        }
        (None, None) => false,
    }
}

/// Whether the browser reached us by https: under the name that was told to be so, or by the word of a proxy that is trusted.
pub(super) fn is_https(web: &Web, headers: &HeaderMap, peer: Option<Peer>) -> bool {
    let forwarded = headers.get("x-forwarded-proto").and_then(|value| value.to_str().ok());
    if peer.is_some_and(|peer| web.proxies.trust(peer.0)) && forwarded.is_some() {
        return forwarded.is_some_and(|proto| proto.eq_ignore_ascii_case("https"));
    }
    let told = web.api.public_url.as_deref().and_then(|url| url.strip_prefix("https://"));
    told.is_some_and(|told| host_of(headers).is_some_and(|host| bare(host) == bare(told)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(pairs: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().expect("a value"));
        }
        is_own(&headers, "127.0.0.1:4272", Some("https://hapax.example.com"))
    }

    #[test]
    fn only_our_own_pages_may_ask_for_something() {
        assert!(own(&[("sec-fetch-site", "same-origin")]));
        assert!(own(&[("origin", "http://127.0.0.1:4272")]));
        assert!(own(&[("origin", "https://hapax.example.com")]), "a proxy may have changed the name");
        for refused in [
            &[][..],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "none")],
            &[("sec-fetch-site", "cross-site"), ("origin", "http://127.0.0.1:4272")],
            &[("origin", "null")],
            &[("origin", "http://127.0.0.1:4273")],
            &[("origin", "http://evil.example")],
            &[("referer", "http://127.0.0.1:4272/")],
        ] {
            assert!(!own(refused), "{refused:?}");
        }
    }
}
