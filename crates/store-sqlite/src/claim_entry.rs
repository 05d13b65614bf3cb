//! A claim as it stands in the file: in blocks, and among what a batch has changed.

use bytes::Bytes;
use hapax_domain::claim::{Claim, ClaimKey, ClaimResult, ClaimState, OnAbandoned};

/// A key, as it is found in memory: half a BLAKE3 hash. What is found is compared with the key itself.
pub(super) type Short = [u8; 16];

pub(super) fn short(name: &[u8]) -> Short {
    let mut short = [0; 16];
    short.copy_from_slice(&blake3::hash(name).as_bytes()[..16]);
    short
}

/// What is known of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'e> {
    pub(super) fence: i64,
    /// A claim; or the hash of its key alone, when it is gone.
    pub(super) body: &'e [u8],
}

/// State, what follows, and the times: claimed, ends, until.
const HEAD_BYTES: usize = 26;
const LENGTH_BYTES: usize = 4;

const ENDS: u8 = 1;
const HOLD: u8 = 2;
const FINGERPRINT: u8 = 4;
const HOLDER: u8 = 8;
const COMPLETED: u8 = 16;
const RESULT: u8 = 32;
const TYPE: u8 = 64;

impl<'e> Entry<'e> {
    /// Appends one.
    pub(super) fn write(self, into: &mut Vec<u8>) {
        into.extend_from_slice(&(self.body.len() as u32).to_le_bytes());
        into.extend_from_slice(&self.fence.to_le_bytes());
        into.extend_from_slice(self.body);
    }

    /// Takes the next one off the front.
    pub(super) fn read(bytes: &mut &'e [u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
        let (fence, rest) = rest.split_first_chunk()?;
        let (body, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        *bytes = rest;
        Some(Self { fence: i64::from_le_bytes(*fence), body })
    }

    /// All of them.
    pub(super) fn all(mut bytes: &'e [u8]) -> impl Iterator<Item = Self> {
        std::iter::from_fn(move || Self::read(&mut bytes))
    }

    /// The hash of the key of what is gone.
    pub(super) fn gone(self) -> Option<Short> {
        self.body.try_into().ok()
    }

    pub(super) fn ends_ms(self) -> Option<i64> {
        let ends_ms = self.time(1)?;
        (self.body.get(1)? & ENDS != 0).then_some(ends_ms)
    }

    pub(super) fn is_over(self, now_ms: i64) -> bool {
        self.ends_ms().is_some_and(|ends_ms| ends_ms <= now_ms)
    }

    /// When the lease ends, of one that is held.
    pub(super) fn until_ms(self) -> Option<i64> {
        self.time(2)
    }

    pub(super) fn state(self) -> Option<ClaimState> {
        ClaimState::from_code(i64::from(*self.body.first()?))
    }

    pub(super) fn name(self) -> Option<&'e [u8]> {
        Self::bytes(&mut self.body.get(HEAD_BYTES..)?)
    }

    fn time(self, place: usize) -> Option<i64> {
        let from = 2 + place * 8;
        Some(i64::from_le_bytes(self.body.get(from..from + 8)?.try_into().ok()?))
    }

    fn bytes<'b>(from: &mut &'b [u8]) -> Option<&'b [u8]> {
        let (length, rest) = from.split_first_chunk::<LENGTH_BYTES>()?;
        let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        *from = rest;
        Some(bytes)
    }

    /// The claim itself; without its result if that is not asked for.
    pub(super) fn claim(self, with_result: bool) -> Option<Claim> {
        let (state, follows) = (self.state()?, *self.body.get(1)?);
        let mut rest = self.body.get(HEAD_BYTES..)?;
        let has = |what: u8| follows & what != 0;
        let text = |rest: &mut &[u8]| Some(std::str::from_utf8(Self::bytes(rest)?).ok()?.to_owned());
        let number = |rest: &mut &[u8]| {
            let (number, after) = rest.split_first_chunk()?;
            *rest = after;
            Some(i64::from_le_bytes(*number))
        };
        let key = ClaimKey::from_name(Self::bytes(&mut rest)?)?;
        let (token, lease_ms, ttl_ms) = match state {
            ClaimState::Value => Default::default(),
            _ => (text(&mut rest)?, number(&mut rest)?, number(&mut rest)?),
        };
        let fingerprint = if has(FINGERPRINT) { Some(text(&mut rest)?) } else { None };
        let holder = if has(HOLDER) { Some(text(&mut rest)?) } else { None };
        let completed_at_ms = if has(COMPLETED) { Some(number(&mut rest)?) } else { None };
        let content_type = if has(TYPE) { Some(text(&mut rest)?) } else { None };
        let result = (has(RESULT) && with_result).then(|| ClaimResult { content_type, bytes: Bytes::copy_from_slice(rest) });
        Some(Claim {
            key,
            state,
            token,
            fence: self.fence.cast_unsigned(),
            fingerprint,
            on_abandoned: if has(HOLD) { OnAbandoned::Hold } else { OnAbandoned::Takeover },
            holder,
            claimed_at_ms: self.time(0)?,
            lease_ms,
            lease_until_ms: self.until_ms()?,
            ttl_ms,
            completed_at_ms,
            result,
            ends_ms: self.ends_ms(),
        })
    }
}

