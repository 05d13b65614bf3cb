//! One filter for all lists.

use super::*;

impl Fixture {
    async fn found(&self, list: &str, q: &str) -> (Vec<String>, Value) {
        let mut url = url_of(list);
        url.push_str(&q.replace('%', "%25").replace(' ', "%20").replace('"', "%22").replace('&', "%26"));
        let (status, page) = self.get(&url).await;
        assert_eq!(status, StatusCode::OK, "{q}: {page}");
        let name = if list == "events" {
            "events"
        } else if list == "threads" {
            "threads"
        } else {
            "items"
        };
        let id = if list == "inbox" { "event" } else { "id" };
        let rows = page[name].as_array().expect("rows").iter().map(|row| row[id].as_str().expect("an id").to_owned());
        (rows.collect(), page)
    }

    async fn accept_body(&self, channel: &str, id: &str, kind: Kind, body: &'static str) -> String {
        let key = EventKey::new("stripe", "7", kind, id, &[]);
        let event = Event { peer: Some("55119".to_owned()), ..Event::new(kind, "7", id, key, 1) };
        let arrival = Arrival {
            coalesce: None,
            channel: channel.into(),
            window_ms: 691_200_000,
            headers: KeptHeaders::default(),
            body: Bytes::from_static(body.as_bytes()),
            events: vec![NewEvent { event, disposition: Disposition::Deliver }],
        };
        self.store.accept(arrival.into()).await.expect("accepted")[0].event().to_string()
    }
}

fn url_of(list: &str) -> String {
    format!("/v1/{list}?q=")
}

#[tokio::test]
async fn events_are_found_by_what_they_are_and_by_what_is_in_them() {
    let fixture = Fixture::new();
    let parked = fixture.accept("m1", Disposition::Deliver).await;
    fixture.settle(Outcome::Parked { why: "404".to_owned(), charged: true }).await;
    let paid = fixture.accept_body("pay", "e1", Kind::Notice, r#"{"type":"invoice.paid","note":"A R\u00e9fund, please"}"#).await;
    let failed = fixture.accept_body("pay", "e2", Kind::Notice, r#"{"type":"invoice.payment_failed"}"#).await;
    for (q, wanted) in [
        ("channel:shop state:parked", vec![&parked]),
        ("state:waiting", vec![&failed, &paid]),
        ("type:invoice.paid", vec![&paid]),
        ("type:invoice", vec![&failed, &paid]),
        ("type:invoice -type:invoice.paid", vec![&failed]),
        ("text:\"réfund, pl\"", vec![&paid]),
        ("-kind:notice", vec![&parked]),
        ("account:7 thread:7__55119 hi", vec![]),
        ("account:8", vec![]),
        ("before:1h", vec![]),
    ] {
        let (found, page) = fixture.found("events", q).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), wanted, "{q}: {page}");
    }
    let (_, plain) = fixture.found("events", "channel:shop").await;
    assert!(plain.get("looked_at").is_none(), "the store found it: {plain}");
    assert_eq!(fixture.found("events", "type:invoice.paid").await.1["looked_at"], 3);
    fixture.clock.0.fetch_add(7_200_000, Ordering::SeqCst);
    assert_eq!(fixture.found("events", "since:1h").await.0, Vec::<String>::new());
    assert_eq!(fixture.found("events", "since:3h before:1h").await.0.len(), 3);
    assert_eq!(fixture.found("inbox", "state:parked type:x").await.0, Vec::<String>::new());
    assert_eq!(fixture.found("inbox", "state:parked").await.0, [parked]);
    assert_eq!(fixture.found("inbox", "type:invoice.paid kind:notice").await.0, [paid]);
}

#[tokio::test]
async fn a_filtered_list_is_paged_like_any_other_and_its_cursor_is_good_for_that_filter_alone() {
    let fixture = Fixture::new();
    let mut wanted = Vec::new();
    for n in 0..9 {
        let id = fixture.accept(&format!("m{n}"), if n % 3 == 0 { Disposition::Keep } else { Disposition::Deliver }).await;
        wanted.extend((n % 3 == 0).then_some(id));
    }
    wanted.reverse();
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let (_, page) = fixture.get(&format!("/v1/events?limit=1&q=state:kept{cursor}")).await;
        seen.extend(page["events"].as_array().expect("rows").iter().map(|row| row["id"].as_str().expect("an id").to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        let (_, other) = fixture.get(&format!("/v1/events?limit=1&q=state:waiting&cursor={next}")).await;
        assert_eq!(other["code"], "invalid_cursor");
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, wanted);
}

#[tokio::test]
async fn messages_and_threads_are_found_by_their_words() {
    let fixture = Fixture::new();
    let first = fixture.queue("551177", "r1").await;
    fixture.queue("551188", "r2").await;
    assert_eq!(fixture.found("outbox", "thread:7__551177 text:HI state:queued").await.0, [first]);
    assert_eq!(fixture.found("outbox", "text:refund").await.0, Vec::<String>::new());
    assert_eq!(fixture.found("threads", "account:7 text:hi").await.0.len(), 2);
    assert_eq!(fixture.found("threads", "-channel:shop").await.0.len(), 0);
    let limited = fixture.token("some", &["read"], Some(&["shop"])).await;
    let (_, page) = fixture.with("GET", "/v1/threads?q=text:hi", &limited, json!({})).await;
    assert_eq!(page["threads"].as_array().map(Vec::len), Some(2), "{page}");
    let (_, page) = fixture.with("GET", "/v1/threads?q=text:refund", &limited, json!({})).await;
    assert_eq!(page["threads"].as_array().map(Vec::len), Some(0), "{page}");
    let (status, body) = fixture.with("GET", "/v1/events?q=channel:pay", &limited, json!({})).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "a filter leads past no limit: {body}");
}

#[tokio::test]
async fn a_filter_that_cannot_be_read_says_what_there_is() {
    let fixture = Fixture::new();
    for (list, q, hint) in [
        ("events", "chanel:shop", "did you mean `channel`?"),
        ("events", "state:queued", "waiting, delivered, parked, quarantined, kept"),
        ("inbox", "state:kept", "waiting, leased, parked, quarantined"),
        ("threads", "state:parked", "`channel:`, `account:`, `text:`, `since:`, `before:`"),
        ("outbox", "type:x", "nothing this list can be filtered by"),
        ("events", "since:soon", "write how long ago"),
    ] {
        let (status, body) = fixture.get(&(url_of(list) + q)).await;
        assert_eq!((status, &body["code"]), (StatusCode::BAD_REQUEST, &json!("invalid_filter")), "{body}");
        assert!(body["detail"].as_str().expect("words").contains(hint), "{q}: {body}");
    }
    let (status, body) = fixture.get("/v1/events?channel=shop&q=channel:pay").await;
    assert_eq!((status, &body["code"]), (StatusCode::BAD_REQUEST, &json!("invalid_filter")), "{body}");
}
