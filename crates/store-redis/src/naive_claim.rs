//! The claim as people write it by hand, for `hapax bench`: one SET with NX and an expiry, over one connection per server that all share.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_store::{NaiveClaim, StoreError};
use redis::Value;

use super::address::Address;
use super::nodes::Nodes;

const WINDOW_S: u64 = 3_600;

struct OneByOne {
    nodes: Arc<Nodes>,
    prefix: String,
}

pub async fn naive_claim(address: &str) -> Result<impl NaiveClaim + use<>, StoreError> {
    let address = Address::read(address)?;
    Ok(OneByOne { nodes: Nodes::find(&address).await?, prefix: address.prefix })
}

#[async_trait]
impl NaiveClaim for OneByOne {
    fn what(&self) -> &'static str {
        "one SET NX EX"
    }

    async fn claim(&self, key: &[u8; 32]) -> Result<bool, StoreError> {
        let key = format!("{}:by-hand:{}", self.prefix, hex::encode(key));
        let mut command = redis::cmd("SET");
        command.arg(&key).arg(1).arg("NX").arg("EX").arg(WINDOW_S);
        Ok(self.nodes.of(&key).ask("claiming", &command).await? != Value::Nil)
    }
}
