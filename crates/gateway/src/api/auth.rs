//! Which tokens are believed: the operator's own, and the named ones of the store. All are kept as hashes. The store is asked for its list every
//! other second at most, never per request; whoever guesses is counted, logged and slowed down by address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::Request;
use hapax_store::clock::Clock;
use hapax_store::{Store, StoreError, in_time};
use http::{HeaderMap, header};
use subtle::ConstantTimeEq;
use tokio::sync::watch;

use super::caller::TokenHash;
use super::guesses::Guesses;
use super::{Api, Caller, Code, Problem, tokens};
use crate::connections::peer::{Peer, Proxies};
use crate::connections::places::Standing;
use crate::telemetry::Telemetry;

/// The setting that holds the hash of the token made at the first start.
pub const MADE_TOKEN: &str = "admin_token_hash";
/// Settings that belong to one installation and are never moved to another store.
const NEVER_MOVED: [&str; 2] = [MADE_TOKEN, tokens::SETTING];
/// What registers of sessions and of links to sign in begin with.
pub(crate) const OF_PAGES: &str = "web:";

/// A token that was revoked elsewhere is believed this long at most.
const LIST_HOLDS_MS: i64 = 2_000;
const LIST_PATIENCE: Duration = Duration::from_millis(1_500);
/// The last use of a token is written down this often at most.
const USE_NOTED_MS: i64 = 60_000;

/// Whether a register belongs to one installation.
pub fn is_never_moved(register: &str) -> bool {
    NEVER_MOVED.contains(&register) || register.starts_with(OF_PAGES)
}

/// What is kept of a token. Tokens are long and random, so a plain hash cannot be searched.
pub fn hash_token(token: &str) -> [u8; 32] {
    *blake3::hash(token.as_bytes()).as_bytes()
}

/// The token that opens everything.
#[derive(Clone, Copy, Debug)]
pub enum OperatorToken {
    /// Set by the operator.
    Configured([u8; 32]),
    /// Made at the first start, and good as long as the store knows it.
    Made([u8; 32]),
}

/// Decides who is believed.
pub struct Auth {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    pub(super) telemetry: Arc<Telemetry>,
    proxies: Proxies,
    operator: OperatorToken,
    listed: Mutex<Arc<Listed>>,
    made_is_forgotten: AtomicBool,
    /// Held by the one who asks the store.
    asking: tokio::sync::Mutex<()>,
    guesses: Arc<Mutex<Guesses>>,
    /// Raised whenever the list was changed here.
    revision: watch::Sender<u64>,
}

/// What the store said, and when it was asked.
struct Listed {
    asked_ms: Option<i64>,
    /// False until the store has answered once.
    known: bool,
    operator: Option<[u8; 32]>,
    tokens: HashMap<[u8; 32], Entry>,
}

/// A list of tokens by which somebody was believed.
pub(crate) struct ByList(Arc<Listed>);

struct Entry {
    caller: Caller,
    used_ms: AtomicI64,
}

impl Auth {
    pub fn new(
        operator: OperatorToken,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        proxies: Proxies,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        let configured = match operator {
            OperatorToken::Configured(hash) => Some(hash),
            OperatorToken::Made(_) => None,
        };
        let listed = Listed { asked_ms: None, known: false, operator: configured, tokens: HashMap::new() };
        let listed = Mutex::new(Arc::new(listed));
        let (made_is_forgotten, asking, guesses) = Default::default();
        let revision = watch::Sender::default();
        Self { store, clock, telemetry, proxies, operator, listed, made_is_forgotten, asking, guesses, revision }
    }

    /// Says whose token a request carries, or what is wrong with it. A wrong one is answered late, and later each time.
    pub async fn caller(&self, headers: &HeaderMap, peer: Option<Peer>) -> Result<Caller, Problem> {
        let token = token_of(headers)?;
        self.holder(token, headers, peer).await
    }

    /// Says whose token this is. The headers tell only from where it came.
    pub async fn holder(&self, token: &str, headers: &HeaderMap, peer: Option<Peer>) -> Result<Caller, Problem> {
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
        let from = self.proxies.origin(peer, headers);
        let listed = self.listed().await;
        let hash = hash_token(token);
        match listed.find(&hash) {
            Some((caller, entry)) => {
                if let Some(entry) = entry {
                    self.note_use(entry, hash);
                }
                Ok(caller)
            }
            None if !listed.known => {
                Err(Problem::from(StoreError::Busy).and("; tokens are kept in the store, which cannot be asked now"))
            }
            None if self.guesses().is_crowded(from) => {
                Err(Problem::too_many("too many wrong tokens came from this address and still wait for their answer"))
            }
            None => {
                let failed = self.guesses().failed(from, self.clock.now_ms());
                if failed.worth_a_line {
                    self.telemetry.token_refused(Some(from), failed.count);
                } else {
                    self.telemetry.token_refused(None, failed.count);
                }
                let _waiting = Waiting { guesses: Arc::clone(&self.guesses), place: failed.place };
                tokio::time::sleep(failed.delay).await;
                Err(refused("this token is not one that this server knows"))
            }
        }
    }

