//! What a bot sends: which message it is, into the outbox, and the provider's own answer back.

mod placing;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hapax_domain::{EventId, MessageId, Status, ThreadId};
use hapax_providers::dropin::{Effect, Refusal, Reply, Routed, Settled, Upload, What, Whole, wait_of};
use hapax_store::{EventDetail, EventState, MessageRow, PausedAccount, StoreError, in_time};
use http::request::Parts;
use http::{HeaderMap, Response, header};
use hyper::body::Incoming;
use tokio::time::Instant;

use self::placing::{NotPlaced, OpenCall, Placed};
use super::admission::Served;
use super::books::End;
use super::outcomes::{is_over, seconds_left};
use super::runs::{Polled, Sought};
use super::uploads::{Pieces, Taken};
use super::written::{KeptAnswer, answer_name, refusal_name};
use super::{DropIns, reply};
use crate::http_client;

/// How long the store may take to give a kept answer back.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);

/// How long it is known which accounts rest.
const PAUSED_HOLDS: Duration = Duration::from_millis(200);

/// Before it is looked whether the account of a message rests.
const FIRST_LOOK: Duration = Duration::from_millis(500);

/// How long a caller is asked to stay away while the store is.
const STORE_AWAY_S: u64 = 5;

/// What a caller says beside its request.
pub(super) struct CallerHints {
    pub(super) event: Option<EventId>,
    pub(super) attempt: Option<u32>,
    /// Its own name for this very send.
    pub(super) key: Option<String>,
}

impl DropIns {
    pub(super) async fn effect(
        self: &Arc<Self>,
        served: Arc<Served>,
        mut routed: Routed,
        head: Parts,
        body: Incoming,
    ) -> Response<Body> {
        let refuse = |why: &Refusal| reply::of(served.adapter.reply(why));
        let said = match CallerHints::read(&head.headers) {
            Ok(said) => said,
            Err(why) => return refuse(&Refusal::Unreadable(why)),
        };
        let content_type = text_of(&head.headers, header::CONTENT_TYPE);
        let taken = match self.take_body(&served, content_type, body).await {
            Ok(taken) => taken,
            Err(why) => return refuse(&why),
        };
        // The time of those who take long to send their request is their own.
        let deadline = Instant::now() + served.wait(&head.headers);
        if routed.what == What::ByBody {
            routed.what = served.adapter.by_body(&routed, head.uri.query(), content_type, taken.bytes());
        }
        if !matches!(routed.what, What::Effect { .. }) {
            return match taken.whole() {
                Some(bytes) => self.pass_through(&served, &head, http_client::whole(bytes)).await,
                None => refuse(&Refusal::TooLarge),
            };
        }
        let (effect, pieces) = match self.read_effect(&served, &routed, &head, taken).await {
            Ok(read) => read,
            Err(reply) => return reply::of(reply),
        };
        // In a task of its own: once it was asked for it is made, whether or not the caller stays.
        let placing = tokio::spawn(Arc::clone(self).place(Arc::clone(&served), effect, said, pieces));
        match placing.await {
            Ok(Ok(placed)) => self.answer(&served, placed, deadline).await,
            Ok(Err(NotPlaced::Wrong(why))) => refuse(&Refusal::Unreadable(why)),
            Ok(Err(NotPlaced::TooLarge)) => refuse(&Refusal::TooLarge),
            Ok(Err(NotPlaced::Store(error))) => self.not_stored(&served, &error),
            // It panicked, which was reported.
            Err(_) => refuse(&Refusal::Unavailable),
        }
    }

    /// True when a call says which run it belongs to, and that one is over: what it would change, a later one has made already, or will.
    pub(super) async fn is_of_an_old_run(&self, served: &Served, head: &Parts) -> bool {
        let Ok(CallerHints { event: Some(event), attempt, .. }) = CallerHints::read(&head.headers) else { return false };
        let thread = ThreadId { account: String::new(), peer: String::new() };
        let sought = Sought { channel: served.channel.name(), thread, event: Some(event), attempt, polled: self.polled(served) };
        match self.state.runs.newest(&*self.store, &sought).await {
            Ok(Some(newest)) => attempt.is_some_and(|attempt| attempt < newest),
            Ok(None) => {
                let done = |detail: EventDetail| detail.row.state == EventState::Delivered;
                self.store.event(event).await.ok().flatten().is_some_and(done)
            }
            Err(_) => false,
        }
    }

