//! What a step changes, as writes of documents.

use std::collections::{HashMap, HashSet};

use futures_util::future::{try_join, try_join3};
use hapax_domain::{MessageId, Status, ids};
use hapax_store::StoreError;
use hapax_store::steps::Changes;
use hapax_store::steps::records::{EventRec, Hash, LaneRec, MessageRec, Queue, ThreadRec, name_hash, request_hash, thread_hash};

use super::document::{fields_of, read, split};
use super::query::Query;
use super::read_set::MessagePlace;
use super::tx::FirestoreTx;
use super::value::{Doc, Fields, bytes, hash, int, map, null, number, text};
use super::{codec, outbox_doc, paths};

/// Longer texts find no room beside the rest of an event.
const TEXT_MAX_BYTES: usize = 300 << 10;
/// So many documents of a thread are told at once that they were read; Firestore allows 500 writes in a commit.
const MARKED_MAX: usize = 300;

impl FirestoreTx {
    pub(super) async fn save_all(&mut self, changes: &Changes) -> Result<(), StoreError> {
        for (name, fields) in std::mem::take(&mut self.read_set.mended) {
            self.writes.update(name, fields);
        }
        self.save_threads(changes);
        self.remove_threads(&changes.gone_threads).await?;
        self.find_threads(changes).await?;
        for event in &changes.new_events {
            self.save_event(event)?;
        }
        for (event, replays) in &changes.replays {
            let replays = Fields::default().with("replays", int((*replays).into()));
            self.writes.update(self.name(&paths::numbered(paths::EVENTS, *event)), replays);
        }
        let gone: Vec<u64> = changes.gone_events.iter().map(|event| event.number).collect();
        self.remove_events(&gone).await?;
        self.forget_words(changes).await?;
        self.mark_read(changes).await?;
        self.save_items(changes);
        self.save_messages(changes).await?;
        self.remove_messages(&changes.gone_messages).await?;
        self.save_lanes(changes).await?;
        self.save_claims(changes);
        for attempt in &changes.attempts {
            self.writes.create(self.name(&codec::attempt_path(attempt)), fields_of(attempt));
        }
        for answer in &changes.answers {
            let path = paths::numbered(paths::ANSWERS, answer.event);
            self.writes.put(self.name(&path), codec::answer_fields(answer));
            self.save_pieces(&path, &answer.answer.body);
        }
        Ok(())
    }

    fn name(&self, path: &str) -> String {
        self.inner.client.name(path)
    }

    fn entry(&self, thread_doc: &str, id: &str) -> String {
        self.name(&format!("{}/{thread_doc}/{}/{id}", paths::THREADS, paths::ENTRIES))
    }

    fn save_threads(&mut self, changes: &Changes) {
        let path = |thread: &ThreadRec| format!("{}/{}", paths::THREADS, paths::thread_doc_id(&thread.account, &thread.peer));
        for thread in &changes.new_threads {
            let hash = thread_hash(&thread.account, &thread.peer);
            self.read_set.threads.insert(hash, paths::thread_doc_id(&thread.account, &thread.peer));
            self.writes.create(self.name(&path(thread)), codec::thread_fields(thread));
        }
        for thread in &changes.threads {
            let mut fields = codec::thread_fields(thread);
            if !changes.names.is_empty() {
                // Whoever has read such a name before comes to nothing, even where this says nothing new of the thread.
                fields = fields.with("touched", text(&self.nonce));
            }
            self.writes.update(self.name(&path(thread)), fields);
        }
        for name in changes.new_names.iter().chain(&changes.names) {
            let hash = name_hash(&name.account, &name.name);
            self.writes.put(self.name(&paths::hashed(paths::NAMES, &hash)), codec::name_fields(name));
        }
        let path = |account: &str, provider_id: &str| paths::hashed(paths::PROVIDER_NAMES, &name_hash(account, provider_id));
        for name in &changes.new_provider_names {
            let path = path(&name.account, &name.provider_id);
            self.writes.create(self.name(&path), fields_of(name));
        }
        for name in &changes.provider_names {
            let path = path(&name.account, &name.provider_id);
            self.writes.update(self.name(&path), fields_of(name));
        }
        for hash in &changes.gone_provider_names {
            self.writes.delete(self.name(&paths::hashed(paths::PROVIDER_NAMES, hash)));
        }
    }

