//! Records as rows and back. Columns stand in the order of the record's fields; what only indexes need comes last and is never read.

use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::{Direction, EventId, Kind, Priority};
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, Carried, EventRec, Hash, Held, ItemRec, KeyRec, LaneRec, MessageRec, NameRec, OutRec, Place,
    ProviderNameRec, Queue, ThreadRec, name_hash, read_hashes, read_numbers, read_past, read_steps, request_hash, thread_hash,
    write_hashes, write_numbers, write_past, write_steps,
};
use hapax_store::{Answer, KeptHeaders, PausedAccount, StoreError, read_replies, write_replies};

use super::sql::{Fields, Values, account_key, channel_key, unreadable};

/// A body above this is not put into the text of a statement.
pub(super) const BODY_BESIDE_BYTES: usize = 1 << 20;

pub(super) const KEY: &str = "k,event,at_ms,fingerprint,expires_ms";

pub(super) fn put_key(key: &KeyRec, values: &mut Values<'_>) {
    values.put(&key.key).put(&key.event).put(&key.at_ms).put(&key.fingerprint).put(&key.expires_ms);
}

pub(super) fn read_key(fields: &mut Fields) -> Result<KeyRec, StoreError> {
    Ok(KeyRec {
        key: fields.bytes()?,
        event: fields.next()?,
        at_ms: fields.next()?,
        fingerprint: fields.next()?,
        expires_ms: fields.next()?,
    })
}

pub(super) const EVENT: &str =
    "number,webhook,received_ms,channel,kind,account,id,peer,echo,at_ms,text,place,item,part,thread,replays,body_bytes";
pub(super) const EVENT_CARRIED: &str = "webhook_events,headers,body";
pub(super) const EVENT_KEYS: &str = "channel_key";

pub(super) fn put_event(event: &EventRec, values: &mut Values<'_>) {
    values.put(&event.number).put(&event.webhook).put(&event.received_ms).put(&*event.channel).put(event.kind.name());
    values.put(&event.account).put(&event.id).put(&event.peer).put(&event.echo).put(&event.at_ms).put(&event.text);
    values.put(&event.index).put(&event.item).put(&event.part).put(&event.thread).put(&event.replays).put(&event.body_bytes);
    values.put(&channel_key(&event.channel));
    let carried = event.carried.as_ref();
    values.put(&carried.map(|carried| carried.events)).put(&carried.map(|carried| carried.headers.0.as_slice()));
    values.put(&carried.map(|carried| if carried.body.len() > BODY_BESIDE_BYTES { &[][..] } else { &*carried.body }));
}

pub(super) fn read_event(fields: &mut Fields) -> Result<EventRec, StoreError> {
    Ok(EventRec {
        number: fields.next()?,
        webhook: fields.next()?,
        received_ms: fields.next()?,
        channel: channel_of(fields)?,
        kind: kind_of(fields)?,
        account: fields.next()?,
        id: fields.next()?,
        peer: fields.next()?,
        echo: fields.next()?,
        at_ms: fields.next()?,
        text: fields.next()?,
        index: fields.next()?,
        item: fields.next()?,
        part: fields.next()?,
        thread: fields.bytes_or_none()?,
        replays: fields.next()?,
        body_bytes: fields.next()?,
        carried: None,
    })
}

/// Reads [`EVENT`] and [`EVENT_CARRIED`].
pub(super) fn read_event_with_body(fields: &mut Fields) -> Result<EventRec, StoreError> {
    let event = read_event(fields)?;
    let (events, headers, body): (Option<u32>, Option<Vec<u8>>, Option<Vec<u8>>) =
        (fields.next()?, fields.next()?, fields.next()?);
    let carried = match (events, headers, body) {
        (Some(events), Some(headers), Some(body)) => {
            Some(Carried { headers: KeptHeaders(headers), body: Bytes::from(body), events })
        }
        _ => None,
    };
    Ok(EventRec { carried, ..event })
}

/// Half a hash, or a number: what an event is listed under is looked at again when it is read.
pub(super) type ListKey = [u8; 16];

pub(super) const LISTED: &str = "list,number";

pub(super) fn list_of_webhook(webhook: u64) -> ListKey {
    u128::from(webhook).to_be_bytes()
}

pub(super) fn list_of_thread(thread: &Hash) -> ListKey {
    let mut list = [0; 16];
    list.copy_from_slice(&thread[..16]);
    list
}

