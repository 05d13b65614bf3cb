//! How soon the real program is back after a kill when it has much to remember.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hapax_domain::{ChannelKey, Event};
use hapax_providers::{self, RawRequest};
use hapax_store::clock::SystemClock;
use hapax_store::prelude::*;
use hapax_store::{Accepted, Arrival, Disposition, KeptHeaders, NewEvent};
use hapax_store_sqlite::{Options, SqliteStore};

use crate::program::{Poster, disk_folder, program, store_path};
use crate::rig::{change, channel, message, signature, text, webhook};

/// A debug build takes 1 million in half a minute; the figures for 1 and 10 million are for the release build (`hapax bench`).
/// This many fill one period of keys and begin the next, so both ways of remembering are read back.
const EVENTS: usize = 500_000;
const PER_WEBHOOK: usize = 1_000;
const SAMPLES: usize = 1_000;
/// Generous: this is a debug build that shares two cores with the other tests. A rebuild from the events would take longer.
const BACK_WITHIN: Duration = Duration::from_secs(10);
/// What 10 million keys may take in the release build.
const MEMORY_MB: u64 = 256;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_kill_nine_with_many_events_it_is_back_soon_and_knows_them_all() {
    let folder = disk_folder();
    fill(&store_path(folder.path())).await;
    let hapax = program(folder.path(), None, "");
    let poster = Poster::new();
    let (process, at) = hapax.serve().await.expect("it starts");
    for number in 0..100 {
        assert_eq!(poster.post_until_taken(at, text(&format!("wamid.late.{number}"), "1")).await.status, 200);
    }
    process.kill_nine().await.expect("killed");

    let begun = Instant::now();
    let (process, at) = hapax.serve().await.expect("it starts again");
    let said = poster.post_until_taken(at, text("wamid.first", "1")).await;
    let took = begun.elapsed();
    assert_eq!(said.status, 200);
    assert!(took < BACK_WITHIN, "the first 200 came after {took:?}");

    for number in 0..100 {
        assert_eq!(poster.post_until_taken(at, text(&format!("wamid.late.{number}"), "1")).await.word, "duplicate");
    }
    for sample in 0..SAMPLES {
        let number = sample * (EVENTS / SAMPLES) + sample % 7;
        let said = poster.post_until_taken(at, text(&id(number), &peer(number))).await;
        assert_eq!((said.status, said.word.as_str()), (200, "duplicate"), "number {number}");
    }
    if let Some(held_mb) = process.resident_mb() {
        assert!(held_mb < MEMORY_MB, "it holds {held_mb} MB");
    }
    process.stop().await.expect("it stops");
}

fn id(number: usize) -> String {
    format!("wamid.{number}")
}

fn peer(number: usize) -> String {
    format!("5511{}", number % 10_000)
}

/// Puts the events in as ingress would, in webhooks of a thousand.
async fn fill(path: &Path) {
    let store = SqliteStore::open(path, Arc::new(SystemClock::new()), &Options::default()).expect("a fresh store");
    for first in (0..EVENTS).step_by(PER_WEBHOOK) {
        let accepted = store.accept(arrival(first).into()).await.expect("accepted");
        assert!(accepted.len() == PER_WEBHOOK && accepted.into_iter().all(Accepted::is_new));
    }
}

fn arrival(first: usize) -> Arrival {
    let channel = channel("shop", None);
    let provider = hapax_providers::build(&channel.provider);
    let messages: Vec<_> = (first..first + PER_WEBHOOK).map(|number| message(&id(number), &peer(number))).collect();
    let body = Bytes::from(webhook(&[change(&messages, &[])]));
    let mut headers = http::HeaderMap::new();
    headers.insert("x-hub-signature-256", signature(&body).parse().expect("a header"));
    let request = RawRequest { method: http::Method::POST, query: String::new(), headers, body };
    let verified = provider.verify(&request, 0).expect("signed");
    let shop = ChannelKey::new(&channel.name);
    let events = provider.parse(&verified).events.into_iter().map(|event| {
        let event = Event { key: event.key.in_channel(&shop), ..event };
        NewEvent { event, disposition: Disposition::Keep }
    });
    let events = events.collect();
    let (headers, body) = (KeptHeaders::default(), Bytes::from_static(b"{}"));
    Arrival { channel: channel.name, window_ms: channel.window_ms, headers, body, events, coalesce: None }
}
