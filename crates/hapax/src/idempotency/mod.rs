//! `Idempotency-Key` for HTTP handlers: a tower layer that replays stored responses.

mod body;
mod key;
mod problem;
mod stored;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Method, Request, Response, StatusCode, Uri, header};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tower_layer::Layer;
use tower_service::Service;

use crate::{ClaimStore, Claimed, Error, Guard};
pub use body::Body;
use body::{BoxError, boxed, full};
use problem::Problem;

const REQUEST_MAX_BYTES: usize = 1 << 20;
/// A result has a megabyte; status and headers need some of it.
const RESPONSE_MAX_BYTES: usize = (1 << 20) - (16 << 10);

/// Makes handlers run once per `Idempotency-Key`; a repeat gets the stored response.
///
/// The rules are those of the IETF draft *The Idempotency-Key HTTP Header Field*:
///
/// | the request | its answer |
/// |---|---|
/// | a new key | the handler's own; stored, if its status is below 500 |
/// | the same key and content | the stored status, headers and bytes, with `Idempotent-Replayed: true` |
/// | the same key, while the first runs | waits for it, as long as the store's [`wait`](ClaimStore::wait) says; then 409 `claim_in_progress` |
/// | the same key, another method, path or body | 422 `fingerprint_mismatch` |
/// | the same key after a crash | as [`on_abandoned`](ClaimStore::on_abandoned) says: the handler runs again, or 409 `claim_held` |
/// | no key | passes through, or 400 with [`required`](Self::required) |
///
/// - A response of status 500 or above, and an error of the service, *release* the key: a retry runs the handler again. Which
///   statuses are stored is [`store_when`](Self::store_when)'s to say.
/// - A handler that panics leaves its claim *abandoned*, and the caller gets 500. A caller that hangs up stops nothing: the
///   handler runs on, and the retry gets its response.
/// - Keys belong to a caller: the `Authorization` header, or whatever [`caller`](Self::caller) reads. Nobody gets another's
///   response by guessing a key. Where sessions are cookies, say so by [`caller`](Self::caller).
/// - Request bodies are read whole, up to a megabyte (413 beyond). A response that is larger than
///   [`response_max`](Self::response_max), or an event stream, is passed on and not stored: a repeat is answered 409
///   `response_not_kept`, and the handler does not run again.
/// - Of the headers, those are stored that describe the body or lead on; never cookies. [`keep_header`](Self::keep_header) adds.
/// - When the store is away, keyed requests are answered 503: a handler that cannot be protected does not run.
///
/// ```
/// use std::time::Duration;
/// use axum::{Router, routing::post};
/// use hapax::IdempotencyLayer;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), hapax::Error> {
/// let store = hapax::open("memory:").await?.scope("orders-api").wait(Duration::from_secs(10));
/// let app: Router = Router::new()
///     .route("/orders", post(|| async { "order 1" }))
///     .layer(IdempotencyLayer::new(store));
/// # drop(app); Ok(()) }
/// ```
#[derive(Clone)]
pub struct IdempotencyLayer {
    rules: Arc<Rules>,
}

/// Reads who calls.
type ReadCaller = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// Reads what a request is for, where its own target does not say all of it.
type ReadTarget = Arc<dyn Fn(&Parts) -> Option<Uri> + Send + Sync>;

#[derive(Clone)]
struct Rules {
    claims: ClaimStore,
    methods: Vec<Method>,
    required: bool,
    request_max: usize,
    response_max: usize,
    kept_headers: Vec<HeaderName>,
    store_when: fn(StatusCode) -> bool,
    caller: ReadCaller,
    target: ReadTarget,
}

impl IdempotencyLayer {
    /// Keeps the keys of POST and PATCH requests in a store, under its terms.
    pub fn new(claims: ClaimStore) -> Self {
        let rules = Rules {
            claims,
            methods: vec![Method::POST, Method::PATCH],
            required: false,
            request_max: REQUEST_MAX_BYTES,
            response_max: RESPONSE_MAX_BYTES,
            kept_headers: stored::KEPT_HEADERS.to_vec(),
            store_when: |status| !status.is_server_error(),
            caller: Arc::new(authorization),
            target: Arc::new(|_| None),
        };
        Self { rules: Arc::new(rules) }
    }

    fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(Arc::make_mut(&mut self.rules));
        self
    }

    /// Whether a request of these methods needs a key.
    #[must_use]
    pub fn required(self, required: bool) -> Self {
        self.with(|rules| rules.required = required)
    }

    /// Of which methods the key counts; POST and PATCH if never said.
    #[must_use]
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.with(|rules| rules.methods = methods.into_iter().collect())
    }

    /// The largest body of a request that has a key; a megabyte if never said.
    #[must_use]
    pub fn request_max(self, bytes: usize) -> Self {
        self.with(|rules| rules.request_max = bytes)
    }

    /// The largest body that is stored; a little less than a megabyte at most, and if never said.
    #[must_use]
    pub fn response_max(self, bytes: usize) -> Self {
        self.with(|rules| rules.response_max = bytes.min(RESPONSE_MAX_BYTES))
    }

    /// Stores one more header of responses.
    #[must_use]
    pub fn keep_header(self, name: HeaderName) -> Self {
        self.with(|rules| rules.kept_headers.push(name))
    }

    /// Which responses are stored; the others release the key. Below 500 if never said.
    #[must_use]
    pub fn store_when(self, stored: fn(StatusCode) -> bool) -> Self {
        self.with(|rules| rules.store_when = stored)
    }

    /// Reads whose key it is, from what the request says or earlier layers found out; keys of different callers are different.
    #[must_use]
    pub fn caller(self, read: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.with(|rules| rules.caller = Arc::new(read))
    }

    /// Reads the whole target of a request that comes with only a part of it; `None`: its own. A layer inside `Router::nest` of axum sees the
    /// path without what was nested, so that the key of `/a/orders` under another path is taken for a repeat; axum remembers the whole:
    ///
    /// ```ignore
    /// layer.target(|parts| Some(parts.extensions.get::<OriginalUri>()?.0.clone()))
    /// ```
    #[must_use]
    pub fn target(self, read: impl Fn(&Parts) -> Option<Uri> + Send + Sync + 'static) -> Self {
        self.with(|rules| rules.target = Arc::new(read))
    }
}

