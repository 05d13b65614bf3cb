//! The model's answers to questions.

use std::collections::BTreeMap;

use async_trait::async_trait;
use hapax_domain::{Direction, EventId, ItemId, MessageId, ThreadId, ids, limits, status_of_inbound};

use super::MemoryStore;
use super::lanes::Held;
use super::state::{Item, ItemPlace, Recorded, State};
use crate::{
    Answer, AttemptRow, ChannelCounts, EntryId, EventDetail, EventQuery, EventRow, EventState, InboxQuery, InboxRow, ItemState,
    MessageRow, OutboxQuery, OutboxState, Page, PausedAccount, Reads, Stats, StoreError, ThreadMessage, ThreadQuery, ThreadRow,
    WithBot,
};

#[async_trait]
impl Reads for MemoryStore {
    async fn events(&self, query: EventQuery) -> Result<Page<EventRow>, StoreError> {
        let state = self.lock();
        let wanted = |id: EventId, recorded: &Recorded| {
            query.before.is_none_or(|before| id < before)
                && query.channel.as_ref().is_none_or(|channel| **channel == *recorded.channel)
                && query.kind.is_none_or(|kind| kind == recorded.event.kind)
                && query.thread.as_ref().is_none_or(|thread| recorded.event.thread().as_ref() == Some(thread))
        };
        let rows = state.events.iter().rev().filter(|(id, recorded)| wanted(**id, recorded));
        Ok(page(rows.map(|(id, recorded)| state.event_row(*id, recorded)), query.limit))
    }

    async fn details(&self, ids: Vec<EventId>) -> Result<Vec<Option<EventDetail>>, StoreError> {
        let state = self.lock();
        Ok(ids.into_iter().map(|id| state.detail(id)).collect())
    }

    async fn inbox(&self, query: InboxQuery) -> Result<Page<InboxRow>, StoreError> {
        let state = self.lock();
        let wanted = |id: ItemId, item: &Item| {
            query.after.is_none_or(|after| id > after)
                && query.channel.as_ref().is_none_or(|channel| **channel == *item.channel)
                && query.parked.is_none_or(|parked| parked != matches!(item.place, ItemPlace::InLane(_)))
        };
        let rows = state.items.iter().filter(|(id, item)| wanted(**id, item));
        Ok(page(rows.map(|(id, item)| state.inbox_row(*id, item)), query.limit))
    }

    async fn with_bot(&self, channel: &str) -> Result<Vec<WithBot>, StoreError> {
        let (now_ms, state) = (self.now(), self.lock());
        let tell = |(held, thread): (&Held, Option<&ThreadId>)| {
            let item = state.items.get(&held.item).filter(|_| held.until_ms > now_ms)?;
            let event = *item.events.first()?;
            let recorded = &state.events.get(&event)?.event;
            let (account, thread) = (recorded.account.clone(), thread.cloned().or_else(|| recorded.thread()));
            Some(WithBot { item: held.item, event, account, thread, attempt: item.attempt })
        };
        let mut rows: Vec<WithBot> = state.lanes.leases(channel).filter_map(tell).collect();
        rows.sort_by_key(|row| row.item);
        rows.truncate(limits::WITH_BOT_MAX);
        Ok(rows)
    }

    async fn answer(&self, id: EventId) -> Result<Option<Answer>, StoreError> {
        Ok(self.lock().answers.get(&id).cloned())
    }

    async fn threads(&self, query: ThreadQuery) -> Result<Page<ThreadRow>, StoreError> {
        let state = self.lock();
        let mut rows: Vec<ThreadRow> = state
            .threads
            .rows()
            .filter(|row| query.channel.as_ref().is_none_or(|channel| *channel == row.channel))
            .filter(|row| query.account.as_ref().is_none_or(|account| *account == row.id.account))
            .filter(|row| query.before.as_ref().is_none_or(|(at, id)| (row.last_ms, &row.id) < (*at, id)))
            .collect();
        rows.sort_by(|a, b| (b.last_ms, &b.id).cmp(&(a.last_ms, &a.id)));
        Ok(page(rows.into_iter(), query.limit))
    }

