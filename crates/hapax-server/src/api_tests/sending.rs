use hapax_domain::Fence;
use hapax_store::prelude::*;
use hapax_store::{LaneRef, OutboxLease, OutboxLeaseRequest, SendOutcome};

use super::*;

impl Fixture {
    pub(super) async fn submit(&self, headers: &[(&str, &str)], body: &Value) -> (StatusCode, http::HeaderMap, Value) {
        let mut request = Request::post("/v1/messages")
            .header("authorization", format!("Bearer {TOKEN}"))
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::from(body.to_string())).expect("a request")).await
    }

    pub(crate) async fn queue(&self, to: &str, request_id: &str) -> String {
        let ask = json!({"account": "7", "channel": "shop", "to": to, "text": "hi", "request_id": request_id});
        let (status, _, body) = self.submit(&[], &ask).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{body}");
        body["id"].as_str().expect("an id").to_owned()
    }

    pub(super) async fn lease_message(&self) -> OutboxLease {
        let ask = OutboxLeaseRequest { worker: "w1".into(), wants: vec![("shop".into(), 1)], resting: vec![], hold_ms: 60_000 };
        self.store.lease_outbox(ask).await.expect("leased").remove(0)
    }

    pub(super) async fn settle_message(&self, lane: LaneRef, fence: Fence, outcome: SendOutcome) {
        self.store.begin(lane, fence).await.expect("begun");
        self.clock.0.fetch_add(40, Ordering::SeqCst);
        self.store.settle_outbox(lane, fence, outcome).await.expect("settled");
    }

    pub(crate) async fn end_message(&self, outcome: SendOutcome) {
        let lease = self.lease_message().await;
        self.settle_message(lease.lane, lease.fence, outcome).await;
    }
}

fn hello() -> Value {
    json!({"account": "7", "channel": "shop", "to": "55119", "text": "hello"})
}

#[tokio::test]
async fn a_message_is_queued_before_it_is_sent_and_then_shows_its_steps() {
    let fixture = Fixture::new();
    let (status, headers, receipt) = fixture.submit(&[], &hello()).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{receipt}");
    assert_eq!(
        (&receipt["status"], &receipt["replayed"], &receipt["thread"]),
        (&json!("queued"), &json!(false), &json!("7__55119"))
    );
    assert!(receipt["request_id"].as_str().expect("made").starts_with("req_"), "{receipt}");
    let path = headers["location"].to_str().expect("a path").to_owned();
    assert_eq!(path, format!("/v1/messages/{}", receipt["id"].as_str().expect("an id")));

    let (_, queued) = fixture.get(&path).await;
    assert_eq!((&queued["status"], &queued["outbox"]["state"]), (&json!("queued"), &json!("queued")));
    assert_eq!((&queued["payload"], &queued["text"]), (&json!({"text": "hello"}), &json!("hello")));
    fixture.end_message(SendOutcome::Sent { provider_id: "wamid.1".to_owned() }).await;
    let (_, sent) = fixture.get(&path).await;
    assert_eq!((&sent["status"], &sent["provider_id"], &sent["outbox"]), (&json!("sent"), &json!("wamid.1"), &Value::Null));
    assert_eq!(sent["steps"][0], json!({"status": "queued", "at": "2023-11-14T22:13:20.000Z"}));
    assert_eq!(sent["steps"][2], json!({"status": "sent", "at": "2023-11-14T22:13:20.040Z"}));
    assert_eq!((&sent["tries"][0]["outcome"], &sent["tries"][0]["worker"]), (&json!("sent"), &json!("w1")));
    assert_eq!(sent["story"].as_array().expect("a story").len(), 4);
}

