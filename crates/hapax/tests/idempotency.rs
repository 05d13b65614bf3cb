//! The layer on axum: what is run, what is replayed, what is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Request, Response, StatusCode, Uri};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use hapax::{ClaimStore, IdempotencyLayer, OnAbandoned};
use hapax_store::memory::MemoryStore;
use hapax_testkit::hand_clock::HandClock;
use tokio::sync::{Barrier, Notify};
use tower::ServiceExt;

const LEASE: Duration = Duration::from_secs(3_600);

struct Rig {
    clock: HandClock,
    runs: Arc<AtomicU32>,
    app: Router,
}

fn rig(change: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer) -> Rig {
    rig_on(|store| store, change)
}

fn rig_on(terms: impl FnOnce(ClaimStore) -> ClaimStore, change: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer) -> Rig {
    let clock = HandClock::at(1_760_000_000_000);
    let store = ClaimStore::over(Arc::new(MemoryStore::new(Arc::new(clock.clone())))).lease(LEASE);
    let runs = Arc::new(AtomicU32::new(0));
    let counted = || {
        let runs = Arc::clone(&runs);
        move || runs.fetch_add(1, Ordering::SeqCst) + 1
    };
    let (order, fail, crash, big, plain) = (counted(), counted(), counted(), counted(), counted());
    let created = move |body: Bytes| async move {
        // Others arrive meanwhile.
        tokio::task::yield_now().await;
        let headers = [("location", "/orders/1"), ("set-cookie", "session=1"), ("content-type", "application/octet-stream")];
        (StatusCode::CREATED, headers, [b"\0\xff order ", order().to_string().as_bytes(), b" of ", &body].concat())
    };
    let app = Router::new()
        .route("/orders", post(created))
        .route("/fail", post(move || async move { (StatusCode::BAD_GATEWAY, fail().to_string()) }))
        .route("/crash", post(move || async move { if crash() == 1 { panic!("the handler breaks down") } else { "recovered" } }))
        .route("/big", post(move || async move { "x".repeat(big() as usize * 3_000) }))
        .route("/plain", get(move || async move { plain().to_string() }))
        .layer(change(IdempotencyLayer::new(terms(store))));
    Rig { clock, runs, app }
}

fn request(path: &str, key: &str, body: &str) -> Request<Body> {
    Request::post(path).header("idempotency-key", key).body(Body::from(body.to_owned())).expect("a request")
}

impl Rig {
    async fn send(&self, request: Request<Body>) -> (StatusCode, http::HeaderMap, Bytes) {
        read(self.app.clone().oneshot(request).await.into_response()).await
    }

