mod claims;
mod described;
mod filters;
mod keys;
mod pages;
mod pull;
mod sending;
mod stream;
mod threads;
mod tokens;
mod web;

use std::sync::atomic::{AtomicI64, Ordering};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use std::sync::Arc;

use axum::Router;
use hapax_domain::{Event, EventKey, Kind};
use hapax_gateway::api::{Api, Audit, Auth, History, PostWebhook, auth, router};
use hapax_gateway::channels::Channels;
use hapax_gateway::takeover::Takeovers;
use hapax_gateway::telemetry::{Memory, Telemetry};
use hapax_gateway::web::{Hosts, Web};
use hapax_store::clock::Clock;
use hapax_store::memory::MemoryStore;
use hapax_store::prelude::*;
use hapax_store::{Arrival, Copies, Disposition, KeptHeaders, LeaseRequest, NewEvent, Outcome, Store};
use http::Response;
use http_body_util::Full;

use crate::config::{Environment, Flags, SourceFile, Sources};

pub(crate) const TOKEN: &str = "a-token-for-these-tests";
const CONFIG: &str = "[channel.shop]\nprovider = 'whatsapp'\nsecret = 'a-very-hidden-word'\ntarget = 'http://u:pw@127.0.0.1:1/x'\n\
                      token = 'a-hidden-token-to-send'\n\
                      [channel.help]\nprovider = 'telegram'\nsecret = 'a-hidden-token'\n\
                      token = '123456:a-hidden-token-of-a-bot-of-35-chars'\n\
                      [channel.phone]\nprovider = 'gowa'\nsecret = 'a-hidden-token'\napi_base = 'http://127.0.0.1:1'\n\
                      [channel.pay]\nprovider = 'stripe'\nsecret = 'whsec_hidden-too'\n";

pub(crate) struct HandClock(AtomicI64);

