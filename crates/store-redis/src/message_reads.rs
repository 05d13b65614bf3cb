//! Answers to questions about threads, messages and the outbox.

use futures_util::future::try_join_all;
use hapax_domain::{Direction, EventId, Fence, MessageId, Priority, Status, Steps, ThreadId};
use hapax_store::steps::records::read_past;
use hapax_store::{
    EntryId, MessageRow, OutboxPlace, OutboxQuery, OutboxState, Page, PausedAccount, StoreError, ThreadMessage, ThreadQuery,
    ThreadRow, TryRow,
};

use super::RedisStore;
use super::place::Mark;
use super::reads::page;
use super::registry::AccountInChannel;
use super::row::{Row, odd};
use super::script;

impl RedisStore {
    pub(super) async fn list_threads(&self, query: &ThreadQuery) -> Result<Page<ThreadRow>, StoreError> {
        let mut entries = self.registry.entries(&self.link, None).await?;
        entries.retain(|entry| query.account.as_ref().is_none_or(|account| **account == *entry.name));
        entries.dedup_by_key(|entry| entry.account);
        let lists = try_join_all(entries.iter().map(|entry| self.threads_of(entry, query))).await?;
        let mut rows: Vec<ThreadRow> = lists.into_iter().flatten().collect();
        rows.sort_by(|a, b| (b.last_ms, &b.id).cmp(&(a.last_ms, &a.id)));
        Ok(page(rows, query.limit))
    }

    async fn threads_of(&self, entry: &AccountInChannel, query: &ThreadQuery) -> Result<Vec<ThreadRow>, StoreError> {
        // At the very time of the row before, threads follow by their id.
        let last_ms = query.before.as_ref().map(|(at, id)| if *entry.name > *id.account { at - 1 } else { *at });
        let is_below = |row: &ThreadRow| query.before.as_ref().is_none_or(|(at, id)| (row.last_ms, &row.id) < (*at, id));
        let (mut rows, mut skip) = (Vec::new(), 0);
        while rows.len() <= query.limit {
            let call = self.link.call(&script::LIST_THREADS, entry.account).maybe(query.channel.as_ref()).maybe_int(last_ms);
            let call = call.arg(skip).arg(query.limit + 1 - rows.len());
            let mut answer = Row::new(self.link.run("listing threads", call).await?)?;
            for row in answer.row()?.rows() {
                rows.extend(Some(read_thread(row?, &entry.name)?).filter(is_below));
            }
            match answer.maybe_int()? {
                Some(next) => skip = next,
                None => break,
            }
        }
        Ok(rows)
    }

    pub(super) async fn show_thread(
        &self,
        which: &'static redis::Script,
        id: &ThreadId,
    ) -> Result<Option<ThreadRow>, StoreError> {
        let Some(account) = self.registry.find(&self.link, &id.account).await? else { return Ok(None) };
        let call = self.link.call(which, account).arg(&id.peer);
        let answer = Row::maybe_of(self.link.run("reading a thread", call).await?)?;
        answer.map(|row| read_thread(row, &id.account)).transpose()
    }

    pub(super) async fn list_thread_messages(
        &self,
        id: &ThreadId,
        before: Option<EntryId>,
        limit: usize,
    ) -> Result<Page<ThreadMessage>, StoreError> {
        let none = Page { rows: vec![], more: false };
        let Some(account) = self.registry.find(&self.link, &id.account).await? else { return Ok(none) };
        let moved_to = self.registry.moved(&self.link).await?.to;
        let before = match before {
            None => None,
            Some(EntryId::Event(id)) => Some(("e", Mark::new(id.0, moved_to))),
            Some(EntryId::Message(id)) => Some(("m", Mark::new(id.0, moved_to))),
        };
        let call = self.link.call(&script::THREAD_MESSAGES, account).arg(&id.peer).arg(limit + 1);
        let call = match before {
            None => call.arg("").arg("").arg(""),
            Some((kind, Some(mark))) if mark.may_be_of(account) => call.arg(kind).arg(mark.seq().to_string()).arg(mark.at_s),
            Some(_) => return Ok(none),
        };
        let answer = Row::new(self.link.run("reading a thread", call).await?)?;
        let rows = answer.rows().map(|row| read_entry(row?, account)).collect::<Result<Vec<_>, _>>()?;
        Ok(page(rows, limit))
    }

