//! The way to the bot: attempts, fences, order, parking, dead targets, replays.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hapax_domain::Kind;
use hapax_gateway::settings::OnPoison;
use hapax_providers::settings::Settings;
use hapax_store::clock::Clock;
use hapax_store::{EventState, ItemState, LeaseRequest, Outcome, Settled};
use hapax_testkit::fake_bot::{Call, FakeBot, Say};
use hapax_testkit::hand_clock::HandClock;
use hapax_testkit::store_fixture::ask_as;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Notify;

use crate::rig::{Opened, Rig, change, channel, eventually, in_time, status, text, webhook};

on_every_store! {
    the_bot_gets_the_webhook_byte_for_byte_with_our_headers
    a_trace_begins_here_where_the_provider_began_none
    a_dead_connection_means_the_same_id_again_with_a_higher_attempt_and_fence
    a_paused_workers_late_answer_is_refused
    a_thread_keeps_its_order_through_retries_and_others_do_not_wait
    retry_after_lengthens_the_wait
    what_the_bot_rejects_is_parked_and_the_thread_goes_on
    attempts_end_in_parking
    a_poison_blocks_its_thread_where_that_was_chosen
    what_the_bot_rejects_blocks_its_thread_too_where_that_was_chosen
    what_nobody_waits_behind_is_parked_although_threads_are_to_wait
    a_dead_target_spends_no_attempts_and_is_found_again
    a_bot_that_says_503_is_called_again_with_a_higher_attempt_and_charged_nothing
    a_503_with_retry_after_holds_its_own_thread_only
    a_half_open_circuit_does_not_wait_for_a_handlers_whole_run
    a_target_that_turns_its_only_thread_away_parks_nothing
    an_item_that_is_turned_away_while_others_pass_is_parked_in_the_end
    a_bot_whose_answer_stalls_after_the_status_is_not_asked_again
    a_replay_is_no_copy
    what_is_not_wanted_is_kept_and_goes_nowhere
    what_is_stale_is_parked_and_can_be_replayed
    standard_webhooks_headers_come_on_request
    a_clock_that_jumped_does_not_make_signatures_stale
    a_channel_without_target_keeps_its_events_waiting
    a_busy_channel_does_not_wait_for_the_poll_beside_an_idle_one
}

/// A port that nobody listens on, and that nobody else gets meanwhile.
fn closed_port() -> (TcpSocket, SocketAddr) {
    let port = TcpSocket::new_v4().expect("a socket");
    port.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
    let address = port.local_addr().expect("an address");
    (port, address)
}

fn id_of(call: &Call) -> String {
    let body: serde_json::Value = serde_json::from_slice(&call.body).expect("JSON");
    body["entry"][0]["changes"][0]["value"]["messages"][0]["id"].as_str().expect("an id").to_owned()
}

async fn the_bot_gets_the_webhook_byte_for_byte_with_our_headers(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    let body = text("wamid.A", "5511988887777").replace(':', " :\t");
    let sent = rig
        .request("shop", body.as_bytes())
        .header("content-type", "application/json; charset=UTF-8")
        .header("user-agent", "facebookexternalua")
        .header("authorization", "Bearer not for the bot")
        .header("x-forwarded-for", "192.0.2.7")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .header("hapax-replay", "9");
    let sent = sent.body(body.clone()).send().await.expect("an answer");
    assert_eq!(sent.status(), 200);

    let call = bot.called(1).await.remove(0);
    assert_eq!(call.body, body.as_bytes());
    assert_eq!(call.header("x-hub-signature-256"), crate::rig::signature(body.as_bytes()));
    assert_eq!(call.header("user-agent"), "facebookexternalua");
    for absent in ["authorization", "x-forwarded-for", "hapax-replay", "webhook-id"] {
        assert!(!call.headers.contains_key(absent), "{absent}");
    }
    let event = rig.events().await[0].id.to_string();
    assert_eq!(call.event_id(), event);
    assert_eq!(call.header("idempotency-key"), event);
    assert_eq!(call.attempt(), 1);
    assert!(call.fence() > 0);
    assert_eq!(call.header("hapax-thread"), "700001__5511988887777");
    assert_eq!(call.header("traceparent"), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
}

async fn a_trace_begins_here_where_the_provider_began_none(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    for number in 0..2 {
        rig.accepted("shop", text(&format!("wamid.{number}"), "1")).await;
    }
    let traces: Vec<String> = bot.called(2).await.iter().map(|call| call.header("traceparent").to_owned()).collect();
    for trace in &traces {
        let parts: Vec<&str> = trace.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [2, 32, 16, 2], "{trace}");
        assert!(parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase())), "{trace}");
    }
    assert_ne!(traces[0], traces[1]);
}

