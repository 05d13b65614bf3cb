//! What stands in the file of an export: one JSON object a line, each a twin of a record. Bytes are base64, times milliseconds since 1970.

mod bytes;

use std::fmt;

use hapax_domain::{Direction, EventId, Kind, Priority, Status, Steps};
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, Carried, EventRec, ItemRec, KeyRec, MessageRec, NameRec, OutRec, Place, ProviderNameRec, Queue,
    ThreadRec, read_past, write_past,
};
use hapax_store::{Answer, Copies, KeptHeaders, Moved, PausedAccount, read_replies, write_replies};
use serde::{Deserialize, Serialize};

use self::bytes::Base64;

/// The only version of the file so far.
pub(super) const VERSION: u32 = 1;
pub(super) const EXPORT: &str = "export";

/// True for what belongs to one installation: who holds the old one's tokens must not open the new one.
pub(super) fn is_private(record: &Moved) -> bool {
    matches!(record, Moved::Setting { name, .. } if hapax_gateway::api::auth::NEVER_MOVED.contains(&name.as_str()))
}

/// One line, after the first.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    Setting(Setting),
    Paused(Paused),
    Key(Key),
    Thread(Thread),
    Name(Name),
    Event(Box<Event>),
    Copies(CopiesOf),
    Answer(AnswerTo),
    Item(Item),
    Message(Box<Message>),
    ProviderName(ProviderName),
    Out(Out),
    Attempt(Attempt),
    End(End),
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Head {
    /// Always `export`.
    pub(super) hapax: String,
    pub(super) version: u32,
    pub(super) program: String,
    pub(super) made_ms: i64,
}

/// The last line: without it the file is not whole.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) records: u64,
    /// BLAKE3 of all lines before this one.
    pub(super) blake3: String,
}

