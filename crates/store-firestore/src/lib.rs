//! `firestore:` Google's documents, for any number of instances and nothing to run.
//!
//! Every step is one `:commit`: new documents must not be there yet, changed ones must be as they were seen. Nobody ever waits for a
//! lock; whoever was slower sees that something changed, and the step runs again. What front ends listen to (`processed_messages`,
//! `threads`, `outbox`) and what is internal (`hapax_…`) is described in `docs/firestore.md`.

mod address;
mod claims;
mod client;
mod query;
mod value;

mod codec;
mod gate;
mod numbers;
mod outbox_doc;
mod paths;

mod load;
mod mend;
mod read_set;
mod save;
mod tx;
mod writes;

mod adopt;
mod document;
mod dump;
mod lists;
mod naive_claim;
mod outbox_request;
mod pieces;
mod registers;
mod upkeep;

mod engine;

use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

use address::Address;
use adopt::Adoption;
use client::Client;
use gate::Gates;
use hapax_store::clock::Clock;
use hapax_store::steps::ServerStore;
use hapax_store::{Spelling, StoreError};
use numbers::Numbers;

pub use naive_claim::naive_claim;
pub use tx::FirestoreTx;

/// The layout of the documents. A database that a newer hapax has written is refused.
const SCHEMA: i64 = 2;

/// A Firestore database, seen as records.
#[derive(Clone)]
pub struct FirestoreEngine {
    inner: Arc<Inner>,
    /// Set while the one message that is submitted is made from a front end's document.
    adoption: Option<Arc<Adoption>>,
}

struct Inner {
    client: Client,
    /// In place of the server's clock, for tests.
    clock: Option<Arc<dyn Clock>>,
    numbers: Numbers,
    work: Arc<Notify>,
    gates: Gates,
    emulated: bool,
    /// How providers spell whom a message is for.
    spelling: OnceLock<Spelling>,
    /// Names this instance's proof of life.
    instance: u64,
}

/// Opens `firestore://PROJECT[/DATABASE][?emulator=HOST:PORT]`. With a clock, time is that clock's and not the server's.
pub async fn open(address: &str, clock: Option<Arc<dyn Clock>>) -> Result<ServerStore<FirestoreEngine>, StoreError> {
    ServerStore::open(open_engine(address, clock).await?).await
}

/// Opens it like [`open`], and takes over the messages that front ends write into it, from now on, for whom `spelling` says they are.
pub async fn open_adopting(address: &str, spelling: Spelling) -> Result<ServerStore<FirestoreEngine>, StoreError> {
    let store = open(address, None).await?;
    store.engine().adopt_as(spelling);
    Ok(store)
}

pub async fn open_engine(address: &str, clock: Option<Arc<dyn Clock>>) -> Result<Arc<FirestoreEngine>, StoreError> {
    let address = Address::read(address, std::env::var("FIRESTORE_EMULATOR_HOST").ok())?;
    let instance: u64 = rand::random();
    let inner = Inner {
        client: Client::open(&address).await?,
        clock,
        numbers: Numbers::new(instance),
        work: Arc::default(),
        gates: Gates::default(),
        emulated: address.emulator.is_some(),
        spelling: OnceLock::new(),
        instance,
    };
    let engine = FirestoreEngine { inner: Arc::new(inner), adoption: None };
    engine.check_schema().await?;
    Ok(Arc::new(engine))
}

impl FirestoreEngine {
    /// Makes messages of what front ends write by themselves, like those that were submitted. The first word counts: nobody tells twice.
    pub fn adopt_as(&self, spelling: Spelling) {
        if self.inner.spelling.set(spelling).is_ok() {
            tokio::spawn(adopt::keep_adopting(Arc::downgrade(&self.inner)));
        }
    }

    fn on(inner: &Arc<Inner>) -> Self {
        Self { inner: Arc::clone(inner), adoption: None }
    }
}
