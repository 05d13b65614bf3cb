//! Answers to questions, put together from records.

use std::collections::HashMap;

use async_trait::async_trait;
use futures_util::future::{try_join, try_join_all};
use hapax_domain::limits::NAME_HOPS_MAX;
use hapax_domain::{Direction, EventId, Fence, ItemId, MessageId, ThreadId, ids, limits, status_of_inbound};

use super::engine::{Engine, Entry, Loaded, Wanted};
use super::names::root;
use super::records::{
    AttemptRec, EventRec, Hash, Held, ItemPlace, ItemRec, LaneRec, MessageRec, OutRec, Queue, ThreadRec, name_hash, thread_hash,
};
use super::store::ServerStore;
use crate::{
    Answer, AttemptRow, EntryId, EventDetail, EventQuery, EventRow, EventState, InboxQuery, InboxRow, ItemState, MessageRow,
    OutboxPlace, OutboxQuery, OutboxState, Page, PausedAccount, Reads, Stats, StoreError, ThreadMessage, ThreadQuery, ThreadRow,
    TryRow, WithBot,
};

#[async_trait]
impl<E: Engine> Reads for ServerStore<E> {
    async fn events(&self, query: EventQuery) -> Result<Page<EventRow>, StoreError> {
        let before = query.before.map(|id| ids::number_of(id.0));
        let page = page(self.engine.list_events(&query, before, query.limit + 1).await?, query.limit);
        let items = page.rows.iter().filter_map(|event| event.item).collect();
        let open = self.engine.peek(&Wanted { items, ..Wanted::default() }).await?.items;
        Ok(Page { rows: page.rows.iter().map(|event| event_row(event, &open)).collect(), more: page.more })
    }

    async fn details(&self, ids: Vec<EventId>) -> Result<Vec<Option<EventDetail>>, StoreError> {
        let events = each_once(ids.iter().map(|id| ids::number_of(id.0)));
        let mut found = self.engine.peek(&Wanted { events, ..Wanted::default() }).await?.events;
        found.retain(|_, event| ids.contains(&event.event_id()));
        if found.is_empty() {
            return Ok(ids.iter().map(|_| None).collect());
        }
        let items = each_once(found.values().filter_map(|event| event.item));
        let bodies = each_once(found.values().map(|event| event.webhook));
        let of = each_once(found.keys().chain(&items).copied());
        let seen = self.engine.peek(&Wanted { items, bodies, ..Wanted::default() }).await?;
        let (open, rows) = self.open_of(&found, &seen.items).await?;
        let numbers: Vec<u64> = found.keys().copied().collect();
        let (attempts, copies) = try_join(self.engine.list_attempts(Queue::Inbox, &of), self.engine.copies(&numbers)).await?;
        let tell = |id: &EventId| {
            let event = found.get(&ids::number_of(id.0)).filter(|event| event.event_id() == *id)?;
            let carried = seen.events.get(&event.webhook)?.carried.clone()?;
            let its_own = |row: &&AttemptRec| row.of == event.number || Some(row.item) == event.item;
            let its_rows = open.iter().zip(&rows).filter(|((of, _), _)| *of == event.number);
            Some(EventDetail {
                row: event_row(event, &seen.items),
                headers: carried.headers,
                body: carried.body,
                copies: copies.iter().find(|copies| copies.event == *id).copied(),
                attempts: attempts.iter().filter(its_own).map(attempt_row).collect(),
                open: its_rows.map(|(_, row)| row.clone()).collect(),
            })
        };
        Ok(ids.iter().map(tell).collect())
    }

    async fn inbox(&self, query: InboxQuery) -> Result<Page<InboxRow>, StoreError> {
        let after = query.after.map(|id| ids::number_of(id.0));
        let page = page(self.engine.list_items(&query, after, query.limit + 1).await?, query.limit);
        Ok(Page { rows: self.inbox_rows(page.rows).await?, more: page.more })
    }

