//! `GET /v1/stream`: events as they come, as server-sent events. Who was cut resumes with `Last-Event-ID` and misses nothing; what was told shortly
//! before may come again.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use hapax_domain::EventId;
use hapax_domain::limits::{PAGE_MAX, STREAM_RESUME_PAGES, STREAMS_MAX};
use hapax_store::{EventQuery, EventRow, StoreError};
use http::{HeaderMap, HeaderValue, header};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use utoipa::IntoParams;

use super::events::Event;
use super::feed::floor;
use super::list::{Asked, page_of};
use super::{Api, Caller, Problem, Scope};

/// How often a stream on which nothing happens shows that it lives, and whether its token is still believed.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// What browsers wait before they come again.
const OPENING: &str = "retry: 2000\n\n";
const TOO_SLOW: &str = ": cut, because it was not read fast enough; resume with Last-Event-ID\n\n";
/// What was told from the past and may come once more as news.
const RECENT_MAX: usize = 4_096;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamParams {
    channel: Option<String>,
    /// For those who cannot set `Last-Event-ID`.
    after: Option<String>,
}

/// How many streams are open at once.
pub struct Streams(Arc<Semaphore>);

impl Default for Streams {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(STREAMS_MAX)))
    }
}

/// One open stream.
struct Open {
    api: Arc<Api>,
    caller: Caller,
    headers: HeaderMap,
    channel: Option<String>,
    news: broadcast::Receiver<Arc<EventRow>>,
    /// Parts of the past that are still to be told, the oldest last.
    past: Vec<Part>,
    waiting: VecDeque<Bytes>,
    recent: BTreeSet<EventId>,
    heart: Interval,
    /// A token was made or revoked here.
    revisions: watch::Receiver<u64>,
    ended: bool,
    _place: OwnedSemaphorePermit,
}

/// Events in a row: below `before`, down to `last`.
struct Part {
    before: Option<EventId>,
    last: EventId,
}

