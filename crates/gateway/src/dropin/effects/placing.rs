//! From what a bot asks for to a message in the outbox: found in the book first, and only then submitted.

use std::sync::Arc;
use std::time::Duration;

use hapax_domain::run_book::Found;
use hapax_domain::{Draft, EventId, MessageId, Priority, Status, ThreadId, limits};
use hapax_providers::dropin::Effect;
use hapax_providers::settings::Settings;
use hapax_store::clock::Clock;
use hapax_store::{NewMessage, Origin, StoreError, Submitted, ThreadQuery};

use super::super::admission::Served;
use super::super::books::{Asked, End, Entry, ThreadBook};
use super::super::runs::{Belongs, Sending, Sought};
use super::super::uploads::Pieces;
use super::super::written::KeptAnswer;
use super::super::{DropInState, DropIns};
use super::CallerHints;
use crate::telemetry::Telemetry;

/// A message that the caller waits for.
pub(super) struct Placed {
    pub(super) message: MessageId,
    pub(super) call: OpenCall,
    /// What the provider said then, of a message that the store has forgotten since.
    pub(super) said: Option<KeptAnswer>,
}

pub(super) enum NotPlaced {
    Store(StoreError),
    Wrong(String),
    TooLarge,
}

impl From<StoreError> for NotPlaced {
    fn from(error: StoreError) -> Self {
        NotPlaced::Store(error)
    }
}

/// How long a caller waits until the end of its call is written down.
const END_WAIT: Duration = Duration::from_secs(1);

/// Between the tries to write it down: two minutes in all.
const END_PAUSES: [Duration; 24] = [Duration::from_secs(5); 24];

/// A call that stands in a book and whose end is not written down yet. Dropped, its caller is gone.
pub(super) struct OpenCall {
    state: DropInState,
    clock: Arc<dyn Clock>,
    telemetry: Arc<Telemetry>,
    /// Taken when the end is being written.
    entry: Option<Entry>,
    message: Option<MessageId>,
    sending: Option<Sending>,
}

impl OpenCall {
    /// In a task of its own, which outlives the caller; waited for as long as a store takes that is there.
    pub(super) async fn end(mut self, end: End) {
        if let Some(writing) = self.writing(end) {
            let _ = tokio::time::timeout(END_WAIT, tokio::spawn(writing)).await;
        }
    }

    fn is_of_an_earlier_run(&self) -> bool {
        matches!(self.entry, Some(Entry::Run { earlier: true, .. }))
    }

    pub(super) fn end_soon(mut self, end: End) {
        self.write_soon(end);
    }

    /// A process that ends writes nothing more; the next one finds that nobody waits any more.
    fn write_soon(&mut self, end: End) {
        if let (Some(writing), Ok(runtime)) = (self.writing(end), tokio::runtime::Handle::try_current()) {
            runtime.spawn(writing);
        }
    }

    /// Writes the end down; nothing when that is done or under way.
    fn writing(&mut self, end: End) -> Option<impl Future<Output = ()> + Send + 'static> {
        let (entry, message, sending) = (self.entry.take()?, self.message, self.sending.take());
        let (state, clock, telemetry) = (self.state.clone(), Arc::clone(&self.clock), Arc::clone(&self.telemetry));
        Some(async move {
            // An end that is not written down would make another message of a caller that comes back.
            for pause in END_PAUSES {
                match state.books.end(&entry, end, message, clock.now_ms()).await {
                    Ok(()) => break,
                    Err(error) => telemetry.store_unavailable("amend", &error),
                }
                tokio::time::sleep(pause).await;
            }
            drop(sending);
        })
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.write_soon(End::Left { wait_ms: 0 });
    }
}

