//! Taking in: many webhooks in one transaction, each as if it had come alone.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use hapax_domain::{EventId, ids};

use super::engine::{First, Pool, Trouble, Tx, Wanted};
use super::records::{Carried, EventRec, Hash, ItemRec, KeyRec, Place, Queue, lane_of_event, own_lane, thread_hash};
use super::run::Step;
use super::threads::{names_in, talker};
use super::work::Work;
use crate::{Accepted, Arrival, NewEvent, Then, suspected};

/// Webhooks that share a transaction.
pub(super) struct AcceptAll(pub(super) Vec<Arrival>);

#[async_trait]
impl Step for AcceptAll {
    type Out = Vec<Vec<Accepted>>;
    const POOL: Pool = Pool::Ingest;

    fn numbers(&self) -> usize {
        self.0.iter().map(|arrival| arrival.events.len()).sum()
    }

    fn first(&self) -> First {
        let mut first = First::default();
        for (arrival, new) in self.0.iter().flat_map(|arrival| arrival.events.iter().map(move |new| (arrival, new))) {
            first.keys.push(new.event.key.0);
            first.keys.extend(new.event.guard.map(|guard| guard.0));
            if new.then == Then::Deliver && new.event.lane().is_some() {
                first.lanes.push(lane_of_event(&arrival.channel, &new.event, 0));
            }
            first.names.extend(names_in(&new.event));
            first.threads.extend(talker(&new.event).map(|peer| (new.event.account.clone(), peer.clone())));
        }
        first
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Vec<Accepted>>, Trouble> {
        let now_ms = tx.now_ms();
        let numbers: Vec<Vec<u64>> = self.0.iter().map(|arrival| arrival.events.iter().map(|_| tx.number()).collect()).collect();
        let holders = self.claim(tx, &numbers, now_ms).await?;
        let mut verdicts: Vec<Vec<Accepted>> =
            self.0.iter().zip(&numbers).map(|(arrival, own)| judge(arrival, own, &holders)).collect();
        let suspects = self.guard(tx, &numbers, &verdicts, now_ms).await?;
        for ((arrival, numbers), verdicts) in self.0.iter().zip(&numbers).zip(&mut verdicts) {
            for ((new, number), verdict) in arrival.events.iter().zip(numbers).zip(verdicts) {
                if let Some(first) = suspects.get(number).filter(|_| new.event.suspects_full) {
                    *verdict = Accepted::Duplicate(*first);
                }
            }
        }
        let mut work = Work::new(now_ms);
        self.load(tx, &mut work, &verdicts).await?;
        for ((arrival, numbers), verdicts) in self.0.iter().zip(&numbers).zip(&verdicts) {
            work.record(arrival, numbers, verdicts, &suspects);
        }
        if verdicts.iter().flatten().any(|verdict| verdict.is_new()) {
            tx.save(&work.changes()).await?;
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
    /// Who holds each key now, we or others.
    async fn claim<T: Tx>(&self, tx: &mut T, numbers: &[Vec<u64>], now_ms: i64) -> Result<HashMap<Hash, KeyRec>, Trouble> {
        let mut first: HashMap<Hash, KeyRec> = HashMap::new();
        for (arrival, numbers) in self.0.iter().zip(numbers) {
            for (new, &event) in arrival.events.iter().zip(numbers) {
                first.entry(new.event.key.0).or_insert_with(|| KeyRec {
                    key: new.event.key.0,
                    event,
                    at_ms: now_ms,
                    fingerprint: new.event.fingerprint,
                    expires_ms: now_ms + arrival.window_of(&new.event),
                });
            }
        }
        let mut keys: Vec<KeyRec> = first.values().cloned().collect();
        keys.sort_unstable_by_key(|key| key.key);
        for holder in tx.claim(&keys).await?.into_iter().flatten() {
            first.insert(holder.key, holder);
        }
        Ok(first)
    }

    /// Claims what the new events were signed with. Gives those of them whose guard another event holds, and that event.
    async fn guard<T: Tx>(
        &self,
        tx: &mut T,
        numbers: &[Vec<u64>],
        verdicts: &[Vec<Accepted>],
        now_ms: i64,
    ) -> Result<HashMap<u64, EventId>, Trouble> {
        let mut first: HashMap<Hash, KeyRec> = HashMap::new();
        let mut guarded: Vec<(Hash, u64)> = Vec::new();
        for ((arrival, numbers), verdicts) in self.0.iter().zip(numbers).zip(verdicts) {
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
    async fn load<T: Tx>(&self, tx: &mut T, work: &mut Work, verdicts: &[Vec<Accepted>]) -> Result<(), Trouble> {
        let fresh = || self.0.iter().zip(verdicts).flat_map(|(arrival, verdicts)| new_in(arrival, verdicts));
        let mut wanted = Wanted::default();
        for (arrival, _, new) in fresh() {
            let event = &new.event;
            if new.then == Then::Deliver && event.lane().is_some() {
                wanted.lanes.push(lane_of_event(&arrival.channel, event, 0));
            }
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
        for (_, _, new) in fresh() {
            let account = &new.event.account;
            if let Some(peer) = talker(&new.event) {
                wanted.threads.push(thread_hash(account, peer));
            }
            for peer in names_in(&new.event).filter_map(|name| work.names.get(&name)) {
                wanted.threads.push(thread_hash(account, peer));
                wanted.names.push((account.clone(), peer.clone()));
            }
        }
        let named = work.provider_names.values().filter_map(|name| name.message);
        wanted.messages.extend(named.filter(|message| work.messages.get(message).is_none()));
        wanted.outs.clone_from(&wanted.messages);
        wanted.names.retain(|name| !work.names.contains_key(name));
        work.load(tx, wanted).await?;

        // Those in doubt are in lanes of their own, with nobody else in them.
        let doubted: Vec<Hash> = work.outs.values().filter(|out| out.unknown).map(|out| out.lane).collect();
        work.load(tx, Wanted { lanes: doubted, ..Wanted::default() }).await
    }
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
        Some(match (holder.event == number, holder.fingerprint == new.event.fingerprint) {
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
            .find(|(_, _, new)| !matches!(new.then, Then::Quarantine { .. }))
            .and_then(|(_, place, _)| numbers.get(place).copied());
        for (_, place, new) in new_in(arrival, verdicts) {
            let Some(&number) = numbers.get(place) else { continue };
            let webhook = match &new.then {
                Then::Quarantine { .. } => number,
                Then::Keep | Then::Deliver => carrier.unwrap_or(number),
            };
            let suspect = suspects.get(&number).copied();
            let item = self.line_up(arrival, new, suspect, (number, webhook), &mut items);
            let is_ours = suspect.is_some() || self.hear_word(&new.event);
            let part = matches!(new.then, Then::Quarantine { .. });
            // An echo of a message that is in the thread already is not said twice.
            let thread = if part || is_ours { None } else { self.hear_message(&new.event, &arrival.channel, number) };
            let body = match &new.then {
                Then::Quarantine { part, .. } => part,
                Then::Keep | Then::Deliver => &arrival.body,
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

    /// Puts a new event where it belongs; returns its item. Events of one lane in one webhook are one item.
    fn line_up(
        &mut self,
        arrival: &Arrival,
        NewEvent { event, then }: &NewEvent,
        suspect: Option<EventId>,
        (number, webhook): (u64, u64),
        items: &mut HashMap<Hash, u64>,
    ) -> Option<u64> {
        let now_ms = self.now_ms;
        let mut item = ItemRec {
            number,
            received_ms: now_ms,
            channel: Arc::clone(&arrival.channel),
            lane: lane_of_event(&arrival.channel, event, number),
            place: Place::InLane,
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
        match then {
            Then::Keep => return None,
            Then::Quarantine { why, .. } => {
                item.place = Place::Quarantined;
                item.why = Some(why.clone());
                item.lane = own_lane(Queue::Inbox, number);
            }
            Then::Deliver if suspect.is_some() => {
                item.place = Place::Parked;
                item.why = suspect.map(suspected);
            }
            Then::Deliver => {
                if let Some(&first) = items.get(&item.lane) {
                    if let Some(open) = self.items.change(&first) {
                        open.events.push(number);
                    }
                    return Some(first);
                }
                items.insert(item.lane, number);
            }
        }
        self.add_item(item);
        Some(number)
    }
}
