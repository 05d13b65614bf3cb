//! What the holder of a token for some channels sees of a thread. Channels of one account share their threads, so a thread is shown as if only
//! the caller's channels had spoken in it.

use super::{Api, Caller, Problem};
use hapax_domain::limits::{PAGE_MAX, preview};
use hapax_domain::{Direction, Status, ThreadId};
use hapax_store::{EntryId, EventQuery, Page, StoreError, ThreadMessage, ThreadRow};

/// Entries that are looked at for a thread in a list.
pub(super) const LOOK_IN_LIST: usize = 50;
/// .. and for one that is asked for by itself.
pub(super) const LOOK_AT_ONE: usize = PAGE_MAX;
/// Entries that are looked at for one page of a thread's messages.
const LOOK_FOR_PAGE: usize = 20 * PAGE_MAX;

/// A thread as its caller sees it.
pub(super) struct View {
    pub(super) row: ThreadRow,
    /// Something in it is not the caller's.
    pub(super) shared: bool,
    /// All of it was seen, and is the caller's: its names too.
    whole: bool,
}

/// Shows a thread, from its newest `look` entries. `None`: nothing in them is the caller's.
pub(super) async fn view(api: &Api, caller: &Caller, row: ThreadRow, look: usize) -> Result<Option<View>, Problem> {
    if !caller.is_limited() {
        return Ok(Some(View { row, shared: false, whole: true }));
    }
    let page = api.store.thread_messages(&row.id, None, look).await?;
    let shared = !caller.sees(&row.channel) || page.rows.iter().any(|entry| !caller.sees(&entry.channel));
    let own: Vec<&ThreadMessage> = page.rows.iter().filter(|entry| caller.sees(&entry.channel)).collect();
    let Some(newest) = own.first() else { return Ok(None) };
    if !shared && !page.more {
        return Ok(Some(View { row, shared, whole: true }));
    }
    // What the caller's channels call the person: another name is the others' knowledge.
    let peer = if shared { name_in(api, newest).await? } else { None };
    let is_unread = |entry: &&&ThreadMessage| entry.direction == Direction::In && entry.status == Some(Status::Delivered);
    let row = ThreadRow {
        id: ThreadId { peer: peer.unwrap_or(row.id.peer), ..row.id },
        channel: newest.channel.clone(),
        // Nobody knows which channel a name was learned from.
        aliases: Vec::new(),
        last_ms: newest.at_ms,
        last_text: newest.text.as_deref().map(preview),
        last_direction: newest.direction,
        unread: own.iter().filter(is_unread).count() as u64,
    };
    Ok(Some(View { row, shared, whole: false }))
}

/// Whether the caller may know that the thread goes by this name: it is shown under it, or one of the caller's channels heard it so.
pub(super) async fn is_known_as(api: &Api, caller: &Caller, view: &View, id: &ThreadId) -> Result<bool, Problem> {
    if view.whole || view.row.id == *id {
        return Ok(true);
    }
    for channel in caller.narrow(None)? {
        let heard = EventQuery { channel, thread: Some(id.clone()), limit: 1, ..EventQuery::default() };
        if !api.store.events(heard).await?.rows.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whom it is from or for, as it was written.
async fn name_in(api: &Api, entry: &ThreadMessage) -> Result<Option<String>, StoreError> {
    Ok(match entry.id {
        EntryId::Event(id) => api.store.event(id).await?.and_then(|event| event.row.peer),
        EntryId::Message(id) => api.store.message(id).await?.map(|message| message.peer),
    })
}

/// One page of what the caller's channels said and heard, and where the next one begins. Of a thread that is all others', a long stretch is
/// looked at for each page.
pub(super) async fn messages(
    api: &Api,
    caller: &Caller,
    id: &ThreadId,
    mut before: Option<EntryId>,
    limit: usize,
) -> Result<(Vec<ThreadMessage>, Option<EntryId>), Problem> {
    let (mut found, mut looked) = (Vec::new(), 0);
    loop {
        let size = if caller.is_limited() { PAGE_MAX } else { limit };
        let Page { rows, more } = api.store.thread_messages(id, before, size).await?;
        looked += rows.len();
        let end = rows.last().map(|row| row.id);
        let mut left = rows.into_iter().filter(|row| caller.sees(&row.channel)).peekable();
        while found.len() < limit
            && let Some(row) = left.next()
        {
            before = Some(row.id);
            found.push(row);
        }
        if left.peek().is_some() {
            return Ok((found, before));
        }
        before = end;
        if !more || end.is_none() {
            return Ok((found, None));
        }
        if found.len() == limit || looked >= LOOK_FOR_PAGE {
            return Ok((found, before));
        }
    }
}