    /// Removes threads that were seen, and the names that lead to them.
    async fn remove_threads(&mut self, threads: &[Hash]) -> Result<(), StoreError> {
        for thread in threads {
            if let Some(id) = self.read_set.threads.get(thread) {
                self.writes.delete(self.name(&format!("{}/{id}", paths::THREADS)));
            }
        }
        let names = threads.iter().map(hash).collect();
        for doc in self.inner.client.run_any(&Query::new(paths::NAMES), "thread", names).await? {
            self.read_set.saw(&doc);
            self.writes.delete(doc.name);
        }
        Ok(())
    }

    /// Finds the documents of threads that something is said in and that were neither seen nor made.
    async fn find_threads(&mut self, changes: &Changes) -> Result<(), StoreError> {
        let said = changes.new_events.iter().filter_map(|event| event.thread);
        let mut unseen: Vec<Hash> = said.chain(changes.new_messages.iter().map(|message| message.thread)).collect();
        unseen.retain(|thread| !self.read_set.threads.contains_key(thread));
        unseen.sort_unstable();
        unseen.dedup();
        let unseen = unseen.iter().map(hash).collect();
        for doc in self.inner.client.run_any(&Query::new(paths::THREADS), "hash", unseen).await? {
            self.read_set.threads.insert(doc.hash("hash")?, doc.id().to_owned());
        }
        Ok(())
    }

    fn save_event(&mut self, event: &EventRec) -> Result<(), StoreError> {
        if event.text.as_ref().is_some_and(|text| text.len() > TEXT_MAX_BYTES) {
            let most = TEXT_MAX_BYTES >> 10;
            return Err(StoreError::Refused(format!(
                "a message's text is longer than {most} KiB, which the Firestore engine does not keep"
            )));
        }
        let thread_doc = event.thread.and_then(|thread| self.read_set.threads.get(&thread).cloned());
        let path = paths::numbered(paths::EVENTS, event.number);
        self.writes.create(self.name(&path), codec::event_fields(event, thread_doc.as_deref()));
        if let Some(carried) = &event.carried {
            self.save_pieces(&path, &carried.body);
        }
        if let Some(thread_doc) = thread_doc {
            let entry = self.entry(&thread_doc, &event.event_id().to_string());
            self.writes.create(entry, codec::entry_of_event(event));
        }
        Ok(())
    }

    /// Tells the documents of messages that came in that they were read: the newest, as far as they were unread.
    async fn mark_read(&mut self, changes: &Changes) -> Result<(), StoreError> {
        for (thread, unread) in changes.marked_read.iter().filter(|(_, unread)| *unread > 0) {
            // Between them may stand what was sent past hapax.
            let most = usize::try_from(*unread).unwrap_or(MARKED_MAX).saturating_mul(2).min(MARKED_MAX);
            let newest = Query::new(paths::EVENTS).equal("thread", hash(thread)).highest_first("number");
            for doc in self.inner.client.run(&newest.only(codec::plain_event()).limit(most)).await? {
                let (event, Some(thread_doc)) = (read::<EventRec>(&doc)?, doc.maybe_text("thread_doc")) else { continue };
                if !event.echo {
                    let read = Fields::default().with("status", text(Status::Read.name()));
                    self.writes.put(self.entry(&thread_doc, &event.event_id().to_string()), read);
                }
            }
        }
        Ok(())
    }

    fn save_pieces(&mut self, of: &str, body: &bytes::Bytes) {
        for (index, piece) in split(body).1.into_iter().enumerate() {
            self.writes.put(self.name(&paths::piece(of, index)), Fields::default().with("bytes", bytes(piece)));
        }
    }

    /// Removes events with all that hangs on them.
    async fn remove_events(&mut self, events: &[u64]) -> Result<(), StoreError> {
        if events.is_empty() {
            return Ok(());
        }
        let client = &self.inner.client;
        let event_paths: Vec<String> = events.iter().map(|event| paths::numbered(paths::EVENTS, *event)).collect();
        let answer_paths: Vec<String> = events.iter().map(|event| paths::numbered(paths::ANSWERS, *event)).collect();
        let found = client.get(&event_paths, Some(codec::plain_event()));
        let answers = client.get(&answer_paths, Some(&["pieces"]));
        let (found, answers, attempts) = try_join3(found, answers, self.attempts_of(Queue::Inbox, events)).await?;
        for doc in &found.docs {
            if let Some(thread_doc) = doc.maybe_text("thread_doc") {
                let entry = self.entry(&thread_doc, &read::<EventRec>(doc)?.event_id().to_string());
                self.writes.delete(entry);
            }
        }
        for doc in found.docs.iter().chain(&answers.docs) {
            let collection = if doc.name.contains(&format!("/{}/", paths::ANSWERS)) { paths::ANSWERS } else { paths::EVENTS };
            let of = format!("{collection}/{}", doc.id());
            for index in 0..doc.maybe_int("pieces").unwrap_or_default().max(0) as usize {
                self.writes.delete(self.name(&paths::piece(&of, index)));
            }
            self.read_set.saw(doc);
            self.writes.delete(doc.name.clone());
        }
        for doc in attempts {
            self.writes.delete(doc.name);
        }
        Ok(())
    }

