//! `/v1/claims`: one holder, one completion, and what is answered to everybody else.

use super::*;

/// A request with the operator's token, and another header.
async fn claim(fixture: &Fixture, path: &str, body: Value, prefer: Option<&str>) -> (StatusCode, http::HeaderMap, Value) {
    let mut request =
        Request::post(path).header("authorization", format!("Bearer {TOKEN}")).header("content-type", "application/json");
    if let Some(prefer) = prefer {
        request = request.header("prefer", prefer);
    }
    fixture.send(request.body(Body::from(body.to_string())).expect("a request")).await
}

fn after(fixture: &Fixture, ms: i64) {
    fixture.clock.0.fetch_add(ms, Ordering::SeqCst);
}

#[tokio::test]
async fn a_key_is_claimed_completed_and_replayed() {
    let fixture = Fixture::new();
    let ask = json!({"key": "invoice-1", "scope": "mail", "ttl": "1h", "lease": 30});
    let (status, _, first) = claim(&fixture, "/v1/claims", ask.clone(), None).await;
    assert_eq!(status, StatusCode::CREATED, "{first}");
    assert_eq!(
        (&first["status"], &first["key"], &first["scope"], &first["previous"]),
        (&json!("claimed"), &json!("invoice-1"), &json!("mail"), &Value::Null)
    );
    assert!(first["fence"].is_u64() && first["token"].as_str().is_some_and(|token| token.len() == 32), "{first}");

    let (status, headers, other) = claim(&fixture, "/v1/claims", ask.clone(), None).await;
    assert_eq!((status, &other["code"]), (StatusCode::CONFLICT, &json!("claim_in_progress")));
    assert_eq!(headers["retry-after"], "10");
    assert_eq!(headers["content-type"], "application/problem+json");

    let mine = json!({"key": "invoice-1", "scope": "mail", "token": first["token"]});
    let (status, extended) = fixture.post("/v1/claims/extend", mine.clone()).await;
    assert_eq!((status, &extended["status"]), (StatusCode::OK, &json!("claimed")));
    let done = json!({"key": "invoice-1", "scope": "mail", "token": first["token"], "result": {"sent": [1, 2]}, "keep": "2h"});
    let (status, completed) = fixture.post("/v1/claims/complete", done).await;
    assert_eq!((status, &completed["status"]), (StatusCode::OK, &json!("completed")));

    let (status, headers, replayed) = claim(&fixture, "/v1/claims", ask.clone(), None).await;
    assert_eq!(
        (status, &replayed["status"], &replayed["result"]),
        (StatusCode::OK, &json!("completed"), &json!({"sent": [1, 2]}))
    );
    assert_eq!(headers["idempotent-replayed"], "true");
    let (status, lost) = fixture.post("/v1/claims/extend", mine).await;
    assert_eq!((status, &lost["code"]), (StatusCode::CONFLICT, &json!("claim_lost")));
    after(&fixture, 2 * 3_600_000);
    assert_eq!(claim(&fixture, "/v1/claims", ask, None).await.0, StatusCode::CREATED, "forgotten");
}

