//! Redis: a prefix is a store.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{Client, Value};

use super::{Recipe, ServerError, in_path, words};

pub(super) struct Redis;

#[async_trait]
impl Recipe for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn how_to_install(&self) -> &'static str {
        "apt-get install redis-server"
    }

    fn program(&self) -> Option<PathBuf> {
        in_path("redis-server")
    }

    fn line(&self, program: &Path, folder: &Path, port: u16) -> Vec<OsString> {
        let own = vec![program.into(), "--dir".into(), folder.into(), "--port".into(), port.to_string().into()];
        let settings = words(["--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
        [own, settings].concat()
    }

    async fn greet(&self, port: u16) -> Result<(), ServerError> {
        let mut connection = connect(&format!("redis://127.0.0.1:{port}/0")).await?;
        redis::cmd("PING").exec_async(&mut connection).await?;
        Ok(())
    }

    async fn fresh(&self, port: u16, name: &str) -> Result<String, ServerError> {
        Ok(format!("redis://127.0.0.1:{port}/0?prefix={name}"))
    }

    async fn empty(&self, url: &str, _keep: &[String]) -> Result<(), ServerError> {
        let (server, prefix) = url.split_once("?prefix=").ok_or("no prefix in the address")?;
        unlink(server, prefix).await
    }
}

/// Removes all keys of a store from a server. One that is a replica gets that from its master.
pub(super) async fn unlink(server: &str, prefix: &str) -> Result<(), ServerError> {
    let mut connection = connect(server).await?;
    let role: Vec<Value> = redis::cmd("ROLE").query_async(&mut connection).await?;
    if role.first() != Some(&Value::BulkString(b"master".to_vec())) {
        return Ok(());
    }
    let mut cursor = 0_u64;
    loop {
        let pattern = format!("*{prefix}*");
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(10_000);
        let (next, keys): (u64, Vec<Vec<u8>>) = scan.query_async(&mut connection).await?;
        // One by one: a node of a cluster takes no keys of different slots together.
        let mut all = redis::pipe();
        for key in &keys {
            all.cmd("UNLINK").arg(key).ignore();
        }
        if !keys.is_empty() {
            all.exec_async(&mut connection).await?;
        }
        if next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}

pub(super) async fn connect(address: &str) -> Result<MultiplexedConnection, ServerError> {
    Ok(Client::open(address)?.get_multiplexed_async_connection().await?)
}
