//! Traces, as a collector gets them: one that the provider began goes on in hapax, in the bot, and in what the bot sends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use hapax_gateway::settings::Otel;
use hapax_testkit::fake_bot::{FakeBot, Say};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::phones::{ACCOUNT, Phones, sending};
use crate::rig::{Opened, Rig, config, eventually, text};

/// A collector of the test's own.
struct Collector {
    endpoint: String,
    got: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
}

impl Collector {
    /// Answers with what `say` gives for each request, counted from 0.
    async fn start(say: impl Fn(usize) -> u16 + Clone + Send + Sync + 'static) -> Self {
        let got: Arc<Mutex<Vec<(HeaderMap, Bytes)>>> = Arc::default();
        let kept = Arc::clone(&got);
        let take = move |headers: HeaderMap, body: Bytes| {
            let (kept, say) = (Arc::clone(&kept), say.clone());
            async move {
                let mut got = kept.lock().expect("no panic");
                let number = got.len();
                got.push((headers, body));
                StatusCode::from_u16(say(number)).expect("a status")
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/v1/traces", post(take))).await });
        Self { endpoint, got }
    }

    fn otel(&self) -> Otel {
        let mut headers = HeaderMap::new();
        headers.insert("x-key", HeaderValue::from_static("the collector's key"));
        Otel { endpoint: self.endpoint.clone(), headers, service_name: "shop-hapax".to_owned(), sample_percent: 100 }
    }

    fn spans(&self) -> Vec<Span> {
        self.got.lock().expect("no panic").iter().flat_map(|(_, body)| spans(body)).collect()
    }

    /// Waits for the span of this name.
    async fn span(&self, name: &str) -> Span {
        eventually(name, async || self.spans().iter().any(|span| span.name == name)).await;
        self.spans().into_iter().find(|span| span.name == name).expect("it is there")
    }
}

#[derive(Clone, Debug)]
struct Span {
    service: String,
    trace: String,
    id: String,
    parent: String,
    name: String,
    kind: u64,
    took_ns: u64,
    failed: bool,
    attributes: BTreeMap<String, String>,
}

enum Field<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

impl<'b> Field<'b> {
    fn bytes(&self) -> &'b [u8] {
        match self {
            Field::Bytes(bytes) => bytes,
            Field::Number(number) => panic!("{number} is a number"),
        }
    }

    fn number(&self) -> u64 {
        match self {
            Field::Number(number) => *number,
            Field::Bytes(bytes) => panic!("{bytes:?} are bytes"),
        }
    }
}

/// Reads any protobuf message: field numbers and what stands there.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 | 5 => {
                let long = if tag & 7 == 1 { 8 } else { 4 };
                let mut whole = [0; 8];
                whole[..long].copy_from_slice(&bytes[..long]);
                bytes = &bytes[long..];
                Field::Number(u64::from_le_bytes(whole))
            }
            2 => {
                let long = varint(&mut bytes) as usize;
                let (inner, rest) = bytes.split_at(long);
                bytes = rest;
                Field::Bytes(inner)
            }
            wire => panic!("wire type {wire}"),
        };
        found.push((tag >> 3, field));
    }
    found
}

fn all<'b>(bytes: &'b [u8], number: u64) -> Vec<Field<'b>> {
    fields(bytes).into_iter().filter(|(field, _)| *field == number).map(|(_, field)| field).collect()
}

fn first<'b>(bytes: &'b [u8], number: u64) -> Option<Field<'b>> {
    all(bytes, number).into_iter().next()
}

fn word(bytes: &[u8], number: u64) -> String {
    first(bytes, number).map(|field| String::from_utf8(field.bytes().to_vec()).expect("text")).unwrap_or_default()
}

fn attributes(bytes: &[u8], number: u64) -> BTreeMap<String, String> {
    let pair = |field: Field<'_>| {
        let value = first(field.bytes(), 2).expect("a value").bytes();
        let whole = first(value, 3).map(|field| field.number().to_string());
        (word(field.bytes(), 1), whole.unwrap_or_else(|| word(value, 1)))
    };
    all(bytes, number).into_iter().map(pair).collect()
}

/// By the numbers of opentelemetry-proto.
fn spans(request: &[u8]) -> Vec<Span> {
    let mut found = Vec::new();
    for of_resource in all(request, 1) {
        let service = attributes(first(of_resource.bytes(), 1).expect("a resource").bytes(), 1)["service.name"].clone();
        for of_scope in all(of_resource.bytes(), 2) {
            for span in all(of_scope.bytes(), 2) {
                let bytes = span.bytes();
                let id = |number| first(bytes, number).map(|field| hex::encode(field.bytes())).unwrap_or_default();
                let at = |number| first(bytes, number).expect("a time").number();
                found.push(Span {
                    service: service.clone(),
                    trace: id(1),
                    id: id(2),
                    parent: id(4),
                    name: word(bytes, 5),
                    kind: first(bytes, 6).expect("a kind").number(),
                    took_ns: at(8) - at(7),
                    failed: first(bytes, 15)
                        .is_some_and(|status| first(status.bytes(), 3).is_some_and(|code| code.number() == 2)),
                    attributes: attributes(bytes, 9),
                });
            }
        }
    }
    found
}

