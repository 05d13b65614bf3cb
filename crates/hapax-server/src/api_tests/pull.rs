//! Pulling: who asks for work gets what a target would have got, and says how it went.

use hapax_domain::limits::PULL_MAX_BYTES;
use hapax_store::Redrive;

use super::*;

impl Fixture {
    async fn pull(&self, ask: Value) -> Vec<Value> {
        let (status, body) = self.post("/v1/pull", ask).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        body["items"].as_array().expect("items").clone()
    }

    async fn pull_one(&self) -> Value {
        let mut items = self.pull(json!({"channel": "help"})).await;
        assert_eq!(items.len(), 1, "{items:?}");
        items.remove(0)
    }

    async fn say(&self, item: &Value, mut word: Value) -> (StatusCode, Value) {
        word["lease"] = item["lease"].clone();
        self.post("/v1/settle", word).await
    }

    /// A message with this body.
    async fn hear_body(&self, channel: &str, peer: &str, body: Bytes) {
        let key = EventKey::new("whatsapp", "7", Kind::Message, peer, &[]);
        let event = Event { peer: Some(peer.to_owned()), ..Event::new(Kind::Message, "7", peer, key, 1) };
        let events = vec![NewEvent { event, disposition: Disposition::Deliver }];
        let arrival = Arrival {
            channel: channel.into(),
            window_ms: 691_200_000,
            headers: KeptHeaders::default(),
            body,
            events,
            coalesce: None,
        };
        self.store.accept(arrival.into()).await.expect("accepted");
    }