impl Clock for HandClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A server without a network, its store, and its clock.
pub(crate) struct Fixture {
    pub(crate) router: Router,
    pub(crate) store: MemoryStore,
    clock: Arc<HandClock>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::around(|store| Arc::new(store))
    }

    /// The same with a store between it and the routes.
    fn around(wrap: impl FnOnce(MemoryStore) -> Arc<dyn Store>) -> Self {
        Self::made(wrap, |_| ())
    }

    fn made(wrap: impl FnOnce(MemoryStore) -> Arc<dyn Store>, change: impl FnOnce(&mut Api)) -> Self {
        let clock = Arc::new(HandClock(AtomicI64::new(1_700_000_000_000)));
        let store = MemoryStore::new(clock.clone());
        let file = Some(SourceFile { name: "t.toml".to_owned(), text: CONFIG.to_owned() });
        let env = Environment { vars: Default::default(), read_file: &|_| Err(std::io::ErrorKind::NotFound.into()) };
        let config = crate::config::load(&Sources { file, env, flags: Flags::default() }).expect("a good config");
        let channels = Channels::new(&config.settings().channels);
        let telemetry: Arc<Telemetry> = Arc::default();
        let mut api = Api {
            store: wrap(store.clone()),
            auth: Arc::new(Auth::new(
                auth::OperatorToken::Configured(auth::hash_token(TOKEN)),
                Arc::new(store.clone()),
                clock.clone(),
                hapax_gateway::connections::peer::Proxies::default(),
                Arc::new(hapax_gateway::telemetry::Telemetry::new()),
            )),
            clock: clock.clone(),
            cors_origins: vec!["https://app.example.com".to_owned()],
            hide_payloads: false,
            public_url: None,
            purges: Arc::default(),
            history: Arc::new(History::new(Arc::new(store.clone()), clock.clone(), telemetry.clone(), 1)),
            audit: Arc::new(Audit::new(Arc::new(store.clone()), clock.clone(), telemetry.clone(), 1)),
            takeovers: Arc::new(Takeovers::new(Arc::new(store.clone()), clock.clone())),
            memory: Box::new(|| Memory { keys: 3, hits: 9 }),
            spool: None,
            backups: Arc::new(hapax_gateway::backups::Backups::new(
                Arc::new(store.clone()),
                clock.clone(),
                telemetry.clone(),
                config.settings().backups,
            )),
            telemetry,
            books: Arc::new(hapax_gateway::dropin::Books::new(Arc::new(store.clone()), 1)),
            pull: Arc::new(hapax_gateway::delivery::Pull::new(
                &channels,
                Arc::new(store.clone()),
                clock.clone(),
                Arc::default(),
                Default::default(),
            )),
            feed: Arc::new(hapax_gateway::api::Feed::new(
                Arc::new(store.clone()),
                clock.clone(),
                Arc::default(),
                Default::default(),
            )),
            streams: Default::default(),
            claims: Arc::new(hapax_gateway::api::ClaimDesk::new(config.claims)),
            reloads: hapax_gateway::server::Reloads::new().0,
            post: believed_by(channels.clone(), clock.clone()),
            channels,
        };
        change(&mut api);
        let api = Arc::new(api);
        let web = Web {
            api: Arc::clone(&api),
            hosts: Hosts::new(["hapax.lan".to_owned()]),
            proxies: hapax_gateway::connections::peer::Proxies::new(
                hapax_gateway::settings::Network::read("10.0.0.0/8").into_iter().collect(),
            ),
            config_file: None,
            live: Default::default(),
            counting: Default::default(),
            shown: Vec::new(),
        };
        let router = router(api).merge(hapax_gateway::web::router(Arc::new(web)));
        Self { router, store, clock }
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, http::HeaderMap, Value) {
        let response = self.router.clone().oneshot(request).await.expect("infallible");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        (parts.status, parts.headers, serde_json::from_slice(&bytes).expect("JSON"))
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        let request = Request::get(path).header("authorization", format!("Bearer {TOKEN}")).body(Body::empty());
        let (status, _, body) = self.send(request.expect("a request")).await;
        (status, body)
    }

    async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        let request = Request::post(path)
            .header("authorization", format!("Bearer {TOKEN}"))
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()));
        let (status, _, body) = self.send(request.expect("a request")).await;
        (status, body)
    }

    /// Takes in one message and gives its id.
    pub(crate) async fn accept(&self, id: &str, disposition: Disposition) -> String {
        self.accept_on("shop", id, disposition).await
    }

    /// All channels have the same account, and the same person writes to all.
    async fn accept_on(&self, channel: &str, id: &str, disposition: Disposition) -> String {
        self.hear(channel, id, "55119", &[], disposition).await
    }

    /// The same of a person with these names.
    async fn hear(&self, channel: &str, id: &str, peer: &str, aliases: &[&str], disposition: Disposition) -> String {
        self.hear_in("7", channel, id, peer, aliases, disposition).await
    }

    /// The same in another account.
    async fn hear_in(
        &self,
        account: &str,
        channel: &str,
        id: &str,
        peer: &str,
        aliases: &[&str],
        disposition: Disposition,
    ) -> String {
        let key = EventKey::new("whatsapp", account, Kind::Message, id, &[]);
        let text = Some(format!("{channel} hears {id}"));
        let (peer, aliases) = (Some(peer.to_owned()), aliases.iter().map(|&alias| alias.to_owned()).collect());
        let event = Event { peer, aliases, text, ..Event::new(Kind::Message, account, id, key, 1) };
        let mut headers = KeptHeaders::default();
        headers.push("content-type", b"application/json");
        let arrival = Arrival {
            channel: channel.into(),
            window_ms: 691_200_000,
            headers,
            body: Bytes::from_static(b"{\"hi\":1}"),
            events: vec![NewEvent { event, disposition }],
            coalesce: None,
        };
        self.store.accept(arrival.into()).await.expect("accepted")[0].event().to_string()
    }

    /// Leases the first item of the channel and ends it so.
    pub(crate) async fn settle(&self, outcome: Outcome) {
        let ask = LeaseRequest {
            worker: "w1".into(),
            wants: vec![("shop".into(), 1)],
            resting: vec![],
            hold_ms: 60_000,
            outside: false,
        };
        let lease = self.store.lease_inbox(ask).await.expect("leased").remove(0);
        self.clock.0.fetch_add(40, Ordering::SeqCst);
        self.store.settle_inbox(lease.lane, lease.fence, outcome).await.expect("settled");
    }
}

#[tokio::test]
async fn nothing_is_told_without_the_token() {
    let fixture = Fixture::new();
    fixture.accept("m1", Disposition::Deliver).await;
    let paths =
        ["/v1/events", "/v1/inbox", "/v1/stats", "/v1/channels", "/v1/threads", "/v1/outbox", "/v1/accounts", "/v1/nowhere"];
    for (path, value) in paths.iter().flat_map(|path| ["", "Bearer", "Bearer wrong", "Basic YTpi"].map(|value| (path, value))) {
        let request = Request::get(*path).header("authorization", value).body(Body::empty()).expect("a request");
        let (status, headers, body) = fixture.send(request).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{path} {value}");
        assert_eq!(headers["content-type"], "application/problem+json");
        assert_eq!(headers["www-authenticate"], "Bearer realm=\"hapax\"");
        assert!(body["detail"].as_str().expect("words").contains("HAPAX_ADMIN_TOKEN"), "{body}");
    }
}

