//! The Redis protocol by hand: what no client library would send, and what must be compared byte by byte.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::TOKEN;
use crate::rig::in_time;

pub(super) struct Talk {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl Talk {
    pub(super) async fn open(at: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(at).await.expect("a connection"), heard: Vec::new() }
    }

    pub(super) async fn signed_in(at: SocketAddr) -> Self {
        let mut talk = Self::open(at).await;
        assert_eq!(talk.ask(&["AUTH", TOKEN]).await, "+OK\r\n");
        talk
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("sent");
    }

    /// Sends a command and gives its reply as it came.
    pub(super) async fn ask(&mut self, words: &[&str]) -> String {
        self.send(&command(words)).await;
        self.hear().await.expect("a reply")
    }

    /// A command as people type it, and its reply.
    pub(super) async fn line(&mut self, line: &str) -> String {
        self.ask(&line.split(' ').collect::<Vec<_>>()).await
    }

    /// The next reply; `None` when the connection ended without one.
    pub(super) async fn hear(&mut self) -> Option<String> {
        loop {
            if let Some(length) = reply_length(&self.heard) {
                return Some(String::from_utf8_lossy(&self.heard.drain(..length).collect::<Vec<_>>()).into_owned());
            }
            let mut piece = [0; 4 << 10];
            let read = in_time("a reply", self.stream.read(&mut piece)).await.unwrap_or(0);
            if read == 0 {
                return None;
            }
            self.heard.extend_from_slice(&piece[..read]);
        }
    }
}

/// As clients send it.
pub(super) fn command(words: &[&str]) -> Vec<u8> {
    let mut sent = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        sent.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    sent
}

/// How long the first reply is, if it has come in whole.
fn reply_length(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..end - 2]).ok().and_then(|text| text.parse::<i64>().ok()).expect("a number");
    let count = match bytes[0] {
        b'$' | b'=' => {
            let length = number();
            let whole = if length < 0 { end } else { end + length as usize + 2 };
            return (bytes.len() >= whole).then_some(whole);
        }
        b'*' => number(),
        b'%' => 2 * number(),
        _ => return Some(end),
    };
    (0..count).try_fold(end, |at, _| Some(at + reply_length(bytes.get(at..)?)?))
}
