//! Reads `redis://…` and `rediss://…`: Redis' own address, and what is hapax's in it.

use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{ConnectionInfo, IntoConnectionInfo};

use crate::store::StoreError;

/// What every key begins with, unless the address says otherwise.
const PREFIX: &str = "hapax";
const PREFIX_MAX_BYTES: usize = 64;

#[derive(Debug)]
pub(super) struct Address {
    pub(super) server: ConnectionInfo,
    /// Several installations may share a server.
    pub(super) prefix: String,
}

impl Address {
    /// Never repeats the address in an error: it may hold a password.
    pub(super) fn read(text: &str) -> Result<Self, StoreError> {
        let (server, options) = text.split_once('?').unwrap_or((text, ""));
        let mut prefix = PREFIX.to_owned();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("prefix", name)) if is_prefix(name) => name.clone_into(&mut prefix),
                Some(("prefix", _)) => return Err(refused("a prefix is made of letters, digits, `-`, `_` and `.`, at most 64")),
                _ => return Err(refused("its only option is `?prefix=name`")),
            }
        }
        let server = server.into_connection_info().map_err(|_| refused("write \"redis://user:password@host:6379/0\""))?;
        Ok(Self { server: server.set_tcp_settings(tcp()), prefix })
    }
}

/// Braces would move the hash tag, and with it the keys.
fn is_prefix(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=PREFIX_MAX_BYTES).contains(&name.len()) && name.bytes().all(fine)
}

/// A server that is gone without a word is noticed within seconds.
fn tcp() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(5)).with_interval(Duration::from_secs(2));
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(Duration::from_secs(5));
    settings
}

fn refused(why: &str) -> StoreError {
    StoreError::Refused(format!("this is no address of a Redis server: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_is_ours_and_the_rest_is_redis_own() {
        let address = Address::read("redis://u:p@host:7000/3?prefix=shop-2").expect("an address");
        assert_eq!((address.prefix.as_str(), address.server.addr().to_string().as_str()), ("shop-2", "host:7000"));
        assert_eq!((address.server.redis_settings().db(), address.server.redis_settings().password()), (3, Some("p")));
        assert_eq!(Address::read("rediss://host").expect("an address").prefix, "hapax");
    }

    #[test]
    fn a_mistake_is_told_without_the_password() {
        for text in
            ["redis://u:p4ss@h/?prefix=a{b}", "redis://u:p4ss@h/?prefix=", "redis://u:p4ss@h/?cluster=true", "http://u:p4ss@h"]
        {
            let error = Address::read(text).expect_err(text).to_string();
            assert!(!error.contains("p4ss") && error.contains("no address"), "{error}");
        }
    }
}
