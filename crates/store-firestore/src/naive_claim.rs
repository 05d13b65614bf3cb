//! The claim as people write it by hand, for `hapax bench`: one document that must not be there yet.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_store::{NaiveClaim, StoreError};

use super::value::Fields;
use super::writes::Writes;
use super::{FirestoreEngine, open_engine};

struct OneByOne(Arc<FirestoreEngine>);

pub async fn naive_claim(address: &str) -> Result<impl NaiveClaim + use<>, StoreError> {
    Ok(OneByOne(open_engine(address, None).await?))
}

#[async_trait]
impl NaiveClaim for OneByOne {
    fn what(&self) -> &'static str {
        "one create"
    }

    async fn claim(&self, key: &[u8; 32]) -> Result<bool, StoreError> {
        let mut writes = Writes::default();
        writes.create(self.0.inner.client.name(&format!("hapax_by_hand/{}", hex::encode(key))), Fields::default());
        self.0.create_once(&writes).await
    }
}
