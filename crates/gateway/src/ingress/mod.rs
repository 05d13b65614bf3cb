//! From a request on `/in/{channel}` to events on disk: capped body, verify, parse, accept, reply.
//!
//! *Invariant:* nothing is asked of the store before the signature was checked, and 200 is never said of what is not on disk.

mod answer;
mod body;
mod drain;
mod headers;
mod seen;
pub mod spool;
mod store_failure;
mod suspects;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use hyper::body::Body;
use tokio::time::Instant;

pub use self::answer::Counted;
use self::answer::{Reply, come_again, counted, counted_in, later, passed_on, problem, problem_as, spoken};
use self::body::{BadBody, BodyRoom, ChannelRoom, Within};
use crate::api::Code;
use hapax_domain::{ChannelKey, Coalesce, Event, EventId, EventKey, Identity, Kind, fingerprint, limits};
use hapax_providers::{Parsed, Problem, Provider, RawRequest, Refused};
use hapax_store::clock::{Both, Clock};
use hapax_store::{Accepted, Arrival, Beside, Disposition, NewEvent, Reason, Store, StoreError, in_time, keep_beside, too_slow};

pub use self::seen::Seen;
use self::spool::{Gate, Spool};
use self::store_failure::{RETRY_AFTER_S, STORE_PATIENCE, refuse};
use self::suspects::Suspects;
use crate::channels::{Channel, Channels};
use crate::connections::alarm::Alarm;
use crate::connections::client::Client;
use crate::connections::peer::Proxies;
use crate::delivery::{Answers, Delivery, Verdict, as_json};
use crate::settings::{Deliver, Limits, Mode, OnStoreFailure, TurnFormat};
use crate::telemetry::traces::Times;
use crate::telemetry::{ChannelTelemetry, Disbelief, Memory, RefusedWhy, Telemetry};

/// Where webhooks come in; the channel's name follows.
pub const PATH: &str = "/in/";

/// The longest a provider's request is kept open in proxy mode; most providers give up at 30 s.
const PROXY_WAIT_MAX_MS: i64 = 25_000;

/// Conflicts of one webhook that are kept at the same time.
const CONFLICTS_AT_ONCE: usize = 64;

/// How long the store may take to count copies; a count is a hint.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// The public listener, with everything per channel made ready.
pub struct Ingress {
    channels: HashMap<Box<str>, IngressChannel>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    seen: Arc<Seen>,
    room: BodyRoom,
    /// Headers in which some channel here expects a proof.
    proofs: Vec<HeaderName>,
    proxies: Proxies,
    body_timeout: Duration,
    answers: Arc<Answers>,
    telemetry: Arc<Telemetry>,
    spool: Option<Arc<Spool>>,
    delivery: Arc<Delivery>,
}

/// What ingress works with.
pub struct Links {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    /// Where delivery tells how it went, for providers that wait for it.
    pub answers: Arc<Answers>,
    /// Where webhooks wait while the store is away, if any channel wants that.
    pub spool: Option<Arc<Spool>>,
    /// Takes webhooks that are passed by a store that is away.
    pub delivery: Arc<Delivery>,
    pub telemetry: Arc<Telemetry>,
    /// What is surely taken.
    pub seen: Arc<Seen>,
    /// Whose word about a client's address counts.
    pub proxies: Proxies,
}

/// One channel as ingress needs it.
struct IngressChannel {
    name: Arc<str>,
    key: ChannelKey,
    provider: Arc<dyn Provider>,
    deliver: Deliver,
    window_ms: i64,
    /// As long as the provider goes on retrying: so long is a key believed that stands in for an id.
    retries_ms: i64,
    /// The same signed body under another id is a suspected replay.
    replay_guard: bool,
    suspects: Suspects,
    room: ChannelRoom,
    /// In proxy mode: how long a request is kept open.
    proxy_wait: Option<Duration>,
    coalesce: Option<Coalesce>,
    /// Its webhooks are delivered in a JSON array, which can hold only JSON.
    in_array: bool,
    on_store_failure: OnStoreFailure,
    /// Shut while webhooks of this channel are in the spool; `None`: there never are any.
    gate: Option<Arc<Gate>>,
    telemetry: ChannelTelemetry,
}