    async fn thread(&self, id: &ThreadId) -> Result<Option<ThreadRow>, StoreError> {
        let threads = &self.lock().threads;
        Ok(threads.row(&threads.find(id)))
    }

    async fn person(&self, name: &ThreadId) -> Result<Option<ThreadRow>, StoreError> {
        let threads = &self.lock().threads;
        Ok(threads.row(&threads.of(&name.account, &name.peer)))
    }

    async fn thread_messages(
        &self,
        id: &ThreadId,
        before: Option<EntryId>,
        limit: usize,
    ) -> Result<Page<ThreadMessage>, StoreError> {
        let state = self.lock();
        let id = &state.threads.find(id);
        let mut entries: Vec<EntryId> =
            state.threads.entries.iter().filter(|(of, _)| of == id).map(|(_, entry)| *entry).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.number()));
        entries.retain(|entry| before.is_none_or(|before| entry.number() < before.number()));
        if before.is_some_and(|before| state.thread_message(id, before).is_none()) {
            return Ok(Page { rows: vec![], more: false });
        }
        Ok(page(entries.into_iter().map_while(|entry| state.thread_message(id, entry)), limit))
    }

    async fn message(&self, id: MessageId) -> Result<Option<MessageRow>, StoreError> {
        Ok(self.lock().outbox.row(id))
    }

    async fn message_by_provider_id(&self, account: &str, provider_id: &str) -> Result<Option<MessageId>, StoreError> {
        Ok(self.lock().outbox.by_provider_id(account, provider_id))
    }

    async fn outbox(&self, query: OutboxQuery) -> Result<Page<MessageRow>, StoreError> {
        let state = self.lock();
        let wanted = |row: &MessageRow| {
            query.after.is_none_or(|after| row.id > after)
                && query.channel.as_ref().is_none_or(|channel| *channel == row.channel)
                && query.account.as_ref().is_none_or(|account| *account == row.account)
                && (!query.unknown || matches!(&row.outbox, Some(place) if matches!(place.state, OutboxState::Unknown { .. })))
        };
        Ok(page(state.outbox.open_ids().filter_map(|id| state.outbox.row(id)).filter(wanted), query.limit))
    }

    async fn paused_accounts(&self) -> Result<Vec<PausedAccount>, StoreError> {
        Ok(self.lock().outbox.paused.values().cloned().collect())
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let now = self.now();
        let state = self.lock();
        let mut channels: BTreeMap<String, ChannelCounts> = BTreeMap::new();
        for (id, item) in &state.items {
            let counts = channels.entry(item.channel.to_string()).or_default();
            counts.channel = item.channel.to_string();
            match state.inbox_row(*id, item).state {
                ItemState::Waiting { .. } => counts.waiting += 1,
                ItemState::Leased { .. } => counts.leased += 1,
                ItemState::Parked => counts.parked += 1,
                ItemState::Quarantined => counts.quarantined += 1,
            }
            if matches!(item.place, ItemPlace::InLane(_)) {
                counts.oldest_ms = Some(counts.oldest_ms.map_or(item.received_ms, |oldest| oldest.min(item.received_ms)));
            }
        }
        Ok(Stats {
            keys: state.keys_held(),
            events: state.events.len() as u64,
            store_bytes: 0,
            log_bytes: 0,
            channels: channels.into_values().collect(),
            outbox_waiting: state.outbox.count_open(false),
            outbox_unknown: state.outbox.count_open(true),
            claims: state.claims.counts(now),
        })
    }
}

fn page<T>(rows: impl Iterator<Item = T>, limit: usize) -> Page<T> {
    let mut rows: Vec<T> = rows.take(limit + 1).collect();
    let more = rows.len() > limit;
    rows.truncate(limit);
    Page { rows, more }
}

