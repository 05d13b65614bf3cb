//! The columns of what goes out, and of what happened: messages, the outbox, attempts and answers.

use hapax_domain::EventId;
use hapax_store::Answer;
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, Hash, MessageRec, OutRec, ProviderNameRec, name_hash, read_past, read_steps, request_hash, write_past,
    write_steps,
};

use super::rows::{Fields, Kept, Param, column};
use super::tables::{priority_code, read_priority, read_queue};
use super::texts::escape;
use super::trouble::Failure;

impl Kept for ProviderNameRec {
    const TABLE: &'static str = "hapax_provider_names";
    const COLUMNS: &'static [(&'static str, &'static str)] = &[
        ("hash", "bytea"),
        ("account", "text"),
        ("provider_id", "text"),
        ("message", "int8"),
        ("early", "text"),
        ("heard_ms", "int8"),
    ];

    type Key = Hash;

    fn key(&self) -> Hash {
        name_hash(&self.account, &self.provider_id)
    }

    fn columns<'r>(of: &[&'r Self]) -> Vec<Param<'r>> {
        vec![
            column(of, |name| name.key().to_vec()),
            column(of, |name| escape(&name.account)),
            column(of, |name| escape(&name.provider_id)),
            column(of, |name| name.message.map(|message| message as i64)),
            column(of, |name| write_steps(&name.early)),
            column(of, |name| name.heard_ms),
        ]
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Failure> {
        fields.hash()?;
        Ok(Self {
            account: fields.text()?,
            provider_id: fields.text()?,
            message: fields.number_or_null()?,
            early: read_steps(&fields.take::<String>()?),
            heard_ms: fields.take()?,
        })
    }
}

impl Kept for MessageRec {
    const TABLE: &'static str = "hapax_messages";
    const COLUMNS: &'static [(&'static str, &'static str)] = &[
        ("number", "int8"),
        ("created_ms", "int8"),
        ("channel", "text"),
        ("account", "text"),
        ("peer", "text"),
        ("request_id", "text"),
        ("fingerprint", "bytea"),
        ("text", "text"),
        ("payload", "bytea"),
        ("priority", "int2"),
        ("reply_to", "bytea"),
        ("home", "bytea"),
        ("thread", "bytea"),
        ("provider_id", "text"),
        ("steps", "text"),
        ("why", "text"),
        ("past", "text"),
        ("request", "bytea"),
    ];
    /// Follows from account and request id; the column is there to be searched.
    const EXTRA: usize = 1;

    type Key = u64;

    fn key(&self) -> u64 {
        self.number
    }

    fn columns<'r>(of: &[&'r Self]) -> Vec<Param<'r>> {
        vec![
            column(of, |message| message.number as i64),
            column(of, |message| message.created_ms),
            column(of, |message| escape(&message.channel)),
            column(of, |message| escape(&message.account)),
            column(of, |message| escape(&message.peer)),
            column(of, |message| escape(&message.request_id)),
            column(of, |message| &message.fingerprint[..]),
            column(of, |message| message.text.as_deref().map(escape)),
            column(of, |message| &message.payload[..]),
            column(of, |message| priority_code(message.priority)),
            column(of, |message| message.reply_to.as_ref().map(|event| &event.0.as_bytes()[..])),
            column(of, |message| &message.home[..]),
            column(of, |message| &message.thread[..]),
            column(of, |message| message.provider_id.as_deref().map(escape)),
            column(of, |message| write_steps(&message.steps)),
            column(of, |message| message.why.as_deref().map(escape)),
            column(of, |message| write_past(&message.past)),
            column(of, |message| request_hash(&message.account, &message.request_id).to_vec()),
        ]
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Failure> {
        Ok(Self {
            number: fields.number()?,
            created_ms: fields.take()?,
            channel: fields.shared_text()?,
            account: fields.text()?,
            peer: fields.text()?,
            request_id: fields.text()?,
            fingerprint: fields.hash()?,
            text: fields.text_or_null()?,
            payload: fields.bytes()?,
            priority: read_priority(fields)?,
            reply_to: read_event_id(fields)?,
            home: fields.hash()?,
            thread: fields.hash()?,
            provider_id: fields.text_or_null()?,
            steps: read_steps(&fields.take::<String>()?),
            why: fields.text_or_null()?,
            past: read_past(fields.text_or_null()?.as_deref()),
        })
    }
}

fn read_event_id(fields: &mut Fields<'_>) -> Result<Option<EventId>, Failure> {
    let id = fields.take::<Option<Vec<u8>>>()?.map(|bytes| uuid::Uuid::from_slice(&bytes)).transpose();
    id.map(|id| id.map(EventId)).map_err(|_| Failure::Unreadable("an event id that has not 16 bytes"))
}

/// What may change of a message, after its key.
pub(super) const MESSAGE_CHANGES: &[(&str, &str)] =
    &[("number", "int8"), ("home", "bytea"), ("provider_id", "text"), ("steps", "text"), ("why", "text"), ("past", "text")];

