//! Evolution through a whole hapax: two webhooks for one event, contacts that choose ids, and keys in bodies that no disk sees.

use std::path::Path;

use hapax_gateway::settings::Channel;
use hapax_providers::settings::{EvolutionProof, Settings, SignatureRule};
use hapax_store::EventState;
use hapax_store::clock::{Clock, SystemClock};
use hapax_testkit::fake_bot::FakeBot;
use serde_json::{Value, json};

use crate::rig::{Opened, Rig, SECRET, channel};

const PHONE: &str = "551188887777@s.whatsapp.net";
const APIKEY: &str = "B6D711FCDE4D4FD5936544120E713976";

fn evolution(target: String) -> Channel {
    let header = http::HeaderName::from_static("x-webhook-secret");
    let rule = SignatureRule::Token { header, prefix: String::new(), secrets: vec![SECRET.into()] };
    let provider = Settings::Evolution { proof: EvolutionProof::Header(rule), token: Some(APIKEY.into()) };
    Channel { provider, ..channel("phone", Some(target)) }
}

fn said(text: &str, id: &str, from: &str, to: &str) -> Value {
    let key = json!({"remoteJid": from, "fromMe": false, "id": id});
    let data =
        json!({"key": key, "message": {"conversation": text}, "messageType": "conversation", "messageTimestamp": 1_760_000_000});
    json!({"event": "messages.upsert", "instance": "shop1", "data": data, "destination": to, "apikey": APIKEY})
}

async fn word(rig: &Rig, body: &Value) -> String {
    let body = body.to_string();
    let request = rig.request("phone", body.as_bytes()).header("x-webhook-secret", SECRET).body(body);
    let answer: Value = request.send().await.expect("an answer").json().await.expect("JSON");
    answer["status"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_webhooks_for_one_message_are_one_and_a_contact_with_the_same_id_is_heard() {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(Opened::memory(), vec![evolution(bot.url())]).await;
    assert_eq!(word(&rig, &said("oi", "3A01", PHONE, "https://hapax.example/in/phone")).await, "accepted");
    assert_eq!(word(&rig, &said("oi", "3A01", PHONE, "https://hapax.example/global")).await, "duplicate");
    assert_eq!(word(&rig, &said("buy now", "3A01", "666@s.whatsapp.net", "https://hapax.example/in/phone")).await, "accepted");
    rig.settled().await;
    assert_eq!(bot.calls().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_instances_key_reaches_the_bot_and_no_disk() {
    let bot = FakeBot::willing().await.expect("a bot");
    let opened = Opened::sqlite();
    let folder = opened.folder.clone().expect("a folder");
    let rig = Rig::start(opened, vec![evolution(bot.url())]).await;
    let sent = said("words that are on disk", "3A01", PHONE, "https://hapax.example/in/phone");
    assert_eq!(word(&rig, &sent).await, "accepted");
    rig.settled().await;
    let calls = bot.calls();
    assert_eq!(serde_json::from_slice::<Value>(&calls[0].body).expect("JSON"), sent);
    assert_eq!(calls[0].header("x-webhook-secret"), SECRET);
    let on_disk = on_disk(folder.path());
    assert!(holds(&on_disk, "words that are on disk") && !holds(&on_disk, APIKEY) && !holds(&on_disk, SECRET));
}

fn on_disk(folder: &Path) -> Vec<u8> {
    let files = std::fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path());
    files.flat_map(|file| std::fs::read(file).expect("readable")).collect()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_under_another_name_or_in_a_broken_body_reaches_no_disk() {
    let bot = FakeBot::willing().await.expect("a bot");
    let opened = Opened::sqlite();
    let folder = opened.folder.clone().expect("a folder");
    let rig = Rig::start(opened, vec![evolution(bot.url())]).await;
    let mut nested = said("nested words", "3A02", PHONE, "https://hapax.example/in/phone");
    nested["data"]["apiKey"] = APIKEY.into();
    assert_eq!(word(&rig, &nested).await, "accepted");
    let whole = said("broken words", "3A03", PHONE, "https://hapax.example/in/phone").to_string();
    let broken = whole.strip_suffix('}').expect("an object").to_owned();
    let request = rig.request("phone", broken.as_bytes()).header("x-webhook-secret", SECRET).body(broken);
    assert_eq!(request.send().await.expect("an answer").status(), 200);
    rig.settled().await;
    assert_eq!(serde_json::from_slice::<Value>(&bot.calls()[0].body).expect("JSON"), nested, "the bot gets its own key");
    assert!(rig.events().await.iter().any(|event| event.state == EventState::Quarantined));
    let on_disk = on_disk(folder.path());
    assert!(holds(&on_disk, "nested words") && holds(&on_disk, "broken words") && !holds(&on_disk, APIKEY));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slacks_old_token_reaches_no_disk() {
    let bot = FakeBot::willing().await.expect("a bot");
    let opened = Opened::sqlite();
    let folder = opened.folder.clone().expect("a folder");
    let team = Channel { provider: Settings::Slack { secrets: vec![SECRET.into()] }, ..channel("team", Some(bot.url())) };
    let provider = hapax_providers::build(&team.provider);
    let rig = Rig::start(opened, vec![team]).await;
    let event = json!({"type": "message", "channel": "C1", "ts": "1.000100", "text": "words that are on disk"});
    let body = json!({"token": APIKEY, "type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": event}).to_string();
    let broken = body.replace("Ev1", "Ev2") + "}";
    for body in [body, broken] {
        let unsigned = hapax_providers::Unsigned { url: None, headers: &http::HeaderMap::new(), body: body.as_bytes() };
        let mut request = rig.client.post(rig.url("/in/team")).header("content-type", "application/json");
        for (name, value) in provider.sign(unsigned, SystemClock::new().wall_ms()) {
            request = request.header(name, value);
        }
        assert_eq!(request.body(body).send().await.expect("an answer").status(), 200);
    }
    rig.settled().await;
    assert_eq!(bot.calls().len(), 1);
    let on_disk = on_disk(folder.path());
    assert!(holds(&on_disk, "words that are on disk") && !holds(&on_disk, APIKEY));
}