    /// Where a request came from, as far as that can be known.
    pub(crate) fn origin(&self, peer: Peer, headers: &HeaderMap) -> IpAddr {
        self.proxies.origin(peer.0, headers)
    }

    /// Whose token this is that was believed before, for what stays open longer than a request. `None`: nobody's any more.
    pub async fn still_believes(&self, hash: &[u8; 32]) -> Option<Caller> {
        self.listed().await.find(hash).map(|(caller, _)| caller)
    }

    /// Whether the list by which somebody was believed is the last one, and need not be asked for anew.
    pub(crate) fn believes_by(&self, by: Option<&ByList>) -> bool {
        let Some(ByList(list)) = by else { return false };
        let held = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::ptr_eq(list, &held) && held.is_fresh(self.clock.now_ms())
    }

    /// Whose token it is for who asks often; `by` becomes the list that says so.
    pub(crate) async fn believes_still(
        &self,
        hash: &[u8; 32],
        by: &mut Option<ByList>,
        may: impl Fn(&Caller) -> bool + Send,
    ) -> bool {
        let listed = self.listed().await;
        let believed = listed.find(hash).is_some_and(|(caller, _)| may(&caller));
        *by = believed.then_some(ByList(listed));
        believed
    }

    /// What cursors are made with: known to every instance of an installation, and to nobody who has only a named token.
    pub(super) fn cursor_key(&self) -> [u8; 32] {
        let (OperatorToken::Configured(hash) | OperatorToken::Made(hash)) = &self.operator;
        blake3::derive_key("hapax cursors of lists", hash)
    }

    /// A random word that everybody can tell from one that was not made here, without asking the store.
    pub(crate) fn make_word(&self) -> String {
        let random = rand::random::<[u8; 32]>();
        hex::encode([&random[..], &self.word_check(&random)[..]].concat())
    }

    pub(crate) fn has_made(&self, word: &str) -> bool {
        let mut bytes = [0; 48];
        let Ok(()) = hex::decode_to_slice(word, &mut bytes) else { return false };
        let (random, check) = bytes.split_at(32);
        bool::from(self.word_check(random).ct_eq(check))
    }

    fn word_check(&self, random: &[u8]) -> [u8; 16] {
        let (OperatorToken::Configured(hash) | OperatorToken::Made(hash)) = &self.operator;
        let key = blake3::derive_key("hapax words of sessions and links", hash);
        let mut check = [0; 16];
        blake3::Hasher::new_keyed(&key).update(random).finalize_xof().fill(&mut check);
        check
    }