/// Told apart from every other webhook: what has no identity of its own gets this one's. Drawn when it is asked for.
#[derive(Default)]
pub(super) struct Nonce(OnceLock<[u8; 16]>);

impl Nonce {
    fn bytes(&self) -> &[u8; 16] {
        self.0.get_or_init(rand::random)
    }
}

/// Why a webhook is quarantined that would keep its whole turn from the bot.
const NO_JSON: &str = "its body is not JSON, and `coalesce_format = \"array\"` can hold only JSON; let the sender send JSON, or give \
                       such webhooks a channel without `coalesce`";

/// A key that nothing else has need not be remembered for long.
const UNKNOWN_WINDOW_MS: i64 = 60_000;

impl Ingress {
    pub fn new(channels: &Channels, limits: &Limits, links: Links) -> Self {
        let Links { store, clock, answers, spool, delivery, telemetry, seen, proxies } = links;
        let room = BodyRoom::new(limits.bodies_bytes);
        let ready = channels.iter().map(|Channel { settings: channel, provider, .. }| {
            let proxy_wait = (channel.mode == Mode::Proxy && channel.has_target())
                .then(|| Duration::from_millis(channel.timeout_ms.clamp(0, PROXY_WAIT_MAX_MS) as u64));
            let channel = IngressChannel {
                telemetry: telemetry.channel(&channel.name),
                name: Arc::clone(&channel.name),
                key: ChannelKey::new(&channel.name),
                provider: Arc::clone(provider),
                retries_ms: channel.provider.retries_ms(),
                deliver: channel.deliver.clone(),
                window_ms: channel.window_ms,
                coalesce: channel.turns.map(|turns| turns.coalesce),
                in_array: channel.turns.is_some_and(|turns| turns.format == TurnFormat::Array),
                replay_guard: channel.replay_guard,
                suspects: Suspects::default(),
                room: room.channel(channel.max_body),
                proxy_wait,
                on_store_failure: channel.on_store_failure,
                gate: spool.as_ref().and_then(|spool| spool.gate(&channel.name)),
            };
            (Box::from(&*channel.name), channel)
        });
        let channels: HashMap<Box<str>, IngressChannel> = ready.collect();
        let mut proofs: Vec<HeaderName> =
            channels.values().flat_map(|channel| channel.provider.signature_headers().iter().cloned()).collect();
        proofs.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        proofs.dedup();
        Self {
            channels,
            proofs,
            proxies,
            room,
            delivery,
            store,
            clock,
            seen,
            body_timeout: Duration::from_millis(limits.body_timeout_ms),
            answers,
            telemetry,
            spool,
        }
    }

