//! Answers to questions about events and items. Lists go over all accounts and are put together here.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use hapax_domain::{EventId, Fence, ItemId, Kind, MessageId, ThreadId, limits};
use hapax_store::{
    Answer, AttemptRow, ChannelCounts, Copies, EntryId, EventDetail, EventQuery, EventRow, EventState, InboxQuery, InboxRow,
    ItemState, KeptHeaders, MessageRow, OutboxQuery, Page, PausedAccount, Reads, Stats, StoreError, ThreadMessage, ThreadQuery,
    ThreadRow, WithBot,
};

use super::RedisStore;
use super::place::{Mark, why_of};
use super::registry::AccountInChannel;
use super::row::{Row, odd};
use super::script;
use super::settings::sizes;

#[async_trait]
impl Reads for RedisStore {
    async fn events(&self, query: EventQuery) -> Result<Page<EventRow>, StoreError> {
        let Some(before) = self.bound(query.before.map(|id| id.0)).await? else { return Ok(page(vec![], query.limit)) };
        let mut entries = self.registry.entries(&self.link, query.channel.as_deref()).await?;
        entries.retain(|entry| query.thread.as_ref().is_none_or(|thread| *thread.account == *entry.name));
        let lists = try_join_all(entries.iter().map(|entry| self.events_of(entry, &query, before))).await?;
        let mut rows: Vec<EventRow> = lists.into_iter().flatten().collect();
        rows.sort_by_key(|row| Reverse(row.id));
        Ok(page(rows, query.limit))
    }

    /// All scripts are on their way at the same time.
    async fn details(&self, ids: Vec<EventId>) -> Result<Vec<Option<EventDetail>>, StoreError> {
        try_join_all(ids.into_iter().map(|id| self.show_event(id))).await
    }

    async fn inbox(&self, query: InboxQuery) -> Result<Page<InboxRow>, StoreError> {
        let Some(after) = self.bound(query.after.map(|id| id.0)).await? else { return Ok(page(vec![], query.limit)) };
        let lines: &[&str] = match query.parked {
            None => &["way", "park", "quar"],
            Some(true) => &["park", "quar"],
            Some(false) => &["way"],
        };
        let entries = self.registry.entries(&self.link, query.channel.as_deref()).await?;
        let lists = entries.iter().flat_map(|entry| lines.iter().map(move |line| (entry, *line)));
        let lists = try_join_all(lists.map(|(entry, line)| self.items_of(entry, line, after, query.limit))).await?;
        let mut rows: Vec<InboxRow> = lists.into_iter().flatten().collect();
        rows.sort_by_key(|row| row.item);
        Ok(page(rows, query.limit))
    }

    async fn with_bot(&self, channel: &str) -> Result<Vec<WithBot>, StoreError> {
        let entries = self.registry.entries(&self.link, Some(channel)).await?;
        let mut rows: Vec<WithBot> =
            try_join_all(entries.iter().map(|entry| self.with_bot_of(entry))).await?.into_iter().flatten().collect();
        rows.sort_by_key(|row| row.item);
        rows.truncate(limits::WITH_BOT_MAX);
        Ok(rows)
    }

    async fn answer(&self, id: EventId) -> Result<Option<Answer>, StoreError> {
        let Some(place) = self.place_of("e", id.0).await? else { return Ok(None) };
        let call = self.link.call(&script::ANSWER, place.account).arg(place.seq.to_string()).arg(place.at_s);
        let Some(mut row) = Row::maybe_of(self.link.run("reading an answer", call).await?)? else { return Ok(None) };
        let status = u16::try_from(row.int()?).map_err(|_| odd("a status out of range"))?;
        Ok(Some(Answer { status, content_type: row.maybe_text()?, body: row.bytes()? }))
    }

    async fn threads(&self, query: ThreadQuery) -> Result<Page<ThreadRow>, StoreError> {
        self.list_threads(&query).await
    }

    async fn thread(&self, id: &ThreadId) -> Result<Option<ThreadRow>, StoreError> {
        self.show_thread(&script::SHOW_THREAD, id).await
    }

    async fn person(&self, name: &ThreadId) -> Result<Option<ThreadRow>, StoreError> {
        self.show_thread(&script::SHOW_PERSON, name).await
    }

    async fn thread_messages(
        &self,
        id: &ThreadId,
        before: Option<EntryId>,
        limit: usize,
    ) -> Result<Page<ThreadMessage>, StoreError> {
        self.list_thread_messages(id, before, limit).await
    }

    async fn message(&self, id: MessageId) -> Result<Option<MessageRow>, StoreError> {
        self.show_message(id).await
    }

    async fn message_by_provider_id(&self, account: &str, provider_id: &str) -> Result<Option<MessageId>, StoreError> {
        self.find_message(account, provider_id).await
    }

    async fn outbox(&self, query: OutboxQuery) -> Result<Page<MessageRow>, StoreError> {
        self.list_outbox(&query).await
    }

