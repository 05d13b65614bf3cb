//! The bot gets nothing.

use std::time::Duration;

use hapax_testkit::fake_bot::{FakeBot, Say};

use super::page::Heard;
use super::stage::{Listening, Stage, closed_port, config, target};

const STORY: [&str; 2] = ["story", "latest"];

/// The story of a message that this bot gets, `hapax listen` before it, and what the doctor finds of it.
async fn with_target(url: &str, cause: &str) -> Heard {
    let stage = Stage::with("", &target(url)).await;
    stage.take("wamid.1").await;
    let story = stage.until(&STORY, cause).await;
    let listen = Listening::start(url).await.shows(cause).await;
    let doctor = stage.run(&["doctor"]).await;
    assert_eq!(doctor.code, "1", "{}", doctor.words);
    Some(vec![("story", story), ("listen", listen), ("doctor", doctor.words)])
}

async fn with_status(status: u16, cause: &str) -> Heard {
    let bot = FakeBot::start(move |_| Say::Status(status)).await.expect("a bot");
    with_target(&bot.url(), cause).await
}

pub(super) async fn not_running() -> Heard {
    let url = format!("http://127.0.0.1:{}/webhook", closed_port());
    with_target(&url, &format!("nothing listens at {url}")).await
}

pub(super) async fn wrong_path() -> Heard {
    with_status(404, "there is nothing at").await
}

pub(super) async fn other_secret() -> Heard {
    with_status(401, "does not believe it").await
}

pub(super) async fn no_post() -> Heard {
    with_status(405, "takes no POST").await
}

pub(super) async fn redirects() -> Heard {
    with_status(302, "is not followed").await
}

pub(super) async fn guessed_path() -> Heard {
    let bot = FakeBot::start(|_| Say::Status(404)).await.expect("a bot");
    let listening = Listening::start(&bot.address.port().to_string()).await;
    Some(vec![("listen", listening.shows("there is nothing at").await)])
}

pub(super) async fn slow() -> Heard {
    let bot = FakeBot::start(|_| Say::Late(Duration::from_secs(30), 200)).await.expect("a bot");
    let stage = Stage::with("", &format!("{}\ntimeout = \"300ms\"", target(&bot.url()))).await;
    stage.take("wamid.1").await;
    Some(vec![("story", stage.until(&STORY, "likely cause").await), ("log", stage.log("no answer within").await)])
}

pub(super) async fn always_fails() -> Heard {
    let bot = FakeBot::start(|_| Say::Status(500)).await.expect("a bot");
    let stage = Stage::with("", &format!("{}\nattempts = 2", target(&bot.url()))).await;
    stage.take("wamid.1").await;
    let parked = stage.until(&["parked"], "answered 500").await;
    let (log, story) = (stage.log("parked").await, stage.run(&STORY).await.words);
    let redrive = stage.run(&["redrive", "--channel", "shop"]).await;
    assert_eq!(redrive.words, "1 back in line; `hapax inbox` shows them\n");
    Some(vec![("parked", parked), ("log", log), ("story", story)])
}

/// What waited is delivered once there is one, and the config was read anew.
pub(super) async fn no_target_at_all() -> Heard {
    let bot = FakeBot::willing().await.expect("a bot");
    let stage = Stage::with("", "").await;
    stage.take("wamid.1").await;
    let (story, inbox) = (stage.run(&STORY).await.words, stage.run(&["inbox"]).await.words);
    let check = stage.folder.run(&["check"]).await.words;
    stage.folder.write(&config(stage.folder.path(), "", &target(&bot.url())));
    assert_eq!(stage.run(&["reload"]).await.code, "0");
    bot.called(1).await;
    Some(vec![("story", story), ("inbox", inbox), ("hapax check", check)])
}

/// The channel knows a bot for another number only.
pub(super) async fn no_target() -> Heard {
    let stage = Stage::with("", "[channel.shop.targets]\n999 = \"http://127.0.0.1:3000/webhook\"").await;
    stage.take("wamid.1").await;
    Some(vec![("story", stage.until(&STORY, "no target").await)])
}

/// It lets nobody in who has not its key; with the key the message comes.
pub(super) async fn behind_a_gateway() -> Heard {
    let bot = FakeBot::start(|call| Say::Status(if call.header("x-api-key") == "open sesame" { 200 } else { 401 }));
    let bot = bot.await.expect("a bot");
    let stage = Stage::with("", &target(&bot.url())).await;
    stage.take("wamid.1").await;
    let story = stage.until(&STORY, "likely cause").await;
    let more = format!("{}\ntarget_headers = {{ \"X-Api-Key\" = \"open sesame\" }}", target(&bot.url()));
    stage.folder.write(&config(stage.folder.path(), "", &more));
    assert_eq!(stage.run(&["reload"]).await.code, "0");
    assert_eq!(stage.run(&["redrive", "--channel", "shop"]).await.code, "0");
    stage.until(&["events"], "delivered").await;
    Some(vec![("story", story)])
}

pub(super) async fn down() -> Heard {
    let url = format!("http://127.0.0.1:{}/webhook", closed_port());
    let stage = Stage::with("", &target(&url)).await;
    stage.take("wamid.1").await;
    let log = stage.log("the target seems dead").await;
    let inbox = stage.until(&["inbox"], "is down, since").await;
    assert!(inbox.to_lowercase().contains("next try"), "{inbox}");
    Some(vec![("log", log), ("listen", Listening::start(&url).await.shows("waiting").await)])
}