    async fn with_bot(&self, channel: &str) -> Result<Vec<WithBot>, StoreError> {
        let lanes = self.engine.list_held(channel, self.engine.now_ms().await?, limits::WITH_BOT_MAX).await?;
        // A lane that was joined while somebody was at work in it goes by the name of the one that speaks for it.
        let speakers = lanes.iter().filter_map(|lane| lane.joined_to).collect();
        let items = lanes.iter().filter_map(|lane| Some(lane.held.as_ref()?.number)).collect();
        let mut seen = self.engine.peek(&Wanted { lanes: speakers, items, ..Wanted::default() }).await?;
        let events = seen.items.values().filter_map(|item| item.events.first().copied()).collect();
        seen.events = self.engine.peek(&Wanted { events, ..Wanted::default() }).await?.events;
        let tell = |lane: &LaneRec| {
            let (held, speaker) = (lane.held.as_ref()?, lane.joined_to.and_then(|speaker| seen.lanes.get(&speaker)));
            let item = seen.items.get(&held.number)?;
            let event = seen.events.get(item.events.first()?)?;
            let named = |spelt: ThreadId| ThreadId { peer: speaker.unwrap_or(lane).peer.clone().unwrap_or(spelt.peer), ..spelt };
            let thread = event.spelt().map(named).or_else(|| event.thread_id());
            let (item, account) = (item.item_id(), event.account.clone());
            Some(WithBot { item, event: event.event_id(), account, thread, attempt: held.attempt })
        };
        let mut rows: Vec<WithBot> = lanes.iter().filter_map(tell).collect();
        rows.sort_by_key(|row| row.item);
        Ok(rows)
    }

    async fn answer(&self, id: EventId) -> Result<Option<Answer>, StoreError> {
        self.engine.answer(ids::number_of(id.0)).await
    }

    async fn threads(&self, query: ThreadQuery) -> Result<Page<ThreadRow>, StoreError> {
        let page = page(self.engine.list_threads(&query, query.limit + 1).await?, query.limit);
        let rows = try_join_all(page.rows.into_iter().map(|thread| self.thread_row(thread))).await?;
        Ok(Page { rows, more: page.more })
    }

    async fn thread(&self, id: &ThreadId) -> Result<Option<ThreadRow>, StoreError> {
        match self.find_thread(id).await? {
            None => Ok(None),
            Some(thread) => Ok(Some(self.thread_row(thread).await?)),
        }
    }

    async fn person(&self, name: &ThreadId) -> Result<Option<ThreadRow>, StoreError> {
        let seen = self.peek_name(name).await?;
        match self.led_to(name, seen).await? {
            None => Ok(None),
            Some(thread) => Ok(Some(self.thread_row(thread).await?)),
        }
    }

    async fn thread_messages(
        &self,
        id: &ThreadId,
        before: Option<EntryId>,
        limit: usize,
    ) -> Result<Page<ThreadMessage>, StoreError> {
        let Some(thread) = self.find_thread(id).await? else { return Ok(Page { rows: vec![], more: false }) };
        let below = before.map(|before| match before {
            EntryId::Event(id) => ids::number_of(id.0),
            EntryId::Message(id) => ids::number_of(id.0),
        });
        let hash = thread_hash(&thread.account, &thread.peer);
        let page = page(self.engine.thread_entries(&hash, thread.purged_to, below, limit + 1).await?, limit);
        Ok(Page { rows: page.rows.iter().map(|entry| thread_message(entry, thread.read_to)).collect(), more: page.more })
    }

    async fn message(&self, id: MessageId) -> Result<Option<MessageRow>, StoreError> {
        let number = ids::number_of(id.0);
        let rows = self.message_rows(vec![number]).await?;
        Ok(rows.into_iter().find(|row| row.id == id))
    }