/// What a record says that no hapax has written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Odd(&'static str);

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct Setting {
    name: String,
    value: String,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Paused {
    channel: String,
    account: String,
    why: String,
    since_ms: i64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Key {
    key: Base64,
    event: u64,
    at_ms: i64,
    fingerprint: u32,
    expires_ms: i64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Thread {
    account: String,
    peer: String,
    channel: String,
    last_ms: i64,
    last_text: Option<String>,
    last_direction: String,
    unread: u64,
    purged_to: u64,
    #[serde(default)]
    read_to: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Name {
    account: String,
    name: String,
    peer: String,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Event {
    number: u64,
    webhook: u64,
    received_ms: i64,
    channel: String,
    kind: String,
    account: String,
    id: String,
    peer: Option<String>,
    echo: bool,
    at_ms: Option<i64>,
    text: Option<String>,
    index: u32,
    item: Option<u64>,
    part: bool,
    thread: Option<Base64>,
    replays: u32,
    body_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    carried: Option<Webhook>,
}

/// What the first event of a webhook carries for all of them.
#[derive(Serialize, Deserialize)]
struct Webhook {
    headers: Base64,
    body: Base64,
    events: u32,
}

#[derive(Serialize, Deserialize)]
pub(super) struct CopiesOf {
    event: String,
    copies: u64,
    conflicts: u64,
    last_ms: i64,
    /// Not there in a file of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct AnswerTo {
    event: u64,
    status: u16,
    content_type: Option<String>,
    body: Base64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Item {
    number: u64,
    received_ms: i64,
    channel: String,
    lane: Base64,
    place: String,
    events: Vec<u64>,
    events_ms: i64,
    webhook: u64,
    attempt: u32,
    #[serde(default)]
    failures: u32,
    replay: Option<u32>,
    why: Option<String>,
    due_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replies: Option<Base64>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Message {
    number: u64,
    created_ms: i64,
    channel: String,
    account: String,
    peer: String,
    request_id: String,
    fingerprint: Base64,
    text: Option<String>,
    payload: Base64,
    priority: String,
    reply_to: Option<String>,
    home: Base64,
    thread: Base64,
    provider_id: Option<String>,
    steps: Vec<(String, i64)>,
    why: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    past: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ProviderName {
    account: String,
    provider_id: String,
    message: Option<u64>,
    early: Vec<(String, i64)>,
    heard_ms: i64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Out {
    number: u64,
    created_ms: i64,
    channel: String,
    account: String,
    lane: Base64,
    priority: String,
    attempt: u32,
    #[serde(default)]
    failures: u32,
    due_ms: Option<i64>,
    begun_ms: Option<i64>,
    unknown: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Attempt {
    queue: String,
    of: u64,
    item: u64,
    item_ms: i64,
    attempt: u32,
    fence: u64,
    worker: String,
    leased_ms: i64,
    ended_ms: i64,
    outcome: String,
    detail: String,
}

const PLACES: [(&str, Place); 3] = [("waiting", Place::InLane), ("parked", Place::Parked), ("quarantined", Place::Quarantined)];
const QUEUES: [(&str, Queue); 2] = [("inbox", Queue::Inbox), ("outbox", Queue::Outbox)];

fn name_of<T: PartialEq + Copy>(names: &[(&str, T)], value: T) -> String {
    names.iter().find(|(_, known)| *known == value).map_or_else(String::new, |(name, _)| (*name).to_owned())
}

fn named<T: Copy>(names: &[(&str, T)], name: &str, odd: &'static str) -> Result<T, Odd> {
    names.iter().find(|(known, _)| *known == name).map(|(_, value)| *value).ok_or(Odd(odd))
}

fn steps_of(steps: &Steps) -> Vec<(String, i64)> {
    steps.iter().map(|(status, at_ms)| (status.name().to_owned(), at_ms)).collect()
}

fn read_steps(steps: Vec<(String, i64)>) -> Result<Steps, Odd> {
    let step = |(name, at_ms): (String, i64)| Ok((Status::from_name(&name).ok_or(Odd("there is no such status"))?, at_ms));
    Ok(Steps::new(steps.into_iter().map(step).collect::<Result<_, _>>()?))
}

fn read_priority(name: &str) -> Result<Priority, Odd> {
    Priority::from_name(name).ok_or(Odd("there is no such priority"))
}

fn read_event_id(id: &str) -> Result<EventId, Odd> {
    id.parse().map_err(|_| Odd("that is no event's id"))
}

impl From<Moved> for Line {
    fn from(record: Moved) -> Self {
        match record {
            Moved::Setting { name, value } => Line::Setting(Setting { name, value }),
            Moved::Paused(paused) => {
                let PausedAccount { channel, account, why, since_ms } = paused;
                Line::Paused(Paused { channel, account, why, since_ms })
            }
            Moved::Key(key) => {
                let KeyRec { key, event, at_ms, fingerprint, expires_ms } = key;
                Line::Key(Key { key: Base64::of(&key), event, at_ms, fingerprint, expires_ms })
            }
            Moved::Thread(thread) => {
                let ThreadRec { account, peer, channel, last_ms, last_text, last_direction, unread, purged_to, read_to } = thread;
                let last_direction = last_direction.name().to_owned();
                Line::Thread(Thread { account, peer, channel, last_ms, last_text, last_direction, unread, purged_to, read_to })
            }
            Moved::Name(NameRec { account, name, peer }) => Line::Name(Name { account, name, peer }),
            Moved::Event(event) => Line::Event(Box::new(event.into())),
            Moved::Copies(Copies { event, copies, conflicts, last_ms, kept }) => {
                let kept = kept.map(|kept| kept.to_string());
                Line::Copies(CopiesOf { event: event.to_string(), copies, conflicts, last_ms, kept })
            }
            Moved::Answer(AnswerRec { event, answer: Answer { status, content_type, body } }) => {
                Line::Answer(AnswerTo { event, status, content_type, body: Base64::of(&body) })
            }
            Moved::Item(item) => Line::Item(item.into()),
            Moved::Message(message) => Line::Message(Box::new(message.into())),
            Moved::ProviderName(name) => {
                let ProviderNameRec { account, provider_id, message, early, heard_ms } = name;
                Line::ProviderName(ProviderName { account, provider_id, message, early: steps_of(&early), heard_ms })
            }
            Moved::Out(out) => Line::Out(out.into()),
            Moved::Attempt(attempt) => Line::Attempt(attempt.into()),
        }
    }
}

impl TryFrom<Line> for Moved {
    type Error = Odd;

    fn try_from(line: Line) -> Result<Self, Odd> {
        Ok(match line {
            Line::End(_) => return Err(Odd("it belongs at the end")),
            Line::Setting(Setting { name, value }) => Moved::Setting { name, value },
            Line::Paused(Paused { channel, account, why, since_ms }) => {
                Moved::Paused(PausedAccount { channel, account, why, since_ms })
            }
            Line::Key(Key { key, event, at_ms, fingerprint, expires_ms }) => {
                Moved::Key(KeyRec { key: key.hash()?, event, at_ms, fingerprint, expires_ms })
            }
            Line::Thread(thread) => {
                let Thread { account, peer, channel, last_ms, last_text, last_direction, unread, purged_to, read_to } = thread;
                let directions = [("in", Direction::In), ("out", Direction::Out)];
                let last_direction = named(&directions, &last_direction, "there is no such direction")?;
                Moved::Thread(ThreadRec {
                    account,
                    peer,
                    channel,
                    last_ms,
                    last_text,
                    last_direction,
                    unread,
                    purged_to,
                    read_to,
                })
            }
            Line::Name(Name { account, name, peer }) => Moved::Name(NameRec { account, name, peer }),
            Line::Event(event) => Moved::Event(event.read()?),
            Line::Copies(CopiesOf { event, copies, conflicts, last_ms, kept }) => {
                let kept = kept.as_deref().map(read_event_id).transpose()?;
                Moved::Copies(Copies { event: read_event_id(&event)?, copies, conflicts, last_ms, kept })
            }
            Line::Answer(AnswerTo { event, status, content_type, body }) => {
                Moved::Answer(AnswerRec { event, answer: Answer { status, content_type, body: body.0.into() } })
            }
            Line::Item(item) => Moved::Item(item.read()?),
            Line::Message(message) => Moved::Message(message.read()?),
            Line::ProviderName(ProviderName { account, provider_id, message, early, heard_ms }) => {
                Moved::ProviderName(ProviderNameRec { account, provider_id, message, early: read_steps(early)?, heard_ms })
            }
            Line::Out(out) => Moved::Out(out.read()?),
            Line::Attempt(attempt) => Moved::Attempt(attempt.read()?),
        })
    }
}

impl From<EventRec> for Event {
    fn from(event: EventRec) -> Self {
        let webhook = |carried: Carried| Webhook {
            headers: Base64(carried.headers.0),
            body: Base64::of(&carried.body),
            events: carried.events,
        };
        Self {
            number: event.number,
            webhook: event.webhook,
            received_ms: event.received_ms,
            channel: event.channel.to_string(),
            kind: event.kind.name().to_owned(),
            account: event.account,
            id: event.id,
            peer: event.peer,
            echo: event.echo,
            at_ms: event.at_ms,
            text: event.text,
            index: event.index,
            item: event.item,
            part: event.part,
            thread: event.thread.map(|thread| Base64::of(&thread)),
            replays: event.replays,
            body_bytes: event.body_bytes,
            carried: event.carried.map(webhook),
        }
    }
}

impl Event {
    fn read(self) -> Result<EventRec, Odd> {
        let carried = |webhook: Webhook| Carried {
            headers: KeptHeaders(webhook.headers.0),
            body: webhook.body.0.into(),
            events: webhook.events,
        };
        Ok(EventRec {
            number: self.number,
            webhook: self.webhook,
            received_ms: self.received_ms,
            channel: self.channel.into(),
            kind: Kind::from_name(&self.kind).ok_or(Odd("there is no such kind of event"))?,
            account: self.account,
            id: self.id,
            peer: self.peer,
            echo: self.echo,
            at_ms: self.at_ms,
            text: self.text,
            index: self.index,
            item: self.item,
            part: self.part,
            thread: self.thread.map(Base64::hash).transpose()?,
            replays: self.replays,
            body_bytes: self.body_bytes,
            carried: self.carried.map(carried),
        })
    }
}

impl From<ItemRec> for Item {
    fn from(item: ItemRec) -> Self {
        Self {
            number: item.number,
            received_ms: item.received_ms,
            channel: item.channel.to_string(),
            lane: Base64::of(&item.lane),
            place: name_of(&PLACES, item.place),
            events: item.events,
            events_ms: item.events_ms,
            webhook: item.webhook,
            attempt: item.attempt,
            failures: item.failures,
            replay: item.replay,
            why: item.why,
            due_ms: item.due_ms,
            replies: write_replies(&item.replies).map(Base64),
        }
    }
}

impl Item {
    fn read(self) -> Result<ItemRec, Odd> {
        Ok(ItemRec {
            number: self.number,
            received_ms: self.received_ms,
            channel: self.channel.into(),
            lane: self.lane.hash()?,
            place: named(&PLACES, &self.place, "there is no such place of an item")?,
            events: self.events,
            events_ms: self.events_ms,
            webhook: self.webhook,
            attempt: self.attempt,
            failures: self.failures,
            replay: self.replay,
            why: self.why,
            due_ms: self.due_ms,
            replies: match self.replies {
                Some(bytes) => read_replies(&bytes.0).ok_or(Odd("the replies of an item cannot be read"))?,
                None => Vec::new(),
            },
        })
    }
}

impl From<MessageRec> for Message {
    fn from(message: MessageRec) -> Self {
        Self {
            number: message.number,
            created_ms: message.created_ms,
            channel: message.channel.to_string(),
            account: message.account,
            peer: message.peer,
            request_id: message.request_id,
            fingerprint: Base64::of(&message.fingerprint),
            text: message.text,
            payload: Base64::of(&message.payload),
            priority: message.priority.name().to_owned(),
            reply_to: message.reply_to.map(|event| event.to_string()),
            home: Base64::of(&message.home),
            thread: Base64::of(&message.thread),
            provider_id: message.provider_id,
            steps: steps_of(&message.steps),
            why: message.why,
            past: write_past(&message.past),
        }
    }
}

impl Message {
    fn read(self) -> Result<MessageRec, Odd> {
        Ok(MessageRec {
            number: self.number,
            created_ms: self.created_ms,
            channel: self.channel.into(),
            account: self.account,
            peer: self.peer,
            request_id: self.request_id,
            fingerprint: self.fingerprint.hash()?,
            text: self.text,
            payload: self.payload.0.into(),
            priority: read_priority(&self.priority)?,
            reply_to: self.reply_to.as_deref().map(read_event_id).transpose()?,
            home: self.home.hash()?,
            thread: self.thread.hash()?,
            provider_id: self.provider_id,
            steps: read_steps(self.steps)?,
            why: self.why,
            past: read_past(self.past.as_deref()),
        })
    }
}

impl From<OutRec> for Out {
    fn from(out: OutRec) -> Self {
        Self {
            number: out.number,
            created_ms: out.created_ms,
            channel: out.channel.to_string(),
            account: out.account,
            lane: Base64::of(&out.lane),
            priority: out.priority.name().to_owned(),
            attempt: out.attempt,
            failures: out.failures,
            due_ms: out.due_ms,
            begun_ms: out.begun_ms,
            unknown: out.unknown,
        }
    }
}

impl Out {
    fn read(self) -> Result<OutRec, Odd> {
        Ok(OutRec {
            number: self.number,
            created_ms: self.created_ms,
            channel: self.channel.into(),
            account: self.account,
            lane: self.lane.hash()?,
            priority: read_priority(&self.priority)?,
            attempt: self.attempt,
            failures: self.failures,
            due_ms: self.due_ms,
            begun_ms: self.begun_ms,
            unknown: self.unknown,
        })
    }
}

impl From<AttemptRec> for Attempt {
    fn from(attempt: AttemptRec) -> Self {
        Self {
            queue: name_of(&QUEUES, attempt.queue),
            of: attempt.of,
            item: attempt.item,
            item_ms: attempt.item_ms,
            attempt: attempt.attempt,
            fence: attempt.fence,
            worker: attempt.worker,
            leased_ms: attempt.leased_ms,
            ended_ms: attempt.ended_ms,
            outcome: attempt.outcome,
            detail: attempt.detail,
        }
    }
}

impl Attempt {
    fn read(self) -> Result<AttemptRec, Odd> {
        Ok(AttemptRec {
            queue: named(&QUEUES, &self.queue, "there is no such queue")?,
            of: self.of,
            item: self.item,
            item_ms: self.item_ms,
            attempt: self.attempt,
            fence: self.fence,
            worker: self.worker,
            leased_ms: self.leased_ms,
            ended_ms: self.ended_ms,
            outcome: self.outcome,
            detail: self.detail,
        })
    }
}
