//! Lists that are narrowed by more than the store can look for: rows are looked at one by one, up to a number, and the answer says how far.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{StreamExt, TryStreamExt, stream};
use hapax_domain::filter::{BadFilter, Filter, Grammar, Word};
use hapax_domain::{EventId, Kind};
use hapax_providers::{form, is_type};
use hapax_store::{EventDetail, Page};
use serde_json::Value;

use super::events::own_type;
use super::list::ASKED_AT_ONCE;
use super::{Api, Caller, Code, Problem};

/// Rows that are looked at for one page, and how many of them are read for what is in them.
const LOOK_MAX: usize = 2_000;
const READ_MAX: usize = 500;
/// Rows that the store is asked for at once.
const LOOK_AT_ONCE: usize = 250;
/// Rows are in the order of their numbers, and their times nearly so: this far apart they may be the other way round.
const DISORDER_MS: i64 = 60_000;

/// Names of kinds, for `kind:`.
pub(super) const KINDS: &[&str] = &["message", "status", "reaction", "edit", "delete", "action", "notice"];

impl From<BadFilter> for Problem {
    fn from(bad: BadFilter) -> Self {
        Problem::new(Code::InvalidFilter, bad.to_string())
    }
}

/// Reads `?q=`. Who may not see texts may not look for them either.
pub(super) fn read(api: &Api, caller: &Caller, text: Option<&str>, grammar: &Grammar) -> Result<Filter, Problem> {
    let filter = Filter::read(text.unwrap_or_default(), grammar, api.clock.now_ms())?;
    if filter.asks(Word::Text) && api.hides_payloads_from(caller) {
        return Err(Problem::forbidden(
            "`text:` looks into what `hide_payloads` keeps from this token; use one of scope `admin`",
        ));
    }
    Ok(filter)
}

pub(super) fn read_kind(name: &str) -> Result<Kind, Problem> {
    let known = || Kind::ALL.map(Kind::name).join(", ");
    Kind::from_name(name).ok_or_else(|| Problem::bad_request(format!("`{name}` is not a kind; use one of {}", known())))
}

/// What a look at a row tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Keep,
    Skip,
    /// What is in it decides.
    Read,
    /// No row after it can be meant.
    End,
}

/// One page of what was found.
pub(super) struct Found<R, P> {
    pub(super) rows: Vec<R>,
    /// Where to look on.
    pub(super) next: Option<P>,
    pub(super) looked_at: usize,
}

/// Looks through a list from `after` on until a page is full.
pub(super) async fn find<R, P, F, D>(
    limit: usize,
    mut after: Option<P>,
    fetch: impl Fn(Option<P>, usize) -> F,
    place: impl Fn(&R) -> P,
    look: impl Fn(&R) -> Look,
    read: impl Fn(R) -> D,
) -> Result<Found<R, P>, Problem>
where
    P: Clone,
    F: Future<Output = Result<Page<R>, Problem>>,
    D: Future<Output = Result<Option<R>, Problem>>,
{
    let (mut found, reads) = (Found { rows: Vec::new(), next: None, looked_at: 0 }, AtomicUsize::new(0));
    loop {
        let Page { rows, more } = fetch(after.clone(), LOOK_AT_ONCE.min(LOOK_MAX - found.looked_at)).await?;
        let mut left = rows.len();
        let judge = |row: R| {
            let (at, verdict) = (place(&row), look(&row));
            let (kept, reading) = match verdict {
                Look::Keep => (Some(row), None),
                Look::Read => {
                    reads.fetch_add(1, Ordering::Relaxed);
                    (None, Some(read(row)))
                }
                Look::Skip | Look::End => (None, None),
            };
            async move {
                let kept = match reading {
                    Some(reading) => reading.await?,
                    None => kept,
                };
                Ok::<_, Problem>((at, verdict, kept))
            }
        };
        let mut judged = stream::iter(rows.into_iter().map(judge)).buffered(ASKED_AT_ONCE);
        while let Some((at, verdict, kept)) = judged.try_next().await? {
            if verdict == Look::End {
                return Ok(found);
            }
            left -= 1;
            found.looked_at += 1;
            found.rows.extend(kept);
            let enough = found.rows.len() == limit || reads.load(Ordering::Relaxed) >= READ_MAX || found.looked_at >= LOOK_MAX;
            if enough {
                found.next = (left > 0 || more).then_some(at);
                return Ok(found);
            }
            after = Some(at);
        }
        if !more {
            return Ok(found);
        }
    }
}

/// What the time of a row tells, in a list whose newest come first or last.
pub(super) fn look_at_time(filter: &Filter, at_ms: i64, newest_first: bool) -> Look {
    let past = match newest_first {
        true => filter.since_ms.is_some_and(|since_ms| at_ms < since_ms.saturating_sub(DISORDER_MS)),
        false => filter.before_ms.is_some_and(|before_ms| at_ms >= before_ms.saturating_add(DISORDER_MS)),
    };
    match filter.allows_time(at_ms) {
        _ if past => Look::End,
        true => Look::Keep,
        false => Look::Skip,
    }
}

