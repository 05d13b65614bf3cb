//! Taking in: many webhooks in one transaction, each as if it had come alone.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use hapax_domain::limits::NAME_HOPS_MAX;
use hapax_domain::{Coalesce, Direction, EventId, ThreadId, fingerprint, ids};

use super::engine::{First, FirstKey, Pool, Tx, TxError, Wanted};
use super::records::{
    Carried, EventRec, Hash, ItemPlace, ItemRec, KeyRec, Queue, inbox_lane, outbox_lane, own_lane, thread_hash,
};
use super::run::Step;
use super::threads::{Said, names_in, spelt_names, talker};
use super::work::Work;
use crate::{Accepted, Arrival, Disposition, NewEvent, suspected};

/// Webhooks that share a transaction.
pub(super) struct AcceptAll {
    arrivals: Vec<Arc<Arrival>>,
    /// Keys of copies that came under another name of their message: such a copy may hold no key of its own. Found out while the step runs,
    /// which is then run again.
    other_names: Mutex<HashSet<Hash>>,
}

#[async_trait]
impl Step for AcceptAll {
    type Out = Vec<Vec<Accepted>>;
    const POOL: Pool = Pool::Ingest;

    fn numbers(&self) -> usize {
        self.arrivals.iter().map(|arrival| arrival.events.len()).sum()
    }

    fn first(&self) -> First {
        let mut first = First { claimed: self.keys(), ..First::default() };
        first.claimed.retain(|key| !self.other_names().contains(&key.key));
        for (arrival, new) in self.arrivals.iter().flat_map(|arrival| arrival.events.iter().map(move |new| (arrival, new))) {
            first.keys.push(new.event.key.0);
            first.keys.extend(new.event.guard.map(|guard| guard.0));
            if let Some(spelt) = waits_in(new) {
                first.lanes.push(inbox_lane(&arrival.channel, Some(&spelt), 0));
            }
            // What waits under another name of the one who writes is found with the rest, so that of somebody new nothing is left to ask.
            for (account, peer) in names_in(&new.event).skip(1).filter(|_| talker(&new.event).is_some()) {
                first.lanes.push(inbox_lane(&arrival.channel, Some(&ThreadId { account, peer }), 0));
            }
            first.names.extend(names_in(&new.event));
            first.threads.extend(names_in(&new.event).next());
        }
        first
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Vec<Accepted>>, TxError> {
        let now_ms = tx.now_ms();
        let draw = |arrival: &Arc<Arrival>| arrival.events.iter().map(|_| tx.number()).collect();
        let numbers: Vec<Vec<u64>> = self.arrivals.iter().map(draw).collect();
        let holders = self.claim(tx, &numbers, now_ms).await?;
        let mut verdicts: Vec<Vec<Accepted>> =
            self.arrivals.iter().zip(&numbers).map(|(arrival, own)| judge(arrival, own, &holders)).collect();
        let suspects = self.guard(tx, &numbers, &verdicts, now_ms).await?;
        self.suppress(&numbers, &mut verdicts, &suspects)?;
        let mut work = Work::new(now_ms);
        self.load(tx, &mut work, &verdicts).await?;
        for ((arrival, numbers), verdicts) in self.arrivals.iter().zip(&numbers).zip(&verdicts) {
            work.record(arrival, numbers, verdicts, &suspects);
        }
        if tx.keeps_alone() {
            work.keep_alone();
        }
        if verdicts.iter().flatten().any(|verdict| verdict.is_new()) {
            tx.save(work.changes()).await?;
        }
        for verdict in verdicts.iter_mut().flatten() {
            if let Accepted::New(id) = *verdict
                && suspects.contains_key(&ids::number_of(id.0))
            {
                *verdict = Accepted::Suspected(id);
            }
        }
        Ok(verdicts)
    }
}

impl AcceptAll {
    pub(super) fn new(arrivals: Vec<Arc<Arrival>>) -> Self {
        Self { arrivals, other_names: Mutex::default() }
    }

    fn other_names(&self) -> MutexGuard<'_, HashSet<Hash>> {
        self.other_names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys of all events, each as it first comes, sorted.
    fn keys(&self) -> Vec<FirstKey> {
        let all = self.arrivals.iter().flat_map(|arrival| arrival.events.iter().map(move |new| (arrival, &new.event)));
        let all = all.enumerate().map(|(nth, (arrival, event))| FirstKey {
            key: event.key.0,
            nth,
            fingerprint: event.fingerprint,
            window_ms: arrival.window_of(event),
        });
        let mut keys: Vec<FirstKey> = all.collect();
        keys.sort_unstable_by_key(|key| (key.key, key.nth));
        keys.dedup_by_key(|key| key.key);
        keys
    }