    /// Sends it and tells the code of the problem that is answered.
    async fn refused(&self, request: Request<Body>) -> (u16, String) {
        let (status, headers, body) = self.send(request).await;
        assert_eq!(headers["content-type"], "application/problem+json");
        let problem: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(problem["status"], status.as_u16());
        (status.as_u16(), problem["code"].as_str().expect("a code").to_owned())
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}

async fn read(response: Response<Body>) -> (StatusCode, http::HeaderMap, Bytes) {
    let (head, body) = response.into_parts();
    (head.status, head.headers, to_bytes(body, 1 << 22).await.expect("a whole body"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_equal_posts_at_once_run_the_handler_once_and_all_get_the_same_bytes() {
    let rig = Arc::new(rig_on(|store| store.wait(Duration::from_secs(60)), |layer| layer));
    let gate = Arc::new(Barrier::new(50));
    let posts = (0..50).map(|_| {
        let (rig, gate) = (Arc::clone(&rig), Arc::clone(&gate));
        tokio::spawn(async move {
            gate.wait().await;
            rig.send(request("/orders", "k", "two pizzas")).await
        })
    });
    let mut replayed = 0;
    for post in posts.collect::<Vec<_>>() {
        let (status, headers, body) = post.await.expect("no panic");
        assert_eq!((status, body.as_ref()), (StatusCode::CREATED, b"\0\xff order 1 of two pizzas".as_slice()));
        assert_eq!(
            (&headers["location"], &headers["content-type"]),
            (&"/orders/1".parse().expect("a value"), &"application/octet-stream".parse().expect("a value"))
        );
        if headers.contains_key("idempotent-replayed") {
            replayed += 1;
            assert!(!headers.contains_key("set-cookie"), "a session is nobody else's");
        }
    }
    assert_eq!((rig.runs(), replayed), (1, 49));
}

#[tokio::test]
async fn another_request_under_the_same_key_is_refused() {
    let rig = rig(|layer| layer);
    rig.send(request("/orders", "k", "one")).await;
    let mismatch = (422, "fingerprint_mismatch".to_owned());
    assert_eq!(rig.refused(request("/orders", "k", "two")).await, mismatch);
    assert_eq!(rig.refused(request("/orders?x=1", "k", "one")).await, mismatch);
    assert_eq!(rig.refused(request("/fail", "k", "one")).await, mismatch);
    assert_eq!(rig.runs(), 1);
}

/// As axum's `OriginalUri`, which not every build of it has.
#[derive(Clone)]
struct Whole(Uri);

#[tokio::test]
async fn what_is_nested_is_told_apart_by_the_whole_path() {
    let clock = HandClock::at(1_760_000_000_000);
    let store = ClaimStore::over(Arc::new(MemoryStore::new(Arc::new(clock)))).lease(LEASE);
    let layer = IdempotencyLayer::new(store).target(|parts| Some(parts.extensions.get::<Whole>()?.0.clone()));
    let part = |name: &'static str| Router::new().route("/orders", post(move || async move { name })).layer(layer.clone());
    let remember = |mut request: axum::extract::Request| {
        let whole = Whole(request.uri().clone());
        request.extensions_mut().insert(whole);
        request
    };
    let app = Router::new().nest("/a", part("of a")).nest("/b", part("of b"));
    let app = tower::util::MapRequest::new(app, remember);
    let send = async |path: &str| read(app.clone().oneshot(request(path, "k", "one")).await.into_response()).await;
    assert_eq!(send("/a/orders").await.2, "of a");
    assert_eq!(send("/a/orders").await.2, "of a");
    assert_eq!(send("/b/orders").await.0, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn callers_have_keys_of_their_own() {
    let rig = rig(|layer| layer);
    let from = |who: &str| {
        let mut request = request("/orders", "k", "one");
        request.headers_mut().insert("authorization", who.parse().expect("a value"));
        request
    };
    for who in ["Bearer ana", "Bearer ben", "Bearer ana"] {
        rig.send(from(who)).await;
    }
    rig.send(request("/orders", "k", "one")).await;
    assert_eq!(rig.runs(), 3);
}

#[tokio::test]
async fn a_server_error_releases_unless_it_is_chosen_to_be_stored() {
    let rig_one = rig(|layer| layer);
    for run in ["1", "2"] {
        let (status, headers, body) = rig_one.send(request("/fail", "k", "")).await;
        assert_eq!((status.as_u16(), body.as_ref()), (502, run.as_bytes()));
        assert!(!headers.contains_key("idempotent-replayed"));
    }
    let rig_two = rig(|layer| layer.store_when(|_| true));
    for _ in 0..2 {
        assert_eq!(rig_two.send(request("/fail", "k", "")).await.2.as_ref(), b"1");
    }
}

#[tokio::test]
async fn a_crash_leaves_the_claim_abandoned_and_the_next_takes_over() {
    let rig = rig(|layer| layer);
    assert_eq!(rig.refused(request("/crash", "k", "")).await, (500, "handler_crashed".to_owned()));
    assert_eq!(rig.refused(request("/crash", "k", "")).await, (409, "claim_in_progress".to_owned()));
    assert_eq!(rig.runs(), 1);
    rig.clock.advance(LEASE.as_millis() as i64 + 1);
    assert_eq!(rig.send(request("/crash", "k", "")).await.2.as_ref(), b"recovered");
}

#[tokio::test]
async fn a_crash_in_a_payment_waits_for_a_person() {
    let rig = rig_on(|store| store.on_abandoned(OnAbandoned::Hold), |layer| layer);
    rig.refused(request("/crash", "k", "")).await;
    rig.clock.advance(LEASE.as_millis() as i64 + 1);
    assert_eq!(rig.refused(request("/crash", "k", "")).await, (409, "claim_held".to_owned()));
    assert_eq!(rig.runs(), 1);
}

#[tokio::test]
async fn a_caller_that_hangs_up_stops_nothing_and_gets_the_response_later() {
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, goes) = (Arc::clone(&begun), Arc::clone(&go));
    let slow = move || async move {
        begins.notify_one();
        goes.notified().await;
        "done after all"
    };
    let store = hapax::open("memory:").await.expect("it opens").wait(Duration::from_secs(60));
    let app = Router::new().route("/slow", post(slow)).layer(IdempotencyLayer::new(store));
    let hung_up = tokio::spawn(app.clone().oneshot(request("/slow", "k", "")));
    begun.notified().await;
    hung_up.abort();
    let _ = hung_up.await;
    go.notify_one();
    let (status, headers, body) = read(app.oneshot(request("/slow", "k", "")).await.into_response()).await;
    assert_eq!((status, body.as_ref()), (StatusCode::OK, b"done after all".as_slice()));
    assert!(headers.contains_key("idempotent-replayed"));
}

#[tokio::test]
async fn what_is_too_large_is_bounded() {
    let rig = rig(|layer| layer.request_max(10).response_max(2_000));
    assert_eq!(rig.refused(request("/orders", "k", "eleven bytes")).await, (413, "body_too_large".to_owned()));
    assert_eq!(rig.runs(), 0);
    // It goes out whole, and is not run again for a repeat.
    assert_eq!(rig.send(request("/big", "b", "")).await.2.len(), 3_000);
    assert_eq!(rig.refused(request("/big", "b", "")).await, (409, "response_not_kept".to_owned()));
    assert_eq!(rig.runs(), 1);
}

#[tokio::test]
async fn what_has_no_key_passes_unless_one_is_required() {
    let free = rig(|layer| layer);
    let unkeyed = || Request::post("/orders").body(Body::empty()).expect("a request");
    free.send(unkeyed()).await;
    free.send(unkeyed()).await;
    // A key on a GET means nothing.
    for run in ["3", "4"] {
        let look = Request::get("/plain").header("idempotency-key", "k").body(Body::empty()).expect("a request");
        assert_eq!(free.send(look).await.2.as_ref(), run.as_bytes());
    }
    let strict = rig(|layer| layer.required(true));
    assert_eq!(strict.refused(unkeyed()).await, (400, "idempotency_key_missing".to_owned()));
    assert_eq!(strict.refused(request("/orders", &"k".repeat(201), "")).await, (400, "idempotency_key_invalid".to_owned()));
    assert_eq!(strict.runs(), 0);
}