/// Tells events as they come, as server-sent events.
#[utoipa::path(
    get,
    path = "/stream",
    operation_id = "streamEvents",
    tag = "events",
    params(StreamParams, ("Last-Event-ID" = Option<String>, Header, description = "The last event you saw: what came after it is told first")),
    responses((status = 200, description = "Events, until either side hangs up", body = String, content_type = "text/event-stream")),
)]
pub(super) async fn stream(
    State(api): State<Arc<Api>>,
    caller: Caller,
    headers: HeaderMap,
    Asked(ask): Asked<StreamParams>,
) -> Result<Response, Problem> {
    let channels = caller.narrow(ask.channel.clone())?;
    let after = read_after(&headers, ask.after.as_deref())?;
    if api.feed.stop().is_cancelled() {
        return Err(Problem::stopping());
    }
    let place = Arc::clone(&api.streams.0).try_acquire_owned().map_err(|_| {
        Problem::too_many(format!("{STREAMS_MAX} streams are open, and there is room for no more; close one, or come again"))
    })?;
    // Before the past is read: what comes meanwhile is news.
    let news = api.feed.listen().await?;
    let past = match after {
        Some(after) => past_since(&api, &channels, after).await?,
        None => Vec::new(),
    };
    let mut heart = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    heart.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let waiting = VecDeque::from([Bytes::from_static(OPENING.as_bytes())]);
    let recent = BTreeSet::new();
    let (channel, revisions) = (ask.channel, api.auth.revisions());
    let open = Open { api, caller, headers, channel, news, past, waiting, recent, heart, revisions, ended: false, _place: place };
    let frames =
        stream::unfold(open, |mut open| async move { open.next().await.map(|frame| (Ok::<_, StoreError>(frame), open)) });
    let mut response = Response::new(Body::from_stream(frames));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies that gather an answer before they pass it on would gather for ever.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// The last event that the caller has seen.
fn read_after(headers: &HeaderMap, asked: Option<&str>) -> Result<Option<EventId>, Problem> {
    let header = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?")).filter(|text| !text.is_empty());
    let Some(text) = header.or(asked) else { return Ok(None) };
    let after: EventId = text.parse()?;
    match after.at_ms() {
        Some(_) => Ok(Some(after)),
        None => Err(Problem::bad_request("`Last-Event-ID` is not the id of an event of this server; leave it out to begin now")),
    }
}

/// Walks back to before the last event that was seen, as far as a late commit may be, and notes where each page begins and ends.
async fn past_since(api: &Api, channels: &[Option<String>], after: EventId) -> Result<Vec<Part>, Problem> {
    let down_to = floor(after.at_ms().unwrap_or_default(), api.clock.now_ms());
    let (mut parts, mut before) = (Vec::new(), None);
    while parts.len() < STREAM_RESUME_PAGES {
        let page = page_below(api, channels, before).await?;
        let Some(last) = page.rows.last().map(|row| row.id) else { return Ok(parts) };
        parts.push(Part { before, last: last.max(down_to) });
        before = Some(last);
        if !page.more || last <= down_to {
            return Ok(parts);
        }
    }
    let most = STREAM_RESUME_PAGES * PAGE_MAX;
    Err(Problem::too_late(format!(
        "more than {most} events came since: read them with GET /v1/events, and open the stream without `Last-Event-ID`"
    )))
}

async fn page_below(
    api: &Api,
    channels: &[Option<String>],
    before: Option<EventId>,
) -> Result<hapax_store::Page<EventRow>, StoreError> {
    let of = |channel| api.store.events(EventQuery { channel, before, limit: PAGE_MAX, ..EventQuery::default() });
    page_of(channels.to_vec(), PAGE_MAX, of, |a, b| b.id.cmp(&a.id)).await
}

impl Open {
    /// The next bytes for the reader; nothing: it ends.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.waiting.pop_front() {
                return Some(frame);
            }
            if self.ended {
                return None;
            }
            if let Some(part) = self.past.pop() {
                self.tell_past(part).await?;
                continue;
            }
            let stop = self.api.feed.stop().clone();
            tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                Ok(()) = self.revisions.changed() => self.is_believed().await?,
                _ = self.heart.tick() => {
                    self.is_believed().await?;
                    return Some(Bytes::from_static(b": alive\n\n"));
                }
                news = self.news.recv() => match news {
                    Ok(row) => self.tell(&row),
                    Err(RecvError::Lagged(_)) => {
                        self.ended = true;
                        self.waiting.push_back(Bytes::from_static(TOO_SLOW.as_bytes()));
                    }
                    Err(RecvError::Closed) => return None,
                },
            }
        }
    }

    fn tell(&mut self, row: &EventRow) {
        let asked = self.channel.as_ref().is_none_or(|channel| *channel == row.channel);
        if asked && self.caller.sees(&row.channel) && !self.recent.contains(&row.id) {
            self.waiting.extend(frame(row));
        }
    }

    /// A store that cannot be read ends the stream: the reader comes again.
    async fn tell_past(&mut self, part: Part) -> Option<()> {
        let channels = self.caller.narrow(self.channel.clone()).ok()?;
        let (mut rows, mut before) = (Vec::new(), part.before);
        loop {
            // What was committed since may stand between: the part is read to its end, whatever its length.
            let page = page_below(&self.api, &channels, before).await.ok()?;
            before = page.rows.last().map(|row| row.id);
            let reached = !page.more || before.is_none_or(|last| last <= part.last);
            rows.extend(page.rows.into_iter().filter(|row| row.id >= part.last));
            if reached {
                break;
            }
        }
        for row in rows.iter().rev() {
            self.recent.insert(row.id);
            self.waiting.extend(frame(row));
        }
        while self.recent.len() > RECENT_MAX {
            self.recent.pop_first();
        }
        Some(())
    }

    /// Nothing when its token is not believed any more: that ends the stream.
    async fn is_believed(&mut self) -> Option<()> {
        match self.api.auth.caller(&self.headers, None).await {
            Ok(caller) if caller.may(Scope::Read) && caller.narrow(self.channel.clone()).is_ok() => self.caller = caller,
            Err(problem) if problem.status().is_server_error() => {}
            _ => return None,
        }
        Some(())
    }
}

fn frame(row: &EventRow) -> Option<Bytes> {
    let id = row.id;
    let data = serde_json::to_string(&Event::from(row.clone())).ok()?;
    Some(Bytes::from(format!("id: {id}\nevent: event\ndata: {data}\n\n")))
}