pub(super) fn message_changes<'r>(of: &[&'r MessageRec]) -> Vec<Param<'r>> {
    vec![
        column(of, |message| message.number as i64),
        column(of, |message| &message.home[..]),
        column(of, |message| message.provider_id.as_deref().map(escape)),
        column(of, |message| write_steps(&message.steps)),
        column(of, |message| message.why.as_deref().map(escape)),
        column(of, |message| write_past(&message.past)),
    ]
}

impl Kept for OutRec {
    const TABLE: &'static str = "hapax_outs";
    const COLUMNS: &'static [(&'static str, &'static str)] = &[
        ("number", "int8"),
        ("created_ms", "int8"),
        ("channel", "text"),
        ("account", "text"),
        ("lane", "bytea"),
        ("priority", "int2"),
        ("attempt", "int4"),
        ("failures", "int4"),
        ("due_ms", "int8"),
        ("begun_ms", "int8"),
        ("unknown", "bool"),
    ];

    type Key = u64;

    fn key(&self) -> u64 {
        self.number
    }

    fn columns<'r>(of: &[&'r Self]) -> Vec<Param<'r>> {
        vec![
            column(of, |out| out.number as i64),
            column(of, |out| out.created_ms),
            column(of, |out| escape(&out.channel)),
            column(of, |out| escape(&out.account)),
            column(of, |out| &out.lane[..]),
            column(of, |out| priority_code(out.priority)),
            column(of, |out| out.attempt as i32),
            column(of, |out| out.failures as i32),
            column(of, |out| out.due_ms),
            column(of, |out| out.begun_ms),
            column(of, |out| out.unknown),
        ]
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Failure> {
        Ok(Self {
            number: fields.number()?,
            created_ms: fields.take()?,
            channel: fields.shared_text()?,
            account: fields.text()?,
            lane: fields.hash()?,
            priority: read_priority(fields)?,
            attempt: fields.small()?,
            failures: fields.small()?,
            due_ms: fields.take()?,
            begun_ms: fields.take()?,
            unknown: fields.take()?,
        })
    }
}

impl Kept for AttemptRec {
    const TABLE: &'static str = "hapax_attempts";
    const COLUMNS: &'static [(&'static str, &'static str)] = &[
        ("queue", "int2"),
        ("made_for", "int8"),
        ("fence", "int8"),
        ("item", "int8"),
        ("item_ms", "int8"),
        ("attempt", "int4"),
        ("worker", "text"),
        ("leased_ms", "int8"),
        ("ended_ms", "int8"),
        ("outcome", "text"),
        ("detail", "text"),
    ];

    type Key = (i16, u64, u64);

    fn key(&self) -> Self::Key {
        (self.queue.code(), self.of, self.fence)
    }

    fn columns<'r>(of: &[&'r Self]) -> Vec<Param<'r>> {
        vec![
            column(of, |attempt| attempt.queue.code()),
            column(of, |attempt| attempt.of as i64),
            column(of, |attempt| attempt.fence as i64),
            column(of, |attempt| attempt.item as i64),
            column(of, |attempt| attempt.item_ms),
            column(of, |attempt| attempt.attempt as i32),
            column(of, |attempt| escape(&attempt.worker)),
            column(of, |attempt| attempt.leased_ms),
            column(of, |attempt| attempt.ended_ms),
            column(of, |attempt| escape(&attempt.outcome)),
            column(of, |attempt| escape(&attempt.detail)),
        ]
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Failure> {
        Ok(Self {
            queue: read_queue(fields)?,
            of: fields.number()?,
            fence: fields.number()?,
            item: fields.number()?,
            item_ms: fields.take()?,
            attempt: fields.small()?,
            worker: fields.text()?,
            leased_ms: fields.take()?,
            ended_ms: fields.take()?,
            outcome: fields.text()?,
            detail: fields.text()?,
        })
    }
}

impl Kept for AnswerRec {
    const TABLE: &'static str = "hapax_answers";
    const COLUMNS: &'static [(&'static str, &'static str)] =
        &[("event", "int8"), ("status", "int4"), ("content_type", "text"), ("body", "bytea")];

    type Key = u64;

    fn key(&self) -> u64 {
        self.event
    }

    fn columns<'r>(of: &[&'r Self]) -> Vec<Param<'r>> {
        vec![
            column(of, |kept| kept.event as i64),
            column(of, |kept| i32::from(kept.answer.status)),
            column(of, |kept| kept.answer.content_type.as_deref().map(escape)),
            column(of, |kept| &kept.answer.body[..]),
        ]
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Failure> {
        let event = fields.number()?;
        let status = fields.take::<i32>()? as u16;
        Ok(Self { event, answer: Answer { status, content_type: fields.text_or_null()?, body: fields.bytes()? } })
    }
}
