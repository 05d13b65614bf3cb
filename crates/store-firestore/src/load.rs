//! Loading what a step wants to see, and remembering as of when each document was seen.

use std::collections::{HashMap, HashSet};

use futures_util::future::{try_join, try_join3};
use hapax_domain::Priority;
use hapax_store::StoreError;
use hapax_store::steps::records::{EventRec, Hash, ItemPlace, ItemRec, LaneRec, NameRec, ProviderNameRec, name_hash};
use hapax_store::steps::{Loaded, Wanted};

use super::client::{Client, Got};
use super::document::{read, read_with_body};
use super::mend::mend_numbers;
use super::query::Query;
use super::read_set::ReadSet;
use super::value::{Doc, flag, hash, int, number, text};
use super::{claims, codec, outbox_doc, paths};

/// Messages of a lane that are looked through for one that can be read.
const LINE_MAX: usize = 50;

pub(super) fn outbox_path(doc: &Doc) -> String {
    format!("{}/{}", paths::OUTBOX, doc.id())
}

/// Documents by name.
struct Found(HashMap<String, Doc>);

impl Found {
    fn new(got: Got) -> Self {
        Self(got.docs.into_iter().map(|doc| (doc.name.clone(), doc)).collect())
    }

    fn at(&self, client: &Client, path: &str) -> Option<&Doc> {
        self.0.get(&client.name(path))
    }
}

/// Loads in two turns. Lanes come before what waits in them, because they guard the line; whether an account is sending is asked before
/// what the provider calls its messages, so that a send which ends in between is seen by one of the two.
pub(super) async fn load(client: &Client, wanted: &Wanted, read_set: &mut ReadSet) -> Result<Loaded, StoreError> {
    let mut loaded = Loaded::default();
    for (account, name) in &wanted.names {
        read_set.know_thread(account, name);
    }
    let paths = first_paths(wanted, read_set);
    let (got, events, talk) =
        try_join3(read_set.get(client, &paths), plain_events(client, wanted), talk(client, wanted, read_set)).await?;
    let found = Found::new(got);
    take_lanes(client, &found, wanted, (&mut loaded, read_set))?;
    take_names(client, &found, wanted, (&mut loaded, read_set))?;
    for doc in &talk.names {
        let name = read::<NameRec>(doc)?;
        read_set.saw(doc);
        loaded.names.insert((name.account, name.name), name.peer);
    }
    let named = wanted.threads.iter().filter_map(|thread| found.at(client, &read_set.thread_path(thread)?));
    for doc in talk.threads.iter().chain(named.collect::<Vec<_>>()) {
        read_set.lock(doc);
        read_set.threads.insert(doc.hash("hash")?, doc.id().to_owned());
        loaded.threads.insert(doc.hash("hash")?, read(doc)?);
    }
    loaded.sending = talk.sending.into_iter().filter(|(_, sends)| *sends).map(|(account, _)| account).collect();
    let with_bodies = wanted.bodies.iter().chain(plain_ones(wanted)).filter_map(|event| found.at(client, &event_path(event)));
    take_events(client, events.iter().chain(with_bodies), wanted, (&mut loaded, read_set)).await?;
    for item in &wanted.items {
        if let Some(doc) = found.at(client, &item_path(item)) {
            read_set.saw(doc);
            loaded.items.insert(*item, read::<ItemRec>(doc)?);
        }
    }
    take_claims(client, &found, wanted, (&mut loaded, read_set)).await?;
    let mut requested = Vec::new();
    for request in &wanted.requests {
        if let Some(doc) = found.at(client, &paths::hashed(paths::REQUESTS, request)) {
            requested.push(doc.number("number")?);
            read_set.know_request(client, request, doc.number("number")?);
        }
    }

    let numbers = numbers_of(wanted, requested);
    let names = provider_name_paths(wanted);
    let placed = numbers.iter().filter_map(|number| Some(read_set.messages.get(number)?.path.clone()));
    let paths: Vec<String> = names.iter().cloned().chain(placed).collect();
    let by_line = try_join(lines(client, wanted), waiting(client, wanted));
    let ((lines, waiting), got, mut outs) =
        try_join3(by_line, read_set.get(client, &paths), outs(client, wanted, &numbers, read_set)).await?;
    loaded.waiting.extend(waiting);
    let mut found = Found::new(got);
    for (lane, docs) in &lines {
        for doc in docs {
            let item = read::<ItemRec>(doc)?;
            read_set.saw(doc);
            loaded.lowest.entry(*lane).or_default().push(item.number);
            loaded.items.insert(item.number, item);
        }
    }
    for doc in names.iter().filter_map(|path| found.0.remove(&client.name(path))) {
        let name = read::<ProviderNameRec>(&doc)?;
        read_set.lock(&doc);
        loaded.provider_names.insert(name_hash(&name.account, &name.provider_id), name);
    }
    // A document that was written anew by somebody else is not this message's any more.
    let own = |doc: &Doc| doc.maybe_number("number").is_some_and(|number| numbers.binary_search(&number).is_ok());
    outs.numbered.extend(found.0.into_values().filter(own));
    mend_outs(client, &mut outs, &numbers, read_set).await?;
    take_outs(outs, wanted, (&mut loaded, read_set))?;
    Ok(loaded)
}

