//! What goes out: submitting, leasing, beginning and settling messages, as calls of scripts.

use std::sync::Arc;

use hapax_domain::{Fence, MessageId, Priority, limits};
use hapax_store::{Changed, LaneRef, NewMessage, OutboxLease, OutboxLeaseRequest, SendOutcome, Settled, StoreError, Submitted};

use super::RedisStore;
use super::inbox::read_settled;
use super::place::{held_by, lane_ref};
use super::registry::AccountInChannel;
use super::row::{Row, letter, odd};
use super::script::{self, Call};

impl RedisStore {
    pub(super) async fn submit_one(&self, new: &NewMessage) -> Result<Submitted, StoreError> {
        let args = |call: Call, _| message_args(call.arg(self.outbox_max()), new);
        let (account, answer) = self.begin_for(&new.account, &new.channel, "submitting", &script::SUBMIT, args).await?;
        let mut answer = Row::new(answer)?;
        let what = letter(&answer.value())?;
        let seq = answer.seq()?;
        let id = MessageId(seq.id(answer.int()?, account));
        match what {
            b'N' => Ok(Submitted::New(id)),
            b'R' => Ok(Submitted::Replayed(id)),
            b'M' => Ok(Submitted::Mismatch(id)),
            b'B' => Err(StoreError::outbox_full(new)),
            _ => Err(odd("an unknown letter")),
        }
    }

    /// What was leased is sent, also when another account's node does not answer.
    pub(super) async fn lease_messages(&self, ask: &OutboxLeaseRequest) -> Result<Vec<OutboxLease>, StoreError> {
        let (mut leases, mut silent) = (Vec::new(), None);
        for (channel, max) in ask.wants.iter().filter(|(_, max)| *max > 0) {
            let leased = match self.registry.entries(&self.link, Some(channel)).await {
                Ok(entries) => self.lease_from_outbox(ask, entries, *max, &mut leases).await,
                Err(error) => Err(error),
            };
            silent = leased.err().or(silent);
        }
        match silent {
            Some(error) if leases.is_empty() => Err(error),
            _ => Ok(leases),
        }
    }

    async fn lease_from_outbox(
        &self,
        ask: &OutboxLeaseRequest,
        mut entries: Vec<AccountInChannel>,
        max: usize,
        leases: &mut Vec<OutboxLease>,
    ) -> Result<(), StoreError> {
        entries.retain(|entry| !ask.resting.iter().any(|(of, name)| *of == entry.channel && **name == *entry.name));
        for (entry, count) in self.first_to_send(&entries, max).await? {
            let call = self.link.call(&script::LEASE_OUTBOX, entry.account).arg(&*entry.channel).arg(count);
            let answer = self.link.run_safely("leasing", call.arg(&*ask.worker).arg(ask.hold_ms)).await?;
            for row in Row::new(answer)?.rows() {
                leases.push(read_lease(row?, entry)?);
            }
        }
        Ok(())
    }

    pub(super) async fn begin_sending(&self, lane: LaneRef, fence: Fence) -> Result<Settled, StoreError> {
        let (account, seq) = held_by(lane);
        let call = self.link.call(&script::BEGIN, account).arg(seq.to_string()).arg(fence.0);
        read_settled(&self.link.run_safely("beginning to send", call).await?)
    }

    pub(super) async fn settle_message(&self, lane: LaneRef, fence: Fence, outcome: SendOutcome) -> Result<Settled, StoreError> {
        let (account, seq) = held_by(lane);
        let call = self.link.call(&script::SETTLE_OUTBOX, account).arg(seq.to_string()).arg(fence.0);
        let call = match outcome {
            SendOutcome::Sent { provider_id } => call.arg("S").arg(provider_id),
            SendOutcome::Failed { why } => call.arg("F").arg(why),
            SendOutcome::Retry { wait_ms, why, charged } => call.arg("R").arg(wait_ms).arg(why).flag(charged),
            SendOutcome::Resend { wait_ms, why } => call.arg("A").arg(wait_ms).arg(why),
            SendOutcome::Unknown { why, check_ms } => call.arg("U").arg(why).maybe_int(check_ms),
            SendOutcome::Found { provider_ids, why, check_ms } => {
                let call = call.arg("G").arg(provider_ids.len());
                provider_ids.into_iter().fold(call, Call::arg).arg(why).maybe_int(check_ms)
            }
            SendOutcome::HandBack { wait_ms } => call.arg("H").arg(wait_ms),
        };
        read_settled(&self.link.run_safely("settling", call).await?)
    }