    /// Who holds each key now, we or others.
    async fn claim<T: Tx>(&self, tx: &mut T, numbers: &[Vec<u64>], now_ms: i64) -> Result<HashMap<Hash, KeyRec>, TxError> {
        let numbers = numbers.concat();
        let claimed = |key: &FirstKey| KeyRec {
            key: key.key,
            event: numbers.get(key.nth).copied().unwrap_or_default(),
            at_ms: now_ms,
            fingerprint: key.fingerprint,
            expires_ms: now_ms + key.window_ms,
        };
        let mut keys: Vec<KeyRec> = self.keys().iter().map(claimed).collect();
        let mut first: HashMap<Hash, KeyRec> = keys.iter().map(|key| (key.key, key.clone())).collect();
        keys.retain(|key| !self.other_names().contains(&key.key));
        for holder in tx.claim(&keys).await?.into_iter().flatten() {
            first.insert(holder.key, holder);
        }
        Ok(first)
    }

    /// Of what is only counted where another event holds its guard, makes copies of that one.
    fn suppress(
        &self,
        numbers: &[Vec<u64>],
        verdicts: &mut [Vec<Accepted>],
        suspects: &HashMap<u64, EventId>,
    ) -> Result<(), TxError> {
        let (mut firsts, mut keys) = (HashMap::new(), HashSet::new());
        for ((arrival, numbers), verdicts) in self.arrivals.iter().zip(numbers).zip(&*verdicts) {
            for ((new, number), verdict) in arrival.events.iter().zip(numbers).zip(verdicts) {
                if let Some(first) = suspects.get(number).filter(|_| new.event.guard_suppresses) {
                    firsts.insert(verdict.event(), *first);
                    keys.insert(new.event.key.0);
                }
            }
        }
        let mut known = self.other_names();
        if *known != keys {
            *known = keys;
            return Err(TxError::Conflict("a message came under another name".to_owned()));
        }
        for verdict in verdicts.iter_mut().flatten() {
            if let Some(first) = firsts.get(&verdict.event()) {
                *verdict = Accepted::Duplicate(*first);
            }
        }
        Ok(())
    }

    /// Claims what the new events were signed with. Gives those of them whose guard another event holds, and that event.
    async fn guard<T: Tx>(
        &self,
        tx: &mut T,
        numbers: &[Vec<u64>],
        verdicts: &[Vec<Accepted>],
        now_ms: i64,
    ) -> Result<HashMap<u64, EventId>, TxError> {
        let mut first: HashMap<Hash, KeyRec> = HashMap::new();
        let mut guarded: Vec<(Hash, u64)> = Vec::new();
        for ((arrival, numbers), verdicts) in self.arrivals.iter().zip(numbers).zip(verdicts) {
            for (_, place, new) in new_in(arrival, verdicts) {
                let (Some(guard), Some(&event)) = (new.event.guard, numbers.get(place)) else { continue };
                let expires_ms = now_ms + arrival.window_ms;
                guarded.push((guard.0, event));
                first.entry(guard.0).or_insert(KeyRec { key: guard.0, event, at_ms: now_ms, fingerprint: 0, expires_ms });
            }
        }
        if guarded.is_empty() {
            return Ok(HashMap::new());
        }
        let mut keys: Vec<KeyRec> = first.values().cloned().collect();
        keys.sort_unstable_by_key(|key| key.key);
        for holder in tx.claim(&keys).await?.into_iter().flatten() {
            first.insert(holder.key, holder);
        }
        let suspect = |(guard, event): (Hash, u64)| {
            let holder = first.get(&guard).filter(|holder| holder.event != event)?;
            Some((event, EventId(ids::numbered(holder.at_ms, holder.event))))
        };
        Ok(guarded.into_iter().filter_map(suspect).collect())
    }