    async fn message_by_provider_id(&self, account: &str, provider_id: &str) -> Result<Option<MessageId>, StoreError> {
        let provider_names = vec![(account.to_owned(), provider_id.to_owned())];
        let seen = self.engine.peek(&Wanted { provider_names, ..Wanted::default() }).await?;
        let Some(number) = seen.provider_names.get(&name_hash(account, provider_id)).and_then(|name| name.message) else {
            return Ok(None);
        };
        let seen = self.engine.peek(&Wanted { messages: vec![number], ..Wanted::default() }).await?;
        Ok(seen.messages.get(&number).map(MessageRec::message_id))
    }

    async fn outbox(&self, query: OutboxQuery) -> Result<Page<MessageRow>, StoreError> {
        let after = query.after.map(|id| ids::number_of(id.0));
        let page = page(self.engine.list_outs(&query, after, query.limit + 1).await?, query.limit);
        let rows = self.message_rows(page.rows.iter().map(|out| out.number).collect()).await?;
        Ok(Page { rows, more: page.more })
    }

    async fn paused_accounts(&self) -> Result<Vec<PausedAccount>, StoreError> {
        self.engine.paused().await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let now_ms = self.engine.now_ms().await?;
        Ok(Stats { claims: self.engine.count_claims(now_ms).await?, ..self.engine.stats().await? })
    }
}

impl<E: Engine> ServerStore<E> {
    /// The open items of events, by number, each with the number of the event that it delivers, and as they are shown.
    async fn open_of(
        &self,
        events: &HashMap<u64, EventRec>,
        items: &HashMap<u64, ItemRec>,
    ) -> Result<(Vec<(u64, ItemRec)>, Vec<InboxRow>), StoreError> {
        let first = events.values().filter_map(|event| Some((event.number, items.get(&event.item?)?.clone())));
        let mut open: Vec<(u64, ItemRec)> = first.collect();
        for event in events.values().filter(|event| event.replays > 0) {
            let again = self.engine.list_replays(event.number).await?;
            open.extend(again.into_iter().map(|item| (event.number, item)));
        }
        open.sort_by_key(|(event, item)| (item.number, *event));
        let rows = self.inbox_rows(open.iter().map(|(_, item)| item.clone()).collect()).await?;
        Ok((open, rows))
    }

    /// The thread that goes by this name, or else the one that the name leads to now.
    async fn find_thread(&self, id: &ThreadId) -> Result<Option<ThreadRec>, StoreError> {
        let mut seen = self.peek_name(id).await?;
        match seen.threads.remove(&thread_hash(&id.account, &id.peer)) {
            Some(thread) => Ok(Some(thread)),
            None => self.led_to(id, seen).await,
        }
    }

    /// Where a name leads first, and the thread that goes by it.
    async fn peek_name(&self, id: &ThreadId) -> Result<Loaded, StoreError> {
        let (names, threads) = (vec![(id.account.clone(), id.peer.clone())], vec![thread_hash(&id.account, &id.peer)]);
        self.engine.peek(&Wanted { names, threads, ..Wanted::default() }).await
    }

    /// The thread that a name leads to in the end, after what was seen of it; its own where it leads nowhere.
    async fn led_to(&self, id: &ThreadId, mut seen: Loaded) -> Result<Option<ThreadRec>, StoreError> {
        let mut names = std::mem::take(&mut seen.names);
        for _ in 0..NAME_HOPS_MAX {
            let ahead: Vec<(String, String)> = names.values().map(|peer| (id.account.clone(), peer.clone())).collect();
            let ahead: Vec<(String, String)> = ahead.into_iter().filter(|name| !names.contains_key(name)).collect();
            if ahead.is_empty() {
                break;
            }
            let more = self.engine.peek(&Wanted { names: ahead, ..Wanted::default() }).await?.names;
            if more.is_empty() {
                break;
            }
            names.extend(more);
        }
        let next = |name: &str| names.get(&(id.account.clone(), name.to_owned()));
        let hash = thread_hash(&id.account, root(next, &id.peer).unwrap_or(id.peer.as_str()));
        if hash != thread_hash(&id.account, &id.peer) {
            seen = self.engine.peek(&Wanted { threads: vec![hash], ..Wanted::default() }).await?;
        }
        Ok(seen.threads.remove(&hash))
    }

