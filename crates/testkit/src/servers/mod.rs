//! Real servers for tests: child processes on free ports of this machine, each with a folder of its own.
//!
//! [`Engine::shared`] gives one server to all test processes that run at the time; it ends by itself soon after the last of them.
//! [`Engine::private`] gives a server that its test may stop, kill and start again.
//!
//! Both run with the settings of production. Where the system offers it the folder is in memory, so that a sync costs nothing.

mod firestore;
mod mariadb;
mod postgres;
mod private;
mod redis;
mod redis_cluster;
mod shared;

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::Signal;
use tokio::process::Command;
use tokio::time::Instant;

pub use private::Private;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Postgres,
    Mariadb,
    Redis,
    /// Three masters.
    RedisCluster,
    /// Three masters with a replica each.
    RedisClusterWithReplicas,
    Firestore,
}

impl Engine {
    /// The server that all tests of this machine share. `None`: it is not installed, and the test has nothing to say.
    pub async fn shared(self) -> Option<Server> {
        let program = self.program()?;
        let port = shared::join(self.recipe(), &program).await.unwrap_or_else(|error| self.trouble("start it", &*error));
        Some(Server { engine: self, port })
    }

    /// A server of the caller's own. `None` as for [`Engine::shared`].
    pub async fn private(self) -> Option<Private> {
        let program = self.program()?;
        Some(Private::start(self, program).await.unwrap_or_else(|error| self.trouble("start it", &*error)))
    }

    /// Finds the program, or says that there is none.
    fn program(self) -> Option<PathBuf> {
        let recipe = self.recipe();
        let program = recipe.program();
        if program.is_none() {
            skip(recipe.name(), recipe.how_to_install(), recipe.debian_has_it());
        }
        program
    }

    fn recipe(self) -> &'static dyn Recipe {
        match self {
            Engine::Postgres => &postgres::Postgres,
            Engine::Mariadb => &mariadb::Mariadb,
            Engine::Redis => &redis::Redis,
            Engine::RedisCluster => &redis_cluster::RedisCluster { replicas_each: 0 },
            Engine::RedisClusterWithReplicas => &redis_cluster::RedisCluster { replicas_each: 1 },
            Engine::Firestore => &firestore::Firestore,
        }
    }

    fn trouble(self, what: &str, error: &dyn Error) -> ! {
        unreachable!("{}: cannot {what}: {error}", self.recipe().name())
    }
}

/// Says that a test has nothing to say on this machine; in CI that is a failure, if the machine could have it.
pub fn skip(what: &str, how_to_install: &str, debian_has_it: bool) {
    let words = format!("no {what} on this machine ({how_to_install})");
    assert!(!(debian_has_it && std::env::var_os("CI").is_some_and(|ci| ci == "true")), "{words}");
    // Who cannot read it will not miss it.
    let _ = writeln!(io::stderr(), "SKIPPED: {words}");
}

/// Where a server listens.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    engine: Engine,
    port: u16,
}

impl Server {
    pub fn engine(&self) -> Engine {
        self.engine
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Makes room for a store of its own and gives the address to open it by.
    pub async fn fresh(&self) -> String {
        let name = format!("hapax_{:016x}", rand::random::<u64>());
        let made = self.engine.recipe().fresh(self.port, &name).await;
        made.unwrap_or_else(|error| self.engine.trouble("make a fresh store", &*error))
    }

    /// Notes what a store that was just opened for the first time holds by itself, to be kept when it is emptied.
    pub async fn first_rows(&self, url: &str) -> Vec<String> {
        let found = self.engine.recipe().first_rows(url).await;
        found.unwrap_or_else(|error| self.engine.trouble("look into the store", &*error))
    }

    /// Makes a store as new, faster than another one is made. Nobody may have it open.
    pub async fn empty(&self, url: &str, keep: &[String]) {
        let done = self.engine.recipe().empty(url, keep).await;
        done.unwrap_or_else(|error| self.engine.trouble("empty the store", &*error));
    }

    /// Removes a store with everything in it.
    pub async fn remove(&self, url: &str) {
        let done = self.engine.recipe().remove(url).await;
        done.unwrap_or_else(|error| self.engine.trouble("remove the store", &*error));
    }
}

type ServerError = Box<dyn Error + Send + Sync>;

/// How one engine's server is found, started and asked.
#[async_trait]
trait Recipe: Sync {
    fn name(&self) -> &'static str;
    fn how_to_install(&self) -> &'static str;

    /// Whether its absence in CI is a mistake.
    fn debian_has_it(&self) -> bool {
        true
    }

    fn program(&self) -> Option<PathBuf>;

    /// Fills a new folder.
    async fn prepare(&self, _program: &Path, _folder: &Path) -> Result<(), ServerError> {
        Ok(())
    }

    /// How many ports it needs, from the first one on.
    fn ports(&self) -> u16 {
        1
    }

    /// The command, which must stay in the foreground.
    fn line(&self, program: &Path, folder: &Path, port: u16) -> Vec<OsString>;

    /// The signal it stops on without waiting for its clients to leave.
    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }

    /// Proves that it takes requests.
    async fn greet(&self, port: u16) -> Result<(), ServerError>;

    async fn fresh(&self, port: u16, name: &str) -> Result<String, ServerError>;

    async fn first_rows(&self, _url: &str) -> Result<Vec<String>, ServerError> {
        Ok(Vec::new())
    }

    async fn empty(&self, url: &str, keep: &[String]) -> Result<(), ServerError>;

    async fn remove(&self, url: &str) -> Result<(), ServerError> {
        self.empty(url, &[]).await
    }
}

/// How long a server may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Makes a folder for a server's data.
fn new_folder(engine: &str) -> io::Result<PathBuf> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = parent.join(format!("hapax-{engine}-{:016x}", rand::random::<u64>()));
    std::fs::create_dir(&folder)?;
    Ok(folder)
}

/// Finds ports that the system will not give away as the near end of some connection while a server is down; the first of them.
fn free_ports(count: u16) -> io::Result<u16> {
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let mut some = (0..1_000).map(|_| rand::random_range(15_000..32_000));
    some.find(|first| (*first..first + count).all(free)).ok_or_else(|| io::Error::other("no free port"))
}

/// Waits until a server that was just started answers; `gone` says whether it has ended instead.
async fn answers(recipe: &dyn Recipe, port: u16, folder: &Path, mut gone: impl FnMut() -> bool) -> Result<(), ServerError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let error = match greeted(recipe, port).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if gone() || Instant::now() > deadline {
            let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            let last: Vec<_> = log.lines().rev().take(5).collect();
            return Err(format!("{error}; its last words, backwards: {last:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A stopped server accepts connections and says nothing: that is no answer either.
async fn greeted(recipe: &dyn Recipe, port: u16) -> Result<(), ServerError> {
    tokio::time::timeout(Duration::from_secs(20), recipe.greet(port)).await.unwrap_or_else(|late| Err(late.into()))
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let usual = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Runs a command to its end.
async fn run(line: &[OsString]) -> Result<(), ServerError> {
    let output = Command::new(&line[0]).args(&line[1..]).stdin(Stdio::null()).output().await?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{:?}: {}", line[0], String::from_utf8_lossy(&output.stderr)).into()),
    }
}

fn words<const N: usize>(line: [&str; N]) -> Vec<OsString> {
    line.map(OsString::from).to_vec()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