    /// Answers one request for `/in/{channel}`. Whoever has proved nothing cannot tell a channel that is not there from a wrong signature.
    /// `client` is nobody where hapax itself asks.
    pub async fn handle<B>(&self, request: Request<B>, client: Option<&Client>) -> Reply
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (head, body) = request.into_parts();
        let channel = head.uri.path().strip_prefix(PATH).and_then(|name| self.channels.get(name));
        if head.method != Method::POST && head.method != Method::GET {
            channel.inspect(|channel| channel.telemetry.refused(RefusedWhy::Method));
            let mut refused = problem(Code::MethodNotAllowed, "webhooks are sent by POST");
            refused.headers_mut().insert(http::header::ALLOW, HeaderValue::from_static("GET,POST"));
            return refused;
        }
        if channel.is_none() {
            self.telemetry.no_such_channel(head.uri.path().trim_start_matches(PATH));
        }
        let begun = Instant::now();
        let peer = client.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |client| client.peer.0);
        let from = self.proxies.origin(peer, &head.headers);
        let query = head.uri.query().map_or_else(String::new, str::to_owned);
        let mut request = RawRequest { method: head.method, query, headers: head.headers, body: Bytes::new() };
        if request.method == Method::GET {
            return shake_hands(channel, &request);
        }
        let Some(channel) = channel.filter(|channel| channel.provider.may_pass(&request.headers)) else {
            return self.turn_away(channel, &request.headers, body).await;
        };
        let within = Within { room: &self.room, channel: &channel.room, from, time: self.body_timeout };
        let mut share = match body::read(body, within).await {
            Ok((read, share)) => {
                request.body = read;
                share
            }
            Err(bad) => return refuse_body(Some(channel), bad),
        };
        if let Some(words) = channel.provider.handshake(&request) {
            return spoken(words);
        }
        let believed = || {
            share.proved();
            client.inspect(|client| client.standing.proved());
        };
        let alarm = client.map_or_else(Alarm::default, |client| client.alarm.clone());
        let traced = channel.telemetry.trace(&mut request.headers);
        let reply = self.take_in(channel, &request, &alarm, believed).await;
        let took = begun.elapsed();
        channel.telemetry.answered(took);
        if traced.is_some() {
            channel.telemetry.traced(traced, reply.status().as_u16(), Times { wall_ms: self.clock.wall_ms(), took });
        }
        reply
    }

    /// Refuses a request whose headers are enough to see that it will not be believed. One that carries some proof is read to its end first, as
    /// if the proof had to be compared with it.
    async fn turn_away<B>(&self, channel: Option<&IngressChannel>, headers: &HeaderMap, body: B) -> Reply
    where
        B: Body<Data = Bytes> + Unpin,
    {
        if self.proofs.iter().any(|name| headers.contains_key(name)) {
            let max_bytes = channel.map_or(limits::BODY_MAX_BYTES, |channel| channel.room.max_body());
            if let Err(bad) = body::drain(body, max_bytes, self.body_timeout).await {
                return refuse_body(channel, bad);
            }
        }
        no_entry(channel, Disbelief::NoSignature)
    }

    /// How much of the store's knowledge is in memory.
    pub fn memory(&self) -> Memory {
        self.seen.memory()
    }

    /// Counts the suspected replays that are kept, of every channel that looks out for them.
    pub async fn recount_suspects(&self) {
        for channel in self.channels.values().filter(|channel| channel.replay_guard) {
            let counted =
                in_time("counting suspected replays", FLUSH_PATIENCE, channel.suspects.recount(&*self.store, &channel.name));
            if let Err(error) = counted.await {
                self.telemetry.store_unavailable("inbox", &error);
            }
        }
    }

    /// Adds the copies counted since the last call to the store's.
    pub async fn flush_copies(&self) {
        let copies = self.seen.take_copies();
        if !copies.is_empty()
            && let Err(error) = in_time("counting copies", FLUSH_PATIENCE, self.store.note_copies(copies)).await
        {
            self.telemetry.store_unavailable("note_copies", &error);
        }
    }

    /// `believed` is called once the request has proved where it comes from.
    async fn take_in(&self, channel: &IngressChannel, request: &RawRequest, alarm: &Alarm, believed: impl FnOnce()) -> Reply {
        let Both { now_ms, wall_ms } = self.clock.both();
        let verified = match channel.provider.verify(request, wall_ms) {
            Ok(verified) => verified,
            Err(refused) => return no_entry(Some(channel), disbelief(refused)),
        };
        believed();
        if let Some(words) = channel.provider.challenge(&verified) {
            return spoken(words);
        }
        let nonce = Nonce::default();
        let mut events = channel.sort_out(channel.provider.parse(&verified), verified.body(), &nonce);
        if let Some(signed_ms) = verified.signed_ms().filter(|signed_ms| wall_ms - signed_ms > channel.window_ms) {
            events = events.into_iter().map(|new| channel.too_old(new, signed_ms, verified.body())).collect();
        }
        if events.is_empty() {
            channel.telemetry.ignored();
            return channel.counted(0, 0, false);
        }
        if let Some(known) = self.all_known(&events, now_ms) {
            self.seen.count_hits(known.len());
            return self.answer(channel, &events, &known, verified.body().len(), now_ms).await;
        }
        if channel.gate.as_ref().is_some_and(|gate| gate.is_shut()) {
            return self.put_in_spool(channel, &verified, &events, &nonce).await;
        }
        let headers = headers::keep(verified.headers(), channel.provider.signature_headers());
        let (name, body) = (Arc::clone(&channel.name), verified.body().clone());
        let (window_ms, coalesce) = (channel.window_ms, channel.coalesce);
        let arrival = Arc::new(Arrival { channel: name, window_ms, headers, body, events, coalesce });
        let deadline = Instant::now() + STORE_PATIENCE;
        let accepted = alarm.wait(deadline, self.store.accept(Arc::clone(&arrival))).await;
        let accepted = match accepted.unwrap_or_else(|| Err(too_slow("taking in", STORE_PATIENCE))) {
            Ok(accepted) => accepted,
            Err(error) => return self.in_trouble(channel, &verified, &arrival, &nonce, &error).await,
        };
        if has_conflict(&accepted) {
            let keeping = self.keep_conflicts(channel, &arrival, &accepted);
            if let Err(error) = in_time("keeping conflicts", deadline - Instant::now(), keeping).await {
                // What was new is in line: passed on or spooled it would be delivered twice.
                self.telemetry.store_unavailable("accept", &error);
                return refuse(channel, RETRY_AFTER_S);
            }
        }
        self.learn(&arrival, &accepted, now_ms);
        self.answer(channel, &arrival.events, &accepted, arrival.body.len(), now_ms).await
    }

    /// Counts what became of the events, and says it.
    async fn answer(
        &self,
        channel: &IngressChannel,
        events: &[NewEvent],
        accepted: &[Accepted],
        body_bytes: usize,
        now_ms: i64,
    ) -> Reply {
        let new = self.count(channel, events, accepted, body_bytes, now_ms);
        match channel.proxy_wait {
            None => channel.counted(new, accepted.len() - new, has_conflict(accepted)),
            Some(wait) => self.wait_for_target(channel, events, accepted, Instant::now() + wait, new).await,
        }
    }

    /// `Some` when no event of the webhook can be new.
    fn all_known(&self, events: &[NewEvent], now_ms: i64) -> Option<Vec<Accepted>> {
        events.iter().map(|NewEvent { event, .. }| self.seen.look(&event.key, event.fingerprint, now_ms)).collect()
    }

    fn learn(&self, arrival: &Arrival, accepted: &[Accepted], now_ms: i64) {
        for (NewEvent { event, .. }, accepted) in arrival.events.iter().zip(accepted) {
            self.seen.learn(event.key, event.fingerprint, *accepted, now_ms, arrival.window_of(event));
        }
    }

    /// Hands the webhook to the store, with all that belongs to it.
    async fn accept(&self, channel: &IngressChannel, arrival: &Arc<Arrival>) -> Result<Vec<Accepted>, StoreError> {
        let accepted = self.store.accept(Arc::clone(arrival)).await?;
        self.keep_conflicts(channel, arrival, &accepted).await?;
        Ok(accepted)
    }

    /// Keeps other contents of known keys beside the first, before anybody is told that they were taken.
    async fn keep_conflicts(&self, channel: &IngressChannel, arrival: &Arrival, accepted: &[Accepted]) -> Result<(), StoreError> {
        let mut beside = Vec::new();
        for (NewEvent { event, .. }, accepted) in arrival.events.iter().zip(accepted) {
            let Accepted::Conflict(first) = *accepted else { continue };
            let alone = channel.provider.rewrap(&arrival.body, &[event.index]).map(Bytes::from);
            beside.push(Beside {
                reason: Reason::Conflict,
                first,
                channel: Arc::clone(&channel.name),
                account: event.account.clone(),
                window_ms: channel.window_ms,
                why: "the same id came with another content".to_owned(),
                content: alone.unwrap_or_else(|| arrival.body.clone()),
                fingerprint: event.fingerprint,
            });
        }
        // A store far away takes its time for each: many at once share its transactions.
        while !beside.is_empty() {
            let some = beside.split_off(beside.len().saturating_sub(CONFLICTS_AT_ONCE));
            try_join_all(some.into_iter().map(|beside| keep_beside(&*self.store, beside))).await?;
        }
        Ok(())
    }

    /// Counts what became of the events; returns how many were new.
    fn count(
        &self,
        channel: &IngressChannel,
        events: &[NewEvent],
        accepted: &[Accepted],
        body_bytes: usize,
        now_ms: i64,
    ) -> usize {
        let mut new = 0;
        for (NewEvent { event, disposition }, accepted) in events.iter().zip(accepted) {
            match *accepted {
                Accepted::New(id) => {
                    new += 1;
                    channel.telemetry.without_id(id, event.identity);
                    match disposition {
                        Disposition::Quarantine { why, .. } => channel.telemetry.quarantined(id, why),
                        Disposition::Deliver | Disposition::Keep => channel.telemetry.show_accepted(id, event),
                    }
                }
                Accepted::Suspected(id) => {
                    new += 1;
                    channel.telemetry.suspected(id);
                    if channel.suspects.add(body_bytes) {
                        channel.telemetry.suspects_full();
                    }
                }
                Accepted::Duplicate(id) => {
                    self.seen.count_copy(id, false, now_ms);
                    channel.telemetry.duplicate(id);
                }
                Accepted::Conflict(id) => {
                    self.seen.count_copy(id, true, now_ms);
                    channel.telemetry.conflict(id);
                }
            }
        }
        if new > 0 {
            channel.telemetry.accepted(new as u64);
        }
        new
    }

    /// Proxy mode: all that goes to the target is waited for; the first answer is passed on, a failure goes before.
    async fn wait_for_target(
        &self,
        channel: &IngressChannel,
        events: &[NewEvent],
        accepted: &[Accepted],
        deadline: Instant,
        new: usize,
    ) -> Reply {
        let mut awaited: Vec<(EventId, bool)> = Vec::new();
        for (event, accepted) in events.iter().zip(accepted) {
            let goes = event.disposition == Disposition::Deliver && !matches!(accepted, Accepted::Suspected(_));
            if goes && !awaited.iter().any(|(id, _)| *id == accepted.event()) {
                awaited.push((accepted.event(), accepted.is_new()));
            }
        }
        let mut answer = None;
        for (event, first) in awaited {
            match self.answers.wait(&*self.store, event, first, deadline).await {
                Ok(Some(Verdict::Answered(given))) => answer = answer.or(Some(given)),
                Ok(Some(Verdict::Failed { status })) => {
                    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
                    let detail = "the target did not take it yet; it will be tried again";
                    return come_again(problem_as(status, Code::TargetFailed, detail), 1);
                }
                Ok(None) if first => return later(Code::TargetTimeout, "the target is still at it", 5),
                Ok(None) => return later(Code::DeliveryInProgress, "the first request is still running", 5),
                Err(error) => {
                    self.telemetry.store_unavailable("answer", &error);
                    return later(Code::StoreUnavailable, "the store cannot be read now", 1);
                }
            }
        }
        answer.map_or_else(|| channel.counted(new, accepted.len() - new, has_conflict(accepted)), passed_on)
    }
}

