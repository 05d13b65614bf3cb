//! The admin token: set by the operator, or made once at the first start and then only known as a hash.

use std::time::Duration;

use hapax_store::{Store, StoreError, in_time};
use secrecy::{ExposeSecret, SecretString};

use crate::api::auth::{MADE_TOKEN, OperatorToken, forget_made, hash_token};

/// A store that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the server knows of its admin token.
pub struct AdminToken {
    pub operator: OperatorToken,
    /// The token itself, when it was made just now: to be given to the operator once.
    pub fresh: Option<SecretString>,
}

impl AdminToken {
    /// Takes the operator's token, or the remembered one, or makes one out of `random`.
    ///
    /// Where the operator has set one, a token made earlier is forgotten: it must not open the door again when the operator's is unset.
    pub async fn settle(configured: Option<&SecretString>, store: &dyn Store, random: [u8; 32]) -> Result<Self, StoreError> {
        if let Some(token) = configured {
            match in_time("forgetting an earlier token", PATIENCE, forget_made(store)).await {
                Err(error) if error.retryable() => {
                    tracing::warn!(%error, "a token made earlier could not be looked for; it is forgotten as soon as the store is there");
                }
                forgotten => forgotten?,
            }
            return Ok(Self { operator: OperatorToken::Configured(hash_token(token.expose_secret())), fresh: None });
        }
        let made = SecretString::from(format!("hpx_{}", hex::encode(random)));
        let ours = hash_token(made.expose_secret());
        let remembered = store.remember(MADE_TOKEN, &hex::encode(ours)).await?;
        let mut hash = [0; 32];
        hex::decode_to_slice(&remembered, &mut hash).map_err(|_| {
            StoreError::Refused("the admin token's hash in the store is damaged; set HAPAX_ADMIN_TOKEN".to_owned())
        })?;
        Ok(Self { operator: OperatorToken::Made(hash), fresh: (hash == ours).then_some(made) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use hapax_store::memory::MemoryStore;
    use hapax_testkit::hand_clock::HandClock;

    fn hash(token: &AdminToken) -> [u8; 32] {
        match token.operator {
            OperatorToken::Configured(hash) | OperatorToken::Made(hash) => hash,
        }
    }

    #[tokio::test]
    async fn made_once_shown_once_and_the_same_ever_after() {
        let store = MemoryStore::new(Arc::new(HandClock::at(0)));
        let first = AdminToken::settle(None, &store, [1; 32]).await.expect("settles");
        let token = first.fresh.as_ref().expect("given at the first start");
        assert_eq!(hash_token(token.expose_secret()), hash(&first));
        let second = AdminToken::settle(None, &store, [2; 32]).await.expect("settles");
        assert!(second.fresh.is_none());
        assert_eq!(hash(&second), hash(&first));
    }

    #[tokio::test]
    async fn the_operators_own_goes_first_and_unsetting_it_revives_nothing() {
        let store = MemoryStore::new(Arc::new(HandClock::at(0)));
        let first = AdminToken::settle(None, &store, [1; 32]).await.expect("settles");
        let own = SecretString::from("chosen by the operator");
        let set = AdminToken::settle(Some(&own), &store, [2; 32]).await.expect("settles");
        assert!(set.fresh.is_none());
        assert_eq!(hash(&set), hash_token("chosen by the operator"));
        let unset = AdminToken::settle(None, &store, [3; 32]).await.expect("settles");
        assert!(unset.fresh.is_some() && hash(&unset) != hash(&first) && hash(&unset) != hash(&set));
    }
}