    pub(super) async fn show_message(&self, id: MessageId) -> Result<Option<MessageRow>, StoreError> {
        let Some(place) = self.place_of("m", id.0).await? else { return Ok(None) };
        let Some(name) = self.registry.name(&self.link, place.account).await? else { return Ok(None) };
        let call = self.link.call(&script::SHOW_MESSAGE, place.account).arg(place.seq.to_string());
        let Some(row) = Row::maybe_of(self.link.run("reading a message", call).await?)? else { return Ok(None) };
        Ok(Some(read_message(row, place.account, &name)?).filter(|row| row.id == id))
    }

    pub(super) async fn find_message(&self, account: &str, provider_id: &str) -> Result<Option<MessageId>, StoreError> {
        let Some(account) = self.registry.find(&self.link, account).await? else { return Ok(None) };
        let call = self.link.call(&script::FIND_MESSAGE, account).arg(provider_id);
        let Some(mut row) = Row::maybe_of(self.link.run("looking for a message", call).await?)? else { return Ok(None) };
        let seq = row.seq()?;
        Ok(Some(MessageId(seq.id(row.int()?, account))))
    }

    pub(super) async fn list_outbox(&self, query: &OutboxQuery) -> Result<Page<MessageRow>, StoreError> {
        let Some(after) = self.bound(query.after.map(|id| id.0)).await? else { return Ok(page(vec![], query.limit)) };
        let mut entries = self.registry.entries(&self.link, query.channel.as_deref()).await?;
        entries.retain(|entry| query.account.as_ref().is_none_or(|account| **account == *entry.name));
        let lists = try_join_all(entries.iter().map(|entry| self.outbox_of(entry, query, after))).await?;
        let mut rows: Vec<MessageRow> = lists.into_iter().flatten().collect();
        rows.sort_by_key(|row| row.id);
        Ok(page(rows, query.limit))
    }

    async fn outbox_of(
        &self,
        entry: &AccountInChannel,
        query: &OutboxQuery,
        after: Option<Mark>,
    ) -> Result<Vec<MessageRow>, StoreError> {
        let (mut rows, mut at_s) = (Vec::new(), after.map(|mark| mark.at_s));
        let mut above = after.map(|mark| mark.above(entry.account));
        while rows.len() <= query.limit {
            let call = self.link.call(&script::LIST_OUTBOX, entry.account).arg(&*entry.channel).flag(query.unknown);
            let call = call.maybe_int(at_s).maybe(above.map(|seq| seq.to_string())).arg(query.limit + 1 - rows.len());
            let mut answer = Row::new(self.link.run("listing the outbox", call).await?)?;
            for row in answer.row()?.rows() {
                rows.push(read_message(row?, entry.account, &entry.name)?);
            }
            (at_s, above) = (None, answer.maybe_seq()?);
            if above.is_none() {
                break;
            }
        }
        Ok(rows)
    }

    pub(super) async fn list_paused(&self) -> Result<Vec<PausedAccount>, StoreError> {
        let entries = self.registry.accounts(&self.link).await?;
        let mut paused = Vec::new();
        for entry in entries {
            let answer =
                self.link.run("listing paused accounts", self.link.call(&script::PAUSED_ACCOUNTS, entry.account)).await?;
            for row in Row::new(answer)?.rows() {
                let mut row = row?;
                let (channel, why, since_ms) = (row.text()?, row.text()?, row.int()?);
                paused.push(PausedAccount { channel, account: entry.name.to_string(), why, since_ms });
            }
        }
        paused.sort_by(|a, b| (&a.channel, &a.account).cmp(&(&b.channel, &b.account)));
        Ok(paused)
    }
}