#[tokio::test]
async fn the_same_request_twice_is_one_message() {
    let fixture = Fixture::new();
    let (status, _, first) = fixture.submit(&[("idempotency-key", "\"order 7\"")], &hello()).await;
    assert_eq!((status, &first["request_id"]), (StatusCode::ACCEPTED, &json!("order 7")));
    let again = json!({"to": "+55 (11) 9", "text": "hello", "channel": "shop", "account": "7", "request_id": "order 7"});
    for headers in [&[][..], &[("idempotency-key", "order 7")]] {
        let (status, headers, second) = fixture.submit(headers, &again).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!((&second["id"], &second["replayed"]), (&first["id"], &json!(true)));
        assert!(headers.contains_key("location"));
    }
    let payload =
        json!({"account": "7", "channel": "shop", "to": "55119", "payload": {"text": "hello"}, "request_id": "order 7"});
    assert_eq!(fixture.submit(&[], &payload).await.0, StatusCode::OK, "a text is the payload it stands for");
    for other in [
        json!({"account": "7", "channel": "shop", "to": "55119", "text": "hullo"}),
        json!({"account": "7", "channel": "shop", "to": "55129", "text": "hello"}),
    ] {
        let (status, headers, problem) = fixture.submit(&[("idempotency-key", "order 7")], &other).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(headers["content-type"], "application/problem+json");
        assert!(problem["detail"].as_str().expect("words").contains(first["id"].as_str().expect("an id")), "{problem}");
    }
    let (_, stats) = fixture.get("/v1/stats").await;
    assert_eq!((&stats["outbox"]["waiting"], &stats["outbox"]["unknown"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn a_message_can_be_written_now_and_sent_later() {
    let fixture = Fixture::new();
    let at = |send_at: &str| {
        let mut ask = hello();
        ask["send_at"] = json!(send_at);
        ask
    };
    let key = [("idempotency-key", "later"), ("prefer", "wait=20")];
    let (status, _, receipt) = fixture.submit(&key, &at("90s")).await;
    assert_eq!((status, &receipt["status"]), (StatusCode::ACCEPTED, &json!("queued")), "nobody waits for it");
    assert_eq!(receipt["send_at"], "2023-11-14T22:14:50.000Z");
    let path = format!("/v1/messages/{}", receipt["id"].as_str().expect("an id"));
    let (_, queued) = fixture.get(&path).await;
    assert_eq!(queued["outbox"]["due_at"], "2023-11-14T22:14:50.000Z", "{queued}");
    fixture.queue("55119", "meanwhile").await;
    fixture.end_message(SendOutcome::Sent { provider_id: "wamid.1".to_owned() }).await;

    fixture.clock.0.fetch_add(60_000, Ordering::SeqCst);
    let (status, _, again) = fixture.submit(&key[..1], &at("90s")).await;
    assert_eq!((status, &again["id"]), (StatusCode::OK, &receipt["id"]), "the same was asked for, only later");
    for other in [at("91s"), hello()] {
        assert_eq!(fixture.submit(&key[..1], &other).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    }
    fixture.clock.0.fetch_add(30_000, Ordering::SeqCst);
    fixture.end_message(SendOutcome::Sent { provider_id: "wamid.2".to_owned() }).await;
    assert_eq!(fixture.get(&path).await.1["provider_id"], "wamid.2");
}

#[tokio::test]
async fn two_equal_requests_at_once_are_one_message() {
    let fixture = Fixture::new();
    let key = [("idempotency-key", "double-click")];
    let ask = hello();
    let (a, b) = tokio::join!(fixture.submit(&key, &ask), fixture.submit(&key, &ask));
    assert_eq!(a.2["id"], b.2["id"]);
    let mut statuses = [a.0.as_u16(), b.0.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 202]);
    assert_eq!(fixture.get("/v1/outbox").await.1["items"].as_array().expect("a list").len(), 1);
}

#[tokio::test]
async fn what_cannot_be_sent_is_answered_with_what_to_change() {
    let fixture = Fixture::new();
    let with = |key: &str, value: Value| {
        let mut ask = hello();
        ask[key] = value;
        ask
    };
    let without = |key: &str| {
        let mut ask = hello();
        ask.as_object_mut().expect("an object").remove(key);
        ask
    };
    for (ask, hint) in [
        (with("channel", json!("nowhere")), "those that can send: `help`, `phone`, `shop`"),
        (with("channel", json!("pay")), "`token`"),
        (with("channel", json!("help")), "a bot goes by its channel's name: `help`"),
        (with("account", json!("../7")), "phone_number_id, digits only"),
        (with("account", json!("")), "`account` is empty"),
        (without("account"), "phone_number_id as `account`"),
        (without("channel"), "name its `channel` too"),
        (json!({"to": "55119", "text": "x"}), "`channel` or `account`"),
        (with("text", json!("  \n")), "`text` is empty"),
        (with("text", json!("x".repeat(4_097))), "4097 characters and at most 4096"),
        (without("text"), "exactly one of `text` and `payload`"),
        (with("payload", json!({})), "exactly one of `text` and `payload`"),
        (json!({"account": "7", "channel": "shop", "to": "55119", "payload": [1]}), "must be an object"),
        (with("to", json!("bob")), "5 to 20 digits with the country code"),
        (with("to", json!("")), "`to` is empty"),
        (with("to", json!("55\u{0}119")), "control characters"),
        (without("to"), "missing field `to`"),
        (with("too", json!("55119")), "unknown field `too`"),
        (with("request_id", json!("r".repeat(300))), "this one has 300 bytes"),
        (with("request_id", json!("")), "1 to 255 bytes"),
        (with("priority", json!("urgent")), "use one of reply, normal, bulk"),
        (with("send_at", json!("tomorrow")), "`send_at` cannot be read"),
        (with("send_at", json!("2023-11-15T00:00:00")), "a time with its offset"),
        (with("send_at", json!(1_700_000_000)), "expected a string"),
        (with("send_at", json!("53w")), "more than a year ahead"),
    ] {
        let (status, headers, problem) = fixture.submit(&[], &ask).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{hint}: {problem}");
        assert_eq!(headers["content-type"], "application/problem+json");
        assert!(problem["detail"].as_str().expect("words").contains(hint), "{hint}: {problem}");
    }
    let (status, _, problem) = fixture.submit(&[("idempotency-key", "a")], &with("request_id", json!("b"))).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(problem["detail"].as_str().expect("words").contains("differ"), "{problem}");
    assert_eq!(fixture.submit(&[("idempotency-key", "\"a")], &hello()).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(fixture.submit(&[("idempotency-key", "a"), ("idempotency-key", "b")], &hello()).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(fixture.submit(&[("prefer", "wait=long")], &hello()).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(fixture.get("/v1/outbox").await.1["items"], json!([]), "nothing of it was queued");
}

#[tokio::test]
async fn five_megabytes_a_wrong_token_and_no_json_are_told_apart() {
    let fixture = Fixture::new();
    let mut huge = hello();
    huge["text"] = json!("x".repeat(5 << 20));
    let (status, headers, problem) = fixture.submit(&[], &huge).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(headers["content-type"], "application/problem+json");
    assert!(problem["detail"].as_str().expect("words").contains("shorten or split"), "{problem}");

    let request = |token: &str, kind: &str, body: &str| {
        let request =
            Request::post("/v1/messages").header("authorization", format!("Bearer {token}")).header("content-type", kind);
        request.body(Body::from(body.to_owned())).expect("a request")
    };
    let good = hello().to_string();
    assert_eq!(fixture.send(request("wrong", "application/json", &good)).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(fixture.send(request(TOKEN, "text/plain", &good)).await.0, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(fixture.send(request(TOKEN, "application/json", "{\"to\":")).await.0, StatusCode::BAD_REQUEST);
    let kind = "application/json; charset=utf-8";
    assert_eq!(fixture.send(request(TOKEN, kind, &good)).await.0, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn an_account_that_was_seen_names_its_channel() {
    let fixture = Fixture::new();
    fixture.accept("m1", Disposition::Deliver).await;
    let (status, _, receipt) = fixture.submit(&[], &json!({"account": "7", "to": "55119", "text": "x"})).await;
    assert_eq!((status, &receipt["channel"]), (StatusCode::ACCEPTED, &json!("shop")), "{receipt}");
    let (_, _, receipt) = fixture.submit(&[], &json!({"account": "help", "to": "77", "text": "x"})).await;
    assert_eq!(receipt["channel"], "help");
    let (_, _, receipt) = fixture.submit(&[], &json!({"channel": "help", "to": -10077, "text": "x"})).await;
    assert_eq!((&receipt["account"], &receipt["to"]), (&json!("help"), &json!("-10077")), "chats are numbers");

    let from_device = json!({"channel": "phone", "to": "+55 11 9", "text": "x"});
    let (status, _, problem) = fixture.submit(&[], &from_device).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "no device was seen yet: {problem}");
    let (_, _, receipt) = fixture.submit(&[], &json!({"channel": "phone", "account": "d1", "to": "55119", "text": "x"})).await;
    assert_eq!(receipt["thread"], "d1__55119@s.whatsapp.net", "as its webhooks write it");
    let (_, _, receipt) = fixture.submit(&[], &from_device).await;
    assert_eq!(receipt["thread"], "d1__55119@s.whatsapp.net", "the only device is meant");
}

#[tokio::test]
async fn who_would_wait_gets_the_outcome_or_a_202() {
    let fixture = Fixture::new();
    let started = tokio::time::Instant::now();
    let (status, headers, receipt) = fixture.submit(&[("prefer", "wait=1"), ("idempotency-key", "k")], &hello()).await;
    assert_eq!((status, &receipt["status"]), (StatusCode::ACCEPTED, &json!("queued")));
    assert_eq!(headers["preference-applied"], "wait=1");
    assert!(started.elapsed().as_millis() >= 1_000);

    let ask = hello();
    let sent = async {
        let lease = fixture.lease_message().await;
        fixture.settle_message(lease.lane, lease.fence, SendOutcome::Sent { provider_id: "wamid.1".to_owned() }).await;
    };
    let started = tokio::time::Instant::now();
    let prefer = [("prefer", "wait=20"), ("idempotency-key", "k")];
    let ((status, _, receipt), ()) = tokio::join!(fixture.submit(&prefer, &ask), sent);
    assert_eq!((status, &receipt["status"], &receipt["provider_id"]), (StatusCode::OK, &json!("sent"), &json!("wamid.1")));
    assert!(started.elapsed().as_secs() < 10);

    let (_, failed) = tokio::join!(
        async {
            let wait = fixture.store.wait();
            wait.await;
            fixture.end_message(SendOutcome::Failed { why: "not on WhatsApp".to_owned() }).await;
        },
        fixture.submit(&[("prefer", "wait=20")], &ask)
    );
    assert_eq!((failed.0, &failed.2["status"], &failed.2["why"]), (StatusCode::OK, &json!("failed"), &json!("not on WhatsApp")));
}

#[tokio::test]
async fn a_message_in_doubt_is_listed_sent_once_more_or_given_up() {
    let fixture = Fixture::new();
    let (doubted, waiting) = (fixture.queue("55119", "r1").await, fixture.queue("55129", "r2").await);
    let lease = fixture.lease_message().await;
    let (_, list) = fixture.get("/v1/outbox?limit=1").await;
    assert_eq!((&list["items"][0]["worker"], &list["items"][0]["state"]), (&json!("w1"), &json!("leased")));
    let next = list["next"].as_str().expect("there is more");
    assert_eq!(
        (&list["items"][0]["lease_until"], &list["items"][0]["id"]),
        (&json!("2023-11-14T22:14:20.000Z"), &json!(doubted))
    );
    let (_, rest) = fixture.get(&format!("/v1/outbox?cursor={next}&channel=shop&account=7")).await;
    assert_eq!((&rest["items"][0]["id"], &rest["items"][0]["state"]), (&json!(waiting), &json!("queued")));
    let (status, problem) = fixture.post(&format!("/v1/messages/{doubted}/cancel"), json!({})).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(problem["detail"].as_str().expect("words").contains("it is leased now"), "{problem}");

    fixture.settle_message(lease.lane, lease.fence, SendOutcome::Unknown { why: "cut off".to_owned(), check_ms: None }).await;
    let (_, unknown) = fixture.get("/v1/outbox?unknown=true").await;
    assert_eq!(unknown["items"].as_array().expect("a list").len(), 1);
    assert_eq!((&unknown["items"][0]["id"], &unknown["items"][0]["why"]), (&json!(doubted), &json!("cut off")));
    let (_, stats) = fixture.get("/v1/stats").await;
    assert_eq!((&stats["outbox"]["waiting"], &stats["outbox"]["unknown"]), (&json!(1), &json!(1)));
    let (status, again) = fixture.post(&format!("/v1/messages/{doubted}/retry"), json!({})).await;
    assert_eq!((status, &again["status"]), (StatusCode::OK, &json!("queued")));
    assert_eq!(fixture.post(&format!("/v1/messages/{doubted}/retry"), json!({})).await.0, StatusCode::CONFLICT);

    let (status, gone) = fixture.post(&format!("/v1/messages/{waiting}/cancel"), json!({})).await;
    assert_eq!((status, &gone["status"], &gone["why"]), (StatusCode::OK, &json!("failed"), &json!("cancelled")));
    let unknown = format!("/v1/messages/msg_{:032x}", 9);
    assert_eq!(fixture.get(&unknown).await.0, StatusCode::NOT_FOUND);
    for verb in ["retry", "cancel"] {
        assert_eq!(fixture.post(&format!("{unknown}/{verb}"), json!({})).await.0, StatusCode::NOT_FOUND);
    }
    assert_eq!(fixture.get("/v1/messages/7").await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_paused_account_shows_why_and_is_resumed() {
    let fixture = Fixture::new();
    fixture.store.pause_account("shop", "7/8", Some("the token has expired")).await.expect("paused");
    let (_, list) = fixture.get("/v1/accounts").await;
    assert_eq!(
        list["accounts"],
        json!([{"channel": "shop", "account": "7/8", "state": "paused", "why": "the token has expired", "since": "2023-11-14T22:13:20.000Z"}])
    );
    let (status, resumed) = fixture.post("/v1/accounts/shop/7%2F8/resume", json!({})).await;
    assert_eq!((status, &resumed["why"]), (StatusCode::OK, &json!("the token has expired")));
    assert_eq!(fixture.get("/v1/accounts").await.1["accounts"], json!([]));
    assert_eq!(fixture.post("/v1/accounts/shop/7%2F8/resume", json!({})).await.0, StatusCode::NOT_FOUND);
}
