//! Which accounts there are, under which numbers, and in which channels: how a method that names no account finds all of them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapax_store::StoreError;

use super::link::Link;
use super::place::{ACCOUNTS_MAX, first_after};
use super::row::{Row, odd};
use super::script;

/// A copy of what is in the store. Accounts are only ever added, so what it holds is true until the server loses its data; that is noticed
/// by the version, and by the scripts that begin something for an account, which check its name.
#[derive(Default)]
pub(super) struct Registry {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    version: Vec<u8>,
    /// `None`: nobody has looked yet.
    moved: Option<WasMoved>,
    numbers: HashMap<String, u32>,
    names: HashMap<u32, Arc<str>>,
    places: BTreeSet<(u32, Arc<str>)>,
}

/// What was moved into the store from another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WasMoved {
    /// The highest number; 0: nothing was moved.
    pub(super) to: u64,
    /// Moved keys are still held.
    pub(super) has_keys: bool,
}

/// An account in a channel.
#[derive(Clone, Debug)]
pub(super) struct AccountInChannel {
    pub(super) account: u32,
    pub(super) name: Arc<str>,
    pub(super) channel: Arc<str>,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The account's number; it is given one, and written down in the channel, before anything else is written about it. Nobody looks for the
    /// account under its number before the number is known to be its own: a cluster may have lost the registry and kept other accounts.
    pub(super) async fn enter(&self, link: &Link, account: &str, channel: &Arc<str>) -> Result<u32, StoreError> {
        if let Some(number) = self.lock().seated(account, channel) {
            return Ok(number);
        }
        let (number, moved_to) = self.register(link, account, "").await?;
        let call = link.call(&script::NAME_ACCOUNT, number).arg(account).arg(first_after(moved_to)).arg(moved_to);
        link.run_safely("registering an account", call).await?;
        if self.register(link, account, channel).await?.0 != number {
            return Err(odd("an account whose number has changed"));
        }
        self.lock().add(account, number, channel);
        Ok(number)
    }

    /// The account's number, and the highest that was moved into this store.
    async fn register(&self, link: &Link, account: &str, channel: &str) -> Result<(u32, u64), StoreError> {
        let call = link.shared_call(&script::REGISTER).arg(account).arg(channel).arg(ACCOUNTS_MAX);
        let mut answer = Row::new(link.run_safely("registering an account", call).await?)?;
        Ok((answer.small()?, answer.maybe_int()?.unwrap_or(0).cast_unsigned()))
    }

    /// Forgets the copy: the server has lost what it was made from.
    pub(super) fn forget(&self) {
        *self.lock() = Known::default();
    }

    /// The number of an account, if it has one.
    pub(super) async fn find(&self, link: &Link, account: &str) -> Result<Option<u32>, StoreError> {
        if let Some(&number) = self.lock().numbers.get(account) {
            return Ok(Some(number));
        }
        self.refresh(link).await?;
        Ok(self.lock().numbers.get(account).copied())
    }

    /// The name of an account, if there is one of this number.
    pub(super) async fn name(&self, link: &Link, account: u32) -> Result<Option<Arc<str>>, StoreError> {
        if let Some(name) = self.lock().names.get(&account) {
            return Ok(Some(Arc::clone(name)));
        }
        self.refresh(link).await?;
        Ok(self.lock().names.get(&account).cloned())
    }

    /// What was moved into the store.
    pub(super) async fn moved(&self, link: &Link) -> Result<WasMoved, StoreError> {
        if let Some(moved) = self.lock().moved {
            return Ok(moved);
        }
        self.refresh(link).await?;
        Ok(self.lock().moved.unwrap_or_default())
    }

    /// Every account.
    pub(super) async fn accounts(&self, link: &Link) -> Result<Vec<AccountInChannel>, StoreError> {
        let mut entries = self.entries(link, None).await?;
        entries.dedup_by_key(|entry| entry.account);
        Ok(entries)
    }

    /// Every account in every channel, or in this one.
    pub(super) async fn entries(&self, link: &Link, channel: Option<&str>) -> Result<Vec<AccountInChannel>, StoreError> {
        self.refresh(link).await?;
        Ok(self.lock().entries(channel))
    }

    /// Reads the registry again if there is something new in it.
    async fn refresh(&self, link: &Link) -> Result<(), StoreError> {
        let version = self.lock().version.clone();
        let answer = link.run("reading the registry", link.shared_call(&script::REGISTRY).arg(version)).await?;
        let Some(mut answer) = Row::maybe_of(answer)? else {
            self.lock().moved.get_or_insert_default();
            return Ok(());
        };
        let mut known = Known { version: answer.bytes()?.to_vec(), ..Known::default() };
        let mut accounts = answer.row()?;
        let mut numbers = HashMap::new();
        while let Some(account) = accounts.maybe_text()? {
            numbers.insert(accounts.small()?, account);
        }
        let mut places = answer.row()?;
        while let Some(place) = places.maybe_text()? {
            let (number, channel) = place.split_once(':').ok_or_else(|| odd("no place"))?;
            let number = number.parse().map_err(|_| odd("no account number"))?;
            if let Some(account) = numbers.get(&number) {
                known.add(account, number, &channel.into());
            }
        }
        let to = answer.maybe_int()?.unwrap_or(0).cast_unsigned();
        known.moved = Some(WasMoved { to, has_keys: answer.maybe_int()?.is_some() });
        *self.lock() = known;
        Ok(())
    }
}

impl Known {
    fn seated(&self, account: &str, channel: &Arc<str>) -> Option<u32> {
        let number = *self.numbers.get(account)?;
        self.places.contains(&(number, Arc::clone(channel))).then_some(number)
    }

    fn add(&mut self, account: &str, number: u32, channel: &Arc<str>) {
        self.numbers.insert(account.to_owned(), number);
        self.names.entry(number).or_insert_with(|| account.into());
        self.places.insert((number, Arc::clone(channel)));
    }

    fn entries(&self, channel: Option<&str>) -> Vec<AccountInChannel> {
        let wanted = self.places.iter().filter(|(_, of)| channel.is_none_or(|channel| channel == &**of));
        let entry = |(account, channel): &(u32, Arc<str>)| {
            let name = self.names.get(account)?;
            Some(AccountInChannel { account: *account, name: Arc::clone(name), channel: Arc::clone(channel) })
        };
        wanted.filter_map(entry).collect()
    }
}
