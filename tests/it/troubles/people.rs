//! People get nothing.

use hapax_testkit::fake_bot::{FakeBot, Say};
use hapax_testkit::fake_provider::{FakeProvider, Play};
use serde_json::json;

use super::page::Heard;
use super::stage::{Stage, target};

const STORY: [&str; 2] = ["story", "latest"];

async fn replying(body: &'static str) -> FakeBot {
    let headers = || vec![("content-type", "application/vnd.hapax.replies+json".to_owned())];
    let say = move |_: &_| Say::Answer { status: 200, headers: headers(), body: body.to_owned() };
    FakeBot::start(say).await.expect("a bot")
}

/// A channel that sends by this provider.
fn sending(bot: &FakeBot, provider: &FakeProvider) -> String {
    format!("{}\ntoken = \"a token\"\napi_base = \"{}\"", target(&bot.url()), provider.url())
}

pub(super) async fn no_token() -> Heard {
    let bot = replying(r#"{"replies":[{"text":"on its way"}]}"#).await;
    let stage = Stage::with("", &target(&bot.url())).await;
    stage.take("wamid.1").await;
    let story = stage.until(&STORY, "no `token`").await;
    Some(vec![
        ("story", story),
        ("log", stage.log("no `token`").await),
        ("hapax check", stage.folder.run(&["check"]).await.words),
    ])
}

pub(super) async fn bad_reply() -> Heard {
    let (bot, provider) =
        (replying(r#"{"replies":[{"txt":"on its way"}]}"#).await, FakeProvider::willing().await.expect("a provider"));
    let stage = Stage::with("", &sending(&bot, &provider)).await;
    stage.take("wamid.1").await;
    let log = stage.log("could not be read").await;
    let story = stage.until(&STORY, "txt").await;
    Some(vec![("log", log), ("story", story)])
}

pub(super) async fn account_stopped() -> Heard {
    let bot = replying(r#"{"replies":[{"text":"on its way"}]}"#).await;
    let provider = FakeProvider::start(|_| Play::Refuse { status: 401, code: "190".to_owned() }).await.expect("a provider");
    let stage = Stage::with("", &sending(&bot, &provider)).await;
    stage.take("wamid.1").await;
    let log = stage.log("an account was stopped").await;
    let accounts = stage.until(&["accounts"], "190").await;
    let resumed = stage.run(&["accounts", "resume", "shop", "700001"]).await;
    assert_eq!(resumed.code, "0", "{}", resumed.words);
    Some(vec![("log", log), ("accounts", accounts)])
}

/// Room for one reply, and a provider that takes none.
pub(super) async fn outbox_full() -> Heard {
    let bot = replying(r#"{"replies":[{"text":"on its way"}]}"#).await;
    let provider = FakeProvider::start(|_| Play::Refuse { status: 401, code: "190".to_owned() }).await.expect("a provider");
    let stage = Stage::with("[limits]\noutbox = 1", &sending(&bot, &provider)).await;
    stage.take("wamid.1").await;
    stage.log("an account was stopped").await;
    stage.take("wamid.2").await;
    let parked = stage.until(&["parked"], "outbox").await;
    let story = stage.run(&STORY).await.words;
    Some(vec![("parked", parked), ("story", story)])
}

/// The provider takes it, and its answer never comes.
pub(super) async fn lost_answer() -> Heard {
    let (bot, provider) =
        (FakeBot::willing().await.expect("a bot"), FakeProvider::playing(vec![Play::ActThenCut]).await.expect("a provider"));
    let stage = Stage::with("", &sending(&bot, &provider)).await;
    let message = json!({"channel": "shop", "account": "700001", "to": "5511900001", "text": "on its way"});
    let (status, sent) = stage.poster.send(stage.at, &message).await.expect("an answer");
    assert_eq!(status, 202, "{sent}");
    let id = sent["id"].as_str().expect("an id").to_owned();
    let told = stage.until(&["messages", &id], "in doubt").await;
    let outbox = stage.until(&["outbox", "--unknown"], "unknown").await;
    assert_eq!(provider.journal().len(), 1, "it is on the phone: {outbox}");
    let retry = stage.run(&["outbox", "retry", &id]).await;
    assert_eq!(retry.code, "0", "{}", retry.words);
    Some(vec![("messages ID", told)])
}
