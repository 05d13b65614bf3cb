//! What the handler answered with: messages that enter the outbox in the commit that completes the event.
//!
//! A reply is named after its event and its place in the answer, so two runs of one handler cannot make two sends. Replies that cannot
//! be read do not undo the delivery (the handler has done its work): they are counted and logged. A reply that can be read but not
//! sent, because its text is too long or its number wrong, enters the outbox and fails there, where people look for it.

use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::limits::REPLIES_MAX;
use hapax_domain::{Draft, Priority, ThreadId};
use hapax_providers::sending::Sending;
use hapax_store::{Answer, InboxLease, NewMessage, Origin};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::settings::Mode;

pub(super) const CONTENT_TYPE: &str = "application/vnd.hapax.replies+json";

/// How a bot writes a reply in its provider's own way; Telegram takes all three.
const OWN_TYPES: [&str; 3] = ["application/json", "application/x-www-form-urlencoded", "multipart/form-data"];

/// The messages of one answer, and what was wrong with the others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Replies {
    pub(super) messages: Vec<NewMessage>,
    pub(super) bad: u64,
    pub(super) why: String,
}

#[derive(Deserialize)]
struct Body<'b> {
    #[serde(borrow)]
    replies: Vec<&'b RawValue>,
}

/// A part of `POST /v1/messages`: what stands in both means the same, and what is not known is refused in both.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply<'b> {
    text: Option<String>,
    to: Option<Peer>,
    #[serde(borrow)]
    payload: Option<&'b RawValue>,
    send_at: Option<String>,
}

/// Telegram's chats are numbers.
#[derive(Deserialize)]
#[serde(untagged)]
enum Peer {
    Text(String),
    Number(i64),
}

/// True when the answer says that it is made of replies: without its body it is not whole.
pub(super) fn are_declared(content_type: Option<&str>) -> bool {
    content_type.is_some_and(|text| is_type(text, CONTENT_TYPE))
}

/// True when the answer may hold replies in the provider's own way.
pub(super) fn are_possible(content_type: Option<&str>, sending: Option<&Arc<dyn Sending>>) -> bool {
    sending.is_some() && content_type.is_some_and(|text| OWN_TYPES.iter().any(|own| is_type(text, own)))
}

fn is_type(content_type: &str, wanted: &str) -> bool {
    content_type.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case(wanted))
}

/// Reads the replies out of an answer.
///
/// In proxy mode the provider gets the answer itself and acts on its own kind of reply: only declared ones are ours then.
///
/// `reading` finds replies in the provider's own form, also where there is no `sending`: then they are not sent, and that is said.
pub(super) fn read(
    lease: &InboxLease,
    answer: &Answer,
    sending: Option<&Arc<dyn Sending>>,
    reading: Option<&Arc<dyn Sending>>,
    mode: Mode,
    wall_ms: i64,
) -> Replies {
    let declared = are_declared(answer.content_type.as_deref());
    let Some(sending) = sending else {
        let own = reading.filter(|_| mode == Mode::Queue);
        let own = own.is_some_and(|own| !own.replies_in_answer(&answer.body, answer.content_type.as_deref()).is_empty());
        return if declared || own { Replies::none("this channel has no `token` to send with") } else { Replies::default() };
    };
    let found = if declared {
        read_declared(&answer.body, wall_ms)
    } else if mode == Mode::Queue {
        Ok(sending.replies_in_answer(&answer.body, answer.content_type.as_deref()).into_iter().map(own_way).collect())
    } else {
        return Replies::default();
    };
    let found: Vec<Result<Draft, String>> = match found {
        Ok(found) => found,
        Err(why) => return Replies::none(&why),
    };
    if found.is_empty() {
        return Replies::default();
    }
    let Some(thread) = lease.events.first().and_then(|event| event.thread.as_ref()) else {
        return Replies::none("the event belongs to no thread, so there is nobody to reply to");
    };
    let mut replies = Replies::default();
    for (index, wanted) in found.into_iter().enumerate() {
        let wanted = if index < REPLIES_MAX { wanted } else { Err(format!("more than {REPLIES_MAX} replies")) };
        match wanted {
            Ok(wanted) => replies.messages.push(message(lease, thread, index, wanted, &**sending, wall_ms)),
            Err(why) => {
                replies.bad += 1;
                replies.why = format!("reply {index}: {why}");
            }
        }
    }
    replies
}

fn own_way((to, payload): (String, Bytes)) -> Result<Draft, String> {
    let to = Some(to).filter(|to| !to.is_empty());
    Draft::read(to, None, Some(&String::from_utf8_lossy(&payload))).map_err(|bad| bad.to_string())
}

fn read_declared(body: &[u8], wall_ms: i64) -> Result<Vec<Result<Draft, String>>, String> {
    let body: Body<'_> = serde_json::from_slice(body)
        .map_err(|error| format!("the answer is not {{\"replies\": [..]}}: {}", where_it_is_odd(&error)))?;
    Ok(body.replies.into_iter().map(|raw| read_one(raw.get(), wall_ms)).collect())
}

