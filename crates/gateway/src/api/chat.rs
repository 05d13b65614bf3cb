//! A thread as people read it: what was said, by whom, with what beside, and what is known of a message in trouble. For the pages.

use futures_util::{StreamExt, TryStreamExt, stream};
use hapax_domain::{EventId, MessageId, ThreadId};
use hapax_store::{EntryId, MessageRow, ThreadMessage};
use serde_json::Value;

use super::list::ASKED_AT_ONCE;
use super::payloads::Payload;
use super::threads::{self, Thread, read_entry, write_entry};
use super::{Api, Caller, Cursors, Problem, origin, send_story, thread_view};

/// An event comes with its body: of larger ones nothing more is read than their text.
const READ_MAX_BYTES: usize = 64 << 10;
/// How deep media is looked for.
const DEPTH: usize = 8;

pub(crate) struct Chat {
    pub(crate) thread: Thread,
    /// Oldest first.
    pub(crate) lines: Vec<Line>,
    /// Where what was said before them begins.
    pub(crate) next: Option<String>,
    /// Why nothing can be sent in it.
    pub(crate) cannot_send: Option<String>,
}

pub(crate) struct Line {
    pub(crate) id: String,
    pub(crate) direction: &'static str,
    pub(crate) at_ms: i64,
    pub(crate) text: Option<String>,
    pub(crate) status: Option<&'static str>,
    /// Who wrote it, where several people do.
    pub(crate) sender: Option<String>,
    /// Icon and word for what it carries beside its text.
    pub(crate) media: Option<(&'static str, &'static str)>,
    pub(crate) trouble: Option<Trouble>,
}

/// What is known of a message that failed, is in doubt, or waits.
pub(crate) struct Trouble {
    pub(crate) status: &'static str,
    pub(crate) why: Option<String>,
    pub(crate) steps: Vec<(i64, String)>,
    pub(crate) can_retry: bool,
    pub(crate) can_cancel: bool,
}

/// The thread alone.
pub(crate) async fn thread(api: &Api, caller: &Caller, id: &ThreadId) -> Result<Thread, Problem> {
    let row = threads::find(api, caller, id).await?.row;
    Ok(threads::shown(api, caller, row).await?.0)
}

/// A page of a thread, the newest or those before a place.
pub(crate) async fn read(api: &Api, caller: &Caller, id: &ThreadId, cursor: Option<&str>, limit: usize) -> Result<Chat, Problem> {
    let thread = thread(api, caller, id).await?;
    let cursors = Cursors::new(api, caller, "chat", &id.to_string());
    let before = cursors.place(cursor, read_entry)?;
    let (rows, next) = thread_view::messages(api, caller, id, before, limit).await?;
    let origin = origin::find(api, caller, Some(&thread.channel), Some(&thread.account)).await;
    let rows = api.shown(caller, rows);
    let (hides, group) = (api.hides_payloads_from(caller), is_group(&thread.peer));
    let lines: Vec<_> = rows.into_iter().rev().map(|row| line(api, row, hides, group)).collect();
    Ok(Chat {
        lines: stream::iter(lines).buffered(ASKED_AT_ONCE).try_collect().await?,
        next: next.map(|entry| cursors.write(&write_entry(entry))),
        cannot_send: origin.err().map(|problem| problem.told().1),
        thread,
    })
}

async fn line(api: &Api, row: ThreadMessage, hides: bool, group: bool) -> Result<Line, Problem> {
    let mut line = Line {
        id: write_entry(row.id),
        direction: row.direction.name(),
        at_ms: row.at_ms,
        text: row.text,
        status: row.status.map(|status| status.name()),
        sender: None,
        media: None,
        trouble: None,
    };
    match row.id {
        EntryId::Event(id) if !hides && (group || line.text.is_none()) => beside(api, id, group, &mut line).await?,
        EntryId::Message(id) if matches!(line.status, Some("failed" | "unknown" | "queued")) => {
            line.trouble = trouble(api, id, hides).await?;
        }
        EntryId::Event(_) | EntryId::Message(_) => {}
    }
    Ok(line)
}

