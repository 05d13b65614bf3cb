//! The claim as people write it by hand, for `hapax bench`: one INSERT, one commit.

use async_trait::async_trait;
use deadpool_postgres::Pool as Connections;
use hapax_store::{NAIVE_CLAIM_CONNECTIONS, NaiveClaim, StoreError};

use super::connect::Server;
use super::failure::Failure;
use super::sql_call::{SqlCall, run_one};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS hapax_by_hand (key bytea PRIMARY KEY)";
const CLAIM: &str = "INSERT INTO hapax_by_hand (key) VALUES ($1::bytea) ON CONFLICT DO NOTHING RETURNING 1";

struct OneByOne(Connections);

pub async fn naive_claim(address: &str) -> Result<impl NaiveClaim + use<>, StoreError> {
    let pool = Server::new(address)?.pool(NAIVE_CLAIM_CONNECTIONS, false)?;
    let client = pool.get().await.map_err(Failure::from)?;
    client.batch_execute(TABLE).await.map_err(Failure::from)?;
    Ok(OneByOne(pool))
}

#[async_trait]
impl NaiveClaim for OneByOne {
    fn what(&self) -> &'static str {
        "one INSERT"
    }

    async fn claim(&self, key: &[u8; 32]) -> Result<bool, StoreError> {
        let client = self.0.get().await.map_err(Failure::from)?;
        let won = run_one(&client, SqlCall::new(CLAIM, vec![Box::new(&key[..])])).await?;
        Ok(!won.is_empty())
    }
}
