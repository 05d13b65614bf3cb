//! One call of `getUpdates`: what it confirms, and what it is given.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hapax_domain::poll_book::Given;
use hapax_domain::{ItemId, PollBook, limits};
use hapax_providers::dropin::telegram::{self, UpdatesAsked};
use hapax_store::{InboxQuery, StoreError};
use http::Response;
use tokio::time::Instant;

use super::desk::{Batch, Desk, Seat, Taken};
use super::{Polling, book_name};
use crate::dropin::reply;
use crate::dropin::written::KeptAnswer;

/// How long the store may take to be asked, also where the bot would not wait.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// .. and to park what the bot wants to have forgotten.
const FORGET_MAX: Duration = Duration::from_secs(10);

/// A poll that another one ends has lasted so long: two bots that end each other's polls do so at leisure.
const POLL_MIN: Duration = Duration::from_secs(1);

/// How often it is looked whether the bot polls at another instance meanwhile.
const LOOK_ELSEWHERE: Duration = Duration::from_secs(1);

/// Items that wait of which the oldest are forgotten when a bot asks for that.
const FORGOTTEN_MAX: usize = 10_000;

impl Polling {
    /// `None`: the channel's bot does not poll.
    pub(in crate::dropin) async fn poll(
        &self,
        channel: &str,
        asked: &UpdatesAsked,
    ) -> Option<Result<Response<Body>, StoreError>> {
        let desk = self.desks.get(channel)?;
        Some(self.poll_at(desk, asked).await)
    }

    async fn poll_at(&self, desk: &Arc<Desk>, asked: &UpdatesAsked) -> Result<Response<Body>, StoreError> {
        let limit = asked.limit as usize;
        let one_at_a_time = desk.arriving.lock().await;
        let mut seat = desk.arrive(limit);
        let allowed = self.confirm(desk, asked).await?;
        drop(one_at_a_time);
        if asked.offset < 0 {
            let last = usize::try_from(asked.offset.unsigned_abs()).unwrap_or(usize::MAX);
            desk.forget(self.all_but(desk, last).await?);
        }
        self.asked.notify_one();
        let deadline = seat.since + Duration::from_secs(asked.timeout_s);
        let mut look = Instant::now() + LOOK_ELSEWHERE;
        loop {
            let changed = desk.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Before looking: what changes while we look must not be missed.
            changed.as_mut().enable();
            match desk.take(seat.turn, limit, allowed.as_deref()) {
                Batch::Some(batch) => match self.give(desk, &mut seat, asked.offset, batch).await? {
                    Some(response) => return Ok(response),
                    None => continue,
                },
                Batch::Nothing { asked_since } if is_over(desk, &seat, deadline, asked_since) => return Ok(nothing()),
                Batch::Nothing { .. } => {}
                Batch::Closed => return Ok(nothing()),
                Batch::Over => {
                    tokio::time::sleep_until(seat.since + POLL_MIN).await;
                    return Ok(nothing());
                }
            }
            let until = if Instant::now() < deadline { deadline.min(look) } else { look };
            let _ = tokio::time::timeout_at(until, changed).await;
            if Instant::now() >= look {
                look = Instant::now() + LOOK_ELSEWHERE;
                if self.is_polled_elsewhere(desk).await {
                    return Ok(nothing());
                }
            }
        }
    }

    /// Settles what the offset confirms; gives the kinds that the bot wants.
    async fn confirm(&self, desk: &Desk, asked: &UpdatesAsked) -> Result<Option<Vec<String>>, StoreError> {
        let (books, name) = (&self.dropin.books, book_name(&desk.settings.name));
        let seen: PollBook = books.look(&name).await?.unwrap_or_default();
        let mut book = seen.clone();
        let anew = self.note(desk, &mut book, asked);
        let news: Vec<ItemId> = book.confirmed.iter().copied().filter(|item| !seen.has_confirmed(*item)).collect();
        // What is settled here in a moment need not be written down: asked again, the book says the same.
        let must_be_kept = book.process != seen.process
            || book.allowed != seen.allowed
            || book.offset > seen.highest + 1 && book.offset > seen.offset
            || !news.is_empty() && (desk.redoes() || !desk.holds_all(&news));
        if must_be_kept {
            let keep = |book: &mut PollBook| (self.note(desk, book, asked), book.clone()).1;
            book = books.change(&name, limits::KEEP_MAX_MS, keep).await?;
        }
        desk.apply(&book, anew);
        Ok(book.allowed)
    }

