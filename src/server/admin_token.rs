//! The admin token: set by the operator, or made once at the first start and then only known as a hash.

use secrecy::{ExposeSecret, SecretString};

use crate::api::auth::hash_token;
use crate::store::{Store, StoreError};

const REMEMBERED_AS: &str = "admin_token_hash";

/// What the server knows of its admin token.
pub struct AdminToken {
    pub hash: [u8; 32],
    /// The token itself, when it was made just now: to be shown once.
    pub fresh: Option<SecretString>,
}

impl AdminToken {
    /// Takes the operator's token, or the remembered one, or makes one out of `random`.
    pub async fn settle(configured: Option<&SecretString>, store: &dyn Store, random: [u8; 32]) -> Result<Self, StoreError> {
        if let Some(token) = configured {
            return Ok(Self { hash: hash_token(token.expose_secret()), fresh: None });
        }
        let made = SecretString::from(format!("hpx_{}", hex::encode(random)));
        let ours = hash_token(made.expose_secret());
        let remembered = store.remember(REMEMBERED_AS, &hex::encode(ours)).await?;
        let mut hash = [0; 32];
        hex::decode_to_slice(&remembered, &mut hash).map_err(|_| {
            StoreError::Refused("the admin token's hash in the store is damaged; set HAPAX_ADMIN_TOKEN".to_owned())
        })?;
        Ok(Self { hash, fresh: (hash == ours).then_some(made) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::memory::MemoryStore;
    use crate::testkit::hand_clock::HandClock;

    #[tokio::test]
    async fn made_once_shown_once_and_the_same_ever_after() {
        let store = MemoryStore::new(Arc::new(HandClock::at(0)));
        let first = AdminToken::settle(None, &store, [1; 32]).await.expect("settles");
        let token = first.fresh.expect("shown at the first start");
        assert_eq!(hash_token(token.expose_secret()), first.hash);
        let second = AdminToken::settle(None, &store, [2; 32]).await.expect("settles");
        assert!(second.fresh.is_none());
        assert_eq!(second.hash, first.hash);
    }

    #[tokio::test]
    async fn the_operators_own_goes_first_and_is_not_remembered() {
        let store = MemoryStore::new(Arc::new(HandClock::at(0)));
        let own = SecretString::from("chosen by the operator");
        let set = AdminToken::settle(Some(&own), &store, [1; 32]).await.expect("settles");
        assert!(set.fresh.is_none());
        assert_eq!(set.hash, hash_token("chosen by the operator"));
        assert!(AdminToken::settle(None, &store, [1; 32]).await.expect("settles").fresh.is_some());
    }
}
