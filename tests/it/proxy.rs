//! `mode = "proxy"`: the provider hears the bot's own words, once.

use std::sync::Arc;

use hapax_domain::RetryPolicy;
use hapax_gateway::settings::{Channel, Mode};
use hapax_testkit::fake_bot::{FakeBot, Say};
use tokio::sync::Notify;

use crate::rig::{Opened, Rig, channel, eventually, text};

on_every_store! {
    the_provider_gets_the_bots_answer_and_so_does_every_repeat
    a_repeat_of_a_running_request_waits_and_is_then_told_to_come_again
    a_repeat_gets_the_answer_of_the_run_it_waited_for
    a_failure_is_passed_on_and_the_next_try_answers
    a_repeat_of_what_waits_for_its_next_try_is_a_bad_gateway_at_once
    an_unreachable_bot_is_a_bad_gateway
    an_answer_too_long_to_keep_is_a_bad_gateway_and_the_bot_is_not_asked_again
}

fn proxy(target: String) -> Channel {
    Channel { mode: Mode::Proxy, ..channel("shop", Some(target)) }
}

async fn the_provider_gets_the_bots_answer_and_so_does_every_repeat(opened: Opened) {
    let bot = FakeBot::start(|call| Say::Answer {
        status: 201,
        headers: vec![("content-type", "text/x-verdict".to_owned())],
        body: format!("this was call {}", call.number),
    })
    .await
    .expect("a bot");
    let rig = Rig::start(opened, vec![proxy(bot.url())]).await;
    for _ in 0..3 {
        let body = text("wamid.A", "1");
        let answer = rig.request("shop", body.as_bytes()).body(body).send().await.expect("an answer");
        assert_eq!(answer.status(), 201);
        assert_eq!(answer.headers()["content-type"], "text/x-verdict");
        assert_eq!(answer.text().await.expect("a body"), "this was call 0");
    }
    assert_eq!(bot.calls().len(), 1);
}

/// Answers when told; says so when called.
async fn held(finish: &Arc<Notify>) -> FakeBot {
    let finish = Arc::clone(finish);
    let script = move |_| -> futures_util::future::BoxFuture<'static, Say> {
        let finish = Arc::clone(&finish);
        Box::pin(async move {
            finish.notified().await;
            Say::Answer { status: 200, headers: vec![], body: "done at last".to_owned() }
        })
    };
    FakeBot::start_slow(script).await.expect("a bot")
}

async fn a_repeat_of_a_running_request_waits_and_is_then_told_to_come_again(opened: Opened) {
    let finish = Arc::new(Notify::new());
    let bot = held(&finish).await;
    // How long a request is kept open is bounded by the timeout; the bot is given up a moment later.
    let shop = Channel { timeout_ms: 300, ..proxy(bot.url()) };
    let rig = Arc::new(Rig::start(opened, vec![shop]).await);
    let first = tokio::spawn({
        let rig = Arc::clone(&rig);
        async move { rig.post("shop", text("wamid.A", "1")).await }
    });
    bot.called(1).await;
    let body = text("wamid.A", "1");
    let repeat = rig.request("shop", body.as_bytes()).body(body).send().await.expect("an answer");
    assert!(matches!(repeat.status().as_u16(), 409 | 504), "{}", repeat.status());
    assert!(repeat.headers().contains_key("retry-after"));
    assert_eq!(first.await.expect("it ends").0, 504);
    finish.notify_one();
}

async fn a_repeat_gets_the_answer_of_the_run_it_waited_for(opened: Opened) {
    let finish = Arc::new(Notify::new());
    let bot = held(&finish).await;
    let rig = Arc::new(Rig::start(opened, vec![proxy(bot.url())]).await);
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let rig = Arc::clone(&rig);
        requests.spawn(async move { rig.post("shop", text("wamid.A", "1")).await });
    }
    bot.called(1).await;
    eventually("all repeats arrived", async || rig.metric(r#"hapax_events_duplicate_total{channel="shop"}"#) == 4).await;
    finish.notify_one();
    for (status, answer) in requests.join_all().await {
        assert_eq!((status, answer), (200, "done at last".into()));
    }
    assert_eq!(bot.calls().len(), 1);
}

async fn a_failure_is_passed_on_and_the_next_try_answers(opened: Opened) {
    let bot = FakeBot::start(|call| match call.attempt() {
        1 => Say::Status(500),
        attempt => Say::Answer { status: 200, headers: vec![], body: format!("attempt {attempt}") },
    })
    .await
    .expect("a bot");
    let rig = Rig::start(opened, vec![proxy(bot.url())]).await;
    let (status, _) = rig.post("shop", text("wamid.A", "1")).await;
    assert_eq!(status, 500, "so that the provider tries again by its own rules");
    bot.called(2).await;
    let (status, answer) = rig.post("shop", text("wamid.A", "1")).await;
    assert_eq!((status, answer), (200, "attempt 2".into()));
    assert_eq!(bot.calls().len(), 2);
}

async fn a_repeat_of_what_waits_for_its_next_try_is_a_bad_gateway_at_once(opened: Opened) {
    let bot = FakeBot::start(|_| Say::Status(500)).await.expect("a bot");
    let retry = RetryPolicy { first_ms: 600_000, cap_ms: 600_000, attempts: 5 };
    let rig = Rig::start(opened, vec![Channel { retry, timeout_ms: 5_000, ..proxy(bot.url()) }]).await;
    assert_eq!(rig.post("shop", text("wamid.A", "1")).await.0, 500);
    let begun = std::time::Instant::now();
    assert_eq!(rig.post("shop", text("wamid.A", "1")).await.0, 502);
    assert!(begun.elapsed() < std::time::Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(bot.calls().len(), 1);
}

async fn an_unreachable_bot_is_a_bad_gateway(opened: Opened) {
    let rig = Rig::start(opened, vec![proxy("http://127.0.0.1:9/".to_owned())]).await;
    let (status, _) = rig.post("shop", text("wamid.A", "1")).await;
    assert_eq!(status, 502);
    assert_eq!(rig.inbox().await.len(), 1, "it is kept and comes again");
}

async fn an_answer_too_long_to_keep_is_a_bad_gateway_and_the_bot_is_not_asked_again(opened: Opened) {
    let bot = FakeBot::start(|_| Say::Answer { status: 200, headers: vec![], body: "x".repeat((1 << 20) + 1) }).await;
    let bot = bot.expect("a bot");
    let rig = Rig::start(opened, vec![proxy(bot.url())]).await;
    for _ in 0..2 {
        let (status, answer) = rig.post("shop", text("wamid.A", "1")).await;
        assert_eq!((status, &answer["status"]), (502, &502.into()), "{answer}");
    }
    assert_eq!(rig.inbox().await.len(), 0, "it was taken");
    assert_eq!(bot.calls().len(), 1);
    rig.counted(r#"hapax_answers_too_long_total{channel="shop"}"#, 1).await;
}