fn read_thread(mut row: Row, account: &str) -> Result<ThreadRow, StoreError> {
    let (peer, channel, last_ms, last_text) = (row.text()?, row.text()?, row.int()?, row.maybe_text()?);
    let last_direction = if row.text()? == "in" { Direction::In } else { Direction::Out };
    let unread = row.maybe_int()?.unwrap_or(0).cast_unsigned();
    let (mut names, mut aliases) = (row.row()?, Vec::new());
    while let Some(name) = names.maybe_text()? {
        aliases.push(name);
    }
    aliases.retain(|name| *name != peer);
    aliases.sort();
    let id = ThreadId { account: account.to_owned(), peer };
    Ok(ThreadRow { id, channel, aliases, last_ms, last_text, last_direction, unread })
}

fn read_entry(mut row: Row, account: u32) -> Result<ThreadMessage, StoreError> {
    let is_message = row.text()? == "m";
    let (seq, at_ms, channel) = (row.seq()?, row.int()?, row.text()?);
    let (text, provider_id) = (row.maybe_text()?, row.maybe_text()?);
    let id = seq.id(at_ms, account);
    if is_message {
        let status = Some(read_steps(&mut row)?.status());
        let id = EntryId::Message(MessageId(id));
        return Ok(ThreadMessage { id, channel, direction: Direction::Out, at_ms, text, provider_id, status });
    }
    let (echo, read) = (row.flag()?, row.flag()?);
    let direction = if echo { Direction::Out } else { Direction::In };
    let status = (!echo).then_some(if read { Status::Read } else { Status::Delivered });
    Ok(ThreadMessage { id: EntryId::Event(EventId(id)), channel, direction, at_ms, text, provider_id, status })
}

/// One time per status, in their order, or nothing.
pub(super) fn read_steps(row: &mut Row) -> Result<Steps, StoreError> {
    let mut steps = Vec::new();
    for status in Status::ALL {
        steps.extend(row.maybe_int()?.map(|at_ms| (status, at_ms)));
    }
    Ok(Steps::new(steps))
}

fn read_message(mut row: Row, account: u32, name: &str) -> Result<MessageRow, StoreError> {
    let (seq, created_ms, channel, peer) = (row.seq()?, row.int()?, row.text()?, row.text()?);
    let (request_id, text, payload) = (row.text()?, row.maybe_text()?, row.bytes()?);
    let priority = *Priority::ALL.get(row.int()? as usize).ok_or_else(|| odd("an unknown priority"))?;
    let reply_to = row.maybe_bytes()?.and_then(|bytes| uuid::Uuid::from_slice(&bytes).ok()).map(EventId);
    let (provider_id, why, past) = (row.maybe_text()?, row.maybe_text()?, read_past(row.maybe_text()?.as_deref()));
    let steps = read_steps(&mut row)?;
    let outbox = row.maybe_row()?.map(read_place).transpose()?;
    let tries = row.row()?.rows().map(|row| read_try(row?)).collect::<Result<_, _>>()?;
    Ok(MessageRow {
        id: MessageId(seq.id(created_ms, account)),
        channel,
        account: name.to_owned(),
        peer,
        request_id,
        text,
        payload,
        priority,
        reply_to,
        created_ms,
        provider_id,
        steps,
        why,
        past,
        outbox,
        tries,
    })
}

fn read_place(mut row: Row) -> Result<OutboxPlace, StoreError> {
    let (attempt, failures) = (row.small()?, row.maybe_int()?.unwrap_or_default() as u32);
    let (due_ms, begun, unknown) = (row.maybe_int()?, row.flag()?, row.flag()?);
    let state = match (row.maybe_row()?, unknown) {
        (Some(mut held), _) => {
            OutboxState::Leased { worker: held.text()?, until_ms: held.int()?, fence: Fence(held.count()?), begun }
        }
        (None, true) => OutboxState::Unknown { check_ms: due_ms },
        (None, false) => OutboxState::Waiting { due_ms: due_ms.unwrap_or_default() },
    };
    Ok(OutboxPlace { state, attempt, failures })
}

fn read_try(mut row: Row) -> Result<TryRow, StoreError> {
    Ok(TryRow {
        attempt: row.small()?,
        fence: Fence(row.count()?),
        worker: row.text()?,
        leased_ms: row.int()?,
        ended_ms: row.int()?,
        outcome: row.text()?,
        detail: row.text()?,
    })
}
