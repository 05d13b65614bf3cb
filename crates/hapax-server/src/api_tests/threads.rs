use super::*;
use hapax_store::prelude::*;

#[tokio::test]
async fn threads_are_listed_in_pages_newest_first_and_marked_as_read() {
    let fixture = Fixture::new();
    fixture.accept("m1", Disposition::Deliver).await;
    for to in ["55129", "55139"] {
        fixture.clock.0.fetch_add(1_000, Ordering::SeqCst);
        fixture.queue(to, to).await;
    }
    let (_, first) = fixture.get("/v1/threads?limit=2&channel=shop&account=7").await;
    let ids = |page: &Value| page["threads"].as_array().expect("a list").iter().map(|row| row["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&first), ["7__55139", "7__55129"]);
    let next = first["next"].as_str().expect("there is more");
    let (_, rest) = fixture.get(&format!("/v1/threads?limit=2&cursor={next}")).await;
    assert_eq!(ids(&rest), ["7__55119"]);
    assert!(rest.get("next").is_none());
    assert_eq!((&rest["threads"][0]["unread"], &rest["threads"][0]["last_direction"]), (&json!(1), &json!("in")));
    let (_, read) = fixture.post("/v1/threads/7__55119/read", json!({})).await;
    assert_eq!(read["unread"], 0);
    assert_eq!(fixture.get("/v1/threads/7__55119").await.1["unread"], 0);
    assert_eq!(fixture.get("/v1/threads?account=8").await.1["threads"], json!([]));
}

#[tokio::test]
async fn a_threads_messages_come_newest_first_with_their_status() {
    let fixture = Fixture::new();
    let event = fixture.accept("m1", Disposition::Deliver).await;
    let message = fixture.queue("55119", "r1").await;
    let (_, first) = fixture.get("/v1/threads/7__55119/messages?limit=1").await;
    let newest = &first["messages"][0];
    assert_eq!((&newest["id"], &newest["direction"], &newest["status"]), (&json!(message), &json!("out"), &json!("queued")));
    assert_eq!(newest["text"], "hi");
    let next = first["next"].as_str().expect("there is more");
    let (_, rest) = fixture.get(&format!("/v1/threads/7__55119/messages?cursor={next}")).await;
    assert_eq!((&rest["messages"][0]["id"], &rest["messages"][0]["direction"]), (&json!(event), &json!("in")));
    assert_eq!(rest["messages"][0]["status"], "delivered", "hapax has taken it");
    fixture.post("/v1/threads/7__55119/read", json!({})).await;
    let (_, rest) = fixture.get(&format!("/v1/threads/7__55119/messages?cursor={next}")).await;
    assert_eq!(rest["messages"][0]["status"], "read");
    let (status, _) = fixture.get(&format!("/v1/threads/7__55119/messages?cursor={event}")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "only the cursor of a page leads to the next");
}

#[tokio::test]
async fn odd_thread_ids_are_found_escaped_and_wrong_ones_explained() {
    let fixture = Fixture::new();
    let key = EventKey::new("gowa", "a/b", Kind::Message, "m", &[]);
    let event = Event { peer: Some("_x%".to_owned()), ..Event::new(Kind::Message, "a/b", "m", key, 1) };
    let events = vec![NewEvent { event, disposition: Disposition::Deliver }];
    let (headers, body) = (KeptHeaders::default(), Bytes::from_static(b"{}"));
    let arrival = Arrival { channel: "shop".into(), window_ms: 691_200_000, headers, body, events, coalesce: None };
    fixture.store.accept(arrival.into()).await.expect("accepted");
    let (_, list) = fixture.get("/v1/threads").await;
    assert_eq!(list["threads"][0]["id"], "a/b__%5Fx%25");
    let (status, thread) = fixture.get("/v1/threads/a%2Fb__%255Fx%2525").await;
    assert_eq!((status, &thread["account"], &thread["peer"]), (StatusCode::OK, &json!("a/b"), &json!("_x%")));

    for path in ["/v1/threads/7__9", "/v1/threads/7__9/messages"] {
        assert_eq!(fixture.get(path).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(fixture.post("/v1/threads/7__9/read", json!({})).await.0, StatusCode::NOT_FOUND);
    for path in ["/v1/threads/x", "/v1/threads?cursor=x", "/v1/threads/7__9/messages?cursor=x", "/v1/outbox?cursor=evt_1"] {
        assert_eq!(fixture.get(path).await.0, StatusCode::BAD_REQUEST, "{path}");
    }
}

#[tokio::test]
async fn a_pause_from_before_two_threads_were_one_persons_is_shown_and_ended_by_either_name() {
    for (paused, resumed) in [("55119", "BR.1"), ("BR.1", "55119")] {
        let fixture = Fixture::new();
        for (id, peer) in [("m1", "55119"), ("m2", "BR.1")] {
            fixture.hear("shop", id, peer, &[], Disposition::Deliver).await;
        }
        let (status, thread) = fixture.post(&format!("/v1/threads/7__{paused}/pause"), json!({})).await;
        assert_eq!((status, &thread["paused"]["mode"]), (StatusCode::OK, &json!("wait")));
        let shown = async || {
            let (_, list) = fixture.get("/v1/threads").await;
            let list = list["threads"].as_array().expect("a list").clone();
            list.iter().filter(|thread| thread["paused"].is_object()).count()
        };
        assert_eq!(shown().await, 1, "they are strangers yet");
        fixture.hear("shop", "m3", "55119", &["BR.1"], Disposition::Deliver).await;
        assert_eq!(shown().await, 2, "{paused}");
        let (status, thread) = fixture.post(&format!("/v1/threads/7__{resumed}/resume"), json!({})).await;
        assert_eq!((status, &thread["id"], &thread["paused"]), (StatusCode::OK, &json!(format!("7__{resumed}")), &Value::Null));
        assert_eq!(shown().await, 0, "{paused}, {resumed}");
    }
}

#[tokio::test]
async fn a_name_of_one_channels_own_is_no_way_to_pause_what_another_says_to_the_person() {
    let fixture = Fixture::new();
    fixture.hear("shop", "s1", "BR.1", &[], Disposition::Deliver).await;
    let shop = fixture.token("shopper", &["read", "send"], Some(&["shop"])).await;
    let change = async |verb: &str| {
        let path = format!("/v1/threads/7__BR.1/{verb}");
        fixture.with("POST", &path, &shop, json!({})).await.0
    };
    assert_eq!((change("pause").await, change("resume").await), (StatusCode::OK, StatusCode::OK), "it is all the shop's");
    fixture.hear("phone", "p1", "55119", &[], Disposition::Deliver).await;
    fixture.hear("phone", "p2", "55119", &["BR.1"], Disposition::Deliver).await;
    assert_eq!((change("pause").await, change("resume").await), (StatusCode::FORBIDDEN, StatusCode::FORBIDDEN));
}
