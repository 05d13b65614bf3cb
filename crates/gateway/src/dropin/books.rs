//! The books of runs and of threads, in the store's registers: changed by compare and swap, so that calls which reach several instances meet.

use std::sync::Arc;
use std::time::Duration;

use hapax_domain::run_book::{Arriving, Found, State, short_name};
use hapax_domain::{ItemId, MessageId, PlainBook, Replay, RunBook, ThreadId};
use hapax_store::{Store, StoreError, in_time};
use tokio::sync::Mutex;

use super::runs::Belongs;
use super::written::{FailedRun, PARKED_KEEP_MS, REQUEST_ID, Written, answer_name, failed_name, run_name};

/// How much of a text a book shows.
pub(super) const TEXT_CHARS: usize = 60;

/// Before other words are taken for the first ones, and before a caller that waits elsewhere is taken for gone: what was made at the same
/// time finds its own meanwhile.
const SECOND_LOOK: Duration = Duration::from_millis(300);

/// An equal call that waits here may be one whose caller has just hung up, and the new one the same again: its end is waited for so long.
/// Two callers that say the same at once pay for it with this time.
const HANG_UP_LOOKS: [Duration; 5] = [Duration::from_millis(100); 5];

/// How long the store may take over a book at the end of a run.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a handler whose run has failed is known by all instances.
const FAILED_KEEP_MS: i64 = 300_000;

/// A thread's book of plain sends is kept this long after its last change.
const PLAIN_KEEP_MS: i64 = 900_000;

/// Calls of one process for the same book wait for each other; books share these locks.
const LOCKS: usize = 64;

pub struct Books {
    store: Arc<dyn Store>,
    /// Tells this process from one that is gone, and from its other instances.
    process: u64,
    locks: Vec<Mutex<()>>,
}

/// What a send is, before it is a message.
pub(super) struct Asked<'a> {
    pub(super) method: &'a str,
    pub(super) peer: &'a str,
    pub(super) content: [u8; 16],
    pub(super) text: Option<&'a str>,
}

/// Where a call stands in a book, and the request id that follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Run {
        item: ItemId,
        at: usize,
        run: u32,
        keep_ms: i64,
        /// It was made by an earlier run first.
        earlier: bool,
        /// The message that it was then.
        known: Option<MessageId>,
        /// Where it stands when its caller has left.
        thread: ThreadBook,
    },
    Plain {
        request: String,
        thread: ThreadBook,
    },
    /// The caller has named it himself.
    Named(String),
}

/// The book of a thread, and what a call is known by there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ThreadBook {
    pub(super) name: String,
    pub(super) method: String,
    pub(super) content: [u8; 16],
}

impl Entry {
    pub(super) fn request_id(&self) -> String {
        match self {
            Entry::Run { item, at, .. } => format!("{REQUEST_ID}{item}/{at}"),
            Entry::Plain { request, .. } => request.clone(),
            Entry::Named(name) => format!("{REQUEST_ID}key/{name}"),
        }
    }
}

/// The item whose run has made this request id.
fn item_of(request: &str) -> Option<ItemId> {
    request.strip_prefix(REQUEST_ID)?.split_once('/')?.0.parse().ok()
}

/// How a call ended for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sent,
    Refused,
    /// Told to come back after so long, or gone.
    Left {
        wait_ms: i64,
    },
}

impl Books {
    pub fn new(store: Arc<dyn Store>, process: u64) -> Self {
        Self { store, process, locks: (0..LOCKS).map(|_| Mutex::default()).collect() }
    }

    /// Decides which send of an item this is, durably. `None`: the book is full.
    ///
    /// One that was left unanswered in the thread, when it belonged to no event, is that one still.
    pub(super) async fn enter_run(
        &self,
        belongs: &Belongs,
        asked: &Asked<'_>,
        (replay, keep_ms): (Replay, i64),
        thread: ThreadBook,
        now_ms: i64,
    ) -> Result<Option<(Entry, Found)>, StoreError> {
        let (text, Belongs { item, run, late, .. }) = (asked.text.map(short), *belongs);
        let call = Arriving {
            run,
            process: self.process,
            method: asked.method,
            // A late one has no place in the order of the handler's sends: nothing is taken for it but the same words.
            to: if late { RunBook::NO_PLACE } else { short_name(asked.peer) },
            content: asked.content,
            text: text.as_deref(),
        };
        let name = run_name(item);
        let seen: RunBook = self.look(&name).await?.unwrap_or_default();
        if self.is_worth_a_second_look(&seen, &call, replay) {
            tokio::time::sleep(SECOND_LOOK).await;
        }
        if let Found::New(at) = seen.find(&call, replay)
            && let Some(request) = self.take_up_left(item, &thread, now_ms).await?
        {
            return Ok(Some((Entry::Plain { request, thread }, Found::Same(at))));
        }
        let enter = |book: &mut RunBook| {
            let found = book.find(&call, replay);
            let before = book.calls.get(found.place());
            let (earlier, known) = (before.is_some_and(|before| before.run < run), before.and_then(|before| before.message));
            book.enter(&call, replay).map(|found| (found, earlier, known))
        };
        let entered = self.change_when_free(&name, keep_ms, |book| book.waits_here(&call), enter).await?;
        let entry = |found: Found, earlier, known| Entry::Run { item, at: found.place(), run, keep_ms, earlier, known, thread };
        Ok(entered.map(|(found, earlier, known)| (entry(found, earlier, known), found)))
    }