    /// Takes the words out of events, messages, and what front ends see of them.
    async fn forget_words(&mut self, changes: &Changes) -> Result<(), StoreError> {
        let no_text = || Fields::default().with("text", null());
        let event = |number: u64| paths::numbered(paths::EVENTS, number);
        let answers: Vec<String> = changes.forgotten_events.iter().map(|event| paths::numbered(paths::ANSWERS, *event)).collect();
        let events: Vec<String> = changes.forgotten_bodies.iter().map(|body| event(body.number)).collect();
        let beside = ["thread_doc", "pieces"];
        let (events, answers) =
            try_join(self.inner.client.get(&events, Some(&beside)), self.inner.client.get(&answers, Some(&["pieces"]))).await?;
        for (doc, collection) in
            events.docs.iter().map(|doc| (doc, paths::EVENTS)).chain(answers.docs.iter().map(|doc| (doc, paths::ANSWERS)))
        {
            for index in 0..doc.maybe_int("pieces").unwrap_or_default().max(0) as usize {
                let piece = paths::piece(&format!("{collection}/{}", doc.id()), index);
                self.writes.delete(self.name(&piece));
            }
        }
        for doc in answers.docs {
            self.writes.delete(doc.name);
        }
        for doc in &events.docs {
            let Some(of) = changes.forgotten_bodies.iter().find(|of| doc.name == self.name(&event(of.number))) else { continue };
            let is_asked = changes.forgotten_events.contains(&of.number);
            let mut fields = codec::without_body(of.webhook == of.number);
            if is_asked {
                fields = fields.and(no_text());
            }
            self.writes.update(doc.name.clone(), fields);
            if let Some(thread_doc) = doc.maybe_text("thread_doc").filter(|_| is_asked) {
                self.writes.put(self.entry(&thread_doc, &of.event_id().to_string()), no_text());
            }
        }
        for message in &changes.forgotten_messages {
            let Some(place) = self.read_set.messages.get(&message.number).cloned() else { continue };
            let without = MessageRec { text: None, payload: bytes::Bytes::new(), ..message.clone() };
            let lasting = outbox_doc::lasting_fields(&without, place.thread_doc.as_deref());
            self.writes.update(self.name(&place.path), lasting.clone());
            let request = request_hash(&message.account, &message.request_id);
            let kept = Fields::default().with("kept", map(lasting));
            self.writes.put(self.name(&paths::hashed(paths::REQUESTS, &request)), kept);
            if let Some(thread_doc) = &place.thread_doc {
                self.writes.put(self.entry(thread_doc, &message.message_id().to_string()), no_text());
            }
        }
        Ok(())
    }

    async fn attempts_of(&self, queue: Queue, of: &[u64]) -> Result<Vec<Doc>, StoreError> {
        let attempts = Query::new(paths::ATTEMPTS).equal("queue", int(queue.code().into())).only(&["of"]);
        self.inner.client.run_any(&attempts, "of", of.iter().map(|of| number(*of)).collect()).await
    }

    fn save_items(&mut self, changes: &Changes) {
        let path = |item: u64| paths::numbered(paths::ITEMS, item);
        for item in &changes.new_items {
            self.writes.create(self.name(&path(item.number)), codec::item_fields(item));
        }
        for item in &changes.items {
            self.writes.update(self.name(&path(item.number)), codec::item_fields(item));
        }
        for item in &changes.gone_items {
            self.writes.delete(self.name(&path(*item)));
        }
    }

