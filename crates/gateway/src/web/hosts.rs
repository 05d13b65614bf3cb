//! By which names the pages are reached. A page of another site that makes its own name lead here (DNS rebinding) comes under that name.

use std::net::IpAddr;

use http::{HeaderMap, header};

/// The names that are allowed, beside those of this very machine.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    names: Vec<String>,
    /// Every address is allowed: hapax listens on all there are, and no name can be made to look like one.
    any_address: bool,
}

impl Hosts {
    /// An unspecified address among the names (`0.0.0.0`, `::`) stands for all addresses.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let names: Vec<String> = names.into_iter().map(|name| bare(&name)).collect();
        let unspecified = |name: &String| name.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
        Self { any_address: names.iter().any(unspecified), names }
    }

    pub(super) fn allow(&self, host: &str) -> bool {
        let host = bare(host);
        is_loopback(&host) || self.names.contains(&host) || (self.any_address && host.parse::<IpAddr>().is_ok())
    }
}

/// The one host that a request names.
pub(super) fn host_of(headers: &HeaderMap) -> Option<&str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok().filter(|host| !host.is_empty()),
        _ => None,
    }
}

/// Names that lead to this very machine, whoever asks.
pub(super) fn is_loopback(host: &str) -> bool {
    let host = bare(host);
    host == "localhost" || host.ends_with(".localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Without the port, in small letters.
pub(super) fn bare(host: &str) -> String {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        // An IPv6 address without brackets has more than one colon, and no port.
        None => host.split_once(':').filter(|(_, rest)| !rest.contains(':')).map_or(host, |(name, _)| name),
    };
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_and_named_hosts_are_allowed_and_no_others() {
        let hosts = Hosts::new(["hapax.example.com".to_owned(), "10.0.0.5".to_owned()]);
        for host in ["localhost", "LOCALHOST:4272", "app.localhost:1", "127.0.0.1:4272", "[::1]:4272", "127.9.9.9"] {
            assert!(hosts.allow(host), "{host}");
        }
        for host in ["hapax.example.com", "Hapax.Example.com.:443", "10.0.0.5:80"] {
            assert!(hosts.allow(host), "{host}");
        }
        for host in ["evil.example", "10.0.0.6", "localhost.evil.example", "hapax.example.com.evil.example", "", "::2", "0.0.0.0"]
        {
            assert!(!hosts.allow(host), "{host}");
        }
    }

    #[test]
    fn who_listens_everywhere_is_reached_by_any_address_but_no_other_name() {
        let hosts = Hosts::new(["0.0.0.0".to_owned()]);
        assert!(hosts.allow("192.0.2.7:4272") && hosts.allow("[2001:db8::1]:4272"));
        assert!(!hosts.allow("192.0.2.7.evil.example"));
    }
}
