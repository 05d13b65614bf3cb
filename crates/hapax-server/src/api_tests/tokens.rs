//! Who may do what, and for how long.

use super::*;
use hapax_store::prelude::*;

impl Fixture {
    pub(super) async fn with(&self, method: &str, path: &str, token: &str, body: Value) -> (StatusCode, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()));
        let (status, _, body) = self.send(request.expect("a request")).await;
        (status, body)
    }

    pub(super) async fn token(&self, name: &str, scopes: &[&str], channels: Option<&[&str]>) -> String {
        let (status, made) = self.post("/v1/tokens", json!({"name": name, "scopes": scopes, "channels": channels})).await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
        made["token"].as_str().expect("shown once").to_owned()
    }
}

/// Every route, with the scope that it takes.
const ROUTES: [(&str, &str, &str); 25] = [
    ("GET", "/v1/events", "read"),
    ("GET", "/v1/events/evt_00000000000000000000000000000009", "read"),
    ("GET", "/v1/events/evt_00000000000000000000000000000009/story", "read"),
    ("GET", "/v1/inbox", "read"),
    ("GET", "/v1/stats", "read"),
    ("GET", "/v1/channels", "read"),
    ("GET", "/v1/messages/msg_00000000000000000000000000000009", "read"),
    ("GET", "/v1/threads", "read"),
    ("GET", "/v1/threads/7__1", "read"),
    ("GET", "/v1/threads/7__1/messages", "read"),
    ("GET", "/v1/outbox", "read"),
    ("GET", "/v1/accounts", "read"),
    ("POST", "/v1/messages", "send"),
    ("POST", "/v1/messages/msg_00000000000000000000000000000009/retry", "send"),
    ("POST", "/v1/messages/msg_00000000000000000000000000000009/cancel", "send"),
    ("POST", "/v1/threads/7__1/read", "send"),
    ("POST", "/v1/pull", "work"),
    ("POST", "/v1/settle", "work"),
    ("POST", "/v1/extend", "work"),
    ("POST", "/v1/events/evt_00000000000000000000000000000009/replay", "admin"),
    ("POST", "/v1/redrive", "admin"),
    ("POST", "/v1/purge", "admin"),
    ("POST", "/v1/channels/shop/trigger", "admin"),
    ("POST", "/v1/accounts/shop/7/resume", "admin"),
    ("GET", "/v1/tokens", "admin"),
];

#[tokio::test]
async fn every_route_takes_its_scope_and_admin_takes_all() {
    let fixture = Fixture::new();
    for scope in ["read", "send", "work", "admin"] {
        let token = fixture.token(scope, &[scope], None).await;
        for (method, path, needed) in ROUTES {
            let (status, body) = fixture.with(method, path, &token, json!({})).await;
            let refused = status == StatusCode::FORBIDDEN;
            assert_eq!(refused, scope != needed && scope != "admin", "{scope}: {method} {path}: {body}");
            if refused {
                let either = if needed == "admin" { "" } else { " (or `admin`)" };
                let takes = format!("scope `{needed}`{either}, and");
                assert!(body["detail"].as_str().is_some_and(|detail| detail.contains(&takes)), "{body}");
            }
        }
    }
}

