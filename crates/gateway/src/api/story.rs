//! `/v1/events/{id}/story`: everything that happened to one event, in order, in words.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use hapax_domain::ids::number_of;
use hapax_domain::{EventId, Fence, Identity, ItemId, limits};
use hapax_store::{AttemptRow, Copies, EventDetail, EventRow, EventState, InboxRow, ItemState, Reason, why_beside};
use serde::Serialize;
use utoipa::ToSchema;

use super::events::{self, Event};
use super::time::rfc3339;
use super::{Api, Caller, Problem, down, reply_story, run_story};
use crate::delivery::likely_cause;
use crate::dropin::UNWANTED;
use crate::settings::Mode;
use crate::takeover::SEEN_TO_BY_A_PERSON;

#[derive(Serialize, ToSchema)]
#[schema(as = EventStory)]
pub(crate) struct Story {
    pub(crate) event: Event,
    pub(crate) steps: Vec<Step>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = StoryStep)]
pub(crate) struct Step {
    pub(crate) at: String,
    #[serde(skip)]
    pub(crate) at_ms: i64,
    /// received, claimed, copies, conflict, leased, the outcome of an attempt, or how it stands now.
    pub(crate) step: String,
    pub(crate) words: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) item: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fence: Option<u64>,
}

/// Tells everything that happened to one event, in order.
#[utoipa::path(
    get,
    path = "/events/{id}/story",
    operation_id = "tellEvent",
    tag = "events",
    params(("id" = String, Path, description = "`evt_…`, whole, short or its beginning, or `latest`")),
    responses((status = 200, description = "The story", body = Story), (status = 404)),
)]
pub(crate) async fn tell(State(api): State<Arc<Api>>, caller: Caller, Path(id): Path<String>) -> Result<Json<Story>, Problem> {
    let detail = events::find(&api, &caller, &id).await?;
    let beside = match detail.copies.and_then(|copies| copies.kept) {
        Some(kept) => api.store.event(kept).await?,
        None => None,
    };
    let mut steps = steps(&detail, api.clock.now_ms());
    let hides = api.hides_payloads_from(&caller);
    steps.extend(beside.as_ref().and_then(|detail| kept_beside(detail, hides)));
    steps.extend(run_story::steps(&api, &detail, hides).await?);
    steps.extend(reply_story::steps(&api, &detail, &caller).await?);
    if api.channels.get(&detail.row.channel).is_some_and(|channel| channel.settings.is_polled()) {
        steps.iter_mut().for_each(of_a_poll);
    }
    steps.sort_by_key(|step| step.at_ms);
    steps.extend(what_holds_it_up(&api, &detail));
    Ok(Json(Story { event: detail.row.into(), steps }))
}

fn steps(detail: &EventDetail, now_ms: i64) -> Vec<Step> {
    let mut steps = vec![received(&detail.row), claimed(&detail.row)];
    steps.extend(doubt(&detail.row));
    steps.extend(detail.copies.iter().flat_map(copies));
    let replays = replays(detail);
    steps.extend(detail.attempts.iter().flat_map(|row| attempt(row, &replays)));
    steps.sort_by_key(|step| step.at_ms);
    steps.extend(detail.open.iter().map(|row| open_now(row, now_ms)));
    steps
}

/// What a person should look at while it is not delivered: a target that is down, or the usual cause of the last failure.
fn what_holds_it_up(api: &Api, detail: &EventDetail) -> Vec<Step> {
    let Some(channel) = api.channels.get(&detail.row.channel).filter(|_| !detail.open.is_empty()) else { return Vec::new() };
    let (settings, now_ms) = (&channel.settings, api.clock.now_ms());
    let waits = detail.open.iter().any(|row| matches!(row.state, ItemState::Waiting { .. }));
    let Some(url) = down::url_of(settings, Some(&detail.row.account)) else {
        let (name, words) = match api.pull.serves(&detail.row.channel) {
            true if settings.dropin.is_some() => {
                ("for workers", "its channel has no `target`: a bot gets it by getUpdates or POST /v1/pull")
            }
            true if settings.mode == Mode::Pull => ("for workers", "a worker gets it by POST /v1/pull"),
            true => (
                "for workers",
                "its channel has no `target`: set it and run `hapax reload`, or have a worker get it by POST /v1/pull",
            ),
            false => ("no target", "its account has no `target` in the config: it waits until there is one"),
        };
        return Vec::from_iter(waits.then(|| step(now_ms, name, words.to_owned())));
    };
    let dead = down::of_account(api, settings, &detail.row.account).filter(|_| waits);
    let causes = detail.open.iter().filter_map(|row| row.why.as_deref()).chain(dead.as_ref().map(|dead| dead.why.as_str()));
    let cause = causes.filter_map(|why| likely_cause(why, &url)).next_back();
    let down = dead.map(|dead| {
        let (since, next) = (rfc3339(dead.since_ms), rfc3339(dead.next_ms.max(now_ms)));
        step(now_ms, "target down", format!("its target {url} is down since {since}: {}; next try at {next}", dead.why))
    });
    down.into_iter().chain(cause.map(|cause| step(now_ms, "likely cause", cause))).collect()
}

