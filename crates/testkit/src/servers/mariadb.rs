//! MariaDB: a database is a store. Names compare without case there unless the engine says otherwise, as in most installations.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

use super::{Recipe, ServerError, in_path, is_root, run, words};

pub(super) struct Mariadb;

#[async_trait]
impl Recipe for Mariadb {
    fn name(&self) -> &'static str {
        "mariadb"
    }

    fn how_to_install(&self) -> &'static str {
        "apt-get install mariadb-server"
    }

    fn program(&self) -> Option<PathBuf> {
        in_path("mariadb-install-db")?;
        in_path("mariadbd")
    }

    async fn prepare(&self, _program: &Path, folder: &Path) -> Result<(), ServerError> {
        if is_root() {
            run(&[vec!["chown".into(), "mysql".into()], vec![folder.into()]].concat()).await?;
        }
        // Runs at every start, before the first client comes.
        let users = "CREATE USER IF NOT EXISTS 'hapax'@'%' IDENTIFIED BY 'hapax';\nGRANT ALL ON *.* TO 'hapax'@'%';\n";
        std::fs::write(folder.join("users.sql"), users)?;
        let install =
            words(["mariadb-install-db", "--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"]);
        run(&[install, as_mysql(), vec![setting("datadir", &folder.join("data")), setting("tmpdir", folder)]].concat()).await
    }

    fn line(&self, program: &Path, folder: &Path, port: u16) -> Vec<OsString> {
        let small = words([
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
            "--max-connections=400",
            "--innodb-buffer-pool-size=128M",
            "--innodb-log-file-size=64M",
        ]);
        let own = vec![
            setting("datadir", &folder.join("data")),
            // A server that starts removes what others have in a shared one.
            setting("tmpdir", folder),
            setting("socket", &folder.join("socket")),
            setting("pid-file", &folder.join("pid")),
            setting("init-file", &folder.join("users.sql")),
            format!("--port={port}").into(),
        ];
        [vec![program.into(), "--no-defaults".into()], as_mysql(), own, small].concat()
    }

    async fn greet(&self, port: u16) -> Result<(), ServerError> {
        connect(&address(port, "")).await?.ping().await?;
        Ok(())
    }

    async fn fresh(&self, port: u16, name: &str) -> Result<String, ServerError> {
        let mut client = connect(&address(port, "")).await?;
        client.query_drop(format!("CREATE DATABASE {name} CHARACTER SET utf8mb4")).await?;
        client.disconnect().await?;
        Ok(address(port, name))
    }

    async fn first_rows(&self, url: &str) -> Result<Vec<String>, ServerError> {
        let mut client = connect(url).await?;
        let mut filled = Vec::new();
        for table in tables(&mut client).await? {
            if client.query_first::<u8, _>(format!("SELECT 1 FROM `{table}` LIMIT 1")).await?.is_some() {
                filled.push(table);
            }
        }
        client.disconnect().await?;
        Ok(filled)
    }

    async fn empty(&self, url: &str, keep: &[String]) -> Result<(), ServerError> {
        let mut client = connect(url).await?;
        client.query_drop("SET foreign_key_checks = 0").await?;
        for table in tables(&mut client).await?.iter().filter(|table| !keep.contains(table)) {
            client.query_drop(format!("DELETE FROM `{table}`")).await?;
        }
        client.disconnect().await?;
        Ok(())
    }

    async fn remove(&self, url: &str) -> Result<(), ServerError> {
        let mut client = connect(url).await?;
        let name: Option<String> = client.query_first("SELECT DATABASE()").await?;
        client.query_drop(format!("DROP DATABASE {}", name.ok_or("no database in the address")?)).await?;
        client.disconnect().await?;
        Ok(())
    }
}

/// It refuses to run as root.
fn as_mysql() -> Vec<OsString> {
    if is_root() { words(["--user=mysql"]) } else { Vec::new() }
}

fn setting(name: &str, path: &Path) -> OsString {
    let mut text = OsString::from(format!("--{name}="));
    text.push(path);
    text
}

fn address(port: u16, name: &str) -> String {
    format!("mysql://hapax:hapax@127.0.0.1:{port}/{name}")
}

async fn connect(address: &str) -> Result<Conn, ServerError> {
    Ok(Conn::new(Opts::from_url(address)?).await?)
}

async fn tables(client: &mut Conn) -> Result<Vec<String>, ServerError> {
    Ok(client.query("SHOW TABLES").await?)
}
