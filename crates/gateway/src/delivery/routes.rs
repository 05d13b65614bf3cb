//! Which target an item goes to: an account may have one of its own, and no target holds up another.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use hapax_store::{Outcome, Resting};

use super::places::Line;
use super::target::{Target, client_for};
use crate::channels::Channel;
use crate::http_client::{BadCalls, Client};
use crate::settings::{self, Mode};
use crate::telemetry::Telemetry;

/// Items of one channel that are worked on at once, however many targets it has.
const SLOTS_MAX: usize = 10_000;

/// How soon an item without a target is looked at again, and how far apart two of them.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
const LOOK_APART: Duration = Duration::from_millis(10);

/// The targets of one channel.
pub(super) struct Routes {
    pub(super) settings: Arc<settings::Channel>,
    default: Option<Arc<Target>>,
    accounts: HashMap<String, Arc<Target>>,
    /// Each of them once: accounts with the same address share a target.
    targets: Vec<Arc<Target>>,
    /// Outcomes that are known and that the store did not take yet.
    pub(super) unsettled: AtomicUsize,
    without_target: Line,
}

impl Routes {
    pub(super) fn new(channel: &Channel, client: &Client, telemetry: &Telemetry) -> Result<Self, BadCalls> {
        let settings = Arc::clone(&channel.settings);
        let mut addresses: Vec<&str> = settings.addresses().collect();
        addresses.sort_unstable();
        addresses.dedup();
        let alone = addresses.len() == 1;
        let client = &client_for(&settings, client)?;
        let mut made: BTreeMap<&str, Arc<Target>> = BTreeMap::new();
        let mut targets = Vec::new();
        let mut target_at = |address, account: Option<&str>| -> Result<Arc<Target>, BadCalls> {
            if let Some(target) = made.get(address) {
                return Ok(Arc::clone(target));
            }
            let target = Arc::new(Target::new(channel.clone(), address, account, alone, client, telemetry)?);
            made.insert(address, Arc::clone(&target));
            targets.push(Arc::clone(&target));
            Ok(target)
        };
        let default = settings.target.as_deref().map(|address| target_at(address, None)).transpose()?;
        let mut accounts = HashMap::new();
        for (account, address) in &settings.targets {
            accounts.insert(account.clone(), target_at(address, Some(account))?);
        }
        let without_target = Line::default();
        Ok(Self { default, accounts, targets, unsettled: AtomicUsize::new(0), without_target, settings: Arc::clone(&settings) })
    }

    /// Where events of this account go.
    pub(super) fn target(&self, account: &str) -> Option<&Arc<Target>> {
        self.accounts.get(account).or(self.default.as_ref())
    }

    /// Sorts events, named by account and index, by where they go. `None` when one of them goes nowhere.
    pub(super) fn split(&self, events: &[(String, u32)]) -> Option<Vec<(&Target, Vec<u32>)>> {
        let mut parts: Vec<(&Target, Vec<u32>)> = Vec::new();
        for (account, index) in events {
            let target = &**self.target(account)?;
            match parts.iter_mut().find(|(of, _)| std::ptr::eq(*of, target)) {
                Some((_, indexes)) => indexes.push(*index),
                None => parts.push((target, vec![*index])),
            }
        }
        Some(parts)
    }

    /// Room for each target to be as busy as it may be: one that takes its time leaves the places of the others free.
    pub(super) fn slots(&self) -> usize {
        self.settings.concurrency.saturating_mul(self.targets.len()).clamp(1, SLOTS_MAX)
    }

    /// The accounts whose target is down, while another one is not: what waits for them stays where it is, and holds up nobody.
    pub(super) fn resting(&self, now_ms: i64) -> Option<Resting> {
        if self.settings.mode == Mode::Proxy {
            // Whoever waits for the answer is told at once.
            return None;
        }
        let is_down = |target: &Arc<Target>| target.circuit.allowance(now_ms) == 0;
        let others = self.default.as_ref().is_some_and(is_down);
        let named = self.accounts.iter().filter(|(_, target)| is_down(target) != others);
        let mut accounts: Vec<String> = named.map(|(account, _)| account.clone()).collect();
        accounts.sort_unstable();
        (!accounts.is_empty()).then(|| Resting { channel: Arc::clone(&self.settings.name), accounts, others })
    }

    /// The most items worth leasing now. Which target they are for shows only when they are leased.
    pub(super) fn allowance(&self, now_ms: i64) -> usize {
        self.targets.iter().map(|target| target.circuit.allowance(now_ms)).fold(0, usize::saturating_add)
    }

    pub(super) fn retire(&self) {
        self.targets.iter().for_each(|target| target.telemetry.retire());
    }

    /// What becomes of an item whose account has no target.
    pub(super) fn without_target(&self, account: &str) -> Outcome {
        let name = &self.settings.name;
        let why = format!("account {account} has no target: add it to [channel.{name}.targets], or set `target` for all others");
        Outcome::HandBack {
            wait_ms: self.without_target.wait_ms(Instant::now(), LOOK_AGAIN, LOOK_APART),
            why: Some(why),
            called: false,
        }
    }
}
