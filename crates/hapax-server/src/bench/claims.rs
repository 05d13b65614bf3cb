//! Claims alone: by each way to ask hapax for one, beside a Redis that syncs as often; and of webhooks, gathered and as people write them by
//! hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use hapax::Claimed;
use hapax_domain::{Event, EventKey, Kind};
use hapax_store::{Arrival, Disposition, KeptHeaders, NAIVE_CLAIM_CONNECTIONS, NaiveClaim, NewEvent, Store};

use super::child::{Child, Side};
use super::load::Measured;
use super::resp::{self, Callers};
use super::{BenchError, Progress, Stage, Subject, requests};

/// Callers at once of a store that gathers them: as many as fill the batches that are on their way, and the next one.
const CALLERS: usize = 1_024;
const WINDOW_MS: i64 = 2 * 86_400_000;

/// Commands that a connection of the Redis protocol sends before it reads the answers, where they are sent together.
const AT_ONCE: usize = 16;

impl Stage<'_> {
    /// One claim of a fresh key, durable before it is answered: `SET NX EX` to a Redis, the same at the door, over HTTP, and in a Rust program.
    pub(super) async fn claims(&mut self, subject: Subject<'_>, progress: Progress<'_>) -> Result<(), BenchError> {
        let redis = resp::Redis::start(&self.plan.folder).await?;
        if redis.is_none() && self.round == 0 {
            let why = "there is no redis-server on this machine, so claims are compared with those of the Redis door";
            self.report.notes.push(why.to_owned());
        }
        for (connections, at_once) in [(64, 1), (256, 1), (64, AT_ONCE)] {
            let how = if at_once > 1 { format!(", {at_once} at once") } else { String::new() };
            let (callers, how) = (Callers { connections, at_once }, format!("{connections} connections{how}"));
            let name = subject.line(&format!("claims by the Redis door, {how}"));
            let mut yardstick = name.clone();
            if let Some(redis) = &redis {
                yardstick = format!("Redis, appendfsync always: SET NX EX, {how}");
                self.say(&yardstick, progress);
                let before = redis.cpu();
                let measured = resp::claims(redis.address, None, callers, self.plan.requests).await?;
                self.note(&yardstick, &yardstick, &measured.with_cpu(redis.cpu() - before), 0);
            }
            self.say(&name, progress);
            let file = self.new_store();
            let server = Child::start(subject.kind(&file), Side::Nobody).await?;
            let before = server.cpu();
            let measured = resp::claims(server.door, Some(requests::TOKEN), callers, self.plan.requests).await?;
            self.note(&name, &yardstick, &server.with_cpu(measured, before), server.peak_mb());
            if at_once == 1 {
                self.claims_over_http(subject, &yardstick, connections, progress).await?;
                self.claims_in_rust(subject, &yardstick, connections, progress).await?;
            }
        }
        Ok(())
    }

    async fn claims_over_http(
        &mut self,
        subject: Subject<'_>,
        yardstick: &str,
        connections: usize,
        progress: Progress<'_>,
    ) -> Result<(), BenchError> {
        let name = subject.line(&format!("claims over HTTP, {connections} connections"));
        self.say(&name, progress);
        let file = self.new_store();
        let server = Child::start(subject.kind(&file), Side::Nobody).await?;
        let tag = format!("{:x}", rand::random::<u32>());
        let measured = server.load(requests::claims(&tag, connections, self.plan.requests)).await?;
        self.note(&name, yardstick, &measured, server.peak_mb());
        Ok(())
    }

    /// A whole job: claimed and completed, two commits one after the other.
    async fn claims_in_rust(
        &mut self,
        subject: Subject<'_>,
        yardstick: &str,
        tasks: usize,
        progress: Progress<'_>,
    ) -> Result<(), BenchError> {
        let name = subject.line(&format!("claim + complete in Rust, {tasks} tasks"));
        self.say(&name, progress);
        let file = self.new_store();
        let measured = in_rust(&format!("sqlite:{}", file.display()), tasks, self.plan.requests).await?;
        self.note(&name, yardstick, &measured, 0);
        Ok(())
    }
}

/// `total` fresh keys, each claimed and completed by `tasks` of this process.
async fn in_rust(url: &str, tasks: usize, total: usize) -> Result<Measured, BenchError> {
    let store = hapax::open(url).await?;
    measure(tasks, total, "", move |_, n| {
        let store = store.clone();
        async move {
            match store.claim(&n.to_string()).await? {
                Claimed::Won(guard) => Ok(guard.complete("host-1").await?),
                Claimed::Completed(_) => Err("a fresh key was taken".into()),
            }
        }
    })
    .await
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_completes_every_key_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}", folder.path().join("claims.db").display());
        assert_eq!(in_rust(&url, 4, 50).await.expect("all are completed").requests, 50);
        let taken = in_rust(&url, 4, 50).await.err().expect("all of them were claimed before");
        assert!(taken.to_string().contains("taken"), "{taken}");
    }
}
