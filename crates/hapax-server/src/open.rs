//! From a config to a server: the store it names, or one to wait for, and the spool.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hapax_gateway::channels::Channels;
use hapax_gateway::ingress::spool::Spool;
use hapax_gateway::server::{Server, StartError, spelling};
use hapax_gateway::settings::{Channel, OnStoreFailure};
use hapax_gateway::telemetry::Telemetry;
use hapax_store::clock::{Clock, SystemClock};
use hapax_store::{DeferredStore, Store, StoreError};

use crate::config::Config;

/// A server that has just come up, or is very busy, may close a connection: the store is tried once more after this time.
const SECOND_TRY: Duration = Duration::from_millis(500);

/// Opens what the config names.
pub async fn open(config: &Config, telemetry: Telemetry) -> Result<Server, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut opened = open_whole(config, &clock).await;
    if opened.as_ref().is_err_and(StoreError::retryable) {
        tokio::time::sleep(SECOND_TRY).await;
        opened = open_whole(config, &clock).await;
    }
    let store: Arc<dyn Store> = match opened {
        Err(away) if away.retryable() && goes_on_without_store(config) => {
            tracing::warn!(error = %away, "the store is not there; webhooks go to the spool, where channels have it, until it is");
            let (config, clock) = (config.clone(), Arc::clone(&clock));
            DeferredStore::store(&away, Box::new(move || open_whole(&config, &clock)))
        }
        opened => opened?,
    };
    open_on(store, clock, config, telemetry).await
}

/// Uses a store that is open already.
pub async fn open_on(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    config: &Config,
    telemetry: Telemetry,
) -> Result<Server, StartError> {
    let spool = open_spool(config, &clock).await?;
    Server::on(store, spool, clock, config.settings(), telemetry).await
}

/// Opens the spool when a channel needs it, or when an earlier run has left one.
async fn open_spool(config: &Config, clock: &Arc<dyn Clock>) -> Result<Option<Arc<Spool>>, StoreError> {
    let spools = |channel: &Channel| config.on_store_failure(channel) == OnStoreFailure::Spool;
    let channels: Vec<_> = config.channels.iter().map(|channel| (Arc::clone(&channel.name), spools(channel))).collect();
    let needed = channels.iter().any(|(_, spools)| *spools);
    if !needed && !config.spool.exists() {
        return Ok(None);
    }
    let opened = match hapax::open_embedded(&config.spool, &config.engine, Arc::clone(clock)).await {
        Ok(store) => Spool::open(store, channels).await,
        Err(error) => Err(error),
    };
    match opened {
        Ok(spool) => Ok(Some(Arc::new(spool))),
        Err(error) if needed => Err(StoreError::Refused(format!("the spool cannot be used: {error}"))),
        Err(error) => {
            tracing::warn!(%error, "a spool is there that nobody needs, and it cannot be looked into");
            Ok(None)
        }
    }
}

/// Opens the store of a config, unless an import has not filled it to the end.
fn open_whole(config: &Config, clock: &Arc<dyn Clock>) -> BoxFuture<'static, Result<Arc<dyn Store>, StoreError>> {
    let (url, options, clock) = (config.store.clone(), config.engine.clone(), Arc::clone(clock));
    let spelling = spelling(&Channels::new(&config.settings().channels));
    Box::pin(async move {
        let store = hapax::open_adopting(&url, &options, clock, spelling).await?;
        make_sure_it_is_whole(&*store).await?;
        Ok(store)
    })
}

/// True when hapax was at work here before, and a channel has the spool to go on with: then a server that cannot be reached is away. At a first
/// start a wrong address is likelier. The token must be the operator's: the other kind is only known to the store.
fn goes_on_without_store(config: &Config) -> bool {
    let spools = |channel: &Channel| config.on_store_failure(channel) == OnStoreFailure::Spool;
    config.channels.iter().any(spools) && config.spool.exists() && config.admin_token.is_some()
}

/// Refuses a store that an import has not filled to the end.
async fn make_sure_it_is_whole(store: &dyn Store) -> Result<(), StoreError> {
    match store.moving() {
        Ok(moving) if moving.is_half_filled().await? => Err(hapax_store::half_filled()),
        _ => Ok(()),
    }
}
