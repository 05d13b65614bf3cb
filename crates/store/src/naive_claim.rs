//! The claim as people write it by hand: one round trip per key, and nothing else kept. Only there to be measured against.

use async_trait::async_trait;

use super::StoreError;

#[async_trait]
pub trait NaiveClaim: Send + Sync {
    /// How a person would call it: `one INSERT`, `one SET NX`.
    fn what(&self) -> &'static str;

    /// Takes the key; false when it was taken before.
    async fn claim(&self, key: &[u8; 32]) -> Result<bool, StoreError>;
}

/// Connections it uses, as many as there are requests at once.
pub const CONNECTIONS: usize = 64;
