//! Who is at the other end, as far as that can be known: it decides shares and delays, never what is believed.

use std::net::{IpAddr, Ipv6Addr};

use http::HeaderMap;

use crate::settings::Network;

/// The address a connection came from. The accept loop puts it on every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// The proxies whose word about the address counts.
#[derive(Clone, Debug, Default)]
pub struct Proxies(Vec<Network>);

impl Proxies {
    pub fn new(trusted: Vec<Network>) -> Self {
        Self(trusted)
    }

    pub fn trust(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.holds(address))
    }

    /// The address a request came from: the last one in `X-Forwarded-For` that no trusted proxy has, if a trusted proxy sent it. What stands
    /// before that one was written by anybody. What cannot be read ends it too: the proxy that passed it on is all that is known.
    pub fn origin(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if self.0.is_empty() {
            return one_household(peer);
        }
        let mut origin = peer;
        let lines: Vec<&[u8]> = headers.get_all("x-forwarded-for").iter().map(|value| value.as_bytes()).collect();
        for named in lines.iter().rev().flat_map(|line| line.rsplit(|byte| *byte == b',')) {
            if !self.trust(origin) {
                break;
            }
            match std::str::from_utf8(named).ok().and_then(|named| read(named.trim())) {
                Some(address) => origin = address,
                None => break,
            }
        }
        one_household(origin)
    }
}

/// Some proxies write the port too.
fn read(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.split(']').next()).unwrap_or(text);
    bare.parse().ok().or_else(|| bare.split_once(':')?.0.parse().ok())
}

/// Whoever has one IPv6 address has all of its /64.
pub(super) fn one_household(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(peer: &str, forwarded: &[&str]) -> String {
        let proxies = Proxies::new(vec![Network::read("10.0.0.0/8").expect("a block")]);
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append("x-forwarded-for", http::HeaderValue::from_bytes(line.as_bytes()).expect("a value"));
        }
        proxies.origin(peer.parse().expect("an address"), &headers).to_string()
    }

    #[test]
    fn only_a_trusted_proxy_is_believed_and_only_its_own_word() {
        assert_eq!(origin("192.0.2.1", &["203.0.113.9"]), "192.0.2.1", "a stranger may claim anything");
        assert_eq!(origin("10.0.0.1", &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(origin("10.0.0.1", &["198.51.100.1, 203.0.113.9"]), "203.0.113.9", "the first was written by the client");
        assert_eq!(origin("10.0.0.1", &["198.51.100.1", "203.0.113.9, 10.0.0.2"]), "203.0.113.9", "through two proxies");
        assert_eq!(origin("10.0.0.1", &["unknown"]), "10.0.0.1");
        assert_eq!(origin("10.0.0.1", &[]), "10.0.0.1");
        let odd = ["198.51.100.1", "203.0.113.9é"];
        assert_eq!(origin("10.0.0.1", &odd), "10.0.0.1", "a line that cannot be read leads to none that a client wrote");
        assert_eq!(origin("10.0.0.1", &["é, 203.0.113.9"]), "203.0.113.9", "what the proxy wrote can be read");
        assert_eq!(origin("10.0.0.1", &["203.0.113.9:4711"]), "203.0.113.9");
        assert_eq!(origin("10.0.0.1", &["[2001:db8:1:2:3::4]:4711"]), "2001:db8:1:2::");
    }
}