fn authorization(parts: &Parts) -> Option<String> {
    let value = parts.headers.get(header::AUTHORIZATION)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency { inner, rules: Arc::clone(&self.rules) }
    }
}

impl std::fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdempotencyLayer").field("claims", &self.rules.claims).finish_non_exhaustive()
    }
}

/// A service behind an [`IdempotencyLayer`].
#[derive(Clone)]
pub struct Idempotency<S> {
    inner: S,
    rules: Arc<Rules>,
}

impl<S: std::fmt::Debug> std::fmt::Debug for Idempotency<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Idempotency").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, Req, Res> Service<Request<Req>> for Idempotency<S>
where
    S: Service<Request<Body>, Response = Response<Res>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    Req: HttpBody<Data = Bytes> + Send + 'static,
    Req::Error: Into<BoxError>,
    Res: HttpBody<Data = Bytes> + Send + 'static,
    Res::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Req>) -> Self::Future {
        // The one that was found ready answers; its clone waits for the next.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(handle(Arc::clone(&self.rules), inner, request.map(boxed)))
    }
}

async fn handle<S, Res>(rules: Arc<Rules>, mut inner: S, request: Request<Body>) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<Res>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    Res: HttpBody<Data = Bytes> + Send + 'static,
    Res::Error: Into<BoxError>,
{
    if !rules.methods.contains(request.method()) {
        return inner.call(request).await.map(|response| response.map(boxed));
    }
    let key = match key::read(request.headers()) {
        Ok(Some(key)) => key,
        Ok(None) if rules.required => return Ok(Problem::MissingKey.into_response()),
        Ok(None) => return inner.call(request).await.map(|response| response.map(boxed)),
        Err(problem) => return Ok(problem.into_response()),
    };
    let (parts, body) = request.into_parts();
    let bytes = match read_whole(body, rules.request_max).await {
        Ok(bytes) => bytes,
        Err(problem) => return Ok(problem.into_response()),
    };
    let key = key::of_caller((rules.caller)(&parts).as_deref(), &key);
    let whole = (rules.target)(&parts);
    let target = whole.as_ref().unwrap_or(&parts.uri);
    match rules.claims.fingerprint(&key::fingerprint(&parts.method, target, &bytes)).claim(&key).await {
        Ok(Claimed::Won(guard)) => {
            let request = Request::from_parts(parts, full(bytes));
            // A task of its own: a caller that hangs up does not stop a handler in mid-job.
            let running = tokio::spawn(run(rules, inner, request, guard));
            running.await.unwrap_or_else(|_| Ok(Problem::Crashed.into_response()))
        }
        Ok(Claimed::Completed(done)) => Ok(stored::replay(&done).unwrap_or_else(|| Problem::NotKept.into_response())),
        Err(error) => Ok(Problem::Claim(error).into_response()),
    }
}

async fn run<S, Res>(rules: Arc<Rules>, mut inner: S, request: Request<Body>, guard: Guard) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<Res>>,
    Res: HttpBody<Data = Bytes> + Send + 'static,
    Res::Error: Into<BoxError>,
{
    let answered = tokio::select! {
        biased;
        answered = inner.call(request) => answered,
        () = guard.lost() => return Ok(Problem::Claim(Error::Lost).into_response()),
    };
    let response = match answered {
        Ok(response) => response.map(boxed),
        Err(error) => {
            guard.release_quietly().await;
            return Err(error);
        }
    };
    if !(rules.store_when)(response.status()) {
        guard.release_quietly().await;
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    if stored::is_stream(&head.headers) {
        return Ok(finish(guard, None, Response::from_parts(head, body)).await);
    }
    match body::read_up_to(body, rules.response_max).await {
        Ok(body::Read::Whole(bytes)) => {
            let record = stored::record(&head, &rules.kept_headers, &bytes);
            Ok(finish(guard, Some(record), Response::from_parts(head, full(bytes))).await)
        }
        Ok(body::Read::Longer(body)) => Ok(finish(guard, None, Response::from_parts(head, body)).await),
        // The handler has answered and then failed: how much of it was done nobody knows.
        Err(_) => Ok(Problem::Crashed.into_response()),
    }
}

/// Completes the claim, then answers. When the store is away the answer is still the handler's: it ran, and this is what it said.
async fn finish(guard: Guard, record: Option<Vec<u8>>, response: Response<Body>) -> Response<Body> {
    let completed = match record {
        Some(record) => guard.complete_bytes(stored::CONTENT_TYPE, record).await,
        None => guard.complete_empty().await,
    };
    match completed {
        Err(Error::Lost) => Problem::Claim(Error::Lost).into_response(),
        _ => response,
    }
}

async fn read_whole(body: Body, most: usize) -> Result<Bytes, Problem> {
    let read = Limited::new(body, most).collect().await;
    read.map(|whole| whole.to_bytes()).map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => Problem::TooLarge { most },
        None => Problem::CutOff,
    })
}
