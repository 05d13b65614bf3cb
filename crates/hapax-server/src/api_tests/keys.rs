//! `Idempotency-Key`: what changes something is done once per key.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use futures_util::future::BoxFuture;
use hapax_store::{Claims, Moving, Outbox, Promise, StoreError, StoreWrapper, Upkeep};

use super::*;

/// Notes every register, and cuts hapax off from them before a request that has run is noted as done.
#[derive(Clone)]
struct Registers {
    inner: MemoryStore,
    written: Arc<Mutex<Vec<String>>>,
    cut: Arc<AtomicBool>,
}

impl Registers {
    fn fixture() -> (Fixture, Registers) {
        let mut kept = None;
        let fixture = Fixture::around(|inner| {
            let registers = Registers { inner, written: Arc::default(), cut: Arc::default() };
            kept = Some(registers.clone());
            Arc::new(registers)
        });
        (fixture, kept.expect("made"))
    }
}

impl StoreWrapper for Registers {
    async fn reach(&self) -> Result<&dyn Store, StoreError> {
        Ok(&self.inner)
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        Upkeep::wait(&self.inner)
    }

    fn promise(&self) -> Promise {
        Upkeep::promise(&self.inner)
    }

    fn limit_outbox(&self, most: usize) {
        Outbox::limit_outbox(&self.inner, most);
    }

    fn limit_claims(&self, most: usize) {
        Claims::limit_claims(&self.inner, most);
    }

    fn moving(&self) -> Result<&dyn Moving, StoreError> {
        Upkeep::moving(&self.inner)
    }

    async fn amend(
        &self,
        name: &str,
        expected: Option<&str>,
        new: Option<&str>,
        keep_ms: Option<i64>,
    ) -> Result<Option<String>, StoreError> {
        let ends = expected.is_some() && name.starts_with("idempotency/");
        if ends && self.cut.swap(false, Ordering::SeqCst) {
            return Err(StoreError::Closed);
        }
        self.written.lock().expect("no panic").extend(new.map(str::to_owned));
        self.inner.amend(name, expected, new, keep_ms).await
    }
}

impl Fixture {
    async fn keyed(&self, path: &str, key: &str, body: &Value) -> (StatusCode, http::HeaderMap, Value) {
        self.keyed_as(TOKEN, path, key, body).await
    }

    async fn keyed_as(&self, token: &str, path: &str, key: &str, body: &Value) -> (StatusCode, http::HeaderMap, Value) {
        let request = Request::post(path)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .body(Body::from(body.to_string()));
        self.send(request.expect("a request")).await
    }

    async fn open_items(&self) -> usize {
        self.get("/v1/inbox").await.1["items"].as_array().expect("rows").len()
    }
}