fn event_path(event: &u64) -> String {
    paths::numbered(paths::EVENTS, *event)
}

/// Events without their bodies. Those to be locked are not told apart: whatever was seen must still be so when it is changed or removed.
fn plain_ones(wanted: &Wanted) -> impl Iterator<Item = &u64> {
    wanted.events.iter().chain(&wanted.locked_events)
}

fn item_path(item: &u64) -> String {
    paths::numbered(paths::ITEMS, *item)
}

/// Documents of the first turn whose paths are known. Events that are wanted without their bodies are asked for by themselves, unless
/// those with bodies are of the same webhook.
fn first_paths(wanted: &Wanted, read_set: &ReadSet) -> Vec<String> {
    let mut paths: Vec<String> = wanted.lanes.iter().map(|lane| paths::hashed(paths::LANES, lane)).collect();
    paths.extend(
        wanted
            .names
            .iter()
            .chain(&wanted.sure_names)
            .map(|(account, name)| paths::hashed(paths::NAMES, &name_hash(account, name))),
    );
    paths.extend(wanted.threads.iter().filter_map(|thread| read_set.thread_path(thread)));
    paths.extend(wanted.items.iter().map(item_path));
    paths.extend(wanted.claims.iter().map(claims::path));
    paths.extend(wanted.requests.iter().map(|request| paths::hashed(paths::REQUESTS, request)));
    if !wanted.bodies.is_empty() {
        paths.extend(wanted.bodies.iter().chain(plain_ones(wanted)).map(event_path));
    }
    paths
}

async fn take_claims(
    client: &Client,
    found: &Found,
    wanted: &Wanted,
    (loaded, read_set): (&mut Loaded, &mut ReadSet),
) -> Result<(), StoreError> {
    for claim in &wanted.claims {
        if let Some(doc) = found.at(client, &claims::path(claim)) {
            read_set.saw(doc);
            read_set.claim_pieces.insert(*claim, doc.maybe_int("pieces").unwrap_or_default().max(0) as usize);
            loaded.claims.insert(*claim, claims::read_whole(client, doc).await?);
        }
    }
    Ok(())
}

fn take_lanes(
    client: &Client,
    found: &Found,
    wanted: &Wanted,
    (loaded, read_set): (&mut Loaded, &mut ReadSet),
) -> Result<(), StoreError> {
    for lane in &wanted.lanes {
        if let Some(doc) = found.at(client, &paths::hashed(paths::LANES, lane)) {
            let lane = read::<LaneRec>(doc)?;
            read_set.saw_lane(doc, &lane);
            loaded.lanes.insert(lane.hash, lane);
        }
    }
    Ok(())
}

