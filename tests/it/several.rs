//! Several instances of the real program as one, on one real database that the test may kill.

mod fleet;
mod kills;
mod outages;
mod pauses;
mod phones;
mod storm;

/// Turns each function into one test per database; where the server is not installed there is nothing to test.
macro_rules! on_every_server {
    ($($name:ident)*) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(server) = hapax_testkit::servers::Engine::Postgres.private().await {
                    super::$name(server).await;
                }
            })*
        }

        mod mariadb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(server) = hapax_testkit::servers::Engine::Mariadb.private().await {
                    super::$name(server).await;
                }
            })*
        }
    };
}

use on_every_server;
