//! A future that waits beside a busy one in the same task, and is looked at only when it was woken itself.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Every request polls a connection's task several times; what it waits for once in its life, a stop for instance, takes locks that all
/// connections share.
pub(crate) struct Seldom<F> {
    future: Pin<Box<F>>,
    woken: Arc<Woken>,
    waker: Waker,
}

struct Woken {
    is: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.is.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl<F: Future> Seldom<F> {
    pub(crate) fn new(future: F) -> Self {
        let woken = Arc::new(Woken { is: AtomicBool::new(true), task: AtomicWaker::new() });
        Self { future: Box::pin(future), waker: Waker::from(Arc::clone(&woken)), woken }
    }
}

impl<F: Future> Future for Seldom<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // First, or a wake-up between the look and this would reach nobody.
        self.woken.task.register(context.waker());
        if !self.woken.is.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let this = &mut *self;
        this.future.as_mut().poll(&mut Context::from_waker(&this.waker))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test]
    async fn it_is_polled_when_it_was_woken_and_not_when_another_was() {
        let (stop, polls) = (CancellationToken::new(), AtomicUsize::new(0));
        let mut cancelled = std::pin::pin!(stop.cancelled());
        let counted = poll_fn(|context| {
            polls.fetch_add(1, Ordering::Relaxed);
            cancelled.as_mut().poll(context)
        });
        let mut seldom = std::pin::pin!(Seldom::new(counted));
        for _ in 0..10 {
            assert!(futures_util::poll!(seldom.as_mut()).is_pending());
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        tokio::join!(seldom, async { stop.cancel() });
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }
}
