//! Connections and who brings them: the accept loop with its timeouts, the shares of strangers, and whose word about an address counts.

pub mod accept_loop;
pub mod alarm;
pub mod client;
pub(crate) mod patience;
pub mod peer;
pub mod places;
pub(crate) mod seldom;
