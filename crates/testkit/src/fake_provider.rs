//! The send side of WhatsApp, Telegram, GOWA and any other HTTP API on one port, with a journal of what reached the phones.
//!
//! Which of them is asked shows in the path, so one of these serves every channel of a test: its `url()` is their `api_base`.

mod webhooks;
mod wire;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax_store::clock::{Clock, SystemClock};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Whose API was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Whatsapp,
    Telegram,
    Gowa,
    Generic,
}

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Puts something on a phone.
    Message,
    /// Typing, read, an answered button: nothing arrives.
    Notice,
    /// A search in the history.
    Lookup,
}

/// One call as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Counts from 0, over the provider's life.
    pub number: usize,
    pub api: Api,
    pub purpose: Purpose,
    /// phone_number_id, bot token or device; empty for the generic API.
    pub account: String,
    pub to: String,
    pub text: Option<String>,
    /// What came in `biz_opaque_callback_data`, or as `Idempotency-Key`.
    pub handle: Option<String>,
    pub method: Method,
    pub path_and_query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// One message on a phone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    pub api: Api,
    pub account: String,
    pub to: String,
    pub text: Option<String>,
    /// As hapax knows it: Telegram's is `chat:number`.
    pub provider_id: String,
    pub handle: Option<String>,
    pub at_ms: i64,
}

/// What the provider does with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Play {
    /// Does as asked.
    Act,
    /// Too many; nothing is done.
    TooMany { retry_after_s: Option<u32> },
    /// Answers with this status and no explanation; nothing is done.
    Down(u16),
    /// Refuses in its own words: Meta's number, GOWA's word; Telegram has only the status. Nothing is done.
    Refuse { status: u16, code: String },
    /// Closes the connection without an answer; nothing is done.
    Cut,
    /// Does as asked, and closes the connection before the answer.
    ActThenCut,
    /// Does as asked, and answers with this status.
    ActThenFail(u16),
    /// Does as asked at once, and answers so much later.
    ActThenLate(Duration),
}

impl Play {
    fn acts(&self) -> bool {
        matches!(self, Play::Act | Play::ActThenCut | Play::ActThenFail(_) | Play::ActThenLate(_))
    }
}

/// A script that cuts so many percent of the answers to messages after accepting, the same ones for the same seed.
pub fn cutting(percent: u64, seed: u64) -> impl Fn(&Asked) -> Play + Send + Sync + 'static {
    move |asked| match asked.purpose == Purpose::Message && scatter(seed, asked.number as u64) % 100 < percent {
        true => Play::ActThenCut,
        false => Play::Act,
    }
}