    /// Takes up an equal call to the thread whose caller is gone, if there is one that no run of another item has left: the next event's "Menu" is
    /// said anew.
    async fn take_up_left(&self, item: ItemId, thread: &ThreadBook, now_ms: i64) -> Result<Option<String>, StoreError> {
        let ThreadBook { name, method, content } = thread;
        let may = |request: &str| item_of(request).is_none_or(|left_by| left_by == item);
        let take_up = |book: &mut PlainBook| book.take_up(method, *content, self.process, may, now_ms);
        match take_up(&mut self.look(name).await?.unwrap_or_default()) {
            Some(_) => self.change(name, PLAIN_KEEP_MS, take_up).await,
            None => Ok(None),
        }
    }

    /// Two sends at once: that of the same words may be a moment behind. A caller elsewhere: it may just have been answered.
    fn is_worth_a_second_look(&self, book: &RunBook, call: &Arriving<'_>, replay: Replay) -> bool {
        match book.find(call, replay) {
            Found::New(_) => false,
            Found::Reworded(_) => true,
            Found::Same(at) => {
                let known = &book.calls[at];
                known.run == call.run && matches!(known.state, State::Open(process) if process != self.process)
            }
        }
    }

    /// The same for a send that belongs to no event.
    pub(super) async fn enter_plain(&self, thread: ThreadBook, key: u64, now_ms: i64) -> Result<(Entry, bool), StoreError> {
        let fresh = format!("{REQUEST_ID}plain/{key:016x}");
        let ThreadBook { name, method, content } = &thread;
        let waits = |book: &PlainBook| book.waits_here(method, *content, self.process);
        let enter = |book: &mut PlainBook| book.enter(method, *content, self.process, &fresh, now_ms);
        let request = self.change_when_free(name, PLAIN_KEEP_MS, waits, enter).await?;
        let again = request != fresh;
        Ok((Entry::Plain { request, thread }, again))
    }

    /// Writes down how a call ended.
    pub(super) async fn end(&self, entry: &Entry, end: End, message: Option<MessageId>, now_ms: i64) -> Result<(), StoreError> {
        let thread = match entry {
            Entry::Run { item, at, run, keep_ms, thread, .. } => {
                let state = match end {
                    End::Sent => State::Sent,
                    End::Refused => State::Refused,
                    End::Left { .. } => State::Over,
                };
                let again = |book: &RunBook| book.calls.get(*at).is_some_and(|call| call.again > 0);
                let change = |book: &mut RunBook| (book.end(*at, *run, state, message), again(book)).1;
                let again = self.change(&run_name(*item), *keep_ms, change).await?;
                // What was never left stands in no other book.
                if !again && !matches!(end, End::Left { .. }) {
                    return Ok(());
                }
                thread
            }
            Entry::Plain { thread, .. } => thread,
            Entry::Named(_) => return Ok(()),
        };
        let (request, ThreadBook { name, method, content }) = (entry.request_id(), thread);
        let change = |book: &mut PlainBook| match end {
            End::Sent | End::Refused => book.answered(&request),
            End::Left { wait_ms } => book.left(method, *content, &request, wait_ms, now_ms),
        };
        self.change(name, PLAIN_KEEP_MS, change).await
    }

    /// The bot itself ended a run with a failure. Where nothing was sent there is no book, and nothing to write.
    pub async fn fail_run(&self, item: ItemId, run: u32, keep_ms: i64) -> Result<(), StoreError> {
        let name = run_name(item);
        let writing = async {
            match self.look::<RunBook>(&name).await? {
                Some(_) => self.change(&name, keep_ms, |book: &mut RunBook| book.fail_run(run)).await,
                None => Ok(()),
            }
        };
        in_time("ending a run", PATIENCE, writing).await
    }

