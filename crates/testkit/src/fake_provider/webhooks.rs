//! What the provider tells afterwards about what arrived. Unsigned: `Provider::sign` makes the headers.

use serde_json::{Value, json};

use super::{Api, Arrived};

impl Arrived {
    /// The webhook that says what became of it: `sent`, `delivered`, `read`, `played`, `failed` (GOWA knows no sent and no failed).
    ///
    /// `None` where the provider never says.
    pub fn status_webhook(&self, word: &str, at_ms: i64) -> Option<String> {
        let body = match self.api {
            Api::Whatsapp => self.in_envelope("messages", json!({"statuses": [self.status(word, at_ms)]})),
            Api::Gowa => json!({"event": "message.ack", "device_id": self.account, "timestamp": instant(at_ms), "payload": {
                "ids": [self.provider_id], "chat_id": self.to, "from": self.to, "receipt_type": word}}),
            Api::Telegram | Api::Generic => return None,
        };
        Some(body.to_string())
    }

    /// The webhook by which it comes back as a message of our own.
    pub fn echo_webhook(&self) -> Option<String> {
        let text = self.text.as_deref().unwrap_or_default();
        let body = match self.api {
            Api::Whatsapp => {
                let echo = json!({"from": "15550001111", "to": self.to, "id": self.provider_id, "timestamp": seconds(self.at_ms),
                    "type": "text", "text": {"body": text}});
                self.in_envelope("smb_message_echoes", json!({"message_echoes": [echo]}))
            }
            Api::Gowa => json!({"event": "message", "device_id": self.account, "payload": {
                "id": self.provider_id, "chat_id": self.to, "from": self.account, "timestamp": instant(self.at_ms),
                "is_from_me": true, "body": text}}),
            Api::Telegram | Api::Generic => return None,
        };
        Some(body.to_string())
    }

    fn status(&self, word: &str, at_ms: i64) -> Value {
        let mut status = json!({"id": self.provider_id, "status": word, "timestamp": seconds(at_ms), "recipient_id": self.to});
        if let Some(handle) = &self.handle {
            status["biz_opaque_callback_data"] = json!(handle);
        }
        status
    }

    fn in_envelope(&self, field: &str, mut value: Value) -> Value {
        value["messaging_product"] = json!("whatsapp");
        value["metadata"] = json!({"display_phone_number": "15550001111", "phone_number_id": self.account});
        json!({"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [{"field": field, "value": value}]}]})
    }
}

fn seconds(ms: i64) -> String {
    ms.div_euclid(1_000).to_string()
}

/// Whole seconds, as WhatsApp keeps them.
pub(super) fn instant(ms: i64) -> String {
    jiff::Timestamp::from_second(ms.div_euclid(1_000)).unwrap_or_default().to_string()
}
