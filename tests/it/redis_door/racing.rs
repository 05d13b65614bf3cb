//! 200 callers with redis-py, one key, two instances: one winner.

use std::sync::Arc;

use hapax::StoreUrl;
use hapax_store::clock::{Clock, SystemClock};
use hapax_testkit::servers::Engine;

use super::clients::{client, said_json};
use super::{OpenDoor, TOKEN};
use crate::rig::Opened;

const CALLERS: &str = "200";

async fn one_of_many_wins(doors: Vec<OpenDoor>) {
    let ports: Vec<u16> = doors.iter().map(|door| door.at.port()).collect();
    for key in ["first", "second"] {
        let Some(mut python) = client("redis_door.py", &ports, TOKEN) else { return };
        python.args(["race", CALLERS, key]);
        let said = said_json(python).await;
        let won = said["won"].as_array().expect("a list");
        assert_eq!(won.len(), 1, "{said}");
        assert!(said["holder"].as_array().is_some_and(|holders| holders.iter().all(|holder| *holder == won[0])), "{said}");
    }
    for door in doors {
        door.stop().await;
    }
}

/// A second instance on one database.
async fn two_on(engine: Engine) {
    let Some(server) = engine.shared().await else { return };
    let url = server.fresh().await;
    let address = StoreUrl::read(&url).expect("an address");
    let mut doors = Vec::new();
    for _ in 0..2 {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let options = hapax::Options { queue: 10_000, disk_floor_bytes: 0 };
        let store = hapax::open_store(&address, &options, Arc::clone(&clock)).await.expect("it opens");
        doors.push(OpenDoor::start(Opened { store, clock, folder: None }).await);
    }
    one_of_many_wins(doors).await;
    server.remove(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_embedded_store() {
    one_of_many_wins(vec![OpenDoor::start(Opened::sqlite()).await]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_instances_of_postgres() {
    two_on(Engine::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_instances_of_mariadb() {
    two_on(Engine::Mariadb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_instances_of_redis() {
    two_on(Engine::Redis).await;
}