async fn a_dead_connection_means_the_same_id_again_with_a_higher_attempt_and_fence(opened: Opened) {
    let bot = FakeBot::start(|call| if call.number == 0 { Say::Hang } else { Say::Status(200) }).await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    let calls = bot.called(2).await;
    assert_eq!(calls[0].event_id(), calls[1].event_id());
    assert_eq!((calls[0].attempt(), calls[1].attempt()), (1, 2));
    assert!(calls[1].fence() > calls[0].fence());
    rig.settled().await;
    assert_eq!(bot.calls().len(), 2);
}

/// This worker stops hearing (its heartbeat is cut off with its store calls), so another one takes the lane over.
async fn a_paused_workers_late_answer_is_refused(opened: Opened) {
    let store = Arc::clone(&opened.store);
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    let ask = |worker: &str, hold_ms| LeaseRequest { hold_ms, ..ask_as(worker, 1) };
    let paused = store.lease_inbox(ask("paused", 1)).await.expect("leases").remove(0);
    let mut taken = None;
    eventually("the lease ran out", async || {
        taken = store.lease_inbox(ask("second", 60_000)).await.expect("leases").pop();
        taken.is_some()
    })
    .await;
    let taken = taken.expect("taken over");
    assert!(taken.fence > paused.fence);
    assert_eq!(taken.attempt, 2);
    let late = Outcome::Delivered { status: 200, answer: None, replies: vec![] };
    assert_eq!(store.settle_inbox(paused.lane, paused.fence, late.clone()).await.expect("answers"), Settled::Lost);
    assert_eq!(store.extend(vec![(paused.lane, paused.fence)], 60_000).await.expect("answers"), [false]);
    assert_eq!(rig.events().await[0].state, EventState::Waiting);
    assert_eq!(store.settle_inbox(taken.lane, taken.fence, late).await.expect("answers"), Settled::Done);
    assert_eq!(rig.events().await[0].state, EventState::Delivered);
}

async fn a_thread_keeps_its_order_through_retries_and_others_do_not_wait(opened: Opened) {
    let hold = Arc::new(Notify::new());
    let bot = FakeBot::start_slow({
        let hold = Arc::clone(&hold);
        move |call| {
            let hold = Arc::clone(&hold);
            Box::pin(async move {
                if id_of(&call) == "wamid.slow-0" && call.attempt() == 1 {
                    hold.notified().await;
                }
                // Every first try fails, so that order has to survive the retry.
                Say::Status(if call.attempt() == 1 { 500 } else { 200 })
            })
        }
    })
    .await
    .expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    for number in 0..5 {
        rig.accepted("shop", text(&format!("wamid.slow-{number}"), "1")).await;
        rig.accepted("shop", text(&format!("wamid.quick-{number}"), "2")).await;
    }
    let taken = |prefix: &'static str| {
        let calls = bot.calls();
        calls.iter().filter(|call| call.attempt() == 2).map(id_of).filter(|id| id.contains(prefix)).collect::<Vec<_>>()
    };
    eventually("the other thread is done", async || taken("quick").len() == 5).await;
    assert_eq!(taken("slow"), Vec::<String>::new());
    hold.notify_one();
    rig.settled().await;
    let expected = |prefix: &str| (0..5).map(|number| format!("wamid.{prefix}-{number}")).collect::<Vec<_>>();
    assert_eq!(taken("slow"), expected("slow"));
    assert_eq!(taken("quick"), expected("quick"));
    assert_eq!(bot.calls().len(), 20);
}

