//! Lists of records, for people.

use std::sync::Arc;

use futures_util::future::try_join;
use hapax_domain::ids;
use hapax_store::steps::Entry;
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, EventRec, Hash, ItemRec, LaneRec, OutRec, Queue, ThreadRec, thread_hash,
};
use hapax_store::{Answer, Copies, EventQuery, InboxQuery, OutboxQuery, PausedAccount, StoreError, ThreadQuery};

use super::document::read;
use super::load::whole_body;
use super::query::Query;
use super::value::{Doc, flag, hash, int, number, text, time};
use super::{FirestoreEngine, codec, mend, outbox_doc, paths};

impl FirestoreEngine {
    pub(super) async fn read<T>(&self, query: Query, read: impl Fn(&Doc) -> Result<T, StoreError>) -> Result<Vec<T>, StoreError> {
        self.inner.client.run(&query).await?.iter().map(read).collect()
    }

    /// Documents of the outbox in the order of their numbers. Those that somebody else has written over are read as they should be, or
    /// passed by.
    pub(super) async fn outbox_docs(&self, query: Query, limit: usize) -> Result<Vec<Doc>, StoreError> {
        let (mut docs, mut behind) = (Vec::new(), None);
        loop {
            let page = self.inner.client.run(&query.clone().behind(behind.take()).limit(limit)).await?;
            let full = page.len() == limit;
            behind = page.last().and_then(|last| Some(vec![last.fields.get("number")?.clone()]));
            let (whole, mended) = mend::whole_ones(&self.inner.client, page).await?;
            docs.extend(whole);
            docs.extend(mended.into_iter().map(|mended| mended.doc));
            if !full || docs.len() >= limit || behind.is_none() {
                docs.truncate(limit);
                return Ok(docs);
            }
        }
    }

