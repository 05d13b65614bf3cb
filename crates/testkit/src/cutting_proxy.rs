//! Stands between hapax and its database, passes everything on, and at times eats the answer to a commit: the database has made it, and
//! nobody was told.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// Listens on loopback until dropped.
pub struct CuttingProxy {
    pub address: SocketAddr,
    orders: Arc<Orders>,
    _serving: AbortOnDropHandle<()>,
}

struct Orders {
    /// What a transaction must have carried for its commit to be cut; empty for any. `None`: nothing is cut.
    armed: Mutex<Option<String>>,
    cuts: watch::Sender<usize>,
}

/// How long the answer to a commit may pause, or take, before it counts as whole.
const QUIET: Duration = Duration::from_millis(100);
const ANSWER: Duration = Duration::from_secs(2);

/// Those who only ask never commit, and what they sent need not be kept.
const SENT_MAX: usize = 1 << 20;

impl CuttingProxy {
    /// Leads to a server on this machine.
    pub async fn start(server_port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let orders = Arc::new(Orders { armed: Mutex::default(), cuts: watch::Sender::new(0) });
        let serving = AbortOnDropHandle::new(tokio::spawn(serve(listener, server_port, Arc::clone(&orders))));
        Ok(Self { address, orders, _serving: serving })
    }

    /// Eats the answer to the next commit of a transaction that carries this text; of any, when it is empty.
    pub fn cut_commit_of(&self, text: &str) {
        *self.orders.lock() = Some(text.to_owned());
    }

    /// Resolves when so many answers were eaten.
    pub async fn cut(&self, times: usize) {
        // The sender lives as long as we do.
        let _ = self.orders.cuts.subscribe().wait_for(|cuts| *cuts >= times).await;
    }
}

impl Orders {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the answer to what was just sent is to be eaten; `sent` is what the client sent since its last commit.
    fn take(&self, sent: &[u8]) -> bool {
        let mut armed = self.lock();
        let hit = armed.as_ref().is_some_and(|text| carries(sent, text));
        if hit {
            *armed = None;
        }
        hit
    }
}

async fn serve(listener: TcpListener, server_port: u16, orders: Arc<Orders>) {
    let connections = TaskTracker::new();
    while let Ok((client, _)) = listener.accept().await {
        let orders = Arc::clone(&orders);
        connections.spawn(async move {
            // A server that is down shows as a connection that ends at once.
            if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server_port)).await {
                let _ = pass(client, server, &orders).await;
            }
        });
    }
}

/// Passes on until one side ends, or the answer to a commit was eaten; then both are closed.
async fn pass(mut client: TcpStream, mut server: TcpStream, orders: &Orders) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut from_server) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut sent = Vec::new();
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let part = &from_client[..read?];
                if part.is_empty() {
                    return Ok(());
                }
                sent.extend_from_slice(part);
                let commits = commit_in(&sent);
                let cut = commits && orders.take(&sent);
                if commits || sent.len() > SENT_MAX {
                    sent.clear();
                }
                server.write_all(part).await?;
                if cut {
                    eat_answer(&mut server).await;
                    orders.cuts.send_modify(|cuts| *cuts += 1);
                    return Ok(());
                }
            }
            read = server.read(&mut from_server) => {
                let part = &from_server[..read?];
                if part.is_empty() {
                    return Ok(());
                }
                client.write_all(part).await?;
            }
        }
    }
}

/// Reads until the server says that it committed, or has said something and pauses.
async fn eat_answer(server: &mut TcpStream) {
    let deadline = Instant::now() + ANSWER;
    let (mut answer, mut part) = (Vec::new(), vec![0; 64 << 10]);
    while !commit_in(&answer) {
        let wait = if answer.is_empty() { deadline } else { deadline.min(Instant::now() + QUIET) };
        match tokio::time::timeout_at(wait, server.read(&mut part)).await {
            Ok(Ok(read)) if read > 0 => answer.extend_from_slice(&part[..read]),
            _ => return,
        }
    }
}

/// Whether a text is somewhere, as it is or in hex, as some drivers write it.
fn carries(bytes: &[u8], text: &str) -> bool {
    let ways = [text.to_owned(), hex::encode(text), hex::encode_upper(text)];
    text.is_empty() || ways.iter().any(|way| places(bytes, way.as_bytes()).next().is_some())
}

/// Whether somebody says COMMIT, and not merely READ COMMITTED.
fn commit_in(bytes: &[u8]) -> bool {
    const COMMIT: &[u8] = b"COMMIT";
    places(bytes, COMMIT).any(|at| bytes.get(at + COMMIT.len()) != Some(&b'T'))
}

fn places<'b>(bytes: &'b [u8], text: &'b [u8]) -> impl Iterator<Item = usize> + 'b {
    bytes.windows(text.len()).enumerate().filter(move |(_, part)| *part == text).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echoing() -> (CuttingProxy, TcpStream) {
        let server = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = server.local_addr().expect("an address").port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = server.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write).await
                });
            }
        });
        let proxy = CuttingProxy::start(port).await.expect("a proxy");
        let client = TcpStream::connect(proxy.address).await.expect("it listens");
        (proxy, client)
    }

    async fn says(client: &mut TcpStream, text: &str) -> String {
        client.write_all(text.as_bytes()).await.expect("it is there");
        let mut answer = vec![0; 100];
        let read = client.read(&mut answer).await.unwrap_or_default();
        String::from_utf8_lossy(&answer[..read]).into_owned()
    }

    #[tokio::test]
    async fn it_passes_on_until_it_is_told_to_cut() {
        let (proxy, mut client) = echoing().await;
        assert_eq!(says(&mut client, "COMMIT").await, "COMMIT");
        proxy.cut_commit_of("");
        assert_eq!(says(&mut client, "READ COMMITTED").await, "READ COMMITTED");
        assert_eq!(says(&mut client, "COMMIT").await, "", "eaten, and the connection is closed");
        proxy.cut(1).await;
    }

    #[tokio::test]
    async fn it_cuts_the_transaction_it_was_told_to() {
        let (proxy, mut client) = echoing().await;
        proxy.cut_commit_of("wamid.7");
        assert_eq!(says(&mut client, "wamid.6 COMMIT").await, "wamid.6 COMMIT");
        assert_eq!(says(&mut client, "77616d69642e37").await, "77616d69642e37", "the same in hex");
        assert_eq!(says(&mut client, "COMMIT").await, "");
        proxy.cut(1).await;
    }
}
