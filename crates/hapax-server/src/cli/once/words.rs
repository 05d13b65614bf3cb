//! What the command says: kept, and passed on by a thread of its own, since a reader that stalls must not stop the heartbeat.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::sync::{mpsc, oneshot};

use super::kept::{Kept, Stream};

/// Output is waited for so long after the command has ended: what it started in the background may keep the pipe open.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Pieces of output that wait for the reader; with more of them the command waits.
const PIECES: usize = 16;

#[derive(Clone)]
struct Shared {
    kept: Arc<Mutex<Kept>>,
    /// Pieces that were heard and not written yet.
    unsaid: Arc<AtomicUsize>,
}

pub(super) struct Words {
    shared: Shared,
    all_said: oneshot::Receiver<()>,
}

impl Words {
    /// Listens to the command from now on.
    pub(super) fn of(child: &mut Child) -> std::io::Result<Self> {
        let shared = Shared { kept: Arc::default(), unsaid: Arc::default() };
        let (to, mut heard) = mpsc::channel::<(Stream, Vec<u8>)>(PIECES);
        let (end, all_said) = oneshot::channel();
        let unsaid = shared.unsaid.clone();
        // No task of the runtime, which would wait for it at its end.
        std::thread::Builder::new().name("output".to_owned()).spawn(move || {
            while let Some((stream, bytes)) = heard.blocking_recv() {
                stream.say(&bytes);
                unsaid.fetch_sub(1, Ordering::Release);
            }
            let _ = end.send(());
        })?;
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(listen(stdout, Stream::Out, shared.clone(), to.clone()));
        }
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(listen(stderr, Stream::Err, shared.clone(), to));
        }
        Ok(Self { shared, all_said })
    }

    /// Until all is written, however long its reader takes; what is left in the background is not waited for.
    pub(super) async fn last(&mut self) {
        while tokio::time::timeout(LAST_WORDS, &mut self.all_said).await.is_err() {
            if self.shared.unsaid.load(Ordering::Acquire) == 0 {
                return;
            }
        }
    }

    pub(super) fn kept(self) -> Kept {
        std::mem::take(&mut *self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn listen(mut from: impl AsyncRead + Unpin, stream: Stream, shared: Shared, to: mpsc::Sender<(Stream, Vec<u8>)>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        shared.unsaid.fetch_add(1, Ordering::Release);
        shared.kept.lock().unwrap_or_else(PoisonError::into_inner).add(stream, &buffer[..read]);
        if to.send((stream, buffer[..read].to_vec())).await.is_err() {
            return;
        }
    }
}