    async fn paused_accounts(&self) -> Result<Vec<PausedAccount>, StoreError> {
        self.list_paused().await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.count_all().await
    }
}

impl RedisStore {
    async fn show_event(&self, id: EventId) -> Result<Option<EventDetail>, StoreError> {
        let Some(place) = self.place_of("e", id.0).await? else { return Ok(None) };
        let Some(name) = self.registry.name(&self.link, place.account).await? else { return Ok(None) };
        let call = self.link.call(&script::SHOW_EVENT, place.account).arg(place.seq.to_string());
        let Some(answer) = Row::maybe_of(self.link.run("reading an event", call).await?)? else { return Ok(None) };
        let detail = read_detail(answer, place.account, &name)?;
        Ok(Some(detail).filter(|detail| detail.row.id == id))
    }

    /// Where a page begins. The outer `None`: at an id that nothing in this store can have, so there is nothing beyond it.
    pub(super) async fn bound(&self, id: Option<uuid::Uuid>) -> Result<Option<Option<Mark>>, StoreError> {
        let Some(id) = id else { return Ok(Some(None)) };
        Ok(Mark::new(id, self.registry.moved(&self.link).await?.to).map(Some))
    }

    /// Up to one more than a page, so that it is known whether there are more.
    async fn events_of(
        &self,
        entry: &AccountInChannel,
        query: &EventQuery,
        before: Option<Mark>,
    ) -> Result<Vec<EventRow>, StoreError> {
        let (mut rows, mut at_s) = (Vec::new(), before.map(|mark| mark.at_s));
        let mut below = before.map(|mark| mark.not_below(entry.account));
        while rows.len() <= query.limit {
            let call = self.link.call(&script::LIST_EVENTS, entry.account).arg(&*entry.channel);
            let call = call.maybe(query.kind.map(Kind::name)).maybe(query.thread.as_ref().map(|thread| &thread.peer));
            let call = call.maybe_int(at_s).maybe(below.map(|seq| seq.to_string())).arg(query.limit + 1 - rows.len());
            let mut answer = Row::new(self.link.run("listing events", call).await?)?;
            for row in answer.row()?.rows() {
                rows.push(read_event(row?, entry.account, &entry.name)?);
            }
            (at_s, below) = (None, answer.maybe_seq()?);
            if below.is_none() {
                break;
            }
        }
        Ok(rows)
    }

    async fn items_of(
        &self,
        entry: &AccountInChannel,
        line: &str,
        after: Option<Mark>,
        limit: usize,
    ) -> Result<Vec<InboxRow>, StoreError> {
        let call = self.link.call(&script::LIST_INBOX, entry.account).arg(line).arg(&*entry.channel);
        let call = call.maybe_int(after.map(|mark| mark.at_s));
        let call = call.maybe(after.map(|mark| mark.above(entry.account).to_string())).arg(limit + 1);
        let answer = self.link.run("listing the inbox", call).await?;
        Row::new(answer)?.rows().map(|row| read_item(row?, entry.account)).collect()
    }

    async fn with_bot_of(&self, entry: &AccountInChannel) -> Result<Vec<WithBot>, StoreError> {
        let call = self.link.call(&script::WITH_BOT, entry.account).arg(&*entry.channel);
        let answer = self.link.run("looking who is with the bot", call).await?;
        let read = |mut row: Row| {
            let item = ItemId(row.seq()?.id(row.int()?, entry.account));
            let event = EventId(row.seq()?.id(row.int()?, entry.account));
            let (attempt, account) = (row.small()?, entry.name.to_string());
            let thread = row.maybe_text()?.map(|peer| ThreadId { account: account.clone(), peer });
            Ok(WithBot { item, event, account, thread, attempt })
        };
        Row::new(answer)?.rows().map(|row| read(row?)).collect()
    }

    async fn count_all(&self) -> Result<Stats, StoreError> {
        let mut by_account: BTreeMap<u32, Vec<AccountInChannel>> = BTreeMap::new();
        for entry in self.registry.entries(&self.link, None).await? {
            by_account.entry(entry.account).or_default().push(entry);
        }
        let (store_bytes, log_bytes) = sizes(self.link.nodes()).await?;
        let mut stats = Stats { store_bytes, log_bytes, claims: self.count_claims().await?, ..Stats::default() };
        stats.keys = self.count_moved_keys().await?;
        let mut channels: BTreeMap<String, ChannelCounts> = BTreeMap::new();
        for (account, entries) in by_account {
            let call = self.link.call(&script::STATS, account).arg(entries.len());
            let call = entries.iter().fold(call, |call, entry| call.arg(&*entry.channel));
            let mut answer = Row::new(self.link.run("counting", call).await?)?;
            stats.keys += answer.count()?;
            let unknown = answer.count()?;
            stats.outbox_unknown += unknown;
            let mut open = 0;
            for entry in &entries {
                open += add_counts(&mut stats, &mut channels, entry, answer.row()?)?;
            }
            stats.outbox_waiting += open.saturating_sub(unknown);
        }
        stats.channels = channels.into_values().collect();
        Ok(stats)
    }
}