    fn polled(&self, served: &Served) -> Option<Polled> {
        let settings = &served.channel.settings;
        let redoes = settings.dropin.as_ref().is_some_and(|dropin| dropin.redo_confirmed_ms.is_some());
        settings.is_polled().then(|| Polled { process: self.state.books.process(), redoes })
    }

    /// What the call would send, with its body's pieces in the store where the message needs them.
    async fn read_effect(
        &self,
        served: &Served,
        routed: &Routed,
        head: &Parts,
        taken: Taken<'_>,
    ) -> Result<(Effect, Option<Pieces>), Reply> {
        let (query, content_type) = (head.uri.query(), text_of(&head.headers, header::CONTENT_TYPE));
        let (effect, mut pieces, rest) = match taken {
            Taken::Whole { bytes, .. } => {
                let mut pieces = Pieces::new(&self.store, served);
                pieces.length = bytes.len() as u64;
                let whole = Whole { content_type, body: &bytes, name: &pieces.name };
                (served.adapter.effect(routed, query, &whole)?, pieces, bytes)
            }
            Taken::InParts { parts, kept, rest } => {
                let content_type = content_type.unwrap_or_default();
                let upload = Upload { name: &kept.name, content_type, length: kept.length, parts: &parts };
                (served.adapter.effect_with_files(routed, query, &upload)?, kept, rest)
            }
        };
        if !effect.keeps_body {
            return Ok((effect, None));
        }
        self.keep(served, &mut pieces, rest).await.map_err(|why| served.adapter.reply(&why))?;
        Ok((effect, Some(pieces)))
    }

    /// Waits for what becomes of the message, and says what the provider said.
    async fn answer(&self, served: &Arc<Served>, placed: Placed, deadline: Instant) -> Response<Body> {
        let Placed { message, call, said } = placed;
        if let Some(said) = said {
            return answer_with(said, call, End::Sent);
        }
        let mut row = None;
        // What an account that rests has refused is known soon, and need not be waited for.
        for until in [deadline.min(Instant::now() + FIRST_LOOK), deadline] {
            row = self.state.outcomes.outcome(&*self.store, message, until).await;
            match &row {
                Some(row) if is_over(row) => return self.answer_over(served, row, call).await,
                Some(row) => {
                    if let Some(refusal) = self.refusal_of_account(served, row).await {
                        // The message waits for the account; who comes back with it gets the same one.
                        call.end(End::Left { wait_ms: 0 }).await;
                        return reply::kept(refusal, |_| {});
                    }
                }
                None => {}
            }
        }
        let seconds = seconds_left(row.as_ref(), 0, self.clock.now_ms());
        self.slow_down(served, call, seconds).await
    }

    /// What the provider said to an account that rests since, or in its shape why it rests.
    async fn refusal_of_account(&self, served: &Served, row: &MessageRow) -> Option<KeptAnswer> {
        let looking = async {
            let Some(paused) = self.paused(row).await? else { return Ok(None) };
            let kept = self.store.amend(&refusal_name(&row.channel, &row.account, &paused.why), None, None, None).await?;
            let own_words = || kept_of(served.adapter.reply(&Refusal::Refused(format!("the account rests: {}", paused.why))));
            Ok(Some(kept.as_deref().and_then(KeptAnswer::read).unwrap_or_else(own_words)))
        };
        in_time("asking for paused accounts", LOOK_PATIENCE, looking).await.ok().flatten()
    }

    /// Whether the account of a message rests. All who ask within a moment share one look.
    async fn paused(&self, row: &MessageRow) -> Result<Option<PausedAccount>, StoreError> {
        let mut seen = self.paused.lock().await;
        if seen.as_ref().is_none_or(|(at, _)| at.elapsed() > PAUSED_HOLDS) {
            *seen = Some((Instant::now(), self.store.paused_accounts().await?));
        }
        let of_row = |paused: &&PausedAccount| paused.channel == row.channel && paused.account == row.account;
        Ok(seen.as_ref().and_then(|(_, paused)| paused.iter().find(of_row)).cloned())
    }

