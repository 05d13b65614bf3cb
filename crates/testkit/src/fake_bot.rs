//! A bot that does as it is told and remembers every call.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// One request as it arrived at the bot.
#[derive(Clone, Debug)]
pub struct Call {
    /// Counts from 0, over the bot's life.
    pub number: usize,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Call {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub fn event_id(&self) -> &str {
        self.header("hapax-event-id")
    }

    pub fn attempt(&self) -> u32 {
        self.header("hapax-attempt").parse().unwrap_or_default()
    }

    pub fn fence(&self) -> u64 {
        self.header("hapax-fence").parse().unwrap_or_default()
    }
}

/// What the bot does with a call.
#[derive(Clone, Debug)]
pub enum Say {
    Status(u16),
    Answer {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: String,
    },
    /// Thinks for a while first.
    Late(Duration, u16),
    /// Closes the connection without a word.
    Hang,
}

type Script = Arc<dyn Fn(Call) -> BoxFuture<'static, Say> + Send + Sync>;

/// Listens on loopback until dropped.
pub struct FakeBot {
    pub address: SocketAddr,
    heard: Arc<Heard>,
    _serving: AbortOnDropHandle<()>,
}

struct Heard {
    script: Script,
    calls: Mutex<Vec<Call>>,
    count: watch::Sender<usize>,
}

impl FakeBot {
    /// Takes everything with 200.
    pub async fn willing() -> std::io::Result<Self> {
        Self::start(|_| Say::Status(200)).await
    }

    /// Answers each call as `script` says, at once.
    pub async fn start(script: impl Fn(&Call) -> Say + Send + Sync + 'static) -> std::io::Result<Self> {
        Self::start_slow(move |call| {
            let say = script(&call);
            Box::pin(async move { say })
        })
        .await
    }

    /// Answers each call when the script's future is ready.
    pub async fn start_slow(script: impl Fn(Call) -> BoxFuture<'static, Say> + Send + Sync + 'static) -> std::io::Result<Self> {
        Self::listen(TcpListener::bind("127.0.0.1:0").await?, script)
    }

    /// Serves on a socket of the caller's, so that a dead target can come back on its old port.
    pub fn listen(
        listener: TcpListener,
        script: impl Fn(Call) -> BoxFuture<'static, Say> + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let heard = Arc::new(Heard { script: Arc::new(script), calls: Mutex::default(), count: watch::Sender::new(0) });
        let serving = AbortOnDropHandle::new(tokio::spawn(serve(listener, Arc::clone(&heard))));
        Ok(Self { address, heard, _serving: serving })
    }

    pub fn url(&self) -> String {
        format!("http://{}/webhook", self.address)
    }

    pub fn calls(&self) -> Vec<Call> {
        self.heard.lock().clone()
    }

    /// Resolves when at least this many calls have come.
    pub async fn called(&self, times: usize) -> Vec<Call> {
        // The sender lives as long as we do.
        let _ = self.heard.count.subscribe().wait_for(|count| *count >= times).await;
        self.calls()
    }
}

impl Heard {
    fn lock(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, headers: HeaderMap, body: Bytes) -> Call {
        let mut calls = self.lock();
        let call = Call { number: calls.len(), headers, body };
        calls.push(call.clone());
        self.count.send_replace(calls.len());
        call
    }
}

async fn serve(listener: TcpListener, heard: Arc<Heard>) {
    // Dropped with this future: connections end with the bot.
    let stop = CancellationToken::new();
    let _stop_connections = stop.clone().drop_guard();
    while let Ok((stream, _)) = listener.accept().await {
        let heard = Arc::clone(&heard);
        let service = service_fn(move |request| answer(Arc::clone(&heard), request));
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        let stop = stop.clone();
        tokio::spawn(async move {
            let _ = stop.run_until_cancelled(connection).await;
        });
    }
}

/// An error makes hyper close the connection without an answer.
async fn answer(heard: Arc<Heard>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let call = heard.note(head.headers, body);
    let (status, headers, body) = match (heard.script)(call).await {
        Say::Status(status) => (status, Vec::new(), String::new()),
        Say::Late(wait, status) => {
            tokio::time::sleep(wait).await;
            (status, Vec::new(), String::new())
        }
        Say::Answer { status, headers, body } => (status, headers, body),
        Say::Hang => return Err(std::io::Error::other("told to hang up")),
    };
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(Full::new(Bytes::from(body))).map_err(std::io::Error::other)
}