    async fn save_messages(&mut self, changes: &Changes) -> Result<(), StoreError> {
        self.name_messages(&changes.new_messages).await?;
        self.find_messages(changes).await?;
        let open: HashSet<u64> = changes.new_outs.iter().map(|out| out.number).collect();
        for message in &changes.new_messages {
            let Some(place) = self.read_set.messages.get(&message.number).cloned() else { continue };
            let mut fields = outbox_doc::message_fields(message, place.thread_doc.as_deref()).and(outbox_doc::lease_fields(None));
            if !open.contains(&message.number) {
                fields = fields.and(outbox_doc::closed_fields());
            }
            match &self.adoption {
                Some(_) => self.writes.update(self.name(&place.path), fields),
                None => self.writes.create(self.name(&place.path), fields),
            }
            let request = request_hash(&message.account, &message.request_id);
            let id = place.path.rsplit('/').next().unwrap_or_default();
            let lasting = outbox_doc::lasting_fields(message, place.thread_doc.as_deref());
            let unique =
                Fields::default().with("number", number(message.number)).with("doc", text(id)).with("kept", map(lasting));
            self.writes.create(self.name(&paths::hashed(paths::REQUESTS, &request)), unique);
            if let Some(thread_doc) = &place.thread_doc {
                let entry = self.entry(thread_doc, &message.message_id().to_string());
                let place = if open.contains(&message.number) { Fields::default() } else { outbox_doc::closed_fields() };
                self.writes.create(entry, outbox_doc::entry_of_message(message).and(place));
            }
        }
        for message in &changes.messages {
            let Some(place) = self.read_set.messages.get(&message.number).cloned() else { continue };
            let home = Fields::default().with("home", hash(&message.home));
            self.writes.update(self.name(&place.path), outbox_doc::progress_fields(message).and(home));
            if let Some(thread_doc) = place.thread_doc {
                let entry = self.entry(&thread_doc, &message.message_id().to_string());
                self.writes.put(entry, outbox_doc::progress_fields(message));
            }
        }
        for out in changes.new_outs.iter().chain(&changes.outs) {
            let Some(place) = self.read_set.messages.get(&out.number).cloned() else { continue };
            self.writes.update(self.name(&place.path), outbox_doc::out_fields(out));
            if let Some(thread_doc) = place.thread_doc {
                let entry = self.entry(&thread_doc, &MessageId(ids::numbered(out.created_ms, out.number)).to_string());
                self.writes.put(entry, outbox_doc::out_fields(out));
            }
        }
        for number in &changes.gone_outs {
            let Some(place) = self.read_set.messages.get(number).cloned() else { continue };
            self.writes.update(self.name(&place.path), outbox_doc::closed_fields());
            let message = changes.messages.iter().find(|message| message.number == *number);
            if let (Some(thread_doc), Some(message)) = (place.thread_doc, message) {
                self.writes.put(self.entry(&thread_doc, &message.message_id().to_string()), outbox_doc::closed_fields());
            }
        }
        Ok(())
    }

    /// Finds the documents of messages that enter the outbox and were neither seen nor made: those that an import has made before.
    async fn find_messages(&mut self, changes: &Changes) -> Result<(), StoreError> {
        let numbers = changes.new_outs.iter().map(|out| out.number).filter(|out| !self.read_set.messages.contains_key(out));
        let numbers: Vec<_> = numbers.map(number).collect();
        for doc in self.inner.client.run_any(&Query::new(paths::OUTBOX), "number", numbers).await? {
            self.read_set.saw_message(&doc)?;
        }
        Ok(())
    }

    /// Finds a document for each new message: the best of its names that nobody else has.
    async fn name_messages(&mut self, messages: &[MessageRec]) -> Result<(), StoreError> {
        let mut nameless: Vec<&MessageRec> = messages.iter().collect();
        if let (Some(adoption), Some(message)) = (&self.adoption, messages.first()) {
            self.read_set.times.insert(self.inner.client.name(&adoption.path), Some(adoption.update_time.clone()));
            self.place(message, adoption.path.clone());
            nameless.clear();
        }
        let mut taken: HashSet<String> = HashSet::new();
        for choice in 0..3 {
            let path = |message: &MessageRec| {
                let request = request_hash(&message.account, &message.request_id);
                let [plain, with_account, hashed] = paths::outbox_doc_ids(&message.account, &message.request_id, &request);
                format!("{}/{}", paths::OUTBOX, [plain, with_account, hashed][choice])
            };
            let wanted: Vec<String> = nameless.iter().map(|message| path(message)).collect();
            let there = self.read_set.get(&self.inner.client, &wanted).await?.docs;
            taken.extend(there.into_iter().map(|doc| format!("{}/{}", paths::OUTBOX, doc.id())));
            let mut left = Vec::new();
            for (message, path) in nameless.into_iter().zip(wanted) {
                match taken.insert(path.clone()) {
                    true => self.place(message, path),
                    false => left.push(message),
                }
            }
            nameless = left;
        }
        Ok(())
    }

