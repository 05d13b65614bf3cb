//! Seeded random sequences of calls, made to an engine and to the model at once: every answer must be the same.

mod claims;
mod forgetting;
mod late;
mod random;
mod registers;
mod telling;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::{Event, EventId, EventKey, ItemId, MessageId, Status, ThreadId};
use hapax_store::clock::Clock;
use hapax_store::{
    Accepted, Answer, Arrival, Disposition, EventQuery, InboxLease, InboxQuery, LeaseRequest, MessageRow, NewEvent, NewMessage,
    OutboxLease, OutboxQuery, Outcome, Page, Redrive, SendOutcome, Stats, Store, StoreError, Submitted, ThreadMessage,
    ThreadQuery,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::random::{
    named_twice, random_coalesce, random_message, random_name, random_nonce, random_peer, random_reply, random_webhook,
};
use self::telling::{facts, shown, shown_message};
use super::store_fixture::{HOLD_MS, MemoryFixture, StoreFixture, WINDOW_MS, ask, message, webhook_then};
use super::store_suite::sending::{ask_out, status};

/// How many messages, and how many replies, find room in the outbox.
const OUTBOX_MAX: usize = 3;

/// How many calls one sequence makes.
const CALLS: usize = 100;

/// How many sequences an engine is compared over; every seed is its own sequence. `HAPAX_SEQUENCES` asks for another number:
/// `make soak` runs 2,000.
pub fn sequences(usual: u64) -> u64 {
    std::env::var("HAPAX_SEQUENCES").ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// Runs one sequence; panics with the seed and the call at the first difference.
pub async fn compare(fixture: &dyn StoreFixture, seed: u64) {
    let moves = Moves { set_back: fixture.may_be_set_back(), all_teach: false };
    compare_and(fixture, seed, &moves).await;
}

/// The same with a clock that only runs forward: lists then have the same order on every engine. Names are said together only where they are
/// learnt: what waits under an alias that it did not teach waits under its own name once it is moved to another store.
pub async fn compare_in_order(fixture: &dyn StoreFixture, seed: u64) {
    compare_and(fixture, seed, &Moves { set_back: false, all_teach: true }).await;
}

/// What may happen in a sequence.
struct Moves {
    set_back: bool,
    all_teach: bool,
}

async fn compare_and(fixture: &dyn StoreFixture, seed: u64, moves: &Moves) {
    let model_fixture = MemoryFixture::at(fixture.clock().now_ms());
    let mut pair = Pair {
        model: model_fixture.open(),
        engine: fixture.open(),
        ids: HashMap::new(),
        leases: Vec::new(),
        events: Vec::new(),
        sends: Vec::new(),
        messages: Vec::new(),
        dated_to_ms: 0,
        seed,
        call: String::new(),
    };
    pair.limit_outbox();
    let mut random = StdRng::seed_from_u64(seed);
    // What came to the sequences later is drawn apart, so that a seed stays the story it was.
    let mut later = StdRng::seed_from_u64(!seed);
    let mut latest = StdRng::seed_from_u64(seed.rotate_left(32) ^ 1);
    for _ in 0..CALLS {
        if later.random_bool(0.01) {
            pair.forget().await;
        }
        if latest.random_bool(0.03) {
            pair.settle_late(&mut latest).await;
        }
        match random.random_range(0..206) {
            186..206 => pair.claim(&mut random).await,
            168..178 => pair.amend(&mut random).await,
            178..186 => pair.keep_piece(&mut random).await,
            166..168 if moves.set_back => pair.set_back(fixture, &model_fixture, &mut random).await,
            100..112 => pair.submit(&mut random, fixture.clock().now_ms()).await,
            112..128 => pair.lease_outbox(&mut random).await,
            128..148 => pair.work_outbox(&mut random).await,
            148..158 => pair.hear_word(&mut random).await,
            158..164 => pair.change_message(&mut random).await,
            164..166 => pair.mark_read(&mut random).await,
            0..34 => {
                let arrival = random_webhook(&mut random, named_twice(seed), moves.all_teach);
                let coalesce = random_coalesce(&mut random, seed);
                pair.accept(Arrival { coalesce, ..arrival }).await;
            }
            34..52 => pair.lease(random.random_range(0..4), later.random_bool(0.3)).await,
            52..70 => pair.settle(&mut random).await,
            70..74 => pair.extend(&mut random).await,
            74..78 => pair.redrive(&mut random).await,
            78..82 => pair.replay(&mut random).await,
            82..90 => {
                // Four long steps are well beyond the window: engines may remember a key a minute longer.
                let by = [1, 500, HOLD_MS, HOLD_MS * 3, WINDOW_MS / 4 + HOLD_MS][random.random_range(0..5)];
                fixture.clock().advance(by);
                model_fixture.clock().advance(by);
            }
            90..91 => pair.purge(&mut random, fixture.clock().now_ms()).await,
            91..93 => pair.crash(fixture, &model_fixture),
            _ => pair.glance(&mut random).await,
        }
    }
    pair.look().await;
}

struct Pair {
    model: Arc<dyn Store>,
    engine: Arc<dyn Store>,
    /// The engine's id for each of the model's. Numbering is the engine's own affair.
    ids: HashMap<uuid::Uuid, uuid::Uuid>,
    /// The same lease as both sides gave it, settled or not: late settles are part of the game.
    leases: Vec<(InboxLease, InboxLease)>,
    events: Vec<EventId>,
    sends: Vec<(OutboxLease, OutboxLease)>,
    messages: Vec<MessageId>,
    /// Before this time there may be rows from the future: how old those are is the engine's own affair.
    dated_to_ms: i64,
    seed: u64,
    call: String,
}

impl Pair {
    fn same<T: PartialEq + Debug>(&self, model: T, engine: T) {
        assert_eq!(model, engine, "seed {}: {} (left: model, right: engine)", self.seed, self.call);
    }

    fn fine<T>(&self, result: Result<T, StoreError>) -> T {
        result.unwrap_or_else(|error| unreachable!("seed {}: {}: {error}", self.seed, self.call))
    }

    /// The engine's name for what the model calls `id`; both meet here for the first time, or must agree.
    fn pair_up(&mut self, model: uuid::Uuid, engine: uuid::Uuid) {
        let known = *self.ids.entry(model).or_insert(engine);
        self.same(known, engine);
    }

    fn engine_event(&self, id: EventId) -> EventId {
        EventId(self.ids.get(&id.0).copied().unwrap_or(id.0))
    }

    async fn accept(&mut self, arrival: Arrival) {
        let shown =
            |new: &NewEvent| format!("{} of {:?} {:?}: {:?}", new.event.id, new.event.peer, new.event.aliases, new.disposition);
        let names: Vec<_> = arrival.events.iter().map(shown).collect();
        self.call = format!("accept {names:?}, {:?}", arrival.coalesce.is_some());
        let arrival = Arc::new(arrival);
        let model = self.fine(self.model.accept(Arc::clone(&arrival)).await);
        let engine = self.fine(self.engine.accept(arrival).await);
        self.same(model.len(), engine.len());
        for (model, engine) in model.into_iter().zip(engine) {
            self.same(std::mem::discriminant(&model), std::mem::discriminant(&engine));
            self.pair_up(model.event().0, engine.event().0);
            if let Accepted::New(id) = model {
                self.events.push(id);
            }
        }
    }

    async fn lease(&mut self, max: usize, outside: bool) {
        self.call = format!("lease {max}{}", if outside { " for a worker outside" } else { "" });
        let ask = || LeaseRequest { outside, ..ask(max) };
        let model = self.fine(self.model.lease_inbox(ask()).await);
        let engine = self.fine(self.engine.lease_inbox(ask()).await);
        self.same(model.len(), engine.len());
        for (model, engine) in model.into_iter().zip(engine) {
            self.pair_up(model.item.0, engine.item.0);
            self.same(model.events.len(), engine.events.len());
            for (a, b) in model.events.iter().zip(&engine.events) {
                self.pair_up(a.id.0, b.id.0);
                self.same((a.kind, a.index, &a.thread), (b.kind, b.index, &b.thread));
            }
            self.same(facts(&model), facts(&engine));
            if let Some((before_model, before_engine)) = self.leases.last() {
                assert!(
                    model.fence > before_model.fence && engine.fence > before_engine.fence,
                    "seed {}: fences grow",
                    self.seed
                );
            }
            self.leases.push((model, engine));
        }
    }

    async fn settle(&mut self, random: &mut StdRng) {
        if self.leases.is_empty() {
            return;
        }
        let newest = self.leases.len().saturating_sub(4);
        let (model, engine) = self.leases[random.random_range(newest..self.leases.len())].clone();
        let answer = Answer { status: 200, content_type: None, body: Bytes::from_static(b"ok") };
        let outcome = match random.random_range(0..8) {
            0..4 => {
                let replies = (0..random.random_range(0..3)).map(|_| random_reply(random)).collect();
                Outcome::Delivered {
                    status: 200,
                    answer: random.random_bool(0.3).then_some(answer).filter(|_| model.rest.is_empty()),
                    replies,
                }
            }
            4 => Outcome::Retry { wait_ms: random.random_range(0..2) * 500, why: "503".to_owned() },
            5 => Outcome::Parked { why: "no".to_owned(), charged: true },
            6 => Outcome::Parked { why: "no".to_owned(), charged: false },
            _ => {
                let why = random.random_bool(0.7).then(|| "cut".to_owned());
                Outcome::HandBack { wait_ms: 500, why, called: random.random_bool(0.5) }
            }
        };
        self.call = format!("settle {outcome:?}");
        let model = self.fine(self.model.settle_inbox(model.lane, model.fence, outcome.clone()).await);
        let engine = self.fine(self.engine.settle_inbox(engine.lane, engine.fence, outcome).await);
        self.same(model, engine);
        self.meet_messages().await;
    }

    async fn extend(&mut self, random: &mut StdRng) {
        self.call = "extend".to_owned();
        let from = random.random_range(0..=self.leases.len());
        let model = self.leases[from..].iter().map(|(lease, _)| (lease.lane, lease.fence)).collect();
        let engine = self.leases[from..].iter().map(|(_, lease)| (lease.lane, lease.fence)).collect();
        let model = self.fine(self.model.extend(model, HOLD_MS).await);
        let engine = self.fine(self.engine.extend(engine, HOLD_MS).await);
        self.same(model, engine);
    }

    fn limit_outbox(&self) {
        self.model.limit_outbox(OUTBOX_MAX);
        self.engine.limit_outbox(OUTBOX_MAX);
    }

    /// Finds out what both sides call the messages that came into the outbox otherwise than by `submit`.
    async fn meet_messages(&mut self) {
        let query = OutboxQuery { limit: 100, ..OutboxQuery::default() };
        let mut model = self.fine(self.model.outbox(query.clone()).await).rows;
        let mut engine = self.fine(self.engine.outbox(query).await).rows;
        // After the clock was set back the order of a list is the engine's own affair.
        if self.dated_to_ms > 0 {
            model.sort_by(|a, b| a.request_id.cmp(&b.request_id));
            engine.sort_by(|a, b| a.request_id.cmp(&b.request_id));
        }
        let requests = |rows: &[MessageRow]| rows.iter().map(|row| row.request_id.clone()).collect::<Vec<_>>();
        self.same(requests(&model), requests(&engine));
        for (model, engine) in model.into_iter().zip(engine) {
            if !self.ids.contains_key(&model.id.0) {
                self.messages.push(model.id);
            }
            self.pair_up(model.id.0, engine.id.0);
        }
    }

    fn engine_message(&self, id: MessageId) -> MessageId {
        MessageId(self.ids.get(&id.0).copied().unwrap_or(id.0))
    }

    async fn submit(&mut self, random: &mut StdRng, now_ms: i64) {
        let send_at_ms = random.random_bool(0.25).then(|| now_ms + random.random_range(-1..4) * 250);
        let new = NewMessage { send_at_ms, ..random_message(random) };
        self.call = format!("submit {} to {}", new.request_id, new.peer);
        let (model, engine) = (self.model.submit(new.clone()).await, self.engine.submit(new).await);
        if let Err(StoreError::OutboxFull { .. }) = model {
            return self.same(true, matches!(engine, Err(StoreError::OutboxFull { .. })));
        }
        let (model, engine) = (self.fine(model), self.fine(engine));
        self.same(std::mem::discriminant(&model), std::mem::discriminant(&engine));
        self.pair_up(model.message().0, engine.message().0);
        if let Submitted::New(id) = model {
            self.messages.push(id);
        }
    }

    async fn lease_outbox(&mut self, random: &mut StdRng) {
        let max = random.random_range(0..4);
        self.call = format!("lease outbox {max}");
        let model = self.fine(self.model.lease_outbox(ask_out(max)).await);
        let engine = self.fine(self.engine.lease_outbox(ask_out(max)).await);
        self.same(model.len(), engine.len());
        for (model, engine) in model.into_iter().zip(engine) {
            self.pair_up(model.message.0, engine.message.0);
            let facts = |lease: &OutboxLease| {
                (
                    (lease.attempt, lease.failures),
                    lease.in_doubt_since_ms,
                    lease.peer.clone(),
                    lease.request_id.clone(),
                    lease.until_ms,
                    lease.text.clone(),
                )
            };
            self.same(facts(&model), facts(&engine));
            self.sends.push((model, engine));
        }
    }

    /// Begins, extends or settles a send that was leased a while ago, or just now.
    async fn work_outbox(&mut self, random: &mut StdRng) {
        if self.sends.is_empty() {
            return;
        }
        let newest = self.sends.len().saturating_sub(3);
        let (model, engine) = self.sends[random.random_range(newest..self.sends.len())].clone();
        let outcome = match random.random_range(0..14) {
            0..4 => {
                self.call = format!("begin {}", model.message);
                let a = self.fine(self.model.begin(model.lane, model.fence).await);
                let b = self.fine(self.engine.begin(engine.lane, engine.fence).await);
                return self.same(a, b);
            }
            4 => {
                self.call = "extend outbox".to_owned();
                let a = self.fine(self.model.extend_outbox(vec![(model.lane, model.fence)], HOLD_MS).await);
                let b = self.fine(self.engine.extend_outbox(vec![(engine.lane, engine.fence)], HOLD_MS).await);
                return self.same(a, b);
            }
            5..7 => SendOutcome::Sent { provider_id: random_name(random) },
            7 => SendOutcome::Retry { wait_ms: 500, why: "429".to_owned(), charged: random.random_bool(0.5) },
            8 => SendOutcome::Failed { why: "no".to_owned() },
            9 => SendOutcome::Unknown { why: "cut".to_owned(), check_ms: None },
            10 => SendOutcome::Unknown { why: "cut".to_owned(), check_ms: Some(500) },
            11 => SendOutcome::Resend { wait_ms: 500, why: "cut".to_owned() },
            12 => SendOutcome::Found {
                provider_ids: (0..random.random_range(1..4)).map(|_| random_name(random)).collect(),
                why: "not there".to_owned(),
                check_ms: random.random_bool(0.5).then_some(500),
            },
            _ => SendOutcome::HandBack { wait_ms: 0 },
        };
        self.call = format!("settle {} {outcome:?}", model.message);
        let a = self.fine(self.model.settle_outbox(model.lane, model.fence, outcome.clone()).await);
        let b = self.fine(self.engine.settle_outbox(engine.lane, engine.fence, outcome).await);
        self.same(a, b);
    }

    /// What a provider says of our messages, true or not: statuses and echoes, by names that may be another's, with handles or without.
    async fn hear_word(&mut self, random: &mut StdRng) {
        let Some(&id) = self.messages.get(random.random_range(0..self.messages.len().max(1))) else { return };
        let handle = random.random_bool(0.4).then_some(id);
        let name = [Status::Sent, Status::Delivered, Status::Read, Status::Failed][random.random_range(0..4)];
        let event = match random.random_range(0..3) {
            0 => {
                let text = format!("hello m{}", random.random_range(0..12));
                let at_ms = random.random_bool(0.5).then(|| random.random_range(0..100));
                Event { echo: true, text: Some(text), handle, at_ms, ..message(&random_name(random), "ana") }
            }
            _ => status(&random_name(random), name, handle, random.random_range(0..100)),
        };
        self.call = format!("word {} {:?} {handle:?} echo {}", event.id, event.status, event.echo);
        let key = EventKey::new("generic", "acc", event.kind, &event.id, &[&random_nonce(&event, handle)]);
        let event = Event { key, ..event };
        let model = self.fine(self.model.accept(webhook_then(vec![(event.clone(), Disposition::Keep)]).into()).await);
        let theirs = Event { handle: handle.map(|id| self.engine_message(id)), ..event };
        let engine = self.fine(self.engine.accept(webhook_then(vec![(theirs, Disposition::Keep)]).into()).await);
        self.same(std::mem::discriminant(&model[0]), std::mem::discriminant(&engine[0]));
        self.pair_up(model[0].event().0, engine[0].event().0);
    }

    async fn change_message(&mut self, random: &mut StdRng) {
        let Some(&id) = self.messages.get(random.random_range(0..self.messages.len().max(1))) else { return };
        let theirs = self.engine_message(id);
        let (model, engine) = match random.random_bool(0.5) {
            true => {
                self.call = format!("retry {id}");
                (self.model.retry_message(id).await, self.engine.retry_message(theirs).await)
            }
            false => {
                self.call = format!("cancel {id}");
                (self.model.cancel_message(id).await, self.engine.cancel_message(theirs).await)
            }
        };
        let (model, engine) = (self.fine(model), self.fine(engine));
        self.same(model, engine);
    }

    async fn mark_read(&mut self, random: &mut StdRng) {
        let thread = ThreadId { account: "acc".to_owned(), peer: random_peer(random) };
        self.call = format!("mark read {thread}");
        let model = self.fine(self.model.mark_read(&thread).await);
        let engine = self.fine(self.engine.mark_read(&thread).await);
        self.same(model, engine);
    }

    fn some_event(&self, random: &mut StdRng) -> Option<(EventId, EventId)> {
        let id = *self.events.get(random.random_range(0..self.events.len().max(1)))?;
        Some((id, self.engine_event(id)))
    }

    async fn redrive(&mut self, random: &mut StdRng) {
        let Some((model, engine)) = self.some_event(random) else { return };
        let (model, engine) = match random.random_range(0..4) {
            0 => (Redrive::Event(model), Redrive::Event(engine)),
            1 => (Redrive::Item(ItemId(model.0)), Redrive::Item(ItemId(engine.0))),
            2 => (Redrive::Channel("shop".to_owned()), Redrive::Channel("shop".to_owned())),
            _ => (Redrive::All, Redrive::All),
        };
        self.call = format!("redrive {model:?}");
        let max = random.random_range(1..4);
        let model = self.fine(self.model.redrive(model, max).await);
        let engine = self.fine(self.engine.redrive(engine, max).await);
        self.same(model, engine);
        self.meet_messages().await;
    }

    async fn replay(&mut self, random: &mut StdRng) {
        let Some((model, engine)) = self.some_event(random) else { return };
        self.call = format!("replay {model}");
        let model = self.fine(self.model.replay(model).await);
        let engine = self.fine(self.engine.replay(engine).await);
        self.same(model.is_some(), engine.is_some());
        if let (Some(model), Some(engine)) = (model, engine) {
            self.pair_up(model.0, engine.0);
        }
    }

    /// The engine's file has one owner, so its last instance must be gone before it is opened again.
    fn crash(&mut self, fixture: &dyn StoreFixture, model_fixture: &MemoryFixture) {
        self.engine = Arc::clone(&self.model);
        self.model = if fixture.shares() { model_fixture.open() } else { model_fixture.crash() };
        self.engine = fixture.crash();
        self.limit_outbox();
    }

    /// Sets the clock back while nobody runs. Purges note the time before, and follow the clock where opening does not. By less than engines may
    /// remember a key longer, all in all.
    async fn set_back(&mut self, fixture: &dyn StoreFixture, model_fixture: &MemoryFixture, random: &mut StdRng) {
        if self.dated_to_ms > 0 {
            return;
        }
        let by = [HOLD_MS / 2, HOLD_MS, HOLD_MS * 3 / 2][random.random_range(0..3)];
        // Nobody is at work: how much longer a lease from before lasts is the engine's own affair.
        fixture.clock().advance(HOLD_MS * 4);
        model_fixture.clock().advance(HOLD_MS * 4);
        self.purge_for(&[("shop".to_owned(), 4 * WINDOW_MS)]).await;
        self.dated_to_ms = fixture.clock().now_ms();
        fixture.clock().advance(-by);
        model_fixture.clock().advance(-by);
        self.crash(fixture, model_fixture);
        self.purge_for(&[("shop".to_owned(), 4 * WINDOW_MS)]).await;
    }

    /// Purges to the end: how much goes at which step is the engine's own affair.
    async fn purge(&mut self, random: &mut StdRng, now_ms: i64) {
        let short = if now_ms <= self.dated_to_ms { WINDOW_MS } else { [1_000, WINDOW_MS][random.random_range(0..2)] };
        // Statuses that came early are kept as long as the channel that is kept longest.
        let retention =
            [("shop".to_owned(), short), ("archive".to_owned(), [1_000, 2, 1][random.random_range(0..3)] * WINDOW_MS)];
        self.purge_for(&retention).await;
    }

    async fn purge_for(&mut self, retention: &[(String, i64)]) {
        self.call = "purge".to_owned();
        for store in [&self.model, &self.engine] {
            while self.fine(store.purge(retention, 7).await).more {}
        }
    }

    /// A little of what can be asked, compared: enough to notice a difference near the call that made it.
    async fn glance(&mut self, random: &mut StdRng) {
        self.call = "glance".to_owned();
        for _ in 0..3 {
            if let Some((id, _)) = self.some_event(random) {
                self.look_at_event(id).await;
            }
        }
        if let Some(&id) = self.messages.get(random.random_range(0..self.messages.len().max(1))) {
            self.look_at_message(id).await;
        }
        self.look_who_is_with_the_bot().await;
        self.look_at_registers().await;
        self.look_at_claims().await;
        match random.random_range(0..4) {
            0 => self.look_at_threads().await,
            1 => self.look_at_lists().await,
            2 => self.look_at_outbox().await,
            _ => self.look_at_stats().await,
        }
    }

    /// Everything that can be asked, compared.
    async fn look(&mut self) {
        self.call = "look".to_owned();
        for &id in &self.events {
            self.look_at_event(id).await;
        }
        for &id in &self.messages {
            self.look_at_message(id).await;
        }
        self.look_at_threads().await;
        self.look_at_lists().await;
        self.look_at_outbox().await;
        self.look_at_names().await;
        self.look_at_registers().await;
        self.look_at_claims().await;
        self.look_at_pieces().await;
        self.look_who_is_with_the_bot().await;
        self.look_at_stats().await;
    }

    async fn look_at_event(&self, id: EventId) {
        let model = self.fine(self.model.event(id).await);
        let engine = self.fine(self.engine.event(self.engine_event(id)).await);
        self.same(model.as_ref().map(shown), engine.as_ref().map(shown));
        let model = self.fine(self.model.answer(id).await);
        let engine = self.fine(self.engine.answer(self.engine_event(id)).await);
        self.same(model, engine);
    }

    async fn look_at_message(&self, id: MessageId) {
        let model = self.fine(self.model.message(id).await);
        let engine = self.fine(self.engine.message(self.engine_message(id)).await);
        self.same(model.as_ref().map(shown_message), engine.as_ref().map(shown_message));
    }

    async fn look_at_threads(&self) {
        let query = ThreadQuery { limit: 50, ..ThreadQuery::default() };
        let model = self.fine(self.model.threads(query.clone()).await).rows;
        let engine = self.fine(self.engine.threads(query).await).rows;
        self.same(&model, &engine);
        for row in model {
            let tell = |page: Page<ThreadMessage>| {
                page.rows
                    .into_iter()
                    .map(|row| (row.direction, row.at_ms, row.text, row.provider_id, row.status))
                    .collect::<Vec<_>>()
            };
            let model = tell(self.fine(self.model.thread_messages(&row.id, None, 100).await));
            let engine = tell(self.fine(self.engine.thread_messages(&row.id, None, 100).await));
            self.same(model, engine);
        }
    }

    async fn look_at_lists(&self) {
        let query = EventQuery { limit: 500, ..EventQuery::default() };
        let model = self.fine(self.model.events(query.clone()).await);
        let engine = self.fine(self.engine.events(query).await);
        self.same_page(&model, &engine, |row| row.id.0);
        let query = InboxQuery { limit: 500, ..InboxQuery::default() };
        let model = self.fine(self.model.inbox(query.clone()).await);
        let engine = self.fine(self.engine.inbox(query).await);
        self.same_page(&model, &engine, |row| row.item.0);
    }

    async fn look_at_names(&self) {
        for name in (0..8).map(|number| format!("w{number}")) {
            let model = self.fine(self.model.message_by_provider_id("acc", &name).await);
            let engine = self.fine(self.engine.message_by_provider_id("acc", &name).await);
            self.same(model.map(|id| self.engine_message(id)), engine);
        }
    }

    async fn look_at_outbox(&self) {
        let query = OutboxQuery { limit: 100, ..OutboxQuery::default() };
        let model = self.fine(self.model.outbox(query.clone()).await);
        let engine = self.fine(self.engine.outbox(query).await);
        self.same_page(&model, &engine, |row| row.id.0);
    }

    async fn look_at_stats(&self) {
        let shown = |mut stats: Stats| {
            // The first in line, or the one of the earliest time: after the clock was set back these may be two.
            if self.dated_to_ms > 0 {
                stats.channels.iter_mut().for_each(|channel| channel.oldest_ms = None);
            }
            (stats.events, stats.channels, stats.outbox_waiting, stats.outbox_unknown)
        };
        let model = shown(self.fine(self.model.stats().await));
        let engine = shown(self.fine(self.engine.stats().await));
        self.same(model, engine);
    }

    fn same_page<T>(&self, model: &Page<T>, engine: &Page<T>, id: impl Fn(&T) -> uuid::Uuid) {
        let mut model: Vec<_> = model.rows.iter().map(|row| self.ids.get(&id(row)).copied()).collect();
        let mut engine: Vec<_> = engine.rows.iter().map(|row| Some(id(row))).collect();
        // Which of two is listed first when the clock was set back between them is the engine's own affair.
        if self.dated_to_ms > 0 {
            model.sort_unstable();
            engine.sort_unstable();
        }
        self.same(model, engine);
    }
}
