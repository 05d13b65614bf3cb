//! PostgreSQL: a schema is a store.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use rustix::process::Signal;
use tokio_postgres::{Client, NoTls};

use super::{Recipe, ServerError, in_path, is_root, run, words};

pub(super) struct Postgres;

#[async_trait]
impl Recipe for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn how_to_install(&self) -> &'static str {
        "apt-get install postgresql"
    }

    /// Debian keeps it out of the path, each version in a folder of its own.
    fn program(&self) -> Option<PathBuf> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let mut found: Vec<_> =
            versions.map(|version| version.path().join("bin/postgres")).filter(|file| file.is_file()).collect();
        found.sort();
        found.pop().or_else(|| in_path("postgres"))
    }

    async fn prepare(&self, program: &Path, folder: &Path) -> Result<(), ServerError> {
        if is_root() {
            run(&[vec!["chown".into(), "postgres".into()], vec![folder.into()]].concat()).await?;
        }
        let settings = words(["-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        let initdb = program.with_file_name("initdb").into();
        run(&[as_postgres(), vec![initdb, "-D".into(), folder.join("data").into()], settings].concat()).await
    }

    fn line(&self, program: &Path, folder: &Path, port: u16) -> Vec<OsString> {
        let settings = words(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=400"]);
        let server = vec![program.into(), "-D".into(), folder.join("data").into(), "-p".into(), port.to_string().into()];
        [as_postgres(), server, settings].concat()
    }

    fn stop_signal(&self) -> Signal {
        Signal::INT
    }

    async fn greet(&self, port: u16) -> Result<(), ServerError> {
        connect(&address(port)).await?.simple_query("SELECT 1").await?;
        Ok(())
    }

    async fn fresh(&self, port: u16, name: &str) -> Result<String, ServerError> {
        let address = address(port);
        connect(&address).await?.batch_execute(&format!("CREATE SCHEMA {name}")).await?;
        Ok(format!("{address}?options=-csearch_path%3D{name}"))
    }

    async fn first_rows(&self, url: &str) -> Result<Vec<String>, ServerError> {
        let client = connect(url).await?;
        let mut filled = Vec::new();
        for table in tables(&client).await? {
            if client.query_opt(&format!("SELECT 1 FROM {table} LIMIT 1"), &[]).await?.is_some() {
                filled.push(table);
            }
        }
        Ok(filled)
    }

    async fn empty(&self, url: &str, keep: &[String]) -> Result<(), ServerError> {
        let client = connect(url).await?;
        let mut script = String::from("BEGIN; SET LOCAL session_replication_role = replica;");
        for table in tables(&client).await?.iter().filter(|table| !keep.contains(table)) {
            script.push_str(&format!("DELETE FROM {table};"));
        }
        client.batch_execute(&format!("{script} COMMIT")).await?;
        Ok(())
    }

    async fn remove(&self, url: &str) -> Result<(), ServerError> {
        let client = connect(url).await?;
        let schema: String = client.query_one("SELECT current_schema()::text", &[]).await?.get(0);
        client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await?;
        Ok(())
    }
}

/// It refuses to run as root.
fn as_postgres() -> Vec<OsString> {
    match is_root() {
        true => words(["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]),
        false => Vec::new(),
    }
}

fn address(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/postgres")
}

async fn connect(address: &str) -> Result<Client, ServerError> {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await?;
    // It ends with the client.
    tokio::spawn(connection);
    Ok(client)
}

async fn tables(client: &Client) -> Result<Vec<String>, ServerError> {
    let rows = client.query("SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()", &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
