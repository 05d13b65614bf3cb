//! Loading what a step wants to see, and remembering as of when each document was seen.

use std::collections::HashMap;

use futures_util::future::{try_join, try_join3};

use super::client::{Client, Got};
use super::query::Query;
use super::value::{Doc, flag, hash, int, number, text};
use super::{codec, outbox_doc, paths};
use crate::store::StoreError;
use crate::store::steps::records::{Carried, EventRec, Hash, LaneRec, Place, name_hash};
use crate::store::steps::{Loaded, Wanted};

/// Messages in doubt that are looked at.
const DOUBTED_MAX: usize = 1_000;

/// Where a message's documents are.
#[derive(Clone, Debug)]
pub(super) struct MessagePlace {
    /// The path of its document in the outbox.
    pub(super) path: String,
    /// The document of its thread; `None` when only the lane has told where it is.
    pub(super) thread_doc: Option<String>,
}

/// All that a transaction has seen: what it writes is only written if that is still so.
#[derive(Default)]
pub(super) struct Sight {
    /// By name: when it was last changed, or `None` when it was not there.
    pub(super) times: HashMap<String, Option<String>>,
    pub(super) lanes: HashMap<Hash, LaneRec>,
    pub(super) messages: HashMap<u64, MessagePlace>,
    /// Ids of the documents of threads.
    pub(super) threads: HashMap<Hash, String>,
    /// Names of documents other than lanes that must not change until the end.
    pub(super) locked: Vec<String>,
}

impl Sight {
    /// The first sight counts: what was decided rests on it.
    pub(super) fn saw(&mut self, doc: &Doc) {
        self.times.entry(doc.name.clone()).or_insert_with(|| Some(doc.update_time.clone()));
    }

    pub(super) fn missed(&mut self, names: Vec<String>) {
        for name in names {
            self.times.entry(name).or_insert(None);
        }
    }

    pub(super) fn lock(&mut self, doc: &Doc) {
        self.saw(doc);
        self.locked.push(doc.name.clone());
    }

    pub(super) fn saw_lane(&mut self, doc: &Doc, lane: &LaneRec) {
        self.saw(doc);
        if let (Some(held), Some(path)) = (&lane.held, doc.maybe_text("held_doc")) {
            self.messages.entry(held.number).or_insert(MessagePlace { path, thread_doc: None });
        }
        self.lanes.entry(lane.hash).or_insert_with(|| lane.clone());
    }

    pub(super) fn saw_message(&mut self, doc: &Doc) -> Result<(), StoreError> {
        self.lock(doc);
        let place = MessagePlace { path: outbox_path(doc), thread_doc: doc.maybe_text("threadId") };
        self.messages.insert(doc.number("number")?, place);
        Ok(())
    }
}

pub(super) fn outbox_path(doc: &Doc) -> String {
    format!("{}/{}", paths::OUTBOX, doc.id())
}

/// Loads in two turns. Lanes come before what waits in them, because they guard the line; whether an account is sending is asked before
/// what the provider calls its messages, so that a send which ends in between is seen by one of the two.
pub(super) async fn load(client: &Client, wanted: &Wanted, sight: &mut Sight) -> Result<Loaded, StoreError> {
    let mut loaded = Loaded::default();
    let (lanes, events, talk) = try_join3(lanes(client, wanted), events(client, wanted), talk(client, wanted)).await?;
    for doc in &lanes.docs {
        let lane = codec::read_lane(doc)?;
        sight.saw_lane(doc, &lane);
        loaded.lanes.insert(lane.hash, lane);
    }
    for (doc, event) in events {
        sight.saw(&doc);
        loaded.events.insert(event.number, event);
    }
    take_talk(talk, &mut loaded, sight)?;

    let (items, named, outs) = try_join3(items(client, wanted), provider_names(client, wanted), outs(client, wanted)).await?;
    take_items(items, &mut loaded, sight)?;
    for doc in &named.docs {
        let name = codec::read_provider_name(doc)?;
        sight.lock(doc);
        loaded.provider_names.insert(name_hash(&name.account, &name.provider_id), name);
    }
    take_outs(outs, wanted, &mut loaded, sight)?;
    Ok(loaded)
}

async fn lanes(client: &Client, wanted: &Wanted) -> Result<Got, StoreError> {
    let paths: Vec<String> = wanted.lanes.iter().map(|lane| paths::hashed(paths::LANES, lane)).collect();
    client.get(&paths, None).await
}

