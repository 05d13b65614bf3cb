//! The pure half of `hapax shadow`: from what was seen to what hapax would have done. What it remembers is bounded.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::{Event, EventKey, Identity};
use hapax_providers::dropin::{DropIn, Head, Upload, What, Whole, multipart};
use hapax_providers::{Provider, RawRequest, Verified, build, build_dropin};
use http::{HeaderMap, Method, header};
use tokio::sync::oneshot;

use super::Plan;

/// Events and people that are remembered; the oldest make room.
const EVENTS_MAX: usize = 200_000;
const PEOPLE_MAX: usize = 50_000;
/// Of one person.
const SENDS_MAX: usize = 32;
const COPIES_MAX: usize = 8;
const EARLY_MAX: usize = 10_000;

/// A send that equals one before it is taken for a second one of the same only so long after it, and after the copy.
const SECOND_SEND_MS: i64 = 10 * 60_000;

/// Something that passed.
pub(super) enum Seen {
    /// A webhook, whole.
    Came(Came),
    /// The bot has answered it (a status), could not be reached (none), or the provider gave up waiting.
    Ended { number: u64, status: Option<u16>, gave_up: bool },
    /// A call of the bot to its provider.
    Asked(Asked),
    /// Somebody waits until all before it is counted.
    Waited(oneshot::Sender<()>),
}

pub(super) struct Came {
    pub(super) number: u64,
    pub(super) at_ms: i64,
    pub(super) request: RawRequest,
}

pub(super) struct Asked {
    pub(super) at_ms: i64,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Seen {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Seen::Came(came) => came.request.body.len(),
            Seen::Asked(asked) => asked.body.len(),
            Seen::Ended { .. } | Seen::Waited(_) => 0,
        }
    }
}

/// What was counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub webhooks: u64,
    /// Webhooks whose signature is missing or wrong: hapax would have answered 401.
    pub refused: u64,
    /// Webhooks for which the bot could not be reached.
    pub unanswered: u64,
    pub events: u64,
    /// Parts that could not be read.
    pub unreadable: u64,
    /// Events that nothing tells from their copies.
    pub without_id: u64,
    pub copies: Copies,
    /// Copies with another content than the first.
    pub conflicts: u64,
    /// Calls to the provider that send something.
    pub sends: u64,
    /// Sends that repeat another after a copy: hapax would have sent one.
    pub double_sends: u64,
    /// Equal sends soon after each other without a copy: the bot's own doing.
    pub repeated_sends: u64,
    /// What was passed on and not looked at: too large, or too much at once.
    pub not_read: u64,
    /// Whether calls to the provider can be read at all.
    pub reads_sends: bool,
}

/// Copies that reached the bot, by what it had done with the first by then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    pub all: u64,
    /// It was still at work on it.
    pub at_work: u64,
    /// It had answered 2xx.
    pub taken: u64,
    /// It had failed, or could not be reached: a retry that it asked for.
    pub failed: u64,
    /// The provider had given up waiting; nobody knows.
    pub gave_up: u64,
}

pub(super) struct Watcher {
    provider: Arc<dyn Provider>,
    dropin: Option<Arc<dyn DropIn>>,
    checks: bool,
    window_ms: i64,
    retries_ms: i64,
    events: Bounded<EventKey, Known>,
    /// The keys of webhooks that are with the bot.
    open: HashMap<u64, Vec<EventKey>>,
    /// How webhooks ended that were answered before all of them had come.
    early: Bounded<u64, (Option<u16>, bool)>,
    people: Bounded<String, Person>,
    pub(super) counts: Counts,
}

/// An event that was seen before.
struct Known {
    first_ms: i64,
    window_ms: i64,
    fingerprint: u32,
    at_work: u32,
    last: Ended,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    NotYet,
    Taken,
    Failed,
    GaveUp,
}

/// What was said to somebody lately, and what came from him twice.
#[derive(Default)]
struct Person {
    sends: VecDeque<([u8; 16], i64)>,
    copies: VecDeque<Copied>,
}

/// An event that came twice.
struct Copied {
    first_ms: i64,
    copy_ms: i64,
    /// The second sends that it has led to: the run of a copy says a thing once, like any other.
    said_again: Vec<[u8; 16]>,
}

