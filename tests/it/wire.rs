//! HTTP by hand: what no client library would send, and what must be cheap to send very often.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// One connection, kept open.
pub(crate) struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Wire {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.expect("a connection"), read: Vec::new() }
    }

    /// Connects from another address of this machine.
    pub(crate) async fn open_from(from: [u8; 4], address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from((from, 0))).expect("an address of this machine");
        Self { stream: socket.connect(address).await.expect("a connection"), read: Vec::new() }
    }

    /// True when the other side has said something already, as far as that can be seen at once.
    pub(crate) async fn speaks_now(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(50), self.stream.readable()).await.is_ok()
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("sent");
    }

    /// Sends what a server may refuse to read to its end.
    pub(crate) async fn send_if_wanted(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// The next answer; `None` when the connection ended without one.
    pub(crate) async fn hear(&mut self) -> Option<Heard> {
        loop {
            if let Some((heard, length)) = parse(&self.read) {
                self.read.drain(..length);
                return Some(heard);
            }
            let mut piece = [0; 2 << 10];
            let read = self.stream.read(&mut piece).await.unwrap_or(0);
            if read == 0 {
                return None;
            }
            self.read.extend_from_slice(&piece[..read]);
        }
    }

    /// Which of these a 200 ends with; anything else comes back as it was. Looks at whole answers only, so that it is cheap.
    pub(crate) async fn hear_one_of(&mut self, endings: &[&[u8]]) -> Result<usize, String> {
        const TAKEN: &[u8] = b"HTTP/1.1 200 ";
        let mut answer = [0; 1 << 10];
        let mut length = 0;
        loop {
            let read = self.stream.read(&mut answer[length..]).await.unwrap_or(0);
            length += read;
            let heard = &answer[..length];
            let whole = endings.iter().position(|ending| heard.ends_with(ending));
            let refused = length >= TAKEN.len() && !heard.starts_with(TAKEN);
            match whole {
                Some(which) if !refused => return Ok(which),
                // The end of the connection, or more than any answer we expect.
                _ if refused || read == 0 => return Err(String::from_utf8_lossy(heard).into_owned()),
                _ => {}
            }
        }
    }

    /// True when the other side closes; anything it still says is swallowed.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let mut piece = [0; 1 << 10];
        while let Ok(read) = self.stream.read(&mut piece).await {
            if read == 0 {
                return true;
            }
        }
        true
    }
}

fn parse(bytes: &[u8]) -> Option<(Heard, usize)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length: usize =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |text| text.parse().expect("a length"));
    let body = bytes.get(end..end + length)?;
    Some((Heard { status, head, body: String::from_utf8_lossy(body).into_owned() }, end + length))
}

/// A signed webhook as bytes on the wire.
pub(crate) fn signed(channel: &str, body: &str) -> Vec<u8> {
    let signature = crate::rig::signature(body.as_bytes());
    let length = body.len();
    format!(
        "POST /in/{channel} HTTP/1.1\r\nhost: hapax\r\ncontent-type: application/json\r\nx-hub-signature-256: {signature}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
