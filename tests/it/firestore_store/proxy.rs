//! A proxy between hapax and the emulator that loses answers or requests, and counts what they cost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::net::TcpListener;

use super::emulator::Emulator;

pub(super) struct Proxy {
    pub(super) host: String,
    to: String,
    http: reqwest::Client,
    /// How many of the next commits lose their answer, or never arrive.
    pub(super) lost_answers: AtomicUsize,
    pub(super) lost_requests: AtomicUsize,
    reads: AtomicUsize,
    writes: AtomicUsize,
    deletes: AtomicUsize,
    calls: AtomicUsize,
    queries: Mutex<Vec<Value>>,
}

impl Proxy {
    pub(super) async fn start(emulator: &Emulator) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let host = listener.local_addr().expect("its address").to_string();
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        let none = AtomicUsize::default;
        let proxy = Arc::new(Self {
            host,
            to: emulator.host.clone(),
            http,
            lost_answers: none(),
            lost_requests: none(),
            reads: none(),
            writes: none(),
            deletes: none(),
            calls: none(),
            queries: Mutex::default(),
        });
        let app = Router::new().fallback(pass).with_state(Arc::clone(&proxy));
        tokio::spawn(async move { axum::serve(listener, app).await });
        proxy
    }

    /// Documents read, written and deleted since this was last asked, as Google counts them.
    pub(super) fn cost(&self) -> (usize, usize, usize) {
        let take = |counter: &AtomicUsize| counter.swap(0, Ordering::SeqCst);
        (take(&self.reads), take(&self.writes), take(&self.deletes))
    }

    /// Calls since this was last asked.
    pub(super) fn calls(&self) -> usize {
        self.calls.swap(0, Ordering::SeqCst)
    }

    /// All structured queries that came by, as they were written.
    pub(super) fn queries(&self) -> Vec<Value> {
        std::mem::take(&mut *self.queries.lock().expect("nobody panics with it"))
    }

    fn count(&self, path: &str, request: &[u8], answer: &[u8]) {
        let [request, answer] = [request, answer].map(|text| serde_json::from_slice::<Value>(text).unwrap_or(Value::Null));
        let query = [&request, &request["structuredAggregationQuery"]].map(|part| part["structuredQuery"].clone());
        let query = query.into_iter().filter(|query| !query.is_null());
        self.queries.lock().expect("nobody panics with it").extend(query);
        self.calls.fetch_add(1, Ordering::SeqCst);
        let rows = |rows: &Value| rows.as_array().map_or(0, Vec::len);
        match path.rsplit(':').next() {
            Some("batchGet") => self.reads.fetch_add(rows(&answer), Ordering::SeqCst),
            // A query that finds nothing counts as one read.
            Some("runQuery" | "runAggregationQuery") => self.reads.fetch_add(rows(&answer).max(1), Ordering::SeqCst),
            _ => {
                let writes = request["writes"].as_array().cloned().unwrap_or_default();
                let deletes = writes.iter().filter(|write| write.get("delete").is_some()).count();
                self.deletes.fetch_add(deletes, Ordering::SeqCst);
                self.writes.fetch_add(writes.len() - deletes, Ordering::SeqCst)
            }
        };
    }
}

fn one_of(counter: &AtomicUsize) -> bool {
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// An answer that breaks off before its first byte.
fn broken_off() -> Response {
    let nothing = futures_util::stream::once(async { Err::<Bytes, _>(std::io::Error::other("cut")) });
    Body::from_stream(nothing).into_response()
}

async fn pass(State(proxy): State<Arc<Proxy>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let commit = parts.uri.path().ends_with(":commit");
    let body = body.collect().await.expect("a body").to_bytes();
    if commit && one_of(&proxy.lost_requests) {
        return broken_off();
    }
    let mut forwarded = proxy.http.request(parts.method, format!("http://{}{}", proxy.to, parts.uri)).body(body.clone());
    for name in ["authorization", "content-type"] {
        if let Some(value) = parts.headers.get(name) {
            forwarded = forwarded.header(name, value);
        }
    }
    let answer = forwarded.send().await.expect("the emulator answers");
    let (status, answer) = (answer.status(), answer.bytes().await.expect("an answer"));
    proxy.count(parts.uri.path(), &body, &answer);
    if commit && one_of(&proxy.lost_answers) {
        return broken_off();
    }
    (status, answer).into_response()
}
