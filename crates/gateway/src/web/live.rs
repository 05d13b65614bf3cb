//! `/live`: tells an open page that there is news, so that it looks again. What the news is the page reads by itself, as everybody does: a page
//! that missed some misses nothing.
//!
//! However many pages are open and however much comes in, the store is asked a few times a second for the newest events, by whichever page
//! finds that it is time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use hapax_domain::EventId;
use hapax_domain::limits::LIVE_PAGES_MAX;
use hapax_store::{EventQuery, EventRow, Store, StoreError};
use http::{HeaderValue, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::events::Found as EventsFound;
use super::shared::Shared;
use super::trouble::Trouble;
use super::visitor::Visitor;
use super::{Web, session};
use crate::api::{Api, Caller, Problem, Scope};

/// How often a page on which nothing happens hears that we live, and whether its session still holds.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// What comes within this time is told at once.
const GATHER: Duration = Duration::from_millis(300);
/// Each page that is told asks for itself again. With many of them open, each is told less often.
const GATHER_PER_PAGE: Duration = Duration::from_millis(50);
/// All pages that are told within this part of the mean time hear of the same moment, so that what one finds then serves the others.
const MOMENTS: u32 = 10;
/// How often a page looks whether there is news for it.
const TICK: Duration = Duration::from_millis(250);
/// How often the store is asked, for all pages together.
const LOOK: Duration = Duration::from_millis(200);
/// Of so many that are new the channels are told apart; with more, it is news for everybody.
const LOOKED_AT: usize = 100;
/// What browsers wait before they come again, and the sign that they are through.
const OPENING: &str = "retry: 2000\n\nevent: open\ndata:\n\n";

/// The pages that listen, and what they have to hear of.
pub struct LivePages {
    places: Arc<Semaphore>,
    came: Mutex<Came>,
    moment: Mutex<Option<Arc<Moment>>>,
    /// What open pages found when they asked for themselves.
    pub(super) found: Shared<EventsFound>,
}

/// What had happened at one moment, as far as pages were told.
struct Moment {
    at: Instant,
    came: BTreeMap<String, u64>,
    much: u64,
    stirs: BTreeMap<String, u64>,
}

/// How often something came in.
#[derive(Default)]
struct Came {
    by_channel: BTreeMap<String, u64>,
    /// So much at once that nobody looked at all of it.
    much: u64,
    newest: Option<EventId>,
    looked: Option<Instant>,
}

impl Default for LivePages {
    fn default() -> Self {
        let (came, moment, found) = Default::default();
        Self { places: Arc::new(Semaphore::new(LIVE_PAGES_MAX)), came, moment, found }
    }
}

impl LivePages {
    fn came(&self) -> MutexGuard<'_, Came> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many pages listen.
    fn pages(&self) -> u32 {
        u32::try_from(LIVE_PAGES_MAX - self.places.available_permits()).unwrap_or(u32::MAX)
    }

    fn last_moment(&self) -> Option<Arc<Moment>> {
        self.moment.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What pages were told of last had happened by then: whoever asks for himself because he was told finds all of it in what was asked for since.
    pub(super) fn told_of(&self) -> Option<Instant> {
        self.last_moment().map(|moment| moment.at)
    }

    /// The moment that a page hears of now.
    async fn moment(&self, api: &Api) -> Arc<Moment> {
        let holds = GATHER_PER_PAGE * self.pages() / MOMENTS;
        if let Some(moment) = self.last_moment().filter(|moment| moment.at.elapsed() < holds) {
            return moment;
        }
        self.look(&*api.store).await;
        let came = self.came();
        let (by_channel, much) = (came.by_channel.clone(), came.much);
        drop(came);
        let stirs = api.telemetry.stirs_by_channel();
        self.newest(Moment { at: Instant::now(), came: by_channel, much, stirs })
    }

    /// This moment, unless another page has heard of a later one meanwhile.
    fn newest(&self, moment: Moment) -> Arc<Moment> {
        let mut last = self.moment.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(later) if later.at > moment.at => Arc::clone(later),
            _ => Arc::clone(last.insert(Arc::new(moment))),
        }
    }

    /// Looks what has come in, here or by another instance. What cannot be read now is seen at the next look.
    async fn look(&self, store: &dyn Store) {
        let newest = {
            let mut came = self.came();
            if came.looked.is_some_and(|at| at.elapsed() < LOOK) {
                return;
            }
            came.looked = Some(Instant::now());
            came.newest
        };
        let ask = |limit| store.events(EventQuery { limit, ..EventQuery::default() });
        let is_new = |row: &EventRow| newest.is_none_or(|newest| row.id > newest);
        if !ask(1).await.is_ok_and(|page| page.rows.first().is_some_and(is_new)) {
            return;
        }
        let Ok(page) = ask(LOOKED_AT).await else { return };
        self.came().add(page.rows.into_iter().take_while(is_new).collect());
    }
}

impl Came {
    /// The newest first.
    fn add(&mut self, rows: Vec<EventRow>) {
        self.much += u64::from(rows.len() == LOOKED_AT);
        self.newest = rows.first().map(|row| row.id).max(self.newest);
        for row in rows {
            *self.by_channel.entry(row.channel).or_default() += 1;
        }
    }
}

/// All that had happened when a page was told last.
#[derive(PartialEq, Eq)]
struct Known {
    came: BTreeMap<String, u64>,
    much: u64,
    /// What was sent, delivered or parked here.
    stirs: u64,
}

impl Known {
    fn now(web: &Web, caller: &Caller) -> Self {
        let stirs = web.api.telemetry.stirs(|channel| caller.sees(channel));
        let came = web.live.came();
        Self {
            came: seen(&came.by_channel, caller).map(|(channel, count)| (channel.clone(), *count)).collect(),
            much: came.much,
            stirs,
        }
    }

    fn at(moment: &Moment, caller: &Caller) -> Self {
        let came = seen(&moment.came, caller).map(|(channel, count)| (channel.clone(), *count)).collect();
        Self {
            came,
            much: moment.much,
            stirs: seen(&moment.stirs, caller).fold(0_u64, |sum, (_, count)| sum.wrapping_add(*count)),
        }
    }
}

/// The counts of those channels that a caller sees.
fn seen<'c>(counts: &'c BTreeMap<String, u64>, caller: &'c Caller) -> impl Iterator<Item = (&'c String, &'c u64)> {
    counts.iter().filter(|(channel, _)| caller.sees(channel))
}

