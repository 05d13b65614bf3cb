//! Claims alone, without HTTP: through hapax, where callers share batches, and as people write them by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use hapax_domain::{Event, EventKey, Kind};
use hapax_store::{Arrival, Disposition, KeptHeaders, NAIVE_CLAIM_CONNECTIONS, NaiveClaim, NewEvent, Store};

use super::BenchError;
use super::load::Measured;

/// Callers at once of a store that gathers them: as many as fill the batches that are on their way, and the next one.
const CALLERS: usize = 1_024;
const WINDOW_MS: i64 = 2 * 86_400_000;

fn key(tag: &str, n: usize) -> EventKey {
    EventKey::new("bench", tag, Kind::Notice, &n.to_string(), &[])
}

/// `total` fresh keys, one by one on every connection.
pub(super) async fn naive_claim(claims: Arc<dyn NaiveClaim>, tag: &str, total: usize) -> Result<Measured, BenchError> {
    measure(NAIVE_CLAIM_CONNECTIONS, total, tag, move |tag: Arc<str>, n| {
        let claims = Arc::clone(&claims);
        async move {
            match claims.claim(&key(&tag, n).0).await? {
                true => Ok(()),
                false => Err("a fresh key was taken".into()),
            }
        }
    })
    .await
}

/// `total` fresh keys through `accept`, each in a webhook of its own that is kept and goes nowhere.
pub(super) async fn through(store: Arc<dyn Store>, tag: &str, total: usize) -> Result<Measured, BenchError> {
    measure(CALLERS, total, tag, move |tag: Arc<str>, n| {
        let store = Arc::clone(&store);
        async move {
            let event = Event::new(Kind::Notice, &tag, &n.to_string(), key(&tag, n), 0);
            let arrival = Arrival {
                channel: "claims".into(),
                window_ms: WINDOW_MS,
                headers: KeptHeaders::default(),
                body: Bytes::from_static(b"{}"),
                events: vec![NewEvent { event, disposition: Disposition::Keep }],
                coalesce: None,
            };
            match store.accept(arrival.into()).await?[0].is_new() {
                true => Ok(()),
                false => Err("a fresh key was taken".into()),
            }
        }
    })
    .await
}

/// Lets `callers` make `total` calls between them, each its next one when the last was answered.
async fn measure<F, R>(callers: usize, total: usize, tag: &str, call: F) -> Result<Measured, BenchError>
where
    F: Fn(Arc<str>, usize) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), BenchError>> + Send,
{
    let (next, tag, call): (_, Arc<str>, _) = (Arc::new(AtomicUsize::new(0)), tag.into(), Arc::new(call));
    let started = Instant::now();
    let callers = (0..callers).map(|_| {
        let (next, tag, call) = (Arc::clone(&next), Arc::clone(&tag), Arc::clone(&call));
        tokio::spawn(async move {
            let mut took = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= total {
                    return Ok::<_, BenchError>(took);
                }
                let begun = Instant::now();
                call(Arc::clone(&tag), n).await?;
                took.push(begun.elapsed().as_micros() as u32);
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut took = Vec::with_capacity(total);
    for caller in callers {
        took.extend(caller.await??);
    }
    Ok(Measured::new(took, started.elapsed().as_secs_f64()))
}
