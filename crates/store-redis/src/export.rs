//! Everything in the store, page by page, as records that any store understands.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_domain::{Direction, EventId, Kind, Priority, Steps, ThreadId, ids};
use hapax_store::moving::{Dumped, IMPORTING, LONG_PAGE, half_filled};
use hapax_store::registers::Register;
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, Carried, EventRec, ItemPlace, ItemRec, KeyRec, MessageRec, NameRec, OutRec, ProviderNameRec, Queue,
    ThreadRec, inbox_lane, outbox_lane, own_lane, read_past, thread_hash,
};
use hapax_store::{After, Answer, Bookmark, Copies, KeptHeaders, Moved, Moving, StoreError, Table, read_replies};
use redis::Script;

use super::RedisStore;
use super::message_reads::read_steps;
use super::moved::parts;
use super::place::{Seq, why_of};
use super::registry::AccountInChannel;
use super::row::{Row, int, odd};
use super::script;

#[async_trait]
impl Moving for RedisStore {
    async fn export(&self, from: Option<Bookmark>, limit: usize) -> Result<(Vec<Moved>, Option<Bookmark>), StoreError> {
        if from.is_none() && self.is_half_filled().await? {
            return Err(half_filled());
        }
        let at = from.unwrap_or_else(Bookmark::start);
        let (records, after) = match at.table {
            Table::Settings => self.settings(at.after.as_ref(), limit.clamp(1, LONG_PAGE)).await?,
            Table::Pieces => self.dump_pieces(at.after.as_ref(), limit.clamp(1, LONG_PAGE)).await?,
            Table::Claims => self.dump_claims(at.after.as_ref(), limit.max(1)).await?,
            Table::Paused => (self.list_paused().await?.into_iter().map(Moved::Paused).collect(), None),
            _ => self.page(&at, limit.max(1)).await?,
        };
        Ok((records, at.then(after)))
    }

    async fn begin_import(&self) -> Result<(), StoreError> {
        self.begin_filling().await
    }

    async fn import(&self, records: Vec<Moved>) -> Result<(), StoreError> {
        self.fill(&records).await
    }

    async fn end_import(&self) -> Result<(), StoreError> {
        self.end_filling().await
    }

    async fn is_half_filled(&self) -> Result<bool, StoreError> {
        let (root, mut command) = (self.link.shared_root(), redis::cmd("HEXISTS"));
        command.arg(format!("{root}settings:")).arg(IMPORTING);
        Ok(int(self.link.ask("looking for an import", &root, command).await?)? == 1)
    }
}

/// A line of keys that is read page by page.
struct Line {
    root: String,
    /// Whose it is; nobody's for keys that were moved here.
    account: u32,
    name: Arc<str>,
    script: &'static Script,
    args: Vec<String>,
}