    async fn thread_row(&self, thread: ThreadRec) -> Result<ThreadRow, StoreError> {
        let mut aliases = self.engine.names_of(&thread.account, &thread.peer).await?;
        aliases.retain(|name| *name != thread.peer);
        Ok(ThreadRow {
            id: ThreadId { account: thread.account, peer: thread.peer },
            channel: thread.channel,
            aliases,
            last_ms: thread.last_ms,
            last_text: thread.last_text,
            last_direction: thread.last_direction,
            unread: thread.unread,
        })
    }

    async fn inbox_rows(&self, items: Vec<ItemRec>) -> Result<Vec<InboxRow>, StoreError> {
        let lanes = items.iter().filter(|item| item.place == ItemPlace::InLane).map(|item| item.lane).collect();
        let held = self.leases_of(lanes).await?;
        Ok(items.iter().map(|item| inbox_row(item, held.get(&item.number))).collect())
    }

    /// The leases of lanes and of those that they are joined with, by the number that is leased.
    pub(super) async fn leases_of(&self, mut lanes: Vec<Hash>) -> Result<HashMap<u64, Held>, StoreError> {
        let mut seen: HashMap<Hash, LaneRec> = HashMap::new();
        // The lanes themselves, those that speak for them, and all that these speak for.
        for _ in 0..3 {
            lanes.sort_unstable();
            lanes.dedup();
            if lanes.is_empty() {
                break;
            }
            seen.extend(self.engine.peek(&Wanted { lanes, ..Wanted::default() }).await?.lanes);
            let ahead = seen.values().flat_map(|lane| lane.joined_to.iter().chain(&lane.joined).copied());
            lanes = ahead.filter(|lane| !seen.contains_key(lane)).collect();
        }
        Ok(seen.into_values().filter_map(|lane| lane.held).map(|held| (held.number, held)).collect())
    }

    /// By number.
    async fn message_rows(&self, numbers: Vec<u64>) -> Result<Vec<MessageRow>, StoreError> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let wanted = Wanted { messages: numbers.clone(), outs: numbers.clone(), ..Wanted::default() };
        let seen = self.engine.peek(&wanted).await?;
        let held = self.leases_of(seen.outs.values().map(|out| out.lane).collect()).await?;
        let mut tries: HashMap<u64, Vec<TryRow>> = HashMap::new();
        for attempt in self.engine.list_attempts(Queue::Outbox, &numbers).await? {
            tries.entry(attempt.of).or_default().push(try_row(attempt));
        }
        let row = |number: &u64| {
            let message = seen.messages.get(number)?;
            let place = seen.outs.get(number).map(|out| outbox_place(out, held.get(number)));
            Some(message_row(message, place, tries.remove(number).unwrap_or_default()))
        };
        Ok(numbers.iter().filter_map(row).collect())
    }
}