/// Whether what is in an event is what the filter wants.
pub(super) async fn event_fits(api: &Api, event: EventId, filter: &Filter) -> Result<bool, Problem> {
    let Some(detail) = api.store.event(event).await? else { return Ok(false) };
    let row = &detail.row;
    let own_type = if filter.asks(Word::Type) { own_type(api, &detail) } else { None };
    let thread = thread_of(&detail);
    Ok(filter.allows(Word::Account, |account| account == row.account)
        && filter.allows(Word::Kind, |kind| kind == row.kind.name())
        && filter.allows(Word::Thread, |asked| thread.as_deref() == Some(asked))
        && filter.allows(Word::Type, |asked| own_type.as_deref().is_some_and(|found| is_type(found, asked)))
        && text_fits(filter, || texts_in(&detail.body)))
}

fn thread_of(detail: &EventDetail) -> Option<String> {
    let peer = detail.row.peer.clone()?;
    Some(hapax_domain::ThreadId { account: detail.row.account.clone(), peer }.to_string())
}

/// Whether a text has all the words, and none of those it must not have. Capitals do not count.
pub(super) fn text_fits(filter: &Filter, text: impl FnOnce() -> String) -> bool {
    if !filter.asks(Word::Text) {
        return true;
    }
    let text = text().to_lowercase();
    filter.allows(Word::Text, |words| text.contains(&words.to_lowercase()))
}

/// All texts in a body, one per line: of JSON its strings, of a form its values, else the body as it is.
pub(super) fn texts_in(body: &[u8]) -> String {
    let mut texts = String::new();
    match serde_json::from_slice::<Value>(body) {
        Ok(json) => gather(&json, &mut texts),
        Err(_) => {
            let plain = String::from_utf8_lossy(body);
            form::pairs(&plain).for_each(|(_, value)| texts.extend([&value, "\n"]));
            texts.push_str(&plain);
        }
    }
    texts
}

fn gather(json: &Value, texts: &mut String) {
    match json {
        Value::String(text) => texts.extend([text.as_str(), "\n"]),
        Value::Number(number) => texts.extend([number.to_string().as_str(), "\n"]),
        Value::Array(items) => items.iter().for_each(|item| gather(item, texts)),
        Value::Object(members) => members.values().for_each(|value| gather(value, texts)),
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_kinds_are_those_of_the_domain() {
        assert_eq!(KINDS, Kind::ALL.map(Kind::name));
    }

    #[test]
    fn texts_are_found_decoded() {
        assert!(texts_in(br#"{"a":[{"b":"caf\u00e9"}],"n":12}"#).contains("café\n12"));
        assert!(texts_in(b"Body=two+words&X=1").contains("two words"));
        assert!(texts_in(b"plain").contains("plain"));
    }

    async fn looked(rows: usize, limit: usize, look: impl Fn(&usize) -> Look, reads: bool) -> (Vec<usize>, Option<usize>, usize) {
        let fetch = async |after: Option<usize>, size: usize| {
            let from = after.map_or(0, |after| after + 1);
            let page: Vec<usize> = (from..rows).take(size).collect();
            let more = page.last().is_some_and(|last| last + 1 < rows);
            Ok(Page { rows: page, more })
        };
        let read = async |row: usize| Ok(reads.then_some(row));
        let found = find(limit, None, fetch, |row| *row, look, read).await.expect("found");
        (found.rows, found.next, found.looked_at)
    }

    #[tokio::test]
    async fn a_page_says_how_far_was_looked_and_where_to_look_on() {
        let even = |row: &usize| if row.is_multiple_of(2) { Look::Keep } else { Look::Skip };
        assert_eq!(looked(9, 3, even, true).await, (vec![0, 2, 4], Some(4), 5));
        assert_eq!(looked(5, 3, even, true).await, (vec![0, 2, 4], None, 5), "the last row was the last");
        assert_eq!(looked(3, 9, even, true).await, (vec![0, 2], None, 3));
        assert_eq!(looked(5_000, 9, |_| Look::Skip, true).await, (vec![], Some(LOOK_MAX - 1), LOOK_MAX));
        assert_eq!(looked(5_000, 9, |row| if *row < 300 { Look::Skip } else { Look::End }, true).await, (vec![], None, 300));
        let (rows, next, looked_at) = looked(5_000, 9, |_| Look::Read, false).await;
        assert!(rows.is_empty() && next.is_some() && (READ_MAX - ASKED_AT_ONCE..=READ_MAX).contains(&looked_at), "{looked_at}");
    }
}