    fn place(&mut self, message: &MessageRec, path: String) {
        let thread_doc = self.read_set.threads.get(&message.thread).cloned();
        self.read_set.messages.insert(message.number, MessagePlace { path, thread_doc });
    }

    /// Removes messages with all that hangs on them.
    async fn remove_messages(&mut self, messages: &[u64]) -> Result<(), StoreError> {
        if messages.is_empty() {
            return Ok(());
        }
        let numbers = messages.iter().map(|message| number(*message)).collect();
        let found = self.inner.client.run_any(&Query::new(paths::OUTBOX), "number", numbers).await?;
        for doc in &found {
            if let (Some(thread_doc), Some(id)) = (doc.maybe_text("threadId"), doc.maybe_text("messageId")) {
                self.writes.delete(self.entry(&thread_doc, &id));
            }
            if let Ok(message) = read::<MessageRec>(doc) {
                let request = request_hash(&message.account, &message.request_id);
                self.writes.delete(self.name(&paths::hashed(paths::REQUESTS, &request)));
            }
            self.read_set.saw(doc);
            self.writes.delete(doc.name.clone());
        }
        for doc in self.attempts_of(Queue::Outbox, messages).await? {
            self.writes.delete(doc.name);
        }
        Ok(())
    }

    async fn save_lanes(&mut self, changes: &Changes) -> Result<(), StoreError> {
        self.save_leases(changes).await?;
        let held_doc = |lane: &LaneRec, messages: &HashMap<u64, MessagePlace>| {
            let held = lane.held.as_ref().filter(|_| lane.queue == Queue::Outbox)?;
            messages.get(&held.number).map(|place| place.path.clone())
        };
        let name = |lane: &Hash| self.inner.client.name(&paths::hashed(paths::LANES, lane));
        for lane in &changes.new_lanes {
            let fields = codec::lane_fields(lane, held_doc(lane, &self.read_set.messages).as_deref());
            self.writes.create(name(&lane.hash), fields);
        }
        for lane in &changes.lanes {
            let fields = codec::lane_fields(lane, held_doc(lane, &self.read_set.messages).as_deref());
            self.writes.update(name(&lane.hash), fields);
        }
        for lane in &changes.gone_lanes {
            self.writes.delete(name(lane));
        }
        Ok(())
    }

    /// Tells the documents of messages who works on them now, where a front end can see it.
    async fn save_leases(&mut self, changes: &Changes) -> Result<(), StoreError> {
        let mut leases: HashMap<u64, Fields> = HashMap::new();
        let before = |lane: &Hash| self.read_set.lanes.get(lane).filter(|lane| lane.queue == Queue::Outbox);
        let changed = changes.new_lanes.iter().chain(&changes.lanes);
        for lane in changed.clone().map(|lane| &lane.hash).chain(&changes.gone_lanes) {
            let held = before(lane).and_then(|lane| lane.held.as_ref());
            leases.extend(held.map(|held| (held.number, outbox_doc::lease_fields(None))));
        }
        for held in changed.filter(|lane| lane.queue == Queue::Outbox).filter_map(|lane| lane.held.as_ref()) {
            leases.insert(held.number, outbox_doc::lease_fields(Some(held)));
        }
        let known = |number: &u64| Some(self.read_set.messages.get(number)?.path.clone());
        let paths: Vec<(u64, String)> = leases.keys().filter_map(|number| Some((*number, known(number)?))).collect();
        // A document that this transaction has not seen may have been removed by hand, which must not keep the lane from going on.
        let known = |name: &String| self.read_set.times.contains_key(name) || self.writes.has(name);
        let unseen = paths.iter().map(|(_, path)| path).filter(|path| !known(&self.name(path)));
        let got = self.inner.client.get(&unseen.cloned().collect::<Vec<_>>(), Some(&["number"])).await?;
        got.docs.iter().for_each(|doc| self.read_set.saw(doc));
        self.read_set.missed(got.missing);
        for (number, path) in paths {
            let name = self.name(&path);
            let there = self.writes.has(&name) || matches!(self.read_set.times.get(&name), Some(Some(_)));
            if let Some(fields) = leases.remove(&number).filter(|_| there) {
                self.writes.update(name, fields);
            }
        }
        Ok(())
    }
}