const PROVIDERS_TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_goes_from_the_provider_through_hapax_to_the_bot_and_out_again() {
    let collector = Collector::start(|_| 200).await;
    let say = |call: &hapax_testkit::fake_bot::Call| if call.number == 0 { Say::Status(500) } else { Say::Status(200) };
    let bot = FakeBot::start(say).await.expect("a bot");
    let phones = Phones::willing().await;
    let mut config = config(vec![sending("shop", Some(bot.url()), &phones)]);
    config.otel = Some(collector.otel());
    let rig = Rig::start_with(Opened::memory(), config).await;
    let body = text("wamid.1", "5511900001");
    let request = rig.request("shop", body.as_bytes()).header("traceparent", format!("00-{PROVIDERS_TRACE}-00f067aa0ba902b7-01"));
    assert_eq!(request.body(body).send().await.expect("an answer").status(), 200);

    let calls = bot.called(2).await;
    let seen: Vec<Vec<&str>> = calls.iter().map(|call| call.header("traceparent").split('-').collect()).collect();
    assert_eq!((seen[0][1], seen[1][1]), (PROVIDERS_TRACE, PROVIDERS_TRACE), "the bot is in the same trace");
    assert_ne!(seen[0][2], seen[1][2], "each attempt is a span of its own");

    let message = serde_json::json!({"account": ACCOUNT, "to": "5511900001", "text": "hello"}).to_string();
    let asked = rig.client.post(rig.url("/v1/messages")).bearer_auth("an admin token for tests").body(message);
    let asked = asked.header("traceparent", format!("00-{PROVIDERS_TRACE}-{}-01", "b0".repeat(8)));
    assert_eq!(asked.header("content-type", "application/json").send().await.expect("an answer").status(), 202);

    let webhook = collector.span("webhook shop").await;
    assert_eq!((webhook.trace.as_str(), webhook.parent.as_str(), webhook.kind), (PROVIDERS_TRACE, "00f067aa0ba902b7", 2));
    eventually("both deliveries", async || collector.spans().iter().filter(|span| span.name == "deliver shop").count() == 2)
        .await;
    let deliveries: Vec<Span> = collector.spans().into_iter().filter(|span| span.name == "deliver shop").collect();
    for (delivery, seen) in deliveries.iter().zip(&seen) {
        assert_eq!((delivery.id.as_str(), delivery.parent.as_str(), delivery.kind), (seen[2], webhook.id.as_str(), 3));
        assert!(delivery.took_ns > 0);
    }
    let told = |span: &Span| {
        (span.attributes["hapax.attempt"].clone(), span.attributes["http.response.status_code"].clone(), span.failed)
    };
    assert_eq!(told(&deliveries[0]), ("1".to_owned(), "500".to_owned(), true));
    assert_eq!(told(&deliveries[1]), ("2".to_owned(), "200".to_owned(), false));
    let send = collector.span("send shop").await;
    assert_eq!((send.trace.as_str(), send.parent), (PROVIDERS_TRACE, "b0".repeat(8)));
    assert_eq!(send.service, "shop-hapax");

    let got = collector.got.lock().expect("no panic").clone();
    for (headers, body) in got {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        assert_eq!(headers["x-key"], "the collector's key");
        let plain = String::from_utf8_lossy(&body).into_owned();
        assert!(!plain.contains("5511900001") && !plain.contains("hello"), "no number and no word of a person is in a trace");
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_costs_spans_and_nothing_else() {
    let collector = Collector::start(|_| 400).await;
    let bot = FakeBot::willing().await.expect("a bot");
    let mut config = config(vec![crate::rig::channel("shop", Some(bot.url()))]);
    config.otel = Some(collector.otel());
    let rig = Rig::start_with(Opened::memory(), config).await;
    rig.accepted("shop", text("wamid.1", "1")).await;
    bot.called(1).await;
    rig.counted("hapax_spans_dropped_total", 2).await;
    assert_eq!(rig.metric("hapax_spans_exported_total"), 0);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_the_collector_leaves_with_the_stop_and_strangers_leave_no_trace() {
    let collector = Collector::start(|_| 200).await;
    let bot = FakeBot::willing().await.expect("a bot");
    let mut config = config(vec![crate::rig::channel("shop", Some(bot.url()))]);
    config.otel = Some(collector.otel());
    let rig = Rig::start_with(Opened::memory(), config).await;
    let forged = rig.client.post(rig.url("/in/shop")).header("x-hub-signature-256", "sha256=00").body("{}");
    assert_eq!(forged.send().await.expect("an answer").status(), 401);
    rig.accepted("shop", text("wamid.1", "1")).await;
    bot.called(1).await;
    rig.settled().await;
    rig.stop().await;
    let names: Vec<String> = collector.spans().into_iter().map(|span| span.name).collect();
    assert_eq!(names.iter().filter(|name| *name == "webhook shop").count(), 1, "{names:?}");
    assert_eq!(names.iter().filter(|name| *name == "deliver shop").count(), 1, "{names:?}");
}
