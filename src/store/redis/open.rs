//! Opens the store: connects, checks the server and the layout of the data, and listens for news.

use std::sync::Arc;
use std::time::Duration;

use redis::Client;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};

use super::address::Address;
use super::link::{CALL_TIME, Link, failed, news_channel};
use super::news::News;
use super::row::int;
use super::settings::Settings;
use super::{RedisStore, script};
use crate::clock::Clock;
use crate::store::StoreError;

/// Grows with every change to what the keys mean. An older hapax refuses newer data.
const LAYOUT: i64 = 1;
const CONNECT_TIME: Duration = Duration::from_secs(1);

/// Opens the store behind a `redis://` or `rediss://` address. With a `clock`, time is that clock's and not the server's: for tests only.
pub async fn open(address: &str, clock: Option<Arc<dyn Clock>>) -> Result<RedisStore, StoreError> {
    let address = Address::read(address)?;
    let client = Client::open(address.server).map_err(|error| failed("reading the address of redis", error))?;
    let wire = ConnectionManager::new_with_config(client.clone(), patience())
        .await
        .map_err(|error| failed("connecting to redis", error))?;
    let link = Link::new(wire, &address.prefix, clock);
    let settings = Settings::ask(&link).await?;
    let promise = settings.judge()?;
    let link = link.with_replicas(settings.replicas());
    let layout = int(link.run("reading the layout", link.shared_call(&script::MIGRATE).arg(LAYOUT)).await?)?;
    if layout != LAYOUT {
        return Err(StoreError::Refused(format!(
            "the data in redis has layout {layout}, and this hapax knows {LAYOUT}: run the hapax that wrote it, or a newer one"
        )));
    }
    let news = News::listen(client, news_channel(&address.prefix)).await.map_err(|error| failed("listening to redis", error))?;
    Ok(RedisStore { link, registry: Arc::default(), news: Arc::new(news), promise, filling: Arc::default() })
}

/// A lost connection is made again for ever: each call that finds it broken starts a few tries, and waits for them no longer than it may.
fn patience() -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_connection_timeout(Some(CONNECT_TIME))
        .set_response_timeout(Some(CALL_TIME))
        .set_number_of_retries(2)
        .set_min_delay(Duration::from_millis(50))
        .set_max_delay(Duration::from_millis(500))
        .set_pipeline_buffer_size(1_000)
}