impl IngressChannel {
    /// Says how many events of a webhook were new and how many were copies, in the provider's own words where it has some.
    fn counted(&self, accepted: usize, repeated: usize, conflict: bool) -> Reply {
        match self.provider.thanks() {
            Some(words) => counted_in(words, accepted, repeated, conflict),
            None => counted(accepted, repeated, conflict),
        }
    }

    /// Says of every part of the webhook what is to become of it.
    fn sort_out(&self, parsed: Parsed, body: &Bytes, nonce: &Nonce) -> Vec<NewEvent> {
        // The signature covers the body and nothing else; where a body is one event, it stands for that event.
        let guarded = self.replay_guard && parsed.events.len() == 1;
        let signed = guarded.then(|| EventKey::from_content("signed", &self.name, body));
        let suspects_full = self.suspects.is_full();
        let fits = !self.in_array || as_json(body).is_some();
        let mut events = Vec::with_capacity(parsed.events.len() + parsed.problems.len());
        let mut alike: HashMap<EventKey, u32> = HashMap::new();
        events.extend(parsed.events.into_iter().map(|mut event| {
            let wanted = self.deliver.kinds.contains(&event.kind) && (!event.echo || self.deliver.echoes);
            let (key, window_ms) = self.identify(&event, nonce, &mut alike);
            // An adapter's own guard is another name of the very message: what holds it is the same.
            event.guard_suppresses = event.guard.is_some() || suspects_full;
            event.guard = event.guard.or(signed).map(|guard| guard.in_channel(&self.key));
            event.key = key.in_channel(&self.key);
            event.window_ms = Some(window_ms);
            let disposition = match (wanted, fits) {
                (true, true) => Disposition::Deliver,
                (true, false) => Disposition::Quarantine { why: NO_JSON.to_owned(), part: body.clone() },
                (false, _) => Disposition::Keep,
            };
            NewEvent { disposition, event }
        }));
        events.extend(parsed.problems.into_iter().map(|problem| self.quarantine(problem)));
        events
    }