    /// Retries or cancels, as the script says.
    pub(super) async fn change_message(&self, script: &'static redis::Script, id: MessageId) -> Result<Changed, StoreError> {
        let Some(place) = self.place_of("m", id.0).await? else { return Ok(Changed::NotFound) };
        self.changed(self.link.call(script, place.account).arg(place.seq.to_string()).arg(place.at_s)).await
    }

    pub(super) async fn settle_message_late(
        &self,
        id: MessageId,
        attempt: u32,
        outcome: SendOutcome,
    ) -> Result<Changed, StoreError> {
        let Some(place) = self.place_of("m", id.0).await? else { return Ok(Changed::NotFound) };
        let call = self.link.call(&script::SETTLE_LATE, place.account);
        let call = call.arg(place.seq.to_string()).arg(place.at_s).arg(attempt);
        let call = match outcome {
            SendOutcome::Sent { provider_id } => call.arg("S").arg(provider_id).maybe_int(None).maybe_int(None),
            SendOutcome::Failed { why } => call.arg("F").arg(why).maybe_int(None).maybe_int(None),
            SendOutcome::Retry { wait_ms, why, charged } => {
                call.arg("R").arg(why).maybe_int(Some(wait_ms)).maybe_int(Some(i64::from(charged)))
            }
            // What nobody knows is no fate.
            _ => return Ok(Changed::TooLate),
        };
        self.changed(call).await
    }

    async fn changed(&self, call: Call) -> Result<Changed, StoreError> {
        match letter(&self.link.run_safely("changing a message", call).await?)? {
            b'D' => Ok(Changed::Done),
            b'N' => Ok(Changed::NotFound),
            b'L' => Ok(Changed::TooLate),
            _ => Err(odd("an unknown letter")),
        }
    }

    pub(super) async fn pause(&self, channel: &str, account: &str, why: Option<&str>) -> Result<(), StoreError> {
        let args = |call: Call, _| call.arg(channel).maybe(why);
        self.begin_for(account, &channel.into(), "pausing an account", &script::PAUSE_ACCOUNT, args).await.map(drop)
    }
}

/// What a message is recorded with; the scripts read it in this order.
pub(super) fn message_args(call: Call, new: &NewMessage) -> Call {
    let priority = Priority::ALL.iter().position(|known| *known == new.priority).unwrap_or_default();
    let call = call.arg(&*new.channel).arg(&new.peer).arg(&new.request_id).arg(&new.fingerprint[..]);
    let call = call.maybe(new.text.as_ref()).maybe(new.text.as_ref().map(|text| limits::preview(text)));
    call.arg(&new.payload[..]).arg(priority).maybe(new.reply_to.map(|id| id.0.into_bytes())).maybe_int(new.send_at_ms)
}

fn read_lease(mut row: Row, entry: &AccountInChannel) -> Result<OutboxLease, StoreError> {
    let (seq, fence, until_ms) = (row.seq()?, Fence(row.count()?), row.int()?);
    let (request_id, peer, payload, text) = (row.text()?, row.text()?, row.bytes()?, row.maybe_text()?);
    let (attempt, failures) = (row.small()?, row.maybe_int()?.unwrap_or_default() as u32);
    let (created_ms, in_doubt_since_ms) = (row.int()?, row.maybe_int()?);
    Ok(OutboxLease {
        lane: lane_ref(entry.account, seq),
        fence,
        until_ms,
        message: MessageId(seq.id(created_ms, entry.account)),
        request_id,
        channel: Arc::clone(&entry.channel),
        account: entry.name.to_string(),
        peer,
        payload,
        text,
        attempt,
        failures,
        created_ms,
        in_doubt_since_ms,
    })
}
