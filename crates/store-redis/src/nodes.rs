//! The servers behind the address: a single one, or the masters of a cluster, each with a connection of its own.
//!
//! Every call names the slot of its account, and goes to the master that has it. A `MOVED` is followed at once. An `ASK` is not: while a slot
//! is on its way from one node to another its keys are on both, and a script that needs all of them would decide by a part. Such
//! a call is made again until the slot has arrived, and fails when that takes too long.
//!
//! The cluster connection of the `redis` crate is not used: it cannot tell which connection made a write, which `WAIT` must know, it follows
//! `ASK`, and while it looks for a lost node it holds up the calls to all others.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join_all, select_ok};
use hapax_store::StoreError;
use redis::{ConnectionInfo, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::address::Address;
use super::link::{failed, late};
use super::node::Node;
use super::row::{Row, odd};
use super::script::Call;
use super::settings::read_info;

/// How often the cluster is looked at when nothing is wrong.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long such a look may take, so that a node which hangs does not keep the news from the others waiting.
const LOOK_TIME: Duration = Duration::from_millis(400);
/// The shortest time between two looks.
const LOOK_GAP: Duration = Duration::from_millis(50);
/// A slot that has moved again before the call arrived is found on another look.
const REDIRECTS_MAX: usize = 3;
const SLOTS: u16 = 16_384;

pub(super) struct Nodes {
    seeds: Vec<Arc<Node>>,
    is_cluster: bool,
    map: RwLock<Map>,
    /// Something is not as the map says.
    again: Arc<Notify>,
    lookout: JoinHandle<()>,
}

/// Which master has which slots. A single server has all.
#[derive(Default)]
struct Map {
    masters: BTreeMap<String, Arc<Node>>,
    /// First and last slot, in order.
    ranges: Vec<(u16, u16, Arc<Node>)>,
    /// What was told by the way since the map was made.
    moved: HashMap<u16, Arc<Node>>,
}

impl Nodes {
    /// Finds out what is behind the address.
    pub(super) async fn find(address: &Address) -> Result<Arc<Self>, StoreError> {
        let database = address.seeds[0].redis_settings().db();
        let again = Arc::new(Notify::new());
        let node = |info: ConnectionInfo| {
            Node::new(info, &again).map(Arc::new).map_err(|error| failed("reading the address of redis", error))
        };
        // The nodes of a cluster have one database only, and refuse the others before they can be asked what they are.
        let first = |info: &ConnectionInfo| node(info.clone().set_redis_settings(info.redis_settings().clone().set_db(0)));
        let seeds = address.seeds.iter().map(first).collect::<Result<Vec<_>, _>>()?;
        let asked = seeds.iter().map(|seed| ask_whether_cluster(seed).boxed());
        let (is_cluster, _) = select_ok(asked).await?;
        if !is_cluster && seeds.len() > 1 {
            let why = "the address names several servers, and they are no cluster: give hapax the address of one";
            return Err(StoreError::Refused(why.to_owned()));
        }
        if is_cluster && database != 0 {
            let why = format!(
                "a redis cluster has only database 0, and the address asks for {database}; use ?prefix= to tell installations apart"
            );
            return Err(StoreError::Refused(why));
        }
        let seeds = if database == 0 { seeds } else { vec![node(address.seeds[0].clone())?] };
        let nodes = Arc::new_cyclic(|nodes| {
            let lookout = tokio::spawn(keep_looking(Weak::clone(nodes), Arc::clone(&again)));
            Self { map: RwLock::new(Map::of_one(&seeds[0])), seeds, is_cluster, again, lookout }
        });
        if is_cluster {
            *nodes.map.write().unwrap_or_else(PoisonError::into_inner) = nodes.ask_map(&nodes.seeds).await?;
        }
        Ok(nodes)
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// The single server, or all masters.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        self.map().masters.values().cloned().collect()
    }

    /// Those that may be asked anything, in the order to try.
    pub(super) fn anyone(&self) -> Vec<Arc<Node>> {
        let mut masters = self.masters();
        let first = rand::random_range(0..masters.len().max(1));
        masters.rotate_left(first);
        masters.extend(self.seeds.iter().cloned());
        masters
    }

    /// The master that has a key.
    pub(super) fn of(&self, key: &str) -> Arc<Node> {
        self.map().of(slot_of(key)).unwrap_or_else(|| Arc::clone(&self.seeds[0]))
    }

    /// Makes a call once, where its account is.
    pub(super) async fn call(&self, call: &Call, safely: bool) -> RedisResult<Value> {
        let mut node = self.of(&call.root);
        for _ in 0..REDIRECTS_MAX {
            match node.call(call, safely).await {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Moved) => node = self.moved(&node, &error)?,
                answer => return answer,
            }
        }
        node.call(call, safely).await
    }

    /// Something is wrong: have the map made again, soon.
    pub(super) fn look_again(&self) {
        self.again.notify_one();
    }

    fn map(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down where a slot is now, and has the whole map made again: slots seldom move alone.
    fn moved(&self, told_by: &Node, error: &RedisError) -> RedisResult<Arc<Node>> {
        let (place, slot) = error.redirect_node().ok_or_else(|| error.clone())?;
        let (host, port) = place.rsplit_once(':').ok_or_else(|| error.clone())?;
        let port = port.parse().map_err(|_| error.clone())?;
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let node = map.known(told_by.neighbour(host, port), &self.again)?;
        map.moved.insert(slot, Arc::clone(&node));
        self.look_again();
        Ok(node)
    }

    async fn look(&self) {
        if self.is_cluster {
            let masters = self.masters();
            let asked = match self.ask_map(&masters).await {
                Ok(map) => Ok(map),
                Err(_) => self.ask_map(&self.seeds).await,
            };
            match asked {
                Ok(map) => *self.map.write().unwrap_or_else(PoisonError::into_inner) = map,
                Err(error) => tracing::debug!(%error, "nobody told where the slots of the cluster are"),
            }
        }
        self.count_replicas().await;
    }

    pub(super) async fn count_replicas(&self) {
        let masters = self.masters();
        join_all(masters.iter().map(|node| timeout(LOOK_TIME, node.count_replicas()))).await;
    }

    /// The map as the first to answer has it.
    async fn ask_map(&self, nodes: &[Arc<Node>]) -> Result<Map, StoreError> {
        let ask = async |node: &Arc<Node>| {
            let command = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
            let answer = timeout(LOOK_TIME, node.ask("looking at the cluster", &command)).await;
            self.read_map(node, answer.unwrap_or_else(|_| Err(late("looking at the cluster")))?)
        };
        let (map, _) = select_ok(nodes.iter().map(|node| ask(node).boxed())).await?;
        Ok(map)
    }

    fn read_map(&self, told_by: &Node, answer: Value) -> Result<Map, StoreError> {
        let mut map = Map { masters: self.map().masters.clone(), ..Map::default() };
        for row in Row::new(answer)?.rows() {
            let mut row = row?;
            let (first, last, mut master) = (small(&mut row)?, small(&mut row)?, row.row()?);
            // Nothing, or nothing in it: where the one is that was asked.
            let host = master.maybe_text()?.unwrap_or_default();
            let port = small(&mut master)?;
            if host != "?" {
                let node = map
                    .known(told_by.neighbour(&host, port), &self.again)
                    .map_err(|error| failed("looking at the cluster", error))?;
                map.ranges.push((first, last, node));
            }
        }
        map.ranges.sort_by_key(|(first, ..)| *first);
        map.masters.retain(|_, node| map.ranges.iter().any(|(.., master)| Arc::ptr_eq(master, node)));
        match map.gap() {
            None => Ok(map),
            Some(slot) => {
                let source = format!("slot {slot} of the cluster is nobody's").into();
                Err(StoreError::Failed { what: "looking at the cluster", retryable: true, source })
            }
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.lookout.abort();
    }
}

impl Map {
    fn of_one(node: &Arc<Node>) -> Self {
        let masters = BTreeMap::from([(node.name().to_owned(), Arc::clone(node))]);
        Self { masters, ranges: vec![(0, SLOTS - 1, Arc::clone(node))], moved: HashMap::new() }
    }

    fn of(&self, slot: u16) -> Option<Arc<Node>> {
        let ranged = || self.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot)).map(|(.., node)| node);
        self.moved.get(&slot).or_else(ranged).cloned()
    }

    /// The node of this address: the one that is known already, with its connection, or a new one.
    fn known(&mut self, info: ConnectionInfo, again: &Arc<Notify>) -> RedisResult<Arc<Node>> {
        let name = info.addr().to_string();
        if let Some(node) = self.masters.get(&name) {
            return Ok(Arc::clone(node));
        }
        let node = Arc::new(Node::new(info, again)?);
        self.masters.insert(name, Arc::clone(&node));
        Ok(node)
    }

    /// The first slot that nobody has.
    fn gap(&self) -> Option<u16> {
        let mut next = 0;
        for (first, last, _) in &self.ranges {
            if *first > next {
                break;
            }
            next = last + 1;
        }
        (next < SLOTS).then_some(next)
    }
}

