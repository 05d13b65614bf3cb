//! What people and strangers do at the pages: odd names, what is hidden, tokens of less, a session that is over, the same click twice.

use hapax_domain::Status;
use hapax_store::SendOutcome;

use super::*;

const THREAD: &str = "/threads/7__55119";

fn in_form(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Where the first link leads that begins so.
fn link(html: &str, beginning: &str) -> String {
    let (_, rest) = html.split_once(&format!("href=\"{beginning}")).unwrap_or_else(|| panic!("no link to {beginning}: {html}"));
    format!("{beginning}{}", rest.split('"').next().expect("its end").replace("&amp;", "&"))
}

#[tokio::test]
async fn threads_of_odd_names_are_found_read_and_taken_over() {
    let long = "y".repeat(255);
    let odd = [
        "..",
        ".",
        "a/b",
        "../a",
        "a%2Fb",
        "%2e%2e",
        "日本語",
        "\u{202e}gnp",
        "two words",
        "a \"quote\" \\",
        "a?b#c&d=e;f",
        "+1 (555)",
        "ü\u{301}",
        "\\",
        "'",
        "<b>",
        &long,
    ];
    for peer in odd {
        let fixture = Fixture::new();
        let event = fixture.hear("shop", "m1", peer, &[], Disposition::Deliver).await;
        let browser = fixture.signed_in(TOKEN).await;
        let path = link(&browser.get("/threads").await.text, "/threads/");
        let chat = browser.get(&path).await;
        assert!(chat.status == StatusCode::OK && chat.text.contains("shop hears m1"), "{peer}: {}", chat.text);
        let events = browser.get(&link(&chat.text, "/events?q=")).await.text;
        assert!(events.contains(&format!("data-key=\"{event}\"")), "{peer}: {events}");
        let back = browser.get(&link(&browser.get(&format!("/events/{event}")).await.text, "/events?q=thread")).await.text;
        assert!(back.contains(&format!("data-key=\"{event}\"")), "{peer}: {back}");
        for (verb, words) in [("pause", "Hand back to the bot"), ("resume", "Take over"), ("read", "Take over")] {
            let done = browser.post(&format!("{path}/{verb}"), "mode=wait").await;
            assert_eq!((done.status, done.to()), (StatusCode::SEE_OTHER, path.as_str()), "{peer}: {verb}: {}", done.text);
            assert!(browser.get(&path).await.text.contains(words), "{peer}: {verb}");
        }
        // None of them is a number that WhatsApp could send to: what was written stays in the box.
        let refused = browser.post(&format!("{path}/send"), "text=ok&request_id=r1").await;
        assert!(refused.status.is_client_error() && refused.text.contains("\nok</textarea>"), "{peer}: {}", refused.text);
    }
}

#[tokio::test]
async fn an_account_of_an_odd_name_sends_again_and_no_other_does() {
    let fixture = Fixture::new();
    for account in ["..", "a/b", "other"] {
        fixture.store.pause_account("shop", account, Some("it rests")).await.expect("paused");
    }
    let browser = fixture.signed_in(TOKEN).await;
    for (account, left) in [("..", 2), ("a/b", 1)] {
        let form = format!("channel=shop&account={}", in_form(account));
        assert!(browser.get("/accounts").await.text.contains(&format!("name=\"account\" value=\"{account}\"")));
        let done = browser.post("/accounts/resume", &form).await;
        assert_eq!((done.status, done.to()), (StatusCode::SEE_OTHER, "/accounts"), "{}", done.text);
        assert_eq!(fixture.store.paused_accounts().await.expect("listed").len(), left);
    }
    let audit = browser.get("/audit").await.text;
    assert!(audit.contains("account resume") && audit.contains("shop a/b"), "{audit}");
}

#[tokio::test]
async fn who_was_slower_is_told_so_on_the_page() {
    let fixture = Fixture::new();
    let browser = fixture.signed_in(TOKEN).await;
    for (path, form) in [
        ("/accounts/resume", "channel=shop&account=7"),
        ("/claims/delete", "key=night&scope=jobs"),
        ("/claims/end", "key=night&scope=jobs"),
        ("/tokens/gone/revoke", ""),
    ] {
        let done = browser.post(path, form).await;
        assert_eq!(done.status, StatusCode::SEE_OTHER, "{path}: {}", done.text);
        assert!(
            done.cookies().iter().any(|cookie| cookie.starts_with("hapax_flash=LQ") || cookie.starts_with("hapax_flash=L")),
            "{path}"
        );
    }
}

#[tokio::test]
async fn two_people_at_one_message_leave_it_sent_once_more_or_given_up() {
    for turned in [false, true] {
        let fixture = Fixture::new();
        fixture.accept("m1", Disposition::Deliver).await;
        let id = fixture.queue("55119", "r1").await;
        fixture.end_message(SendOutcome::Unknown { why: "cut".to_owned(), check_ms: None }).await;
        let (one, other) = (fixture.signed_in(TOKEN).await, fixture.signed_in(TOKEN).await);
        let (retry, cancel) = (format!("/messages/{id}/retry"), format!("/messages/{id}/cancel"));
        let (first, second) = if turned { (&cancel, &retry) } else { (&retry, &cancel) };
        let (first, second) = tokio::join!(one.post(first, ""), other.post(second, ""));
        assert_eq!((first.status, second.status), (StatusCode::SEE_OTHER, StatusCode::SEE_OTHER));
        let (_, message) = fixture.get(&format!("/v1/messages/{id}")).await;
        let status = message["status"].as_str().expect("a status");
        // What is in line once more and then given up was in the air before: it stays in doubt, or waits, and never counts as failed.
        assert!([Status::Queued.name(), Status::Unknown.name()].contains(&status), "{message}");
        for press in [&retry, &cancel, &retry, &cancel] {
            assert_eq!(one.post(press, "").await.status, StatusCode::SEE_OTHER, "{press}");
        }
    }
}

#[tokio::test]
async fn a_double_click_replays_once() {
    let fixture = Fixture::new();
    let id = fixture.accept("m1", Disposition::Keep).await;
    let browser = fixture.signed_in(TOKEN).await;
    let page = browser.get(&format!("/events/{id}")).await.text;
    let word = page.split("name=\"once\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a word of its own");
    let (path, form) = (format!("/events/{id}/replay"), format!("once={word}"));
    for _ in 0..3 {
        assert_eq!(browser.post(&path, &form).await.status, StatusCode::SEE_OTHER);
    }
    assert_eq!(fixture.get("/v1/inbox").await.1["items"].as_array().map(Vec::len), Some(1));
    assert!(!browser.get(&format!("/events/{id}")).await.text.contains(word), "the next page may replay it again");
}

#[tokio::test]
async fn what_was_written_is_not_lost_with_the_session() {
    let fixture = Fixture::new();
    fixture.accept("m1", Disposition::Deliver).await;
    let mut browser = fixture.signed_in(TOKEN).await;
    browser.post("/sign-out", "").await;
    let written = "a long answer </textarea><script>alert(1)</script>\r\nwith two lines";
    let form = format!("request_id=r1&text={}", in_form(written));
    let seen = browser.post(&format!("{THREAD}/send"), &form).await;
    assert_eq!(seen.status, StatusCode::UNAUTHORIZED);
    let shown = "a long answer &lt;/textarea&gt;&lt;script&gt;alert(1)&lt;/script&gt;\nwith two lines</textarea>";
    assert!(seen.text.contains(shown) && seen.text.contains("Nothing was done"), "{}", seen.text);
    assert!(seen.text.contains(&format!("name=\"next\" value=\"{THREAD}\"")), "{}", seen.text);
    assert_eq!(fixture.get("/v1/outbox").await.1["items"], json!([]));
    // Of any other form nothing is shown again, and one comes back to its page.
    let own = [("sec-fetch-site", "same-origin"), ("referer", "http://127.0.0.1:4272/parked?q=text:a")];
    let seen = browser.post_from("/tokens", "name=a-hidden-word", &own).await;
    assert_eq!(seen.status, StatusCode::UNAUTHORIZED);
    assert!(!seen.text.contains("a-hidden-word") && seen.text.contains("value=\"/parked?q=text:a\""), "{}", seen.text);
    let other = [("sec-fetch-site", "same-origin"), ("referer", "http://evil.example//evil.example/x")];
    assert!(browser.post_from("/tokens", "", &other).await.text.contains("name=\"next\" value=\"/\""));
    browser.cookie = Some("hapax=made-up".to_owned());
    assert_eq!(browser.post("/events/evt_1/replay", "").await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_problem_keeps_the_menu_of_who_has_signed_in() {
    let fixture = Fixture::new();
    let browser = fixture.signed_in(TOKEN).await;
    for path in ["/events/evt_00000000000000000000000000000009", "/threads/7__nobody", "/channels/nowhere", "/events/7"] {
        let seen = browser.get(path).await;
        assert!(seen.status.is_client_error() && seen.text.contains("Sign out everywhere"), "{path}: {}", seen.text);
        assert!(!seen.text.contains("aria-current"), "it is none of the pages");
    }
}

#[tokio::test]
async fn more_than_go_back_at_once_are_told_to_be_left() {
    let fixture = Fixture::new();
    const MANY: usize = 10_001;
    let event = |n: usize| {
        let key = EventKey::new("whatsapp", "7", Kind::Message, &format!("m{n}"), &[]);
        let event = Event { peer: Some(format!("{n}")), ..Event::new(Kind::Message, "7", &format!("m{n}"), key, 1) };
        NewEvent { event, disposition: Disposition::Deliver }
    };
    for from in (0..MANY).step_by(500) {
        let arrival = Arrival {
            channel: "shop".into(),
            window_ms: 691_200_000,
            headers: KeptHeaders::default(),
            body: Bytes::from_static(b"{}"),
            events: (from..MANY.min(from + 500)).map(event).collect(),
            coalesce: None,
        };
        fixture.store.accept(arrival.into()).await.expect("accepted");
    }
    let ask = LeaseRequest {
        worker: "w1".into(),
        wants: vec![("shop".into(), MANY)],
        resting: Vec::new(),
        hold_ms: 60_000,
        outside: false,
    };
    for lease in fixture.store.lease_inbox(ask).await.expect("leased") {
        let parked = Outcome::Parked { why: "404".to_owned(), charged: true };
        fixture.store.settle_inbox(lease.lane, lease.fence, parked).await.expect("settled");
    }
    let browser = fixture.signed_in(TOKEN).await;
    assert!(browser.get("/parked").await.text.contains("Redrive 10\u{202f}001 of shop"));
    browser.post("/parked/redrive", "channel=shop").await;
    let audit = browser.get("/audit").await.text;
    assert!(audit.contains("10000 in line again"), "{audit}");
    let page = browser.get("/parked").await.text;
    assert!(page.contains("Redrive 1 of shop"), "{page}");
}

#[tokio::test]
async fn days_of_a_chat_are_those_of_its_reader() {
    let fixture = Fixture::new();
    // At 22:13 in UTC, three hours ago.
    fixture.accept("m1", Disposition::Deliver).await;
    fixture.clock.0.fetch_add(3 * 3_600_000, Ordering::SeqCst);
    let mut browser = fixture.signed_in(TOKEN).await;
    let session = browser.cookie.clone().expect("a cookie");
    for (zone, day) in [
        ("", "Yesterday"),
        ("120", "Today"),
        ("-480", "Today"),
        ("0", "Yesterday"),
        ("99999999999999999999", "Yesterday"),
        ("x", "Yesterday"),
    ] {
        browser.cookie = Some(format!("{session}; hapax_zone={zone}"));
        let seen = browser.get(THREAD).await.text;
        assert!(seen.contains(&format!(">{day}</time>")), "{zone}: {seen}");
    }
}

/// What is done by forms, with forms that are whole: to an event, a message, a thread, a claim and an account of the channel `shop`.
fn deeds(event: &str, message: &str) -> Vec<(String, &'static str)> {
    let of = |path: &str, form| (path.to_owned(), form);
    vec![
        of(&format!("/events/{event}/replay"), ""),
        of(&format!("/events/{event}/redrive"), ""),
        of(&format!("{THREAD}/send"), "text=ok&request_id=r9"),
        of(&format!("{THREAD}/pause"), "mode=done"),
        of(&format!("{THREAD}/resume"), ""),
        of(&format!("{THREAD}/read"), ""),
        of(&format!("/messages/{message}/retry"), ""),
        of(&format!("/messages/{message}/cancel"), ""),
        of("/outbox/retry", "q=&until=99999999999999"),
        of("/outbox/cancel", "q=&until=99999999999999"),
        of("/parked/redrive", "channel=shop"),
        of("/parked/redrive", "all=true"),
        of("/parked/redrive", "q=channel:shop&until=99999999999999"),
        of("/claims/delete", "key=night&scope=jobs"),
        of("/claims/end", "key=night&scope=jobs"),
        of("/claims/all/delete", "until=99999999999999"),
        of("/claims/all/end", "until=99999999999999"),
        of("/accounts/resume", "channel=shop&account=7"),
        of("/accounts/all/resume", "until=99999999999999"),
        of("/channels/shop/trigger", "kind=whatsapp.text"),
        of("/new-channel", "provider=stripe&name=x"),
        of("/new-channel/write", "provider=stripe&name=x"),
        of("/tokens", "name=x&scope_admin=1"),
        of("/tokens/viewer/revoke", ""),
    ]
}

#[tokio::test]
async fn a_token_of_less_does_nothing_by_any_form() {
    let fixture = Fixture::new();
    let event = fixture.accept("m1", Disposition::Deliver).await;
    fixture.settle(Outcome::Parked { why: "404".to_owned(), charged: true }).await;
    let message = fixture.queue("55119", "r1").await;
    fixture.end_message(SendOutcome::Unknown { why: "cut".to_owned(), check_ms: None }).await;
    fixture.store.pause_account("shop", "7", Some("it rests")).await.expect("paused");
    let (status, _) = fixture.post("/v1/claims", json!({"key": "night", "scope": "jobs", "lease": "10m"})).await;
    assert!(status.is_success());
    let tokens = [
        fixture.token("viewer", &["read"], None).await,
        fixture.token("worker", &["read", "work"], None).await,
        fixture.token("pay-sender", &["read", "send"], Some(&["pay"])).await,
        fixture.token("pay-admin", &["read", "send", "work", "admin"], Some(&["pay"])).await,
    ];
    let state = async || {
        let mut all = Vec::new();
        for path in ["/v1/inbox", "/v1/outbox", "/v1/accounts", "/v1/claims", "/v1/threads", "/v1/events"] {
            all.push(fixture.get(path).await.1);
        }
        all.push(json!(fixture.get("/v1/tokens").await.1["tokens"].as_array().map(Vec::len)));
        all
    };
    let before = state().await;
    for (place, token) in tokens.iter().enumerate() {
        let browser = fixture.signed_in(token).await;
        for (path, form) in deeds(&event, &message) {
            let seen = browser.post(&path, form).await;
            if place < 2 {
                assert_eq!(seen.status, StatusCode::FORBIDDEN, "{path}: {}", seen.text);
            }
            assert_eq!(state().await, before, "{place}: {path} {form}: {} {}", seen.status, seen.text);
        }
        for path in ["/settings", "/audit", "/tokens"] {
            assert_eq!(browser.get(path).await.status, StatusCode::FORBIDDEN, "{place}: {path}");
        }
        for path in ["/new-channel", &format!("/events/{event}"), THREAD, "/channels/shop"] {
            let seen = browser.get(path).await;
            assert!(place < 2 || !seen.status.is_success(), "{place}: {path}: {}", seen.text);
        }
    }
}

#[tokio::test]
async fn what_is_hidden_is_hidden_on_every_page() {
    let fixture = Fixture::made(|store| Arc::new(store), |api| api.hide_payloads = true);
    // What is said: `hears` in the text, `hi` in the body and in what is sent, and what the provider says of it.
    let event = fixture.accept("m1", Disposition::Deliver).await;
    fixture.settle(Outcome::Parked { why: "404".to_owned(), charged: true }).await;
    let mut ids = Vec::new();
    for (request, outcome) in [
        ("r1", SendOutcome::Failed { why: "wordofprovider is no text".to_owned() }),
        ("r2", SendOutcome::Unknown { why: "wordofprovider, perhaps".to_owned(), check_ms: None }),
        ("r3", SendOutcome::Retry { wait_ms: 9_000, why: "wordofprovider later".to_owned(), charged: true }),
    ] {
        let ask = json!({"account": "7", "channel": "shop", "to": "55119", "text": "wordofours", "request_id": request});
        let (_, _, message) = fixture.submit(&[], &ask).await;
        ids.push(message["id"].as_str().expect("an id").to_owned());
        fixture.end_message(outcome).await;
    }
    let token = fixture.token("viewer", &["read", "send"], None).await;
    let (viewer, admin) = (fixture.signed_in(&token).await, fixture.signed_in(TOKEN).await);
    let story = format!("/events/{event}");
    let mut seen_by_admin = String::new();
    for path in
        ["/", "/events", &story, "/threads", THREAD, "/outbox", "/parked", "/accounts", "/channels", "/channels/shop", "/claims"]
    {
        let seen = viewer.get(path).await;
        assert_eq!(seen.status, StatusCode::OK, "{path}");
        for word in ["hears", "&quot;hi&quot;", "wordof"] {
            assert!(!seen.text.contains(word), "{path} shows {word}: {}", seen.text);
        }
        seen_by_admin.push_str(&admin.get(path).await.text);
    }
    for word in ["hears", "&quot;hi&quot;", "wordofours", "wordofprovider"] {
        assert!(seen_by_admin.contains(word), "{word} is there to be hidden");
    }
    // To look for a word tells as much as to see it.
    for path in
        ["/events?q=text:hears", "/threads?q=text:hears", "/outbox?q=text:wordofours", "/parked?q=text:hears", "/events?q=hears"]
    {
        let seen = viewer.get(path).await.text;
        assert!(seen.contains("role=\"alert\"") && !seen.contains("<tr data-key"), "{path}: {seen}");
    }
    for id in &ids {
        let (_, message) = fixture.with("GET", &format!("/v1/messages/{id}"), &token, json!({})).await;
        assert!(!message.to_string().contains("wordof"), "{message}");
    }
    let (_, told) = fixture.with("GET", &format!("/v1/events/{event}/story"), &token, json!({})).await;
    assert!(!told.to_string().contains("hears"), "{told}");
}
