//! `hapax send`

use clap::Args;
use hapax_domain::Priority;
use hapax_domain::limits::SEND_WAIT_MAX_S;
use serde_json::{Value, json};

use super::client::Client;
use super::output::{printable, text_of};
use super::{Failure, Global, Output};

/// Send a message: it is stored first, and leaves once, whatever crashes
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hapax send --account 700001 --to 5511988887777 --text \"It is on its way\"
  hapax send --channel helpbot --to 77 --text hello --wait 10
  hapax send --to 5511988887777 --text hello --request-id order-4711
  hapax send --to 5511988887777 --text hello --at 2026-12-24T18:00:00+01:00
  hapax send --channel helpbot --to 77 --payload '{\"method\":\"sendDice\"}'

The same --request-id again is the same message: nothing is sent twice, and the
answer says what became of the first. With other content it is refused. Without
--wait the command ends when the message is stored; `hapax messages ID` follows
it. With --wait it ends with code 1 when the message failed or is in doubt.")]
pub struct Send {
    /// Whom it is for: a number with country code, a chat id
    #[arg(long, value_name = "PEER", allow_hyphen_values = true)]
    to: String,
    /// What to say
    #[arg(long, required_unless_present = "payload", conflicts_with = "payload", allow_hyphen_values = true)]
    text: Option<String>,
    /// Instead of a text: the provider's own request body, as JSON
    #[arg(long, value_name = "JSON", value_parser = read_payload)]
    payload: Option<Value>,
    /// The channel to send through; not needed when there is only one, or when --account tells it
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// The account that sends: WhatsApp's phone_number_id, the device; a Telegram bot needs none
    #[arg(long, value_name = "ID")]
    account: Option<String>,
    /// Your own name for this very send, so that a repeat is not a second message
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    /// Who goes first when not all can: reply, normal, bulk
    #[arg(long, value_parser = read_priority)]
    priority: Option<Priority>,
    /// Send it later: a time with its offset (2026-12-24T18:00:00+01:00), or a time from now (90s, 2h, 3d)
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Wait so many seconds for the outcome
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=SEND_WAIT_MAX_S))]
    wait: Option<u64>,
}

impl Send {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        // Made here and not by the server: when the answer is lost, it can still be repeated without a second message.
        let request_id = self.request_id.unwrap_or_else(|| format!("cli_{}", hex::encode(rand::random::<[u8; 16]>())));
        let mut ask = json!({ "to": self.to, "request_id": request_id });
        let parts = [
            ("text", self.text.map(Value::from)),
            ("payload", self.payload),
            ("channel", self.channel.map(Value::from)),
            ("account", self.account.map(Value::from)),
            ("send_at", self.at.map(Value::from)),
            ("priority", self.priority.map(|priority| priority.name().into())),
        ];
        for (name, value) in parts.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            ask[name] = value;
        }
        let wait = self.wait.map(|seconds| format!("wait={seconds}"));
        let headers: Vec<_> = wait.iter().map(|wait| ("prefer", wait.as_str())).collect();
        let sent = Client::open(global)?.post_with("/v1/messages", ask, &headers).await;
        let receipt = sent.map_err(|failure| repeatable(failure, &request_id))?;
        output.answer(&receipt, words(&receipt));
        match text_of(&receipt, "status").as_str() {
            status @ ("failed" | "unknown") => {
                let why = printable(&text_of(&receipt, "why"));
                Err(Failure::plain(format!(
                    "the message is {status}: {why}; `hapax messages {}` tells more",
                    text_of(&receipt, "id")
                )))
            }
            _ => Ok(()),
        }
    }
}

fn words(receipt: &Value) -> String {
    let [id, status, to] = ["id", "status", "to"].map(|key| printable(&text_of(receipt, key)));
    let before = if receipt["replayed"] == json!(true) { ", the message of an earlier request" } else { "" };
    let name = match text_of(receipt, "provider_id") {
        name if name.is_empty() => String::new(),
        name => format!(" as {}", printable(&name)),
    };
    let later = match text_of(receipt, "send_at") {
        at if at.is_empty() || status != "queued" => String::new(),
        at => format!(" until {}", printable(&at)),
    };
    format!("{id} to {to}: {status}{later}{name}{before}")
}

/// Nobody knows whether a request without an answer arrived: tells how to ask again safely.
fn repeatable(failure: Failure, request_id: &str) -> Failure {
    match failure {
        Failure::Unreachable(words) => {
            let todo = format!("repeat it with --request-id {}, so that it is sent once", printable(request_id));
            Failure::Unreachable(format!("{words}. Not known to be stored: {todo}"))
        }
        other => other,
    }
}

fn read_payload(text: &str) -> Result<Value, String> {
    let read = serde_json::from_str::<Value>(text).map_err(|why| format!("not JSON: {why}"))?;
    if read.is_object() { Ok(read) } else { Err("write an object, {..}".to_owned()) }
}

fn read_priority(name: &str) -> Result<Priority, String> {
    Priority::from_name(name).ok_or_else(|| format!("use one of {}", Priority::ALL.map(Priority::name).join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_one_line_without_control_characters() {
        let receipt = json!({"id": "msg_1", "status": "sent", "to": "55\u{1b}", "provider_id": "wamid.1", "replayed": true});
        assert_eq!(words(&receipt), "msg_1 to 55\u{fffd}: sent as wamid.1, the message of an earlier request");
        assert_eq!(words(&json!({"id": "msg_1", "status": "queued", "to": "55", "replayed": false})), "msg_1 to 55: queued");
    }

    #[test]
    fn a_lost_answer_tells_the_request_id() {
        let told = repeatable(Failure::Unreachable("gone".to_owned()), "r1");
        assert!(told.to_string().contains("--request-id r1"), "{told}");
        assert_eq!(told.code(), 4);
        assert_eq!(repeatable(Failure::plain("no"), "r1").to_string(), "no");
    }
}