    /// Loads all that the new events may change.
    async fn load<T: Tx>(&self, tx: &mut T, work: &mut Work, verdicts: &[Vec<Accepted>]) -> Result<(), TxError> {
        let fresh = || self.arrivals.iter().zip(verdicts).flat_map(|(arrival, verdicts)| new_in(arrival, verdicts));
        let mut wanted = Wanted::default();
        for (arrival, _, new) in fresh() {
            let event = &new.event;
            wanted.lanes.extend(waits_in(new).map(|spelt| inbox_lane(&arrival.channel, Some(&spelt), 0)));
            wanted.names.extend(names_in(event));
            if event.says().is_some() {
                wanted.provider_names.push((event.account.clone(), event.id.clone()));
                wanted.messages.extend(event.handle.map(|id| ids::number_of(id.0)));
                wanted.outs.extend(event.handle.map(|id| ids::number_of(id.0)));
            }
            if event.status.is_some() && !event.echo {
                wanted.sending.push(event.account.clone());
            }
        }
        work.load(tx, wanted).await?;

        let mut wanted = Wanted::default();
        let named = work.provider_names.values().filter_map(|name| name.message);
        wanted.messages.extend(named.filter(|message| work.messages.get(message).is_none()));
        wanted.outs.clone_from(&wanted.messages);
        for _ in 0..NAME_HOPS_MAX {
            let led = work.where_names_lead(fresh());
            work.want_threads(&fresh, &mut wanted);
            work.load(tx, std::mem::take(&mut wanted)).await?;
            // A name that closes a circle of older data leads nowhere new, and yet elsewhere.
            if work.names.ahead().is_empty() && work.where_names_lead(fresh()) == led {
                break;
            }
        }
        work.load_groups(tx).await?;
        if self.arrivals.iter().any(|arrival| arrival.coalesce.is_some()) {
            let items = work.lanes.values().filter_map(|row| row.turn).collect();
            work.load(tx, Wanted { items, ..Wanted::default() }).await?;
        }

        // Those in doubt are in lanes of their own, with nobody else in them.
        let doubted: Vec<Hash> = work.outs.values().filter(|out| out.unknown).map(|out| out.lane).collect();
        work.load(tx, Wanted { lanes: doubted, ..Wanted::default() }).await
    }
}

impl Work {
    fn where_names_lead<'a>(&self, fresh: impl Iterator<Item = (&'a Arrival, usize, &'a NewEvent)>) -> Vec<Option<String>> {
        let peers = |new: &'a NewEvent| {
            let own = self.thread_of_event(&new.event).map(|thread| thread.peer);
            let led = |name: &'a String| self.root(&new.event.account, name).map(str::to_owned);
            std::iter::once(own).chain(spelt_names(&new.event).map(led))
        };
        fresh.flat_map(|(_, _, new)| peers(new)).collect()
    }

    /// Wants the threads of new events and their lanes, as far as is known where their names lead.
    fn want_threads<'a, F>(&self, fresh: &impl Fn() -> F, wanted: &mut Wanted)
    where
        F: Iterator<Item = (&'a Arrival, usize, &'a NewEvent)>,
    {
        wanted.names = self.names.ahead();
        let mut has_news = false;
        for (arrival, _, new) in fresh() {
            let Some(thread) = self.thread_of_event(&new.event) else { continue };
            if waits_in(new).is_some_and(|spelt| spelt != thread) {
                wanted.lanes.push(inbox_lane(&arrival.channel, Some(&thread), 0));
            }
            for (account, name) in names_in(&new.event) {
                wanted.threads.push(thread_hash(&account, self.root(&account, &name).unwrap_or(&name)));
                wanted.sure_names.push((account, name));
            }
            has_news |= talker(&new.event).is_some() && !self.others(&new.event, &thread).is_empty();
        }
        if has_news {
            self.want_circles(fresh(), wanted);
        }
    }

    /// Wants all lanes and names that may become one person's.
    fn want_circles<'a>(&self, fresh: impl Iterator<Item = (&'a Arrival, usize, &'a NewEvent)>, wanted: &mut Wanted) {
        let mut circles = Circles::default();
        for (arrival, _, NewEvent { event, .. }) in fresh {
            let Some(thread) = self.thread_of_event(event) else { continue };
            let others = self.others(event, &thread);
            let has_news = talker(event).is_some() && !others.is_empty();
            for name in spelt_names(event) {
                let met = self.root(&event.account, name).into_iter().chain([name.as_str()]);
                // Only a message says that its names are one person's.
                let met = met.chain(others.iter().filter(|_| has_news).map(String::as_str));
                let met = met.chain(has_news.then_some(thread.peer.as_str()));
                circles.meet(&event.account, met, &arrival.channel, has_news);
            }
        }
        for circle in circles.with_news() {
            let account = circle.account.as_str();
            for peer in &circle.names {
                let thread = ThreadId { account: account.to_owned(), peer: peer.clone() };
                wanted.lanes.extend(circle.channels.iter().map(|channel| inbox_lane(channel, Some(&thread), 0)));
                // Nobody is called so, and nothing was ever sent to this name: it would have become a name then.
                if self.names.is_known(account, peer) {
                    wanted.named.push(thread_hash(account, peer));
                    wanted.lanes.extend(circle.channels.iter().map(|channel| outbox_lane(channel, account, peer)));
                }
            }
        }
    }
}

