//! HTTP as far as the demo needs it, by hand: a server that may cut the line in place of an answer.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

const REQUEST_MAX_BYTES: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

/// What is done about a request.
pub(super) enum Say {
    Answer {
        status: u16,
        content_type: &'static str,
        body: String,
    },
    /// Nothing is said, and the connection is closed.
    Cut,
}

/// Answers the body of every request until `stop`; one request per connection.
pub(super) async fn serve<F, A>(listener: TcpListener, stop: CancellationToken, answer: F)
where
    F: Fn(Vec<u8>) -> A + Send + Sync + 'static,
    A: Future<Output = Say> + Send,
{
    let answer = Arc::new(answer);
    loop {
        let taken = tokio::select! {
            taken = listener.accept() => taken,
            () = stop.cancelled() => return,
        };
        let Ok((stream, _)) = taken else { continue };
        let (answer, stop) = (Arc::clone(&answer), stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                _ = talk(stream, &*answer) => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

async fn talk<F, A>(mut stream: TcpStream, answer: &F) -> std::io::Result<()>
where
    F: Fn(Vec<u8>) -> A,
    A: Future<Output = Say>,
{
    let Ok(Some(body)) = tokio::time::timeout(PATIENCE, read(&mut stream)).await.unwrap_or(Ok(None)) else { return Ok(()) };
    if let Say::Answer { status, content_type, body } = answer(body).await {
        let head = format!("HTTP/1.1 {status} Said\r\ncontent-type: {content_type}\r\ncontent-length: {}", body.len());
        stream.write_all(format!("{head}\r\nconnection: close\r\n\r\n{body}").as_bytes()).await?;
        stream.shutdown().await?;
    }
    Ok(())
}

/// The body of one request; nothing when it broke off or is too large.
async fn read(stream: &mut TcpStream) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::with_capacity(4_096);
    loop {
        if let Some(range) = body_of(&bytes).filter(|range| range.end <= bytes.len()) {
            return Ok(Some(bytes[range].to_vec()));
        }
        if bytes.len() > REQUEST_MAX_BYTES || stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
}

/// Where the body is, once the head is there.
fn body_of(bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.unwrap_or(0).min(REQUEST_MAX_BYTES);
    Some(end..end + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_as_long_as_its_head_says() {
        assert_eq!(body_of(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n"), None);
        assert_eq!(body_of(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"), Some(38..41));
        assert_eq!(body_of(b"GET / HTTP/1.1\r\n\r\n"), Some(18..18));
    }
}
