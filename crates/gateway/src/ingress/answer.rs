//! What ingress says back, mostly ready-made.

use bytes::Bytes;
use hapax_store::Answer;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

use crate::api::Code;

pub(super) type Reply = Response<Full<Bytes>>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Says how many events were new and how many were copies, and whether any of these had another content than the first.
pub(super) fn counted(accepted: usize, repeated: usize, conflict: bool) -> Reply {
    reply(StatusCode::OK, JSON, counts(accepted, repeated, conflict))
}

fn counts(accepted: usize, repeated: usize, conflict: bool) -> Bytes {
    match (accepted, repeated, conflict) {
        (1, 0, _) => Bytes::from_static(br#"{"status":"accepted","accepted":1,"repeated":0}"#),
        (0, 1, false) => Bytes::from_static(br#"{"status":"duplicate","accepted":0,"repeated":1}"#),
        (0, 0, _) => Bytes::from_static(br#"{"status":"ignored","accepted":0,"repeated":0}"#),
        (new, copies, conflict) => {
            let status = match (new > 0, conflict) {
                (true, _) => "accepted",
                (false, true) => "conflict",
                (false, false) => "duplicate",
            };
            Bytes::from(format!(r#"{{"status":"{status}","accepted":{new},"repeated":{copies}}}"#))
        }
    }
}

/// An RFC 9457 problem. `detail` is ours, never the client's, so it needs no escaping.
pub(super) fn problem(code: Code, detail: &'static str) -> Reply {
    problem_as(code.status(), code, detail)
}

/// The same under a status that is not ours.
pub(super) fn problem_as(status: StatusCode, code: Code, detail: &'static str) -> Reply {
    let (title, name, number) = (code.title(), code.name(), status.as_u16());
    let body = format!(r#"{{"type":"about:blank","title":"{title}","status":{number},"detail":"{detail}","code":"{name}"}}"#);
    reply(status, PROBLEM, Bytes::from(body))
}

/// A problem that goes away: asks the client to come again.
pub(super) fn later(code: Code, detail: &'static str, after_s: u32) -> Reply {
    come_again(problem(code, detail), after_s)
}

pub(super) fn come_again(mut reply: Reply, after_s: u32) -> Reply {
    reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after_s));
    reply
}

/// What we would have said of a webhook, beside the provider's own words for it.
#[derive(Clone, Debug)]
pub struct Counted(pub Bytes);

/// Says the same in the provider's own words.
pub(super) fn counted_in(words: hapax_providers::Reply, accepted: usize, repeated: usize, conflict: bool) -> Reply {
    let mut reply = spoken(words);
    reply.extensions_mut().insert(Counted(counts(accepted, repeated, conflict)));
    reply
}

/// What the adapter wants the provider to hear.
pub(super) fn spoken(words: hapax_providers::Reply) -> Reply {
    let status = StatusCode::from_u16(words.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    reply(status, HeaderValue::from_static(words.content_type), Bytes::from(words.body))
}

/// What the target said, passed on.
pub(super) fn passed_on(answer: Answer) -> Reply {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let content_type = answer.content_type.and_then(|text| HeaderValue::from_str(&text).ok());
    let mut reply = Response::new(Full::new(answer.body));
    *reply.status_mut() = status;
    if let Some(content_type) = content_type {
        reply.headers_mut().insert(header::CONTENT_TYPE, content_type);
    }
    reply
}

fn reply(status: StatusCode, content_type: HeaderValue, body: Bytes) -> Reply {
    let mut reply = Response::new(Full::new(body));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, content_type);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn ready_made_and_made_answers_have_one_shape() {
        for (new, copies, conflict, status) in [
            (1, 0, false, "accepted"),
            (0, 1, false, "duplicate"),
            (0, 1, true, "conflict"),
            (0, 0, false, "ignored"),
            (3, 2, true, "accepted"),
            (0, 4, false, "duplicate"),
        ] {
            let body = counted(new, copies, conflict).into_body().collect().await.expect("a whole body").to_bytes();
            let json: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!(json, serde_json::json!({"status": status, "accepted": new, "repeated": copies}));
        }
    }

    #[tokio::test]
    async fn a_problem_is_json_too() {
        let reply = later(Code::StoreUnavailable, "the store is busy", 2);
        assert_eq!(reply.headers()[header::RETRY_AFTER], "2");
        let body = reply.into_body().collect().await.expect("a whole body").to_bytes();
        let json: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(json["status"], 503);
        assert_eq!(json["code"], "store_unavailable");
    }
}
