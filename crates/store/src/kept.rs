//! Replies that found no room in the outbox, as bytes beside the item that they answer.

use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::{EventId, Priority};

use super::NewMessage;

/// Why an item is parked whose replies found no room: what the story and the list of parked items say.
pub fn why_kept(account: &str, replies: usize) -> String {
    let kept = if replies == 1 { "its reply is kept".to_owned() } else { format!("its {replies} replies are kept") };
    format!("the outbox of account {account} is full: {kept}, and a redrive queues what is kept without calling the bot again")
}

/// Begins bytes in which each reply has a place for its time. No length of a first part is as large: in bytes without such a beginning no
/// reply has one, and whoever knows nothing of times can read them.
const WITH_TIMES: [u8; 4] = [0xff; 4];

/// The replies as bytes; none when there are no replies.
pub fn write_replies(replies: &[NewMessage]) -> Option<Vec<u8>> {
    if replies.is_empty() {
        return None;
    }
    let timed = replies.iter().any(|new| new.send_at_ms.is_some());
    let mut bytes = if timed { WITH_TIMES.to_vec() } else { Vec::new() };
    for new in replies {
        let reply_to = new.reply_to.map(|event| event.0.into_bytes());
        let priority = Priority::ALL.iter().position(|known| *known == new.priority).unwrap_or_default() as u8;
        let send_at = new.send_at_ms.map(i64::to_le_bytes);
        let parts: [Option<&[u8]>; 10] = [
            Some(new.channel.as_bytes()),
            Some(new.account.as_bytes()),
            Some(new.peer.as_bytes()),
            Some(new.request_id.as_bytes()),
            Some(&new.fingerprint),
            new.text.as_ref().map(|text| text.as_bytes()),
            Some(&new.payload),
            Some(&[priority]),
            reply_to.as_ref().map(|id| &id[..]),
            send_at.as_ref().map(|at| &at[..]),
        ];
        for part in &parts[..parts.len() - usize::from(!timed)] {
            // A missing part is told apart from an empty one.
            let length = part.map_or(0, |part| part.len() as u32 + 1);
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(part.unwrap_or_default());
        }
    }
    Some(bytes)
}

/// Reads what [`write_replies`] wrote; nothing when it is something else.
pub fn read_replies(bytes: &[u8]) -> Option<Vec<NewMessage>> {
    let timed = bytes.strip_prefix(&WITH_TIMES);
    let (mut rest, mut replies) = (timed.unwrap_or(bytes), Vec::new());
    while !rest.is_empty() {
        let mut next = || -> Option<Option<Vec<u8>>> {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let length = u32::from_le_bytes(*length) as usize;
            let (part, after) = after.split_at_checked(length.saturating_sub(1))?;
            rest = after;
            Some((length > 0).then(|| part.to_vec()))
        };
        let channel: Arc<str> = text(next()??)?.into();
        let (account, peer, request_id) = (text(next()??)?, text(next()??)?, text(next()??)?);
        let fingerprint = next()??.try_into().ok()?;
        let words = match next()? {
            Some(words) => Some(text(words)?),
            None => None,
        };
        let payload = Bytes::from(next()??);
        let priority = *Priority::ALL.get(usize::from(*next()??.first()?))?;
        let reply_to = match next()? {
            Some(id) => Some(EventId(uuid::Uuid::from_bytes(id.try_into().ok()?))),
            None => None,
        };
        let send_at_ms = match timed.map(|_| next()) {
            Some(Some(Some(at))) => Some(i64::from_le_bytes(at.try_into().ok()?)),
            Some(Some(None)) | None => None,
            Some(None) => return None,
        };
        replies.push(NewMessage {
            channel,
            account,
            peer,
            request_id,
            fingerprint,
            text: words,
            payload,
            priority,
            reply_to,
            send_at_ms,
        });
    }
    Some(replies)
}

fn text(bytes: Vec<u8>) -> Option<String> {
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_read_back_as_they_were_written() {
        let reply = NewMessage {
            channel: "shop".into(),
            account: "7001".to_owned(),
            peer: "5511".to_owned(),
            request_id: "evt.0".to_owned(),
            fingerprint: [7; 32],
            text: Some("olá".to_owned()),
            payload: Bytes::from_static(b"{\"text\":\"ol\xc3\xa1\"}"),
            priority: Priority::Reply,
            reply_to: Some(EventId(uuid::Uuid::from_u128(5))),
            send_at_ms: None,
        };
        let bare = NewMessage { text: None, reply_to: None, priority: Priority::Bulk, payload: Bytes::new(), ..reply.clone() };
        let empty = NewMessage { text: Some(String::new()), send_at_ms: Some(-5), ..reply.clone() };
        let all = vec![reply, bare, empty];
        let bytes = write_replies(&all).unwrap();
        assert_eq!(read_replies(&bytes), Some(all));
        assert_eq!(read_replies(&bytes[..bytes.len() - 1]), None);
        assert_eq!(write_replies(&[]), None);
    }

    /// Instances of the version before may be at work beside this one.
    #[test]
    fn replies_without_times_are_written_and_read_as_before_there_were_any() {
        let mut bytes = Vec::new();
        for part in [&b"shop"[..], b"7", b"55", b"r", &[7; 32], b"hi", b"{}", &[0]] {
            bytes.extend_from_slice(&(part.len() as u32 + 1).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(&[0; 4]);
        let bytes = [bytes.clone(), bytes].concat();
        let read = read_replies(&bytes).unwrap();
        assert_eq!((read.len(), read[1].request_id.as_str(), read[1].send_at_ms), (2, "r", None));
        assert_eq!(write_replies(&read), Some(bytes));
    }
}
