//! Claims by the Redis protocol: the same commands to the door of hapax and to a Redis that syncs as often.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::BenchError;
use super::child::cpu_of;
use super::load::Measured;

/// How long Redis may take to start.
const STARTED: Duration = Duration::from_secs(20);

/// A Redis of our own that syncs its log before it answers.
pub(super) struct Redis {
    process: tokio::process::Child,
    pub(super) address: SocketAddr,
}

impl Redis {
    /// `None` where it is not installed.
    pub(super) async fn start(folder: &Path) -> Result<Option<Self>, BenchError> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let data = folder.join(format!("redis-{port}"));
        std::fs::create_dir_all(&data)?;
        let mut command = tokio::process::Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"]).arg(&data);
        command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        let process = match command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true).spawn() {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let redis = Self { process, address: (Ipv4Addr::LOCALHOST, port).into() };
        let started = Instant::now();
        while TcpStream::connect(redis.address).await.is_err() {
            if started.elapsed() > STARTED {
                return Err("redis-server did not start".into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Some(redis))
    }

    /// Processor time so far.
    pub(super) fn cpu(&self) -> Duration {
        cpu_of(self.process.id())
    }
}

/// How the keys are asked for.
#[derive(Clone, Copy)]
pub(super) struct Callers {
    pub(super) connections: usize,
    /// Commands that each sends before it reads their answers.
    pub(super) at_once: usize,
}

/// About `total` fresh keys by `SET key value NX EX`, each connection its next ones when the last were answered.
pub(super) async fn claims(
    address: SocketAddr,
    token: Option<&str>,
    callers: Callers,
    total: usize,
) -> Result<Measured, BenchError> {
    let Callers { connections, at_once } = callers;
    let tag: Arc<str> = format!("{:x}", rand::random::<u64>()).into();
    let mut streams = Vec::with_capacity(connections);
    for _ in 0..connections {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        if let Some(token) = token {
            ask(&mut stream, &command(&["AUTH", token]), 1).await?;
        }
        streams.push(stream);
    }
    let (next, started) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let tasks: Vec<_> = streams
        .into_iter()
        .map(|mut stream| {
            let (next, tag) = (Arc::clone(&next), Arc::clone(&tag));
            tokio::spawn(async move {
                let mut took = Vec::new();
                loop {
                    let first = next.fetch_add(at_once, Ordering::Relaxed);
                    if first >= total {
                        return Ok::<_, BenchError>(took);
                    }
                    let sent: String = (first..first + at_once)
                        .map(|n| command(&["SET", &format!("{tag}:{n}"), "host-1", "NX", "EX", "3600"]))
                        .collect();
                    let begun = Instant::now();
                    ask(&mut stream, &sent, at_once).await?;
                    took.extend(std::iter::repeat_n(begun.elapsed().as_micros() as u32, at_once));
                }
            })
        })
        .collect();
    let mut took = Vec::with_capacity(total);
    for task in tasks {
        took.extend(task.await??);
    }
    Ok(Measured::new(took, started.elapsed().as_secs_f64()))
}

/// As it is sent.
fn command(words: &[&str]) -> String {
    let mut sent = format!("*{}\r\n", words.len());
    for word in words {
        sent += &format!("${}\r\n{word}\r\n", word.len());
    }
    sent
}

/// Sends so many commands, each of which must be answered `OK`.
async fn ask(stream: &mut TcpStream, sent: &str, commands: usize) -> Result<(), BenchError> {
    const OK: &[u8] = b"+OK\r\n";
    stream.write_all(sent.as_bytes()).await?;
    let (mut heard, mut filled) = ([0; 256], 0);
    while filled < commands * OK.len() {
        match stream.read(&mut heard[filled..]).await? {
            0 => return Err("the server closed the connection".into()),
            read => filled += read,
        }
        // A refusal is longer or shorter than an `OK`, and nothing else need come after it.
        if !heard[..filled].chunks(OK.len()).all(|answer| OK.starts_with(answer)) {
            return Err(format!("a fresh key was answered: {}", String::from_utf8_lossy(&heard[..filled])).into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn redis_takes_every_key_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(redis) = Redis::start(folder.path()).await.expect("it starts") else { return };
        for at_once in [1, 5] {
            let measured = claims(redis.address, None, Callers { connections: 4, at_once }, 100).await.expect("all are answered");
            assert_eq!(measured.requests, 100);
        }
    }
}