/// What is wrong with an answer, without its words: the parser's own message repeats values, and this one is logged.
fn where_it_is_odd(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        _ if error.to_string().starts_with("unknown field") => {
            "a field that replies do not have (these they have: `to`, `text`, `payload`, `send_at`)"
        }
        serde_json::error::Category::Data => "something of another type than expected",
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Syntax | serde_json::error::Category::Io => "it is not JSON",
    };
    format!("{what}, at line {} column {}", error.line(), error.column())
}

fn read_one(text: &str, wall_ms: i64) -> Result<Draft, String> {
    let reply: Reply<'_> = serde_json::from_str(text).map_err(|error| where_it_is_odd(&error))?;
    let to = reply.to.map(|to| match to {
        Peer::Text(to) => to,
        Peer::Number(to) => to.to_string(),
    });
    let draft = Draft::read(to, reply.text.as_deref(), reply.payload.map(RawValue::get));
    draft.and_then(|draft| draft.later(reply.send_at.as_deref(), wall_ms)).map_err(|bad| bad.to_string())
}

fn message(lease: &InboxLease, thread: &ThreadId, index: usize, draft: Draft, sending: &dyn Sending, wall_ms: i64) -> NewMessage {
    let event = super::first_event(lease);
    // A replay is asked for by a person: its replies are sends of their own.
    let run = lease.replay.map_or_else(String::new, |number| format!(".r{number}"));
    let peer = draft.to.as_deref().map_or_else(|| thread.peer.clone(), |to| sending.peer(to));
    let text = sending.text(draft.payload.as_bytes());
    let origin = Origin { channel: Arc::clone(&lease.channel), account: thread.account.clone() };
    let message = NewMessage::new(origin, peer, draft, text, format!("{event}{run}.{index}"));
    // The places of replies are for people who wait for an answer now.
    let later = message.send_at_ms.is_some_and(|at_ms| at_ms > wall_ms);
    NewMessage { priority: if later { Priority::Normal } else { Priority::Reply }, reply_to: Some(event), ..message }
}

