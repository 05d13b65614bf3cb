//! Threads that a person has taken over: while one is paused, what waits in it is given to no bot, however the bot gets its events. The list is one
//! register of the store; whoever leases for a bot leases through [`TakeoverStore`], which hands back what is paused, uncharged.

#[cfg(test)]
mod tests;
mod written;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hapax_domain::ThreadId;
use hapax_domain::limits::REGISTER_MAX_BYTES;
use hapax_store::clock::Clock;
use hapax_store::{InboxLease, LeaseRequest, Moving, Outcome, Promise, Store, StoreError, StoreWrapper, ThreadRow, in_time};
use tokio::time::Instant;

/// The register of the list.
const NAME: &str = "paused_threads";
/// What was paused elsewhere is obeyed here after this time.
const LIST_HOLDS: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(5);
/// Threads that are paused at once.
const PAUSED_MAX: usize = 1_000;
/// Others may change the list at the same time, but hardly this often.
const CHANGE_TRIES: u32 = 20;
/// A paused thread is looked at again after a tenth of the time it has been paused, within these.
const LOOK_AGAIN_MS: (i64, i64) = (1_000, 10_000);
/// So often it is leased anew in one call where what came was paused: other threads do not wait for those.
const ROUNDS: usize = 20;

/// The status that an attempt has in the story when a person, and not the bot, saw to the event.
pub const SEEN_TO_BY_A_PERSON: u16 = 0;

/// What becomes of the events of a paused thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They wait until the thread is handed back.
    Wait,
    /// They are done: the person sees to them.
    Done,
}

impl Mode {
    pub const ALL: [Mode; 2] = [Mode::Wait, Mode::Done];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Wait => "wait",
            Mode::Done => "done",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    pub mode: Mode,
    pub since_ms: i64,
    /// The name of the token.
    pub by: String,
}

/// By the name that a thread had when it was paused.
pub type Pauses = BTreeMap<ThreadId, Pause>;

/// Why a thread could not be paused.
#[derive(Debug, thiserror::Error)]
pub enum NotPaused {
    #[error("{PAUSED_MAX} threads are paused already; hand some back first")]
    Full,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The list, as this process knows it.
pub struct Takeovers {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    held: Mutex<Held>,
    /// Held by the one who asks the store.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct Held {
    read: Option<Instant>,
    pauses: Arc<Pauses>,
}

impl Takeovers {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, held: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    /// What is paused, not older than [`LIST_HOLDS`], or the last that was known while the store is away.
    pub async fn list(&self) -> Result<Arc<Pauses>, StoreError> {
        let held = self.held();
        if held.is_fresh() {
            return Ok(held.pauses);
        }
        let _one_at_a_time = self.asking.lock().await;
        let held = self.held();
        if held.is_fresh() {
            return Ok(held.pauses);
        }
        let begun = Instant::now();
        match in_time("reading what is paused", PATIENCE, self.store.amend(NAME, None, None, None)).await {
            Ok(text) => Ok(self.keep(begun, written::read(text.as_deref()))),
            Err(error) if held.read.is_none() => Err(error),
            Err(_) => Ok(held.pauses),
        }
    }

    /// The pause that holds for whoever goes by this name, whichever of the person's names it was made by. Names may turn out to be one person's
    /// when more than one of them is paused: what is to wait for one of them is not done for another.
    pub async fn of(&self, pauses: &Pauses, name: &ThreadId) -> Result<Option<Pause>, StoreError> {
        let own = pauses.get(name);
        if !pauses.keys().any(|paused| paused.account == name.account && paused != name) {
            return Ok(own.cloned());
        }
        Ok(match in_time("reading a thread", PATIENCE, self.store.person(name)).await? {
            Some(person) => {
                let made = names(&person).filter_map(|name| pauses.get(&name).cloned());
                made.min_by_key(|pause| (pause.mode != Mode::Wait, pause.since_ms))
            }
            None => own.cloned(),
        })
    }

    /// Pauses the thread of a person, or pauses it otherwise than before.
    pub async fn pause(&self, person: &ThreadRow, mode: Mode, by: &str) -> Result<Pause, NotPaused> {
        let pause = Pause { mode, since_ms: self.clock.now_ms(), by: by.to_owned() };
        let fits = |pauses: &Pauses| pauses.len() <= PAUSED_MAX && written::write(pauses).len() <= REGISTER_MAX_BYTES;
        let changed = self.change(|pauses| {
            // Who is paused already is so since then.
            let before = remove(pauses, person).into_iter().map(|before| before.since_ms).min();
            let since_ms = before.unwrap_or(pause.since_ms);
            pauses.insert(person.id.clone(), Pause { since_ms, ..pause.clone() });
            fits(pauses)
        });
        changed.await?.then_some(pause).ok_or(NotPaused::Full)
    }

    /// Hands the thread of a person back; what waits in it is due soon. `None`: it was not paused.
    pub async fn resume(&self, person: &ThreadRow) -> Result<Option<Pause>, StoreError> {
        let mut found = None;
        self.change(|pauses| {
            found = remove(pauses, person).pop().or(found.take());
            true
        })
        .await?;
        Ok(found)
    }