    fn pass(&self, ms: i64) {
        self.clock.0.fetch_add(ms, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn an_item_comes_as_a_target_would_get_it_and_done_ends_it() {
    let fixture = Fixture::new();
    let id = fixture.accept_on("help", "m1", Disposition::Deliver).await;
    let item = fixture.pull_one().await;
    assert_eq!((&item["event_id"], &item["event_ids"], &item["attempt"]), (&json!(id), &json!([id]), &json!(1)), "{item}");
    assert_eq!((&item["thread"], &item["kind"], &item["channel"]), (&json!("7__55119"), &json!("message"), &json!("help")));
    assert_eq!((&item["body"], &item["body_encoding"]), (&json!("{\"hi\":1}"), &json!("text")));
    let header = |name: &str| {
        let headers = item["headers"].as_array().expect("headers");
        headers.iter().find(|header| header["name"] == name).map(|header| header["value"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(header("content-type").as_deref(), Some("application/json"));
    assert_eq!(header("hapax-event-id"), Some(id.clone()));
    assert_eq!(header("hapax-attempt").as_deref(), Some("1"));
    assert_eq!(header("x-telegram-bot-api-secret-token").as_deref(), Some("a-hidden-token"), "the bot's own check passes");
    assert!(fixture.pull(json!({"channel": "help", "max": 64})).await.is_empty(), "one at a time");

    let (status, said) = fixture.say(&item, json!({"outcome": "done"})).await;
    assert_eq!((status, &said["status"], &said["repeated"]), (StatusCode::OK, &json!("done"), &json!(false)), "{said}");
    let (status, said) = fixture.say(&item, json!({"outcome": "done"})).await;
    assert_eq!((status, &said["status"], &said["repeated"]), (StatusCode::OK, &json!("done"), &json!(true)), "{said}");
    let (status, lost) = fixture.say(&item, json!({"outcome": "park"})).await;
    assert_eq!((status, &lost["code"]), (StatusCode::CONFLICT, &json!("lease_lost")), "{lost}");

    let (_, story) = fixture.get(&format!("/v1/events/{id}/story")).await;
    assert_eq!(story["event"]["state"], "delivered");
    assert!(story.to_string().contains("admin"), "who had it: {story}");
}

#[tokio::test]
async fn who_dies_with_an_item_loses_it_to_the_next() {
    let fixture = Fixture::new();
    fixture.accept_on("help", "m1", Disposition::Deliver).await;
    let dead = fixture.pull_one().await;
    fixture.pass(dead["lease_ms"].as_i64().expect("a time") - 1);
    let (status, extended) = fixture.post("/v1/extend", json!({"lease": dead["lease"]})).await;
    assert_eq!((status, &extended["lease_ms"]), (StatusCode::OK, &dead["lease_ms"]), "{extended}");
    fixture.pass(2);
    assert!(fixture.pull(json!({"channel": "help"})).await.is_empty(), "it was extended");
    fixture.pass(dead["lease_ms"].as_i64().expect("a time"));

    let next = fixture.pull_one().await;
    assert_eq!((&next["event_id"], &next["attempt"]), (&dead["event_id"], &json!(2)));
    assert!(next["fence"].as_u64() > dead["fence"].as_u64(), "{next} {dead}");
    for (path, body) in
        [("/v1/settle", json!({"lease": dead["lease"], "outcome": "done"})), ("/v1/extend", json!({"lease": dead["lease"]}))]
    {
        let (status, lost) = fixture.post(path, body).await;
        assert_eq!((status, &lost["code"]), (StatusCode::CONFLICT, &json!("lease_lost")), "{path}: {lost}");
    }
    let (status, _) = fixture.say(&next, json!({"outcome": "done"})).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn a_retry_waits_as_asked_and_one_too_many_parks() {
    let fixture = Fixture::new();
    fixture.accept_on("help", "m1", Disposition::Deliver).await;
    let first = fixture.pull_one().await;
    let (_, said) = fixture.say(&first, json!({"outcome": "retry", "after": "90s", "why": "the model is busy"})).await;
    assert_eq!((&said["status"], &said["retry_in_ms"]), (&json!("retry"), &json!(90_000)), "{said}");
    assert!(fixture.pull(json!({"channel": "help"})).await.is_empty());
    fixture.pass(90_000);
    for attempt in 2..=10 {
        let item = fixture.pull_one().await;
        assert_eq!(item["attempt"], attempt);
        let (_, said) = fixture.say(&item, json!({"outcome": "retry", "after": 0.5})).await;
        assert_eq!(said["status"], if attempt < 10 { "retry" } else { "parked" }, "{said}");
        fixture.pass(600_000);
    }
    let (_, parked) = fixture.get("/v1/inbox?parked=true").await;
    assert!(parked["items"][0]["why"].as_str().expect("why").contains("failure 10 of 10"), "{parked}");
}

#[tokio::test]
async fn handed_back_is_not_charged_and_parked_waits_for_a_person() {
    let fixture = Fixture::new();
    fixture.accept_on("help", "m1", Disposition::Deliver).await;
    let item = fixture.pull_one().await;
    let (_, said) = fixture.say(&item, json!({"outcome": "hand_back"})).await;
    assert_eq!(said["status"], "handed_back");
    let (_, said) = fixture.say(&item, json!({"outcome": "hand_back"})).await;
    assert_eq!(said["repeated"], true, "{said}");
    let item = fixture.pull_one().await;
    assert_eq!(item["attempt"], 2, "it was seen");
    let (_, inbox) = fixture.get("/v1/inbox").await;
    assert_eq!(inbox["items"][0]["failures"], 0);
    let (_, said) = fixture.say(&item, json!({"outcome": "park", "why": "no such order"})).await;
    assert_eq!((&said["status"], &said["why"]), (&json!("parked"), &json!("no such order")));
}

#[tokio::test]
async fn replies_enter_the_outbox_with_the_completion_and_bad_ones_settle_nothing() {
    let fixture = Fixture::new();
    let id = fixture.accept_on("help", "m1", Disposition::Deliver).await;
    let item = fixture.pull_one().await;
    for (bad, hint) in [
        (json!({"outcome": "done", "replies": [{"txt": "a"}]}), "reply 0"),
        (json!({"outcome": "retry", "replies": [{"text": "a"}]}), "`done` only"),
        (json!({"outcome": "done", "after": "1s"}), "`after`"),
        (json!({"outcome": "finished"}), "`hand_back`"),
    ] {
        let (status, said) = fixture.say(&item, bad.clone()).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{bad}: {said}");
        assert!(said["detail"].as_str().expect("words").contains(hint), "{said}");
    }
    assert_eq!(fixture.get("/v1/outbox").await.1["items"], json!([]));
    let replies = json!([{"text": "one"}, {"to": 55119, "text": "two"}]);
    for repeated in [false, true] {
        let (status, said) = fixture.say(&item, json!({"outcome": "done", "replies": replies})).await;
        assert_eq!((status, &said["repeated"]), (StatusCode::OK, &json!(repeated)), "{said}");
    }
    let (_, outbox) = fixture.get("/v1/outbox").await;
    let ids: Vec<&str> =
        outbox["items"].as_array().expect("messages").iter().filter_map(|row| row["request_id"].as_str()).collect();
    assert_eq!(ids, [format!("{id}.0"), format!("{id}.1")], "{outbox}");
}

#[tokio::test]
async fn nobody_works_on_what_is_not_theirs() {
    let fixture = Fixture::new();
    fixture.accept_on("help", "m1", Disposition::Deliver).await;
    let item = fixture.pull_one().await;
    let body = json!({"lease": item["lease"], "outcome": "done"});
    let (other, reader) = (fixture.token("other", &["work"], Some(&["pay"])).await, fixture.token("eye", &["read"], None).await);
    for token in [&other, &reader] {
        for (path, body) in [
            ("/v1/pull", json!({"channel": "help"})),
            ("/v1/settle", body.clone()),
            ("/v1/extend", json!({"lease": item["lease"]})),
        ] {
            assert_eq!(fixture.with("POST", path, token, body).await.0, StatusCode::FORBIDDEN, "{path}");
        }
    }
    let mine = fixture.token("mine", &["work"], Some(&["help"])).await;
    assert_eq!(fixture.with("POST", "/v1/settle", &mine, body).await.0, StatusCode::OK);

    let lease = item["lease"].as_str().expect("a handle");
    for forged in ["", "x", "####", &lease[1..], &format!("{}A", &lease[..lease.len() - 1])] {
        let (status, said) = fixture.post("/v1/extend", json!({"lease": forged})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{said}");
        assert!(said["detail"].as_str().expect("words").contains("/v1/pull"), "{said}");
    }
}

/// It was believed when it began to wait.
#[tokio::test]
async fn a_revoked_token_is_handed_nothing() {
    let fixture = Fixture::new();
    let token = fixture.token("hand", &["work"], None).await;
    let waiting = fixture.with("POST", "/v1/pull", &token, json!({"channel": "help", "wait": "30s"}));
    let revoking = async {
        tokio::task::yield_now().await;
        assert_eq!(fixture.with("DELETE", "/v1/tokens/hand", TOKEN, json!({})).await.0, StatusCode::OK);
        fixture.accept_on("help", "m1", Disposition::Deliver).await;
    };
    let ((status, said), ()) = tokio::join!(waiting, revoking);
    assert_eq!(status, StatusCode::UNAUTHORIZED, "{said}");
    assert_eq!(fixture.pull_one().await["attempt"], 1);
}

#[tokio::test]
async fn what_cannot_be_pulled_says_why() {
    let fixture = Fixture::new();
    for (ask, status, hint) in [
        (json!({"channel": "shop"}), StatusCode::UNPROCESSABLE_ENTITY, "mode = \"pull\""),
        (json!({"channel": "nowhere"}), StatusCode::NOT_FOUND, "/v1/channels"),
        (json!({"channel": "help", "max": 0}), StatusCode::UNPROCESSABLE_ENTITY, "1 to 64"),
        (json!({"channel": "help", "max": 65}), StatusCode::UNPROCESSABLE_ENTITY, "1 to 64"),
        (json!({"channel": "help", "wait": "soon"}), StatusCode::BAD_REQUEST, "90s"),
        (json!({"channel": "help", "wait": -1}), StatusCode::BAD_REQUEST, "90s"),
        (json!({"channel": "help", "worker": "a\nb"}), StatusCode::UNPROCESSABLE_ENTITY, "printable"),
        (json!({"chanel": "help"}), StatusCode::UNPROCESSABLE_ENTITY, "chanel"),
    ] {
        let (got, said) = fixture.post("/v1/pull", ask.clone()).await;
        assert_eq!(got, status, "{ask}: {said}");
        assert!(said["detail"].as_str().expect("words").contains(hint), "{ask}: {said}");
    }
}

/// What kills its worker is never charged a failure.
#[tokio::test]
async fn what_no_worker_says_a_word_about_is_parked_and_given_out_again_after_a_redrive() {
    let fixture = Fixture::new();
    fixture.accept_on("help", "m1", Disposition::Deliver).await;
    let next = fixture.accept_on("help", "m2", Disposition::Deliver).await;
    for attempt in 1..=7 {
        let item = fixture.pull_one().await;
        assert_eq!(item["attempt"], attempt);
        fixture.say(&item, json!({"outcome": "hand_back"})).await;
    }
    let lease_ms = async |attempt: u32| {
        let item = fixture.pull_one().await;
        assert_eq!(item["attempt"], attempt);
        item["lease_ms"].as_i64().expect("a time")
    };
    for attempt in 8..=37 {
        fixture.pass(lease_ms(attempt).await + 1);
    }
    assert!(fixture.pull(json!({"channel": "help"})).await.is_empty(), "it is parked at this look");
    let (_, parked) = fixture.get("/v1/inbox?parked=true").await;
    assert!(parked["items"][0]["why"].as_str().expect("why").contains("30 times in a row"), "{parked}");
    let item = fixture.pull_one().await;
    assert_eq!(item["event_id"], json!(next), "its thread goes on");
    fixture.say(&item, json!({"outcome": "done"})).await;

    fixture.store.redrive(Redrive::All, 10).await.expect("redriven");
    for attempt in 39..=41 {
        fixture.pass(lease_ms(attempt).await + 1);
    }
}

#[tokio::test]
async fn one_pull_holds_bodies_up_to_a_limit_and_always_one_item() {
    let fixture = Fixture::new();
    let body = |bytes: usize| Bytes::from(format!("{{\"hi\":\"{}\"}}", "x".repeat(bytes)));
    for (peer, bytes) in [("1", PULL_MAX_BYTES + 1), ("2", PULL_MAX_BYTES / 2), ("3", 10), ("4", PULL_MAX_BYTES / 2), ("5", 10)] {
        fixture.hear_body("help", peer, body(bytes)).await;
    }
    let mut heard = Vec::new();
    for _ in 0..3 {
        let items = fixture.pull(json!({"channel": "help", "max": 64})).await;
        assert!(items.iter().all(|item| item["attempt"] == 1), "what did not fit was not tried");
        let mut threads: Vec<_> = items.iter().map(|item| item["thread"].as_str().expect("a thread").to_owned()).collect();
        threads.sort_unstable();
        heard.push(threads);
    }
    assert_eq!(heard.concat().len(), 5, "{heard:?}");
    let large = |threads: &Vec<String>| threads.contains(&"7__1".to_owned()) && threads.len() > 1;
    assert!(!heard.iter().any(large), "{heard:?}");
    assert!(!heard.iter().any(|threads| ["7__2", "7__4"].iter().all(|one| threads.contains(&(*one).to_owned()))), "{heard:?}");
}