    /// What was signed before the window began may be a replay of something that nobody remembers.
    fn too_old(&self, new: NewEvent, signed_ms: i64, body: &Bytes) -> NewEvent {
        let why = format!("signed at {signed_ms} ms, longer ago than keys are remembered: it may be a replay");
        NewEvent { disposition: Disposition::Quarantine { why, part: body.clone() }, ..new }
    }

    /// The key of an event, and how long it is remembered. In doubt two events are two.
    fn identify(&self, event: &Event, nonce: &Nonce, alike: &mut HashMap<EventKey, u32>) -> (EventKey, i64) {
        match event.identity {
            Identity::Named => (event.key, self.window_ms),
            Identity::Unknown => (event.key.with(nonce.bytes()).with(&event.index.to_le_bytes()), self.unknown_window_ms()),
            Identity::Fallback => {
                // Equal parts of one webhook are not copies of each other.
                let before = alike.entry(event.key).or_default();
                *before += 1;
                (event.key.with(&before.to_le_bytes()), self.retries_ms.min(self.window_ms))
            }
        }
    }

    /// One that may lie in the spool is known until it has left that.
    fn unknown_window_ms(&self) -> i64 {
        if self.gate.is_some() { self.window_ms } else { UNKNOWN_WINDOW_MS }
    }

