//! Who is let in, what passes through, and what is answered in the provider's place.

use std::sync::Arc;
use std::time::Duration;

use hapax_gateway::server::Listeners;
use hapax_gateway::telemetry::Telemetry;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::{Library, TOKEN, served, texts};
use crate::phones::{Phones, with_send};
use crate::rig::{Opened, Rig, config, in_time};

on_every_store! {
    a_stranger_sends_nothing_and_learns_nothing
    a_path_that_leads_nowhere_tells_no_token
    a_token_of_hapax_opens_the_channels_it_is_for
    nothing_of_a_body_is_read_before_the_token_is_believed
    what_sends_nothing_passes_through
    a_bot_that_sets_its_webhook_hears_yes_and_changes_nothing
    what_would_cut_everybody_off_is_refused
    bots_are_served_where_the_config_says
    a_whole_message_may_stand_in_the_query
}

async fn post(rig: &Rig, token: &str, method: &str) -> (u16, String) {
    let asked = rig.client.post(rig.url(&format!("/bot{token}/{method}"))).header("content-type", "application/json");
    let answer = asked.body(json!({"chat_id": 77, "text": "hi"}).to_string()).send().await.expect("an answer");
    (answer.status().as_u16(), answer.text().await.expect("a body"))
}

async fn a_stranger_sends_nothing_and_learns_nothing(opened: Opened) {
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![served("helpbot", None, &phones)]).await;
    let wrong = "12345:another-token-for-tests";
    let refused = post(&rig, wrong, "sendMessage").await;
    let said: serde_json::Value = serde_json::from_str(&refused.1).expect("JSON");
    assert_eq!((refused.0, said), (401, json!({"ok": false, "error_code": 401, "description": "Unauthorized"})));
    assert_eq!(post(&rig, wrong, "getMe").await, refused, "the same whatever is asked");
    assert_eq!(post(&rig, "x", "noSuchMethod").await, refused);
    assert_eq!(phones.provider.calls().len(), 0);
    rig.counted("hapax_tokens_refused_total", 3).await;
    assert_eq!(post(&rig, TOKEN, "sendMessage").await.0, 200);
}

async fn a_path_that_leads_nowhere_tells_no_token(opened: Opened) {
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![served("helpbot", None, &phones)]).await;
    for path in ["/bot{}", "/bot{}%2FsendMessage", "/file/bot{}", "/Bot{}/getMe"] {
        let answer = rig.client.get(rig.url(&path.replace("{}", TOKEN))).send().await.expect("an answer");
        let (status, said) = (answer.status().as_u16(), answer.text().await.expect("a body"));
        assert_eq!((status, said.contains("\"error_code\":401"), said.contains(TOKEN)), (401, true, false), "{path}: {said}");
    }
}

async fn a_token_of_hapax_opens_the_channels_it_is_for(opened: Opened) {
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![served("helpbot", None, &phones), served("other", None, &phones)]).await;
    let made = async |scopes: &[&str], channels: &[&str]| {
        let limited = (!channels.is_empty()).then_some(channels);
        let ask = json!({"name": format!("{}-{}", scopes.join("-"), channels.len()), "scopes": scopes, "channels": limited});
        let asked = rig.client.post(rig.url("/v1/tokens")).bearer_auth("an admin token for tests").json(&ask);
        let answer: serde_json::Value = asked.send().await.expect("an answer").json().await.expect("JSON");
        answer["token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let sends = made(&["send"], &["helpbot"]).await;
    assert_eq!(post(&rig, &sends, "sendMessage").await.0, 200);
    assert_eq!(texts(&phones, 77), ["hi"]);
    let calls = phones.provider.calls();
    assert!(calls[0].path_and_query.starts_with(&format!("/bot{TOKEN}/")), "the channel's own token goes out");
    let reads = made(&["read"], &["helpbot"]).await;
    assert_eq!(post(&rig, &reads, "sendMessage").await.0, 401);
    let both = made(&["send"], &["helpbot", "other"]).await;
    assert_eq!(post(&rig, &both, "sendMessage").await.0, 401, "which of the two is meant cannot be told");
    let all = made(&["send"], &[]).await;
    let admin = made(&["admin"], &["helpbot"]).await;
    for token in [&all, &admin, "an%20admin%20token%20for%20tests"] {
        assert_eq!(post(&rig, token, "sendMessage").await.0, 401, "too much to stand in a path");
    }
    assert_eq!(phones.provider.calls().len(), 1);
}

async fn nothing_of_a_body_is_read_before_the_token_is_believed(opened: Opened) {
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![served("helpbot", None, &phones)]).await;
    let mut stranger = TcpStream::connect(rig.address).await.expect("a connection");
    // A hundred megabytes are announced, and none of them comes.
    let head = "POST /bot1:wrong/sendDocument HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\nexpect: 100-continue\r\n\r\n";
    stranger.write_all(head.as_bytes()).await.expect("written");
    let mut answer = vec![0; 12];
    in_time("an answer", stranger.read_exact(&mut answer)).await.expect("an answer");
    assert_eq!(answer, b"HTTP/1.1 401", "and not 100 Continue");
}

