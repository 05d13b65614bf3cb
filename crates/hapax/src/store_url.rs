//! Which store to open: an engine and its address, whose password is never shown.

use std::fmt;
use std::path::PathBuf;

use hapax_domain::address::hide_userinfo;
use secrecy::{ExposeSecret, SecretString};

/// An engine, and where it keeps things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// Nothing is kept: for tests.
    Memory,
    /// The embedded engine, on a file.
    Sqlite(PathBuf),
    /// PostgreSQL.
    Postgres(StoreAddress),
    /// MySQL or MariaDB.
    Mysql(StoreAddress),
    /// Redis, Redis Cluster or Valkey.
    Redis(StoreAddress),
    /// Firestore.
    Firestore(StoreAddress),
}

/// The address of a server, as it was written. It may hold a password.
#[derive(Clone)]
pub struct StoreAddress(SecretString);

impl StoreAddress {
    /// Takes it as it was written.
    pub fn new(text: &str) -> Self {
        Self(SecretString::from(text))
    }

    /// The whole text, for the engine that connects with it and for nobody else.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl PartialEq for StoreAddress {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for StoreAddress {}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hide_userinfo(self.expose()))
    }
}

/// As a person may see it.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Memory => f.write_str("memory:"),
            StoreUrl::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            StoreUrl::Postgres(address) | StoreUrl::Mysql(address) | StoreUrl::Redis(address) | StoreUrl::Firestore(address) => {
                address.fmt(f)
            }
        }
    }
}

impl StoreUrl {
    /// The engine's name, as the address begins.
    pub fn engine(&self) -> &'static str {
        match self {
            StoreUrl::Memory => "memory",
            StoreUrl::Sqlite(_) => "sqlite",
            StoreUrl::Postgres(_) => "postgres",
            StoreUrl::Mysql(_) => "mysql",
            StoreUrl::Redis(_) => "redis",
            StoreUrl::Firestore(_) => "firestore",
        }
    }

    /// True when the store lives in this process, on this machine's disk or in its memory.
    pub fn is_embedded(&self) -> bool {
        matches!(self, StoreUrl::Memory | StoreUrl::Sqlite(_))
    }

    /// What backs it up, in words, where that is not `hapax backup`.
    pub fn own_tools(&self) -> Option<&'static str> {
        match self {
            StoreUrl::Sqlite(_) => None,
            StoreUrl::Memory => Some("memory: ends with its process; there is nothing to back up"),
            StoreUrl::Postgres(_) => Some(
                "this store is a PostgreSQL server: back it up with its own tools, `pg_dump --format=custom` or continuous archiving \
                 (pgBackRest, WAL-G); each instance's spool file is a part of it while it holds anything",
            ),
            StoreUrl::Mysql(_) => Some(
                "this store is a MySQL server: back it up with its own tools, `mysqldump --single-transaction --routines` or \
                 `mariadb-backup`, with the binary log; each instance's spool file is a part of it while it holds anything",
            ),
            StoreUrl::Redis(_) => Some(
                "this store is a Redis server: back it up with its own tools, a copy of `appendonlydir` after `BGREWRITEAOF`, or of the \
                 file that `BGSAVE` writes; each instance's spool file is a part of it while it holds anything",
            ),
            StoreUrl::Firestore(_) => Some(
                "this store is Firestore: back it up with its own tools, `gcloud firestore export gs://BUCKET` or scheduled backups \
                 (`gcloud firestore backups schedules create`); each instance's spool file is a part of it while it holds anything",
            ),
        }
    }

    /// Reads an address; the error says what is wrong without repeating a password.
    pub fn read(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
        let server =
            |engine: fn(StoreAddress) -> Self, example: &str| match rest.strip_prefix("//").filter(|rest| !rest.is_empty()) {
                Some(_) => Ok(engine(StoreAddress::new(text))),
                None => Err(format!("`{scheme}:` needs an address; write \"{example}\"")),
            };
        match scheme {
            "memory" => Ok(StoreUrl::Memory),
            "sqlite" => match rest.strip_prefix("//").unwrap_or(rest) {
                "" | ":memory:" => {
                    Err("`sqlite:` needs a path; write \"sqlite:hapax.db\", or \"memory:\" to keep nothing".to_owned())
                }
                path => Ok(StoreUrl::Sqlite(PathBuf::from(path))),
            },
            "postgres" | "postgresql" => server(StoreUrl::Postgres, "postgres://user:password@host/database"),
            "mysql" | "mariadb" => server(StoreUrl::Mysql, "mysql://user:password@host/database"),
            "redis" | "rediss" => server(StoreUrl::Redis, "redis://host:6379/0"),
            "firestore" => server(StoreUrl::Firestore, "firestore://project"),
            _ => Err("this names no store; write \"sqlite:hapax.db\", \"postgres://..\", \"mysql://..\", \"redis://..\", \
                      \"firestore://project\" or \"memory:\""
                .to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let store = StoreUrl::read("postgres://u:p4ssw0rd@db/x?sslmode=require").expect("an address");
        assert_eq!(store.to_string(), "postgres://(hidden)@db/x?(hidden)");
        assert!(!format!("{store:?}").contains("p4ssw0rd"));
    }

    #[test]
    fn every_scheme_needs_its_address() {
        for text in ["", "sqlite:", "postgres:", "mysql://", "redis:x", "firestore:", "oracle://x"] {
            assert!(StoreUrl::read(text).is_err(), "{text}");
        }
        assert!(matches!(StoreUrl::read("mariadb://h/d"), Ok(StoreUrl::Mysql(_))));
    }
}
