//! Opens the store: connects, checks the server and the layout of the data, and listens for news.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use hapax_domain::limits;
use hapax_store::StoreError;
use hapax_store::clock::Clock;

use super::address::Address;
use super::link::{Link, failed, notification_channel};
use super::nodes::Nodes;
use super::notifications::Notifications;
use super::registry::Registry;
use super::row::int;
use super::settings::ask_promise;
use super::{RedisStore, script};

/// Grows with every change to what the keys mean. An older hapax refuses newer data.
const LAYOUT: i64 = 2;
/// The layout in which every name of a person had a lane of its own.
const LANE_PER_NAME: i64 = 1;

/// Opens the store behind a `redis://` or `rediss://` address, of a server or of a cluster. With a `clock`, time is that clock's and not the
/// server's: for tests only.
pub async fn open(address: &str, clock: Option<Arc<dyn Clock>>) -> Result<RedisStore, StoreError> {
    let address = Address::read(address)?;
    let nodes = Nodes::find(&address).await?;
    let promise = ask_promise(&nodes).await?;
    nodes.count_replicas().await;
    let link = Link::new(Arc::clone(&nodes), &address.prefix, clock);
    let registry = Arc::<Registry>::default();
    let migrate = |done: bool| link.shared_call(&script::MIGRATE).arg(LAYOUT).flag(done);
    let mut layout = int(link.run("reading the layout", migrate(false)).await?)?;
    if layout == LANE_PER_NAME {
        upgrade(&link, &registry).await?;
        layout = int(link.run_safely("writing the layout down", migrate(true)).await?)?;
    }
    if layout != LAYOUT {
        return Err(StoreError::Refused(format!(
            "the data in redis has layout {layout}, and this hapax knows {LAYOUT}: run the hapax that wrote it, or a newer one"
        )));
    }
    let notifications = Notifications::listen(nodes, notification_channel(&address.prefix))
        .await
        .map_err(|error| failed("listening to redis", error))?;
    let outbox_max = Arc::new(AtomicUsize::new(limits::OUTBOX_MAX));
    let claims_max = Arc::new(AtomicUsize::new(limits::CLAIMS_MAX));
    let notifications = Arc::new(notifications);
    Ok(RedisStore { link, registry, notifications, promise, filling: Arc::default(), outbox_max, claims_max })
}

/// Makes what the layout before left waiting wait as it does today. It may be done twice, and by two at once.
async fn upgrade(link: &Link, registry: &Registry) -> Result<(), StoreError> {
    tracing::info!("an older version has written this store; what waits in it is put in line as this one does");
    for entry in registry.entries(link, None).await? {
        for script in [&*script::UPGRADE_MESSAGES, &*script::UPGRADE_LANES] {
            let mut from = 0;
            loop {
                let call = link.call(script, entry.account).arg(&*entry.channel).arg(from);
                from = int(link.run_safely("changing what an older version has left", call).await?)?;
                if from == 0 {
                    break;
                }
            }
        }
    }
    Ok(())
}
