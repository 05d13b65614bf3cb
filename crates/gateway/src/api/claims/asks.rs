//! What can be asked about claims, as it comes over the wire.

use hapax_domain::claim::{BadClaim, ClaimKey, ClaimOp, ClaimResult, OnAbandoned};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::time::Span;
use super::super::{Caller, Code, Problem};
use crate::settings::Claims;

/// Reads a time, where there is one.
pub(super) fn time(field: &'static str, span: Option<&Span>) -> Result<Option<i64>, Problem> {
    span.map(|span| span.ms(field)).transpose()
}

pub(super) const SCOPE: &str = "default";

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct ClaimBody {
    /// Any UTF-8 text of 1 to 255 bytes.
    #[schema(max_length = 255, min_length = 1)]
    key: String,
    /// The family of jobs; `default` unless told.
    #[schema(max_length = 64, min_length = 1)]
    scope: Option<String>,
    /// How long the key is kept once it is completed.
    ttl: Option<Span>,
    /// How long you may go without a word.
    lease: Option<Span>,
    /// Equal for equal requests: another one under the same key is refused.
    #[schema(max_length = 255)]
    fingerprint: Option<String>,
    /// `takeover` (the default): after your lease the next caller gets it. `hold`: it waits for a person.
    on_abandoned: Option<String>,
    /// Who you are, for lists; the name of the token unless told.
    #[schema(max_length = 255)]
    holder: Option<String>,
}

impl ClaimBody {
    /// The key, and a claim with a token of its own.
    pub(super) fn read(self, defaults: &Claims, caller: &Caller) -> Result<(ClaimKey, ClaimOp), Problem> {
        let key = key_of(&self.key, self.scope.as_deref(), caller)?;
        let on_abandoned = match self.on_abandoned.as_deref() {
            None => OnAbandoned::Takeover,
            Some(name) => OnAbandoned::from_name(name)
                .ok_or_else(|| Problem::bad_request("there is no such `on_abandoned`; use `takeover` or `hold`"))?,
        };
        let op = ClaimOp::Claim {
            token: hex::encode(rand::random::<[u8; 16]>()),
            ttl_ms: time("ttl", self.ttl.as_ref())?.unwrap_or(defaults.ttl_ms),
            lease_ms: time("lease", self.lease.as_ref())?.unwrap_or(defaults.lease_ms),
            fingerprint: self.fingerprint,
            on_abandoned,
            holder: Some(self.holder.unwrap_or_else(|| caller.name.to_string())),
        };
        key.check().and_then(|()| op.check()).map_err(bad)?;
        Ok((key, op))
    }
}

/// Which claim, and by whom.
#[derive(Debug, Deserialize, ToSchema)]
pub(in crate::api) struct Held {
    #[schema(max_length = 255, min_length = 1)]
    key: String,
    #[schema(max_length = 64, min_length = 1)]
    scope: Option<String>,
    /// What the claim was answered with. An admin may leave it out.
    pub(super) token: Option<String>,
}

impl Held {
    pub(super) fn key(&self, caller: &Caller) -> Result<ClaimKey, Problem> {
        key_of(&self.key, self.scope.as_deref(), caller)
    }
}

#[derive(Debug, Deserialize, ToSchema)]
pub(in crate::api) struct CompleteBody {
    // Not flattened: what the job came to is kept as it was written, and flattening would read it.
    #[schema(max_length = 255, min_length = 1)]
    key: String,
    #[schema(max_length = 64, min_length = 1)]
    scope: Option<String>,
    /// What the claim was answered with. An admin may leave it out.
    pub(super) token: Option<String>,
    /// What the job came to: any JSON, up to 1 MiB. Whoever claims the key later gets it.
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
    /// How long the key is kept from now on, in place of the claim's `ttl`.
    pub(super) keep: Option<Span>,
}

impl CompleteBody {
    pub(super) fn key(&self, caller: &Caller) -> Result<ClaimKey, Problem> {
        key_of(&self.key, self.scope.as_deref(), caller)
    }

    pub(super) fn result(&self) -> Option<ClaimResult> {
        let bytes = |result: &RawValue| result.get().as_bytes().to_vec().into();
        self.result.as_deref().map(|result| ClaimResult { content_type: None, bytes: bytes(result) })
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ClaimExtend)]
pub(in crate::api) struct ExtendBody {
    #[serde(flatten)]
    pub(super) of: Held,
    /// How long from now.
    pub(super) lease: Option<Span>,
}

#[derive(Debug, Deserialize, ToSchema)]
pub(in crate::api) struct ReleaseBody {
    #[serde(flatten)]
    pub(super) of: Held,
}

/// Many claims at once.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct BatchBody {
    /// Up to 500, each as the body of a claim. One that is wrong is refused by itself.
    #[schema(value_type = Vec<serde_json::Value>, max_items = 500)]
    pub(super) claims: Vec<Box<RawValue>>,
}

/// The key that is meant. A token of some channels has claims only in scopes that are called like them.
pub(super) fn key_of(key: &str, scope: Option<&str>, caller: &Caller) -> Result<ClaimKey, Problem> {
    let key = ClaimKey::new(scope.unwrap_or(SCOPE), key);
    key.check().map_err(bad)?;
    need_scope(caller, &key.scope)?;
    Ok(key)
}

pub(super) fn need_scope(caller: &Caller, scope: &str) -> Result<(), Problem> {
    if caller.sees(scope) {
        return Ok(());
    }
    let scope: String = scope.chars().take(64).collect();
    Err(Problem::forbidden(format!(
        "the token is limited to channels, so its claims are in scopes that are called like them, and this is `{scope}`; set `scope` to \
         one of its channels, or use a token that is not limited"
    )))
}

pub(super) fn token_missing() -> Problem {
    Problem::bad_request(
        "`token` is missing: give the one that the claim was answered with (only a token of scope `admin` goes without)",
    )
}

pub(super) fn bad(bad: BadClaim) -> Problem {
    match bad {
        BadClaim::TooLong { field: "result", .. } => {
            Problem::new(Code::TooLarge, format!("{bad}; keep it elsewhere, and its address here"))
        }
        bad => Problem::bad_request(bad.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Option<i64>, String> {
        let span: Span = serde_json::from_str(json).map_err(|why| why.to_string())?;
        time("lease", Some(&span)).map_err(|problem| format!("{problem:?}"))
    }

    #[test]
    fn a_time_is_a_text_with_its_unit_or_seconds() {
        assert_eq!(read("\"90s\""), Ok(Some(90_000)));
        assert_eq!(read("90"), Ok(Some(90_000)));
        assert_eq!(read("0.25"), Ok(Some(250)));
        for odd in ["\"soon\"", "\"90\"", "1e300", "{}", "true"] {
            assert!(read(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn what_a_job_came_to_is_kept_as_it_was_written() {
        let body: CompleteBody =
            serde_json::from_str(r#"{"key":"k","result":{"b":12345678901234567890123, "a":1}}"#).expect("a body");
        assert_eq!(&*body.result().expect("a result").bytes, br#"{"b":12345678901234567890123, "a":1}"#);
    }
}