/// Names that the events of a batch have to do with each other, by account: they may all become one person's.
#[derive(Default)]
struct Circles {
    all: Vec<Circle>,
    /// Which of them a name is in.
    of: HashMap<(String, String), usize>,
}

#[derive(Default)]
struct Circle {
    account: String,
    /// Empty once it has become part of another.
    names: BTreeSet<String>,
    channels: BTreeSet<Arc<str>>,
    /// Some event says of two names that they are one, which was not known.
    has_news: bool,
}

impl Circles {
    fn meet<'n>(&mut self, account: &str, names: impl Iterator<Item = &'n str>, channel: &Arc<str>, has_news: bool) {
        let at = self.all.len();
        let mut all = Circle { account: account.to_owned(), has_news, ..Circle::default() };
        all.channels.insert(Arc::clone(channel));
        for name in names {
            let before = self.of.insert((account.to_owned(), name.to_owned()), at).filter(|before| *before != at);
            let met = before.and_then(|before| self.all.get_mut(before)).map(std::mem::take).unwrap_or_default();
            for name in &met.names {
                self.of.insert((account.to_owned(), name.clone()), at);
            }
            all.names.insert(name.to_owned());
            all.names.extend(met.names);
            all.channels.extend(met.channels);
            all.has_news |= met.has_news;
        }
        self.all.push(all);
    }

    fn with_news(&self) -> impl Iterator<Item = &Circle> {
        self.all.iter().filter(|circle| circle.has_news)
    }
}

/// The thread in whose lane a new event is to wait, as its peer is spelt.
fn waits_in(new: &NewEvent) -> Option<ThreadId> {
    new.event.lane().filter(|_| new.disposition == Disposition::Deliver)
}

/// The events of an arrival that are new, with their place in it.
fn new_in<'a>(arrival: &'a Arrival, verdicts: &'a [Accepted]) -> impl Iterator<Item = (&'a Arrival, usize, &'a NewEvent)> {
    let new = arrival.events.iter().zip(verdicts).enumerate().filter(|(_, (_, verdict))| verdict.is_new());
    new.map(move |(place, (new, _))| (arrival, place, new))
}

fn judge(arrival: &Arrival, numbers: &[u64], holders: &HashMap<Hash, KeyRec>) -> Vec<Accepted> {
    let verdict = |(new, &number): (&NewEvent, &u64)| {
        let holder = holders.get(&new.event.key.0)?;
        let id = EventId(ids::numbered(holder.at_ms, holder.event));
        Some(match (holder.event == number, fingerprint::is_copy(holder.fingerprint, new.event.fingerprint)) {
            (true, _) => Accepted::New(id),
            (false, true) => Accepted::Duplicate(id),
            (false, false) => Accepted::Conflict(id),
        })
    };
    arrival.events.iter().zip(numbers).filter_map(verdict).collect()
}

impl Work {
    /// Records the new events of one webhook, in order.
    fn record(&mut self, arrival: &Arrival, numbers: &[u64], verdicts: &[Accepted], suspects: &HashMap<u64, EventId>) {
        let mut items: HashMap<Hash, u64> = HashMap::new();
        let carrier = new_in(arrival, verdicts)
            .find(|(_, _, new)| !matches!(new.disposition, Disposition::Quarantine { .. }))
            .and_then(|(_, place, _)| numbers.get(place).copied());
        for (_, place, new) in new_in(arrival, verdicts) {
            let Some(&number) = numbers.get(place) else { continue };
            let webhook = match &new.disposition {
                Disposition::Quarantine { .. } => number,
                Disposition::Keep | Disposition::Deliver => carrier.unwrap_or(number),
            };
            let suspect = suspects.get(&number).copied();
            let is_ours = suspect.is_some() || self.hear_word(&new.event);
            let part = matches!(new.disposition, Disposition::Quarantine { .. });
            // An echo of a message that is in the thread already is not said twice.
            let thread = if part || is_ours { None } else { self.learn_names(&new.event, &arrival.channel) };
            let item = self.line_up(arrival, new, suspect, (number, webhook), &mut items);
            let thread = thread.map(|thread| {
                let direction = if new.event.echo { Direction::Out } else { Direction::In };
                let said = Said { channel: &arrival.channel, number, direction, text: new.event.text.as_deref() };
                self.say(&thread, &said)
            });
            let body = match &new.disposition {
                Disposition::Quarantine { part, .. } => part,
                Disposition::Keep | Disposition::Deliver => &arrival.body,
            };
            let carried = (webhook == number).then(|| Carried {
                headers: arrival.headers.clone(),
                body: body.clone(),
                events: arrival.events.len() as u32,
            });
            let event = &new.event;
            self.new_events.push(EventRec {
                number,
                webhook,
                received_ms: self.now_ms,
                channel: Arc::clone(&arrival.channel),
                kind: event.kind,
                account: event.account.clone(),
                id: event.id.clone(),
                peer: event.peer.clone(),
                echo: event.echo,
                at_ms: event.at_ms,
                text: event.text.clone(),
                index: event.index,
                item,
                part,
                thread,
                replays: 0,
                body_bytes: body.len() as u64,
                carried,
            });
        }
    }

