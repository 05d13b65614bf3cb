//! The way to the server: the address, TLS, what every connection is told first, and the three pools.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use deadpool_postgres::{Connect, Manager, ManagerConfig, Object, Pool as Connections, RecyclingMethod, Runtime};
use hapax_store::StoreError;
use hapax_store::steps::Pool;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::Failure;
use super::tls;

/// Connections per pool. More do not make a server faster that has a few cores: batches do.
const INGEST: usize = 6;
const WORKERS: usize = 4;
const ADMIN: usize = 3;

/// How long to wait for a connection that is in use, for the network, and for a first answer.
pub(super) const CONNECT: Duration = Duration::from_secs(2);
/// How long to wait for a new connection: a server under load takes its time to make it.
const CREATE: Duration = Duration::from_secs(5);

/// What every connection keeps to. The server ends a statement before we stop waiting for it, so that we mostly know how it ended.
/// Commits are on disk before they are answered, whatever the server's default is.
const MANNERS: &str = "SET statement_timeout = '5s'; SET lock_timeout = '2s'; SET idle_in_transaction_session_timeout = '10s';
    SET default_transaction_isolation = 'read committed';
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

/// The statements of steps find all rows by an index. Planned once and so: on a table that was empty when they were planned the server
/// would read all of it, and go on doing so while it fills up. A server of the family that does not know these settings does without.
const PLANS: &str = "SET plan_cache_mode = 'force_generic_plan'; SET enable_seqscan = off; SET enable_hashjoin = off;
    SET enable_mergejoin = off";

/// How to reach the server. The address may hold a password and is never shown.
#[derive(Clone)]
pub(super) struct Server {
    config: Config,
    tls: Tls,
}

#[derive(Clone)]
enum Tls {
    Off,
    On(MakeRustlsConnect),
}

impl Server {
    pub(super) fn new(address: &str) -> Result<Self, StoreError> {
        // The error may repeat parts of the address.
        let parsed: Result<Config, _> = address.parse();
        let mut config = parsed.map_err(|_| {
            let example = "postgres://user:password@host:5432/database?sslmode=require";
            StoreError::Refused(format!("the store's address cannot be read; write it like {example}"))
        })?;
        config.connect_timeout(CONNECT).tcp_user_timeout(Duration::from_secs(10));
        config.keepalives_idle(Duration::from_secs(10)).keepalives_interval(Duration::from_secs(5)).keepalives_retries(2);
        if config.get_application_name().is_none() {
            config.application_name("hapax");
        }
        let tls = match config.get_ssl_mode() {
            SslMode::Disable => Tls::Off,
            SslMode::Prefer => Tls::On(tls::encrypted()?),
            _ => Tls::On(tls::verified()?),
        };
        Ok(Self { config, tls })
    }

    /// Opens a connection, drives it in a task of its own, and passes on what the server says unasked.
    pub(super) async fn connect(&self, hear: Box<dyn FnMut(AsyncMessage) + Send>) -> Result<(Client, JoinHandle<()>), Error> {
        match &self.tls {
            Tls::Off => open(&self.config, NoTls, hear).await,
            Tls::On(tls) => open(&self.config, tls.clone(), hear).await,
        }
    }

    pub(super) fn pools(&self) -> Result<Pools, StoreError> {
        Ok(Pools { ingest: self.pool(INGEST, true)?, workers: self.pool(WORKERS, true)?, admin: self.pool(ADMIN, false)? })
    }

    pub(super) fn pool(&self, connections: usize, planned: bool) -> Result<Connections, StoreError> {
        let recycling_method = RecyclingMethod::Fast;
        let connect = Introduced { server: self.clone(), planned };
        let manager = Manager::from_connect(self.config.clone(), connect, ManagerConfig { recycling_method });
        let built = Connections::builder(manager).max_size(connections).runtime(Runtime::Tokio1);
        let built = built.wait_timeout(Some(CONNECT)).create_timeout(Some(CREATE)).recycle_timeout(Some(CONNECT)).build();
        built.map_err(|error| StoreError::Refused(format!("no pool of connections: {error}")))
    }
}

async fn open<T>(
    config: &Config,
    tls: T,
    mut hear: Box<dyn FnMut(AsyncMessage) + Send>,
) -> Result<(Client, JoinHandle<()>), Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, mut connection) = config.connect(tls).await?;
    let driver = async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            hear(message);
        }
    };
    Ok((client, tokio::spawn(driver)))
}

/// Connects for a pool, and tells the server how we want to be served.
struct Introduced {
    server: Server,
    planned: bool,
}

impl Connect for Introduced {
    fn connect(&self, _: &Config) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + '_>> {
        Box::pin(async {
            let (client, driver) = self.server.connect(Box::new(|_| ())).await?;
            client.batch_execute(MANNERS).await?;
            if self.planned {
                let _ = client.batch_execute(PLANS).await;
            }
            Ok((client, driver))
        })
    }
}

/// Connections by kind of work, so that one kind never waits for another.
#[derive(Clone)]
pub(super) struct Pools {
    ingest: Connections,
    workers: Connections,
    admin: Connections,
}

impl Pools {
    pub(super) fn size(&self, pool: Pool) -> usize {
        self.of(pool).status().max_size
    }

    pub(super) async fn get(&self, pool: Pool) -> Result<Object, Failure> {
        Ok(self.of(pool).get().await?)
    }

    fn of(&self, pool: Pool) -> &Connections {
        match pool {
            Pool::Ingest => &self.ingest,
            Pool::Workers => &self.workers,
            Pool::Admin => &self.admin,
        }
    }
}