impl DropIns {
    pub(super) async fn place(
        self: Arc<Self>,
        served: Arc<Served>,
        effect: Effect,
        said: CallerHints,
        pieces: Option<Pieces>,
    ) -> Result<Placed, NotPlaced> {
        if effect.payload.len() > limits::MESSAGE_MAX_BYTES {
            return Err(NotPlaced::TooLarge);
        }
        let account = self.account_of(&served, &effect).await?;
        let thread = ThreadId { account, peer: effect.peer.clone() };
        let (entry, sending, event) = self.enter(&served, &effect, &thread, &said).await?;
        if let Some((message, said)) = self.said_long_ago(&entry).await? {
            let mut call = self.open(entry, sending);
            call.message = Some(message);
            return Ok(Placed { message, call, said: Some(said) });
        }
        let (mut call, mut submitted, named) = self.submit(&served, &effect, &thread, (entry, sending, event)).await?;
        // What an earlier run was refused has had no effect: it is asked for anew, whatever its words.
        if call.is_of_an_earlier_run() && self.has_failed(submitted).await? {
            call.message = Some(submitted.message());
            call.end(End::Refused).await;
            let entered = self.enter(&served, &effect, &thread, &said).await?;
            (call, submitted, _) = self.submit(&served, &effect, &thread, entered).await?;
        }
        if named && matches!(submitted, Submitted::Mismatch(_)) {
            return Err(NotPlaced::Wrong("this Idempotency-Key was used for another content, or goes elsewhere".to_owned()));
        }
        // Other words, or the same in another spelling, under a derived id are the message that has the id.
        let message = submitted.message();
        call.message = Some(message);
        if let (Submitted::New(_), Some(mut pieces)) = (submitted, pieces) {
            pieces.belong_to_a_message();
        }
        Ok(Placed { message, call, said: None })
    }

    fn open(&self, entry: Entry, sending: Option<Sending>) -> OpenCall {
        let (state, clock, telemetry) = (self.state.clone(), Arc::clone(&self.clock), Arc::clone(&self.telemetry));
        OpenCall { state, clock, telemetry, entry: Some(entry), message: None, sending }
    }

    /// Puts a send into the outbox unless it is there already. True: its caller has named it.
    async fn submit(
        &self,
        served: &Served,
        effect: &Effect,
        thread: &ThreadId,
        (entry, sending, event): (Entry, Option<Sending>, Option<EventId>),
    ) -> Result<(OpenCall, Submitted, bool), NotPlaced> {
        let named = matches!(entry, Entry::Named(_));
        let message = new_message(served, effect, thread, entry.request_id(), event)?;
        Ok((self.open(entry, sending), self.store.submit(message).await?, named))
    }

    /// What an earlier run was answered, when its message is not there any more: the item was parked for longer than messages are kept.
    async fn said_long_ago(&self, entry: &Entry) -> Result<Option<(MessageId, KeptAnswer)>, StoreError> {
        let Entry::Run { earlier: true, known: Some(message), .. } = entry else { return Ok(None) };
        if self.store.message(*message).await?.is_some() {
            return Ok(None);
        }
        Ok(self.kept_answer(*message).await?.map(|said| (*message, said)))
    }

    async fn has_failed(&self, submitted: Submitted) -> Result<bool, StoreError> {
        let row = match submitted {
            Submitted::New(_) => None,
            Submitted::Replayed(id) | Submitted::Mismatch(id) => self.store.message(id).await?,
        };
        Ok(row.is_some_and(|row| row.steps.status() == Status::Failed))
    }