    pub(super) async fn events(
        &self,
        query: &EventQuery,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<EventRec>, StoreError> {
        let thread = query.thread.as_ref().map(|thread| hash(&thread_hash(&thread.account, &thread.peer)));
        let events = Query::new(paths::EVENTS)
            .equal_if("channel", query.channel.as_deref().map(text))
            .equal_if("kind", query.kind.map(|kind| text(kind.name())))
            .equal_if("own_thread", thread)
            .below("number", before.map(number))
            .highest_first("number")
            .only(codec::plain_event())
            .limit(limit);
        self.read(events, read::<EventRec>).await
    }

    pub(super) async fn items(&self, query: &InboxQuery, after: Option<u64>, limit: usize) -> Result<Vec<ItemRec>, StoreError> {
        let items = Query::new(paths::ITEMS)
            .equal_if("channel", query.channel.as_deref().map(text))
            .equal_if("parked", query.parked.map(flag))
            .above("number", after.map(number))
            .lowest_first("number")
            .limit(limit);
        self.read(items, read::<ItemRec>).await
    }

    pub(super) async fn held_lanes(&self, channel: &str, now_ms: i64, limit: usize) -> Result<Vec<LaneRec>, StoreError> {
        let lanes = Query::new(paths::LANES).equal("queue", int(Queue::Inbox.code().into())).equal("channel", text(channel));
        let mut lanes = self.read(lanes.equal("leased", flag(true)).limit(limit), read::<LaneRec>).await?;
        lanes.retain(|lane| lane.held.as_ref().is_some_and(|held| held.until_ms > now_ms));
        Ok(lanes)
    }

    pub(super) async fn replays(&self, event: u64) -> Result<Vec<ItemRec>, StoreError> {
        let items = Query::new(paths::ITEMS).contains("events", number(event)).equal("is_replay", flag(true));
        let mut items = self.read(items, read::<ItemRec>).await?;
        items.sort_by_key(|item| item.number);
        Ok(items)
    }

    pub(super) async fn attempts(&self, queue: Queue, of: &[u64]) -> Result<Vec<AttemptRec>, StoreError> {
        let attempts = Query::new(paths::ATTEMPTS).equal("queue", int(queue.code().into()));
        let found = self.inner.client.run_any(&attempts, "of", of.iter().map(|of| number(*of)).collect()).await?;
        let mut attempts = found.iter().map(read::<AttemptRec>).collect::<Result<Vec<_>, _>>()?;
        attempts.sort_by_key(|attempt| attempt.fence);
        Ok(attempts)
    }

    pub(super) async fn copies_of(&self, events: &[u64]) -> Result<Vec<Copies>, StoreError> {
        let paths: Vec<_> = events.iter().map(|event| paths::numbered(paths::EVENTS, *event)).collect();
        let got = self.inner.client.get(&paths, Some(codec::plain_event())).await?;
        got.docs.iter().filter_map(|doc| codec::read_copies(doc).transpose()).collect()
    }

    pub(super) async fn answer_to(&self, event: u64) -> Result<Option<Answer>, StoreError> {
        let got = self.inner.client.get(&[paths::numbered(paths::ANSWERS, event)], None).await?;
        let Some(doc) = got.docs.first() else { return Ok(None) };
        let mut answer = read::<AnswerRec>(doc)?.answer;
        answer.body = whole_body(&self.inner.client, doc, answer.body).await?;
        Ok(Some(answer))
    }

    pub(super) async fn threads(&self, query: &ThreadQuery, limit: usize) -> Result<Vec<ThreadRec>, StoreError> {
        let threads = Query::new(paths::THREADS)
            .equal_if("channel", query.channel.as_deref().map(text))
            .equal_if("account", query.account.as_deref().map(text))
            .highest_first("lastAt");
        let before = query.before.as_ref();
        // Within one account, its name orders nothing.
        let threads = match &query.account {
            Some(_) => {
                let behind = before.map(|(at_ms, id)| vec![time(*at_ms), text(&id.peer)]);
                threads.highest_first("peer").behind(behind)
            }
            None => {
                let behind = before.map(|(at_ms, id)| vec![time(*at_ms), text(&id.account), text(&id.peer)]);
                threads.highest_first("account").highest_first("peer").behind(behind)
            }
        };
        self.read(threads.limit(limit), read::<ThreadRec>).await
    }

    pub(super) async fn names(&self, account: &str, peer: &str) -> Result<Vec<String>, StoreError> {
        let names = Query::new(paths::NAMES).equal("thread", hash(&thread_hash(account, peer)));
        let mut names = self.read(names, |doc| doc.text("name")).await?;
        names.sort_unstable();
        Ok(names)
    }

    pub(super) async fn entries(
        &self,
        thread: &Hash,
        above: u64,
        below: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let of_thread = |collection: &'static str| {
            let entries = Query::new(collection).equal("thread", hash(thread)).above("number", Some(number(above)));
            entries.below("number", below.map(number)).highest_first("number").limit(limit)
        };
        let events = of_thread(paths::EVENTS).only(codec::plain_event());
        let (events, messages) =
            try_join(self.inner.client.run(&events), self.outbox_docs(of_thread(paths::OUTBOX), limit)).await?;
        let mut entries = Vec::new();
        for doc in &events {
            entries.push(Entry::Event(Arc::new(read(doc)?)));
        }
        for doc in &messages {
            entries.push(Entry::Message(Arc::new(read(doc)?)));
        }
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.number()));
        entries.truncate(limit);
        Ok(entries)
    }

    pub(super) async fn outs(&self, query: &OutboxQuery, after: Option<u64>, limit: usize) -> Result<Vec<OutRec>, StoreError> {
        let doubted = query.unknown.then(|| flag(true));
        let outs = Query::new(paths::OUTBOX)
            .equal("open", flag(true))
            .equal_if("channel", query.channel.as_deref().map(text))
            .equal_if("account", query.account.as_deref().map(text))
            .equal_if("unknown", doubted.clone())
            .equal_if("leased", doubted.map(|_| flag(false)))
            .above("number", after.map(number))
            .lowest_first("number");
        let docs = self.outbox_docs(outs, limit).await?;
        let outs: Vec<Option<OutRec>> = docs.iter().map(outbox_doc::read_out).collect::<Result<_, _>>()?;
        Ok(outs.into_iter().flatten().collect())
    }

    pub(super) async fn paused_accounts(&self) -> Result<Vec<PausedAccount>, StoreError> {
        let read = |doc: &Doc| {
            let (channel, account) = (doc.text("channel")?, doc.text("account")?);
            Ok(PausedAccount { channel, account, why: doc.text("why")?, since_ms: doc.int("since_ms")? })
        };
        let mut paused = self.read(Query::new(paths::PAUSED), read).await?;
        paused.sort_by(|a, b| (&a.channel, &a.account).cmp(&(&b.channel, &b.account)));
        Ok(paused)
    }

    /// Adds to the counts on the events' own documents, so that they go with them.
    pub(super) async fn add_copies(&self, copies: &[Copies]) -> Result<(), StoreError> {
        let path = |copies: &Copies| paths::numbered(paths::EVENTS, ids::number_of(copies.event.0));
        let there = self.inner.client.get(&copies.iter().map(path).collect::<Vec<_>>(), Some(&["number"])).await?;
        let there: std::collections::HashSet<String> = there.docs.into_iter().map(|doc| doc.name).collect();
        let writes: Vec<_> = copies
            .iter()
            .map(|copies| (self.inner.client.name(&path(copies)), copies))
            .filter(|(name, _)| there.contains(name))
            .map(|(name, copies)| super::upkeep::counting(&name, copies))
            .collect();
        self.write_each(writes).await.map(|_| ())
    }
}