fn each_once(numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn page<T>(mut rows: Vec<T>, limit: usize) -> Page<T> {
    let more = rows.len() > limit;
    rows.truncate(limit);
    Page { rows, more }
}

fn event_row(event: &EventRec, open: &HashMap<u64, ItemRec>) -> EventRow {
    let state = match event.item {
        None => EventState::Kept,
        Some(item) => match open.get(&item).map(|item| item.place) {
            None => EventState::Delivered,
            Some(ItemPlace::InLane) => EventState::Waiting,
            Some(ItemPlace::Parked) => EventState::Parked,
            Some(ItemPlace::Quarantined) => EventState::Quarantined,
        },
    };
    EventRow {
        id: event.event_id(),
        channel: event.channel.to_string(),
        kind: event.kind,
        account: event.account.clone(),
        provider_id: event.id.clone(),
        peer: event.peer.clone(),
        echo: event.echo,
        received_ms: event.received_ms,
        at_ms: event.at_ms,
        state,
        body_bytes: event.body_bytes,
    }
}

fn inbox_row(item: &ItemRec, held: Option<&Held>) -> InboxRow {
    let state = match (item.place, held) {
        (ItemPlace::Parked, _) => ItemState::Parked,
        (ItemPlace::Quarantined, _) => ItemState::Quarantined,
        (ItemPlace::InLane, None) => ItemState::Waiting { due_ms: item.due_ms },
        (ItemPlace::InLane, Some(held)) => {
            ItemState::Leased { worker: held.worker.clone(), until_ms: held.until_ms, fence: Fence(held.fence) }
        }
    };
    InboxRow {
        item: item.item_id(),
        event: item.event_id(),
        channel: item.channel.to_string(),
        events: item.events.len() as u32,
        attempt: held.map_or(item.attempt, |held| held.attempt),
        failures: item.failures,
        replay: item.replay,
        state,
        why: item.why.clone(),
        received_ms: item.received_ms,
    }
}

fn attempt_row(attempt: &AttemptRec) -> AttemptRow {
    AttemptRow {
        item: ItemId(ids::numbered(attempt.item_ms, attempt.item)),
        attempt: attempt.attempt,
        fence: Fence(attempt.fence),
        worker: attempt.worker.clone(),
        leased_ms: attempt.leased_ms,
        ended_ms: attempt.ended_ms,
        outcome: attempt.outcome.clone(),
        detail: attempt.detail.clone(),
    }
}

fn try_row(attempt: AttemptRec) -> TryRow {
    TryRow {
        attempt: attempt.attempt,
        fence: Fence(attempt.fence),
        worker: attempt.worker,
        leased_ms: attempt.leased_ms,
        ended_ms: attempt.ended_ms,
        outcome: attempt.outcome,
        detail: attempt.detail,
    }
}

fn outbox_place(out: &OutRec, held: Option<&Held>) -> OutboxPlace {
    let state = match (held, out.unknown) {
        (Some(held), _) => OutboxState::Leased {
            worker: held.worker.clone(),
            until_ms: held.until_ms,
            fence: Fence(held.fence),
            begun: out.begun_ms.is_some(),
        },
        (None, true) => OutboxState::Unknown { check_ms: out.due_ms },
        (None, false) => OutboxState::Waiting { due_ms: out.due_ms.unwrap_or_default() },
    };
    OutboxPlace { state, attempt: held.map_or(out.attempt, |held| held.attempt), failures: out.failures }
}

fn message_row(message: &MessageRec, outbox: Option<OutboxPlace>, tries: Vec<TryRow>) -> MessageRow {
    MessageRow {
        id: message.message_id(),
        channel: message.channel.to_string(),
        account: message.account.clone(),
        peer: message.peer.clone(),
        request_id: message.request_id.clone(),
        text: message.text.clone(),
        payload: message.payload.clone(),
        priority: message.priority,
        reply_to: message.reply_to,
        created_ms: message.created_ms,
        provider_id: message.provider_id.clone(),
        steps: message.steps.clone(),
        why: message.why.clone(),
        past: message.past.clone(),
        outbox,
        tries,
    }
}

fn thread_message(entry: &Entry, read_to: u64) -> ThreadMessage {
    match entry {
        Entry::Event(event) => ThreadMessage {
            id: EntryId::Event(event.event_id()),
            channel: event.channel.to_string(),
            direction: if event.echo { Direction::Out } else { Direction::In },
            at_ms: event.received_ms,
            text: event.text.clone(),
            provider_id: Some(event.id.clone()),
            status: (!event.echo).then(|| status_of_inbound(event.number, read_to)),
        },
        Entry::Message(message) => ThreadMessage {
            id: EntryId::Message(message.message_id()),
            channel: message.channel.to_string(),
            direction: Direction::Out,
            at_ms: message.created_ms,
            text: message.text.clone(),
            provider_id: message.provider_id.clone(),
            status: Some(message.steps.status()),
        },
    }
}