struct Open {
    web: Arc<Web>,
    caller: Caller,
    session: String,
    heart: Interval,
    tick: Interval,
    known: Known,
    opened: bool,
    _place: OwnedSemaphorePermit,
}

pub(super) async fn stream(State(web): State<Arc<Web>>, visitor: Visitor) -> Result<Response, Trouble> {
    if web.api.feed.stop().is_cancelled() {
        return Err(Problem::stopping().into());
    }
    let place = Arc::clone(&web.live.places).try_acquire_owned();
    let place = place
        .map_err(|_| Problem::too_many(format!("{LIVE_PAGES_MAX} pages listen already; this one looks again now and then")))?;
    let known = Known::at(&*web.live.moment(&web.api).await, &visitor.caller);
    let (caller, session) = (visitor.caller, visitor.session);
    let open = Open { web, caller, session, heart: every(HEARTBEAT), tick: every(TICK), known, opened: false, _place: place };
    let frames =
        stream::unfold(open, |mut open| async move { open.next().await.map(|frame| (Ok::<_, StoreError>(frame), open)) });
    let mut response = Response::new(Body::from_stream(frames));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

fn every(time: Duration) -> Interval {
    let mut interval = tokio::time::interval_at(Instant::now() + time, time);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
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
                _ = self.tick.tick() => {
                    self.web.live.look(&*self.web.api.store).await;
                    if Known::now(&self.web, &self.caller) != self.known {
                        return self.gather().await;
                    }
                }
            }
        }
    }

    /// One word for all that comes within a moment, whatever its number.
    async fn gather(&mut self) -> Option<Bytes> {
        let mean = GATHER_PER_PAGE * self.web.live.pages();
        // Not all at the same moment.
        let wait = GATHER.max(mean.mul_f64(0.5 + rand::random::<f64>()));
        self.web.api.feed.stop().run_until_cancelled(tokio::time::sleep(wait)).await?;
        let now = Known::at(&*self.web.live.moment(&self.web.api).await, &self.caller);
        let changed = now.came.iter().filter(|(channel, count)| self.known.came.get(*channel) != Some(count));
        let words = told(&changed.map(|(channel, _)| channel.as_str()).collect());
        self.known = now;
        Some(words)
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
fn told(channels: &BTreeSet<&str>) -> Bytes {
    let names: Vec<&str> = channels.iter().copied().collect();
    Bytes::from(format!("event: news\ndata: {}\n\n", names.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pages look at once, and the one that looked first is done last.
    #[test]
    fn what_was_told_of_never_goes_back() {
        let (live, early) = (LivePages::default(), Instant::now());
        let late = early + Duration::from_millis(1);
        let moment = |at| Moment { at, came: BTreeMap::new(), much: 0, stirs: BTreeMap::new() };
        live.newest(moment(late));
        assert_eq!(live.newest(moment(early)).at, late, "it hears of the later one too");
        assert_eq!(live.told_of(), Some(late));
        assert_eq!(live.newest(moment(late + Duration::from_millis(1))).at, late + Duration::from_millis(1));
    }
}
