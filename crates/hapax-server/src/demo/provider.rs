//! The pretend provider: posts messages of a few people, repeats four of ten webhooks, and loses answers in both directions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hapax_providers::settings::Settings;
use hapax_providers::{Provider, Unsigned, build};
use http::{HeaderMap, StatusCode};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::journal::Journal;
use super::wire::Say;

const REPEATS: f64 = 0.4;
const LOSES_ANSWERS: f64 = 0.1;
const PEOPLE: u64 = 12;
/// Between two messages.
const PAUSE: Duration = Duration::from_millis(40);
/// Before the word about a message whose answer was lost, and before a refused webhook comes again.
const LATER: Duration = Duration::from_millis(150);
const ACCOUNT: &str = "700001";

pub(super) struct Pretend {
    client: reqwest::Client,
    webhook: String,
    signer: Arc<dyn Provider>,
    journal: Arc<Journal>,
}

impl Pretend {
    pub(super) fn new(gateway: SocketAddr, secret: &str, journal: Arc<Journal>) -> Self {
        let signer = build(&Settings::Whatsapp { secrets: vec![SecretString::from(secret)], verify_token: None });
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build().unwrap_or_default();
        Self { client, webhook: format!("http://{gateway}/in/demo"), signer, journal }
    }

    /// Posts one message after the other, and copies of some at the same time.
    pub(super) async fn post_messages(self: Arc<Self>, enough: CancellationToken) {
        let mut number = 0_u64;
        while !enough.is_cancelled() {
            number += 1;
            let id = format!("wamid.demo.{number}");
            let message = json!({
                "id": id, "from": peer(number), "timestamp": now_s().to_string(), "type": "text",
                "text": {"body": format!("message {number}")},
            });
            self.post_with_copies(Some(&id), &webhook("messages", &message)).await;
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = enough.cancelled() => {}
            }
        }
    }

    /// A send comes in: the provider takes it, says so or loses its answer, and tells later what became of it.
    pub(super) async fn hear(self: Arc<Self>, body: Vec<u8>) -> Say {
        let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
        let words = sent["text"]["body"].as_str().unwrap_or_default().to_owned();
        let answered = rand::random::<f64>() >= LOSES_ANSWERS;
        self.journal.sent(&words, answered);
        let id = format!("wamid.out.{:016x}", rand::random::<u64>());
        let status = json!({
            "id": id, "status": "delivered", "timestamp": now_s().to_string(), "recipient_id": sent["to"],
            "biz_opaque_callback_data": sent["biz_opaque_callback_data"],
        });
        tokio::spawn(async move {
            tokio::time::sleep(LATER).await;
            self.post_with_copies(None, &webhook("statuses", &status)).await;
        });
        if !answered {
            return Say::Cut;
        }
        let body = json!({"messaging_product": "whatsapp", "messages": [{"id": id}]}).to_string();
        Say::Answer { status: 200, content_type: "application/json", body }
    }

    /// Posts a webhook, four times of ten more than once: as if its answer had been lost, at once or after it.
    async fn post_with_copies(self: &Arc<Self>, id: Option<&str>, body: &Value) {
        let body = body.to_string();
        let mut copies = Vec::new();
        while rand::random::<f64>() < REPEATS && copies.len() < 5 {
            let (this, id, body) = (Arc::clone(self), id.map(str::to_owned), body.clone());
            copies.push(tokio::spawn(async move { this.post(id.as_deref(), &body).await }));
        }
        self.post(id, &body).await;
        for copy in copies {
            // A copy that could not be posted is one copy less.
            let _ = copy.await;
        }
    }

    /// Posts until it is taken.
    async fn post(&self, id: Option<&str>, body: &str) {
        if let Some(id) = id {
            self.journal.posting(id);
        }
        let mut taken = false;
        for _ in 0..20 {
            let none = HeaderMap::new();
            let unsigned = Unsigned { url: None, headers: &none, body: body.as_bytes() };
            let mut request = self.client.post(&self.webhook).header("content-type", "application/json");
            for (name, value) in self.signer.sign(unsigned, now_s() * 1_000) {
                request = request.header(name, value);
            }
            let answer = request.body(body.to_owned()).send().await;
            taken = answer.as_ref().is_ok_and(|answer| answer.status() == StatusCode::OK);
            if taken {
                break;
            }
            tokio::time::sleep(LATER).await;
        }
        if let Some(id) = id {
            self.journal.posted(id, taken);
        }
    }
}

fn webhook(member: &str, what: &Value) -> Value {
    let metadata = json!({"display_phone_number": "15550009999", "phone_number_id": ACCOUNT});
    let value = json!({"messaging_product": "whatsapp", "metadata": metadata, member: [what]});
    json!({
        "object": "whatsapp_business_account",
        "entry": [{"id": "900001", "changes": [{"field": "messages", "value": value}]}],
    })
}

fn peer(number: u64) -> String {
    format!("55119888877{:02}", number % PEOPLE)
}

fn now_s() -> i64 {
    jiff::Timestamp::now().as_second()
}