    /// Changes the list as it was seen, and again when somebody was faster. False: what it would have become is not to be kept.
    async fn change(&self, mut with: impl FnMut(&mut Pauses) -> bool) -> Result<bool, StoreError> {
        let mut there = self.store.amend(NAME, None, None, None).await?;
        for _ in 0..CHANGE_TRIES {
            let mut pauses = written::read(there.as_deref());
            if !with(&mut pauses) {
                return Ok(false);
            }
            let new = written::write(&pauses);
            let begun = Instant::now();
            let now = self.store.amend(NAME, there.as_deref(), Some(&new), None).await?;
            if now.as_deref() == Some(new.as_str()) {
                self.keep(begun, pauses);
                return Ok(true);
            }
            there = now;
        }
        Err(StoreError::Busy)
    }

    fn held(&self) -> Held {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes what the store said; what it was asked later is newer.
    fn keep(&self, asked: Instant, pauses: Pauses) -> Arc<Pauses> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.read.is_none_or(|read| read <= asked) {
            *held = Held { read: Some(asked), pauses: Arc::new(pauses) };
        }
        Arc::clone(&held.pauses)
    }

    /// What becomes of a leased item in place of being given to the bot. `None`: it is given.
    async fn instead(&self, lease: &InboxLease) -> Option<Outcome> {
        // As it is now: a thread may have been paused while we leased.
        let pauses = self.held().pauses;
        let first = lease.events.first().filter(|event| event.kind.waits_in_thread())?;
        let thread = first.thread.as_ref()?;
        let pause = match pauses.get(thread) {
            // Whatever else the person goes by, it waits.
            Some(pause) if pause.mode == Mode::Wait => pause.clone(),
            _ => match self.of(&pauses, thread).await {
                Ok(pause) => pause?,
                Err(_) => return Some(Outcome::HandBack { wait_ms: LOOK_AGAIN_MS.0, why: None, called: false }),
            },
        };
        Some(match pause.mode {
            Mode::Done => Outcome::Delivered { status: SEEN_TO_BY_A_PERSON, answer: None, replies: Vec::new() },
            Mode::Wait => {
                let paused_ms = self.clock.now_ms() - pause.since_ms;
                let why = "a person has taken over this thread, so the bot does not get it; `hapax threads resume` hands it back";
                let wait_ms = (paused_ms / 10).clamp(LOOK_AGAIN_MS.0, LOOK_AGAIN_MS.1);
                Outcome::HandBack { wait_ms, why: Some(why.to_owned()), called: false }
            }
        })
    }
}

impl Held {
    fn is_fresh(&self) -> bool {
        self.read.is_some_and(|read| read.elapsed() < LIST_HOLDS)
    }
}

fn names(person: &ThreadRow) -> impl Iterator<Item = ThreadId> {
    let alias = |peer: &String| ThreadId { peer: peer.clone(), account: person.id.account.clone() };
    std::iter::once(person.id.clone()).chain(person.aliases.iter().map(alias))
}

/// Takes out what was paused by any of the names.
fn remove(pauses: &mut Pauses, person: &ThreadRow) -> Vec<Pause> {
    names(person).filter_map(|name| pauses.remove(&name)).collect()
}

/// The store for whoever gives events to bots: it leases nothing of paused threads.
pub struct TakeoverStore {
    store: Arc<dyn Store>,
    takeovers: Arc<Takeovers>,
}

impl TakeoverStore {
    pub fn around(store: &Arc<dyn Store>, takeovers: &Arc<Takeovers>) -> Arc<dyn Store> {
        Arc::new(Self { store: Arc::clone(store), takeovers: Arc::clone(takeovers) })
    }
}

impl StoreWrapper for TakeoverStore {
    async fn reach(&self) -> Result<&dyn Store, StoreError> {
        Ok(&*self.store)
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        self.store.wait()
    }

    fn promise(&self) -> Promise {
        self.store.promise()
    }

    fn limit_outbox(&self, most: usize) {
        self.store.limit_outbox(most);
    }

    fn limit_claims(&self, most: usize) {
        self.store.limit_claims(most);
    }

    fn moving(&self) -> Result<&dyn Moving, StoreError> {
        self.store.moving()
    }

    async fn lease_inbox(&self, mut ask: LeaseRequest) -> Result<Vec<InboxLease>, StoreError> {
        self.takeovers.list().await?;
        let mut given: Vec<InboxLease> = Vec::new();
        for _ in 0..ROUNDS {
            let leases = match self.store.lease_inbox(ask.clone()).await {
                Ok(leases) => leases,
                // What was leased already is held by us.
                Err(_) if !given.is_empty() => break,
                Err(error) => return Err(error),
            };
            let (mut paused, before) = (false, given.len());
            for lease in leases {
                match self.takeovers.instead(&lease).await {
                    None => given.push(lease),
                    Some(outcome) => {
                        paused = true;
                        // What fails here comes again when its lease has run out.
                        let _ = self.store.settle_inbox(lease.lane, lease.fence, outcome).await;
                    }
                }
            }
            if !paused {
                break;
            }
            for (channel, most) in &mut ask.wants {
                *most -= given[before..].iter().filter(|lease| lease.channel == *channel).count().min(*most);
            }
            ask.wants.retain(|(_, most)| *most > 0);
            if ask.wants.is_empty() {
                break;
            }
        }
        Ok(given)
    }
}