/// Spreads (seed, number) evenly over all numbers.
fn scatter(seed: u64, number: u64) -> u64 {
    let mut x = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

type Script = Arc<dyn Fn(Asked) -> BoxFuture<'static, Play> + Send + Sync>;

/// Listens on loopback until dropped.
pub struct FakeProvider {
    pub address: SocketAddr,
    desk: Arc<Desk>,
    _serving: AbortOnDropHandle<()>,
}

/// Where calls are taken and written down.
struct Desk {
    script: Script,
    clock: Arc<dyn Clock>,
    books: Mutex<Books>,
    /// (calls, arrivals) so far.
    counts: watch::Sender<(usize, usize)>,
}

#[derive(Default)]
struct Books {
    calls: Vec<Asked>,
    journal: Vec<Arrived>,
}

impl FakeProvider {
    /// Does everything it is asked.
    pub async fn willing() -> std::io::Result<Self> {
        Self::start(|_| Play::Act).await
    }

    /// Plays these, in the order in which calls come, and then does everything it is asked.
    pub async fn playing(plays: Vec<Play>) -> std::io::Result<Self> {
        Self::start(move |asked| plays.get(asked.number).cloned().unwrap_or(Play::Act)).await
    }

    pub async fn start(script: impl Fn(&Asked) -> Play + Send + Sync + 'static) -> std::io::Result<Self> {
        Self::start_slow(Arc::new(SystemClock::new()), move |asked| {
            let play = script(&asked);
            Box::pin(async move { play })
        })
        .await
    }

    /// Acts on each call when the script's future is ready. The clock dates what arrives.
    pub async fn start_slow(
        clock: Arc<dyn Clock>,
        script: impl Fn(Asked) -> BoxFuture<'static, Play> + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let counts = watch::Sender::new((0, 0));
        let desk = Arc::new(Desk { script: Arc::new(script), clock, books: Mutex::default(), counts });
        let serving = AbortOnDropHandle::new(tokio::spawn(serve(listener, Arc::clone(&desk))));
        Ok(Self { address, desk, _serving: serving })
    }

    /// What to write as `api_base`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every call, whatever became of it.
    pub fn calls(&self) -> Vec<Asked> {
        self.desk.books().calls.clone()
    }

    /// Everything that is on a phone, in the order of arrival.
    pub fn journal(&self) -> Vec<Arrived> {
        self.desk.books().journal.clone()
    }

    /// What is on one phone.
    pub fn phone(&self, to: &str) -> Vec<Arrived> {
        self.desk.books().journal.iter().filter(|arrived| arrived.to == to).cloned().collect()
    }

    /// Resolves when at least this many calls have come.
    pub async fn called(&self, times: usize) -> Vec<Asked> {
        // The sender lives as long as we do.
        let _ = self.desk.counts.subscribe().wait_for(|(calls, _)| *calls >= times).await;
        self.calls()
    }

    /// Resolves when at least this many messages have arrived.
    pub async fn arrived(&self, times: usize) -> Vec<Arrived> {
        let _ = self.desk.counts.subscribe().wait_for(|(_, arrivals)| *arrivals >= times).await;
        self.journal()
    }
}

impl Desk {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_call(&self, asked: Asked) -> Asked {
        let mut books = self.books();
        let asked = Asked { number: books.calls.len(), ..asked };
        books.calls.push(asked.clone());
        self.counts.send_modify(|(calls, _)| *calls += 1);
        asked
    }

    /// Puts the message on the phone.
    fn act(&self, asked: &Asked) -> Arrived {
        let mut books = self.books();
        let arrived = Arrived {
            api: asked.api,
            account: asked.account.clone(),
            to: asked.to.clone(),
            text: asked.text.clone(),
            provider_id: wire::provider_id(asked, books.journal.len() + 1),
            handle: asked.handle.clone(),
            at_ms: self.clock.now_ms(),
        };
        books.journal.push(arrived.clone());
        self.counts.send_modify(|(_, arrivals)| *arrivals += 1);
        arrived
    }

    fn history(&self, asked: &Asked) -> wire::WireAnswer {
        let rows = self.phone_of(asked);
        wire::history(asked, &rows)
    }

    fn phone_of(&self, asked: &Asked) -> Vec<Arrived> {
        let same = |arrived: &&Arrived| (arrived.api, &arrived.account, &arrived.to) == (asked.api, &asked.account, &asked.to);
        self.books().journal.iter().filter(same).cloned().collect()
    }
}

async fn serve(listener: TcpListener, desk: Arc<Desk>) {
    // Dropped with this future: connections end with the provider.
    let stop = CancellationToken::new();
    let _stop_connections = stop.clone().drop_guard();
    while let Ok((stream, _)) = listener.accept().await {
        let desk = Arc::clone(&desk);
        let service = service_fn(move |request| answer(Arc::clone(&desk), request));
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        let stop = stop.clone();
        tokio::spawn(async move {
            let _ = stop.run_until_cancelled(connection).await;
        });
    }
}

/// An error makes hyper close the connection without an answer.
async fn answer(desk: Arc<Desk>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let asked = desk.note_call(wire::read(head, body));
    let play = (desk.script)(asked.clone()).await;
    let done = match asked.purpose {
        Purpose::Lookup => desk.history(&asked),
        Purpose::Message if play.acts() => wire::taken(&asked, &desk.act(&asked)),
        Purpose::Message | Purpose::Notice => wire::noticed(&asked),
    };
    match play {
        Play::Act => done.response(),
        Play::TooMany { retry_after_s } => wire::too_many(&asked, retry_after_s).response(),
        Play::Down(status) | Play::ActThenFail(status) => wire::WireAnswer::bare(status).response(),
        Play::Refuse { status, code } => wire::refused(&asked, status, &code).response(),
        Play::Cut | Play::ActThenCut => Err(std::io::Error::other("told to hang up")),
        Play::ActThenLate(wait) => {
            tokio::time::sleep(wait).await;
            done.response()
        }
    }
}

#[cfg(test)]
mod tests;