async fn retry_after_lengthens_the_wait(opened: Opened) {
    let bot = FakeBot::start(|call| match call.number {
        0 => Say::Answer { status: 409, headers: vec![("retry-after", "3600".to_owned())], body: String::new() },
        _ => Say::Status(200),
    })
    .await
    .expect("a bot");
    let clock = Arc::clone(&opened.clock);
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    bot.called(1).await;
    eventually("it waits", async || rig.inbox().await[0].why.is_some()).await;
    let row = rig.inbox().await.remove(0);
    assert_eq!(row.why.as_deref(), Some("the target answered 409"));
    let ItemState::Waiting { due_ms } = row.state else { panic!("{row:?}") };
    assert!(due_ms > clock.now_ms() + 3_500_000, "due in {} ms", due_ms - clock.now_ms());
}

async fn what_the_bot_rejects_is_parked_and_the_thread_goes_on(opened: Opened) {
    let bot = FakeBot::start(|call| Say::Status(if id_of(call) == "wamid.bad" { 422 } else { 200 })).await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.bad", "1")).await;
    rig.accepted("shop", text("wamid.good", "1")).await;
    bot.called(2).await;
    rig.settled().await;
    let parked = rig.inbox().await;
    assert_eq!(parked.len(), 1);
    assert_eq!((parked[0].state.clone(), parked[0].why.as_deref()), (ItemState::Parked, Some("the target answered 422")));
    assert_eq!((parked[0].attempt, parked[0].failures), (1, 1));
    assert_eq!(bot.calls().len(), 2);
}

async fn attempts_end_in_parking(opened: Opened) {
    let bot = FakeBot::start(|_| Say::Status(500)).await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    bot.called(5).await;
    rig.settled().await;
    let attempts: Vec<u32> = bot.calls().iter().map(Call::attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5]);
    let row = rig.inbox().await.remove(0);
    assert_eq!((row.why.as_deref(), row.failures), (Some("the target answered 500; that was failure 5 of 5"), 5));
    assert_eq!(rig.events().await[0].state, EventState::Parked);
}

