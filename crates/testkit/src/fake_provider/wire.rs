//! What the providers' calls look like, and their answers.

use bytes::Bytes;
use hapax_providers::form;
use http::Response;
use http::request::Parts;
use http_body_util::Full;
use serde_json::{Value, json};

use super::{Api, Arrived, Asked, Purpose};

/// An answer on its way.
pub(super) struct WireAnswer {
    status: u16,
    retry_after_s: Option<u32>,
    body: Option<Value>,
}

impl WireAnswer {
    pub(super) fn bare(status: u16) -> Self {
        Self { status, retry_after_s: None, body: None }
    }

    fn json(status: u16, body: Value) -> Self {
        Self { status, retry_after_s: None, body: Some(body) }
    }

    pub(super) fn response(self) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let mut response = Response::builder().status(self.status);
        if let Some(seconds) = self.retry_after_s {
            response = response.header("retry-after", seconds);
        }
        let body = self.body.map(|body| body.to_string()).unwrap_or_default();
        response.header("content-type", "application/json").body(Full::new(Bytes::from(body))).map_err(std::io::Error::other)
    }
}

/// Reads a call; its number is given later.
pub(super) fn read(head: Parts, body: Bytes) -> Asked {
    let path = head.uri.path().to_owned();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let json: Value = serde_json::from_slice(&body).unwrap_or_else(|_| of_form(&body, head.uri.query()));
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let device = || header("x-device-id").unwrap_or_default();
    let (api, purpose, account, to) = match parts.as_slice() {
        [version, number, "messages"] if version.starts_with('v') => {
            let purpose = if json.get("status").is_some() { Purpose::Notice } else { Purpose::Message };
            let to = text_in(&json, "to").or_else(|| text_in(&json, "recipient"));
            (Api::Whatsapp, purpose, (*number).to_owned(), to)
        }
        [bot, method] if bot.starts_with("bot") => {
            let makes_message = method.to_ascii_lowercase().starts_with("send") && !method.eq_ignore_ascii_case("sendChatAction");
            let purpose = if makes_message { Purpose::Message } else { Purpose::Notice };
            (Api::Telegram, purpose, bot.trim_start_matches("bot").to_owned(), text_in(&json, "chat_id"))
        }
        ["chat", jid, "messages"] => (Api::Gowa, Purpose::Lookup, device(), Some((*jid).to_owned())),
        ["send", "chat-presence"] | ["message", _, _] => (Api::Gowa, Purpose::Notice, device(), text_in(&json, "phone")),
        ["send", _] => (Api::Gowa, Purpose::Message, device(), text_in(&json, "phone")),
        _ => (Api::Generic, Purpose::Message, String::new(), text_in(&json, "to")),
    };
    let handle = match api {
        Api::Whatsapp => text_in(&json, "biz_opaque_callback_data"),
        _ => header("idempotency-key"),
    };
    Asked {
        number: 0,
        api,
        purpose,
        account,
        to: to.unwrap_or_default(),
        text: words_in(&json),
        handle,
        method: head.method,
        path_and_query: head.uri.to_string(),
        headers: head.headers,
        body,
    }
}

/// What some libraries send in place of JSON, in the body or in the query.
fn of_form(body: &[u8], query: Option<&str>) -> Value {
    let (form, query) = (str::from_utf8(body).unwrap_or_default(), query.unwrap_or_default());
    let value_of = |name| form::value_of(form, name).or_else(|| form::value_of(query, name));
    let found = ["chat_id", "text", "caption"].into_iter().filter_map(|name| Some((name, value_of(name)?)));
    found.map(|(name, value)| (name.to_owned(), json!(value))).collect::<serde_json::Map<_, _>>().into()
}

