//! hapax as a whole, over real sockets: every test runs on every store.

#[macro_use]
mod rig;

mod bad_input;
mod batches;
mod copies;
mod delivery;
mod proxy;
mod stopping;
mod wire;
