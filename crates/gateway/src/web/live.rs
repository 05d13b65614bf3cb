//! `/live`: tells an open page that there is news, so that it looks again. What the news is the page reads by itself, as everybody does: a page
//! that missed some misses nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use hapax_domain::limits::LIVE_PAGES_MAX;
use hapax_store::{EventRow, StoreError};
use http::{HeaderValue, header};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::trouble::Trouble;
use super::visitor::Visitor;
use super::{Web, session};
use crate::api::{Caller, Problem, Scope};

/// How often a page on which nothing happens hears that we live, and whether its session still holds.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// What comes within this time is told at once.
const GATHER: Duration = Duration::from_millis(300);
/// Each page that is told asks for itself again. With many of them open, each is told less often.
const GATHER_PER_PAGE: Duration = Duration::from_millis(50);
/// How often it is looked whether something was sent, delivered or parked here.
const STIR: Duration = Duration::from_millis(500);
/// What browsers wait before they come again, and the sign that they are through.
const OPENING: &str = "retry: 2000\n\nevent: open\ndata:\n\n";

/// How many pages listen at once.
pub struct LivePages(Arc<Semaphore>);

impl Default for LivePages {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LIVE_PAGES_MAX)))
    }
}

struct Open {
    web: Arc<Web>,
    caller: Caller,
    session: String,
    news: broadcast::Receiver<Arc<EventRow>>,
    heart: Interval,
    stir: Interval,
    /// How much had happened when the page was told last.
    stirs: u64,
    opened: bool,
    _place: OwnedSemaphorePermit,
}

pub(super) async fn stream(State(web): State<Arc<Web>>, visitor: Visitor) -> Result<Response, Trouble> {
    if web.api.feed.stop().is_cancelled() {
        return Err(Problem::stopping().into());
    }
    let place = Arc::clone(&web.live.0).try_acquire_owned();
    let place = place
        .map_err(|_| Problem::too_many(format!("{LIVE_PAGES_MAX} pages listen already; this one looks again now and then")))?;
    let news = web.api.feed.listen().await?;
    let mut heart = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    heart.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stir = tokio::time::interval(STIR);
    stir.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (caller, session) = (visitor.caller, visitor.session);
    let stirs = web.api.telemetry.stirs(|channel| caller.sees(channel));
    let open = Open { web, caller, session, news, heart, stir, stirs, opened: false, _place: place };
    let frames =
        stream::unfold(open, |mut open| async move { open.next().await.map(|frame| (Ok::<_, StoreError>(frame), open)) });
    let mut response = Response::new(Body::from_stream(frames));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

impl Open {
    /// The next bytes for the page; nothing: it ends.
    async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.opened, true) {
            return Some(Bytes::from_static(OPENING.as_bytes()));
        }
        let stop = self.web.api.feed.stop().clone();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                _ = self.heart.tick() => return self.beat().await,
                news = self.news.recv() => match news {
                    Ok(row) if self.caller.sees(&row.channel) => return self.gather(Some(&row)).await,
                    Ok(_) => {}
                    // It fell behind: one look catches up with everything.
                    Err(RecvError::Lagged(_)) => return Some(told(&BTreeSet::new())),
                    Err(RecvError::Closed) => return None,
                },
                _ = self.stir.tick() => if self.stirs() != self.stirs {
                    return self.gather(None).await;
                },
            }
        }
    }

    fn stirs(&self) -> u64 {
        self.web.api.telemetry.stirs(|channel| self.caller.sees(channel))
    }

    /// One word for all that comes within a moment, whatever its number.
    async fn gather(&mut self, first: Option<&EventRow>) -> Option<Bytes> {
        let mut channels: BTreeSet<String> = first.map(|row| row.channel.clone()).into_iter().collect();
        let pages = LIVE_PAGES_MAX - self.web.live.0.available_permits();
        let wait = GATHER.max(GATHER_PER_PAGE * u32::try_from(pages).unwrap_or(u32::MAX));
        self.web.api.feed.stop().run_until_cancelled(tokio::time::sleep(wait)).await?;
        self.stirs = self.stirs();
        loop {
            match self.news.try_recv() {
                Ok(row) if self.caller.sees(&row.channel) => drop(channels.insert(row.channel.clone())),
                Ok(_) | Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return Some(told(&channels)),
            }
        }
    }

    /// Shows that the stream lives; ends it when its session does not hold any more.
    async fn beat(&mut self) -> Option<Bytes> {
        match session::caller_of(&self.web, &self.session).await {
            Ok(Some(caller)) if caller.may(Scope::Read) => self.caller = caller,
            Ok(_) => return None,
            Err(_) => {}
        }
        Some(Bytes::from_static(b": alive\n\n"))
    }
}

/// In which channels something came; none: who knows.
fn told(channels: &BTreeSet<String>) -> Bytes {
    let names: Vec<&str> = channels.iter().map(String::as_str).collect();
    Bytes::from(format!("event: news\ndata: {}\n\n", names.join(" ")))
}