#[tokio::test]
async fn a_replay_that_is_asked_for_twice_is_one() {
    let fixture = Fixture::new();
    let id = fixture.accept("m1", Disposition::Deliver).await;
    fixture.settle(Outcome::Delivered { status: 200, answer: None, replies: vec![] }).await;
    let path = format!("/v1/events/{id}/replay");
    let (status, headers, first) = fixture.keyed(&path, "k1", &json!({})).await;
    assert_eq!((status, headers.get("idempotent-replayed")), (StatusCode::ACCEPTED, None));
    let (status, headers, second) = fixture.keyed(&path, "\"k1\"", &json!({})).await;
    assert_eq!(
        (status, &headers["idempotent-replayed"], &headers["content-type"]),
        (StatusCode::ACCEPTED, &http::HeaderValue::from_static("true"), &http::HeaderValue::from_static("application/json"))
    );
    assert_eq!((first, fixture.open_items().await), (second, 1));
    let (status, _, body) = fixture.keyed(&path, "k1", &json!({"other": 1})).await;
    assert_eq!((status, &body["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("idempotency_mismatch")));
    fixture.keyed(&path, "k2", &json!({})).await;
    assert_eq!(fixture.open_items().await, 2, "another key is another request");
    fixture.clock.0.fetch_add(86_400_000, Ordering::SeqCst);
    let (_, headers, _) = fixture.keyed(&path, "k1", &json!({})).await;
    assert!(!headers.contains_key("idempotent-replayed"), "a day later the key is free");
}

#[tokio::test]
async fn fifty_at_once_are_one() {
    let fixture = Fixture::new();
    let id = fixture.accept("m1", Disposition::Deliver).await;
    fixture.settle(Outcome::Delivered { status: 200, answer: None, replies: vec![] }).await;
    let (path, body) = (format!("/v1/events/{id}/replay"), json!({}));
    let asked = futures_util::future::join_all((0..50).map(|_| fixture.keyed(&path, "k1", &body))).await;
    for (status, _, body) in asked {
        assert!(status == StatusCode::ACCEPTED || body["code"] == "idempotency_in_progress", "{status} {body}");
    }
    assert_eq!(fixture.open_items().await, 1);
}

#[tokio::test]
async fn what_was_refused_is_judged_anew_and_keys_are_the_callers_own() {
    let fixture = Fixture::new();
    let path = format!("/v1/events/evt_{:032x}/replay", 9);
    for _ in 0..2 {
        let (status, headers, _) = fixture.keyed(&path, "k1", &json!({})).await;
        assert_eq!((status, headers.get("idempotent-replayed")), (StatusCode::NOT_FOUND, None));
    }
    let (status, _, body) = fixture.keyed(&path, &"k".repeat(300), &json!({})).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
    let other = fixture.token("other", &["admin"], None).await;
    let (_, headers, _) = fixture.keyed("/v1/purge", "k1", &json!({})).await;
    assert!(!headers.contains_key("idempotent-replayed"));
    let (_, headers, _) = fixture.keyed_as(&other, "/v1/purge", "k1", &json!({})).await;
    assert!(!headers.contains_key("idempotent-replayed"), "another caller's key is another key");
    let (_, headers, _) = fixture.keyed("/v1/purge", "k1", &json!({})).await;
    assert_eq!(headers["idempotent-replayed"], "true");
}

#[tokio::test]
async fn a_token_that_was_made_is_shown_again_and_stands_in_no_store() {
    let (fixture, registers) = Registers::fixture();
    let ask = json!({"name": "bot", "scopes": ["read"]});
    let (status, _, first) = fixture.keyed("/v1/tokens", "k1", &ask).await;
    assert_eq!(status, StatusCode::CREATED);
    let (status, _, second) = fixture.keyed("/v1/tokens", "k1", &ask).await;
    assert_eq!((status, &second), (StatusCode::CREATED, &first));
    let secret = first["token"].as_str().expect("a token");
    let written = registers.written.lock().expect("no panic").join("\n");
    assert!(written.contains("\"stage\":\"done\"") && !written.contains(secret), "{written}");
    let (status, _, _) = fixture.keyed("/v1/tokens", "k2", &ask).await;
    assert_eq!(status, StatusCode::CONFLICT);
}

/// hapax died between the mark and the answer: what may have been done is not done again by itself.
#[tokio::test]
async fn what_a_crash_cut_off_is_in_doubt_unless_it_can_be_repeated() {
    let (fixture, registers) = Registers::fixture();
    let id = fixture.accept("m1", Disposition::Deliver).await;
    fixture.settle(Outcome::Delivered { status: 200, answer: None, replies: vec![] }).await;
    for (path, repeatable) in [(format!("/v1/events/{id}/replay"), false), ("/v1/purge".to_owned(), true)] {
        registers.cut.store(true, Ordering::SeqCst);
        fixture.keyed(&path, "k1", &json!({})).await;
        let (status, headers, body) = fixture.keyed(&path, "k1", &json!({})).await;
        assert_eq!((status, &body["code"]), (StatusCode::CONFLICT, &json!("idempotency_in_progress")), "{body}");
        assert!(headers.contains_key("retry-after"));
        fixture.clock.0.fetch_add(120_000, Ordering::SeqCst);
        let open = fixture.open_items().await;
        let (status, _, body) = fixture.keyed(&path, "k1", &json!({})).await;
        if repeatable {
            assert_eq!(status, StatusCode::OK, "{body}");
        } else {
            assert_eq!((status, &body["code"]), (StatusCode::CONFLICT, &json!("idempotency_in_doubt")), "{body}");
            assert!(body["detail"].as_str().expect("words").contains(&format!("/v1/events/{id}/story")), "{body}");
        }
        assert_eq!(fixture.open_items().await, open, "nothing was done twice");
    }
}