async fn what_sends_nothing_passes_through(opened: Opened) {
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![served("helpbot", None, &phones)]).await;
    let asked = rig.client.get(rig.url(&format!("/bot{TOKEN}/getChat?chat_id=77"))).header("x-of-the-bot", "1");
    let answer = asked.header("hapax-event-id", "evt_1").send().await.expect("an answer");
    assert_eq!(
        (answer.status().as_u16(), answer.text().await.expect("a body")),
        (200, r#"{"ok":true,"result":true}"#.to_owned())
    );
    let call = phones.provider.calls().remove(0);
    assert_eq!(call.path_and_query, format!("/bot{TOKEN}/getChat?chat_id=77"));
    assert_eq!(call.headers.get("x-of-the-bot").expect("passed on"), "1");
    assert!(call.headers.get("hapax-event-id").is_none() && call.headers.get("host").expect("one") != &rig.address.to_string());
    let edited = Library::default();
    edited.is_given(&rig);
    let body = json!({"chat_id": 77, "message_id": 1, "text": "other"});
    for _ in 0..2 {
        assert_eq!(edited.call("editMessageText", body.clone()).await.expect("an answer").status, 200);
    }
    assert_eq!(phones.provider.calls().len(), 3, "what can be repeated is");
    assert_eq!(phones.provider.calls()[2].body, body.to_string());
    rig.counted(r#"hapax_dropin_passed_through_total{channel="helpbot"}"#, 3).await;
    rig.counted(r#"hapax_dropin_sends_total{channel="helpbot"}"#, 0).await;
}

async fn a_bot_that_sets_its_webhook_hears_yes_and_changes_nothing(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let channel = served("helpbot", Some("http://user:secret@127.0.0.1:1/telegram".to_owned()), &phones);
    let rig = Rig::start(opened, vec![channel]).await;
    library.is_given(&rig);
    let said = async |method, body| library.call(method, body).await.expect("an answer").json();
    let set = said("setWebhook", json!({"url": "https://bot.example/telegram"})).await;
    assert_eq!(set, json!({"ok": true, "result": true, "description": "Webhook was set"}));
    let removed = said("setWebhook", json!({"url": ""})).await;
    assert_eq!(removed, json!({"ok": true, "result": true, "description": "Webhook was deleted"}));
    assert_eq!(said("deletewebhook", json!({})).await["ok"], true);
    let info = said("getWebhookInfo", json!({})).await;
    assert_eq!(info["result"]["pending_update_count"], 0, "{info}");
    let url = info["result"]["url"].as_str().expect("an address");
    assert!(url.contains("127.0.0.1:1/telegram") && !url.contains("secret"), "{url}");
    assert_eq!(phones.provider.calls().len(), 0, "Telegram hears nothing of it");
}

async fn what_would_cut_everybody_off_is_refused(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    // Who has a target does not poll.
    let target = Some("http://127.0.0.1:9/".to_owned());
    let rig = Rig::start(opened, vec![served("helpbot", target, &phones)]).await;
    library.is_given(&rig);
    for method in ["logOut", "close", "getUpdates"] {
        let answer = library.call(method, json!({})).await.expect("an answer");
        assert!(answer.status >= 400 && answer.json()["ok"] == false, "{method}: {answer:?}");
        assert!(answer.json()["description"].as_str().is_some_and(|words| !words.is_empty()), "{method}: {answer:?}");
    }
    assert_eq!(phones.provider.calls().len(), 0);
}

async fn bots_are_served_where_the_config_says(opened: Opened) {
    let phones = Phones::willing().await;
    let config = config(vec![served("helpbot", None, &phones)]);
    let server = hapax_server::open::open_on(Arc::clone(&opened.store), opened.clock, &config, Telemetry::new());
    let server = server.await.expect("it opens");
    let (public, dropin) =
        (TcpListener::bind("127.0.0.1:0").await.expect("a port"), TcpListener::bind("127.0.0.1:0").await.expect("a port"));
    let (at, for_bots) = (public.local_addr().expect("an address"), dropin.local_addr().expect("an address"));
    let stop = CancellationToken::new();
    let running = tokio::spawn(server.run(Listeners { public, admin: None, dropin: Some(dropin), resp: None }, stop.clone()));
    let client = reqwest::Client::new();
    let asked = async |address| {
        let url = format!("http://{address}/bot{TOKEN}/getMe");
        client.get(url).send().await.expect("an answer").status().as_u16()
    };
    assert_eq!((asked(at).await, asked(for_bots).await), (404, 200));
    let inside = client.get(format!("http://{for_bots}/v1/stats")).bearer_auth("an admin token for tests").send();
    assert_eq!(inside.await.expect("an answer").status(), 404, "nothing else is served there");
    stop.cancel();
    running.await.expect("no panic").expect("a clean stop");
}

/// As pyTelegramBotAPI sends.
async fn a_whole_message_may_stand_in_the_query(opened: Opened) {
    let phones = Phones::willing().await;
    let channel = with_send(served("helpbot", None, &phones), |send| send.timeout_ms = 20_000);
    let rig = Rig::start(opened, vec![channel]).await;
    let text = "ab%20cd".repeat(580);
    let asked =
        rig.client.post(rig.url(&format!("/bot{TOKEN}/sendMessage?chat_id=77&text={text}&entities={}", "%5B%5D".repeat(9_000))));
    let answer = asked.timeout(Duration::from_secs(20)).send().await.expect("an answer");
    assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
    assert_eq!(texts(&phones, 77), [text.replace("%20", " ")]);
}