async fn keep_looking(nodes: Weak<Nodes>, again: Arc<Notify>) {
    loop {
        // Whether it was called or the time has come, it looks.
        let _ = timeout(LOOK_EVERY, again.notified()).await;
        let Some(nodes) = nodes.upgrade() else { return };
        nodes.look().await;
        drop(nodes);
        tokio::time::sleep(LOOK_GAP).await;
    }
}

fn small(row: &mut Row) -> Result<u16, StoreError> {
    u16::try_from(row.int()?).map_err(|_| odd("a number out of range"))
}

async fn ask_whether_cluster(seed: &Node) -> Result<bool, StoreError> {
    let info = seed.ask_text("connecting to redis", redis::cmd("INFO").arg("cluster")).await?;
    Ok(read_info(&info).any(|(name, value)| name == "cluster_enabled" && value == "1"))
}

/// The slot of a key: the CRC16 (XMODEM) of its hash tag, which all of our keys have.
fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or(key, |(tag, _)| tag);
    let step = |crc: u16, byte: u8| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    };
    tag.bytes().fold(0, step) % SLOTS
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;

    /// The values are those of `CLUSTER KEYSLOT`.
    #[test]
    fn slots_are_as_redis_counts_them() {
        assert_eq!(slot_of("123456789"), 0x31c3);
        assert_eq!(slot_of("hapax:{all}:"), slot_of("all"));
        assert_eq!(
            (slot_of("foo"), slot_of("hapax:{7}:meta:"), slot_of("hapax:{1}:k:x{y}")),
            (12182, slot_of("7"), slot_of("1"))
        );
    }

    #[tokio::test]
    async fn a_map_with_a_hole_is_none() {
        let info = "redis://h".into_connection_info().expect("an address");
        let node = Arc::new(Node::new(info, &Arc::default()).expect("a node"));
        let map = |ranges: &[(u16, u16)]| Map {
            ranges: ranges.iter().map(|(first, last)| (*first, *last, Arc::clone(&node))).collect(),
            ..Map::default()
        };
        assert_eq!(map(&[(0, 99), (100, SLOTS - 1)]).gap(), None);
        assert_eq!(map(&[(0, 99), (101, SLOTS - 1)]).gap(), Some(100));
        assert_eq!((map(&[]).gap(), map(&[(0, SLOTS - 2)]).gap()), (Some(0), Some(SLOTS - 1)));
    }
}
