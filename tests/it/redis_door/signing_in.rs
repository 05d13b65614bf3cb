//! Who is let in, and for how long.

use serde_json::json;

use super::talk::Talk;
use super::{OpenDoor, TOKEN};
use crate::rig::{Opened, channel, config, eventually};

on_every_store! {
    nothing_is_done_for_strangers
    a_token_of_scope_work_opens_the_door_until_it_is_revoked
}

const NOAUTH: &str = "-NOAUTH Authentication required.\r\n";
const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

async fn nothing_is_done_for_strangers(opened: Opened) {
    let door = OpenDoor::start(opened).await;
    let mut talk = Talk::open(door.at).await;
    for line in ["PING", "SET a 1", "GET a", "EVAL x 0", "INFO", "COMMAND", "CLIENT ID", "SELECT 0", "NOSUCH", "SET"] {
        assert_eq!(talk.line(line).await, NOAUTH, "{line}");
    }
    assert!(talk.line("HELLO 3").await.starts_with("-NOAUTH HELLO must be called"));
    assert_eq!(talk.ask(&["AUTH", "wrong"]).await, WRONGPASS);
    assert_eq!(talk.ask(&["HELLO", "3", "AUTH", "default", "wrong"]).await, WRONGPASS);
    assert_eq!(talk.line("GET a").await, NOAUTH);
    assert!(talk.ask(&["HELLO", "3", "AUTH", "default", TOKEN]).await.starts_with("%7\r\n"));
    assert_eq!(talk.line("GET a").await, "_\r\n", "none of it was done");
    assert_eq!(talk.ask(&["AUTH", "wrong"]).await, WRONGPASS);
    assert_eq!(talk.line("PING").await, "+PONG\r\n", "as in Redis, who is in stays in");
    assert_eq!(talk.line("QUIT").await, "+OK\r\n");
    assert_eq!(talk.hear().await, None);
    assert_eq!(door.metric("hapax_tokens_refused_total"), 3);
    door.stop().await;
}

async fn a_token_of_scope_work_opens_the_door_until_it_is_revoked(opened: Opened) {
    let door = OpenDoor::start_with(opened, config(vec![channel("shop", None)])).await;
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let tokens = format!("http://{}/v1/tokens", door.api);
    let make = async |name: &str, scope: &str, channel: Option<&str>| {
        let asked = json!({"name": name, "scopes": [scope], "channels": channel.map(|channel| [channel])});
        let request = client.post(&tokens).bearer_auth(TOKEN).json(&asked);
        let answer: serde_json::Value = request.send().await.expect("an answer").json().await.expect("JSON");
        answer["token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let (reads, works) = (make("looker", "read", None).await, make("worker", "work", None).await);
    let limited = make("shopkeeper", "work", Some("shop")).await;
    let mut talk = Talk::open(door.at).await;
    assert!(talk.ask(&["AUTH", &reads]).await.starts_with("-NOPERM "));
    assert!(talk.ask(&["AUTH", &limited]).await.starts_with("-NOPERM "), "its claims are in the scope `shop`");
    assert_eq!(talk.line("PING").await, NOAUTH);
    assert_eq!(talk.ask(&["AUTH", "worker", &works]).await, "+OK\r\n");
    assert_eq!(talk.line("SET a 1 NX EX 60").await, "+OK\r\n");
    let revoked = client.delete(format!("{tokens}/worker")).bearer_auth(TOKEN).send().await.expect("an answer");
    assert!(revoked.status().is_success());
    let mut refused = String::new();
    eventually("the end of a revoked token", async || {
        refused = talk.line("GET a").await;
        refused == NOAUTH
    })
    .await;
    door.stop().await;
}