/// Where an event is looked for: with its webhook when another event carries that, with its peer, and in its thread, which is its peer's but
/// for those who go by several names.
pub(super) fn lists_of(event: &EventRec) -> impl Iterator<Item = (ListKey, u64)> {
    let webhook = (event.webhook != event.number).then(|| list_of_webhook(event.webhook));
    let peer = event.peer.as_ref().map(|peer| list_of_thread(&thread_hash(&event.account, peer)));
    let thread = event.thread.as_ref().map(list_of_thread).filter(|thread| Some(*thread) != peer);
    [webhook, peer, thread].into_iter().flatten().map(|list| (list, event.number))
}

pub(super) fn put_listed(listed: &(ListKey, u64), values: &mut Values<'_>) {
    values.put(&listed.0).put(&listed.1);
}

pub(super) const ITEM: &str = "number,received_ms,channel,lane,place,events,events_ms,webhook,attempt,replay,why,due_ms,failures,replies,channel_key,\
     first_event";

pub(super) fn put_item(item: &ItemRec, values: &mut Values<'_>) {
    values.put(&item.number).put(&item.received_ms).put(&*item.channel).put(&item.lane).put(&item.place.code());
    values.put(write_numbers(&item.events).as_slice()).put(&item.events_ms).put(&item.webhook).put(&item.attempt);
    values.put(&item.replay).put(&item.why).put(&item.due_ms).put(&item.failures);
    values.put(&write_replies(&item.replies).as_deref()).put(&channel_key(&item.channel));
    values.put(&item.events.first().copied().unwrap_or_default());
}

pub(super) fn read_item(fields: &mut Fields) -> Result<ItemRec, StoreError> {
    Ok(ItemRec {
        number: fields.next()?,
        received_ms: fields.next()?,
        channel: channel_of(fields)?,
        lane: fields.bytes()?,
        place: place_of(fields)?,
        events: read_numbers(&fields.next::<Vec<u8>>()?),
        events_ms: fields.next()?,
        webhook: fields.next()?,
        attempt: fields.next()?,
        replay: fields.next()?,
        why: fields.next()?,
        due_ms: fields.next()?,
        failures: fields.next()?,
        replies: fields.next::<Option<Vec<u8>>>()?.and_then(|bytes| read_replies(&bytes)).unwrap_or_default(),
    })
}

pub(super) const LANE: &str = "hash,queue,channel,account,priority,first,due_ms,peer,joined_to,joined,held_number,held_attempt,\
                               held_fence,held_worker,held_leased_ms,held_until_ms,channel_key,account_key";

pub(super) fn put_lane(lane: &LaneRec, values: &mut Values<'_>) {
    values.put(&lane.hash).put(&lane.queue.code()).put(&*lane.channel).put(&lane.account).put(&priority_code(lane.priority));
    values.put(&lane.first).put(&lane.due_ms).put(&lane.peer).put(&lane.joined_to.as_ref().map(|lane| &lane[..]));
    let joined = (!lane.joined.is_empty()).then(|| write_hashes(&lane.joined));
    values.put(&joined.as_deref());
    let held = lane.held.as_ref();
    values.put(&held.map(|held| held.number)).put(&held.map(|held| held.attempt)).put(&held.map(|held| held.fence));
    values.put(&held.map(|held| held.worker.as_str())).put(&held.map(|held| held.leased_ms));
    values.put(&held.map(|held| held.until_ms));
    values.put(&channel_key(&lane.channel)).put(&account_key(&lane.account));
}

pub(super) fn read_lane(fields: &mut Fields) -> Result<LaneRec, StoreError> {
    Ok(LaneRec {
        hash: fields.bytes()?,
        queue: queue_of(fields)?,
        channel: channel_of(fields)?,
        account: fields.next()?,
        priority: priority_of(fields)?,
        first: fields.next()?,
        due_ms: fields.next()?,
        peer: fields.next()?,
        joined_to: fields.next::<Option<Vec<u8>>>()?.and_then(|bytes| read_hashes(&bytes).pop()),
        joined: fields.next::<Option<Vec<u8>>>()?.map(|bytes| read_hashes(&bytes)).unwrap_or_default(),
        held: held_of(fields)?,
    })
}

fn held_of(fields: &mut Fields) -> Result<Option<Held>, StoreError> {
    let Some(number) = fields.next()? else { return Ok(None) };
    Ok(Some(Held {
        number,
        attempt: fields.next()?,
        fence: fields.next()?,
        worker: fields.next()?,
        leased_ms: fields.next()?,
        until_ms: fields.next()?,
    }))
}

