//! A bot that answers 200 at once and counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::load::answer_length;

pub(super) struct Bot {
    pub(super) url: String,
    count: Arc<Count>,
    listening: AbortHandle,
}

#[derive(Default)]
struct Count {
    handled: AtomicUsize,
    changed: Notify,
}

impl Bot {
    pub(super) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}/bot", listener.local_addr()?);
        let count = Arc::<Count>::default();
        let counting = Arc::clone(&count);
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&counting)));
            }
        });
        Ok(Self { url, count, listening: listening.abort_handle() })
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

impl Drop for Bot {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn answer(mut stream: TcpStream, count: Arc<Count>) -> std::io::Result<()> {
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::with_capacity(8_192);
    loop {
        match answer_length(&buffer).filter(|whole| buffer.len() >= *whole) {
            Some(whole) => {
                buffer.drain(..whole);
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
                count.handled.fetch_add(1, Ordering::Release);
                count.changed.notify_waiters();
            }
            None if stream.read_buf(&mut buffer).await? == 0 => return Ok(()),
            None => {}
        }
    }
}