async fn a_poison_blocks_its_thread_where_that_was_chosen(opened: Opened) {
    let bot = FakeBot::start(|call| Say::Status(if call.attempt() <= 8 { 500 } else { 200 })).await.expect("a bot");
    let mut shop = channel("shop", Some(bot.url()));
    shop.on_poison = OnPoison::Block;
    let rig = Rig::start(opened, vec![shop]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    rig.accepted("shop", text("wamid.B", "1")).await;
    let calls = bot.called(9).await;
    assert!(calls[..9].iter().all(|call| id_of(call) == "wamid.A"), "the second waits for the first");
}

async fn what_the_bot_rejects_blocks_its_thread_too_where_that_was_chosen(opened: Opened) {
    let willing = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&willing);
    let bot = FakeBot::start(move |call| match id_of(call).as_str() {
        "wamid.A" if !says.load(Ordering::Acquire) => Say::Status(422),
        _ => Say::Status(200),
    })
    .await
    .expect("a bot");
    let mut shop = channel("shop", Some(bot.url()));
    shop.on_poison = OnPoison::Block;
    let rig = Rig::start(opened, vec![shop]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    rig.accepted("shop", text("wamid.B", "1")).await;
    // More often than the channel's five attempts.
    let first = in_time("nine calls", bot.called(9)).await[..9].iter().all(|call| id_of(call) == "wamid.A");
    assert!(first, "the second waits for the first");
    let asked = async |path: &str| -> serde_json::Value {
        let answer = rig.client.get(rig.url(path)).bearer_auth("an admin token for tests").send().await.expect("an answer");
        answer.json().await.expect("JSON")
    };
    let inbox = asked("/v1/inbox").await;
    let item = inbox["items"].as_array().expect("a list").iter().find(|item| item["failures"] != 0).expect("one that failed");
    assert!(item["failures"].as_u64().is_some_and(|failures| failures >= 8), "{item}");
    assert_ne!(item["state"], "parked", "{item}");
    let story = asked(&format!("/v1/events/{}/story", item["event"].as_str().expect("an id"))).await;
    let now = story["steps"].as_array().and_then(|steps| steps.last()).expect("a step")["words"].as_str().expect("words");
    assert!(now.contains("failures"), "{now}");
    willing.store(true, Ordering::Release);
    eventually("both were taken", async || rig.inbox().await.is_empty()).await;
    assert_eq!(bot.calls().iter().filter(|call| id_of(call) == "wamid.B").count(), 1);
    assert_eq!(bot.calls().last().map(id_of).as_deref(), Some("wamid.B"));
}

async fn what_nobody_waits_behind_is_parked_although_threads_are_to_wait(opened: Opened) {
    let bot = FakeBot::start(|call| Say::Status(if call.number == 0 { 422 } else { 500 })).await.expect("a bot");
    let mut shop = channel("shop", Some(bot.url()));
    shop.on_poison = OnPoison::Block;
    let rig = Rig::start(opened, vec![shop]).await;
    rig.accepted("shop", webhook(&[change(&[], &[status("wamid.A", "sent")])])).await;
    in_time("the first call", bot.called(1)).await;
    rig.accepted("shop", webhook(&[change(&[], &[status("wamid.B", "sent")])])).await;
    eventually("both are parked", async || {
        let rows = rig.inbox().await;
        assert!(rows.iter().all(|row| row.failures <= 5), "{rows:?}");
        rows.len() == 2 && rows.iter().all(|row| row.state == ItemState::Parked)
    })
    .await;
    assert_eq!(bot.calls().len(), 1 + 5);
}

async fn a_dead_target_spends_no_attempts_and_is_found_again(opened: Opened) {
    let (port, address) = closed_port();
    let rig = Rig::start(opened, vec![channel("shop", Some(format!("http://{address}/")))]).await;
    for number in 0..10 {
        rig.accepted("shop", text(&format!("wamid.{number}"), &number.to_string())).await;
    }
    eventually("the circuit opens", async || rig.metric(r#"hapax_circuit_open{channel="shop"}"#) == 1).await;
    eventually("all handed back", async || {
        let inbox = rig.inbox().await;
        inbox.len() == 10 && inbox.iter().all(|row| matches!(row.state, ItemState::Waiting { .. }))
    })
    .await;
    let bot = FakeBot::listen(port.listen(1_024).expect("it opens"), |_| Box::pin(async { Say::Status(200) })).expect("a bot");
    let calls = bot.called(10).await;
    assert!(calls.iter().all(|call| call.attempt() == 1), "{:?}", calls.iter().map(Call::attempt).collect::<Vec<_>>());
    rig.settled().await;
    rig.counted(r#"hapax_circuit_open{channel="shop"}"#, 0).await;
    rig.counted(r#"hapax_delivery_retries_total{channel="shop"}"#, 0).await;
}

async fn a_bot_that_says_503_is_called_again_with_a_higher_attempt_and_charged_nothing(opened: Opened) {
    let bot = FakeBot::start(|call| Say::Status(if call.number == 0 { 503 } else { 200 })).await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    let calls = bot.called(2).await;
    assert_eq!((calls[0].attempt(), calls[1].attempt()), (1, 2));
    assert!(calls[1].fence() > calls[0].fence());
    rig.settled().await;
    let story = rig.store.event(rig.events().await[0].id).await.expect("the event").expect("it is there").attempts;
    let story: Vec<_> = story.iter().map(|row| (row.attempt, row.outcome.as_str(), row.detail.as_str())).collect();
    assert_eq!(story, [(1, "handed back", "the target answered 503"), (2, "delivered", "200")]);
    rig.counted(r#"hapax_delivery_retries_total{channel="shop"}"#, 0).await;
}

async fn a_503_with_retry_after_holds_its_own_thread_only(opened: Opened) {
    let bot = FakeBot::start(|call| match id_of(call).as_str() {
        "wamid.closed" => Say::Answer { status: 503, headers: vec![("retry-after", "3600".to_owned())], body: String::new() },
        _ => Say::Status(200),
    })
    .await
    .expect("a bot");
    let clock = Arc::clone(&opened.clock);
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.closed", "1")).await;
    eventually("handed back", async || rig.inbox().await[0].why.is_some()).await;
    let row = rig.inbox().await.remove(0);
    let ItemState::Waiting { due_ms } = row.state else { panic!("{row:?}") };
    assert!(due_ms > clock.now_ms() + 3_500_000, "due in {} ms", due_ms - clock.now_ms());
    assert_eq!((row.attempt, row.failures), (1, 0), "nothing is charged");
    for number in 0..5 {
        rig.accepted("shop", text(&format!("wamid.{number}"), &format!("2{number}"))).await;
    }
    bot.called(6).await;
    eventually("the others are done", async || rig.inbox().await.len() == 1).await;
    assert_eq!(rig.metric(r#"hapax_circuit_open{channel="shop"}"#), 0);
}

async fn a_half_open_circuit_does_not_wait_for_a_handlers_whole_run(opened: Opened) {
    let (port, address) = closed_port();
    let rig = Rig::start(opened, vec![channel("shop", Some(format!("http://{address}/")))]).await;
    for number in 0..10 {
        rig.accepted("shop", text(&format!("wamid.{number}"), &number.to_string())).await;
    }
    eventually("the circuit opens", async || rig.metric(r#"hapax_circuit_open{channel="shop"}"#) == 1).await;
    let finish = Arc::new(tokio::sync::Semaphore::new(0));
    let gate = Arc::clone(&finish);
    let bot = FakeBot::listen(port.listen(1_024).expect("it opens"), move |_| {
        let gate = Arc::clone(&gate);
        Box::pin(async move {
            let _done = gate.acquire().await;
            Say::Status(200)
        })
    })
    .expect("a bot");
    bot.called(7).await;
    assert_eq!(rig.metric(r#"hapax_circuit_open{channel="shop"}"#), 1, "nobody has answered yet");
    finish.add_permits(1);
    rig.settled().await;
    assert_eq!(bot.calls().len(), 10);
    rig.counted(r#"hapax_circuit_open{channel="shop"}"#, 0).await;
}

/// As behind nginx, which answers 502 for a bot that is down.
async fn a_target_that_turns_its_only_thread_away_parks_nothing(opened: Opened) {
    let bot = FakeBot::start(|call| Say::Status(if call.number < 30 { [502, 503, 504][call.number % 3] } else { 200 }));
    let bot = bot.await.expect("a bot");
    let mut shop = channel("shop", Some(bot.url()));
    shop.retry.attempts = 2;
    let rig = Rig::start(opened, vec![shop]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    rig.accepted("shop", text("wamid.B", "1")).await;
    let calls = bot.called(32).await;
    assert_eq!(calls[30].attempt(), 31);
    rig.settled().await;
    assert!(rig.inbox().await.is_empty(), "{:?}", rig.inbox().await);
    assert_eq!(rig.metric(r#"hapax_circuit_opened_total{channel="shop"}"#), 0);
}

async fn an_item_that_is_turned_away_while_others_pass_is_parked_in_the_end(opened: Opened) {
    let bot = FakeBot::start(|call| Say::Status(if id_of(call) == "wamid.poison" { 503 } else { 200 })).await.expect("a bot");
    let mut shop = channel("shop", Some(bot.url()));
    shop.retry.attempts = 2;
    let rig = Rig::start(opened, vec![shop]).await;
    rig.accepted("shop", text("wamid.poison", "1")).await;
    let mut others = 0;
    eventually("parked", async || {
        others += 1;
        rig.accepted("shop", text(&format!("wamid.{others}"), "2")).await;
        rig.inbox().await.iter().any(|row| row.state == ItemState::Parked)
    })
    .await;
    let parked = rig.inbox().await.into_iter().find(|row| row.state == ItemState::Parked).expect("it is parked");
    assert_eq!(parked.why.as_deref(), Some("the target answered 503; that was failure 2 of 2"));
    rig.settled().await;
    assert_eq!(rig.metric(r#"hapax_circuit_opened_total{channel="shop"}"#), 0);
}

async fn a_bot_whose_answer_stalls_after_the_status_is_not_asked_again(opened: Opened) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mut shop = channel("shop", Some(format!("http://{}/", listener.local_addr().expect("an address"))));
    shop.timeout_ms = 200;
    let rig = Rig::start(opened, vec![shop]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    let (mut bot, _) = listener.accept().await.expect("a call");
    // An answer that comes before the request is no answer.
    let mut asked = Vec::new();
    while !asked.ends_with(text("wamid.A", "1").as_bytes()) {
        assert_ne!(bot.read_buf(&mut asked).await.expect("a request"), 0, "the request is whole");
    }
    bot.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nso far").await.expect("sent");
    eventually("delivered", async || rig.events().await[0].state == EventState::Delivered).await;
    rig.counted(r#"hapax_delivery_retries_total{channel="shop"}"#, 0).await;
}

async fn a_replay_is_no_copy(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    bot.called(1).await;
    rig.settled().await;
    let event = rig.events().await[0].id;
    for number in 1..=2 {
        rig.store.replay(event).await.expect("replays").expect("the event is there");
        let call = bot.called(1 + number).await.pop().expect("a call");
        assert_eq!(call.event_id(), event.to_string());
        assert_eq!(call.header("hapax-replay"), number.to_string());
        assert_eq!(call.header("idempotency-key"), format!("{event}.r{number}"));
        assert_eq!(call.body, text("wamid.A", "1").as_bytes());
    }
}

async fn what_is_not_wanted_is_kept_and_goes_nowhere(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let mut shop = channel("shop", Some(bot.url()));
    shop.deliver.kinds = vec![Kind::Message];
    let rig = Rig::start(opened, vec![shop]).await;
    let both = crate::rig::webhook(&[crate::rig::change(
        &[crate::rig::message("wamid.A", "1")],
        &[crate::rig::status("wamid.OUT", "read")],
    )]);
    let (_, answer) = rig.post("shop", both).await;
    assert_eq!(answer, serde_json::json!({"status": "accepted", "accepted": 2, "repeated": 0}));
    let call = bot.called(1).await.remove(0);
    assert!(!String::from_utf8_lossy(&call.body).contains("statuses"), "only the message goes to the bot");
    rig.settled().await;
    let mut states: Vec<_> = rig.events().await.iter().map(|row| (row.kind, row.state)).collect();
    states.sort_by_key(|(kind, _)| *kind);
    assert_eq!(states, [(Kind::Message, EventState::Delivered), (Kind::Status, EventState::Kept)]);
}

async fn what_is_stale_is_parked_and_can_be_replayed(opened: Opened) {
    let bot = FakeBot::start(|call| Say::Status(if call.number == 0 { 500 } else { 200 })).await.expect("a bot");
    let mut shop = channel("shop", Some(bot.url()));
    // On a busy machine the first call may be late, and must not be too late.
    shop.stale_after_ms = Some(1_500);
    shop.retry.first_ms = 2_500;
    shop.retry.cap_ms = 2_500;
    let rig = Rig::start(opened, vec![shop]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    eventually("parked", async || rig.inbox().await.iter().any(|row| row.state == ItemState::Parked)).await;
    assert!(rig.inbox().await[0].why.as_deref().expect("a reason").contains("stale_after"));
    assert_eq!(bot.calls().len(), 1);
    rig.store.replay(rig.events().await[0].id).await.expect("replays").expect("the event is there");
    assert_eq!(bot.called(2).await[1].header("hapax-replay"), "1");
}

async fn standard_webhooks_headers_come_on_request(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let mut shop = channel("shop", Some(bot.url()));
    shop.sign_with = Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into());
    let rig = Rig::start(opened, vec![shop]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    let call = bot.called(1).await.remove(0);
    assert_eq!(call.header("webhook-id"), call.event_id());
    assert!(call.header("webhook-timestamp").parse::<i64>().expect("seconds") > 1_700_000_000);
    assert!(call.header("webhook-signature").starts_with("v1,"));
}

/// The clock for leases catches up slowly after a suspended night; what providers and bots sign and check is wall time.
async fn a_clock_that_jumped_does_not_make_signatures_stale(opened: Opened) {
    let clock = HandClock::at(opened.clock.now_ms());
    clock.step_wall(8 * 3_600_000);
    let bot = FakeBot::willing().await.expect("a bot");
    let mut shop = channel("shop", Some(bot.url()));
    shop.provider = Settings::Stripe { secrets: vec![crate::rig::SECRET.into()] };
    shop.sign_with = Some("another secret for tests".into());
    let stripe = hapax_providers::build(&shop.provider);
    let rig = Rig::start(Opened { clock: Arc::new(clock.clone()), ..opened }, vec![shop]).await;
    let body = r#"{"id":"evt_1","object":"event","type":"invoice.paid","created":1760000000,"data":{"object":{"id":"in_1"}}}"#;
    let unsigned = hapax_providers::Unsigned { url: None, headers: &http::HeaderMap::new(), body: body.as_bytes() };
    let (name, signature) = stripe.sign(unsigned, clock.wall_ms()).remove(0);
    let sent = rig.client.post(rig.url("/in/shop")).header(&name, signature).body(body).send().await.expect("an answer");
    assert_eq!(sent.status(), 200);
    let call = bot.called(1).await.remove(0);
    let wall_s = clock.wall_ms() / 1_000;
    assert!(call.header("stripe-signature").starts_with(&format!("t={wall_s},")), "{call:?}");
    assert_eq!(call.header("webhook-timestamp"), wall_s.to_string());
}

async fn a_channel_without_target_keeps_its_events_waiting(opened: Opened) {
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    // The loop polls twice a second; a lease would have been taken by then.
    let deadline = tokio::time::Instant::now() + Duration::from_millis(1_100);
    eventually("two polls", async || tokio::time::Instant::now() >= deadline).await;
    assert!(matches!(rig.inbox().await[0].state, ItemState::Waiting { .. }));
    assert_eq!(rig.inbox().await[0].attempt, 0);
}

async fn a_busy_channel_does_not_wait_for_the_poll_beside_an_idle_one(opened: Opened) {
    const ITEMS: usize = 20;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let bot = FakeBot::start_slow({
        let gate = Arc::clone(&gate);
        move |_| {
            let gate = Arc::clone(&gate);
            Box::pin(async move {
                let _open = gate.acquire().await;
                Say::Status(200)
            })
        }
    })
    .await
    .expect("a bot");
    let mut busy = channel("busy", Some(bot.url()));
    busy.concurrency = 1;
    let rig = Rig::start(opened, vec![busy, channel("idle", Some(bot.url()))]).await;
    for number in 0..ITEMS {
        rig.accepted("busy", text(&format!("wamid.{number}"), &number.to_string())).await;
    }
    let begun = Instant::now();
    gate.add_permits(1);
    rig.settled().await;
    // The loop polls every 500 ms.
    assert!(begun.elapsed() < Duration::from_secs(3), "{ITEMS} items took {:?}", begun.elapsed());
    assert_eq!(bot.calls().len(), ITEMS);
}
