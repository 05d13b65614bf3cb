//! What the holder of a token for some channels sees of a thread. Channels of one account share their threads, so a thread is shown as if only
//! the caller's channels had spoken in it.

use futures_util::{StreamExt, TryStreamExt, stream};

use super::list::ASKED_AT_ONCE;
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

/// Own entries that are read for the names in them.
const NAMES_READ: usize = 50;

/// A thread as its caller sees it.
pub(super) struct View {
    pub(super) row: ThreadRow,
    /// Something in it is not the caller's.
    pub(super) shared: bool,
}

/// Shows a thread, from its newest `look` entries, where it was asked for by a name. `None`: nothing in them is the caller's, or another channel
/// alone knows whose name it is.
pub(super) async fn view(
    api: &Api,
    caller: &Caller,
    row: ThreadRow,
    look: usize,
    asked: Option<&ThreadId>,
) -> Result<Option<View>, Problem> {
    if !caller.is_limited() {
        return Ok(Some(View { row, shared: false }));
    }
    let page = api.store.thread_messages(&row.id, None, look).await?;
    let mut shared = !caller.sees(&row.channel) || page.rows.iter().any(|entry| !caller.sees(&entry.channel));
    let own: Vec<&ThreadMessage> = page.rows.iter().filter(|entry| caller.sees(&entry.channel)).collect();
    let Some(newest) = own.first() else { return Ok(None) };
    if !shared && !page.more {
        return Ok(Some(View { row, shared }));
    }
    // Others may have taught it a name before all that was looked at.
    if !shared && let Some(asked) = asked {
        shared = *asked != row.id && others_heard_in(api, caller, &row).await?;
    }
    let peer = match asked {
        _ if !shared => row.id.peer,
        Some(asked) if !is_known_as(api, caller, &own, asked).await? => return Ok(None),
        // What the caller's channels call the person: another name is the others' knowledge.
        asked => match (name_in(api, newest.id).await?, asked) {
            (Some(name), _) => name,
            (None, Some(asked)) => asked.peer.clone(),
            (None, None) => return Ok(None),
        },
    };
    let is_unread = |entry: &&&ThreadMessage| entry.direction == Direction::In && entry.status == Some(Status::Delivered);
    let row = ThreadRow {
        id: ThreadId { peer, ..row.id },
        channel: newest.channel.clone(),
        // Nobody knows which channel a name was learned from.
        aliases: Vec::new(),
        last_ms: newest.at_ms,
        last_text: newest.text.as_deref().map(preview),
        last_direction: newest.direction,
        unread: own.iter().filter(is_unread).count() as u64,
    };
    Ok(Some(View { row, shared }))
}

/// Whether a channel that is not the caller's heard anything under a name of this thread.
async fn others_heard_in(api: &Api, caller: &Caller, row: &ThreadRow) -> Result<bool, Problem> {
    let mut asks = Vec::new();
    for channel in api.channels.iter().map(|channel| channel.name()).filter(|name| !caller.sees(name)) {
        let names = std::iter::once(&row.id.peer).chain(&row.aliases);
        asks.extend(names.map(|peer| (channel.to_string(), ThreadId { peer: peer.clone(), ..row.id.clone() })));
    }
    let asks: Vec<_> = asks.into_iter().map(|(channel, name)| has_heard(api, Some(channel), name)).collect();
    let mut heard = stream::iter(asks).buffered(ASKED_AT_ONCE);
    while let Some(heard) = heard.try_next().await? {
        if heard {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the caller may know that a shared thread goes by this name: one of its channels heard from it, or wrote to it of late.
async fn is_known_as(api: &Api, caller: &Caller, own: &[&ThreadMessage], id: &ThreadId) -> Result<bool, Problem> {
    for channel in caller.narrow(None)? {
        if has_heard(api, channel, id.clone()).await? {
            return Ok(true);
        }
    }
    let sent = own.iter().map(|entry| entry.id).filter(|id| matches!(id, EntryId::Message(_)));
    let reads: Vec<_> = sent.take(NAMES_READ).map(|entry| name_in(api, entry)).collect();
    let mut names = stream::iter(reads).buffered(ASKED_AT_ONCE);
    while let Some(name) = names.try_next().await? {
        if name.as_ref() == Some(&id.peer) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn has_heard(api: &Api, channel: Option<String>, thread: ThreadId) -> Result<bool, StoreError> {
    let heard = EventQuery { channel, thread: Some(thread), limit: 1, ..EventQuery::default() };
    Ok(!api.store.events(heard).await?.rows.is_empty())
}

/// Whom it is from or for, as it was written.
async fn name_in(api: &Api, entry: EntryId) -> Result<Option<String>, StoreError> {
    Ok(match entry {
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
