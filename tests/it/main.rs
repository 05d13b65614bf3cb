//! hapax as a whole, over real sockets. What is written with `on_every_store!` runs on `memory:` and `sqlite:`; the files named after a
//! server, and those that start several instances, run on the real servers, or skip themselves where there are none.

#[macro_use]
mod rig;

mod acceptance;
mod backups;
mod bad_input;
mod batches;
mod being_told;
mod browser;
mod bulk_pages;
mod chat_pages;
mod claims;
mod clocks;
mod commands;
mod conversation;
mod copies;
mod crash;
mod crowds;
mod deferred;
mod delivery;
mod demo;
mod described;
mod dist;
mod doors;
mod dropin;
mod evolution;
mod examples;
mod faulty;
mod few_rows;
mod firestore_store;
mod first_minutes;
mod forgetting;
mod full_outbox;
mod history;
mod joined_lanes;
mod libraries;
mod moving;
mod mysql_store;
mod new_channel;
mod observed;
mod old_leases;
mod one_person;
mod outage;
mod own_words;
mod packages;
mod page_sizes;
mod phones;
mod postgres_store;
#[cfg(target_os = "linux")]
mod power;
mod program;
mod proxy;
mod pulling;
mod python;
mod redis_cluster;
mod redis_door;
mod redis_store;
mod reloading;
mod replays;
mod replies;
mod restart;
mod seen_before;
mod sending;
mod server_away;
mod servers;
mod sessions;
mod several;
mod shadow;
mod socket_activation;
mod spool_windows;
mod stopping;
mod store_trouble;
mod stores;
mod takeover;
mod target_access;
mod target_login;
mod targets;
mod troubles;
mod turns;
mod typing;
mod unreachable;
mod upgrade;
mod why;
mod wire;
mod without_id;

/// A new folder for tests that care about logic, not about power cuts: in memory where the system offers that.
fn quick_folder() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("hapax-").tempdir_in(parent).expect("a folder for the test")
}
