//! From Meta's JSON to events.

use bytes::Bytes;
use hapax_domain::{Event, EventKey, Kind, Status, fingerprint};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::parts::{LISTS, Part, Place, entries, mids, parts_of};
use crate::json;
use crate::lenient::{Flag, Integer, Object, Text};
use crate::reading::{Reading, name};
use crate::tape::{self, Tape};
use crate::whatsapp::handle;

/// Reads every entry and item; what cannot be read becomes a problem and the rest goes on.
pub(super) fn read(platform: &str, body: &Bytes, reading: &mut Reading<'_>) {
    let found = std::str::from_utf8(body).map_err(|_| "the body is not UTF-8").and_then(|text| match entries(text) {
        Some(entries) => Ok(entries),
        None => Err("not readable as JSON with an array `entry`"),
    });
    let entries = match found {
        Ok(entries) => entries,
        Err(why) => return reading.take(body, || Err(why.to_owned())),
    };
    let parts = parts_of(&entries);
    if parts.is_empty() {
        reading.ignore();
    }
    let (mut entry, mut item) = (None, None);
    for part in parts {
        let entry = kept(&mut entry, part.entry, || Tape::of(part.entry).and_then(|entry| entry.object(entry.root())));
        let item = kept(&mut item, part.raw, || ItemText::read(part.raw));
        let mid = match part.place {
            Place::Item { mid: Some(mid), .. } => item.mids.get(mid).copied(),
            _ => None,
        };
        reading.take(mid.map_or(part.raw, RawValue::get).as_bytes(), || event(platform, &part, entry, item, mid));
    }
}

/// What several parts have in common is read for the first of them.
fn kept<'k, 'a, T>(last: &'k mut Option<(&'a str, T)>, raw: &'a str, read: impl FnOnce() -> T) -> &'k T {
    let same = last.take().filter(|(of, _)| std::ptr::eq(*of, raw));
    &last.insert(same.unwrap_or_else(|| (raw, read()))).1
}

struct ItemText<'a> {
    tape: Result<Tape<'a>, String>,
    /// The messages that a delivery names.
    mids: Vec<&'a RawValue>,
}

impl<'a> ItemText<'a> {
    fn read(raw: &'a str) -> Self {
        Self { tape: Tape::of(raw), mids: mids(raw).unwrap_or_default() }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Entry<'a> {
    /// The page, or the Instagram account.
    id: Text<'a>,
    time: Option<tape::Part<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Item<'a> {
    sender: Object<Person<'a>>,
    recipient: Object<Person<'a>>,
    timestamp: Option<tape::Part<'a>>,
    message: Object<Message<'a>>,
    message_edit: Object<Message<'a>>,
    reaction: Object<Reaction<'a>>,
    postback: Object<Postback<'a>>,
    delivery: Object<Receipt<'a>>,
    read: Object<Receipt<'a>>,
}

#[derive(Deserialize)]
struct Person<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Message<'a> {
    mid: Text<'a>,
    text: Option<tape::Part<'a>>,
    is_echo: Flag,
    is_deleted: Flag,
    num_edit: Integer,
    quick_reply: Option<tape::Part<'a>>,
    /// Kept raw: half an emoji in the caller's part must not cost the echo.
    metadata: Option<tape::Part<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Reaction<'a> {
    mid: Text<'a>,
    action: Text<'a>,
    emoji: Option<tape::Part<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Postback<'a> {
    mid: Text<'a>,
    title: Option<tape::Part<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Receipt<'a> {
    /// Instagram names the message that was read.
    mid: Text<'a>,
    /// Everything up to this time, in milliseconds.
    watermark: Integer,
}

/// One item with what it needs of its entry.
struct Reader<'p, 'a> {
    platform: &'p str,
    account: &'p str,
    tape: &'p Tape<'a>,
    item: Item<'a>,
    /// The entry's time, for what has none of its own.
    time: Option<&'a str>,
}

fn event<'a>(
    platform: &str,
    part: &Part<'a>,
    entry: &Result<Entry<'a>, String>,
    text: &ItemText<'a>,
    mid: Option<&RawValue>,
) -> Result<Event, String> {
    let entry = entry.as_ref().map_err(|_| "an entry that is no object".to_owned())?;
    let account = name("the entry's id", entry.id.get())?;
    let time = entry.time.map(tape::Part::get).filter(|time| *time != "null");
    let tape = text.tape.as_ref().map_err(String::clone)?;
    let list = match part.place {
        Place::OddList(list) => return Err(format!("{} is no array", LISTS[list])),
        // Comments, mentions, feeds: they name no event.
        Place::Entry => return without_id(tape, platform, Kind::Notice, account, time),
        Place::Item { list, .. } if LISTS[list] == "changes" => {
            return without_id(tape, platform, Kind::Notice, account, time);
        }
        Place::Item { list, .. } => list,
    };
    let item = tape.object(tape.root())?;
    let reader = Reader { platform, account, tape, item, time };
    let standby = if LISTS[list] == "standby" { "standby" } else { "" };
    let item = &reader.item;
    if let Some(message) = &item.message.0 {
        reader.message(message, standby)
    } else if let Some(edit) = &item.message_edit.0 {
        let number = edit.num_edit.0.map(|number| number.to_string());
        let event = reader.named(Kind::Edit, &edit.mid, &[number.as_deref().or(reader.at()).unwrap_or_default(), standby])?;
        Ok(Event { text: reader.tape.words(edit.text), ..event })
    } else if let Some(reaction) = &item.reaction.0 {
        let emoji = reader.tape.words(reaction.emoji);
        let parts =
            [reaction.action.get().unwrap_or_default(), emoji.as_deref().unwrap_or_default(), reader.at().unwrap_or_default()];
        let event = reader.named(Kind::Reaction, &reaction.mid, &[parts[0], parts[1], parts[2], standby])?;
        Ok(Event { text: emoji, ..event })
    } else if let Some(postback) = &item.postback.0 {
        let event = reader.named(Kind::Action, &postback.mid, &[standby])?;
        Ok(Event { text: reader.tape.words(postback.title), ..event })
    } else if let Some(delivery) = &item.delivery.0 {
        reader.receipt(delivery, Status::Delivered, mid)
    } else if let Some(read) = &item.read.0 {
        reader.receipt(read, Status::Read, None)
    } else {
        reader.unnamed(Kind::Notice)
    }
}