/// The body of a claim's entry. `name` is its key, as [`ClaimKey::to_name`] makes it.
pub(super) fn body(claim: &Claim, name: &[u8]) -> Box<[u8]> {
    let result = claim.result.as_ref();
    let content_type = result.and_then(|result| result.content_type.as_ref());
    let is_claim = claim.state != ClaimState::Value;
    let flag = |is_there: bool, what: u8| if is_there { what } else { 0 };
    let follows = flag(claim.ends_ms.is_some(), ENDS)
        | flag(is_claim && claim.on_abandoned == OnAbandoned::Hold, HOLD)
        | flag(claim.fingerprint.is_some(), FINGERPRINT)
        | flag(claim.holder.is_some(), HOLDER)
        | flag(claim.completed_at_ms.is_some(), COMPLETED)
        | flag(result.is_some(), RESULT)
        | flag(content_type.is_some(), TYPE);
    let mut into = Vec::with_capacity(HEAD_BYTES + 32 + name.len() + result.map_or(0, |result| result.bytes.len()));
    let until_ms = if is_claim { claim.lease_until_ms } else { claim.claimed_at_ms };
    into.extend_from_slice(&[claim.state.code() as u8, follows]);
    for time in [claim.claimed_at_ms, claim.ends_ms.unwrap_or_default(), until_ms] {
        into.extend_from_slice(&time.to_le_bytes());
    }
    let bytes = |into: &mut Vec<u8>, bytes: &[u8]| {
        into.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        into.extend_from_slice(bytes);
    };
    bytes(&mut into, name);
    if is_claim {
        bytes(&mut into, claim.token.as_bytes());
        into.extend_from_slice(&claim.lease_ms.to_le_bytes());
        into.extend_from_slice(&claim.ttl_ms.to_le_bytes());
    }
    claim.fingerprint.iter().chain(&claim.holder).for_each(|text| bytes(&mut into, text.as_bytes()));
    claim.completed_at_ms.iter().for_each(|time| into.extend_from_slice(&time.to_le_bytes()));
    content_type.iter().for_each(|text| bytes(&mut into, text.as_bytes()));
    result.iter().for_each(|result| into.extend_from_slice(&result.bytes));
    into.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(state: ClaimState) -> Claim {
        Claim {
            key: ClaimKey::new("jobs", "invoice-1"),
            state,
            token: "mine".to_owned(),
            fence: 7,
            fingerprint: Some(String::new()),
            on_abandoned: OnAbandoned::Hold,
            holder: Some("host-1".to_owned()),
            claimed_at_ms: -1,
            lease_ms: 1_000,
            lease_until_ms: 999,
            ttl_ms: i64::MAX,
            completed_at_ms: Some(5),
            result: Some(ClaimResult { content_type: Some("text/plain".to_owned()), bytes: Bytes::from_static(b"\0done") }),
            ends_ms: Some(12),
        }
    }

    #[test]
    fn claims_are_read_as_they_were_written() {
        let bare = Claim {
            fingerprint: None,
            holder: None,
            completed_at_ms: None,
            result: None,
            ends_ms: None,
            ..claim(ClaimState::Held)
        };
        let value = Claim {
            token: String::new(),
            on_abandoned: OnAbandoned::Takeover,
            lease_ms: 0,
            lease_until_ms: -1,
            ttl_ms: 0,
            result: Some(ClaimResult::default()),
            ..claim(ClaimState::Value)
        };
        let claims = [claim(ClaimState::Completed), bare, value];
        let mut written = Vec::new();
        for claim in &claims {
            Entry { fence: 7, body: &body(claim, &claim.key.to_name()) }.write(&mut written);
        }
        Entry { fence: 8, body: &short(b"gone") }.write(&mut written);
        let read: Vec<Entry<'_>> = Entry::all(&written).collect();
        assert_eq!(read.len(), 4);
        for (entry, claim) in read.iter().zip(&claims) {
            assert_eq!((entry.claim(true).as_ref(), entry.gone()), (Some(claim), None));
            assert_eq!(entry.claim(false), Some(Claim { result: None, ..claim.clone() }));
            assert_eq!(entry.name(), Some(&*claim.key.to_name()));
            assert_eq!(
                (entry.ends_ms(), entry.until_ms(), entry.state()),
                (claim.ends_ms, Some(claim.lease_until_ms), Some(claim.state))
            );
        }
        assert_eq!((read[3].gone(), read[3].claim(true)), (Some(short(b"gone")), None));
        assert_eq!(Entry::all(&written[..written.len() - 1]).count(), 3, "half an entry is none");
    }
}
