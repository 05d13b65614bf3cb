//! The servers that tests run on: they start, are shared, and come back with their data after a kill.

use hapax_testkit::servers::Engine;
use mysql_async::prelude::Queryable;
use tokio_postgres::NoTls;

#[tokio::test]
async fn one_server_serves_many_tests() {
    for engine in [Engine::Postgres, Engine::Mariadb, Engine::Redis, Engine::RedisCluster, Engine::Firestore] {
        let Some(server) = engine.shared().await else { continue };
        let again = engine.shared().await.expect("it was there a moment ago");
        assert_eq!(server.port(), again.port(), "{engine:?}");
        let (one, other) = (server.fresh().await, again.fresh().await);
        assert_ne!(one, other);
        server.remove(&one).await;
        server.remove(&other).await;
    }
}

#[tokio::test]
async fn a_killed_postgres_keeps_what_it_committed() {
    let Some(mut server) = Engine::Postgres.private().await else { return };
    let url = server.fresh().await;
    let connect = async || {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("it answers");
        tokio::spawn(connection);
        client
    };
    let client = connect().await;
    client.batch_execute("CREATE TABLE kept (x int); INSERT INTO kept VALUES (7)").await.expect("written");
    server.kill9().await;
    assert!(client.simple_query("SELECT 1").await.is_err(), "its sessions are gone as well");
    server.restart().await;
    let client = connect().await;
    assert_eq!(client.query_one("SELECT x FROM kept", &[]).await.expect("kept").get::<_, i32>(0), 7);
    server.stop().await;
    server.restart().await;
    assert_eq!(server.server().first_rows(&url).await, ["kept"]);
    server.server().empty(&url, &[]).await;
    assert!(server.server().first_rows(&url).await.is_empty());
}

#[tokio::test]
async fn a_killed_mariadb_keeps_what_it_committed() {
    let Some(mut server) = Engine::Mariadb.private().await else { return };
    let url = server.fresh().await;
    let connect = async || mysql_async::Conn::from_url(&url).await.expect("it answers");
    let mut client = connect().await;
    client.query_drop("CREATE TABLE kept (x int)").await.expect("a table");
    client.query_drop("INSERT INTO kept VALUES (7)").await.expect("written");
    server.kill9().await;
    assert!(client.ping().await.is_err(), "its sessions are gone as well");
    server.restart().await;
    assert_eq!(connect().await.query_first("SELECT x FROM kept").await.expect("kept"), Some(7));
    server.stop().await;
    server.restart().await;
    assert_eq!(server.server().first_rows(&url).await, ["kept"]);
    server.server().empty(&url, &[]).await;
    assert!(server.server().first_rows(&url).await.is_empty());
}

#[tokio::test]
async fn a_killed_redis_keeps_what_it_wrote() {
    let Some(mut server) = Engine::Redis.private().await else { return };
    let url = server.fresh().await;
    let (address, prefix) = url.split_once("?prefix=").expect("a prefix");
    let key = format!("{prefix}:kept");
    let get = async || {
        let client = redis::Client::open(address).expect("an address");
        let mut connection = client.get_multiplexed_async_connection().await.expect("it answers");
        redis::cmd("GET").arg(&key).query_async::<Option<u8>>(&mut connection).await.expect("an answer")
    };
    let mut connection =
        redis::Client::open(address).expect("an address").get_multiplexed_async_connection().await.expect("it answers");
    redis::cmd("SET").arg(&key).arg(7).exec_async(&mut connection).await.expect("written");
    server.kill9().await;
    server.restart().await;
    assert_eq!(get().await, Some(7));
    server.server().empty(&url, &[]).await;
    assert_eq!(get().await, None);
}