#[tokio::test]
async fn a_holder_that_dies_is_followed_by_one_or_by_a_person() {
    let fixture = Fixture::new();
    let (_, _, dead) = claim(&fixture, "/v1/claims", json!({"key": "k", "lease": "10s"}), None).await;
    after(&fixture, 10_000);
    let (status, _, next) = claim(&fixture, "/v1/claims", json!({"key": "k"}), None).await;
    assert_eq!((status, &next["previous"]), (StatusCode::CREATED, &json!("abandoned")));
    assert!(next["fence"].as_u64() > dead["fence"].as_u64());
    let late = json!({"key": "k", "token": dead["token"]});
    for path in ["/v1/claims/complete", "/v1/claims/extend", "/v1/claims/release"] {
        let (status, answer) = fixture.post(path, late.clone()).await;
        assert_eq!((status, &answer["code"]), (StatusCode::CONFLICT, &json!("claim_lost")), "{path}");
    }

    claim(&fixture, "/v1/claims", json!({"key": "pay", "lease": "10s", "on_abandoned": "hold", "fingerprint": "a"}), None).await;
    let (status, _, other) = claim(&fixture, "/v1/claims", json!({"key": "pay", "fingerprint": "b"}), None).await;
    assert_eq!((status, &other["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("fingerprint_mismatch")));
    after(&fixture, 86_400_000);
    let (status, _, held) = claim(&fixture, "/v1/claims", json!({"key": "pay"}), None).await;
    assert_eq!((status, &held["code"]), (StatusCode::CONFLICT, &json!("claim_held")));
    let (_, listed) = fixture.get("/v1/claims?state=abandoned&scope=default&key=pay").await;
    assert_eq!((listed["items"].as_array().map(Vec::len), &listed["items"][0]["key"]), (Some(1), &json!("pay")));
    assert!(!listed.to_string().contains("token"), "nobody is shown a token: {listed}");
    // The operator says so, without the holder's token.
    assert_eq!(fixture.post("/v1/claims/release", json!({"key": "pay"})).await.0, StatusCode::OK);
    assert_eq!(claim(&fixture, "/v1/claims", json!({"key": "pay"}), None).await.0, StatusCode::CREATED);
}

#[tokio::test]
async fn bad_input_is_told_what_to_change() {
    let fixture = Fixture::new();
    for (ask, words) in [
        (json!({"key": "k".repeat(300)}), "`key` has 300 bytes; give it 1 to 255"),
        (json!({"key": ""}), "`key` has 0 bytes"),
        (json!({"key": "k", "scope": ""}), "`scope` has 0 bytes"),
        (json!({"key": "k", "ttl": 0}), "`ttl` is 0s; give it more than 0"),
        (json!({"key": "k", "ttl": "36600d"}), "at most 366d"),
        (json!({"key": "k", "lease": "soon"}), "`lease` is `soon`; write a time as a text with its unit"),
        (json!({"key": "k", "on_abandoned": "shrug"}), "use `takeover` or `hold`"),
    ] {
        let (status, answer) = fixture.post("/v1/claims", ask).await;
        assert_eq!((status, &answer["code"]), (StatusCode::BAD_REQUEST, &json!("invalid_request")), "{answer}");
        assert!(answer["detail"].as_str().is_some_and(|detail| detail.contains(words)), "{answer}");
    }
    let (_, _, mine) = claim(&fixture, "/v1/claims", json!({"key": "mine"}), None).await;
    let (_, _, other) = claim(&fixture, "/v1/claims", json!({"key": "other"}), None).await;
    for token in [json!("wrong"), other["token"].clone()] {
        let (status, answer) = fixture.post("/v1/claims/complete", json!({"key": "mine", "token": token})).await;
        assert_eq!((status, &answer["code"]), (StatusCode::CONFLICT, &json!("claim_lost")));
    }
    for megabytes in [2, 5] {
        let large = json!({"key": "mine", "token": mine["token"], "result": "x".repeat(megabytes << 20)});
        let (status, answer) = fixture.post("/v1/claims/complete", large).await;
        assert_eq!((status, &answer["code"]), (StatusCode::PAYLOAD_TOO_LARGE, &json!("too_large")), "{megabytes} MB");
        assert!(answer["detail"].as_str().is_some_and(|detail| detail.contains("elsewhere")), "{answer}");
    }
    let (status, answer) = fixture.post("/v1/claims/extend", json!({"key": "mine"})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    assert_eq!(fixture.get("/v1/claims?state=gone").await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn many_are_claimed_at_once_and_each_is_answered() {
    let fixture = Fixture::new();
    claim(&fixture, "/v1/claims", json!({"key": "taken"}), None).await;
    let asks = json!({"claims": [{"key": "a"}, {"key": "taken"}, {"key": ""}, {"key": "a"}, {"kee": "b"}]});
    let (status, answer) = fixture.post("/v1/claims/batch", asks).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let answers = answer["answers"].as_array().expect("answers");
    let told: Vec<_> =
        answers.iter().map(|answer| answer["code"].as_str().or(answer["status"].as_str()).unwrap_or_default()).collect();
    assert_eq!(told, ["claimed", "claim_in_progress", "invalid_request", "claim_in_progress", "invalid_request"]);
    for claims in [json!([]), json!(vec![json!({"key": "k"}); 501])] {
        assert_eq!(fixture.post("/v1/claims/batch", json!({ "claims": claims })).await.0, StatusCode::BAD_REQUEST);
    }
}

#[tokio::test]
async fn the_results_of_a_batch_are_bounded_together() {
    let fixture = Fixture::new();
    let keys: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
    for key in &keys {
        let (_, _, held) = claim(&fixture, "/v1/claims", json!({ "key": key }), None).await;
        let done = json!({"key": key, "token": held["token"], "result": "x".repeat(1_000_000)});
        assert_eq!(fixture.post("/v1/claims/complete", done).await.0, StatusCode::OK);
    }
    let new = (0..480).map(|n| json!({"key": format!("new{n}")}));
    let claims: Vec<Value> = keys.iter().map(|key| json!({ "key": key })).chain(new).collect();
    let (status, answer) = fixture.post("/v1/claims/batch", json!({ "claims": claims })).await;
    assert_eq!(status, StatusCode::OK);
    let told = |name: &str, word: &str| {
        answer["answers"].as_array().expect("answers").iter().filter(|answer| answer[name] == word).count()
    };
    assert_eq!((told("status", "completed"), told("code", "too_large"), told("status", "claimed")), (16, 4, 480));
}

#[tokio::test]
async fn who_waits_hears_of_the_end_at_once() {
    let fixture = Fixture::new();
    let (_, _, first) = claim(&fixture, "/v1/claims", json!({"key": "k"}), None).await;
    let waiting = claim(&fixture, "/v1/claims", json!({"key": "k"}), Some("wait=30"));
    let ending = async {
        tokio::task::yield_now().await;
        let done = json!({"key": "k", "token": first["token"], "result": 7});
        fixture.post("/v1/claims/complete", done).await
    };
    let ((status, headers, answer), _) = tokio::join!(waiting, ending);
    assert_eq!((status, &answer["result"]), (StatusCode::OK, &json!(7)));
    assert_eq!(headers["preference-applied"], "wait=30");
}

#[tokio::test]
async fn claims_are_deleted_by_admins_and_counted() {
    let fixture = Fixture::new();
    claim(&fixture, "/v1/claims", json!({"key": "a b&c"}), None).await;
    assert_eq!(fixture.get("/v1/stats").await.1["claims"]["held"], 1);
    let delete = |path: &str| {
        let request = Request::delete(path).header("authorization", format!("Bearer {TOKEN}")).body(Body::empty());
        fixture.send(request.expect("a request"))
    };
    assert_eq!(delete("/v1/claims?key=a%20b%26c").await.0, StatusCode::OK);
    assert_eq!(delete("/v1/claims?key=a%20b%26c").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_token_of_some_channels_claims_in_scopes_of_their_names() {
    let fixture = Fixture::new();
    let made = json!({"name": "bot", "scopes": ["work", "read"], "channels": ["shop"]});
    let (status, made) = fixture.post("/v1/tokens", made).await;
    assert!(status.is_success(), "{made}");
    let token = made["token"].as_str().expect("a token").to_owned();
    let ask = async |method: &str, path: &str, body: Value| {
        let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
        let request = request.header("content-type", "application/json").body(Body::from(body.to_string()));
        fixture.send(request.expect("a request")).await.0
    };
    assert_eq!(ask("POST", "/v1/claims", json!({"key": "k", "scope": "shop"})).await, StatusCode::CREATED);
    assert_eq!(ask("POST", "/v1/claims", json!({"key": "k"})).await, StatusCode::FORBIDDEN);
    assert_eq!(ask("GET", "/v1/claims?scope=shop", json!({})).await, StatusCode::OK);
    assert_eq!(ask("GET", "/v1/claims", json!({})).await, StatusCode::FORBIDDEN);
    assert_eq!(ask("DELETE", "/v1/claims?scope=shop&key=k", json!({})).await, StatusCode::FORBIDDEN, "that takes `admin`");
    assert_eq!(ask("POST", "/v1/claims/release", json!({"key": "k", "scope": "shop"})).await, StatusCode::BAD_REQUEST);
}