    /// The list was changed here: it is read anew before anybody is believed again.
    pub(super) fn changed(&self) {
        let mut held = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = held.tokens.iter().map(|(hash, entry)| (*hash, entry.again()));
        *held = Arc::new(Listed { asked_ms: None, known: held.known, operator: held.operator, tokens: entries.collect() });
        drop(held);
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Tells of every change of the list here, to what stays open longer than a request.
    pub(super) fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Ends when the token of a request that waits is not believed any more. What a token may do never changes.
    pub(super) async fn turned_away(&self, headers: &HeaderMap) -> Problem {
        let hash = match token_of(headers) {
            Ok(token) => hash_token(token),
            Err(problem) => return problem,
        };
        let mut revisions = self.revisions();
        while self.still_believes(&hash).await.is_some() {
            if revisions.changed().await.is_err() {
                return Problem::stopping();
            }
        }
        refused("this token was revoked")
    }

    fn guesses(&self) -> std::sync::MutexGuard<'_, Guesses> {
        self.guesses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> Arc<Listed> {
        Arc::clone(&self.listed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The list, not older than [`LIST_HOLDS_MS`], or the last one there was while the store is away.
    async fn listed(&self) -> Arc<Listed> {
        let held = self.held();
        if held.is_fresh(self.clock.now_ms()) {
            return held;
        }
        let _one_at_a_time = self.asking.lock().await;
        let held = self.held();
        if held.is_fresh(self.clock.now_ms()) {
            return held;
        }
        let asked_ms = Some(self.clock.now_ms());
        let listed = match in_time("reading the tokens", LIST_PATIENCE, self.ask()).await {
            Ok((operator, tokens)) => Listed { asked_ms, known: true, operator, tokens },
            Err(error) => {
                self.telemetry.store_unavailable("amend", &error);
                let entries = held.tokens.iter().map(|(hash, entry)| (*hash, entry.again()));
                Listed { asked_ms, known: held.known, operator: held.operator, tokens: entries.collect() }
            }
        };
        let listed = Arc::new(listed);
        let mut current = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        // One that was changed here meanwhile is read once more by whoever comes next.
        if Arc::ptr_eq(&current, &held) {
            *current = Arc::clone(&listed);
        }
        listed
    }

    async fn ask(&self) -> Result<(Option<[u8; 32]>, HashMap<[u8; 32], Entry>), StoreError> {
        let operator = match self.operator {
            OperatorToken::Configured(hash) => {
                self.forget_made().await?;
                Some(hash)
            }
            OperatorToken::Made(hash) => {
                let kept = self.store.amend(MADE_TOKEN, None, None, None).await?;
                (kept == Some(hex::encode(hash))).then_some(hash)
            }
        };
        let entry = |token: tokens::Token| {
            let used_ms = AtomicI64::new(token.used_ms.unwrap_or(i64::MIN));
            let hash = token.hash()?;
            Some((hash, Entry { caller: token.caller(hash), used_ms }))
        };
        Ok((operator, tokens::read(&*self.store).await?.into_iter().filter_map(entry).collect()))
    }

    /// Where the operator has set a token, one made earlier must not open the door again when that is unset. Done at the start, and here if
    /// the store was away then.
    async fn forget_made(&self) -> Result<(), StoreError> {
        if self.made_is_forgotten.load(Ordering::Relaxed) {
            return Ok(());
        }
        forget_made(&*self.store).await?;
        self.made_is_forgotten.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Writes down when a token was used, now and then, and without keeping the request waiting.
    fn note_use(&self, entry: &Entry, hash: [u8; 32]) {
        let (now_ms, last_ms) = (self.clock.now_ms(), entry.used_ms.load(Ordering::Relaxed));
        let due = now_ms.saturating_sub(last_ms) >= USE_NOTED_MS;
        if !due || entry.used_ms.compare_exchange(last_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let (store, telemetry) = (Arc::clone(&self.store), Arc::clone(&self.telemetry));
        tokio::spawn(async move {
            if let Err(error) = tokens::note_use(&*store, &hash, now_ms).await {
                telemetry.store_unavailable("amend", &error);
            }
        });
    }
}

impl Listed {
    fn is_fresh(&self, now_ms: i64) -> bool {
        self.asked_ms.is_some_and(|asked_ms| now_ms - asked_ms < LIST_HOLDS_MS)
    }

    /// Whose token it is. The operator's is compared in constant time; the others are found by their hash, which nobody can choose.
    fn find(&self, hash: &[u8; 32]) -> Option<(Caller, Option<&Entry>)> {
        if self.operator.is_some_and(|operator| bool::from(operator.ct_eq(hash))) {
            return Some((Caller::operator(TokenHash(*hash)), None));
        }
        self.tokens.get(hash).map(|entry| (entry.caller.clone(), Some(entry)))
    }
}

impl Entry {
    fn again(&self) -> Self {
        Self { caller: self.caller.clone(), used_ms: AtomicI64::new(self.used_ms.load(Ordering::Relaxed)) }
    }
}

/// A wrong guess whose answer is held back. Whoever hangs up stops waiting.
struct Waiting {
    guesses: Arc<Mutex<Guesses>>,
    place: IpAddr,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.guesses.lock().unwrap_or_else(PoisonError::into_inner).answered(self.place);
    }
}

/// Forgets the token made at the first start.
pub async fn forget_made(store: &dyn Store) -> Result<(), StoreError> {
    let mut kept = store.amend(MADE_TOKEN, None, None, None).await?;
    while let Some(hash) = kept {
        kept = store.amend(MADE_TOKEN, Some(&hash), None, None).await?;
    }
    Ok(())
}

fn token_of(headers: &HeaderMap) -> Result<&str, Problem> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(bearer);
    given.ok_or_else(|| refused("the token is missing"))
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn refused(what: &str) -> Problem {
    let todo = "send `Authorization: Bearer TOKEN` with one of `hapax token create`, with the one that the first start has written to \
                hapax.token, or set HAPAX_ADMIN_TOKEN for the server and use that";
    Problem::new(Code::Unauthorized, format!("{what}; {todo}"))
}

/// Whose token a request has; it carries that along.
pub(super) async fn identify(api: &Api, mut request: Request) -> Result<(Caller, Request), Problem> {
    let peer = request.extensions().get::<Peer>().copied();
    let caller = api.auth.caller(request.headers(), peer).await?;
    request.extensions().get::<Standing>().inspect(|standing| standing.proved());
    request.extensions_mut().insert(caller.clone());
    Ok((caller, request))
}