    /// An item is about to be parked: what it has sent is to be known as long as it may come again.
    pub async fn park(&self, item: ItemId, keep_ms: i64) -> Result<(), StoreError> {
        let name = run_name(item);
        let writing = async {
            let Some(book) = self.look::<RunBook>(&name).await? else { return Ok(()) };
            self.change(&name, keep_ms, |book: &mut RunBook| book.parked = true).await?;
            for message in book.calls.iter().filter_map(|call| call.message) {
                let name = answer_name(message);
                if let Some(answer) = self.store.amend(&name, None, None, None).await? {
                    self.store.amend(&name, Some(&answer), Some(&answer), Some(PARKED_KEEP_MS)).await?;
                }
            }
            Ok(())
        };
        in_time("keeping the sends of what is parked", PATIENCE, writing).await
    }

    /// A run of a thread has failed: for a while its handler may go on, and call any instance.
    pub(super) async fn note_failed(&self, channel: &str, thread: &ThreadId, failed: &FailedRun) -> Result<(), StoreError> {
        let (name, new) = (failed_name(channel, thread), failed.write());
        let writing = async {
            let mut there = self.store.amend(&name, None, None, None).await?;
            while there.as_deref() != Some(new.as_str()) {
                there = self.store.amend(&name, there.as_deref(), Some(&new), Some(FAILED_KEEP_MS)).await?;
            }
            Ok(())
        };
        in_time("noting a failed run", PATIENCE, writing).await
    }

    /// A handler that was not answered, and ended, is run once more. False: that was done before.
    pub(super) async fn redo(&self, item: ItemId, run: u32, keep_ms: i64) -> Result<bool, StoreError> {
        self.change(&run_name(item), keep_ms, |book: &mut RunBook| book.redo(run)).await
    }

    /// The bot answered 2xx before its first send.
    pub(super) async fn answered_early(&self, item: ItemId, keep_ms: i64) -> Result<(), StoreError> {
        self.change(&run_name(item), keep_ms, |book: &mut RunBook| book.answered_early = true).await
    }

    /// The book of an item; `None`: its handler sent nothing.
    pub async fn of_item(&self, item: ItemId) -> Result<Option<RunBook>, StoreError> {
        self.look(&run_name(item)).await
    }

    pub(super) async fn look<B: Written>(&self, name: &str) -> Result<Option<B>, StoreError> {
        self.store.amend(name, None, None, None).await?.map(|text| read(&text)).transpose()
    }

    /// What this process is known by.
    pub(super) fn process(&self) -> u64 {
        self.process
    }

    /// Changes a book when nobody is in it any more of whom `waits` speaks, or has been waited for.
    async fn change_when_free<B: Written, T>(
        &self,
        name: &str,
        keep_ms: i64,
        waits: impl Fn(&B) -> bool,
        mut by: impl FnMut(&mut B) -> T,
    ) -> Result<T, StoreError> {
        for pause in HANG_UP_LOOKS {
            let free = |book: &mut B| (!waits(book)).then(|| by(book));
            if let Some(decided) = self.change(name, keep_ms, free).await? {
                return Ok(decided);
            }
            tokio::time::sleep(pause).await;
        }
        self.change(name, keep_ms, by).await
    }

    /// Changes a book as it is now, however many others change it too.
    pub(super) async fn change<B: Written, T>(
        &self,
        name: &str,
        keep_ms: i64,
        mut by: impl FnMut(&mut B) -> T,
    ) -> Result<T, StoreError> {
        // Two equal calls of one process would write the same, and each would believe that it was the one.
        let lock = blake3::hash(name.as_bytes()).as_bytes()[0] as usize % LOCKS;
        let _one_at_a_time = self.locks[lock].lock().await;
        let mut there = self.store.amend(name, None, None, None).await?;
        loop {
            let mut book = there.as_deref().map_or_else(|| Ok(B::default()), read)?;
            let decided = by(&mut book);
            let new = (!book.is_empty()).then(|| book.write());
            if new == there {
                return Ok(decided);
            }
            let after = self.store.amend(name, there.as_deref(), new.as_deref(), Some(book.keep_ms(keep_ms))).await?;
            if after == new {
                return Ok(decided);
            }
            there = after;
        }
    }
}

fn read<B: Written>(text: &str) -> Result<B, StoreError> {
    B::read(text).ok_or_else(|| StoreError::Refused("a book of sends was written by another version of hapax".to_owned()))
}

fn short(text: &str) -> String {
    text.chars().map(|sign| if sign.is_control() { ' ' } else { sign }).take(TEXT_CHARS).collect()
}