/// The lines that the records of a kind are read from, for one account in one channel.
fn lines_in_channel(table: Table) -> (&'static Script, &'static [&'static str]) {
    match table {
        Table::Events => (&script::DUMP_EVENTS, &[""]),
        Table::Copies => (&script::DUMP_STORIES, &["C"]),
        Table::Answers => (&script::DUMP_STORIES, &["A"]),
        Table::Items => (&script::DUMP_ITEMS, &["way", "park", "quar"]),
        Table::Outs => (&script::DUMP_MESSAGES, &["out"]),
        _ => (&script::DUMP_MESSAGES, &["out", "mc"]),
    }
}

impl RedisStore {
    /// First those that are kept for ever, which are few; then the others by their end.
    async fn settings(&self, after: Option<&After>, limit: usize) -> Result<Dumped, StoreError> {
        let Some(After::Number(from)) = after else {
            let (root, mut command) = (self.link.shared_root(), redis::cmd("HGETALL"));
            command.arg(format!("{root}settings:"));
            let mut answer = Row::new(self.link.ask("reading settings", &root, command).await?)?;
            let mut settings = Vec::new();
            while let Some(name) = answer.maybe_text()? {
                settings.push(Moved::Setting { name, register: Register { value: answer.text()?, ends_ms: None } });
            }
            return Ok((settings, Some(After::Number(0))));
        };
        let call = self.link.shared_call(&script::DUMP_REGISTERS).arg(*from).arg(limit);
        let mut answer = Row::new(self.link.run("reading registers", call).await?)?;
        let looked_at = answer.count()?;
        let read = |mut row: Row| {
            let (name, ends_ms) = (row.text()?, Some(row.int()?));
            Ok(Moved::Setting { name, register: Register { ends_ms, value: row.text()? } })
        };
        let registers = answer.row()?.rows().map(|row| read(row?)).collect::<Result<_, StoreError>>()?;
        Ok((registers, (looked_at >= limit as u64).then_some(After::Number(from + looked_at))))
    }

    /// In the same order each time, as long as nobody else uses the store.
    async fn lines(&self, table: Table) -> Result<Vec<Line>, StoreError> {
        let of = |entry: &AccountInChannel, script, args| Line {
            root: self.link.root(entry.account),
            account: entry.account,
            name: Arc::clone(&entry.name),
            script,
            args,
        };
        let accounts = self.registry.accounts(&self.link).await?;
        let of_accounts = |script| accounts.iter().map(move |entry| of(entry, script, vec![])).collect::<Vec<_>>();
        let entries = self.registry.entries(&self.link, None).await?;
        let of_seats = |(script, names): (&'static Script, &[&str])| {
            let of_entry = |entry: &AccountInChannel| {
                let args = |name: &&str| match *name {
                    "" => vec![entry.channel.to_string()],
                    name => vec![name.to_owned(), entry.channel.to_string()],
                };
                names.iter().map(|name| of(entry, script, args(name))).collect::<Vec<_>>()
            };
            entries.iter().flat_map(of_entry).collect::<Vec<_>>()
        };
        Ok(match table {
            Table::Settings | Table::Paused | Table::Pieces | Table::Claims => Vec::new(),
            Table::Keys => {
                let moved = |part| Line {
                    root: self.link.root_of_moved(part),
                    account: 0,
                    name: Arc::from(""),
                    script: &script::DUMP_KEYS,
                    args: vec![],
                };
                of_accounts(&script::DUMP_KEYS).into_iter().chain(parts().map(moved)).collect()
            }
            Table::Threads | Table::Names => of_accounts(&script::DUMP_THREADS),
            Table::ProviderNames => {
                let mut lines = of_seats(lines_in_channel(table));
                lines.extend(of_accounts(&script::DUMP_EARLY));
                lines
            }
            Table::Attempts => {
                let mut lines = of_seats((&script::DUMP_STORIES, &["T"]));
                lines.extend(of_seats(lines_in_channel(table)));
                lines
            }
            _ => of_seats(lines_in_channel(table)),
        })
    }

    async fn page(&self, at: &Bookmark, limit: usize) -> Result<Dumped, StoreError> {
        let (place, skip) = match at.after {
            Some(After::Pair(place, skip)) => (place, skip),
            _ => (0, 0),
        };
        let lines = self.lines(at.table).await?;
        let Some(line) = lines.get(place as usize) else { return Ok((Vec::new(), None)) };
        let call = self.link.call_at(line.script, &line.root).arg(skip).arg(limit).arg(&line.args);
        let mut answer = Row::new(self.link.run("exporting", call).await?)?;
        let telling = Telling { line, table: at.table, now_ms: self.link.now_ms().await? };
        let mut records = Vec::new();
        for row in answer.row()?.rows() {
            telling.read(row?, &mut records)?;
        }
        let next = match answer.maybe_int()? {
            Some(next) => Some(After::Pair(place, next.cast_unsigned())),
            None => (place as usize + 1 < lines.len()).then_some(After::Pair(place + 1, 0)),
        };
        Ok((records, next))
    }
}

/// Reads the rows of one page.
struct Telling<'l> {
    line: &'l Line,
    table: Table,
    now_ms: i64,
}

/// A lease that is not moved.
struct Lease {
    fence: u64,
    worker: String,
    leased_ms: i64,
}