impl Step {
    pub(crate) fn of_attempt(self, attempt: u32, fence: Fence) -> Self {
        Self { attempt: Some(attempt), fence: Some(fence.0), ..self }
    }
}

pub(crate) fn step(at_ms: i64, step: &str, words: String) -> Step {
    Step { at: rfc3339(at_ms), at_ms, step: step.to_owned(), words, item: None, attempt: None, fence: None }
}

fn received(row: &EventRow) -> Step {
    let from = row.peer.as_ref().map(|peer| format!(" of {peer}")).unwrap_or_default();
    let id = if row.provider_id.is_empty() { "without an id of its own" } else { &row.provider_id };
    let echo = if row.echo { ", an echo of our own" } else { "" };
    let words = format!("{} {id}{from} came in on channel {}, {} bytes{echo}", row.kind.name(), row.channel, row.body_bytes);
    step(row.received_ms, "received", words)
}

/// What was kept beside the event, when it came.
fn kept_beside(detail: &EventDetail, hides: bool) -> Option<Step> {
    let (reason, _) = Reason::of_shown(&detail.row.provider_id)?;
    let name = match reason {
        Reason::Conflict => "conflict",
        Reason::Unsent => "reply not sent",
    };
    let why = why_beside(&detail.headers).unwrap_or_default();
    let said = if hides { String::new() } else { format!(": {}", limits::preview(&String::from_utf8_lossy(&detail.body))) };
    Some(step(detail.row.received_ms, name, format!("{why}; kept as {}, {} bytes{said}", detail.row.id, detail.row.body_bytes)))
}

fn claimed(row: &EventRow) -> Step {
    if let Some((_, first)) = Reason::of_shown(&row.provider_id) {
        return step(row.received_ms, "claimed", format!("kept beside {first}, and meant for nobody"));
    }
    let then = match row.state {
        EventState::Kept => "kept, and by the channel's `deliver` meant for nobody",
        EventState::Quarantined => "it could not be read: kept aside for a person",
        EventState::Waiting | EventState::Delivered | EventState::Parked => "recorded and put in line",
    };
    step(row.received_ms, "claimed", format!("its key was new: {then}"))
}

/// What is to be said of an event without an id of its own.
fn doubt(row: &EventRow) -> Option<Step> {
    let words = match Identity::of_shown(&row.provider_id) {
        Identity::Named => return None,
        Identity::Fallback => "it has no id: while its provider retries, its copies are known by a hash of all it says",
        Identity::Unknown => "it has neither an id nor a time: a copy of it is delivered too",
    };
    Some(step(row.received_ms, "no id", words.to_owned()))
}

/// Copies are counted, not listed: their step stands at the time of the last one.
fn copies(copies: &Copies) -> Vec<Step> {
    let times = |n: u64| if n == 1 { "1 copy".to_owned() } else { format!("{n} copies") };
    let mut steps = Vec::new();
    if copies.copies > 0 {
        steps.push(step(copies.last_ms, "copies", format!("{} suppressed until now", times(copies.copies))));
    }
    if copies.conflicts > 0 {
        let words = format!("{} came with another content under the same id: counted, not delivered", times(copies.conflicts));
        steps.push(step(copies.last_ms, "conflict", words));
    }
    steps
}

/// The replays of an event that were tried or are open, in their order. They were made after it, what carried it first was not.
fn replays(detail: &EventDetail) -> Vec<ItemId> {
    let items = detail.attempts.iter().map(|row| row.item).chain(detail.open.iter().map(|row| row.item));
    let mut replays: Vec<ItemId> = items.filter(|item| is_replay(*item, detail.row.id)).collect();
    replays.sort();
    replays.dedup();
    replays
}

fn is_replay(item: ItemId, event: EventId) -> bool {
    number_of(item.0) > number_of(event.0)
}

fn attempt(row: &AttemptRow, replays: &[ItemId]) -> [Step; 2] {
    let replay = replays.iter().position(|item| *item == row.item);
    let label = replay.map(|place| format!("replay {}: ", place + 1)).unwrap_or_default();
    let about = |step: Step| Step {
        item: Some(row.item.to_string()),
        words: format!("{label}{}", step.words),
        ..step.of_attempt(row.attempt, row.fence)
    };
    let number = row.attempt;
    let leased = step(row.leased_ms, "leased", format!("attempt {number} begun by {}, fence {}", row.worker, row.fence));
    let took_ms = row.ended_ms.saturating_sub(row.leased_ms);
    let said = if row.detail.is_empty() { String::new() } else { format!(": {}", row.detail) };
    let words = match row.outcome.as_str() {
        "delivered" if row.detail == SEEN_TO_BY_A_PERSON.to_string() => {
            "a person had taken over the thread and sees to it; the bot did not get it".to_owned()
        }
        "delivered" => format!("the target took it at attempt {number} after {took_ms} ms{said}"),
        "retry" => format!("attempt {number} failed after {took_ms} ms{said}; it comes again"),
        "parked" => format!("attempt {number} ended after {took_ms} ms and it was parked{said}"),
        "handed back" => format!("attempt {number} ended after {took_ms} ms{said}; it is not charged and comes again"),
        other => format!("attempt {number} ended: {other}{said}"),
    };
    [about(leased), about(step(row.ended_ms, &row.outcome, words))]
}