impl State {
    fn thread_message(&self, thread: &ThreadId, entry: EntryId) -> Option<ThreadMessage> {
        match entry {
            EntryId::Event(id) => {
                let recorded = self.events.get(&id)?;
                let direction = if recorded.event.echo { Direction::Out } else { Direction::In };
                let provider_id = Some(recorded.event.id.clone());
                let (at_ms, text) = (recorded.received_ms, recorded.event.text.clone());
                let status = status_of_inbound(ids::number_of(id.0), self.threads.read_to(thread));
                let status = (direction == Direction::In).then_some(status);
                let channel = recorded.channel.to_string();
                Some(ThreadMessage { id: entry, channel, direction, at_ms, text, provider_id, status })
            }
            EntryId::Message(id) => {
                let row = self.outbox.row(id)?;
                let (at_ms, status) = (row.created_ms, Some(row.steps.status()));
                Some(ThreadMessage {
                    id: entry,
                    channel: row.channel,
                    direction: Direction::Out,
                    at_ms,
                    text: row.text,
                    provider_id: row.provider_id,
                    status,
                })
            }
        }
    }

    fn detail(&self, id: EventId) -> Option<EventDetail> {
        let recorded = self.events.get(&id)?;
        let own = recorded.item;
        let of_item = |item: &Item| item.events.contains(&id);
        let of_event = |(event, row): &&(EventId, AttemptRow)| *event == id || Some(row.item) == own;
        let mut attempts: Vec<_> = self.attempts.iter().filter(of_event).map(|(_, row)| row.clone()).collect();
        attempts.sort_by_key(|row| row.fence);
        Some(EventDetail {
            row: self.event_row(id, recorded),
            headers: recorded.webhook.headers.clone(),
            body: recorded.part.clone().unwrap_or_else(|| recorded.webhook.body.clone()),
            copies: self.copies.get(&id).copied(),
            attempts,
            open: self.items.iter().filter(|(_, item)| of_item(item)).map(|(id, item)| self.inbox_row(*id, item)).collect(),
        })
    }

    fn event_row(&self, id: EventId, recorded: &Recorded) -> EventRow {
        let state = match recorded.item {
            None => EventState::Kept,
            Some(item) => match self.items.get(&item).map(|item| item.place) {
                None => EventState::Delivered,
                Some(ItemPlace::InLane(_)) => EventState::Waiting,
                Some(ItemPlace::Parked) => EventState::Parked,
                Some(ItemPlace::Quarantined) => EventState::Quarantined,
            },
        };
        EventRow {
            id,
            channel: recorded.channel.to_string(),
            kind: recorded.event.kind,
            account: recorded.event.account.clone(),
            provider_id: recorded.event.id.clone(),
            peer: recorded.event.peer.clone(),
            echo: recorded.event.echo,
            received_ms: recorded.received_ms,
            at_ms: recorded.event.at_ms,
            state,
            body_bytes: recorded.part.as_ref().map_or(recorded.webhook.body.len(), bytes::Bytes::len) as u64,
        }
    }

    fn inbox_row(&self, id: ItemId, item: &Item) -> InboxRow {
        let state = match item.place {
            ItemPlace::Parked => ItemState::Parked,
            ItemPlace::Quarantined => ItemState::Quarantined,
            ItemPlace::InLane(lane) => {
                let held = self.lanes.held(lane, id);
                held.map_or(ItemState::Waiting { due_ms: item.due_ms }, |held| ItemState::Leased {
                    worker: held.worker.to_string(),
                    until_ms: held.until_ms,
                    fence: held.fence,
                })
            }
        };
        InboxRow {
            item: id,
            event: item.events[0],
            channel: item.channel.to_string(),
            events: item.events.len() as u32,
            attempt: item.attempt,
            failures: item.failures,
            replay: item.replay,
            state,
            why: item.why.clone(),
            received_ms: item.received_ms,
        }
    }
}