    async fn answer_over(&self, served: &Arc<Served>, row: &MessageRow, call: OpenCall) -> Response<Body> {
        let answer = match self.kept_answer(row.id).await {
            Ok(answer) => answer,
            Err(error) => {
                self.telemetry.store_unavailable("amend", &error);
                return self.slow_down(served, call, STORE_AWAY_S).await;
            }
        };
        let answer = answer.unwrap_or_else(|| stand_in(served, row));
        // What may be out is no other try's to send.
        let end = if answer.status.is_success() || is_given_up(row) { End::Sent } else { End::Refused };
        answer_with(answer, call, end)
    }

    async fn slow_down(&self, served: &Arc<Served>, call: OpenCall, seconds: u64) -> Response<Body> {
        served.telemetry.told_to_come_back(seconds);
        // Before it is told: whoever comes back at once finds the same message.
        call.end(End::Left { wait_ms: (seconds * 1_000) as i64 }).await;
        reply::of(served.adapter.reply(&Refusal::SlowDown { seconds }))
    }

    async fn kept_answer(&self, message: MessageId) -> Result<Option<KeptAnswer>, StoreError> {
        let name = answer_name(message);
        let kept = in_time("reading an answer", LOOK_PATIENCE, self.store.amend(&name, None, None, None)).await?;
        Ok(kept.as_deref().and_then(KeptAnswer::read))
    }

    /// Nothing was queued; the same call may be made again.
    pub(super) fn not_stored(&self, served: &Served, error: &StoreError) -> Response<Body> {
        if let StoreError::OutboxFull { channel, account } = error {
            self.telemetry.outbox_full(channel, account);
        } else {
            self.telemetry.store_unavailable("submit", error);
        }
        let why = if error.retryable() { Refusal::SlowDown { seconds: STORE_AWAY_S } } else { Refusal::Unavailable };
        reply::of(served.adapter.reply(&why))
    }
}

impl Served {
    fn wait(&self, headers: &HeaderMap) -> Duration {
        let by_library = || wait_of(text_of(headers, header::USER_AGENT));
        self.settings.wait_ms.map_or_else(by_library, |wait_ms| Duration::from_millis(wait_ms.unsigned_abs()))
    }
}

impl CallerHints {
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, String> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        let key = text("idempotency-key").map(|key| key.trim_matches('"').to_owned());
        if key.as_ref().is_some_and(|key| key.is_empty() || key.len() > KEY_MAX_BYTES) {
            return Err(format!("an Idempotency-Key has 1 to {KEY_MAX_BYTES} bytes"));
        }
        let event = text("hapax-event-id").and_then(|id| id.parse().ok());
        Ok(Self { event, attempt: text("hapax-attempt").and_then(|number| number.parse().ok()), key })
    }
}

/// Request ids have 255 bytes, and this one gets a word before it.
const KEY_MAX_BYTES: usize = 200;

fn text_of(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// True for a message in doubt that a person has given up: it may be out, so it is not sent again either.
fn is_given_up(row: &MessageRow) -> bool {
    row.steps.status() == Status::Unknown && row.outbox.is_none()
}

fn answer_with(answer: KeptAnswer, call: OpenCall, end: End) -> Response<Body> {
    reply::kept(answer, move |handed_over| call.end_soon(if handed_over { end } else { End::Left { wait_ms: 0 } }))
}

/// What is said where the provider's own words are not there: the message was settled by a status, a look-up or a person, or never got to it.
fn stand_in(served: &Served, row: &MessageRow) -> KeptAnswer {
    let reply = match &row.provider_id {
        Some(provider_id) => {
            let at_ms = row.created_ms;
            served.adapter.stand_in(&Settled { peer: &row.peer, payload: &row.payload, provider_id, at_ms })
        }
        None => served.adapter.reply(&Refusal::Refused(row.why.clone().unwrap_or_else(|| "it was not sent".to_owned()))),
    };
    kept_of(reply)
}

fn kept_of(reply: Reply) -> KeptAnswer {
    KeptAnswer { status: reply.status, content_type: Some(reply.content_type.to_owned()), body: reply.body }
}