struct Items {
    got: Vec<Doc>,
    lowest: Vec<(Hash, Vec<Doc>)>,
}

async fn items(client: &Client, wanted: &Wanted) -> Result<Items, StoreError> {
    let paths: Vec<String> = wanted.items.iter().map(|item| paths::numbered(paths::ITEMS, *item)).collect();
    let lowest = wanted.lowest_items.iter().map(|lane| {
        let waiting = Query::of(paths::ITEMS).equal("lane", hash(lane)).equal("place", int(Place::InLane.code().into()));
        waiting.lowest_first("number").limit(2)
    });
    let (got, lowest) = try_join(client.get(&paths, None), client.run_all(lowest.collect())).await?;
    Ok(Items { got: got.docs, lowest: wanted.lowest_items.iter().copied().zip(lowest).collect() })
}

fn take_items(items: Items, loaded: &mut Loaded, sight: &mut Sight) -> Result<(), StoreError> {
    for doc in &items.got {
        let item = codec::read_item(doc)?;
        sight.saw(doc);
        loaded.items.insert(item.number, item);
    }
    for (lane, docs) in &items.lowest {
        for doc in docs {
            let item = codec::read_item(doc)?;
            sight.saw(doc);
            loaded.lowest.entry(*lane).or_default().push(item.number);
            loaded.items.insert(item.number, item);
        }
    }
    Ok(())
}

async fn events(client: &Client, wanted: &Wanted) -> Result<Vec<(Doc, EventRec)>, StoreError> {
    let path = |event: &u64| paths::numbered(paths::EVENTS, *event);
    let plain: Vec<String> = wanted.events.iter().map(path).collect();
    let carrying: Vec<String> = wanted.bodies.iter().map(path).collect();
    let (plain, carrying) = try_join(client.get(&plain, Some(codec::EVENT_FIELDS)), client.get(&carrying, None)).await?;
    let mut events = Vec::with_capacity(plain.docs.len() + carrying.docs.len());
    for doc in plain.docs {
        let event = codec::read_event(&doc)?;
        events.push((doc, event));
    }
    for doc in carrying.docs {
        let event = codec::read_event(&doc)?;
        let carried = match codec::read_carried(&doc) {
            Some(carried) => Some(Carried { body: whole_body(client, &doc, carried.body).await?, ..carried }),
            None => None,
        };
        events.push((doc, EventRec { carried, ..event }));
    }
    Ok(events)
}

/// Puts the pieces of a body behind what of it stands in the document.
pub(super) async fn whole_body(client: &Client, doc: &Doc, inline: bytes::Bytes) -> Result<bytes::Bytes, StoreError> {
    let count = doc.maybe_int("pieces").unwrap_or_default().max(0) as usize;
    if count == 0 {
        return Ok(inline);
    }
    let of = doc.name.rsplitn(3, '/').take(2).collect::<Vec<_>>();
    let of = format!("{}/{}", of[1], of[0]);
    let paths: Vec<String> = (0..count).map(|index| paths::piece(&of, index)).collect();
    let mut pieces: HashMap<String, Vec<u8>> = HashMap::new();
    for piece in client.get(&paths, None).await?.docs {
        pieces.insert(piece.name.clone(), piece.bytes("bytes")?);
    }
    let mut body = inline.to_vec();
    for path in &paths {
        let piece = pieces.get(&client.name(path)).ok_or_else(|| super::value::broken(path, "bytes"))?;
        body.extend_from_slice(piece);
    }
    Ok(body.into())
}

struct Talk {
    names: Got,
    threads: Vec<Doc>,
    /// One for each account: empty when it sends nothing.
    sending: Vec<(String, bool)>,
}

async fn talk(client: &Client, wanted: &Wanted) -> Result<Talk, StoreError> {
    let names: Vec<String> =
        wanted.names.iter().map(|(account, name)| paths::hashed(paths::NAMES, &name_hash(account, name))).collect();
    let by_hash = Query::of(paths::THREADS);
    let threads = client.run_any(&by_hash, "hash", wanted.threads.iter().map(hash).collect());
    let begun = wanted.sending.iter().map(|account| {
        Query::of(paths::OUTBOX).equal("account", text(account)).equal("begun", flag(true)).only(&["number"]).limit(1)
    });
    let (names, threads, begun) = try_join3(client.get(&names, None), threads, client.run_all(begun.collect())).await?;
    let sending = wanted.sending.iter().cloned().zip(begun).map(|(account, found)| (account, !found.is_empty()));
    Ok(Talk { names, threads, sending: sending.collect() })
}