    /// Writes a poll into the book. True: the bot was started anew.
    fn note(&self, desk: &Desk, book: &mut PollBook, asked: &UpdatesAsked) -> bool {
        let anew = book.confirm(asked.offset);
        if anew && desk.redoes() {
            // What is still open of it was confirmed a moment ago, or just before hapax was killed.
            book.take_back();
        }
        book.confirmed = desk.unsettled_of(&book.confirmed);
        book.process = self.dropin.books.process();
        if asked.allowed_updates.is_some() {
            book.allowed.clone_from(&asked.allowed_updates);
        }
        anew
    }

    /// Writes down what is given, and then gives it. `None`: another poll has come meanwhile, or a lease is over.
    async fn give(
        &self,
        desk: &Arc<Desk>,
        seat: &mut Seat,
        offset: i64,
        batch: Vec<Taken>,
    ) -> Result<Option<Response<Body>>, StoreError> {
        let _one_at_a_time = desk.arriving.lock().await;
        let process = self.dropin.books.process();
        let write = |book: &mut PollBook| {
            // The bot polls at another instance by now, and this poll is nobody's.
            if book.process != process {
                return None;
            }
            book.confirm(offset);
            book.confirmed = desk.unsettled_of(&book.confirmed);
            let number = |taken: &Taken| Given { item: taken.item, number: book.number(taken.item, taken.own, taken.before) };
            let given: Vec<Given> = batch.iter().map(number).collect();
            book.give(given.clone());
            Some(given)
        };
        if !desk.is_newest(seat) {
            desk.put_back(seat.turn);
            return Ok(None);
        }
        let written = self.dropin.books.change(&book_name(&desk.settings.name), limits::KEEP_MAX_MS, write).await;
        let Some(given) = written.inspect_err(|_| desk.put_back(seat.turn))? else {
            desk.put_back(seat.turn);
            return Ok(Some(nothing()));
        };
        if !desk.may_leave(seat.turn, &given) {
            return Ok(None);
        }
        let mut updates: Vec<(i64, Vec<u8>)> = Vec::with_capacity(batch.len());
        for (taken, given) in batch.iter().zip(&given) {
            let as_it_came = || taken.update.to_vec();
            let update = match taken.own == Some(given.number) {
                true => as_it_came(),
                false => telegram::renumbered(&taken.update, given.number).unwrap_or_else(as_it_came),
            };
            updates.push((given.number, update));
        }
        updates.sort_by_key(|(number, _)| *number);
        let updates: Vec<Vec<u8>> = updates.into_iter().map(|(_, update)| update).collect();
        let answer = telegram::updates(&updates);
        let kept = KeptAnswer { status: answer.status, content_type: Some(answer.content_type.to_owned()), body: answer.body };
        let (desk, turn) = (Arc::clone(desk), seat.turn);
        seat.answered = true;
        Ok(Some(reply::kept(kept, move |handed_over| desk.left(turn, handed_over))))
    }

    /// What waits, but for the last so many.
    async fn all_but(&self, desk: &Desk, last: usize) -> Result<HashSet<ItemId>, StoreError> {
        let mut items: Vec<ItemId> = Vec::new();
        while items.len() < FORGOTTEN_MAX {
            let query = InboxQuery {
                channel: Some(desk.settings.name.to_string()),
                parked: Some(false),
                after: items.last().copied(),
                limit: limits::PAGE_MAX,
            };
            let page = self.store.inbox(query).await?;
            items.extend(page.rows.iter().map(|row| row.item));
            if !page.more {
                break;
            }
        }
        items.truncate(items.len().saturating_sub(last));
        Ok(items.into_iter().collect())
    }

    async fn is_polled_elsewhere(&self, desk: &Desk) -> bool {
        let book = self.dropin.books.look::<PollBook>(&book_name(&desk.settings.name)).await;
        book.is_ok_and(|book| book.is_some_and(|book| book.process != self.dropin.books.process()))
    }
}

/// Whether there is nothing to wait for any more: the time is over, and the store was asked.
fn is_over(desk: &Desk, seat: &Seat, deadline: Instant, asked_since: Option<Instant>) -> bool {
    let now = Instant::now();
    let forgets = desk.is_forgetting() && now < seat.since + FORGET_MAX;
    now >= deadline && !forgets && asked_since.is_none_or(|since| now >= since + LOOK_MAX)
}

fn nothing() -> Response<Body> {
    reply::of(telegram::updates::<&[u8]>(&[]))
}
