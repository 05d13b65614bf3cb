//! From Meta's JSON to events.

use bytes::Bytes;
use hapax_domain::{Event, EventKey, Kind, Status};

use super::view::{Change, Contact, Entry, Envelope, ErrorCode, ListName, Message, Shape, StatusUpdate, Value};
use super::{NAME, handle};
use crate::json;
use crate::lenient::{List, Object, Text};
use crate::reading::{Reading, name, peer_of, seconds_to_ms};
use crate::tape::{Part, Tape};

/// Meta sends this code with a message whose content is still to come.
const CONTENT_TO_COME: i64 = 131_060;

/// Reads every entry, change and element; what cannot be read becomes a problem and the rest goes on.
pub(super) fn read(body: &Bytes, reading: &mut Reading<'_>) {
    if let Err(why) = read_envelope(body, reading) {
        reading.take(body, || Err(why));
    }
}

fn read_envelope(body: &[u8], reading: &mut Reading<'_>) -> Result<(), String> {
    let tape = Tape::of_bytes(body)?;
    let envelope: Envelope<'_> = tape.object(tape.root())?;
    let List::Items(entries) = &envelope.entry else {
        return Err("entry is missing".to_owned());
    };
    if entries.is_empty() {
        reading.ignore();
    }
    for (entry, part) in entries.iter().zip(tape.items_of(tape.root(), "entry")) {
        match entry {
            Object(Some(entry)) => read_entry(&tape, part, entry, reading),
            Object(None) => odd(reading, part, "an entry that is no object"),
        }
    }
    Ok(())
}

fn read_entry<'t>(tape: &Tape<'t>, part: Part<'t>, entry: &Entry<'t>, reading: &mut Reading<'_>) {
    let List::Items(changes) = &entry.changes else {
        return odd(reading, part, "an entry without changes");
    };
    if changes.is_empty() {
        reading.ignore();
    }
    for (change, part) in changes.iter().zip(tape.items_of(part, "changes")) {
        match change {
            Object(Some(change)) => read_change(tape, part, entry, change, reading),
            Object(None) => odd(reading, part, "a change that is no object"),
        }
    }
}

fn read_change<'t>(tape: &Tape<'t>, part: Part<'t>, entry: &Entry<'t>, change: &Change<'t>, reading: &mut Reading<'_>) {
    match change.shape() {
        Shape::Empty => reading.ignore(),
        Shape::Odd(why) => odd(reading, part, why),
        Shape::Whole => {
            reading.take(part.get().as_bytes(), || notice(tape, entry.id.get().unwrap_or_default(), entry, part));
        }
        Shape::Lists(value) => {
            for (list_name, list) in value.lists() {
                if let List::Odd = list {
                    odd(reading, part, "a list of messages, statuses or errors that is no array");
                }
                for element in list.items().iter().copied() {
                    reading.take(element.get().as_bytes(), || read_element(tape, entry, value, list_name, element));
                }
            }
        }
    }
}

fn read_element<'t>(
    tape: &Tape<'t>,
    entry: &Entry<'t>,
    value: &Value<'t>,
    list: ListName,
    element: Part<'t>,
) -> Result<Event, String> {
    let phone_number_id = value.metadata.0.as_ref().and_then(|metadata| metadata.phone_number_id.name());
    let account = || name("metadata.phone_number_id", phone_number_id);
    match list {
        ListName::Messages => message(tape, account()?, value, element, false),
        ListName::Echoes => message(tape, account()?, value, element, true),
        ListName::Statuses => status(tape, account()?, element),
        ListName::Errors => notice(tape, phone_number_id.or(entry.id.name()).unwrap_or_default(), entry, element),
    }
}

/// Something that names no id of its own: known by its content and the time of its entry. A template that is approved, paused and
/// approved again makes two changes with the same content.
fn notice<'t>(tape: &Tape<'t>, account: &str, entry: &Entry<'t>, part: Part<'t>) -> Result<Event, String> {
    let account = if account.is_empty() { account } else { name("the account", Some(account))? };
    without_id(tape, Kind::Notice, account, entry.time.map(Part::get).filter(|time| *time != "null"), part)
}

fn without_id<'t>(tape: &Tape<'t>, kind: Kind, account: &str, at: Option<&str>, part: Part<'t>) -> Result<Event, String> {
    let content = json::canonical(part.get(), &[]).ok_or("nested too deeply")?;
    Ok(Event::without_id(NAME, kind, account, at, &content, tape.fingerprint(part, &[])?))
}

fn message<'t>(tape: &Tape<'t>, account: &str, value: &Value<'t>, element: Part<'t>, echo: bool) -> Result<Event, String> {
    let message: Message<'_> = tape.object(element)?;
    let sort = message.kind.name().ok_or("the message's type is missing")?;
    let stub = is_stub(&message, sort);
    let kind = if stub { Kind::Notice } else { kind_of(sort) };
    let event = match message.id.name() {
        None => without_id(tape, kind, account, message.timestamp.name(), element)?,
        found => {
            let id = name("the message's id", found)?;
            // A stub must not claim the message's key: the full message may follow under the same id.
            let key = EventKey::new(NAME, account, kind, id, if stub { &["stub"] } else { &[] });
            Event::new(kind, account, id, key, tape.fingerprint(element, &[])?)
        }
    };
    let (peer, aliases) = peer_of(&names_of(&message, value, echo))?;
    let (at_ms, text) = (seconds(&message.timestamp), tape.words(wording(&message, sort)));
    Ok(Event { peer, aliases, echo, at_ms, text, ..event })
}