    fn quarantine(&self, problem: Problem) -> NewEvent {
        let key = EventKey::from_content(self.provider.name(), &self.name, &problem.part).in_channel(&self.key);
        let event = Event::new(Kind::Notice, &self.name, "", key, fingerprint::of_bytes(&problem.part));
        let event = Event { index: problem.index, ..event };
        NewEvent { event, disposition: Disposition::Quarantine { why: problem.why, part: problem.part } }
    }
}

fn has_conflict(accepted: &[Accepted]) -> bool {
    accepted.iter().any(|accepted| matches!(accepted, Accepted::Conflict(_)))
}

/// What everybody hears who has proved nothing.
fn no_entry(channel: Option<&IngressChannel>, why: Disbelief) -> Reply {
    channel.inspect(|channel| channel.telemetry.disbelieved(why));
    problem(Code::Unauthorized, "there is no such channel, or the signature is missing, wrong or too old")
}

/// A GET is a handshake or nothing.
fn shake_hands(channel: Option<&IngressChannel>, request: &RawRequest) -> Reply {
    match channel.and_then(|channel| channel.provider.handshake(request)) {
        Some(words) if words.status < 300 => spoken(words),
        _ => no_entry(channel, Disbelief::Handshake),
    }
}

fn disbelief(refused: Refused) -> Disbelief {
    match refused {
        Refused::NoSignature => Disbelief::NoSignature,
        Refused::BadSignature => Disbelief::BadSignature,
        Refused::Stale => Disbelief::Stale,
    }
}

fn refuse_body(channel: Option<&IngressChannel>, bad: BadBody) -> Reply {
    let (why, code, detail) = match bad {
        BadBody::TooLarge => (RefusedWhy::TooLarge, Code::TooLarge, "the body is larger than this channel takes"),
        BadBody::Slow => (RefusedWhy::Slow, Code::BodyTimeout, "the body took too long to arrive"),
        BadBody::Cut => (RefusedWhy::Cut, Code::InvalidRequest, "the body broke off"),
        BadBody::NoRoom => (RefusedWhy::Overload, Code::Overloaded, "too much is being handled at once; send it again"),
    };
    channel.inspect(|channel| channel.telemetry.refused(why));
    if bad == BadBody::NoRoom { later(code, detail, 1) } else { problem(code, detail) }
}
