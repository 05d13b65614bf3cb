//! The messages that a handler answered an event with, for the event's story.

use hapax_domain::{Direction, ThreadId};
use hapax_store::{EntryId, EventDetail, MessageRow};

use super::story::{Step, step};
use super::{Api, Caller, Problem};

/// How far a thread is looked through for replies, newest first.
const LOOKED_THROUGH: usize = 50;

/// Each reply when it was queued, with what became of it.
pub(super) async fn steps(api: &Api, detail: &EventDetail, caller: &Caller) -> Result<Vec<Step>, Problem> {
    let Some(peer) = detail.row.peer.clone() else { return Ok(Vec::new()) };
    let thread = ThreadId { account: detail.row.account.clone(), peer };
    let page = api.store.thread_messages(&thread, None, LOOKED_THROUGH).await?;
    let mut steps = Vec::new();
    for entry in page.rows.iter().filter(|entry| entry.direction == Direction::Out) {
        let EntryId::Message(id) = entry.id else { continue };
        if entry.at_ms < detail.row.received_ms {
            break;
        }
        let reply = api.store.message(id).await?.filter(|row| row.reply_to == Some(detail.row.id));
        steps.extend(reply.map(|row| step(row.created_ms, "reply", words(&api.shown_one(caller, row)))));
    }
    Ok(steps)
}

fn words(row: &MessageRow) -> String {
    let text = row.text.as_ref().map(|text| format!(": {}", hapax_domain::limits::preview(text))).unwrap_or_default();
    let status = row.steps.status().name();
    let why = row.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    format!("the handler answered with {}{text}; it is {status} now{why}", row.id)
}