pub(super) const THREAD: &str =
    "account,peer,channel,last_ms,last_text,last_out,unread,purged_to,read_to,hash,channel_key,account_key";

pub(super) fn put_thread(thread: &ThreadRec, values: &mut Values<'_>) {
    values.put(&thread.account).put(&thread.peer).put(&thread.channel).put(&thread.last_ms).put(&thread.last_text);
    values.put(&(thread.last_direction == Direction::Out)).put(&thread.unread).put(&thread.purged_to);
    values.put(&thread.read_to);
    values.put(&thread_hash(&thread.account, &thread.peer));
    values.put(&channel_key(&thread.channel)).put(&account_key(&thread.account));
}

pub(super) fn read_thread(fields: &mut Fields) -> Result<ThreadRec, StoreError> {
    Ok(ThreadRec {
        account: fields.next()?,
        peer: fields.next()?,
        channel: fields.next()?,
        last_ms: fields.next()?,
        last_text: fields.next()?,
        last_direction: if fields.next::<bool>()? { Direction::Out } else { Direction::In },
        unread: fields.next()?,
        purged_to: fields.next()?,
        read_to: fields.next()?,
    })
}

pub(super) const NAME: &str = "account,name,peer,hash,thread";

pub(super) fn put_name(name: &NameRec, values: &mut Values<'_>) {
    values.put(&name.account).put(&name.name).put(&name.peer);
    values.put(&name_hash(&name.account, &name.name)).put(&thread_hash(&name.account, &name.peer));
}

pub(super) fn read_name(fields: &mut Fields) -> Result<NameRec, StoreError> {
    Ok(NameRec { account: fields.next()?, name: fields.next()?, peer: fields.next()? })
}

pub(super) const PROVIDER_NAME: &str = "account,provider_id,message,early,heard_ms,hash";

pub(super) fn put_provider_name(name: &ProviderNameRec, values: &mut Values<'_>) {
    values.put(&name.account).put(&name.provider_id).put(&name.message).put(&write_steps(&name.early)).put(&name.heard_ms);
    values.put(&name_hash(&name.account, &name.provider_id));
}

pub(super) fn read_provider_name(fields: &mut Fields) -> Result<ProviderNameRec, StoreError> {
    Ok(ProviderNameRec {
        account: fields.next()?,
        provider_id: fields.next()?,
        message: fields.next()?,
        early: read_steps(&fields.next::<String>()?),
        heard_ms: fields.next()?,
    })
}

pub(super) const MESSAGE: &str = "number,created_ms,channel,account,peer,request_id,fingerprint,text,payload,priority,reply_to,\
                                  home,thread,provider_id,steps,why,past,request";

pub(super) fn put_message(message: &MessageRec, values: &mut Values<'_>) {
    values.put(&message.number).put(&message.created_ms).put(&*message.channel).put(&message.account).put(&message.peer);
    values.put(&message.request_id).put(&message.fingerprint).put(&message.text).put(&*message.payload);
    values.put(&priority_code(message.priority)).put(&message.reply_to.map(|event| event.0.into_bytes()));
    values.put(&message.home).put(&message.thread).put(&message.provider_id).put(&write_steps(&message.steps));
    values.put(&message.why).put(&write_past(&message.past)).put(&request_hash(&message.account, &message.request_id));
}

pub(super) fn read_message(fields: &mut Fields) -> Result<MessageRec, StoreError> {
    let message = MessageRec {
        number: fields.next()?,
        created_ms: fields.next()?,
        channel: channel_of(fields)?,
        account: fields.next()?,
        peer: fields.next()?,
        request_id: fields.next()?,
        fingerprint: fields.bytes()?,
        text: fields.next()?,
        payload: Bytes::from(fields.next::<Vec<u8>>()?),
        priority: priority_of(fields)?,
        reply_to: fields.bytes_or_none()?.map(|bytes| EventId(uuid::Uuid::from_bytes(bytes))),
        home: fields.bytes()?,
        thread: fields.bytes()?,
        provider_id: fields.next()?,
        steps: read_steps(&fields.next::<String>()?),
        why: fields.next()?,
        past: read_past(fields.next::<Option<String>>()?.as_deref()),
    };
    // The request's hash, which nobody reads: a join goes on after it.
    fields.bytes::<32>()?;
    Ok(message)
}

