//! A bot as people write them, in python with nothing but its standard library, checks what hapax delivers.

use std::process::Stdio;

use hapax_testkit::fake_bot::FakeBot;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::rig::{Opened, Rig, SECRET, change, channel, message, status, text, webhook};

on_every_store! {
    pythons_own_signature_check_passes_on_every_body
}

/// Reads lines of `signature body-in-hex`; prints what a bot finds in each, and fails where Meta's documented check would.
const BOT: &str = r#"
import hashlib, hmac, json, sys
secret = sys.argv[1].encode()
for line in sys.stdin:
    signature, raw = line.split()
    raw = bytes.fromhex(raw)
    expected = "sha256=" + hmac.new(secret, raw, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(expected, signature), "bad signature"
    body = json.loads(raw)
    assert body["object"] == "whatsapp_business_account"
    for entry in body["entry"]:
        for change in entry["changes"]:
            assert change["field"] == "messages"
            value = change["value"]
            assert value["messaging_product"] == "whatsapp" and value["metadata"]["phone_number_id"]
            for message in value.get("messages", []):
                print("message", message["id"], message["from"], message[message["type"]]["body"], sep="\t")
            for status in value.get("statuses", []):
                print("status", status["id"], status["recipient_id"], status["status"], sep="\t")
"#;

async fn pythons_own_signature_check_passes_on_every_body(opened: Opened) {
    if Command::new("python3").arg("--version").stdout(Stdio::null()).status().await.is_err() {
        assert!(std::env::var_os("CI").is_none(), "python3 is missing");
        return;
    }
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    // As it came; of a batch the unknown half; and split into threads.
    rig.accepted("shop", text("wamid.1", "1")).await;
    let batch = webhook(&[
        change(&[message("wamid.1", "1"), message("wamid.2", "1"), message("wamid.3", "2")], &[]),
        change(&[message("wamid.\u{1F600}", "2")], &[status("wamid.OUT", "sent"), status("wamid.OUT", "read")]),
    ]);
    rig.accepted("shop", batch).await;
    rig.settled().await;

    let calls = bot.calls();
    let lines = calls.iter().map(|call| format!("{} {}\n", call.header("x-hub-signature-256"), hex::encode(&call.body)));
    let mut found: Vec<_> = python(&lines.collect::<String>()).await.lines().map(str::to_owned).collect();
    found.sort();
    let expected = [
        "message\twamid.1\t1\tthis is wamid.1",
        "message\twamid.2\t1\tthis is wamid.2",
        "message\twamid.3\t2\tthis is wamid.3",
        "message\twamid.\u{1F600}\t2\tthis is wamid.\u{1F600}",
        "status\twamid.OUT\t5511988887777\tread",
        "status\twamid.OUT\t5511988887777\tsent",
    ];
    assert_eq!(found, expected);
}

async fn python(input: &str) -> String {
    let mut command = Command::new("python3");
    command.args(["-c", BOT, SECRET]).env("PYTHONIOENCODING", "utf-8").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = command.spawn().expect("python3 runs");
    let mut stdin = running.stdin.take().expect("its input");
    stdin.write_all(input.as_bytes()).await.expect("written");
    drop(stdin);
    let output = running.wait_with_output().await.expect("it ends");
    assert!(output.status.success(), "python says no; its reason is above");
    String::from_utf8(output.stdout).expect("UTF-8")
}
