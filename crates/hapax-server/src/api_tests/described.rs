//! What holds for all of `/v1`: it is described, codes name problems, nothing is cached, and web pages call only where they may.

use super::*;

fn document() -> Value {
    serde_json::from_str(hapax_gateway::api::document_json()).expect("JSON")
}

/// Every operation below `/v1`, with ids that lead nowhere and the scope that the document names.
fn operations() -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for (path, item) in document()["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations").iter().filter(|_| path.starts_with("/v1/")) {
            let id = if path.contains("/messages/{id}") { "msg_" } else { "evt_" };
            let path = path.replace("/threads/{id}", "/threads/7__1").replace("{id}", &format!("{id}{:032x}", 9));
            let path = path.replace("{name}", "shop").replace("{channel}", "shop").replace("{account}", "7");
            let scope = operation["security"][0]["bearer"][0].as_str().expect("a scope").to_owned();
            all.push((method.to_uppercase(), path, scope));
        }
    }
    all
}

impl Fixture {
    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> (StatusCode, http::HeaderMap, Bytes) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.router.clone().oneshot(request.body(Body::empty()).expect("a request")).await.expect("infallible");
        let (parts, body) = response.into_parts();
        (parts.status, parts.headers, body.collect().await.expect("a body").to_bytes())
    }
}

#[tokio::test]
async fn what_is_described_is_there_and_takes_the_scope_that_is_named() {
    let fixture = Fixture::new();
    let operations = operations();
    assert!(operations.len() >= 24, "{operations:?}");
    for scope in ["read", "send", "work", "admin"] {
        let token = fixture.token(scope, &[scope], None).await;
        // What goes on for ever would have to be hung up on.
        for (method, path, needed) in operations.iter().filter(|(_, path, _)| path != "/v1/stream") {
            let (status, body) = fixture.with(method, path, &token, json!({})).await;
            let refused = status == StatusCode::FORBIDDEN;
            assert_eq!(refused, scope != needed && scope != "admin", "{scope}: {method} {path}: {body}");
            assert_ne!(status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
            assert_ne!(body["code"], "no_such_path", "{method} {path}");
        }
    }
}

/// Claims and leases are named by themselves, a message by its `request_id`; every other POST is done once under a key.
#[tokio::test]
async fn every_post_without_a_name_of_its_own_takes_a_key() {
    let fixture = Fixture::new();
    let (token, too_long) = (format!("Bearer {TOKEN}"), "k".repeat(300));
    let named = ["/v1/claims", "/v1/pull", "/v1/settle", "/v1/extend"];
    let (mut keyed, mut others) = (0, 0);
    for (_, path, _) in operations().iter().filter(|(method, path, _)| method == "POST" && path != "/v1/messages") {
        let headers = [("authorization", &*token), ("content-type", "application/json"), ("idempotency-key", &too_long)];
        let (status, _, body) = fixture.ask("POST", path, &headers).await;
        let refused = status == StatusCode::UNPROCESSABLE_ENTITY && String::from_utf8_lossy(&body).contains("a request id has");
        let own = named.iter().any(|named| path.starts_with(named));
        assert_eq!(refused, !own, "{path}: {status}");
        (keyed, others) = (keyed + usize::from(!own), others + usize::from(own));
    }
    assert!(keyed >= 8 && others >= 8, "{keyed} take a key, {others} have names");
}

#[tokio::test]
async fn the_document_needs_no_token_and_other_methods_are_told_which_there_are() {
    let fixture = Fixture::new();
    let (status, headers, body) = fixture.ask("GET", "/openapi.json", &[]).await;
    assert_eq!((status, &headers["content-type"]), (StatusCode::OK, &http::HeaderValue::from_static("application/json")));
    assert_eq!(serde_json::from_slice::<Value>(&body).expect("JSON"), document());
    let token = format!("Bearer {TOKEN}");
    for (method, path, allow) in
        [("PUT", "/v1/events", "GET,HEAD"), ("GET", "/v1/purge", "POST"), ("PATCH", "/v1/tokens", "GET,HEAD,POST")]
    {
        let (status, headers, body) = fixture.ask(method, path, &[("authorization", &token)]).await;
        assert_eq!(
            (status, headers["allow"].to_str().expect("text")),
            (StatusCode::METHOD_NOT_ALLOWED, allow),
            "{method} {path}"
        );
        assert_eq!(serde_json::from_slice::<Value>(&body).expect("a problem")["code"], "method_not_allowed");
    }
}

#[tokio::test]
async fn no_answer_is_stored_on_the_way() {
    let fixture = Fixture::new();
    let token = format!("Bearer {TOKEN}");
    for (path, token) in [("/v1/stats", token.as_str()), ("/v1/stats", "Bearer wrong"), ("/v1/nowhere", token.as_str())] {
        let (status, headers, _) = fixture.ask("GET", path, &[("authorization", token)]).await;
        assert_eq!(headers["cache-control"], "no-store", "{path} {status}");
    }
}

#[tokio::test]
async fn web_pages_of_named_origins_may_call_and_others_may_not() {
    let fixture = Fixture::new();
    let (own, other) = ("https://app.example.com", "https://evil.example.com");
    let preflight = |origin| {
        [("origin", origin), ("access-control-request-method", "POST"), ("access-control-request-headers", "authorization")]
    };
    let (status, headers, _) = fixture.ask("OPTIONS", "/v1/redrive", &preflight(own)).await;
    assert_eq!((status, headers["access-control-allow-origin"].to_str().ok()), (StatusCode::OK, Some(own)));
    assert!(headers["access-control-allow-headers"].to_str().expect("text").contains("idempotency-key"), "{headers:?}");
    assert!(!headers.contains_key("access-control-allow-credentials"));
    let (_, headers, _) = fixture.ask("OPTIONS", "/v1/redrive", &preflight(other)).await;
    assert!(!headers.contains_key("access-control-allow-origin"), "{headers:?}");
    let (status, headers, _) = fixture.ask("GET", "/v1/stats", &[("origin", own)]).await;
    assert_eq!(
        (status, headers["access-control-allow-origin"].to_str().ok()),
        (StatusCode::UNAUTHORIZED, Some(own)),
        "pages see why"
    );
}

#[tokio::test]
async fn problems_have_codes() {
    let fixture = Fixture::new();
    let unknown = format!("/v1/events/evt_{:032x}", 9);
    for (path, code) in [
        (unknown.as_str(), "not_found"),
        ("/v1/nowhere", "no_such_path"),
        ("/v1/events?cursor=x", "invalid_cursor"),
        ("/v1/events?q=chanel:shop", "invalid_filter"),
        ("/v1/events?limit=x", "invalid_request"),
    ] {
        let (_, body) = fixture.get(path).await;
        assert_eq!(body["code"], code, "{path}: {body}");
    }
    assert!(fixture.get("/v1/nowhere").await.1["detail"].as_str().is_some_and(|detail| detail.contains("/v1/tokens")));
}
