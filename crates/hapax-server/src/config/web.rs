//! The keys about the pages: by which names they are reached, and what they show.

use std::net::SocketAddr;

use super::mistake::Mistakes;
use super::section::{Found, Section};

/// How the pages are reached, and what they show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Web {
    /// Names beside those of this machine, the address that hapax listens on, and the host of `public_url`.
    pub hosts: Vec<String>,
    /// Scheme, host and port.
    pub public_url: Option<String>,
    /// Bodies and texts are shown as their lengths to callers without scope `admin`.
    pub hide_payloads: bool,
    /// The pages may add channels to the config file.
    pub write_config: bool,
}

impl Web {
    /// All names that the pages may be reached by, where the admin surface listens here.
    pub fn hosts_with(&self, listen: SocketAddr) -> Vec<String> {
        let public = self.public_url.as_deref().and_then(|url| url.split_once("://")).map(|(_, host)| host.to_owned());
        self.hosts.iter().cloned().chain(public).chain([listen.ip().to_string()]).collect()
    }
}

pub(super) fn read(top: &Section<'_>, mistakes: &mut Mistakes) -> Web {
    Web {
        hosts: top.get("hosts").map(|found| read_hosts(&found, mistakes)).unwrap_or_default(),
        public_url: top.get("public_url").and_then(|found| read_url(&found, mistakes)),
        hide_payloads: top.get("hide_payloads").and_then(|found| found.truth(mistakes)).unwrap_or_default(),
        write_config: top.get("write_config").and_then(|found| found.truth(mistakes)).unwrap_or_default(),
    }
}

fn read_hosts(found: &Found<'_>, mistakes: &mut Mistakes) -> Vec<String> {
    let mut hosts = Vec::new();
    for (entry, text) in found.texts(mistakes).unwrap_or_default() {
        match is_host(text) {
            true => hosts.push(text.to_ascii_lowercase()),
            false => entry.refuse(
                mistakes,
                format!("`{text}` is not the name of a host; write \"hapax.example.com\", without a scheme, a port or a path"),
            ),
        }
    }
    hosts
}

fn is_host(text: &str) -> bool {
    let name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    text.parse::<std::net::IpAddr>().is_ok() || (!text.is_empty() && text.len() <= 253 && text.bytes().all(name))
}

fn read_url(found: &Found<'_>, mistakes: &mut Mistakes) -> Option<String> {
    let text = found.text(mistakes)?;
    let url = text.trim_end_matches('/').to_ascii_lowercase();
    let authority = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':').filter(|_| !authority.ends_with(']')) {
        Some((host, port)) => (host, port.parse::<u16>().is_ok()),
        None => (authority, true),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if !(port && is_host(bare)) {
        found.refuse(
            mistakes,
            format!("`{text}` is not an address; write \"https://hapax.example.com\", with the port if there is one and no path"),
        );
        return None;
    }
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{first_mistake, load_with};
    use crate::config::Flags;

    #[test]
    fn pages_are_reached_by_their_names_and_by_no_others() {
        let text = "listen = '127.0.0.1:1'\nhosts = ['Hapax.lan', '10.0.0.7']\npublic_url = 'https://Hapax.example.com:8443/'\nhide_payloads = true";
        let web = load_with(text, &[], Flags::default()).expect("a good config");
        let settings = web.settings();
        assert_eq!(settings.public_url.as_deref(), Some("https://hapax.example.com:8443"));
        assert_eq!(settings.hosts, ["hapax.lan", "10.0.0.7", "hapax.example.com:8443", "127.0.0.1"]);
        assert!(settings.hide_payloads);
    }

    #[test]
    fn what_is_no_name_or_address_is_told() {
        for odd in ["https://hapax.lan", "hapax.lan:80", "a/b", "", "a b"] {
            let said = first_mistake(&format!("hosts = ['{odd}']"));
            assert!(said.contains("is not the name of a host"), "{odd}: {said}");
        }
        for odd in ["hapax.example.com", "ftp://a", "https://a/b", "https://", "https://a:b", "https://u@a", "https://a?x"] {
            let said = first_mistake(&format!("public_url = '{odd}'"));
            assert!(said.contains("is not an address; write"), "{odd}: {said}");
        }
    }
}