fn kind_of(sort: &str) -> Kind {
    match sort {
        "reaction" => Kind::Reaction,
        "edit" => Kind::Edit,
        "revoke" => Kind::Delete,
        "button" | "interactive" => Kind::Action,
        _ => Kind::Message,
    }
}

/// True for a message that says of itself that its content is still to come, or that lacks it.
fn is_stub(message: &Message<'_>, sort: &str) -> bool {
    let to_come = |error: &Object<ErrorCode>| error.0.as_ref().is_some_and(|error| error.code.0 == Some(CONTENT_TO_COME));
    match sort {
        "text" => wording(message, sort).is_none_or(|raw| !raw.get().starts_with('"') || raw.get() == "\"\""),
        "unsupported" => message.errors.items().iter().any(to_come),
        _ => false,
    }
}

/// What a person would read of a message of this sort.
fn wording<'a>(message: &Message<'a>, sort: &str) -> Option<Part<'a>> {
    let object = match sort {
        "text" => &message.text,
        "image" => &message.image,
        "video" => &message.video,
        "document" => &message.document,
        "button" => &message.button,
        "reaction" => &message.reaction,
        "interactive" => {
            let interactive = message.interactive.0.as_ref()?;
            if interactive.button_reply.0.is_some() { &interactive.button_reply } else { &interactive.list_reply }
        }
        _ => return None,
    };
    object.0.as_ref()?.0
}

/// The names of the person at the other end, best first: phone numbers before user ids, and none is sure to be there.
fn names_of<'n>(message: &'n Message<'_>, value: &'n Value<'_>, echo: bool) -> [Option<&'n str>; 4] {
    let (phone, user) = match echo {
        true => (message.to.name(), None),
        false => (message.from.name(), message.from_user_id.name()),
    };
    let contact = contact_of(value, phone, user);
    let wa_id = contact.and_then(|contact| contact.wa_id.name());
    let user_id = contact.and_then(|contact| contact.user_id.name());
    [phone, wa_id, user, user_id]
}

fn contact_of<'v, 'a>(value: &'v Value<'a>, phone: Option<&str>, user: Option<&str>) -> Option<&'v Contact<'a>> {
    let mut contacts = value.contacts.items().iter().filter_map(|contact| contact.0.as_ref());
    // One contact and one event belong together even where Meta spells the number in two ways (Brazil, Mexico).
    if value.contacts.items().len() == 1 && value.count() == 1 {
        return contacts.next();
    }
    let same = |a: Option<&str>, b: Option<&str>| a.is_some() && a == b;
    contacts.find(|contact| same(contact.wa_id.name(), phone) || same(contact.user_id.name(), user))
}

fn status<'t>(tape: &Tape<'t>, account: &str, element: Part<'t>) -> Result<Event, String> {
    let update: StatusUpdate<'_> = tape.object(element)?;
    let id = name("the status's message id", update.id.get())?;
    let word = name("the status", update.status.get())?;
    let participant = update.recipient_participant_id.name();
    let status = status_of(word);
    // A word we do not know must not move a message's status, and must not be lost either.
    let kind = if status.is_some() { Kind::Status } else { Kind::Notice };
    let key = match participant {
        Some(participant) => EventKey::new(NAME, account, kind, id, &[word, participant]),
        None => EventKey::new(NAME, account, kind, id, &[word]),
    };
    // In a group the recipient is the group, and a participant is no other name of it.
    let user = if participant.is_none() { update.recipient_user_id.name() } else { None };
    let (peer, aliases) = peer_of(&[update.recipient_id.name(), user])?;
    let event = Event::new(kind, account, id, key, tape.fingerprint(element, &[])?);
    let handle = tape.words(update.biz_opaque_callback_data).and_then(|value| Some(handle::read(&value)?.0));
    Ok(Event { peer, aliases, status, handle, at_ms: seconds(&update.timestamp), ..event })
}

fn status_of(word: &str) -> Option<Status> {
    match word {
        "sent" => Some(Status::Sent),
        "delivered" => Some(Status::Delivered),
        "read" => Some(Status::Read),
        "played" => Some(Status::Played),
        "failed" => Some(Status::Failed),
        _ => None,
    }
}

fn seconds(timestamp: &Text<'_>) -> Option<i64> {
    seconds_to_ms(timestamp.get()?.parse().ok())
}

fn odd(reading: &mut Reading<'_>, part: Part<'_>, why: &'static str) {
    reading.take(part.get().as_bytes(), || Err(why.to_owned()));
}