    /// Makes a new item part of the turn that its lane has open, or puts it in line; returns the item that its event is in.
    fn take_turn(&mut self, mut item: ItemRec, thread: ThreadId, coalesce: Option<Coalesce>) -> u64 {
        let (now_ms, number) = (self.now_ms, item.number);
        let Some(coalesce) = coalesce else {
            self.add_item(item, thread.account, Some(thread.peer));
            return number;
        };
        let lane = self.speaker(&item.lane);
        let open = self.lanes.get(&lane).and_then(|row| self.items.get(&row.turn?));
        let open = open.filter(|open| coalesce.takes(open.due_ms, open.events.len(), now_ms)).map(|open| open.number);
        if let Some(open) = open.and_then(|open| self.items.change(&open)) {
            open.events.append(&mut item.events);
            open.due_ms = coalesce.due_ms(open.received_ms, now_ms);
            let (turn, due_ms) = (open.number, open.due_ms);
            // Nobody holds a turn that is open; what is before it in its lane may be leased.
            if self.lanes.get(&lane).is_some_and(|row| row.first == turn)
                && self.leased_until(&lane).is_none()
                && let Some(row) = self.lanes.change(&lane)
            {
                row.due_ms = due_ms;
            }
            return turn;
        }
        item.due_ms = coalesce.due_ms(now_ms, now_ms);
        self.add_item(item, thread.account, Some(thread.peer));
        if let Some(row) = self.lanes.change(&lane) {
            row.turn = Some(number);
        }
        number
    }

    /// Puts a new event where it belongs; returns its item. Events of one lane in one webhook are one item.
    fn line_up(
        &mut self,
        arrival: &Arrival,
        NewEvent { event, disposition }: &NewEvent,
        suspect: Option<EventId>,
        (number, webhook): (u64, u64),
        items: &mut HashMap<Hash, u64>,
    ) -> Option<u64> {
        let now_ms = self.now_ms;
        let mut item = ItemRec {
            number,
            received_ms: now_ms,
            channel: Arc::clone(&arrival.channel),
            lane: own_lane(Queue::Inbox, number),
            place: ItemPlace::InLane,
            events: vec![number],
            events_ms: now_ms,
            webhook,
            attempt: 0,
            failures: 0,
            replay: None,
            why: None,
            due_ms: now_ms,
            replies: Vec::new(),
        };
        match disposition {
            Disposition::Keep => return None,
            Disposition::Quarantine { why, .. } => {
                item.place = ItemPlace::Quarantined;
                item.why = Some(why.clone());
            }
            Disposition::Deliver if suspect.is_some() => {
                item.place = ItemPlace::Parked;
                item.why = suspect.map(suspected);
            }
            Disposition::Deliver => {
                let Some((spelt, thread)) = event.lane().zip(self.thread_of_event(event)) else {
                    self.add_item(item, event.account.clone(), None);
                    return Some(number);
                };
                item.lane = inbox_lane(&arrival.channel, Some(&thread), 0);
                // What becomes part of an item of this webhook is in line already.
                if let Some(&first) = items.get(&item.lane) {
                    if let Some(open) = self.items.change(&first) {
                        open.events.push(number);
                    }
                    return Some(first);
                }
                self.inbox_lane(&arrival.channel, &spelt, &thread);
                let lane = item.lane;
                let taken = self.take_turn(item, thread, arrival.coalesce);
                items.insert(lane, taken);
                return Some(taken);
            }
        }
        self.items.put(number, item);
        Some(number)
    }
}