/// Adds what one account has in one channel; answers with its open messages.
fn add_counts(
    stats: &mut Stats,
    channels: &mut BTreeMap<String, ChannelCounts>,
    entry: &AccountInChannel,
    mut row: Row,
) -> Result<u64, StoreError> {
    stats.events += row.count()?;
    let (on_the_way, leased, parked, quarantined) = (row.count()?, row.count()?, row.count()?, row.count()?);
    let (open, oldest) = (row.count()?, row.maybe_int()?);
    if on_the_way + parked + quarantined > 0 {
        let counts = channels.entry(entry.channel.to_string()).or_default();
        counts.channel = entry.channel.to_string();
        counts.waiting += on_the_way.saturating_sub(leased);
        counts.leased += leased;
        counts.parked += parked;
        counts.quarantined += quarantined;
        counts.oldest_ms = [counts.oldest_ms, oldest].into_iter().flatten().min();
    }
    Ok(open)
}

pub(super) fn page<T>(mut rows: Vec<T>, limit: usize) -> Page<T> {
    let more = rows.len() > limit;
    rows.truncate(limit);
    Page { rows, more }
}

fn read_event(mut row: Row, account: u32, name: &str) -> Result<EventRow, StoreError> {
    let (seq, received_ms, channel) = (row.seq()?, row.int()?, row.text()?);
    let kind = Kind::from_name(&row.text()?).ok_or_else(|| odd("an unknown kind"))?;
    let (provider_id, peer, echo, at_ms) = (row.text()?, row.maybe_text()?, row.flag()?, row.maybe_int()?);
    let state = match &row.bytes()?[..] {
        b"K" => EventState::Kept,
        b"D" => EventState::Delivered,
        b"L" => EventState::Waiting,
        b"P" => EventState::Parked,
        b"Q" => EventState::Quarantined,
        _ => return Err(odd("an unknown place")),
    };
    let id = EventId(seq.id(received_ms, account));
    let (account, body_bytes) = (name.to_owned(), row.count()?);
    Ok(EventRow { id, channel, kind, account, provider_id, peer, echo, received_ms, at_ms, state, body_bytes })
}

fn read_item(mut row: Row, account: u32) -> Result<InboxRow, StoreError> {
    let (seq, received_ms) = (row.seq()?, row.int()?);
    let (event_seq, event_ms, events, channel) = (row.seq()?, row.int()?, row.small()?, row.text()?);
    let (attempt, failures, replay) = (row.small()?, row.small()?, row.maybe_int()?.map(|replay| replay as u32));
    let (place, why, due_ms) = (row.bytes()?, why_of(row.maybe_text()?, account), row.int()?);
    let state = match (&place[..], row.maybe_row()?) {
        (b"P", _) => ItemState::Parked,
        (b"Q", _) => ItemState::Quarantined,
        (_, None) => ItemState::Waiting { due_ms },
        (_, Some(mut held)) => ItemState::Leased { worker: held.text()?, until_ms: held.int()?, fence: Fence(held.count()?) },
    };
    let item = ItemId(seq.id(received_ms, account));
    let event = EventId(event_seq.id(event_ms, account));
    Ok(InboxRow { item, event, channel, events, attempt, failures, replay, state, why, received_ms })
}

fn read_detail(mut answer: Row, account: u32, name: &str) -> Result<EventDetail, StoreError> {
    let row = read_event(answer.row()?, account, name)?;
    let (headers, body) = (KeptHeaders(answer.bytes()?.to_vec()), answer.bytes()?);
    let mut counts = answer.row()?;
    let copies = match counts.maybe_int()? {
        None => None,
        Some(copies) => {
            let (conflicts, last_ms) = (counts.count()?, counts.int()?);
            let kept = counts.maybe_text()?.and_then(|kept| Copies::read_kept(&kept));
            Some(Copies { event: row.id, copies: copies.cast_unsigned(), conflicts, last_ms, kept })
        }
    };
    let mut attempts = answer.row()?.rows().map(|row| read_attempt(row?, account)).collect::<Result<Vec<_>, _>>()?;
    attempts.sort_by_key(|row| row.fence);
    let open = answer.row()?.rows().map(|row| read_item(row?, account)).collect::<Result<_, _>>()?;
    Ok(EventDetail { row, headers, body, copies, attempts, open })
}

fn read_attempt(mut row: Row, account: u32) -> Result<AttemptRow, StoreError> {
    let (seq, made_ms) = (row.seq()?, row.int()?);
    Ok(AttemptRow {
        item: ItemId(seq.id(made_ms, account)),
        attempt: row.small()?,
        fence: Fence(row.count()?),
        worker: row.text()?,
        leased_ms: row.int()?,
        ended_ms: row.int()?,
        outcome: row.text()?,
        detail: row.text()?,
    })
}
