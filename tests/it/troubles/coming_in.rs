//! Nothing comes in.

use hapax_testkit::servers::Engine;
use jiff::Timestamp;

use super::page::Heard;
use super::stage::{Folder, Stage, config, config_on};
use crate::program::ADMIN_TOKEN;
use crate::rig::{SECRET, signature, text};

/// More than any disk has.
const NO_ROOM: &str = "[limits]\ndisk_floor = \"900000GB\"";

pub(super) async fn wrong_secret() -> Heard {
    let stage = Stage::with("", "").await;
    let signed = signature(b"another body");
    let status = stage.post_raw("shop", &[("x-hub-signature-256", &signed)], text("wamid.1", "1")).await;
    Some(vec![("provider", status), ("log", stage.log("WARN").await)])
}

pub(super) async fn no_signature() -> Heard {
    let stage = Stage::with("", "").await;
    let status = stage.post_raw("shop", &[], text("wamid.1", "1")).await;
    Some(vec![("provider", status), ("log", stage.log("WARN").await)])
}

/// What was signed an hour ago looks the same as a clock that is an hour ahead.
pub(super) async fn clock_off() -> Heard {
    let folder = Folder::new();
    let config = format!("{}[channel.pay]\nprovider = \"stripe\"\nsecret = \"{SECRET}\"\n", config(folder.path(), "", ""));
    let stage = Stage::start(folder, &config).await;
    let body = r#"{"id":"evt_1","object":"event","type":"invoice.paid"}"#;
    let then = Timestamp::now().as_second() - 3_600;
    let signed = signature(format!("{then}.{body}").as_bytes()).replace("sha256=", &format!("t={then},v1="));
    let status = stage.post_raw("pay", &[("stripe-signature", &signed)], body.to_owned()).await;
    Some(vec![("provider", status), ("log", stage.log("WARN").await)])
}

pub(super) async fn wrong_address() -> Heard {
    let stage = Stage::with("", "").await;
    let status = stage.post_raw("whatsap", &[], text("wamid.1", "1")).await;
    Some(vec![("provider", status), ("log", stage.log("WARN").await)])
}

pub(super) async fn handshake() -> Heard {
    let stage = Stage::with("", "").await;
    let query = "hub.mode=subscribe&hub.verify_token=knock&hub.challenge=4711";
    let asked = reqwest::get(format!("http://{}/in/shop?{query}", stage.at)).await.expect("an answer");
    Some(vec![("provider", asked.status().as_u16().to_string()), ("log", stage.log("WARN").await)])
}

pub(super) async fn disk_full() -> Heard {
    let stage = Stage::with(NO_ROOM, "").await;
    let said = stage.poster.post(stage.at, text("wamid.1", "1")).await.expect("an answer");
    let doctor = stage.run(&["doctor", "--offline"]).await;
    assert!(doctor.code == "1" && doctor.words.contains("fail\tdisk"), "{}", doctor.words);
    let ready = stage.run(&["ready"]).await;
    Some(vec![("provider", said.status.to_string()), ("log", stage.log("WARN").await), ("hapax ready", ready.words)])
}

pub(super) async fn store_away() -> Heard {
    let mut server = Engine::Redis.private().await?;
    let folder = Folder::new();
    let config = config_on(&server.fresh().await, "", "");
    let stage = Stage::start(folder, &config).await;
    stage.take("wamid.1").await;
    server.kill9().await;
    let said = stage.poster.post(stage.at, text("wamid.2", "1")).await.expect("an answer");
    let log = stage.log("could not do its job").await;
    let ready = reqwest::Client::new().get(format!("http://{}/readyz", stage.at)).bearer_auth(ADMIN_TOKEN).send();
    assert_eq!(ready.await.expect("an answer").status().as_u16(), 503);
    server.restart().await;
    stage.until(&["ready"], "ready\n").await;
    Some(vec![("provider", said.status.to_string()), ("log", log)])
}

pub(super) async fn no_room_at_the_balancer() -> Heard {
    let stage = Stage::with(NO_ROOM, "").await;
    let _ = stage.poster.post(stage.at, text("wamid.1", "1")).await;
    let ready = stage.run(&["ready"]).await;
    Some(vec![("hapax ready", ready.words), ("exit code", ready.code)])
}
