//! The other side: a bot, or a provider's API, that answers 200 at once and counts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::load::answer_length;

pub(super) struct Bot {
    pub(super) address: SocketAddr,
    count: Arc<Count>,
    listening: AbortHandle,
}

#[derive(Default)]
struct Count {
    handled: AtomicUsize,
    changed: Notify,
}

impl Bot {
    /// `answer` makes the body of the n-th answer.
    pub(super) async fn start(answer_with: fn(usize) -> String) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let count = Arc::<Count>::default();
        let counting = Arc::clone(&count);
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&counting), answer_with));
            }
        });
        Ok(Self { address, count, listening: listening.abort_handle() })
    }

    /// Resolves when this many requests were answered.
    pub(super) async fn handled(&self, wanted: usize) {
        loop {
            let changed = self.count.changed.notified();
            if self.count.handled.load(Ordering::Acquire) >= wanted {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
impl Bot {
    pub(super) fn count(&self) -> usize {
        self.count.handled.load(Ordering::Acquire)
    }
}

impl Drop for Bot {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn answer(mut stream: TcpStream, count: Arc<Count>, answer_with: fn(usize) -> String) -> std::io::Result<()> {
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::with_capacity(8_192);
    loop {
        match answer_length(&buffer).filter(|whole| buffer.len() >= *whole) {
            Some(whole) => {
                buffer.drain(..whole);
                let body = answer_with(count.handled.fetch_add(1, Ordering::Release));
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
                stream.write_all(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes()).await?;
                count.changed.notify_waiters();
            }
            None if stream.read_buf(&mut buffer).await? == 0 => return Ok(()),
            None => {}
        }
    }
}