fn text_in(json: &Value, name: &str) -> Option<String> {
    match json.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn words_in(json: &Value) -> Option<String> {
    let inner = |outer: &str, name: &str| text_in(json.get(outer)?, name);
    let plain = text_in(json, "text").or_else(|| text_in(json, "message")).or_else(|| text_in(json, "caption"));
    plain.or_else(|| inner("text", "body")).or_else(|| inner("image", "caption")).or_else(|| inner("template", "name"))
}

pub(super) fn provider_id(asked: &Asked, number: usize) -> String {
    match asked.api {
        Api::Whatsapp => format!("wamid.OUT{number}"),
        Api::Telegram => format!("{}:{number}", asked.to),
        Api::Gowa => format!("3EB0{number:016X}"),
        Api::Generic => format!("out-{number}"),
    }
}

/// The answer to a message that was taken.
pub(super) fn taken(asked: &Asked, arrived: &Arrived) -> WireAnswer {
    let id = arrived.provider_id.as_str();
    let body = match asked.api {
        Api::Whatsapp => json!({"messaging_product": "whatsapp", "contacts": [{"input": asked.to, "wa_id": asked.to}],
            "messages": [{"id": id, "message_status": "accepted"}]}),
        Api::Telegram => {
            let number = id.rsplit(':').next().and_then(|number| number.parse::<i64>().ok());
            let chat = asked.to.parse::<i64>().map_or_else(
                |_| json!({"id": 0, "type": "channel", "username": asked.to}),
                |id| json!({"id": id, "type": "private"}),
            );
            let mut message = json!({"message_id": number, "date": arrived.at_ms / 1_000, "chat": chat});
            if let Some(text) = &asked.text {
                message["text"] = json!(text);
            }
            json!({"ok": true, "result": message})
        }
        Api::Gowa => {
            json!({"code": "SUCCESS", "message": "Message sent", "results": {"message_id": id, "status": "Message sent"}})
        }
        Api::Generic => json!({"id": id}),
    };
    WireAnswer::json(200, body)
}

/// The answer to a call that puts nothing on a phone.
pub(super) fn noticed(asked: &Asked) -> WireAnswer {
    WireAnswer::json(
        200,
        match asked.api {
            Api::Whatsapp => json!({"success": true}),
            Api::Telegram => json!({"ok": true, "result": telegrams_result(asked)}),
            Api::Gowa => json!({"code": "SUCCESS", "message": "ok", "results": null}),
            Api::Generic => json!({}),
        },
    )
}

/// Libraries ask who they are before they do anything else.
fn telegrams_result(asked: &Asked) -> Value {
    let path = asked.path_and_query.split('?').next().unwrap_or_default();
    match path.to_ascii_lowercase().ends_with("/getme") {
        true => json!({"id": 12_345, "is_bot": true, "first_name": "Help", "username": "help_bot"}),
        false => json!(true),
    }
}

pub(super) fn too_many(asked: &Asked, retry_after_s: Option<u32>) -> WireAnswer {
    let answer = match asked.api {
        Api::Whatsapp => refused(asked, 429, "130429"),
        Api::Telegram => WireAnswer::json(
            429,
            json!({"ok": false, "error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": retry_after_s}}),
        ),
        Api::Gowa | Api::Generic => WireAnswer::bare(429),
    };
    WireAnswer { retry_after_s, ..answer }
}

pub(super) fn refused(asked: &Asked, status: u16, code: &str) -> WireAnswer {
    let body = match asked.api {
        Api::Whatsapp => {
            let code = code.parse::<i64>().unwrap_or_default();
            json!({"error": {"message": format!("(#{code}) refused"), "type": "OAuthException", "code": code}})
        }
        Api::Telegram => json!({"ok": false, "error_code": status, "description": code}),
        Api::Gowa => json!({"status": status, "code": code, "message": "refused", "results": null}),
        Api::Generic => json!({"error": code}),
    };
    WireAnswer::json(status, body)
}

/// GOWA's page of a chat, newest first, with its filters by time and text.
pub(super) fn history(asked: &Asked, rows: &[Arrived]) -> WireAnswer {
    let query = asked.path_and_query.split_once('?').map(|(_, query)| query).unwrap_or_default();
    let value_of = |name| form::value_of(query, name);
    let since_ms = value_of("start_time").and_then(|at| at.parse::<jiff::Timestamp>().ok()).map(|at| at.as_millisecond());
    let search = value_of("search").unwrap_or_default().to_lowercase();
    let fits = |row: &&Arrived| {
        let text = row.text.as_deref().unwrap_or_default().to_lowercase();
        since_ms.is_none_or(|since_ms| row.at_ms >= since_ms) && text.contains(&search)
    };
    let data: Vec<Value> = rows.iter().rev().filter(fits).map(|row| in_history(asked, row)).collect();
    let page = json!({"limit": 100, "offset": 0, "total": data.len()});
    let results = json!({"data": data, "pagination": page, "chat_info": {"jid": asked.to}});
    WireAnswer::json(200, json!({"status": 200, "code": "SUCCESS", "message": "ok", "results": results}))
}

fn in_history(asked: &Asked, row: &Arrived) -> Value {
    json!({
        "id": row.provider_id,
        "chat_jid": row.to,
        "sender_jid": asked.account,
        "content": row.text.as_deref().unwrap_or_default(),
        "timestamp": super::webhooks::instant(row.at_ms),
        "is_from_me": true,
        "media_type": "",
    })
}