pub(super) const OUT: &str =
    "number,created_ms,channel,account,lane,priority,attempt,failures,due_ms,begun_ms,in_doubt,channel_key,account_key";

pub(super) fn put_out(out: &OutRec, values: &mut Values<'_>) {
    values.put(&out.number).put(&out.created_ms).put(&*out.channel).put(&out.account).put(&out.lane);
    values.put(&priority_code(out.priority)).put(&out.attempt).put(&out.failures).put(&out.due_ms);
    values.put(&out.begun_ms).put(&out.unknown).put(&channel_key(&out.channel)).put(&account_key(&out.account));
}

pub(super) fn read_out(fields: &mut Fields) -> Result<OutRec, StoreError> {
    Ok(OutRec {
        number: fields.next()?,
        created_ms: fields.next()?,
        channel: channel_of(fields)?,
        account: fields.next()?,
        lane: fields.bytes()?,
        priority: priority_of(fields)?,
        attempt: fields.next()?,
        failures: fields.next()?,
        due_ms: fields.next()?,
        begun_ms: fields.next()?,
        unknown: fields.next()?,
    })
}

pub(super) const ATTEMPT: &str = "queue,of_number,item,item_ms,attempt,fence,worker,leased_ms,ended_ms,outcome,detail";

pub(super) fn put_attempt(attempt: &AttemptRec, values: &mut Values<'_>) {
    values.put(&attempt.queue.code()).put(&attempt.of).put(&attempt.item).put(&attempt.item_ms).put(&attempt.attempt);
    values.put(&attempt.fence).put(&attempt.worker).put(&attempt.leased_ms).put(&attempt.ended_ms);
    values.put(&attempt.outcome).put(&attempt.detail);
}

pub(super) fn read_attempt(fields: &mut Fields) -> Result<AttemptRec, StoreError> {
    Ok(AttemptRec {
        queue: queue_of(fields)?,
        of: fields.next()?,
        item: fields.next()?,
        item_ms: fields.next()?,
        attempt: fields.next()?,
        fence: fields.next()?,
        worker: fields.next()?,
        leased_ms: fields.next()?,
        ended_ms: fields.next()?,
        outcome: fields.next()?,
        detail: fields.next()?,
    })
}

pub(super) const ANSWER: &str = "event,status,content_type,body";

pub(super) fn put_answer(answer: &AnswerRec, values: &mut Values<'_>) {
    values.put(&answer.event).put(&answer.answer.status).put(&answer.answer.content_type).put(&*answer.answer.body);
}

pub(super) fn read_answer(fields: &mut Fields) -> Result<Answer, StoreError> {
    fields.next::<u64>()?;
    Ok(Answer { status: fields.next()?, content_type: fields.next()?, body: Bytes::from(fields.next::<Vec<u8>>()?) })
}

pub(super) const PAUSED: &str = "channel,account,why,since_ms";

pub(super) fn read_paused(fields: &mut Fields) -> Result<PausedAccount, StoreError> {
    Ok(PausedAccount { channel: fields.next()?, account: fields.next()?, why: fields.next()?, since_ms: fields.next()? })
}

fn channel_of(fields: &mut Fields) -> Result<Arc<str>, StoreError> {
    Ok(fields.next::<String>()?.into())
}

fn kind_of(fields: &mut Fields) -> Result<Kind, StoreError> {
    let name: String = fields.next()?;
    Kind::from_name(&name).ok_or_else(|| unreadable(format!("`{name}` is no kind of event")))
}

fn place_of(fields: &mut Fields) -> Result<Place, StoreError> {
    let code = fields.next()?;
    Place::from_code(code).ok_or_else(|| unreadable(format!("{code} is no place of an item")))
}

fn queue_of(fields: &mut Fields) -> Result<Queue, StoreError> {
    let code = fields.next()?;
    Queue::from_code(code).ok_or_else(|| unreadable(format!("{code} is no queue")))
}

/// Lower goes first.
pub(super) fn priority_code(priority: Priority) -> i16 {
    match priority {
        Priority::Reply => 0,
        Priority::Normal => 1,
        Priority::Bulk => 2,
    }
}

fn priority_of(fields: &mut Fields) -> Result<Priority, StoreError> {
    let code: i16 = fields.next()?;
    let known = Priority::ALL.into_iter().find(|priority| priority_code(*priority) == code);
    known.ok_or_else(|| unreadable(format!("{code} is no priority")))
}