impl Telling<'_> {
    fn read(&self, row: Row, records: &mut Vec<Moved>) -> Result<(), StoreError> {
        match self.table {
            Table::Settings | Table::Paused | Table::Pieces | Table::Claims => Ok(()),
            Table::Keys => self.key(row, records),
            Table::Threads | Table::Names => self.thread(row, records),
            Table::Events => self.event(row, records),
            Table::Copies => self.copies(row, records),
            Table::Answers => self.answer(row, records),
            Table::Items => self.item(row, records),
            Table::ProviderNames if std::ptr::eq(self.line.script, &*script::DUMP_EARLY) => self.early(row, records),
            Table::Attempts if std::ptr::eq(self.line.script, &*script::DUMP_STORIES) => self.attempts(row, records),
            Table::Messages | Table::ProviderNames | Table::Outs | Table::Attempts => self.message(row, records),
        }
    }

    fn number(&self, seq: Seq) -> u64 {
        seq.number(self.line.account)
    }

    fn key(&self, mut row: Row, records: &mut Vec<Moved>) -> Result<(), StoreError> {
        let key = row.bytes()?[..].try_into().map_err(|_| odd("a key of another length"))?;
        let (event, at_ms) = (self.number(row.seq()?), row.int()?);
        let (fingerprint, expires_ms) = (row.small()?, row.int()?);
        if expires_ms > self.now_ms {
            records.push(Moved::Key(KeyRec { key, event, at_ms, fingerprint, expires_ms }));
        }
        Ok(())
    }

    fn thread(&self, mut row: Row, records: &mut Vec<Moved>) -> Result<(), StoreError> {
        let account = self.line.name.to_string();
        let (peer, channel, last_ms, last_text) = (row.text()?, row.text()?, row.int()?, row.maybe_text()?);
        let last_direction = if row.text()? == "in" { Direction::In } else { Direction::Out };
        let unread = row.maybe_int()?.unwrap_or(0).cast_unsigned();
        let purged_to = row.maybe_seq()?.map_or(0, |cut| self.number(cut));
        let read_to = row.maybe_seq()?.map_or(0, |read| self.number(read));
        if self.table == Table::Threads {
            records.push(Moved::Thread(ThreadRec {
                account,
                peer,
                channel,
                last_ms,
                last_text,
                last_direction,
                unread,
                purged_to,
                read_to,
            }));
            return Ok(());
        }
        let mut names = row.row()?;
        while let Some(name) = names.maybe_text()? {
            records.push(Moved::Name(NameRec { account: account.clone(), name, peer: peer.clone() }));
        }
        Ok(())
    }

    fn event(&self, mut row: Row, records: &mut Vec<Moved>) -> Result<(), StoreError> {
        let account = self.line.name.to_string();
        let (number, webhook) = (self.number(row.seq()?), self.number(row.seq()?));
        let (item, received_ms) = (row.maybe_seq()?.map(|item| self.number(item)), row.int()?);
        let kind = read_kind(&mut row)?;
        let (id, peer, echo, at_ms) = (row.text()?, row.maybe_text()?, row.flag()?, row.maybe_int()?);
        let (text, index, thread) = (row.maybe_text()?, row.small()?, row.maybe_text()?);
        let (part, replays, body_bytes) = (row.flag()?, row.small()?, row.count()?);
        let carried = match row.maybe_row()? {
            None => None,
            Some(mut carried) => Some(Carried {
                headers: KeptHeaders(carried.bytes()?.to_vec()),
                body: carried.bytes()?,
                events: carried.small()?,
            }),
        };
        records.push(Moved::Event(EventRec {
            number,
            webhook,
            received_ms,
            channel: self.channel(),
            kind,
            id,
            peer,
            echo,
            at_ms,
            text,
            index,
            item,
            part,
            thread: thread.map(|peer| thread_hash(&account, &peer)),
            account,
            replays,
            body_bytes,
            carried,
        }));
        Ok(())
    }

    fn channel(&self) -> Arc<str> {
        self.line.args.last().map_or("", String::as_str).into()
    }

    fn copies(&self, mut row: Row, records: &mut Vec<Moved>) -> Result<(), StoreError> {
        let (number, received_ms) = (self.number(row.seq()?), row.int()?);
        let event = EventId(ids::numbered(received_ms, number));
        let (copies, conflicts, last_ms) = (row.count()?, row.count()?, row.int()?);
        let kept = Copies::read_kept(&row.text()?);
        records.push(Moved::Copies(Copies { event, copies, conflicts, last_ms, kept }));
        Ok(())
    }

    fn answer(&self, mut row: Row, records: &mut Vec<Moved>) -> Result<(), StoreError> {
        let (event, status) = (self.number(row.seq()?), row.int()?);
        let status = u16::try_from(status).map_err(|_| odd("a status out of range"))?;
        let answer = Answer { status, content_type: row.maybe_text()?, body: row.bytes()? };
        records.push(Moved::Answer(AnswerRec { event, answer }));
        Ok(())
    }

    fn item(&self, mut row: Row, records: &mut Vec<Moved>) -> Result<(), StoreError> {
        let (number, received_ms) = (self.number(row.seq()?), row.int()?);
        let place = match &row.bytes()?[..] {
            b"L" => ItemPlace::InLane,
            b"P" => ItemPlace::Parked,
            b"Q" => ItemPlace::Quarantined,
            _ => return Err(odd("an unknown place")),
        };
        let (attempt, failures, replay) = (row.small()?, row.small()?, row.maybe_int()?.map(|replay| replay as u32));
        let (why, due_ms, channel) = (why_of(row.maybe_text()?, self.line.account), row.int()?, row.text()?);
        let (mut members, mut events) = (row.row()?, Vec::new());
        while let Some(event) = members.maybe_seq()? {
            events.push(self.number(event));
        }
        let (events_ms, webhook) = (row.int()?, self.number(row.seq()?));
        let kind = read_kind(&mut row)?;
        let peer = row.maybe_text()?.filter(|_| kind.waits_in_thread() && place != ItemPlace::Quarantined);
        let thread = peer.map(|peer| ThreadId { account: self.line.name.to_string(), peer });
        let lane = inbox_lane(&channel, thread.as_ref(), number);
        let replies = row.maybe_bytes()?.and_then(|bytes| read_replies(&bytes)).unwrap_or_default();
        if let Some(lease) = read_lease(&mut row)? {
            let of = events.first().copied().unwrap_or_default();
            records.push(self.ended(Queue::Inbox, (of, number, received_ms), attempt, lease));
        }
        records.push(Moved::Item(ItemRec {
            number,
            received_ms,
            channel: channel.into(),
            lane,
            place,
            events,
            events_ms,
            webhook,
            attempt,
            failures,
            replay,
            why,
            due_ms,
            replies,
        }));
        Ok(())
    }

    fn ended(&self, queue: Queue, (of, item, item_ms): (u64, u64, i64), attempt: u32, lease: Lease) -> Moved {
        Moved::Attempt(AttemptRec {
            queue,
            of,
            item,
            item_ms,
            attempt,
            fence: lease.fence,
            worker: lease.worker,
            leased_ms: lease.leased_ms,
            ended_ms: self.now_ms,
            outcome: "lost".to_owned(),
            detail: "moved to another store".to_owned(),
        })
    }

    fn early(&self, mut row: Row, records: &mut Vec<Moved>) -> Result<(), StoreError> {
        let (account, provider_id, heard_ms) = (self.line.name.to_string(), row.text()?, row.int()?);
        let early = read_steps(&mut row)?;
        records.push(Moved::ProviderName(ProviderNameRec { account, provider_id, message: None, early, heard_ms }));
        Ok(())
    }

    fn attempts(&self, mut row: Row, records: &mut Vec<Moved>) -> Result<(), StoreError> {
        let of = self.number(row.seq()?);
        for attempt in row.row()?.rows() {
            let mut attempt = attempt?;
            let (item, item_ms) = (self.number(attempt.seq()?), attempt.int()?);
            records.push(read_attempt(attempt, Queue::Inbox, (of, item, item_ms))?);
        }
        Ok(())
    }

    /// A message, or what hangs on it.
    fn message(&self, mut row: Row, records: &mut Vec<Moved>) -> Result<(), StoreError> {
        let mut message = self.read_message(&mut row)?;
        let (number, created_ms) = (message.number, message.created_ms);
        let open = row.maybe_row()?.map(read_open).transpose()?;
        let lease = read_lease(&mut row)?;
        let mut names = row.row()?;
        // What was being sent and was heard of by its provider's id has been sent: whoever leased it next would find the same.
        let is_known_sent = lease.is_some() && message.provider_id.is_some();
        match self.table {
            Table::Messages => {
                if let Some(open) = open.filter(|_| is_known_sent) {
                    message.settle_as_known(open.attempt, self.now_ms);
                }
                records.push(Moved::Message(message));
            }
            Table::ProviderNames => {
                while let Some(provider_id) = names.maybe_text()? {
                    let (account, early) = (message.account.clone(), Steps::default());
                    let name = ProviderNameRec { account, provider_id, message: Some(number), early, heard_ms: created_ms };
                    records.push(Moved::ProviderName(name));
                }
            }
            Table::Outs => {
                let Some(Open { attempt, failures, due_ms, begun_ms, unknown, alone }) = open else { return Ok(()) };
                let of = (number, number, created_ms);
                records.extend(lease.map(|lease| self.ended(Queue::Outbox, of, attempt, lease)));
                if !is_known_sent {
                    let lane = if alone { own_lane(Queue::Outbox, number) } else { message.home };
                    let MessageRec { channel, account, priority, .. } = message;
                    records.push(Moved::Out(OutRec {
                        number,
                        created_ms,
                        channel,
                        account,
                        lane,
                        priority,
                        attempt,
                        failures,
                        due_ms,
                        begun_ms,
                        unknown,
                    }));
                }
            }
            _ => {
                for attempt in row.row()?.rows() {
                    records.push(read_attempt(attempt?, Queue::Outbox, (number, number, created_ms))?);
                }
            }
        }
        Ok(())
    }

    fn read_message(&self, row: &mut Row) -> Result<MessageRec, StoreError> {
        let account = self.line.name.to_string();
        let (number, created_ms, channel) = (self.number(row.seq()?), row.int()?, Arc::<str>::from(row.text()?));
        let (peer, request_id) = (row.text()?, row.text()?);
        let fingerprint = row.bytes()?[..].try_into().map_err(|_| odd("a fingerprint of another length"))?;
        let (text, payload) = (row.maybe_text()?, row.bytes()?);
        let priority = *Priority::ALL.get(row.int()? as usize).ok_or_else(|| odd("an unknown priority"))?;
        let reply_to = row.maybe_bytes()?.and_then(|bytes| uuid::Uuid::from_slice(&bytes).ok()).map(EventId);
        let (thread, lane_of, provider_id, why) = (row.text()?, row.text()?, row.maybe_text()?, row.maybe_text()?);
        let past = read_past(row.maybe_text()?.as_deref());
        Ok(MessageRec {
            number,
            created_ms,
            home: outbox_lane(&channel, &account, &lane_of),
            thread: thread_hash(&account, &thread),
            channel,
            account,
            peer,
            request_id,
            fingerprint,
            text,
            payload,
            priority,
            reply_to,
            provider_id,
            steps: read_steps(row)?,
            why,
            past,
        })
    }
}