impl Reader<'_, '_> {
    fn message(&self, message: &Message<'_>, standby: &str) -> Result<Event, String> {
        let kind = match (message.is_deleted.0, message.quick_reply) {
            (true, _) => Kind::Delete,
            (false, Some(reply)) if reply.get() != "null" => Kind::Action,
            (false, _) => Kind::Message,
        };
        let event = self.named(kind, &message.mid, &[standby])?;
        let echo = message.is_echo.0 || self.is_from_us();
        let handle = self.tape.words(message.metadata).filter(|_| echo).and_then(|value| Some(handle::read(&value)?.0));
        let (peer, aliases) = self.peer(echo)?;
        Ok(Event { text: self.tape.words(message.text), echo, handle, peer, aliases, ..event })
    }

    /// A word about messages of ours: each that it names, or all up to a time, which moves none by itself.
    fn receipt(&self, receipt: &Receipt<'_>, status: Status, mid: Option<&RawValue>) -> Result<Event, String> {
        let in_list = match mid {
            Some(raw) => Some(json::text(Some(raw)).ok_or("a message id that is no text")?),
            None => receipt.mid.name().map(str::to_owned),
        };
        let watermark = receipt.watermark.0.map(|at| at.to_string());
        let (id, status_if_named) = match (&in_list, &watermark) {
            (Some(mid), _) => (name("a message id", Some(mid))?, Some(status)),
            (None, Some(watermark)) => (watermark.as_str(), None),
            (None, None) => return self.unnamed(Kind::Notice),
        };
        let (peer, aliases) = self.peer(false)?;
        let parts = [status.name(), peer.as_deref().unwrap_or_default()];
        let key = EventKey::new(self.platform, self.account, Kind::Status, id, &parts);
        let event = Event::new(Kind::Status, self.account, id, key, fingerprint::of_bytes(parts.join("\n").as_bytes()));
        let at_ms = self.at().and_then(|at| at.parse().ok()).or(receipt.watermark.0);
        Ok(Event { peer, aliases, status: status_if_named, at_ms, ..event })
    }

    /// Something that a message id names, together with who wrote and what else tells it apart.
    fn named(&self, kind: Kind, mid: &Text<'_>, rest: &[&str]) -> Result<Event, String> {
        let Some(id) = mid.name() else { return self.unnamed(kind) };
        let id = name("the message's id", Some(id))?;
        let sender = self.item.sender.0.as_ref().and_then(|sender| sender.id.name()).unwrap_or_default();
        let parts: Vec<&str> = std::iter::once(sender).chain(rest.iter().copied()).collect();
        let key = EventKey::new(self.platform, self.account, kind, id, &parts);
        self.about(Event::new(kind, self.account, id, key, self.tape.fingerprint_root(&[])?))
    }

    fn unnamed(&self, kind: Kind) -> Result<Event, String> {
        self.about(without_id(self.tape, self.platform, kind, self.account, self.at().or(self.time))?)
    }

    fn about(&self, event: Event) -> Result<Event, String> {
        let (peer, aliases) = self.peer(self.is_from_us())?;
        Ok(Event { peer, aliases, at_ms: self.at().and_then(|at| at.parse().ok()), ..event })
    }

    fn at(&self) -> Option<&str> {
        self.item.timestamp.map(tape::Part::get).filter(|at| *at != "null")
    }

    fn is_from_us(&self) -> bool {
        self.item.sender.0.as_ref().and_then(|sender| sender.id.name()) == Some(self.account)
    }

    /// The person at the other end.
    fn peer(&self, from_us: bool) -> Result<(Option<String>, Vec<String>), String> {
        let person = if from_us { &self.item.recipient } else { &self.item.sender };
        crate::reading::peer_of(&[person.0.as_ref().and_then(|person| person.id.name())])
    }
}

fn without_id(tape: &Tape<'_>, platform: &str, kind: Kind, account: &str, at: Option<&str>) -> Result<Event, String> {
    let content = json::canonical(tape.root().get(), &[]).ok_or("nested too deeply")?;
    Ok(Event::without_id(platform, kind, account, at, &content, tape.fingerprint_root(&[])?))
}
