//! Reads `redis://…` and `rediss://…`: Redis' own address, and what is hapax's in it. Of a cluster it may name several nodes,
//! `redis://user:password@a:6379,b:6379/`, any of which leads to the others.

use std::time::Duration;

use hapax_store::StoreError;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{ConnectionInfo, IntoConnectionInfo};

/// What every key begins with, unless the address says otherwise.
const PREFIX: &str = "hapax";
const PREFIX_MAX_BYTES: usize = 64;

#[derive(Debug)]
pub(super) struct Address {
    /// One at least.
    pub(super) seeds: Vec<ConnectionInfo>,
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
        let read = |server: String| server.into_connection_info().map(|info| info.set_tcp_settings(tcp()));
        let seeds = one_by_one(server).into_iter().map(read).collect::<Result<_, _>>();
        Ok(Self { seeds: seeds.map_err(|_| refused("write \"redis://user:password@host:6379/0\""))?, prefix })
    }
}

/// An address for each of the hosts between commas, with all that stands around them.
fn one_by_one(servers: &str) -> Vec<String> {
    let begin = servers.rfind('@').or_else(|| servers.find("://").map(|at| at + 2)).map_or(0, |at| at + 1);
    let (before, rest) = servers.split_at(begin);
    let (hosts, after) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    hosts.split(',').map(|host| format!("{before}{host}{after}")).collect()
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
        let [server] = &address.seeds[..] else { unreachable!("one host") };
        assert_eq!((address.prefix.as_str(), server.addr().to_string().as_str()), ("shop-2", "host:7000"));
        assert_eq!((server.redis_settings().db(), server.redis_settings().password()), (3, Some("p")));
        assert_eq!(Address::read("rediss://host").expect("an address").prefix, "hapax");
    }

    #[test]
    fn several_nodes_share_what_stands_around_them() {
        let address = Address::read("rediss://u:a,b@one:7000,[::1]:7001,three/0?prefix=x").expect("an address");
        let shown: Vec<_> = address.seeds.iter().map(|seed| seed.addr().to_string()).collect();
        assert_eq!(shown, ["one:7000", "::1:7001", "three:6379"]);
        let is_same = |seed: &ConnectionInfo| {
            matches!(seed.addr(), redis::ConnectionAddr::TcpTls { .. }) && seed.redis_settings().password() == Some("a,b")
        };
        assert!(address.seeds.iter().all(is_same));
    }

    #[test]
    fn a_mistake_is_told_without_the_password() {
        for text in [
            "redis://u:p4ss@h/?prefix=a{b}",
            "redis://u:p4ss@h/?prefix=",
            "redis://u:p4ss@h/?cluster=true",
            "http://u:p4ss@h",
            "redis://u:p4ss@a,:x/",
        ] {
            let error = Address::read(text).expect_err(text).to_string();
            assert!(!error.contains("p4ss") && error.contains("no address"), "{error}");
        }
    }
}