/// How a message stands in the outbox.
struct Open {
    attempt: u32,
    failures: u32,
    due_ms: Option<i64>,
    begun_ms: Option<i64>,
    unknown: bool,
    alone: bool,
}

fn read_open(mut row: Row) -> Result<Open, StoreError> {
    let (attempt, failures) = (row.small()?, row.maybe_int()?.unwrap_or_default() as u32);
    let (due_ms, begun_ms) = (row.maybe_int()?, row.maybe_int()?);
    Ok(Open { attempt, failures, due_ms, begun_ms, unknown: row.flag()?, alone: row.flag()? })
}

fn read_kind(row: &mut Row) -> Result<Kind, StoreError> {
    Kind::from_name(&row.text()?).ok_or_else(|| odd("an unknown kind"))
}

fn read_lease(row: &mut Row) -> Result<Option<Lease>, StoreError> {
    let Some(mut held) = row.maybe_row()? else { return Ok(None) };
    Ok(Some(Lease { fence: held.count()?, worker: held.text()?, leased_ms: held.int()? }))
}

fn read_attempt(mut row: Row, queue: Queue, (of, item, item_ms): (u64, u64, i64)) -> Result<Moved, StoreError> {
    Ok(Moved::Attempt(AttemptRec {
        queue,
        of,
        item,
        item_ms,
        attempt: row.small()?,
        fence: row.count()?,
        worker: row.text()?,
        leased_ms: row.int()?,
        ended_ms: row.int()?,
        outcome: row.text()?,
        detail: row.text()?,
    }))
}