impl Copied {
    /// True when the send at `at_ms` may be the copy's, and the equal one at `before_ms` the first's.
    fn explains(&self, content: &[u8; 16], before_ms: i64, at_ms: i64) -> bool {
        self.first_ms <= before_ms
            && self.copy_ms <= at_ms
            && at_ms - self.copy_ms <= SECOND_SEND_MS
            && !self.said_again.contains(content)
            && self.said_again.len() < SENDS_MAX
    }
}

impl Watcher {
    pub(super) fn new(plan: &Plan) -> Self {
        let dropin = build_dropin(&plan.provider, None);
        Self {
            provider: build(&plan.provider),
            checks: plan.checks,
            window_ms: plan.window_ms,
            retries_ms: plan.provider.retries_ms(),
            events: Bounded::new(EVENTS_MAX),
            open: HashMap::new(),
            early: Bounded::new(EARLY_MAX),
            people: Bounded::new(PEOPLE_MAX),
            counts: Counts { reads_sends: dropin.is_some(), ..Counts::default() },
            dropin,
        }
    }

    pub(super) fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Came(came) => self.came(&came),
            Seen::Ended { number, status, gave_up } => self.ended(number, status, gave_up),
            Seen::Asked(asked) => self.asked(&asked),
            // Nobody need wait for it any more.
            Seen::Waited(counted) => drop(counted.send(())),
        }
    }

    fn came(&mut self, came: &Came) {
        self.counts.webhooks += 1;
        let wall_ms = jiff::Timestamp::now().as_millisecond();
        let verified = match self.checks {
            true => self.provider.verify(&came.request, wall_ms),
            // Nothing is done with what is read but counting it.
            false => Ok(Verified::kept(&came.request)),
        };
        let Ok(verified) = verified else {
            self.counts.refused += 1;
            return;
        };
        if self.provider.challenge(&verified).is_some() {
            return;
        }
        let parsed = self.provider.parse(&verified);
        self.counts.unreadable += parsed.problems.len() as u64;
        let mut alike: HashMap<EventKey, u32> = HashMap::new();
        let mut keys = Vec::with_capacity(parsed.events.len());
        for event in &parsed.events {
            self.counts.events += 1;
            if let Some((key, window_ms)) = self.identify(event, &mut alike) {
                self.meet(event, key, window_ms, came.at_ms);
                keys.push(key);
            }
        }
        if self.open.len() < EVENTS_MAX {
            self.open.insert(came.number, keys);
        }
        if let Some((status, gave_up)) = self.early.get(&came.number).copied() {
            self.settle(came.number, status, gave_up);
        }
    }

    /// As ingress does it: in doubt two events are two.
    fn identify(&mut self, event: &Event, alike: &mut HashMap<EventKey, u32>) -> Option<(EventKey, i64)> {
        match event.identity {
            Identity::Named => Some((event.key, self.window_ms)),
            Identity::Fallback => {
                let before = alike.entry(event.key).or_default();
                *before += 1;
                Some((event.key.with(&before.to_le_bytes()), self.retries_ms.min(self.window_ms)))
            }
            Identity::Unknown => {
                self.counts.without_id += 1;
                None
            }
        }
    }

    fn meet(&mut self, event: &Event, key: EventKey, window_ms: i64, at_ms: i64) {
        let fingerprint = event.fingerprint;
        let first = Known { first_ms: at_ms, window_ms, fingerprint, at_work: 0, last: Ended::NotYet };
        let (known, is_new) = self.events.entry(key, || first);
        if !is_new && at_ms - known.first_ms > known.window_ms {
            *known = Known { first_ms: at_ms, window_ms, fingerprint, at_work: 0, last: Ended::NotYet };
        } else if !is_new {
            let copies = &mut self.counts.copies;
            copies.all += 1;
            match (known.at_work, known.last) {
                (0, Ended::Taken) => copies.taken += 1,
                (0, Ended::Failed) => copies.failed += 1,
                (0, Ended::GaveUp) => copies.gave_up += 1,
                _ => copies.at_work += 1,
            }
            self.counts.conflicts += u64::from(known.fingerprint != fingerprint);
            for name in event.peer.iter().chain(&event.aliases) {
                let (person, _) = self.people.entry(name.clone(), Person::default);
                let copied = Copied { first_ms: known.first_ms, copy_ms: at_ms, said_again: Vec::new() };
                push(&mut person.copies, copied, COPIES_MAX);
            }
        }
        known.at_work += 1;
    }

    fn ended(&mut self, number: u64, status: Option<u16>, gave_up: bool) {
        self.counts.unanswered += u64::from(status.is_none() && !gave_up);
        if !self.open.contains_key(&number) {
            self.early.entry(number, || (status, gave_up));
        }
        self.settle(number, status, gave_up);
    }

    fn settle(&mut self, number: u64, status: Option<u16>, gave_up: bool) {
        for key in self.open.remove(&number).unwrap_or_default() {
            let Some(known) = self.events.get(&key) else { continue };
            known.at_work = known.at_work.saturating_sub(1);
            known.last = match status {
                // Once taken, it stays so, whatever becomes of a copy.
                _ if known.last == Ended::Taken => Ended::Taken,
                Some(200..=299) => Ended::Taken,
                _ if gave_up => Ended::GaveUp,
                _ => Ended::Failed,
            };
        }
    }

    fn asked(&mut self, asked: &Asked) {
        let Some((peer, content)) = self.effect(asked) else { return };
        self.counts.sends += 1;
        let at_ms = asked.at_ms;
        let (person, _) = self.people.entry(peer, Person::default);
        let before = person.sends.iter().filter(|(said, _)| *said == content).map(|(_, said_ms)| *said_ms);
        let before = before.filter(|said_ms| at_ms - said_ms <= SECOND_SEND_MS).collect::<Vec<_>>();
        let explains = |copied: &&mut Copied| before.iter().any(|said_ms| copied.explains(&content, *said_ms, at_ms));
        if let Some(copied) = person.copies.iter_mut().find(explains) {
            copied.said_again.push(content);
            self.counts.double_sends += 1;
        } else if !before.is_empty() {
            self.counts.repeated_sends += 1;
        }
        push(&mut person.sends, (content, at_ms), SENDS_MAX);
    }

    /// Whom a call says something to, and what; nothing for calls that send nothing.
    fn effect(&self, asked: &Asked) -> Option<(String, [u8; 16])> {
        let dropin = self.dropin.as_ref()?;
        let query = Some(asked.query.as_str()).filter(|query| !query.is_empty());
        let mut routed = dropin.route(&Head { method: &asked.method, path: &asked.path, query, headers: &asked.headers })?;
        let content_type = asked.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let what = match &routed.what {
            What::ByBody => dropin.by_body(&routed, query, content_type, &asked.body),
            what => what.clone(),
        };
        let What::Effect { .. } = what else { return None };
        routed.what = what;
        let effect = match content_type.filter(|_| multipart::is_multipart(content_type)) {
            Some(content_type) => {
                let parts = multipart::read_whole(content_type, &asked.body).ok()?;
                let upload = Upload { name: "shadow", content_type, length: asked.body.len() as u64, parts: &parts };
                dropin.effect_with_files(&routed, query, &upload)
            }
            None => dropin.effect(&routed, query, &Whole { content_type, body: &asked.body, name: "shadow" }),
        };
        effect.ok().map(|effect| (effect.peer, effect.content))
    }
}

fn push<T>(line: &mut VecDeque<T>, next: T, most: usize) {
    if line.len() >= most {
        line.pop_front();
    }
    line.push_back(next);
}

/// A map in which the oldest entries make room for new ones.
struct Bounded<K, V> {
    most: usize,
    entries: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K: Clone + Eq + Hash, V> Bounded<K, V> {
    fn new(most: usize) -> Self {
        Self { most, entries: HashMap::new(), order: VecDeque::new() }
    }

    fn get(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }

    /// What is there under this key, made now if nothing was; the second says that it was.
    fn entry(&mut self, key: K, make: impl FnOnce() -> V) -> (&mut V, bool) {
        let is_new = !self.entries.contains_key(&key);
        if is_new {
            if self.order.len() >= self.most
                && let Some(oldest) = self.order.pop_front()
            {
                self.entries.remove(&oldest);
            }
            self.order.push_back(key.clone());
        }
        (self.entries.entry(key).or_insert_with(make), is_new)
    }
}

#[cfg(test)]
mod tests;