fn take_names(
    client: &Client,
    found: &Found,
    wanted: &Wanted,
    (loaded, read_set): (&mut Loaded, &mut ReadSet),
) -> Result<(), StoreError> {
    for (account, name) in &wanted.names {
        let path = paths::hashed(paths::NAMES, &name_hash(account, name));
        let Some(doc) = found.at(client, &path) else {
            read_set.missed(vec![client.name(&path)]);
            continue;
        };
        let peer = doc.text("peer")?;
        read_set.saw(doc);
        read_set.know_thread(account, &peer);
        loaded.names.insert((account.clone(), name.clone()), peer);
    }
    // Whoever lets a name lead elsewhere changes the document of the thread it led to, and that is checked by the commit.
    for (account, name) in &wanted.sure_names {
        if let Some(doc) = found.at(client, &paths::hashed(paths::NAMES, &name_hash(account, name))) {
            loaded.sure_names.insert((account.clone(), name.clone()), doc.text("peer")?);
        }
    }
    Ok(())
}

async fn plain_events(client: &Client, wanted: &Wanted) -> Result<Vec<Doc>, StoreError> {
    if !wanted.bodies.is_empty() {
        return Ok(Vec::new());
    }
    let paths: Vec<String> = plain_ones(wanted).map(event_path).collect();
    Ok(client.get(&paths, Some(codec::plain_event())).await?.docs)
}