#[tokio::test]
async fn events_are_listed_in_pages_newest_first() {
    let fixture = Fixture::new();
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(fixture.accept(&format!("m{n}"), Disposition::Deliver).await);
    }
    let (status, first) = fixture.get("/v1/events?limit=2&channel=shop&kind=message&thread=7__55119").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(first["events"][0]["id"], json!(ids[4]));
    assert_eq!(first["events"][0]["thread"], "7__55119");
    assert_eq!(first["events"][0]["received_at"], "2023-11-14T22:13:20.000Z");
    let next = first["next"].as_str().expect("there is more");
    let (_, rest) = fixture.get(&format!("/v1/events?limit=100000&cursor={next}")).await;
    assert_eq!((rest["events"].as_array().map(Vec::len), &rest["events"][0]["id"]), (Some(3), &json!(ids[2])));
    assert!(rest.get("next").is_none(), "the last page names no next one");
    let (_, none) = fixture.get("/v1/events?channel=pay").await;
    assert_eq!(none["events"], json!([]));
}

#[tokio::test]
async fn what_cannot_be_read_is_answered_with_what_to_change() {
    let fixture = Fixture::new();
    for (path, hint) in [
        ("/v1/events?kin=message", "unknown field `kin`"),
        ("/v1/events?kind=messages", "use one of message, status"),
        ("/v1/events?thread=x", "expected `account__peer`"),
        ("/v1/events?cursor=itm_1", "give the `next` of the page before"),
        ("/v1/events?limit=-1", "limit"),
        ("/v1/events/7", "expected `evt_` and 32 hex digits"),
    ] {
        let (status, body) = fixture.get(path).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {body}");
        assert!(body["detail"].as_str().expect("words").contains(hint), "{path}: {body}");
    }
    let unknown = format!("/v1/events/evt_{:032x}", 9);
    assert_eq!(fixture.get(&unknown).await.0, StatusCode::NOT_FOUND);
    assert_eq!(fixture.get(&format!("{unknown}/story")).await.0, StatusCode::NOT_FOUND);
    assert_eq!(fixture.post(&format!("{unknown}/replay"), json!({})).await.0, StatusCode::NOT_FOUND);
    assert_eq!(fixture.get("/v1/nowhere").await.0, StatusCode::NOT_FOUND);
    assert_eq!(fixture.get("/v1/purge").await.0, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn one_event_is_shown_with_its_body_and_headers() {
    let fixture = Fixture::new();
    let id = fixture.accept("m1", Disposition::Deliver).await;
    let (status, body) = fixture.get(&format!("/v1/events/{id}")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!((&body["body_encoding"], &body["body"]), (&json!("text"), &json!("{\"hi\":1}")));
    assert_eq!(body["headers"], json!([{"name": "content-type", "value": "application/json"}]));
    assert_eq!(body["state"], "waiting");

    let odd = Disposition::Quarantine { why: "no id".to_owned(), part: Bytes::from_static(b"\xff\x00") };
    let id = fixture.accept("m2", odd).await;
    let (_, body) = fixture.get(&format!("/v1/events/{id}")).await;
    assert_eq!((&body["body_encoding"], &body["body"]), (&json!("base64"), &json!("/wA=")));
    assert_eq!(body["state"], "quarantined");
}

#[tokio::test]
async fn an_event_is_found_by_its_short_id_by_a_beginning_and_as_the_latest() {
    let fixture = Fixture::new();
    assert_eq!(fixture.get("/v1/events/latest").await.0, StatusCode::NOT_FOUND);
    let first = fixture.accept("m1", Disposition::Deliver).await;
    let short = first.parse::<hapax_domain::EventId>().expect("an id").short();
    assert_eq!(fixture.get("/v1/events/latest").await.1["id"], json!(first));
    assert_eq!(fixture.get(&format!("/v1/events/{short}/story")).await.1["event"]["id"], json!(first));
    let beginning = &first[..16];
    assert_eq!(fixture.get(&format!("/v1/events/{beginning}")).await.1["id"], json!(first));
    assert_eq!(fixture.get("/v1/events/evt_0000").await.0, StatusCode::NOT_FOUND);

    let second = fixture.accept("m2", Disposition::Deliver).await;
    assert_eq!(fixture.get("/v1/events/latest").await.1["id"], json!(second));
    let (status, problem) = fixture.get(&format!("/v1/events/{beginning}")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let said = problem["detail"].as_str().expect("words");
    assert!(said.contains(&first) && said.contains(&second) && said.contains("write more"), "{said}");
    // Beginnings of the short form: of both, of one, and one that is itself the short form of an event that there never was.
    let shorts = [&first, &second].map(|id| id.parse::<hapax_domain::EventId>().expect("an id").short());
    let (status, problem) = fixture.get(&format!("/v1/events/{}", &shorts[0][..9])).await;
    assert_eq!(
        (status, problem["detail"].as_str().is_some_and(|said| said.contains(&shorts[1]))),
        (StatusCode::BAD_REQUEST, true),
        "{problem}"
    );
    assert_eq!(fixture.get(&format!("/v1/events/{}", shorts[1])).await.1["id"], json!(second));
    fixture.clock.0.fetch_add(10_000, Ordering::SeqCst);
    let (mut last, mut short) = (second, shorts[1].clone());
    for number in 3.. {
        if short.len() > shorts[1].len() {
            break;
        }
        last = fixture.accept(&format!("m{number}"), Disposition::Deliver).await;
        short = last.parse::<hapax_domain::EventId>().expect("an id").short();
    }
    let cut = &short[..short.len() - 1];
    assert!(cut.parse::<hapax_domain::EventId>().is_ok(), "{cut}");
    assert_eq!(fixture.get(&format!("/v1/events/{cut}")).await.1["id"], json!(last));
    let (_, replayed) = fixture.post("/v1/events/latest/replay", json!({})).await;
    assert_eq!(replayed["event"], json!(last));
}

#[tokio::test]
async fn a_story_tells_copies_attempts_and_the_end() {
    let fixture = Fixture::new();
    let id = fixture.accept("m1", Disposition::Deliver).await;
    let last_ms = fixture.clock.now_ms() + 1;
    let copies = Copies { event: id.parse().expect("an id"), copies: 4, conflicts: 0, last_ms, kept: None };
    fixture.store.note_copies(vec![copies]).await.expect("noted");
    fixture.settle(Outcome::Retry { wait_ms: 0, why: "503".to_owned() }).await;
    fixture.settle(Outcome::Delivered { status: 200, answer: None, replies: vec![] }).await;
    let (status, story) = fixture.get(&format!("/v1/events/{id}/story")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(story["event"]["state"], "delivered");
    let steps: Vec<_> =
        story["steps"].as_array().expect("steps").iter().map(|step| step["step"].as_str().expect("a word")).collect();
    assert_eq!(steps, ["received", "claimed", "leased", "copies", "retry", "leased", "delivered"]);
    assert_eq!(story["steps"][6]["attempt"], 2);
}

#[tokio::test]
async fn parked_items_are_found_redriven_and_events_replayed() {
    let fixture = Fixture::new();
    let id = fixture.accept("m1", Disposition::Deliver).await;
    fixture.settle(Outcome::Parked { why: "404".to_owned(), charged: true }).await;
    let (_, parked) = fixture.get("/v1/inbox?parked=true").await;
    assert_eq!((&parked["items"][0]["event"], &parked["items"][0]["why"]), (&json!(id), &json!("404")));
    assert_eq!(fixture.get("/v1/inbox?parked=false").await.1["items"], json!([]));

    let (_, nothing) = fixture.post("/v1/redrive", json!({"channel": "pay"})).await;
    assert_eq!(nothing, json!({"redriven": 0, "more": false}));
    let (_, done) = fixture.post("/v1/redrive", json!({"item": parked["items"][0]["item"]})).await;
    assert_eq!(done["redriven"], 1);
    fixture.settle(Outcome::Delivered { status: 200, answer: None, replies: vec![] }).await;

    let (status, replayed) = fixture.post(&format!("/v1/events/{id}/replay"), json!({})).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let (_, inbox) = fixture.get("/v1/inbox").await;
    assert_eq!(inbox["items"][0]["item"], replayed["item"]);
    assert_eq!(inbox["items"][0]["replay"], 1);
}

#[tokio::test]
async fn a_redrive_names_exactly_one_thing() {
    let fixture = Fixture::new();
    for body in [json!({}), json!({"all": false}), json!({"all": true, "channel": "shop"}), json!({"item": "x"})] {
        assert_eq!(fixture.post("/v1/redrive", body.clone()).await.0, StatusCode::BAD_REQUEST, "{body}");
    }
    let (status, body) = fixture.post("/v1/redrive", json!({"chanel": "shop"})).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(body["detail"].as_str().expect("words").contains("chanel"), "{body}");
}

#[tokio::test]
async fn purge_removes_what_is_past_its_retention_and_stats_say_when() {
    let fixture = Fixture::new();
    fixture.accept("m1", Disposition::Deliver).await;
    fixture.settle(Outcome::Delivered { status: 200, answer: None, replies: vec![] }).await;
    fixture.accept("m2", Disposition::Deliver).await;
    assert_eq!(fixture.get("/v1/stats").await.1["last_purge"], Value::Null);
    fixture.clock.0.fetch_add(30 * 86_400_000, Ordering::SeqCst);
    let (_, done) = fixture.post("/v1/purge", json!({})).await;
    assert_eq!((&done["events"], &done["more"]), (&json!(1), &json!(false)));
    let (_, stats) = fixture.get("/v1/stats").await;
    assert_eq!(stats["events"], 1, "what waits is never purged");
    assert_eq!(stats["last_purge"]["events"], 1);
    assert_eq!(stats["channels"][0]["waiting"], 1);
}

#[tokio::test]
async fn channels_are_shown_without_secrets() {
    let fixture = Fixture::new();
    let (_, body) = fixture.get("/v1/channels").await;
    let text = body.to_string();
    assert!(
        !text.contains("hidden-word") && !text.contains("hidden-token") && !text.contains("whsec") && !text.contains("pw@"),
        "{text}"
    );
    assert_eq!(body["channels"][3]["path"], "/in/shop");
    assert_eq!((&body["channels"][1]["sends"], &body["channels"][3]["sends"]), (&json!(false), &json!(true)));
    assert_eq!(body["channels"][3]["target"], "http://(hidden)@127.0.0.1:1/x");
}

/// A door that believes what the channel's own provider believes, and counts what came as a provider would hear it.
fn believed_by(channels: Channels, clock: Arc<HandClock>) -> Box<PostWebhook> {
    let seen = Arc::new(std::sync::Mutex::new(std::collections::HashSet::<Bytes>::new()));
    Box::new(move |request| {
        let (head, body) = request.into_parts();
        let name = head.uri.path().strip_prefix("/in/").expect("a webhook's path");
        let provider = Arc::clone(&channels.get(name).expect("a channel").provider);
        let (seen, now_ms) = (Arc::clone(&seen), clock.now_ms());
        Box::pin(async move {
            let body = body.collect().await.expect("a body").to_bytes();
            let (method, headers) = (head.method, head.headers);
            let raw = hapax_providers::RawRequest { method, query: String::new(), headers, body: body.clone() };
            let verified = provider.verify(&raw, now_ms).expect("signed");
            assert!(!provider.parse(&verified).events.is_empty(), "{body:?}");
            let new = seen.lock().expect("no panic").insert(body);
            let answer = json!({"status": if new { "accepted" } else { "duplicate" }});
            Response::new(Full::new(Bytes::from(answer.to_string())))
        })
    })
}

#[tokio::test]
async fn a_triggered_sample_is_signed_here_and_its_signature_stays_here() {
    let fixture = Fixture::new();
    for (channel, kind) in [("shop", "whatsapp.text"), ("help", "text"), ("phone", "gowa.text"), ("pay", "invoice_paid")] {
        for word in ["accepted", "duplicate"] {
            let path = format!("/v1/channels/{channel}/trigger");
            let (status, said) = fixture.post(&path, json!({"kind": kind, "nonce": 7})).await;
            assert_eq!(
                (status, &said["status"], &said["answer"]["status"]),
                (StatusCode::OK, &json!(200), &json!(word)),
                "{said}"
            );
            // Telegram's signature is the secret itself.
            assert!(!said.to_string().contains("hidden"), "{said}");
        }
    }
    let (status, problem) = fixture.post("/v1/channels/shop/trigger", json!({"kind": "stripe.invoice_paid", "nonce": 7})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(problem["detail"].as_str().expect("words").contains("whatsapp.text"), "{problem}");
    assert_eq!(fixture.post("/v1/channels/none/trigger", json!({"kind": "text", "nonce": 7})).await.0, StatusCode::NOT_FOUND);
    assert_eq!(fixture.post("/v1/channels/shop/sample", json!({"kind": "text", "nonce": 7})).await.0, StatusCode::NOT_FOUND);
}
