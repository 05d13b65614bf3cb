//! What one open page finds serves the others that were told of the same moment.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::api::{Problem, TokenHash};

/// Different things that open pages show. With more, each page finds for itself what is not kept.
const KEPT_MAX: usize = 16;
/// A page that nobody tells anything, because too many listen, still sees what is new.
const HOLDS: Duration = Duration::from_secs(2);

/// Whose rights it was found with, by which filter, and at most how many rows.
type Asked<'a> = (TokenHash, &'a str, usize);

pub(super) struct Shared<T>(Mutex<Vec<Arc<Kept<T>>>>);

struct Kept<T> {
    token: TokenHash,
    filter: String,
    rows: usize,
    /// Before it was looked for.
    begun: Instant,
    found: OnceCell<Arc<T>>,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Shared<T> {
    /// What somebody has looked for since then, is looking for, or else `find`.
    pub(super) async fn find(
        &self,
        asked: Asked<'_>,
        since: Option<Instant>,
        now: Instant,
        find: impl Future<Output = Result<T, Problem>>,
    ) -> Result<Arc<T>, Problem> {
        let kept = self.kept(asked, since, now);
        let found = kept.found.get_or_try_init(|| async { find.await.map(Arc::new) }).await;
        found.map(Arc::clone)
    }

    fn kept(&self, (token, filter, rows): Asked<'_>, since: Option<Instant>, now: Instant) -> Arc<Kept<T>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |kept: &Kept<T>| since.is_some_and(|since| kept.begun > since) && now < kept.begun + HOLDS;
        all.retain(|kept| is_fresh(kept));
        let is_it = |kept: &&Arc<Kept<T>>| kept.token == token && kept.filter == filter && kept.rows == rows;
        if let Some(kept) = all.iter().find(is_it) {
            return Arc::clone(kept);
        }
        let kept = Arc::new(Kept { token, filter: filter.to_owned(), rows, begun: now, found: OnceCell::new() });
        if all.len() < KEPT_MAX {
            all.push(Arc::clone(&kept));
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn what_was_found_since_serves_whoever_asks_the_same_with_the_same_rights() {
        let (shared, looks, told) = (Shared::default(), AtomicU64::new(0), Instant::now());
        let ask = async |token: u8, filter: &str, since, now| {
            let look = async { Ok(looks.fetch_add(1, Ordering::Relaxed)) };
            *shared.find((TokenHash([token; 32]), filter, 40), since, now, look).await.expect("found")
        };
        let (since, now) = (Some(told), told + MOMENT);
        let (one, other) = tokio::join!(ask(1, "", since, now), ask(1, "", since, now));
        assert_eq!((one, other), (0, 0), "together");
        assert_eq!(ask(1, "", since, now + MOMENT).await, 0, "and afterwards");
        assert_eq!(ask(2, "", since, now).await, 1, "another's rights");
        assert_eq!(ask(1, "state:parked", since, now).await, 2, "another filter");
        assert_eq!(ask(1, "", Some(now), now + MOMENT).await, 3, "something was told since");
        assert_eq!(ask(1, "", None, now).await, 4, "nobody knows since when");
        assert_eq!(ask(1, "", since, now).await, 4);
        assert_eq!(ask(1, "", since, now + HOLDS).await, 5, "long ago");
    }

    #[tokio::test]
    async fn what_could_not_be_found_is_looked_for_again() {
        let (shared, told) = (Shared::default(), Instant::now());
        let ask = async |found: Result<u8, Problem>| {
            shared.find((TokenHash([1; 32]), "", 40), Some(told), told + MOMENT, async { found }).await
        };
        assert!(ask(Err(Problem::stopping())).await.is_err());
        assert_eq!(*ask(Ok(7)).await.expect("found"), 7);
        assert_eq!(*ask(Ok(8)).await.expect("found"), 7);
    }
}