#[tokio::test]
async fn a_token_is_shown_once_listed_without_it_and_gone_when_revoked() {
    let fixture = Fixture::new();
    let token = fixture.token("dashboard", &["read"], Some(&["shop"])).await;
    assert!(token.starts_with("hpx_") && token.len() > 60);
    let kept = fixture.store.amend("tokens", None, None, None).await.expect("readable").expect("there");
    assert!(!kept.contains(&token[4..]), "only a hash is stored");
    assert_eq!(fixture.with("GET", "/v1/events", &token, json!({})).await.0, StatusCode::OK);
    let (_, listed) = fixture.get("/v1/tokens").await;
    let one = &listed["tokens"][0];
    assert_eq!((&one["name"], &one["scopes"], &one["channels"]), (&json!("dashboard"), &json!(["read"]), &json!(["shop"])));
    assert!(!listed.to_string().contains(&token));

    let again = json!({"name": "dashboard", "scopes": ["read"]});
    assert_eq!(fixture.post("/v1/tokens", again).await.0, StatusCode::CONFLICT);
    for odd in [
        json!({"name": "X", "scopes": ["read"]}),
        json!({"name": "x", "scopes": []}),
        json!({"name": "x", "scopes": ["reed"]}),
        json!({"name": "x", "scopes": ["read"], "channels": []}),
        json!({"name": "x", "scopes": ["read"], "channels": ["nope"]}),
    ] {
        assert_eq!(fixture.post("/v1/tokens", odd.clone()).await.0, StatusCode::BAD_REQUEST, "{odd}");
    }

    let (status, _) = fixture.with("DELETE", "/v1/tokens/dashboard", TOKEN, json!({})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(fixture.with("GET", "/v1/events", &token, json!({})).await.0, StatusCode::UNAUTHORIZED, "at once");
    assert_eq!(fixture.with("DELETE", "/v1/tokens/dashboard", TOKEN, json!({})).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_token_revoked_elsewhere_stops_working_within_seconds_and_the_store_is_not_asked_each_time() {
    let fixture = Fixture::new();
    let token = fixture.token("bot", &["read"], None).await;
    assert_eq!(fixture.with("GET", "/v1/inbox", &token, json!({})).await.0, StatusCode::OK);
    tokio::task::yield_now().await;
    let before = fixture.store.amend("tokens", None, None, None).await.expect("readable").expect("there");
    fixture.store.amend("tokens", Some(&before), Some("{\"tokens\":[]}"), None).await.expect("another instance revokes it");
    assert_eq!(fixture.with("GET", "/v1/inbox", &token, json!({})).await.0, StatusCode::OK, "the list is fresh enough");
    fixture.clock.0.fetch_add(3_000, Ordering::SeqCst);
    assert_eq!(fixture.with("GET", "/v1/inbox", &token, json!({})).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn the_last_use_is_noted_now_and_then() {
    let fixture = Fixture::new();
    let token = fixture.token("bot", &["read"], None).await;
    let used_at = async || fixture.get("/v1/tokens").await.1["tokens"][0]["used_at"].clone();
    assert_eq!(used_at().await, Value::Null);
    fixture.with("GET", "/v1/inbox", &token, json!({})).await;
    let first = loop {
        match used_at().await {
            Value::Null => tokio::task::yield_now().await,
            at => break at,
        }
    };
    fixture.clock.0.fetch_add(30_000, Ordering::SeqCst);
    fixture.with("GET", "/v1/inbox", &token, json!({})).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(used_at().await, first, "within a minute nothing is written");
}

#[tokio::test]
async fn a_token_of_some_channels_sees_and_does_only_theirs() {
    let fixture = Fixture::new();
    let event = fixture.accept("m1", Disposition::Deliver).await;
    let other = fixture.token("helper", &["admin"], Some(&["help", "pay"])).await;
    let only = fixture.token("payer", &["admin"], Some(&["pay"])).await;
    for token in [&other, &only] {
        let get = async |path: &str| fixture.with("GET", path, token, json!({})).await;
        assert_eq!(get("/v1/events").await.1["events"], json!([]));
        assert_eq!(get("/v1/inbox").await.1["items"], json!([]));
        assert_eq!(get("/v1/threads").await.1["threads"], json!([]));
        assert_eq!(get("/v1/events?channel=shop").await.0, StatusCode::FORBIDDEN);
        for hidden in [format!("/v1/events/{event}"), format!("/v1/events/{event}/story"), "/v1/threads/7__55119".to_owned()] {
            assert_eq!(get(&hidden).await.0, StatusCode::NOT_FOUND, "{hidden}");
        }
        let (_, stats) = get("/v1/stats").await;
        assert_eq!((&stats["channels"], &stats["events"]), (&json!([]), &Value::Null), "{stats}");
        assert!(!get("/v1/channels").await.1.to_string().contains("shop"));
        for (path, body) in [
            (format!("/v1/events/{event}/replay"), json!({})),
            ("/v1/redrive".to_owned(), json!({"channel": "shop"})),
            ("/v1/redrive".to_owned(), json!({"event": event})),
            ("/v1/redrive".to_owned(), json!({"all": true})),
            ("/v1/purge".to_owned(), json!({})),
            ("/v1/channels/shop/trigger".to_owned(), json!({"kind": "text", "nonce": 1})),
            ("/v1/accounts/shop/7/resume".to_owned(), json!({})),
            ("/v1/messages".to_owned(), json!({"channel": "shop", "account": "7", "to": "55", "text": "x"})),
            ("/v1/tokens".to_owned(), json!({"name": "more", "scopes": ["admin"]})),
            ("/v1/threads/7__55119/read".to_owned(), json!({})),
        ] {
            let (status, said) = fixture.with("POST", &path, token, body).await;
            assert!([StatusCode::FORBIDDEN, StatusCode::NOT_FOUND].contains(&status), "{path}: {status} {said}");
        }
    }
    let own = fixture.token("shopper", &["read"], Some(&["shop", "pay"])).await;
    assert_eq!(fixture.with("GET", "/v1/events", &own, json!({})).await.1["events"][0]["id"], json!(event));
    assert_eq!(fixture.with("GET", &format!("/v1/events/{event}/story"), &own, json!({})).await.0, StatusCode::OK);
}

#[tokio::test]
async fn wrong_tokens_are_answered_later_and_later_and_right_ones_at_once() {
    let fixture = Fixture::new();
    let mut took = Vec::new();
    for _ in 0..4 {
        let begun = tokio::time::Instant::now();
        assert_eq!(fixture.with("GET", "/v1/inbox", "a-wrong-guess", json!({})).await.0, StatusCode::UNAUTHORIZED);
        took.push(begun.elapsed().as_millis());
    }
    assert!(took[3] >= 250, "{took:?}");
    let mut fifth = std::pin::pin!(fixture.with("GET", "/v1/inbox", "a-wrong-guess", json!({})));
    assert!(futures_util::poll!(&mut fifth).is_pending());
    assert_eq!(fixture.get("/v1/inbox").await.0, StatusCode::OK, "a right one does not wait behind it");
    assert!(futures_util::poll!(&mut fifth).is_pending());
}

/// Two channels of one account and one person: a token of one of them sees what that channel heard and said, and nothing else.
#[tokio::test]
async fn a_token_sees_only_its_channels_part_of_a_shared_thread() {
    let fixture = Fixture::new();
    let own = fixture.accept_on("shop", "m1", Disposition::Deliver).await;
    fixture.clock.0.fetch_add(60_000, Ordering::SeqCst);
    for n in 0..3 {
        fixture.accept_on("phone", &format!("p{n}"), Disposition::Deliver).await;
    }
    let shop = fixture.token("shopper", &["read", "send"], Some(&["shop"])).await;
    let phone = fixture.token("phoner", &["read", "send"], Some(&["phone"])).await;
    let thread = async |token: &str| fixture.with("GET", "/v1/threads/7__55119", token, json!({})).await.1;
    let entries = async |token: &str| {
        let (_, page) = fixture.with("GET", "/v1/threads/7__55119/messages", token, json!({})).await;
        page["messages"].as_array().expect("a list").iter().map(|row| row["text"].clone()).collect::<Vec<_>>()
    };
    let seen = thread(&shop).await;
    assert_eq!(
        (&seen["last_message_text"], &seen["unread"], &seen["channel"]),
        (&json!("shop hears m1"), &json!(1), &json!("shop"))
    );
    assert_eq!(entries(&shop).await, ["shop hears m1"]);
    let seen = thread(&phone).await;
    assert_eq!((&seen["unread"], &seen["channel"]), (&json!(3), &json!("phone")), "although the other channel was first");
    assert_eq!(entries(&phone).await, ["phone hears p2", "phone hears p1", "phone hears p0"]);
    let (_, listed) = fixture.with("GET", "/v1/threads", &shop, json!({})).await;
    assert!(listed["threads"][0]["last_message_text"] == "shop hears m1" && !listed.to_string().contains("phone"), "{listed}");
    let both = fixture.token("both", &["read"], Some(&["shop", "phone"])).await;
    assert_eq!((&thread(&both).await["unread"], entries(&both).await.len()), (&json!(4), 4));

    let read = async |token: &str| fixture.with("POST", "/v1/threads/7__55119/read", token, json!({})).await.0;
    assert_eq!(read(&shop).await, StatusCode::FORBIDDEN, "it would mark the other's as read");
    assert_eq!(fixture.with("GET", &format!("/v1/events/{own}"), &phone, json!({})).await.0, StatusCode::NOT_FOUND);
}

/// A thread is listed for everybody who has a part in it, whoever began it; and nobody else.
#[tokio::test]
async fn a_token_finds_its_part_of_a_thread_that_another_channel_began() {
    let fixture = Fixture::new();
    for n in 0..7 {
        fixture.clock.0.fetch_add(1_000, Ordering::SeqCst);
        fixture.hear("shop", &format!("s{n}"), &format!("5511{n}"), &[], Disposition::Deliver).await;
    }
    for n in [1, 4] {
        fixture.hear("phone", &format!("p{n}"), &format!("5511{n}"), &[], Disposition::Deliver).await;
    }
    let phone = fixture.token("phoner", &["read"], Some(&["phone"])).await;
    for path in ["/v1/threads?limit=1", "/v1/threads?limit=1&channel=phone", "/v1/threads?limit=1&account=7"] {
        let (mut before, mut seen) = (String::new(), Vec::new());
        loop {
            let (status, page) = fixture.with("GET", &format!("{path}{before}"), &phone, json!({})).await;
            assert_eq!(status, StatusCode::OK, "{page}");
            seen.extend(page["threads"].as_array().expect("a list").iter().map(|row| row["last_message_text"].clone()));
            let Some(next) = page["next"].as_str() else { break };
            before = format!("&cursor={next}");
        }
        assert_eq!(seen, ["phone hears p4", "phone hears p1"], "{path}");
    }
    let pay = fixture.token("payer", &["read"], Some(&["pay"])).await;
    assert_eq!(fixture.with("GET", "/v1/threads", &pay, json!({})).await.1["threads"], json!([]));
}

/// That two names are one person's is the knowledge of the channel that learned it.
#[tokio::test]
async fn a_token_does_not_learn_whose_a_name_is_from_another_channel() {
    let fixture = Fixture::new();
    fixture.hear("shop", "s1", "55119", &["lid77"], Disposition::Deliver).await;
    fixture.hear("phone", "p1", "lid77", &[], Disposition::Deliver).await;
    let phone = fixture.token("phoner", &["read", "send"], Some(&["phone"])).await;
    let pay = fixture.token("payer", &["read"], Some(&["pay"])).await;
    let both = fixture.token("both", &["read"], Some(&["shop", "phone"])).await;
    let get = async |path: &str, token: &str| fixture.with("GET", path, token, json!({})).await;
    for (token, found) in [(&phone, "7__lid77"), (&both, "7__55119")] {
        let (_, listed) = get("/v1/threads", token).await;
        assert_eq!(listed["threads"][0]["id"], json!(found));
        assert_eq!(get(&format!("/v1/threads/{found}"), token).await.1["id"], json!(found));
    }
    assert_eq!(get("/v1/threads/7__lid77", &both).await.0, StatusCode::OK, "it is told of both names");
    for (path, token) in [
        ("/v1/threads/7__55119", &phone),
        ("/v1/threads/7__55119/messages", &phone),
        ("/v1/threads/7__55119", &pay),
        ("/v1/threads/7__lid77", &pay),
    ] {
        assert_eq!(get(path, token).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    let (_, said) = get("/v1/threads/7__lid77/messages", &phone).await;
    assert_eq!((said["messages"].as_array().map(Vec::len), &said["messages"][0]["text"]), (Some(1), &json!("phone hears p1")));
    assert!(!get("/v1/threads", &phone).await.1.to_string().contains("55119"));
}

/// An account in which the token's channels never spoke is nobody's: not even a cursor tells how many threads others have there.
#[tokio::test]
async fn a_list_counts_nothing_of_what_it_does_not_show() {
    let fixture = Fixture::new();
    fixture.hear("phone", "p", "5511", &[], Disposition::Deliver).await;
    fixture.hear("shop", "s", "5511", &[], Disposition::Deliver).await;
    for n in 0..30 {
        fixture.clock.0.fetch_add(1_000, Ordering::SeqCst);
        fixture.hear_in("8", "shop", &format!("a{n}"), &format!("5511{n}"), &[], Disposition::Deliver).await;
        fixture.hear("shop", &format!("s{n}"), &format!("5511{n}"), &[], Disposition::Deliver).await;
    }
    let phone = fixture.token("phoner", &["read"], Some(&["phone"])).await;
    let page = async |path: &str| fixture.with("GET", path, &phone, json!({})).await.1;
    assert_eq!(page("/v1/threads?limit=1&account=8").await, json!({"threads": []}));
    for path in ["/v1/threads?limit=1", "/v1/threads?limit=1&account=7", "/v1/threads?limit=1&channel=phone"] {
        let page = page(path).await;
        assert_eq!(page["threads"][0]["last_message_text"], "phone hears p", "{path}: {page}");
        assert!(page.get("next").is_none(), "{path}: {page}");
    }
}

/// Looking through others' threads has an end, and what the token's own channels began is found behind any number of them.
#[tokio::test]
async fn what_a_channel_began_is_listed_behind_any_number_of_others() {
    let fixture = Fixture::new();
    for n in 0..2 {
        fixture.clock.0.fetch_add(1_000, Ordering::SeqCst);
        fixture.hear("phone", &format!("p{n}"), &format!("4411{n}"), &[], Disposition::Deliver).await;
    }
    for n in 0..300 {
        fixture.clock.0.fetch_add(1_000, Ordering::SeqCst);
        fixture.hear("shop", &format!("s{n}"), &format!("5511{n}"), &[], Disposition::Deliver).await;
    }
    let phone = fixture.token("phoner", &["read"], Some(&["phone"])).await;
    let (mut before, mut seen) = (String::new(), Vec::new());
    loop {
        let (_, page) = fixture.with("GET", &format!("/v1/threads?limit=1{before}"), &phone, json!({})).await;
        let rows = page["threads"].as_array().expect("a list");
        assert!(!rows.is_empty(), "no page without a row: {page}");
        seen.extend(rows.iter().map(|row| row["peer"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        before = format!("&cursor={next}");
    }
    assert_eq!(seen, ["44111", "44110"]);
}

/// Whoever is alone in a thread knows all its names, however long it is and whether the person ever wrote under them.
#[tokio::test]
async fn a_thread_of_ones_own_is_found_by_any_name() {
    let fixture = Fixture::new();
    fixture.hear("phone", "p", "55119", &["lid77"], Disposition::Deliver).await;
    for n in 0..501 {
        fixture.hear("phone", &format!("p{n}"), "55119", &[], Disposition::Deliver).await;
    }
    let phone = fixture.token("phoner", &["read"], Some(&["phone"])).await;
    for id in ["7__55119", "7__lid77"] {
        assert_eq!(fixture.with("GET", &format!("/v1/threads/{id}"), &phone, json!({})).await.0, StatusCode::OK, "{id}");
    }
    fixture.hear("shop", "s", "55119", &["hidden"], Disposition::Deliver).await;
    for (id, status) in [("7__55119", StatusCode::OK), ("7__hidden", StatusCode::NOT_FOUND)] {
        assert_eq!(fixture.with("GET", &format!("/v1/threads/{id}"), &phone, json!({})).await.0, status, "{id}");
    }
}

/// In a shared thread a name is known to whoever heard from it or wrote to it.
#[tokio::test]
async fn a_name_that_a_channel_wrote_to_is_known_to_it() {
    let fixture = Fixture::new();
    fixture.hear("phone", "p1", "55119", &["55177", "55188"], Disposition::Deliver).await;
    fixture.queue("55177", "r1").await;
    fixture.hear("shop", "s1", "55119", &[], Disposition::Deliver).await;
    let shop = fixture.token("shopper", &["read"], Some(&["shop"])).await;
    for (id, status) in [("7__55119", StatusCode::OK), ("7__55177", StatusCode::OK), ("7__55188", StatusCode::NOT_FOUND)] {
        assert_eq!(fixture.with("GET", &format!("/v1/threads/{id}"), &shop, json!({})).await.0, status, "{id}");
    }
}

#[tokio::test]
async fn a_token_of_some_channels_hears_no_figures_of_all() {
    let fixture = Fixture::new();
    fixture.accept("m1", Disposition::Deliver).await;
    fixture.post("/v1/purge", json!({})).await;
    let shop = fixture.token("shopper", &["read"], Some(&["shop"])).await;
    let (_, stats) = fixture.with("GET", "/v1/stats", &shop, json!({})).await;
    for figure in ["keys", "events", "store_bytes", "log_bytes", "memory", "last_purge", "outbox"] {
        assert_eq!(stats[figure], Value::Null, "{figure}: {stats}");
    }
    assert_eq!(stats["channels"].as_array().map(Vec::len), Some(1), "{stats}");
    let (_, stats) = fixture.get("/v1/stats").await;
    assert!(!stats["memory"].is_null() && !stats["last_purge"].is_null(), "{stats}");
}

/// A request id that the other channel of the account has used is free, and tells nothing of it.
#[tokio::test]
async fn a_token_hears_nothing_of_the_other_channels_request_ids() {
    let fixture = Fixture::new();
    let mut made = Vec::new();
    for channel in ["shop", "phone"] {
        let token = fixture.token(channel, &["read", "send"], Some(&[channel])).await;
        let send = json!({"channel": channel, "account": "7", "to": "55119", "text": channel, "request_id": "order-1"});
        for replayed in [false, true] {
            let (status, receipt) = fixture.with("POST", "/v1/messages", &token, send.clone()).await;
            assert!(status.is_success(), "{receipt}");
            assert_eq!((&receipt["replayed"], &receipt["request_id"]), (&json!(replayed), &json!("order-1")));
            made.push(receipt["id"].clone());
        }
        let (_, shown) = fixture.with("GET", "/v1/outbox", &token, json!({})).await;
        let items = shown["items"].as_array().expect("a list");
        assert_eq!((items.len(), &items[0]["request_id"], &items[0]["channel"]), (1, &json!("order-1"), &json!(channel)));
    }
    assert!(made[0] == made[1] && made[2] == made[3] && made[0] != made[2]);
}

/// Pages of a token of several channels are full: nothing tells how much there is of others. Their cursors lead nowhere else.
#[tokio::test]
async fn pages_and_cursors_tell_nothing_of_other_channels() {
    let fixture = Fixture::new();
    for n in 0..12 {
        fixture.accept_on(["shop", "phone", "help"][n % 3], &format!("m{n}"), Disposition::Deliver).await;
    }
    let token = fixture.token("two", &["read"], Some(&["shop", "help"])).await;
    let other = fixture.token("two-more", &["read"], Some(&["shop", "help"])).await;
    for (list, rows) in [("events", "events"), ("inbox", "items")] {
        let (mut path, mut seen) = (format!("/v1/{list}?limit=1"), Vec::new());
        loop {
            let (status, page) = fixture.with("GET", &path, &token, json!({})).await;
            assert_eq!((status, page[rows].as_array().map(Vec::len)), (StatusCode::OK, Some(1)), "{page}");
            seen.push(page[rows][0]["channel"].clone());
            let Some(next) = page["next"].as_str() else { break };
            path = format!("/v1/{list}?limit=1&cursor={next}");
            let elsewhere = format!("/v1/{}?cursor={next}", if list == "inbox" { "events" } else { "inbox" });
            for (path, token) in [(&path, &other), (&path, &TOKEN.to_owned()), (&elsewhere, &token)] {
                assert_eq!(fixture.with("GET", path, token, json!({})).await.0, StatusCode::BAD_REQUEST, "{path}");
            }
        }
        assert!(seen.len() == 8 && seen.iter().all(|channel| channel != "phone"), "{seen:?}");
    }
}

/// The start could not ask the store: whoever first shows a token has it asked.
#[tokio::test]
async fn a_made_token_is_forgotten_later_when_the_store_was_away_at_the_start() {
    let fixture = Fixture::new();
    fixture
        .store
        .remember(auth::MADE_TOKEN, &hex::encode(auth::hash_token("made at the first start")))
        .await
        .expect("remembered");
    assert_eq!(fixture.with("GET", "/v1/inbox", "made at the first start", json!({})).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(
        fixture.store.amend(auth::MADE_TOKEN, None, None, None).await.expect("readable"),
        None,
        "the operator's own is set"
    );
}
