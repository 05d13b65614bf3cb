//! Says to all instances that there may be work: LISTEN and NOTIFY on a connection of its own, off every path that somebody waits on.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hapax_domain::key::KeyHasher;
use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Client};
use tokio_util::task::AbortOnDropHandle;

use super::connect::{CONNECT, Server};
use super::failure::Failure;

/// A hint that was lost costs no more than this.
const POLL: Duration = Duration::from_millis(500);
/// At least so long between two notifications: they take a lock that all committing sessions of the server share.
const REST: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

pub(super) struct Notifier {
    /// Wakes those who wait in this instance.
    here: Arc<Notify>,
    /// Asks the task to tell the other instances.
    out: Arc<Notify>,
    _ringer: AbortOnDropHandle<()>,
}

impl Notifier {
    /// Instances in the same schema of the same database hear each other.
    pub(super) fn new(server: Server, schema: &str) -> Self {
        let (here, out) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let ringer = tokio::spawn(ring_for_ever(server, name_of(schema), Arc::clone(&here), Arc::clone(&out)));
        Self { here, out, _ringer: AbortOnDropHandle::new(ringer) }
    }

    pub(super) fn notify(&self) {
        self.here.notify_waiters();
        self.out.notify_one();
    }

    pub(super) fn wait(&self) -> BoxFuture<'static, ()> {
        let heard = Arc::clone(&self.here).notified_owned();
        Box::pin(async move {
            let _ = tokio::time::timeout(POLL, heard).await;
        })
    }
}

/// A name that needs no quotes, whatever the schema is called.
fn name_of(schema: &str) -> String {
    let mut hasher = KeyHasher::new("hapax bell");
    hasher.part(schema.as_bytes());
    format!("hapax_{}", hex::encode(&hasher.finish()[..8]))
}

async fn ring_for_ever(server: Server, name: String, here: Arc<Notify>, out: Arc<Notify>) {
    let mut backoff = Duration::from_millis(100);
    loop {
        if let Ok(Ok(client)) = tokio::time::timeout(CONNECT, listen(&server, &name, Arc::clone(&here))).await {
            backoff = Duration::from_millis(100);
            // Something may have been said while nobody listened.
            here.notify_waiters();
            let _ = tell(&client, &name, &out).await;
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// A notification is worth no fsync.
async fn listen(server: &Server, name: &str, here: Arc<Notify>) -> Result<Client, Failure> {
    let hear = move |message| {
        if let AsyncMessage::Notification(_) = message {
            here.notify_waiters();
        }
    };
    let (client, _) = server.connect(Box::new(hear)).await?;
    client.batch_execute(&format!("SET synchronous_commit = off; LISTEN {name}")).await?;
    Ok(client)
}

/// Tells the others as long as the connection lives; what happens while one notification is under way is told by the next.
async fn tell(client: &Client, name: &str, out: &Notify) -> Result<(), Failure> {
    let notify = format!("NOTIFY {name}");
    loop {
        tokio::select! {
            () = out.notified() => client.batch_execute(&notify).await?,
            () = tokio::time::sleep(BACKOFF_MAX) => client.batch_execute("").await?,
        }
        tokio::time::sleep(REST).await;
    }
}
