//! Hints that there is work: every script that makes some publishes, and one connection per instance listens. The nodes of a cluster pass on
//! to each other what is published, so it does not matter which of them is listened to.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::PubSub;
use redis::{Client, ErrorKind, RedisError, RedisResult};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::link::CALL_TIME;
use super::nodes::Nodes;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Ends with the last clone of the store.
pub(super) struct Notifications {
    pub(super) work: Arc<Notify>,
    listener: JoinHandle<()>,
}

impl Notifications {
    /// Listens from now on; when the connection is lost, it is made again for ever.
    pub(super) async fn listen(nodes: Arc<Nodes>, channel: String) -> RedisResult<Self> {
        let work = Arc::new(Notify::new());
        let first = subscribe_somewhere(&nodes, &channel).await?;
        let listener = tokio::spawn(keep_listening(nodes, channel, first, Arc::clone(&work)));
        Ok(Self { work, listener })
    }
}

impl Drop for Notifications {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// The first node that takes the subscription.
async fn subscribe_somewhere(nodes: &Nodes, channel: &str) -> RedisResult<PubSub> {
    let mut last = RedisError::from((ErrorKind::Io, "nobody answered in time"));
    for node in nodes.anyone() {
        match timeout(CALL_TIME, subscribe(node.client(), channel)).await {
            Ok(Ok(listening)) => return Ok(listening),
            Ok(Err(error)) => last = error,
            Err(_) => {}
        }
    }
    Err(last)
}

async fn subscribe(client: &Client, channel: &str) -> RedisResult<PubSub> {
    let mut listening = client.get_async_pubsub().await?;
    listening.subscribe(channel).await?;
    Ok(listening)
}

async fn keep_listening(nodes: Arc<Nodes>, channel: String, first: PubSub, work: Arc<Notify>) {
    let mut listening = Some(first);
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(listening) = listening.take() {
            pause = FIRST_PAUSE;
            let mut messages = listening.into_on_message();
            while messages.next().await.is_some() {
                work.notify_waiters();
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        listening = subscribe_somewhere(&nodes, &channel).await.ok();
        // Something may have been said while nobody listened.
        work.notify_waiters();
    }
}
