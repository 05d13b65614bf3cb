//! Meta's envelope around fewer events: everything that is not an event stays as it was.

use std::borrow::Cow;

use serde::Deserialize;

use super::view::{Change, Contact, Entry, Envelope, Shape, Value, places_of};
use crate::json::{items, member, members, with_member_replaced, write_array, write_object};
use crate::lenient::{List, Object, Text};
use crate::tape::{Part, Tape};

/// Hands out indexes in the order in which parsing numbered the events.
struct Numbering<'k> {
    keep: &'k [u32],
    next: u32,
}

impl Numbering<'_> {
    fn keeps_next(&mut self) -> bool {
        let index = self.next;
        self.next += 1;
        self.keep.binary_search(&index).is_ok()
    }
}

pub(super) fn rewrap(body: &str, keep: &[u32]) -> Option<Vec<u8>> {
    let tape = Tape::of(body).ok()?;
    let envelope: Envelope<'_> = tape.object(tape.root()).ok()?;
    let mut numbering = Numbering { keep, next: 0 };
    let parts = items(member(body, "entry")?.get())?;
    let mut entries = Vec::new();
    for (entry, part) in envelope.entry.items().iter().zip(parts) {
        entries.extend(match entry {
            Object(Some(entry)) => rewrap_entry(&tape, entry, part.get(), &mut numbering)?,
            Object(None) => numbering.keeps_next().then(|| part.get().as_bytes().to_vec()),
        });
    }
    if entries.is_empty() {
        return None;
    }
    with_member_replaced(body, "entry", &array_of(entries))
}

/// The entry with what is kept of its changes; nothing when nothing is kept. The outer `None` means unreadable.
fn rewrap_entry<'t>(tape: &Tape<'t>, entry: &Entry<'t>, part: &str, numbering: &mut Numbering<'_>) -> Option<Option<Vec<u8>>> {
    let List::Items(changes) = &entry.changes else {
        return Some(numbering.keeps_next().then(|| part.as_bytes().to_vec()));
    };
    let parts = items(member(part, "changes")?.get())?;
    let mut kept = Vec::new();
    for (change, part) in changes.iter().zip(parts) {
        kept.extend(match change {
            Object(Some(change)) => rewrap_change(tape, change, part.get(), numbering)?,
            Object(None) => numbering.keeps_next().then(|| part.get().as_bytes().to_vec()),
        });
    }
    match kept.is_empty() {
        true => Some(None),
        false => with_member_replaced(part, "changes", &array_of(kept)).map(Some),
    }
}

fn rewrap_change<'t>(tape: &Tape<'t>, change: &Change<'t>, part: &str, numbering: &mut Numbering<'_>) -> Option<Option<Vec<u8>>> {
    match change.shape() {
        Shape::Empty => Some(None),
        Shape::Whole | Shape::Odd(_) => Some(numbering.keeps_next().then(|| part.as_bytes().to_vec())),
        Shape::Lists(value) => match rewrap_value(tape, value, member(part, "value")?.get(), numbering)? {
            Some(value) => with_member_replaced(part, "value", &value).map(Some),
            None => Some(None),
        },
    }
}

fn rewrap_value<'t>(tape: &Tape<'t>, value: &Value<'t>, part: &str, numbering: &mut Numbering<'_>) -> Option<Option<Vec<u8>>> {
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    let mut lists = Vec::new();
    for (name, list) in value.lists() {
        // A list that is no array is one problem: it goes or stays as a whole.
        let stays: Vec<bool> = (0..places_of(list)).map(|_| numbering.keeps_next()).collect();
        let mut elements = Vec::new();
        for (element, stays) in list.items().iter().zip(&stays) {
            if *stays {
                elements.push(element.get());
            }
            if *stays { &mut kept } else { &mut dropped }.push(*element);
        }
        let any = stays.contains(&true);
        let rewritten = (any && !matches!(list, List::Odd)).then(|| array_of(elements));
        lists.push((name.member(), any, rewritten));
    }
    if !lists.iter().any(|(_, any, _)| *any) {
        return Some(None);
    }
    let contacts = contacts_of(tape, value, part, &kept, &dropped);
    let members = members(part)?;
    let remaining = members.iter().filter_map(|(name, raw)| {
        let as_it_was = Cow::Borrowed(raw.get().as_bytes());
        if name == "contacts" {
            return contacts.as_ref().map(|contacts| (name.as_ref(), Cow::Borrowed(&contacts[..])));
        }
        match lists.iter().find(|(list, _, _)| name == list) {
            None => Some((name.as_ref(), as_it_was)),
            Some((_, false, _)) => None,
            Some((_, true, Some(rewritten))) => Some((name.as_ref(), Cow::Borrowed(&rewritten[..]))),
            Some((_, true, None)) => Some((name.as_ref(), as_it_was)),
        }
    });
    let mut out = Vec::with_capacity(part.len());
    write_object(&mut out, remaining);
    Some(Some(out))
}

/// The contacts, without those of dropped events only. A contact that matches nothing stays: it may be spelt differently.
fn contacts_of<'t>(tape: &Tape<'t>, value: &Value<'t>, part: &str, kept: &[Part<'t>], dropped: &[Part<'t>]) -> Option<Vec<u8>> {
    let raw = member(part, "contacts")?;
    let List::Items(contacts) = &value.contacts else {
        return Some(raw.get().as_bytes().to_vec());
    };
    let people =
        |elements: &[Part<'t>]| -> Vec<String> { elements.iter().flat_map(|element| names_in(tape, *element)).collect() };
    let (kept, dropped) = (people(kept), people(dropped));
    let among = |contact: &Contact<'_>, people: &[String]| {
        let known = |name: Option<&str>| name.is_some_and(|name| people.iter().any(|person| person == name));
        known(contact.wa_id.name()) || known(contact.user_id.name())
    };
    let stays = |contact: &Object<Contact<'_>>| match &contact.0 {
        Some(contact) => among(contact, &kept) || !among(contact, &dropped),
        None => true,
    };
    let staying: Vec<&str> =
        contacts.iter().zip(items(raw.get())?).filter(|(contact, _)| stays(contact)).map(|(_, raw)| raw.get()).collect();
    (!staying.is_empty()).then(|| array_of(staying))
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct People<'a> {
    from: Text<'a>,
    from_user_id: Text<'a>,
    to: Text<'a>,
    recipient_id: Text<'a>,
    recipient_user_id: Text<'a>,
}

fn names_in<'t>(tape: &Tape<'t>, element: Part<'t>) -> Vec<String> {
    let Ok(people) = tape.object::<People<'_>>(element) else {
        return Vec::new();
    };
    let names = [people.from, people.from_user_id, people.to, people.recipient_id, people.recipient_user_id];
    names.iter().filter_map(|name| name.name().map(str::to_owned)).collect()
}

fn array_of<I: AsRef<[u8]>>(items: Vec<I>) -> Vec<u8> {
    let mut out = Vec::new();
    write_array(&mut out, items.into_iter());
    out
}
