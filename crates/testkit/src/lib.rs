//! What tests are made of: a clock to turn by hand, the suites, the other side of the wire.

pub mod cutting_proxy;
pub mod fake_bot;
pub mod fake_provider;
pub mod gated_bot;
pub mod hand_clock;
pub mod plain_records;
#[cfg(target_os = "linux")]
pub mod power;
pub mod process;
#[cfg(test)]
mod provider_suite;
pub mod server_fixtures;
pub mod servers;
pub mod store_compare;
pub mod store_fixture;
pub mod store_suite;
pub mod witness;

/// The size of a test that is long by nature: `full` in `make soak`, which sets `HAPAX_SOAK`, and `short` in `make test`.
pub fn effort(short: usize, full: usize) -> usize {
    if std::env::var_os("HAPAX_SOAK").is_some() { full } else { short }
}
