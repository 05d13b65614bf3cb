//! Run a job once, whatever the number of callers, retries and crashes.
//!
//! A key names the job. The first caller claims it and runs the job; everybody else gets the stored result, waits, or is told
//! that it is under way. The claims are kept in an embedded file or in a database that any number of processes share:
//!
//! ```
//! # async fn charge() -> Result<String, std::io::Error> { Ok("receipt 1".to_owned()) }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = hapax::open("memory:").await?;
//! let receipt: String = store.once("order-4711", || async { charge().await }).await?;
//! // Once more, here or in another process: the job does not run, its result comes from the store.
//! let again: String = store.once("order-4711", || async { charge().await }).await?;
//! assert_eq!(receipt, again);
//! # Ok(()) }
//! ```
//!
//! # What becomes of a claim
//!
//! | the job | the claim |
//! |---|---|
//! | returns `Ok` | is *completed*: its result is replayed for the [`ttl`](ClaimStore::ttl) |
//! | returns `Err` | is *released*: the next caller runs the job |
//! | panics, is cancelled, or its process dies | is *abandoned* when its [`lease`](ClaimStore::lease) ends |
//!
//! While the job runs the lease is extended in the background, so it may take longer than its lease. An abandoned claim is
//! taken over by the next caller, with a higher [`fence`](Guard::fence); with [`OnAbandoned::Hold`] it is not, until a person
//! has released it: whether a payment was made before the crash nobody knows, so it must not be made again by itself.
//!
//! # What it does not do
//!
//! A job that crashed half way runs again from its beginning. Give its key to whatever it calls, if that takes one. A process
//! that is paused for longer than its lease (a suspended machine) may still be at work when another has taken over: store the
//! fence with your own writes and refuse lower ones.
//!
//! # Stores
//!
//! | address | cargo feature |
//! |---|---|
//! | `memory:` | always; for tests |
//! | `sqlite:hapax.db` | `sqlite`, on by default; one process owns the file |
//! | `postgres://…`, `mysql://…`, `redis://…`, `firestore://…` | `postgres`, `mysql`, `redis`, `firestore` |
//!
//! A hapax server on the same database sees the same claims (`hapax claims`, `/v1/claims`).
//!
//! The feature `tower` has [`IdempotencyLayer`], which does this for HTTP handlers and the `Idempotency-Key` header.
#![warn(missing_docs)]

mod claim_store;
mod engine;
mod error;
mod guard;
#[cfg(feature = "tower")]
mod idempotency;
mod store_url;

pub use claim_store::{ClaimStore, Claimed, Completed, Ran, open};
pub use engine::{Options, open_adopting, open_embedded, open_naive_claim, open_store, read_keys, read_rows};
#[cfg(feature = "sqlite")]
pub use engine::{is_empty, look_into_backup, restore};
pub use error::{Error, OnceError};
pub use guard::Guard;
pub use hapax_domain::claim::OnAbandoned;
pub use hapax_store::StoreError;
#[cfg(feature = "tower")]
pub use idempotency::{Body as IdempotencyBody, Idempotency, IdempotencyLayer};
pub use store_url::{StoreAddress, StoreUrl};