/// A bot that polls has no target; what it did not want was given to nobody.
fn of_a_poll(step: &mut Step) {
    if step.step != "delivered" {
        return;
    }
    step.words = match step.words.ends_with(&format!(": {UNWANTED}")) {
        true => {
            "the bot does not want updates of this kind (its `allowed_updates`): it was given to nobody, and is done".to_owned()
        }
        false => step.words.replacen("the target took it", "the bot took it", 1),
    };
}

fn open_now(row: &InboxRow, now_ms: i64) -> Step {
    let why = row.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let failed = match row.failures {
        0 => String::new(),
        1 => ", after 1 failure".to_owned(),
        failures => format!(", after {failures} failures"),
    };
    let words = match &row.state {
        ItemState::Leased { worker, until_ms, fence } => {
            format!("attempt {} is with {worker} now, fence {fence}, held until {}{failed}", row.attempt, rfc3339(*until_ms))
        }
        ItemState::Waiting { due_ms } if *due_ms > now_ms => {
            format!("it waits for attempt {}, due at {}{failed}{why}", row.attempt + 1, rfc3339(*due_ms))
        }
        ItemState::Waiting { .. } => format!("it waits for its turn{failed}{why}"),
        ItemState::Parked => format!("it is parked{failed}{why}; `hapax redrive {}` puts it back in line", row.item),
        ItemState::Quarantined => format!("it is quarantined{why}"),
    };
    let fence = match row.state {
        ItemState::Leased { fence, .. } => Some(fence.0),
        _ => None,
    };
    let replay = row.replay.map(|number| format!("replay {number}: ")).unwrap_or_default();
    let now = step(now_ms, row.state.name(), format!("{replay}{words}"));
    Step { item: Some(row.item.to_string()), attempt: fence.map(|_| row.attempt), fence, ..now }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_domain::{EventId, ItemId, Kind};
    use uuid::Uuid;

    #[test]
    fn a_story_is_told_in_the_order_of_time() {
        let (event, item) = (EventId(Uuid::from_u128(1)), ItemId(Uuid::from_u128(1)));
        let attempt = |number, leased_ms, ended_ms, outcome: &str, detail: &str| AttemptRow {
            item,
            attempt: number,
            fence: Fence(number.into()),
            worker: "w".to_owned(),
            leased_ms,
            ended_ms,
            outcome: outcome.to_owned(),
            detail: detail.to_owned(),
        };
        let detail = EventDetail {
            row: EventRow {
                id: event,
                channel: "shop".to_owned(),
                kind: Kind::Message,
                account: "a".to_owned(),
                provider_id: "wamid.1".to_owned(),
                peer: Some("p".to_owned()),
                echo: false,
                received_ms: 1_000,
                at_ms: None,
                state: EventState::Parked,
                body_bytes: 5,
            },
            headers: Default::default(),
            body: Default::default(),
            copies: Some(Copies { event, copies: 4, conflicts: 1, last_ms: 2_500, kept: None }),
            attempts: vec![attempt(1, 1_100, 2_000, "retry", "503"), attempt(2, 3_000, 3_100, "parked", "404")],
            open: vec![InboxRow {
                item,
                event,
                channel: "shop".to_owned(),
                events: 1,
                attempt: 2,
                failures: 2,
                replay: None,
                state: ItemState::Parked,
                why: Some("404".to_owned()),
                received_ms: 1_000,
            }],
        };
        let told: Vec<_> = steps(&detail, 9_000).into_iter().map(|step| format!("{} {}", step.at_ms, step.words)).collect();
        assert_eq!(
            told,
            [
                "1000 message wamid.1 of p came in on channel shop, 5 bytes",
                "1000 its key was new: recorded and put in line",
                "1100 attempt 1 begun by w, fence 1",
                "2000 attempt 1 failed after 900 ms: 503; it comes again",
                "2500 4 copies suppressed until now",
                "2500 1 copy came with another content under the same id: counted, not delivered",
                "3000 attempt 2 begun by w, fence 2",
                "3100 attempt 2 ended after 100 ms and it was parked: 404",
                "9000 it is parked, after 2 failures: 404; `hapax redrive itm_00000000000000000000000000000001` puts it back in line",
            ]
        );
    }
}
