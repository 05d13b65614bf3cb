//! The claim as people write it by hand, for `hapax bench`: one SET with NX and an expiry, over one connection that all share.

use async_trait::async_trait;
use redis::Client;
use redis::aio::ConnectionManager;

use super::address::Address;
use super::link::failed;
use crate::store::{ByHand, StoreError};

const WINDOW_S: u64 = 3_600;

struct OneByOne {
    wire: ConnectionManager,
    prefix: String,
}

pub async fn by_hand(address: &str) -> Result<impl ByHand + use<>, StoreError> {
    let address = Address::read(address)?;
    let client = Client::open(address.server).map_err(|error| failed("reading the address of redis", error))?;
    let wire = ConnectionManager::new(client).await.map_err(|error| failed("connecting to redis", error))?;
    Ok(OneByOne { wire, prefix: address.prefix })
}

#[async_trait]
impl ByHand for OneByOne {
    fn what(&self) -> &'static str {
        "one SET NX EX"
    }

    async fn claim(&self, key: &[u8; 32]) -> Result<bool, StoreError> {
        let key = format!("{}:by-hand:{}", self.prefix, hex::encode(key));
        let mut command = redis::cmd("SET");
        command.arg(key).arg(1).arg("NX").arg("EX").arg(WINDOW_S);
        let answer: Result<Option<String>, _> = command.query_async(&mut self.wire.clone()).await;
        Ok(answer.map_err(|error| failed("claiming", error))?.is_some())
    }
}
