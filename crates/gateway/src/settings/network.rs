//! Blocks of addresses, as people write them: `10.0.0.0/8`, `192.0.2.7`, `fd00::/8`.

use std::fmt;
use std::net::IpAddr;

/// Addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    bits: u32,
}

impl Network {
    pub fn read(text: &str) -> Option<Self> {
        let (base, bits) = text.split_once('/').map_or((text, None), |(base, bits)| (base, Some(bits)));
        let base: IpAddr = base.trim().parse().ok()?;
        let all = if base.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(all), |bits| bits.trim().parse().ok())?;
        (bits <= all).then_some(Self { base, bits })
    }

    /// An IPv4 address may come in IPv6's clothes.
    pub fn holds(&self, address: IpAddr) -> bool {
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                alike(u128::from(u32::from(base)), u128::from(u32::from(address)), self.bits, 32)
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => alike(base.into(), address.into(), self.bits, 128),
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

fn alike(one: u128, other: u128, bits: u32, of: u32) -> bool {
    bits == 0 || (one ^ other) >> (of - bits) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_holds_what_begins_alike() {
        for (block, address, held) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("127.0.0.0/8", "::ffff:127.0.0.1", true),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("::1", "::1", true),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(Network::read(block).expect("a block").holds(address), held, "{block} {address}");
        }
        for odd in ["", "10.0.0.0/33", "10.0.0/8", "proxy", "::/129", "10.0.0.1/-1"] {
            assert_eq!(Network::read(odd), None, "{odd}");
        }
    }
}
