//! Whatever comes in, the answer is the one in the design, and nothing is stored or lost by it.

use std::time::{Duration, Instant};

use hapax_server::config::Config;
use hapax_store::EventState;
use hapax_testkit::fake_bot::FakeBot;

use crate::rig::{Opened, Rig, change, channel, config, eventually, message, text, webhook};
use crate::wire::{Wire, signed};

on_every_store! {
    a_wrong_or_missing_signature_is_401_and_nothing_is_stored
    a_body_over_the_limit_is_413
    a_slow_body_is_408
    five_hundred_slow_sockets_do_not_hold_up_a_real_request
    five_hundred_slow_bodies_do_not_hold_up_a_real_request
    slow_headers_are_cut_off
    who_never_reads_its_answers_is_cut_off
    chunked_and_length_together_are_read_one_way_and_the_connection_closes
    signed_but_broken_json_is_quarantined_and_answered_200
    one_odd_event_does_not_block_the_others
    a_channel_that_is_not_there_looks_like_a_wrong_signature
    other_methods_are_405_and_the_handshake_works
    headers_beyond_the_limits_are_431
    garbage_on_the_wire_ends_the_connection_only
    what_is_asked_without_a_token_is_not_told
}

/// A real request still works, and it is the only thing stored.
async fn only_this_is_stored(rig: &Rig) {
    assert_eq!(rig.events().await.len(), 0, "nothing was stored");
    rig.accepted("shop", text("wamid.good", "1")).await;
    assert_eq!(rig.events().await.len(), 1, "a real request still works");
}