/// What the body of a webhook tells beside the text.
async fn beside(api: &Api, id: EventId, group: bool, line: &mut Line) -> Result<(), Problem> {
    let detail = api.store.event(id).await?.filter(|detail| detail.body.len() <= READ_MAX_BYTES);
    let Some(body) = detail.and_then(|detail| serde_json::from_slice::<Value>(&detail.body).ok()) else { return Ok(()) };
    line.sender = group.then(|| sender(&body)).flatten();
    line.media = if line.text.is_none() { media(&body, DEPTH) } else { None };
    Ok(())
}

async fn trouble(api: &Api, id: MessageId, hides: bool) -> Result<Option<Trouble>, Problem> {
    let Some(mut row) = api.store.message(id).await? else { return Ok(None) };
    if hides {
        row.hide();
    }
    let status = row.steps.status().name();
    let in_line = row.outbox.is_some();
    let steps = send_story::steps(&row, api.clock.now_ms()).into_iter().map(|step| (step.at_ms, step.words)).collect();
    Ok(Some(Trouble {
        can_retry: matches!(status, "failed" | "unknown"),
        can_cancel: in_line && status != "failed",
        status,
        why: why(row),
        steps,
    }))
}

fn why(row: MessageRow) -> Option<String> {
    row.why.filter(|why| !why.is_empty())
}

fn is_group(peer: &str) -> bool {
    peer.ends_with("@g.us") || peer.starts_with('-')
}

/// Who wrote it, where the provider's webhook says so in a usual place.
fn sender(body: &Value) -> Option<String> {
    const PLACES: [&str; 9] = [
        "/payload/pushName",
        "/payload/from_name",
        "/data/pushName",
        "/message/from/first_name",
        "/message/from/username",
        "/payload/participant",
        "/data/key/participant",
        "/payload/from",
        "/event/user",
    ];
    PLACES.iter().find_map(|place| body.pointer(place)?.as_str()).filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Looks for what messages carry under the names that providers have for it.
fn media(value: &Value, depth: usize) -> Option<(&'static str, &'static str)> {
    let object = value.as_object();
    let members = object.into_iter().flatten();
    let named = members.clone().find_map(|(name, value)| if value.is_null() { None } else { word(name) });
    let inside = || members.map(|(_, value)| value).chain(value.as_array().into_iter().flatten());
    named.or_else(|| if depth == 0 { None } else { inside().find_map(|value| media(value, depth - 1)) })
}

fn word(name: &str) -> Option<(&'static str, &'static str)> {
    let plain = name.strip_suffix("Message").unwrap_or(name);
    Some(match plain {
        "image" | "photo" => ("archive", "Picture"),
        "video" | "video_note" | "ptv" => ("archive", "Video"),
        "audio" | "voice" => ("archive", "Voice or audio"),
        "document" => ("archive", "Document"),
        "sticker" => ("archive", "Sticker"),
        "location" | "liveLocation" | "venue" => ("archive", "Location"),
        "contacts" | "contact" => ("person", "Contact"),
        "poll" | "pollCreation" => ("list", "Poll"),
        "reaction" => ("dot", "Reaction"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_message_carries_is_found_where_providers_put_it() {
        let found = |body: Value| media(&body, DEPTH).map(|(_, word)| word);
        let meta = json!({"entry": [{"changes": [{"value": {"messages": [{"type": "image", "image": {"id": "1"}}]}}]}]});
        assert_eq!(found(meta), Some("Picture"));
        assert_eq!(found(json!({"message": {"voice": {"file_id": "x"}}})), Some("Voice or audio"));
        assert_eq!(found(json!({"data": {"message": {"stickerMessage": {}}}})), Some("Sticker"));
        assert_eq!(found(json!({"message": {"text": "photo of a photo", "image": null}})), None);
        assert_eq!(found(json!([[[[[[[[[[{"image": 1}]]]]]]]]]])), None, "no deeper than meant");
    }

    #[test]
    fn a_sender_is_found_where_the_webhook_says_so() {
        let gowa = json!({"payload": {"chat_id": "1@g.us", "from": "55@s.whatsapp.net", "from_name": "Ana"}});
        assert_eq!(sender(&gowa).as_deref(), Some("Ana"));
        assert_eq!(sender(&json!({"message": {"from": {"first_name": "Bo"}}})).as_deref(), Some("Bo"));
        assert_eq!(sender(&json!({"entry": []})), None);
    }
}