    /// Finds out which send it is, and writes that down.
    async fn enter(
        &self,
        served: &Served,
        effect: &Effect,
        thread: &ThreadId,
        said: &CallerHints,
    ) -> Result<(Entry, Option<Sending>, Option<EventId>), StoreError> {
        let channel = served.channel.name();
        let polled = self.polled(served);
        let sought = Sought { channel, thread: thread.clone(), event: said.event, attempt: said.attempt, polled };
        let belongs = self.state.runs.find(&*self.store, &sought).await?;
        let event = belongs.map(|belongs| belongs.event);
        let sending = belongs.map(|belongs| self.state.runs.sends(belongs.item));
        if let Some(key) = &said.key {
            served.telemetry.sent(false);
            return Ok((Entry::Named(key.clone()), sending, event));
        }
        let (text, content, now_ms) = (effect.text.as_deref(), effect.content, self.clock.now_ms());
        let asked = Asked { method: &effect.method, peer: &effect.peer, content, text };
        let in_thread = ThreadBook { name: plain_name(channel, thread), method: effect.method.clone(), content };
        if let Some(belongs @ Belongs { event, .. }) = belongs {
            let rule = (served.settings.replay, served.channel.settings.retention_ms);
            let entered = self.state.books.enter_run(&belongs, &asked, rule, in_thread.clone(), now_ms).await?;
            if let Some((entry, found)) = entered {
                match found {
                    Found::Reworded(_) => served.telemetry.reworded(event, &effect.method),
                    found => served.telemetry.sent(matches!(found, Found::Same(_))),
                }
                return Ok((entry, sending, Some(event)));
            }
            served.telemetry.book_full(event);
        } else if let Some((item, event)) = self.state.runs.answered_early(channel, thread) {
            served.telemetry.answered_early(event);
            self.state.books.answered_early(item, served.channel.settings.retention_ms).await?;
        }
        let (entry, again) = self.state.books.enter_plain(in_thread, rand::random(), now_ms).await?;
        served.telemetry.sent(again);
        Ok((entry, sending, event))
    }

    /// Who sends, where the call does not say: the channel's only one.
    async fn account_of(&self, served: &Served, effect: &Effect) -> Result<String, NotPlaced> {
        if let Some(account) = &effect.account {
            return Ok(account.clone());
        }
        if let Settings::Telegram { bot, .. } = &served.channel.settings.provider {
            return Ok(bot.clone());
        }
        let query =
            ThreadQuery { channel: Some(served.channel.name().to_string()), limit: limits::PAGE_MAX, ..ThreadQuery::default() };
        let threads = self.store.threads(query).await?;
        let first = threads.rows.first().map(|row| row.id.account.clone());
        let only = first.filter(|account| !threads.more && threads.rows.iter().all(|row| row.id.account == *account));
        only.ok_or_else(|| NotPlaced::Wrong("say which account sends: hapax has heard of none, or of several".to_owned()))
    }
}

fn new_message(
    served: &Served,
    effect: &Effect,
    thread: &ThreadId,
    request_id: String,
    event: Option<EventId>,
) -> Result<NewMessage, NotPlaced> {
    let ThreadId { account, peer } = thread.clone();
    let payload = String::from_utf8(effect.payload.to_vec()).map_err(|_| NotPlaced::Wrong("it is no text".to_owned()))?;
    let draft = Draft { to: Some(peer.clone()), payload, send_at: None };
    let fingerprint = fingerprint(served.channel.name(), &account, &peer, effect);
    let origin = Origin { channel: Arc::clone(served.channel.name()), account };
    let message = NewMessage::new(origin, peer, draft, effect.text.clone(), request_id);
    let priority = if event.is_some() { Priority::Reply } else { Priority::Normal };
    Ok(NewMessage { fingerprint, priority, reply_to: event, ..message })
}

/// Of what is sent, however it was spelt: the names of kept bodies and of parts are drawn anew each time.
fn fingerprint(channel: &str, account: &str, peer: &str, effect: &Effect) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for part in [channel, account, peer, &effect.method] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    *hasher.update(&effect.content).finalize().as_bytes()
}

/// Names may be longer than a register's.
fn plain_name(channel: &str, thread: &ThreadId) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(thread.account.len() as u64).to_le_bytes()).update(thread.account.as_bytes()).update(thread.peer.as_bytes());
    format!("plain/{channel}/{}", hasher.finalize().to_hex())
}