async fn take_events(
    client: &Client,
    docs: impl Iterator<Item = &Doc>,
    wanted: &Wanted,
    (loaded, read_set): (&mut Loaded, &mut ReadSet),
) -> Result<(), StoreError> {
    for doc in docs {
        let with_body = doc.maybe_number("number").is_some_and(|number| wanted.bodies.contains(&number));
        let mut event: EventRec = if with_body { read_with_body(doc)? } else { read(doc)? };
        if let Some(carried) = &mut event.carried {
            carried.body = whole_body(client, doc, std::mem::take(&mut carried.body)).await?;
        }
        read_set.saw(doc);
        loaded.events.insert(event.number, event);
    }
    Ok(())
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

/// Who waits in lanes: the two lowest of each.
async fn lines(client: &Client, wanted: &Wanted) -> Result<Vec<(Hash, Vec<Doc>)>, StoreError> {
    let lowest = wanted.lowest_items.iter().map(|lane| {
        let waiting = Query::new(paths::ITEMS).equal("lane", hash(lane)).equal("place", int(ItemPlace::InLane.code().into()));
        waiting.lowest_first("number").limit(2)
    });
    let lowest = client.run_all(lowest.collect()).await?;
    Ok(wanted.lowest_items.iter().copied().zip(lowest).collect())
}

/// How many messages are in outboxes, the replies apart from the rest.
async fn waiting(client: &Client, wanted: &Wanted) -> Result<Vec<((String, String, bool), usize)>, StoreError> {
    let mut waiting = Vec::with_capacity(wanted.waiting.len() * 2);
    for (channel, account) in &wanted.waiting {
        let of = Query::new(paths::OUTBOX).equal("channel", text(channel)).equal("account", text(account));
        let all = of.equal("open", flag(true)).equal("unknown", flag(false));
        let replies = all.clone().equal("priority", text(Priority::Reply.name()));
        let (all, replies) = try_join(client.count(all), client.count(replies)).await?;
        waiting.push(((channel.clone(), account.clone(), true), replies as usize));
        waiting.push(((channel.clone(), account.clone(), false), all.saturating_sub(replies) as usize));
    }
    Ok(waiting)
}

struct ThreadTail {
    /// Those of which only the hash is known.
    threads: Vec<Doc>,
    /// All that lead to certain threads.
    names: Vec<Doc>,
    /// One for each account: whether it sends anything.
    sending: Vec<(String, bool)>,
}

async fn talk(client: &Client, wanted: &Wanted, read_set: &ReadSet) -> Result<ThreadTail, StoreError> {
    let nameless = wanted.threads.iter().filter(|thread| read_set.thread_path(thread).is_none()).map(hash).collect();
    let by_hash = Query::new(paths::THREADS);
    let begun = wanted.sending.iter().map(|account| {
        Query::new(paths::OUTBOX).equal("account", text(account)).equal("begun", flag(true)).only(&["number"]).limit(1)
    });
    let named = wanted.named.iter().map(hash).collect();
    let names = Query::new(paths::NAMES);
    let (threads, names, begun) = try_join3(
        client.run_any(&by_hash, "hash", nameless),
        client.run_any(&names, "thread", named),
        client.run_all(begun.collect()),
    )
    .await?;
    let sending = wanted.sending.iter().cloned().zip(begun).map(|(account, found)| (account, !found.is_empty()));
    Ok(ThreadTail { threads, names, sending: sending.collect() })
}

fn provider_name_paths(wanted: &Wanted) -> Vec<String> {
    let names = wanted.provider_names.iter().map(|(account, name)| name_hash(account, name));
    names.map(|hash| paths::hashed(paths::PROVIDER_NAMES, &hash)).collect()
}

/// Documents of the outbox, by how they were asked for.
struct Outs {
    numbered: Vec<Doc>,
    lowest: Vec<(Hash, Vec<Doc>)>,
}

/// Messages that are wanted by number, in order; those of requests among them.
fn numbers_of(wanted: &Wanted, requested: Vec<u64>) -> Vec<u64> {
    let mut numbers: Vec<u64> = wanted.messages.iter().chain(&wanted.outs).copied().chain(requested).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Asks for those of which no path is known.
async fn outs(client: &Client, wanted: &Wanted, numbers: &[u64], read_set: &ReadSet) -> Result<Outs, StoreError> {
    let unplaced = numbers.iter().filter(|number| !read_set.messages.contains_key(number)).map(|at| number(*at)).collect();
    let outbox = Query::new(paths::OUTBOX);
    let by_number = client.run_any(&outbox, "number", unplaced);
    let lowest = wanted.lowest_outs.iter().map(|lane| line_of(lane).limit(2));
    let (numbered, lowest) = try_join(by_number, client.run_all(lowest.collect())).await?;
    let lowest = wanted.lowest_outs.iter().copied().zip(lowest).collect();
    Ok(Outs { numbered, lowest })
}

fn line_of(lane: &Hash) -> Query {
    Query::new(paths::OUTBOX).equal("lane", hash(lane)).equal("inLine", flag(true)).lowest_first("number")
}

/// Somebody else may have written into any of them: what can be made whole again is, and the rest stands in nobody's way.
async fn mend_outs(client: &Client, outs: &mut Outs, numbers: &[u64], read_set: &mut ReadSet) -> Result<(), StoreError> {
    outs.numbered = whole_ones(client, std::mem::take(&mut outs.numbered), read_set).await?;
    let there: HashSet<u64> = outs.numbered.iter().filter_map(|doc| doc.maybe_number("number")).collect();
    let missing: Vec<u64> = numbers.iter().filter(|number| !there.contains(number)).copied().collect();
    if !missing.is_empty() {
        outs.numbered.extend(mend_numbers(client, &missing).await?.into_iter().map(|mended| read_set.mend(mended)));
    }
    for (lane, docs) in &mut outs.lowest {
        let (lane, found) = (&*lane, docs.len());
        *docs = whole_ones(client, std::mem::take(docs), read_set).await?;
        if docs.len() < found {
            let more = client.run(&line_of(lane).limit(LINE_MAX)).await?;
            *docs = whole_ones(client, more, read_set).await?;
        }
        docs.retain(|doc| doc.maybe_hash("lane").as_ref() == Some(lane));
    }
    Ok(())
}

async fn whole_ones(client: &Client, docs: Vec<Doc>, read_set: &mut ReadSet) -> Result<Vec<Doc>, StoreError> {
    let (mut whole, mended) = super::mend::whole_ones(client, docs).await?;
    whole.extend(mended.into_iter().map(|mended| read_set.mend(mended)));
    Ok(whole)
}

fn take_outs(outs: Outs, wanted: &Wanted, (loaded, read_set): (&mut Loaded, &mut ReadSet)) -> Result<(), StoreError> {
    for doc in &outs.numbered {
        read_set.saw_message(doc)?;
        let at = doc.number("number")?;
        loaded.messages.insert(at, read(doc)?);
        if wanted.outs.contains(&at) {
            loaded.outs.extend(outbox_doc::read_out(doc)?.map(|out| (at, out)));
        }
    }
    for (lane, docs) in &outs.lowest {
        for doc in docs {
            read_set.saw_message(doc)?;
            let Some(out) = outbox_doc::read_out(doc)? else { continue };
            loaded.lowest.entry(*lane).or_default().push(out.number);
            loaded.outs.insert(out.number, out);
        }
    }
    Ok(())
}
