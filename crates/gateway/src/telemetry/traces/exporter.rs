//! Takes spans to the collector: OTLP over HTTP, in batches, for as long as the server runs.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, header};
use metrics::Counter;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Span, otlp};
use crate::http_client::{self, BadCalls, Client, Idle, NoAnswer, Place, Request};
use crate::settings::Otel;
use crate::telemetry::sparse::Sparse;

const PATH: &str = "/v1/traces";
/// Spans in one request.
const BATCH: usize = 512;
/// How long a span waits for others.
const GATHER: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(5);
/// A collector that is away is asked so often for one batch.
const TRIES: u32 = 3;
const BETWEEN_TRIES: Duration = Duration::from_secs(1);
/// What a stop may cost; the spans are worth less than the stop's own deadline.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Exporter {
    waiting: mpsc::Receiver<Span>,
    to: Place,
    headers: HeaderMap,
    service: String,
    instance: String,
    exported: Counter,
    dropped: Counter,
    failures: Sparse,
}

/// What came of a batch.
enum Taken {
    Yes,
    /// The collector is away or busy: it may be tried again.
    NotNow(String),
    /// It will not take this batch.
    Never(String),
}

impl Exporter {
    pub(super) fn new(
        otel: &Otel,
        instance: &str,
        waiting: mpsc::Receiver<Span>,
        exported: Counter,
        dropped: Counter,
    ) -> Result<Self, BadCalls> {
        let client = Client::new(Idle { most: 1, time: Duration::from_secs(60) })?;
        let address = format!("{}{PATH}", otel.endpoint.trim_end_matches('/').trim_end_matches(PATH));
        let to = client.named("endpoint", &Arc::from("otel"), &address)?;
        let mut headers = otel.headers.clone();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let (service, instance) = (otel.service_name.clone(), instance.to_owned());
        let failures = Sparse::default();
        Ok(Self { waiting, to, headers, service, instance, exported, dropped, failures })
    }

    /// Runs until `stop`, then hands over what is left.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        while let Some(Some(first)) = stop.run_until_cancelled(self.waiting.recv()).await {
            batch.push(first);
            self.gather(&mut batch, &stop).await;
            self.export(&mut batch, &stop).await;
        }
        let all = async {
            while let Ok(span) = self.waiting.try_recv() {
                batch.push(span);
                if batch.len() == BATCH || self.waiting.is_empty() {
                    self.export(&mut batch, &stop).await;
                }
            }
        };
        // What does not get through in this time is lost with the process, as it would be in a crash.
        let _ = tokio::time::timeout(LAST_PATIENCE, all).await;
    }

    /// Waits a moment for more.
    async fn gather(&mut self, batch: &mut Vec<Span>, stop: &CancellationToken) {
        let until = tokio::time::sleep(GATHER);
        tokio::pin!(until);
        while batch.len() < BATCH {
            tokio::select! {
                () = &mut until => return,
                () = stop.cancelled() => return,
                more = self.waiting.recv_many(batch, BATCH - batch.len()) => if more == 0 { return },
            }
        }
    }

    /// Leaves the batch empty, whatever came of it.
    async fn export(&mut self, batch: &mut Vec<Span>, stop: &CancellationToken) {
        let body = otlp::request(&self.service, &self.instance, batch);
        let count = batch.len() as u64;
        batch.clear();
        let mut why = String::new();
        for attempt in 1..=TRIES {
            match self.post(body.clone()).await {
                Taken::Yes => return self.exported.increment(count),
                Taken::NotNow(words) => why = words,
                Taken::Never(words) => {
                    why = words;
                    break;
                }
            }
            let wait = tokio::time::sleep(BETWEEN_TRIES * attempt);
            if attempt == TRIES || stop.run_until_cancelled(wait).await.is_none() {
                break;
            }
        }
        self.dropped.increment(count);
        if let Some(more) = self.failures.pass() {
            tracing::warn!(why, count, more, "the collector of traces did not take spans; they are lost");
        }
    }

    async fn post(&self, body: Vec<u8>) -> Taken {
        let to = self.to.clone();
        let request = Request { to, method: Method::POST, headers: self.headers.clone(), body: http_client::whole(body) };
        let deadline = Instant::now() + PATIENCE;
        match http_client::call(request, deadline).await {
            Ok(response) => {
                let status = response.status().as_u16();
                http_client::read(response, deadline).await;
                match status {
                    200..=299 => Taken::Yes,
                    429 | 502 | 503 | 504 => Taken::NotNow(format!("it answered {status}")),
                    _ => Taken::Never(format!("it answered {status}")),
                }
            }
            Err(NoAnswer::Unreachable(why) | NoAnswer::Broken(why)) => Taken::NotNow(why),
            Err(NoAnswer::TimedOut) => Taken::NotNow("it did not answer in time".to_owned()),
        }
    }
}
