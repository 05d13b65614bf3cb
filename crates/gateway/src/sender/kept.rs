//! The provider's own answers to what bots send by its API: kept before the message counts as sent, so that a repeat gets the same bytes, and a
//! crash between the two leaves no doubt.

use hapax_domain::MessageId;
use hapax_providers::sending::{CallAnswer, CallBody, Verdict};
use hapax_store::{OutboxLease, SendOutcome, StoreError};

use super::{Outlet, Sender, outgoing};
use crate::dropin::{KeptAnswer, REQUEST_ID, answer_name, refusal_name};

/// A store that is away is asked so often; then the message is settled without.
const TRIES: u32 = 3;

/// True for what came by the provider's own API, whose caller wants its answer.
pub(super) fn wants_answer(lease: &OutboxLease) -> bool {
    lease.request_id.starts_with(REQUEST_ID)
}

impl Outlet {
    /// The name of the pieces that the message's body is kept in, if it is.
    fn file(&self, lease: &OutboxLease) -> Option<String> {
        let call = wants_answer(lease).then(|| self.adapter.call(&outgoing(lease)).ok()).flatten()?;
        match call.body {
            CallBody::Kept { name, .. } => Some(name),
            CallBody::Whole(_) => None,
        }
    }
}

impl Sender {
    /// Keeps the answer that ended a message.
    pub(super) async fn keep_answer(&self, outlet: &Outlet, lease: &OutboxLease, answer: &CallAnswer, outcome: &SendOutcome) {
        if !wants_answer(lease) || !matches!(outcome, SendOutcome::Sent { .. } | SendOutcome::Failed { .. }) {
            return;
        }
        // One that is too long is stood in for.
        let Some(text) = KeptAnswer::of(answer).write() else { return };
        for _ in 0..TRIES {
            match self.put_answer(lease.message, Some(&text), outlet.keep_ms).await {
                Ok(()) => return,
                Err(error) => self.telemetry.store_unavailable("amend", &error),
            }
        }
    }

    /// Keeps what the provider said to an account that has to rest for it: bots that send meanwhile hear the same.
    pub(super) async fn keep_refusal(&self, outlet: &Outlet, lease: &OutboxLease, answer: &CallAnswer, why: &str) {
        let (text, name) = (KeptAnswer::of(answer).write(), refusal_name(&lease.channel, &lease.account, why));
        if let Err(error) = self.put_register(&name, text.as_deref(), outlet.keep_ms).await {
            self.telemetry.store_unavailable("amend", &error);
        }
    }

    /// Before a message is tried again: what was said of the last try does not hold for this one.
    pub(super) async fn forget_answer(&self, outlet: &Outlet, lease: &OutboxLease) -> Result<(), StoreError> {
        match wants_answer(lease) && lease.attempt > 1 {
            true => self.put_answer(lease.message, None, outlet.keep_ms).await,
            false => Ok(()),
        }
    }

    /// What a kept answer says of a message whose last try nobody settled. `None`: nothing is kept, and the doubt stands.
    pub(super) async fn said_before(&self, outlet: &Outlet, lease: &OutboxLease) -> Option<SendOutcome> {
        if !wants_answer(lease) || lease.in_doubt_since_ms.is_none() {
            return None;
        }
        let kept = match self.store.amend(&answer_name(lease.message), None, None, None).await {
            Ok(kept) => kept,
            Err(error) => {
                self.telemetry.store_unavailable("amend", &error);
                return None;
            }
        };
        let answer = KeptAnswer::read(&kept?)?.as_call_answer();
        match outlet.adapter.classify(&outgoing(lease), &answer) {
            Verdict::Sent { provider_id } => Some(SendOutcome::Sent { provider_id }),
            Verdict::Failed { why } => Some(SendOutcome::Failed { why }),
            Verdict::Retry { .. } | Verdict::SlowDown { .. } | Verdict::StopAccount { .. } | Verdict::Unknown { .. } => None,
        }
    }

    /// True when a message brings a file, and it is not there any more.
    pub(super) async fn file_is_gone(&self, outlet: &Outlet, lease: &OutboxLease) -> bool {
        match outlet.file(lease) {
            Some(name) => matches!(self.store.piece(&name, 0).await, Ok(None)),
            None => false,
        }
    }

    /// Nobody needs the file of a message that was sent. What stays all the same goes with its time.
    pub(super) async fn drop_file(&self, outlet: &Outlet, lease: &OutboxLease, outcome: &SendOutcome) {
        let Some(name) = outlet.file(lease).filter(|_| matches!(outcome, SendOutcome::Sent { .. })) else { return };
        if let Err(error) = self.store.drop_pieces(&name).await {
            self.telemetry.store_unavailable("put_piece", &error);
        }
    }

    async fn put_answer(&self, message: MessageId, new: Option<&str>, keep_ms: i64) -> Result<(), StoreError> {
        self.put_register(&answer_name(message), new, keep_ms).await
    }

    async fn put_register(&self, name: &str, new: Option<&str>, keep_ms: i64) -> Result<(), StoreError> {
        let mut there = self.store.amend(name, None, None, None).await?;
        while there.as_deref() != new {
            there = self.store.amend(name, there.as_deref(), new, Some(keep_ms)).await?;
        }
        Ok(())
    }
}
