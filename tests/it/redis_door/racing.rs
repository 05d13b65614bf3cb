//! 200 callers with redis-py, one key, two instances: one winner.

use hapax_testkit::servers::Engine;

use super::clients::{client, said_json};
use super::{OpenDoor, TOKEN};
use crate::rig::{Opened, on_two_instances};

const CALLERS: &str = "200";

async fn one_of_many_wins(opened: Vec<Opened>) {
    let mut doors = Vec::new();
    for opened in opened {
        doors.push(OpenDoor::start(opened).await);
    }
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_embedded_store() {
    one_of_many_wins(vec![Opened::sqlite()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_instances_of_postgres() {
    on_two_instances(Engine::Postgres, one_of_many_wins).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_instances_of_mariadb() {
    on_two_instances(Engine::Mariadb, one_of_many_wins).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_instances_of_redis() {
    on_two_instances(Engine::Redis, one_of_many_wins).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_two_instances_of_firestore() {
    on_two_instances(Engine::Firestore, one_of_many_wins).await;
}
