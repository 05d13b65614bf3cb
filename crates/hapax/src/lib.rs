//! hapax for Rust programs: opens the store that an address names.
//!
//! This is the one crate that knows which engines there are. It does not pull in the server.

mod engine;
mod store_url;

pub use engine::{Options, open, open_embedded, open_naive_claim};
pub use store_url::{StoreAddress, StoreUrl};
