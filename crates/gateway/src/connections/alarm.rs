//! A connection's alarm: set anew for each wait. A timer that is put off costs nothing that others must wait for; one that is made for each
//! request goes into the runtime's wheel and out again.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Holds the timer while nobody waits. It may go off then, which wakes the connection's task once, for nothing.
#[derive(Clone, Default)]
pub struct Alarm(Arc<Mutex<Option<Pin<Box<Sleep>>>>>);

/// The timer while somebody waits; it goes back when dropped.
struct Set {
    sleep: Option<Pin<Box<Sleep>>>,
    alarm: Alarm,
}

impl Alarm {
    /// Waits for the future until then; `None` when that was too short.
    pub(crate) async fn wait<F: Future>(&self, deadline: Instant, future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        let mut set = None;
        poll_fn(|context| {
            if let Poll::Ready(done) = future.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            // What is done at once needs no timer.
            let set = set.get_or_insert_with(|| self.set(deadline));
            Pin::new(set).poll(context).map(|()| None)
        })
        .await
    }

    fn set(&self, deadline: Instant) -> Set {
        let mut sleep = self.kept().take();
        match &mut sleep {
            Some(sleep) => sleep.as_mut().reset(deadline),
            None => sleep = Some(Box::pin(tokio::time::sleep_until(deadline))),
        }
        Set { sleep, alarm: self.clone() }
    }

    fn kept(&self) -> MutexGuard<'_, Option<Pin<Box<Sleep>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Future for Set {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.sleep.as_mut().map_or(Poll::Ready(()), |sleep| sleep.as_mut().poll(context))
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        *self.alarm.kept() = self.sleep.take();
    }
}

impl hyper::rt::Sleep for Set {}

/// For one connection, whose protocol waits for one thing at a time.
impl hyper::rt::Timer for Alarm {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(self.set(Instant::now() + duration))
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(self.set(deadline.into()))
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(patience: Duration) -> Instant {
        Instant::now() + patience
    }

    const SHORT: Duration = Duration::from_millis(2);
    const LONG: Duration = Duration::from_secs(600);

    /// Sooner than last time as well as later, and after it went off.
    #[tokio::test]
    async fn it_goes_off_each_time_it_is_set() {
        let alarm = Alarm::default();
        for patience in [LONG, SHORT, SHORT, LONG, LONG, SHORT] {
            if patience == LONG {
                assert_eq!(alarm.wait(after(LONG), tokio::task::yield_now()).await, Some(()));
            } else {
                let begun = Instant::now();
                assert_eq!(alarm.wait(after(SHORT), std::future::pending::<()>()).await, None);
                assert!(begun.elapsed() >= SHORT);
            }
        }
    }

    #[tokio::test]
    async fn one_timer_serves_all_waits_and_none_is_made_for_what_is_done() {
        let alarm = Alarm::default();
        assert_eq!(alarm.wait(after(LONG), async { 7 }).await, Some(7));
        assert!(alarm.kept().is_none());
        let mut given_up = Box::pin(alarm.wait(after(LONG), std::future::pending::<()>()));
        assert!(futures_util::poll!(given_up.as_mut()).is_pending());
        assert!(alarm.kept().is_none());
        drop(given_up);
        assert!(alarm.kept().is_some());
        assert_eq!(alarm.wait(after(SHORT), std::future::pending::<()>()).await, None);
        assert!(alarm.kept().is_some());
    }
}
