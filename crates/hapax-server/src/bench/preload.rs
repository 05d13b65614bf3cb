//! Fills a store with keys, through the same `accept` as everybody else.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::{Event, EventKey, Kind};
use hapax_store::clock::SystemClock;
use hapax_store::{Arrival, Disposition, KeptHeaders, NewEvent};

use super::BenchError;

const PER_ARRIVAL: u64 = 1_000;
const WINDOW_MS: i64 = 8 * 86_400_000;

/// Accepts `keys` small messages that go nowhere, each from somebody else: keys, events, threads and names grow.
pub(super) async fn preload(path: &Path, keys: u64, progress: &mut (dyn FnMut(f64) + Send)) -> Result<(), BenchError> {
    let url = hapax::StoreUrl::Sqlite(path.to_owned());
    let store = hapax::open_store(&url, &super::child::OPTIONS, Arc::new(SystemClock::new())).await?;
    let mut next = 0;
    while next < keys {
        // A few at once, so that the writer always has the next one in line.
        let wave: Vec<_> = (0..4).map(|n| arrival(next + n * PER_ARRIVAL)).map(|arrival| store.accept(arrival.into())).collect();
        for accepted in futures_util::future::join_all(wave).await {
            next += accepted?.len() as u64;
        }
        progress(next as f64 / keys as f64);
    }
    Ok(())
}

fn arrival(from: u64) -> Arrival {
    let event = |n: u64| {
        let id = n.to_string();
        let key = EventKey::new("whatsapp", "preload", Kind::Message, &id, &[]);
        let message = Event::new(Kind::Message, "preload", &id, key, 0);
        let event = Event { peer: Some(format!("55119{n:08}")), text: Some("Is my order ready?".to_owned()), ..message };
        NewEvent { event, disposition: Disposition::Keep }
    };
    Arrival {
        channel: "bench".into(),
        window_ms: WINDOW_MS,
        headers: KeptHeaders::default(),
        body: Bytes::from_static(b"{}"),
        events: (from..from + PER_ARRIVAL).map(event).collect(),
        coalesce: None,
    }
}
