//! How a text that several instances add to is changed in a register of the store.

use std::sync::atomic::{AtomicU64, Ordering};

use hapax_store::{Store, StoreError};

/// Somebody else may change it at the same time, but hardly this often.
const TRIES: u32 = 20;

/// Tells the writes of this process from those of all others: a text that two have made alike must not pass for one write.
pub(super) struct Marks {
    process: u64,
    next: AtomicU64,
}

impl Marks {
    pub(super) fn new(process: u64) -> Self {
        Self { process, next: AtomicU64::new(0) }
    }

    pub(super) fn next(&self) -> String {
        format!("{:x}.{:x}", self.process, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// Writes what `make` makes of what is there, and again when somebody was faster. What it makes has a mark of its own.
pub(super) async fn change(
    store: &dyn Store,
    name: &str,
    keep_ms: i64,
    mut make: impl FnMut(Option<&str>) -> String,
) -> Result<(), StoreError> {
    let mut there = store.amend(name, None, None, None).await?;
    for _ in 0..TRIES {
        let new = make(there.as_deref());
        let now = store.amend(name, there.as_deref(), Some(&new), Some(keep_ms)).await?;
        if now.as_deref() == Some(new.as_str()) {
            return Ok(());
        }
        there = now;
    }
    Err(StoreError::Busy)
}
