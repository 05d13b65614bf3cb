//! When a message does not arrive, hapax says why, and what to look at.

use hapax_testkit::fake_bot::{FakeBot, Say};
use serde_json::Value;

use crate::rig::{Opened, Rig, channel, eventually, text};

const ADMIN: &str = "an admin token for tests";

/// The steps of the newest event's story, as `name: words`.
async fn story(rig: &Rig) -> Vec<String> {
    let asked = rig.client.get(rig.url("/v1/events/latest/story")).bearer_auth(ADMIN).send().await.expect("an answer");
    let told: Value = asked.json().await.expect("JSON");
    let steps = told["steps"].as_array().expect("steps").clone();
    steps
        .iter()
        .map(|step| format!("{}: {}", step["step"].as_str().unwrap_or(""), step["words"].as_str().unwrap_or("")))
        .collect()
}

async fn told(rig: &Rig, words: &[&str]) {
    eventually(words[0], async || {
        let steps = story(rig).await;
        words.iter().all(|words| steps.iter().any(|step| step.contains(words)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_down_is_named_with_its_next_try() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port that was free");
    let url = format!("http://ana:hunter2@{port}/hook?key=secret");
    let rig = Rig::start(Opened::memory(), vec![channel("shop", Some(url))]).await;
    rig.accepted("shop", text("wamid.1", "1")).await;
    told(&rig, &["target down: its target http://(hidden)@", "next try at 20", "is the bot running?"]).await;
    let shown = story(&rig).await.join("\n");
    assert!(!shown.contains("hunter2") && !shown.contains("key=secret"), "{shown}");
    let asked = rig.client.get(rig.url("/v1/channels")).bearer_auth(ADMIN).send().await.expect("an answer");
    let channels: Value = asked.json().await.expect("JSON");
    let down = &channels["channels"][0]["down"][0];
    assert!(down["since"].is_string() && down["next_try_at"].is_string() && down["account"].is_null(), "{channels}");
    assert!(down["why"].as_str().is_some_and(|why| why.contains("cannot be reached")), "{channels}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bot_that_answers_404_or_401_is_named_with_the_likely_cause() {
    for (status, cause) in [(404, "is the path in `target`"), (401, "the same secret")] {
        let bot = FakeBot::start(move |_| Say::Status(status)).await.expect("a bot");
        let rig = Rig::start(Opened::memory(), vec![channel("shop", Some(bot.url()))]).await;
        rig.accepted("shop", text("wamid.1", "1")).await;
        told(
            &rig,
            &[
                &format!("answered {status}"),
                &format!("likely cause: {}", if status == 404 { "there is nothing at" } else { "the bot at" }),
                cause,
            ],
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_is_told_apart_from_the_first_delivery_and_the_bots_words_are_shown() {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(Opened::memory(), vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("wamid.1", "1")).await;
    rig.settled().await;
    let asked = rig.client.post(rig.url("/v1/events/latest/replay")).bearer_auth(ADMIN).send().await.expect("an answer");
    assert_eq!(asked.status(), 202);
    rig.settled().await;
    told(&rig, &["delivered: the target took it at attempt 1", "delivered: replay 1: the target took it"]).await;
    let asked = rig.client.get(rig.url("/v1/events/latest")).bearer_auth(ADMIN).send().await.expect("an answer");
    let event: Value = asked.json().await.expect("JSON");
    assert_eq!((&event["event_type"], &event["bot_answer"]["status"]), (&"messages.text".into(), &200.into()), "{event}");
}

/// Runs `hapax doctor` with a channel whose bot answers so; gives its exit code and what it found of the bot and its request.
async fn doctor(status: u16) -> (Option<i32>, String) {
    let bot = FakeBot::start(move |_| Say::Status(status)).await.expect("a bot");
    let folder = crate::quick_folder();
    let config = format!(
        "listen = \"127.0.0.1:1\"\nstore = \"sqlite:{}/hapax.db\"\n[channel.shop]\nprovider = \"whatsapp\"\nsecret = \"{}\"\ntarget = \"{}\"\n",
        folder.path().display(),
        crate::rig::SECRET,
        bot.url()
    );
    std::fs::write(folder.path().join("hapax.toml"), config).expect("a config");
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_hapax"));
    let said = command.args(["doctor", "--json"]).current_dir(folder.path()).output().await.expect("it runs");
    let found: Value = serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    let checks = found["checks"].as_array().expect("checks").clone();
    let of_bot = checks.iter().find(|check| check["what"] == "shop bot").expect("the bot was tried");
    let calls = bot.calls();
    assert_eq!(calls.len(), 1, "one call");
    assert_eq!(calls[0].header("x-hub-signature-256"), crate::rig::signature(&calls[0].body));
    assert_eq!(calls[0].body, &br#"{"object":"whatsapp_business_account","entry":[]}"#[..], "nothing to do in it");
    assert!(!folder.path().join("hapax.db").exists(), "a doctor keeps nothing");
    (said.status.code(), format!("{} {}", of_bot["state"].as_str().unwrap_or(""), of_bot["words"].as_str().unwrap_or("")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_doctor_tries_the_bot_with_a_signed_webhook_that_has_nothing_in_it() {
    let (code, words) = doctor(200).await;
    assert!(code == Some(0) && words.starts_with("ok"), "{code:?} {words}");
    let (code, words) = doctor(401).await;
    assert!(code == Some(1) && words.starts_with("fail") && words.contains("the same secret"), "{code:?} {words}");
    let (code, words) = doctor(500).await;
    assert!(code == Some(0) && words.starts_with("warn"), "it may stumble over it: {code:?} {words}");
}
