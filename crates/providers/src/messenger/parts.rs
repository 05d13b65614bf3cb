//! The parts of a webhook, numbered once: reading and re-wrapping both go by it, so they cannot disagree.

use hapax_domain::limits::EVENTS_PER_WEBHOOK;
use serde_json::value::RawValue;

use crate::json::{items, member, members, with_member_replaced, write_array, write_object};

/// What people wrote, the same while another app has the conversation, and changes of other fields.
pub(super) const LISTS: [&str; 3] = ["messaging", "standby", "changes"];

/// One event, or one problem.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) entry: &'a str,
    pub(super) raw: &'a str,
    pub(super) place: Place,
    entry_at: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The entry as a whole: it has none of the lists, or is no object.
    Entry,
    /// A list that is no array.
    OddList(usize),
    /// An item of a list; of a delivery that names several messages, one of them.
    Item { list: usize, at: usize, mid: Option<usize> },
}

/// The entries; `None` when the body is not of Meta's shape.
pub(super) fn entries(body: &str) -> Option<Vec<&RawValue>> {
    items(member(body, "entry")?.get())
}

/// All parts up to the limit on events, and one more that stands for the rest.
pub(super) fn parts_of<'a>(entries: &[&'a RawValue]) -> Vec<Part<'a>> {
    let parts = entries.iter().enumerate().flat_map(|(entry_at, entry)| {
        let entry = entry.get();
        let lists = LISTS.map(|list| member(entry, list).filter(|list| list.get() != "null"));
        let whole = lists.iter().all(Option::is_none).then_some((entry, Place::Entry));
        let in_lists = lists.into_iter().enumerate().filter_map(|(list, raw)| Some((list, raw?)));
        let parts = whole.into_iter().chain(in_lists.flat_map(|(list, raw)| parts_of_list(list, raw)));
        parts.map(move |(raw, place)| Part { entry, raw, place, entry_at })
    });
    parts.take(EVENTS_PER_WEBHOOK + 1).collect()
}

fn parts_of_list(list: usize, raw: &RawValue) -> impl Iterator<Item = (&str, Place)> {
    let found = items(raw.get());
    let odd = found.is_none().then_some((raw.get(), Place::OddList(list)));
    let items = found.into_iter().flatten().enumerate().flat_map(move |(at, item)| {
        let mids = mids(item.get()).map_or(0, |mids| mids.len());
        let alone = (mids == 0).then_some(None);
        let places = alone.into_iter().chain((0..mids).map(Some));
        places.map(move |mid| (item.get(), Place::Item { list, at, mid }))
    });
    odd.into_iter().chain(items)
}

/// The messages that a delivery names.
pub(super) fn mids(item: &str) -> Option<Vec<&RawValue>> {
    items(member(member(item, "delivery")?.get(), "mids")?.get())
}

/// Meta's envelope around fewer events: everything that is not an event stays as it was.
pub(super) fn rewrap(body: &str, keep: &[u32]) -> Option<Vec<u8>> {
    let all = entries(body)?;
    let parts = parts_of(&all);
    let kept: Vec<&Part<'_>> = keep.iter().filter_map(|index| parts.get(*index as usize)).collect();
    let mut rewrapped = Vec::new();
    for (at, entry) in all.iter().enumerate() {
        let mine: Vec<&Part<'_>> = kept.iter().copied().filter(|part| part.entry_at == at).collect();
        if !mine.is_empty() {
            rewrapped.push(rewrap_entry(entry.get(), &mine)?);
        }
    }
    (!rewrapped.is_empty()).then(|| with_member_replaced(body, "entry", &array_of(&rewrapped)))?
}

fn rewrap_entry(entry: &str, kept: &[&Part<'_>]) -> Option<Vec<u8>> {
    if kept.iter().any(|part| part.place == Place::Entry) {
        return Some(entry.as_bytes().to_vec());
    }
    let mut lists = Vec::new();
    for (list, name) in LISTS.iter().enumerate() {
        lists.push((*name, rewrap_list(list, kept)?));
    }
    let members = members(entry)?;
    let remaining = members.iter().filter_map(|(name, raw)| match lists.iter().find(|(list, _)| name == list) {
        None => Some((name.as_ref(), raw.get().as_bytes().into())),
        Some((_, Some(rewritten))) => Some((name.as_ref(), rewritten.as_slice().into())),
        Some((_, None)) => None,
    });
    let mut out = Vec::with_capacity(entry.len());
    write_object(&mut out, remaining);
    Some(out)
}

/// The list with what is kept of it; nothing when nothing is. The outer `None` means unreadable.
fn rewrap_list(list: usize, kept: &[&Part<'_>]) -> Option<Option<Vec<u8>>> {
    if let Some(odd) = kept.iter().find(|part| part.place == Place::OddList(list)) {
        return Some(Some(odd.raw.as_bytes().to_vec()));
    }
    let mut out: Vec<(usize, Vec<u8>)> = Vec::new();
    for part in kept {
        let Place::Item { list: of, at, mid } = part.place else { continue };
        if of != list || out.last().is_some_and(|(last, _)| *last == at) {
            continue;
        }
        let item = match mid {
            None => part.raw.as_bytes().to_vec(),
            Some(_) => with_fewer_mids(part.raw, kept, list, at)?,
        };
        out.push((at, item));
    }
    let items: Vec<Vec<u8>> = out.into_iter().map(|(_, item)| item).collect();
    Some((!items.is_empty()).then(|| array_of(&items)))
}

fn with_fewer_mids(item: &str, kept: &[&Part<'_>], list: usize, at: usize) -> Option<Vec<u8>> {
    let delivery = member(item, "delivery")?.get();
    let stays = |mid: usize| kept.iter().any(|part| part.place == Place::Item { list, at, mid: Some(mid) });
    let staying: Vec<&str> = mids(item)?.iter().enumerate().filter(|(mid, _)| stays(*mid)).map(|(_, mid)| mid.get()).collect();
    let delivery = with_member_replaced(delivery, "mids", &array_of(&staying))?;
    with_member_replaced(item, "delivery", &delivery)
}

fn array_of<I: AsRef<[u8]>>(items: &[I]) -> Vec<u8> {
    let mut out = Vec::new();
    write_array(&mut out, items.iter());
    out
}
