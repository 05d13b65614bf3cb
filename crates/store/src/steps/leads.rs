//! Where names have led lately. A step that knows it before it begins locks all at once, in one order; one that has to look it up first has
//! locked something by then, and may stand in the way of another that waits for just that.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names that are remembered; when there are more, all are let go.
const NAMES_MAX: usize = 50_000;

/// A hint and no more: what a name leads to is looked up all the same.
#[derive(Default)]
pub(super) struct Leads(Mutex<HashMap<(String, String), String>>);

impl Leads {
    /// The other name that a name led to when it was last looked up.
    pub(super) fn of(&self, account: &str, name: &str) -> Option<String> {
        self.lock().get(&(account.to_owned(), name.to_owned())).cloned()
    }

    pub(super) fn note<'n>(&self, led: impl Iterator<Item = (&'n str, &'n str, &'n str)>) {
        for (account, name, root) in led.filter(|(_, name, root)| name != root) {
            let mut leads = self.lock();
            if leads.len() >= NAMES_MAX {
                leads.clear();
            }
            leads.insert((account.to_owned(), name.to_owned()), root.to_owned());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
