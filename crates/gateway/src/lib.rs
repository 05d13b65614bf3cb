//! The gateway: webhooks in, deliveries to the bot, sends to the provider, the admin API and its pages.
//!
//! The way of one webhook, and of this code:
//!
//! ```text
//!  provider ──POST /in/{channel}──▶ ingress ─ verify ─ parse ─▶ store.accept ─▶ 200
//!                                      (raw bytes) (sans-I/O)   one commit: claim + event + thread/status + lane
//!                                                                   │ wake
//!  bot ◀──POST target (original shape, re-signed)── delivery ◀── store.lease_inbox
//!   │ 2xx + replies                                    └──────▶ store.settle_inbox  one commit: done + replies in the outbox
//!   │ or: POST /v1/messages ──▶ store.submit                        │ wake
//!   ▼                                                               ▼
//!  provider ◀──send API── sender ◀── store.lease_outbox, store.begin (from here a crash means "unknown")
//!                           └──────▶ store.settle_outbox  sent | retry | failed | unknown
//!  provider ──status webhook──▶ accept ──▶ message status (only forward), sends in doubt settled
//! ```

pub mod settings;

pub mod channels;

pub mod connections;

pub mod ingress;

pub mod worker;

pub mod http_client;

pub mod typing;

pub mod takeover;

pub mod delivery;

pub mod sender;

pub mod dropin;

pub mod backups;

pub mod api;

pub mod web;

pub mod resp;

pub mod telemetry;

pub mod server;

pub mod shadow;