fn take_talk(talk: Talk, loaded: &mut Loaded, sight: &mut Sight) -> Result<(), StoreError> {
    for doc in &talk.names.docs {
        sight.saw(doc);
        loaded.names.insert((doc.text("account")?, doc.text("name")?), doc.text("peer")?);
    }
    sight.missed(talk.names.missing);
    for doc in &talk.threads {
        sight.lock(doc);
        sight.threads.insert(doc.hash("hash")?, doc.id().to_owned());
        loaded.threads.insert(doc.hash("hash")?, codec::read_thread(doc)?);
    }
    loaded.sending = talk.sending.into_iter().filter(|(_, sends)| *sends).map(|(account, _)| account).collect();
    Ok(())
}

async fn provider_names(client: &Client, wanted: &Wanted) -> Result<Got, StoreError> {
    let names = wanted.provider_names.iter().map(|(account, name)| name_hash(account, name));
    let paths: Vec<String> = names.map(|hash| paths::hashed(paths::PROVIDER_NAMES, &hash)).collect();
    client.get(&paths, None).await
}

/// Documents of the outbox, by how they were asked for.
struct Outs {
    requested: Vec<Doc>,
    numbered: Vec<Doc>,
    lowest: Vec<(Hash, Vec<Doc>)>,
    doubted: Vec<Doc>,
}

async fn outs(client: &Client, wanted: &Wanted) -> Result<Outs, StoreError> {
    let outbox = Query::of(paths::OUTBOX);
    let mut numbers: Vec<u64> = wanted.messages.iter().chain(&wanted.outs).copied().collect();
    numbers.sort_unstable();
    numbers.dedup();
    let by_number = client.run_any(&outbox, "number", numbers.into_iter().map(number).collect());
    let by_request = client.run_any(&outbox, "request", wanted.requests.iter().map(hash).collect());
    let lowest = wanted.lowest_outs.iter().map(|lane| {
        let waiting = Query::of(paths::OUTBOX).equal("lane", hash(lane)).equal("inLine", flag(true));
        waiting.lowest_first("number").limit(2)
    });
    let doubted = wanted.doubted.iter().map(|account| {
        let doubted = Query::of(paths::OUTBOX).equal("account", text(account)).equal("unknown", flag(true));
        doubted.lowest_first("number").limit(DOUBTED_MAX)
    });
    let by_line = try_join(client.run_all(lowest.collect()), client.run_all(doubted.collect()));
    let (numbered, requested, (lowest, doubted)) = try_join3(by_number, by_request, by_line).await?;
    let lowest = wanted.lowest_outs.iter().copied().zip(lowest).collect();
    Ok(Outs { requested, numbered, lowest, doubted: doubted.into_iter().flatten().collect() })
}

fn take_outs(outs: Outs, wanted: &Wanted, loaded: &mut Loaded, sight: &mut Sight) -> Result<(), StoreError> {
    for doc in &outs.numbered {
        sight.saw_message(doc)?;
        let at = doc.number("number")?;
        if wanted.messages.contains(&at) {
            loaded.messages.insert(at, outbox_doc::read_message(doc)?);
        }
        if wanted.outs.contains(&at) {
            loaded.outs.extend(outbox_doc::read_out(doc)?.map(|out| (at, out)));
        }
    }
    for doc in &outs.requested {
        sight.saw_message(doc)?;
        let message = outbox_doc::read_message(doc)?;
        loaded.messages.insert(message.number, message);
    }
    for (lane, docs) in &outs.lowest {
        for doc in docs {
            sight.saw_message(doc)?;
            let Some(out) = outbox_doc::read_out(doc)? else { continue };
            loaded.lowest.entry(*lane).or_default().push(out.number);
            loaded.outs.insert(out.number, out);
        }
    }
    for doc in &outs.doubted {
        sight.saw_message(doc)?;
        let Some(out) = outbox_doc::read_out(doc)? else { continue };
        loaded.messages.insert(out.number, outbox_doc::read_message(doc)?);
        loaded.outs.insert(out.number, out);
    }
    Ok(())
}