async fn a_wrong_or_missing_signature_is_401_and_nothing_is_stored(opened: Opened) {
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    let body = text("wamid.A", "1");
    let good = crate::rig::signature(body.as_bytes());
    let flipped = good.replace(&good[10..11], if &good[10..11] == "0" { "1" } else { "0" });
    for given in [Some(flipped.as_str()), Some("sha256="), Some("sha256=zz"), Some(""), Some(&good[7..]), None] {
        let mut request = rig.client.post(rig.url("/in/shop"));
        if let Some(given) = given {
            request = request.header("x-hub-signature-256", given);
        }
        let answer = request.body(body.clone()).send().await.expect("an answer");
        assert_eq!(answer.status(), 401, "{given:?}");
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
    }
    rig.counted(r#"hapax_webhooks_refused_total{channel="shop",why="signature"}"#, 6).await;
    only_this_is_stored(&rig).await;
}

async fn a_body_over_the_limit_is_413(opened: Opened) {
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    let mut announced = Wire::open(rig.address).await;
    announced
        .send(b"POST /in/shop HTTP/1.1\r\nhost: hapax\r\nx-hub-signature-256: sha256=00\r\ncontent-length: 10485760\r\n\r\n")
        .await;
    assert_eq!(announced.hear().await.expect("an answer before the body").status, 413);

    let mut chunked = Wire::open(rig.address).await;
    chunked
        .send(b"POST /in/shop HTTP/1.1\r\nhost: hapax\r\nx-hub-signature-256: sha256=00\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
    let chunk = [b"100000\r\n".as_slice(), &vec![b'x'; 1 << 20], b"\r\n"].concat();
    for _ in 0..10 {
        chunked.send_if_wanted(&chunk).await;
    }
    // The server may cut us off while we still send; then the answer is lost on the way, and that is all.
    assert!(chunked.hear().await.is_none_or(|heard| heard.status == 413));
    only_this_is_stored(&rig).await;
}

fn impatient(channels: Vec<hapax_gateway::settings::Channel>) -> Config {
    let mut config = config(channels);
    config.limits.body_timeout_ms = 100;
    config.limits.header_timeout_ms = 100;
    config
}

async fn a_slow_body_is_408(opened: Opened) {
    let rig = Rig::start_with(opened, impatient(vec![channel("shop", None)])).await;
    let whole = signed("shop", &text("wamid.A", "1"));
    let mut wire = Wire::open(rig.address).await;
    wire.send(&whole[..whole.len() - 5]).await;
    assert_eq!(wire.hear().await.expect("an answer").status, 408);
    assert!(wire.is_closed().await);
    only_this_is_stored(&rig).await;
}

async fn slow_headers_are_cut_off(opened: Opened) {
    let rig = Rig::start_with(opened, impatient(vec![channel("shop", None)])).await;
    let mut wire = Wire::open(rig.address).await;
    wire.send(b"POST /in/shop HTTP/1.1\r\nhost: ha").await;
    assert!(wire.is_closed().await);
    only_this_is_stored(&rig).await;
}

async fn who_never_reads_its_answers_is_cut_off(opened: Opened) {
    let rig = Rig::start_with(opened, impatient(vec![channel("shop", None)])).await;
    let mut wire = Wire::open(rig.address).await;
    eventually("the connection is there", async || rig.metric("hapax_connections") == 1).await;
    // Their answers are more than the system buffers for a connection.
    let asks = "GET /metrics HTTP/1.1\r\nhost: hapax\r\nauthorization: Bearer an admin token for tests\r\n\r\n".repeat(5_000);
    wire.send_if_wanted(asks.as_bytes()).await;
    eventually("the connection is gone", async || rig.metric("hapax_connections") == 0).await;
    only_this_is_stored(&rig).await;
}

async fn five_hundred_slow_sockets_do_not_hold_up_a_real_request(opened: Opened) {
    a_real_request_beside_500(opened, "POST /in/shop HTTP/1.1\r\nhost: hapax\r\nx-slow: ").await;
}

/// Together they announce 2 GB, eight times what all bodies may take.
async fn five_hundred_slow_bodies_do_not_hold_up_a_real_request(opened: Opened) {
    let beginning = "POST /in/shop HTTP/1.1\r\nhost: hapax\r\nx-hub-signature-256: sha256=00\r\ncontent-length: 4194304\r\n\r\n{";
    a_real_request_beside_500(opened, beginning).await;
}

async fn a_real_request_beside_500(opened: Opened, beginning: &str) {
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    let mut slow = Vec::new();
    for _ in 0..500 {
        let mut wire = Wire::open(rig.address).await;
        wire.send(beginning.as_bytes()).await;
        slow.push(wire);
    }
    let mut real = Wire::open(rig.address).await;
    let begun = Instant::now();
    real.send(&signed("shop", &text("wamid.A", "1"))).await;
    assert_eq!(real.hear().await.expect("an answer").status, 200);
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(100), "{took:?}");
    assert_eq!(rig.events().await.len(), 1);
}

async fn chunked_and_length_together_are_read_one_way_and_the_connection_closes(opened: Opened) {
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    let body = text("wamid.A", "1");
    let smuggled = String::from_utf8(signed("shop", &text("wamid.SMUGGLED", "1"))).expect("text");
    for (first, second) in
        [("content-length: 4", "transfer-encoding: chunked"), ("transfer-encoding: chunked", "content-length: 4")]
    {
        let mut wire = Wire::open(rig.address).await;
        let signature = crate::rig::signature(body.as_bytes());
        let length = body.len();
        let request = format!(
            "POST /in/shop HTTP/1.1\r\nhost: hapax\r\nx-hub-signature-256: {signature}\r\n{first}\r\n{second}\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n{smuggled}"
        );
        wire.send(request.as_bytes()).await;
        let heard = wire.hear().await.expect("an answer");
        assert!(matches!(heard.status, 200 | 400), "{heard:?}");
        assert!(wire.is_closed().await);
    }
    let ids: Vec<_> = rig.events().await.into_iter().map(|row| row.provider_id).collect();
    assert!(!ids.contains(&"wamid.SMUGGLED".to_owned()), "{ids:?}");
}

async fn signed_but_broken_json_is_quarantined_and_answered_200(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    let broken = r#"{"object":"whatsapp_business_account","entry":[{"#;
    for (sent, word) in [(1, "accepted"), (2, "duplicate")] {
        let (status, answer) = rig.post("shop", broken).await;
        assert_eq!((status, &answer["status"]), (200, &word.into()), "the {sent}. time");
    }
    let events = rig.events().await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].state, EventState::Quarantined);
    let kept = rig.store.event(events[0].id).await.expect("readable").expect("kept");
    assert_eq!(kept.body, broken.as_bytes(), "nothing of it is lost");
    assert!(rig.inbox().await[0].why.is_some());
    rig.settled().await;
    assert_eq!(bot.calls().len(), 0);
}

async fn one_odd_event_does_not_block_the_others(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    let mut odd = message("wamid.X", "1");
    odd["type"] = 5.into();
    let (status, answer) =
        rig.post("shop", webhook(&[change(&[message("wamid.A", "1"), odd, message("wamid.B", "2")], &[])])).await;
    assert_eq!((status, &answer["accepted"]), (200, &3.into()), "{answer}");
    rig.settled().await;
    let states: Vec<_> = rig.events().await.iter().map(|row| row.state).collect();
    assert_eq!(states.iter().filter(|state| **state == EventState::Quarantined).count(), 1, "{states:?}");
    assert_eq!(states.iter().filter(|state| **state == EventState::Delivered).count(), 2, "{states:?}");
    assert_eq!(bot.calls().len(), 2);
}