impl Replies {
    fn none(why: &str) -> Self {
        Self { messages: Vec::new(), bad: 1, why: why.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_domain::limits::MESSAGE_MAX_BYTES;
    use hapax_domain::{EventId, Fence, ItemId, Kind};
    use hapax_providers::settings::Settings;
    use hapax_store::{KeptHeaders, LaneRef, LeasedEvent};

    fn lease(thread: bool) -> InboxLease {
        let id = EventId(uuid::Uuid::from_u128(7));
        let thread = thread.then(|| ThreadId { account: "700001".to_owned(), peer: "5511988887777".to_owned() });
        InboxLease {
            lane: LaneRef([0; 32]),
            fence: Fence(1),
            until_ms: 0,
            item: ItemId(id.0),
            channel: "shop".into(),
            attempt: 1,
            failures: 0,
            replay: None,
            received_ms: 0,
            headers: KeptHeaders::default(),
            body: Bytes::new(),
            webhook_events: 1,
            events: vec![LeasedEvent { id, kind: Kind::Message, index: 0, account: "700001".to_owned(), thread }],
            rest: Vec::new(),
        }
    }

    fn read_with(settings: &Settings, content_type: &str, body: &str, mode: Mode) -> Replies {
        let sending = hapax_providers::build_sending(settings, None);
        let body = Bytes::from(body.to_owned());
        let answer = Answer { status: 200, content_type: Some(content_type.to_owned()), body };
        read(&lease(true), &answer, sending.as_ref(), sending.as_ref(), mode, 1_000)
    }

    fn read_whatsapp(body: &str) -> Replies {
        read_with(&Settings::Whatsapp { secrets: vec![], verify_token: None }, CONTENT_TYPE, body, Mode::Queue)
    }

    #[test]
    fn the_same_answer_makes_the_same_requests() {
        let body = r#"{"replies":[{"text":"one"},{"to":5511900001,"payload":{"type":"text","text":{"body":"two"}}}]}"#;
        let (first, second) = (read_whatsapp(body), read_whatsapp(body));
        assert_eq!(first, second);
        let ids: Vec<&str> = first.messages.iter().map(|message| message.request_id.as_str()).collect();
        assert_eq!(ids, ["evt_00000000000000000000000000000007.0", "evt_00000000000000000000000000000007.1"]);
        let to: Vec<(&str, Option<&str>)> =
            first.messages.iter().map(|message| (message.peer.as_str(), message.text.as_deref())).collect();
        assert_eq!(to, [("5511988887777", Some("one")), ("5511900001", Some("two"))]);
    }

    #[test]
    fn one_bad_reply_does_not_take_the_others_with_it_nor_move_their_names() {
        for bad in [
            r#"{}"#,
            "7",
            r#"{"text":5}"#,
            r#"{"text":"a","payload":{}}"#,
            r#"{"payload":[]}"#,
            r#"{"to":"","text":"a"}"#,
            r#"{"text":"a","request_id":"r"}"#,
            r#"{"text":"a","send_at":"soon"}"#,
            r#"{"text":"a","send_at":"400d"}"#,
        ] {
            let replies = read_whatsapp(&format!(r#"{{"replies":[{bad},{{"text":"good"}}]}}"#));
            assert_eq!((replies.bad, replies.messages.len()), (1, 1), "{bad}");
            assert!(replies.messages[0].request_id.ends_with(".1") && replies.why.starts_with("reply 0: "), "{replies:?}");
        }
        for bad in ["", "[]", "null", r#"{"replies":{}}"#] {
            let replies = read_whatsapp(bad);
            assert_eq!((replies.bad, replies.messages.len()), (1, 0), "{bad}");
        }
    }

    #[test]
    fn a_reply_for_later_says_so_as_a_message_does() {
        let replies = read_whatsapp(
            r#"{"replies":[{"text":"a","send_at":"90s"},{"text":"a","send_at":"1970-01-02T00:00:00Z"},{"text":"a","send_at":null}]}"#,
        );
        let times: Vec<_> = replies.messages.iter().map(|message| message.send_at_ms).collect();
        assert_eq!((times, replies.bad), (vec![Some(91_000), Some(86_400_000), None], 0));
        let priorities: Vec<_> = replies.messages.iter().map(|message| message.priority).collect();
        assert_eq!(
            priorities,
            [Priority::Normal, Priority::Normal, Priority::Reply],
            "the places of replies are for those of now"
        );
    }

    #[test]
    fn there_is_a_limit() {
        let many = vec![r#"{"text":"a"}"#; REPLIES_MAX + 2].join(",");
        let replies = read_whatsapp(&format!(r#"{{"replies":[{many}]}}"#));
        assert_eq!((replies.messages.len(), replies.bad), (REPLIES_MAX, 2));
        let long = "a".repeat(MESSAGE_MAX_BYTES);
        let replies = read_whatsapp(&format!(r#"{{"replies":[{{"text":"{long}"}},{{"text":"b"}}]}}"#));
        assert_eq!((replies.messages.len(), replies.bad), (1, 1));
    }

    /// Telegram acts on the answer that proxy mode passes on: taking it as ours too would send it twice.
    #[test]
    fn the_providers_own_way_is_ours_only_where_the_provider_does_not_see_it() {
        let telegram = Settings::Telegram { secrets: vec![], bot: "bot".to_owned() };
        let body = r#"{"method":"sendMessage","chat_id":77,"text":"hello"}"#;
        assert_eq!(read_with(&telegram, "application/json", body, Mode::Queue).messages.len(), 1);
        assert_eq!(read_with(&telegram, "application/json", body, Mode::Proxy), Replies::default());
        assert_eq!(read_with(&telegram, CONTENT_TYPE, r#"{"replies":[{"text":"a"}]}"#, Mode::Proxy).messages.len(), 1);
    }

    #[test]
    fn an_event_without_a_thread_can_be_answered_by_nobody() {
        let sending = hapax_providers::build_sending(&Settings::Gowa { secrets: vec![] }, None);
        let body = Bytes::from_static(br#"{"replies":[{"text":"a"}]}"#);
        let answer = Answer { status: 200, content_type: Some(CONTENT_TYPE.to_owned()), body };
        assert_eq!(read(&lease(false), &answer, sending.as_ref(), None, Mode::Queue, 1_000).bad, 1);
        assert_eq!(read(&lease(true), &answer, None, None, Mode::Queue, 1_000).bad, 1);
    }

    #[test]
    fn a_reply_in_telegrams_own_form_is_missed_where_there_is_no_token() {
        let reading = hapax_providers::build_sending(&Settings::Telegram { secrets: vec![], bot: "bot".to_owned() }, None);
        let of = |body: &'static [u8], mode| {
            let content_type = Some("application/json".to_owned());
            let answer = Answer { status: 200, content_type, body: Bytes::from_static(body) };
            read(&lease(true), &answer, None, reading.as_ref(), mode, 1_000).bad
        };
        let own = br#"{"method":"sendMessage","chat_id":77,"text":"hello"}"#;
        assert_eq!((of(own, Mode::Queue), of(own, Mode::Proxy), of(b"{}", Mode::Queue)), (1, 0, 0));
    }

    #[test]
    fn what_is_wrong_with_an_answer_is_told_without_its_words() {
        for odd in [
            r#"{"replies":"hunter2"}"#,
            r#"{"replies":[{"text":{"a":"hunter2"}}]}"#,
            r#"{"replies":[{"to":["hunter2"],"text":"x"}]}"#,
            r#"{"replies":[{"text":"x","hunter2":1}]}"#,
            r#"{"replies":[{"text":"x","send_at":7}]}"#,
            "hunter2",
        ] {
            let why = match read_declared(odd.as_bytes(), 1_000) {
                Err(why) => why,
                Ok(replies) => replies.into_iter().find_map(Result::err).expect("refused"),
            };
            assert!(!why.contains("hunter2") && why.contains("column"), "{why}");
        }
    }
}
