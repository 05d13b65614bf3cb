//! The door's own thread. Its connections wake nobody on another thread, and no work is taken from one to another; what the store and the tokens
//! need of a runtime, connections and timers, they find where everything else of the process runs.

use std::future::Future;
use std::io;

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio_util::context::TokioContext;
use tokio_util::sync::CancellationToken;

/// Where everything else of the process runs.
#[derive(Clone, Debug)]
pub(super) struct Home(Handle);

impl Home {
    /// Where it is called.
    pub(super) fn here() -> Self {
        Self(Handle::current())
    }

    /// Polled on the door's thread, and at home for all that it starts.
    pub(super) fn run<F: Future>(&self, future: F) -> TokioContext<F> {
        TokioContext::new(future, self.0.clone())
    }
}

/// Serves on a thread of its own. The future ends when that has ended, and says whether it did so by itself; dropped before, it cuts.
pub(super) fn serve_on_thread<S, F>(
    listener: TcpListener,
    cut: CancellationToken,
    serve: S,
) -> io::Result<impl Future<Output = bool> + Send + use<S, F>>
where
    S: FnOnce(TcpListener) -> F + Send + 'static,
    F: Future<Output = ()>,
{
    let listener = listener.into_std()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _in = runtime.enter();
        TcpListener::from_std(listener)?
    };
    let (ended, ends) = oneshot::channel();
    std::thread::Builder::new().name("hapax-door".to_owned()).spawn(move || {
        runtime.block_on(serve(listener));
        // Whoever hears of the end finds nothing of it left.
        drop(runtime);
        let _ = ended.send(());
    })?;
    let cut = cut.drop_guard();
    Ok(async move {
        let by_itself = ends.await.is_ok();
        drop(cut);
        by_itself
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn port() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").await.expect("a port")
    }

    #[tokio::test]
    async fn a_thread_that_panics_has_not_ended_by_itself() {
        let serve = |listener| async move { drop::<TcpListener>(listener) };
        assert!(serve_on_thread(port().await, CancellationToken::new(), serve).expect("it starts").await);
        let broken = |_| async { panic!("on purpose") };
        assert!(!serve_on_thread(port().await, CancellationToken::new(), broken).expect("it starts").await);
    }

    #[tokio::test]
    async fn who_does_not_wait_for_the_end_cuts() {
        let (cut, seen) = (CancellationToken::new(), CancellationToken::new());
        let (is_cut, has_seen) = (cut.clone(), seen.clone());
        let serve = move |_| async move {
            is_cut.cancelled().await;
            has_seen.cancel();
        };
        drop(serve_on_thread(port().await, cut, serve).expect("it starts"));
        seen.cancelled().await;
    }
}