/// Whoever has proved nothing must not find out which channels there are, neither by the answer nor by when it comes.
async fn a_channel_that_is_not_there_looks_like_a_wrong_signature(opened: Opened) {
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    for path in ["nobody", "", "shop/", "Shop", "../shop"] {
        let mut wire = Wire::open(rig.address).await;
        wire.send(&signed(path, &text("wamid.A", "1"))).await;
        assert_eq!(wire.hear().await.expect("an answer").status, 401, "{path}");
    }
    let bare = "content-length: 3\r\n\r\n";
    let forged = "x-hub-signature-256: sha256=00\r\ncontent-length: 3\r\n\r\n";
    let large = "x-hub-signature-256: sha256=00\r\ncontent-length: 10485760\r\n\r\n";
    for (method, rest, body, status) in [
        ("POST", bare, "", 401),
        ("POST", forged, "abc", 401),
        ("POST", large, "", 413),
        ("GET", "\r\n", "", 401),
        ("PUT", bare, "", 405),
    ] {
        let mut heard = Vec::new();
        for name in ["shop", "nobody"] {
            let mut wire = Wire::open(rig.address).await;
            wire.send(format!("{method} /in/{name} HTTP/1.1\r\nhost: hapax\r\n{rest}").as_bytes()).await;
            if !body.is_empty() {
                assert!(!wire.speaks_now().await, "{name}: the body comes first");
                wire.send(body.as_bytes()).await;
            }
            let mut answer = wire.hear().await.expect("an answer");
            answer.head = answer.head.lines().filter(|line| !line.starts_with("date:")).collect();
            heard.push(answer);
        }
        assert_eq!(heard[0], heard[1], "{method} {rest}");
        assert_eq!(heard[0].status, status, "{method} {rest}");
    }
    only_this_is_stored(&rig).await;
}

async fn other_methods_are_405_and_the_handshake_works(opened: Opened) {
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    let put = rig.client.put(rig.url("/in/shop")).body("x").send().await.expect("an answer");
    assert_eq!(put.status(), 405);
    let get = rig.client.get(rig.url("/in/shop")).send().await.expect("an answer");
    assert!(get.status().is_client_error());
    let hello = "/in/shop?hub.mode=subscribe&hub.verify_token=knock%20knock&hub.challenge=1158201444";
    let hello = rig.client.get(rig.url(hello)).send().await.expect("an answer");
    assert_eq!(hello.status(), 200);
    assert_eq!(hello.text().await.expect("a body"), "1158201444");
    only_this_is_stored(&rig).await;
}

async fn headers_beyond_the_limits_are_431(opened: Opened) {
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    let long = format!("x-long: {}\r\n", "x".repeat(40 << 10));
    let many = "x-many: y\r\n".repeat(150);
    for headers in [long, many] {
        let mut wire = Wire::open(rig.address).await;
        wire.send_if_wanted(format!("POST /in/shop HTTP/1.1\r\nhost: hapax\r\n{headers}content-length: 0\r\n\r\n").as_bytes())
            .await;
        assert!(wire.hear().await.is_none_or(|heard| heard.status == 431));
    }
    only_this_is_stored(&rig).await;
}

async fn garbage_on_the_wire_ends_the_connection_only(opened: Opened) {
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    for garbage in [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(), b"GET\r\n\r\n", b"\0\0\0\0\r\n\r\n"] {
        let mut wire = Wire::open(rig.address).await;
        wire.send(garbage).await;
        assert!(wire.hear().await.is_none_or(|heard| heard.status == 400));
        assert!(wire.is_closed().await);
    }
    only_this_is_stored(&rig).await;
}

async fn what_is_asked_without_a_token_is_not_told(opened: Opened) {
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    for (path, status) in
        [("/healthz", 200), ("/readyz", 200), ("/metrics", 401), ("/v1/events", 401), ("/v1/stats", 401), ("/nowhere", 404)]
    {
        let answer = rig.client.get(rig.url(path)).send().await.expect("an answer");
        assert_eq!(answer.status(), status, "{path}");
    }
    let told = rig.client.get(rig.url("/v1/stats")).bearer_auth("an admin token for tests").send().await.expect("an answer");
    assert_eq!(told.status(), 200);
}
