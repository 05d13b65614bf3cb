//! The claim as people write it by hand, for `hapax bench`: one INSERT, one commit.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_store::{NAIVE_CLAIM_CONNECTIONS, NaiveClaim, StoreError};

use super::link::Links;
use super::open;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS hapax_by_hand (k BINARY(32) PRIMARY KEY) ENGINE = InnoDB";
/// The row is there already.
const DUPLICATE: u16 = 1062;

struct OneByOne(Arc<Links>);

pub async fn naive_claim(address: &str) -> Result<impl NaiveClaim + use<>, StoreError> {
    let server = open::server(address).await?;
    let links = Links::new(server.opts, server.setup, NAIVE_CLAIM_CONNECTIONS);
    links.ask_on_new(TABLE).await.map_err(|failure| failure.into_error("making the table"))?;
    Ok(OneByOne(links))
}

#[async_trait]
impl NaiveClaim for OneByOne {
    fn what(&self) -> &'static str {
        "one INSERT"
    }

    async fn claim(&self, key: &[u8; 32]) -> Result<bool, StoreError> {
        let mut link = self.0.link().await.map_err(|failure| failure.into_error("claiming"))?;
        let answer = link.run(&format!("INSERT INTO hapax_by_hand (k) VALUES (X'{}')", hex::encode(key))).await;
        link.give_back();
        match answer {
            Ok(_) => Ok(true),
            Err(failure) if failure.code() == Some(DUPLICATE) => Ok(false),
            Err(failure) => Err(failure.into_error("claiming")),
        }
    }
}
