//! The contract's steps, decided once for every engine that keeps records on a server.
//!
//! A server engine ([`Engine`], [`Tx`]) only loads, locks and saves [`records`]; what they mean is decided here, in plain Rust, the same for
//! PostgreSQL, MySQL and Firestore. A step loads what it needs under locks, decides, saves, commits; when another instance was in the way
//! it runs again from the start.

mod ahead;
pub mod engine;
pub mod record;
pub mod records;

mod work;

mod alone;
mod lanes;
mod names;
mod threads;

mod accept;
mod claims;
mod lease;
mod provider_feedback;
mod settle;

mod outbox;
mod submit;

mod admin;
mod forget;
mod purge;

mod moving;
mod upgrade;

mod reads;
mod room;
mod run;
mod store;

pub use ahead::{Ahead, RecentCopies};
pub use engine::{Changes, Due, Engine, Entry, First, FirstKey, Loaded, Pool, Tx, TxError, Wanted};
pub use store::ServerStore;
pub use upgrade::{ONE_LANE_SINCE, UPGRADING};

pub use submit::{rejoin, submit};
