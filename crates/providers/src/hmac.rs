//! Message authentication codes over raw bytes, with several secrets during rotation.

use ::hmac::{Hmac, KeyInit};
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use sha1::Sha1;
use sha2::{Sha256, Sha512};
use subtle::ConstantTimeEq;

use super::Refused;
use super::settings::HmacAlgorithm;

/// The secrets of a channel, keyed once, so that a webhook pays only for its own bytes.
pub(super) struct MacKeys(Vec<MacKey>);

enum MacKey {
    Sha256(Box<Hmac<Sha256>>),
    Sha512(Box<Hmac<Sha512>>),
    Sha1(Box<Hmac<Sha1>>),
}

/// A computed code. Compared in constant time only.
pub(super) struct Mac {
    bytes: [u8; 64],
    len: usize,
}

impl Mac {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn equals(&self, claimed: &[u8]) -> bool {
        self.as_bytes().ct_eq(claimed).into()
    }
}

impl MacKeys {
    pub(super) fn new(algorithm: HmacAlgorithm, secrets: &[SecretString]) -> Self {
        let key = |secret: &SecretString| MacKey::new(algorithm, secret.expose_secret().as_bytes());
        Self(secrets.iter().filter_map(key).collect())
    }

    /// From keys that are bytes.
    pub(super) fn from_bytes(algorithm: HmacAlgorithm, keys: &[&[u8]]) -> Self {
        Self(keys.iter().filter_map(|key| MacKey::new(algorithm, key)).collect())
    }

    /// True when any secret gives any of the claimed codes for the concatenated `parts`. Without secrets nothing is believed.
    pub(super) fn accept<C: AsRef<[u8]>>(&self, parts: &[&[u8]], claimed: &[C]) -> bool {
        self.0.iter().any(|key| {
            let mac = key.mac(parts);
            claimed.iter().any(|claim| mac.equals(claim.as_ref()))
        })
    }

    /// Signs with the first secret, which is the one that senders use during rotation.
    pub(super) fn sign(&self, parts: &[&[u8]]) -> Option<Mac> {
        self.0.first().map(|key| key.mac(parts))
    }
}

impl MacKey {
    fn new(algorithm: HmacAlgorithm, secret: &[u8]) -> Option<Self> {
        Some(match algorithm {
            HmacAlgorithm::Sha256 => MacKey::Sha256(Box::new(Hmac::new_from_slice(secret).ok()?)),
            HmacAlgorithm::Sha512 => MacKey::Sha512(Box::new(Hmac::new_from_slice(secret).ok()?)),
            HmacAlgorithm::Sha1 => MacKey::Sha1(Box::new(Hmac::new_from_slice(secret).ok()?)),
        })
    }

    fn mac(&self, parts: &[&[u8]]) -> Mac {
        match self {
            MacKey::Sha256(keyed) => finish(Hmac::<Sha256>::clone(keyed), parts),
            MacKey::Sha512(keyed) => finish(Hmac::<Sha512>::clone(keyed), parts),
            MacKey::Sha1(keyed) => finish(Hmac::<Sha1>::clone(keyed), parts),
        }
    }
}

fn finish<M: ::hmac::Mac>(mut keyed: M, parts: &[&[u8]]) -> Mac {
    for part in parts {
        keyed.update(part);
    }
    let code = keyed.finalize().into_bytes();
    let mut mac = Mac { bytes: [0; 64], len: code.len() };
    mac.bytes[..code.len()].copy_from_slice(&code);
    mac
}

/// The value of each hexadecimal digit; of what is none, more than a digit can have.
const DIGITS: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value] as usize] = value as u8;
        values[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    values
};

/// The bytes of a code that is written in hexadecimal digits.
pub(super) fn read_hex<const BYTES: usize>(digits: &[u8]) -> Option<[u8; BYTES]> {
    let (pairs, rest) = digits.as_chunks::<2>();
    let pairs: &[[u8; 2]; BYTES] = pairs.try_into().ok().filter(|_| rest.is_empty())?;
    let mut odd = 0;
    let bytes = pairs.map(|[high, low]| {
        let (high, low) = (DIGITS[high as usize], DIGITS[low as usize]);
        odd |= high | low;
        high << 4 | low
    });
    (odd < 16).then_some(bytes)
}

const HUB_SIGNATURE: HeaderName = HeaderName::from_static("x-hub-signature-256");
const HUB_PREFIX: &[u8] = b"sha256=";

/// The two headers of the hub scheme; the SHA-1 one is never checked, but it is a signature too and must not be forwarded.
pub(super) static HUB_SIGNATURE_HEADERS: [HeaderName; 2] = [HUB_SIGNATURE, HeaderName::from_static("x-hub-signature")];

/// `X-Hub-Signature-256: sha256=<hex>` over the raw body, as Meta, GitHub and GOWA send it.
pub(super) struct HubSignature(MacKeys);

impl HubSignature {
    pub(super) fn new(secrets: &[SecretString]) -> Self {
        Self(MacKeys::new(HmacAlgorithm::Sha256, secrets))
    }

    pub(super) fn check(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), Refused> {
        let header = headers.get(HUB_SIGNATURE).ok_or(Refused::NoSignature)?;
        let digits = header.as_bytes().strip_prefix(HUB_PREFIX).ok_or(Refused::BadSignature)?;
        let claimed: [u8; 32] = read_hex(digits).ok_or(Refused::BadSignature)?;
        if self.0.accept(&[body], &[claimed]) { Ok(()) } else { Err(Refused::BadSignature) }
    }

    pub(super) fn sign(&self, body: &[u8]) -> Vec<(HeaderName, HeaderValue)> {
        let mac = self.0.sign(&[body]);
        let value = mac.and_then(|mac| sensitive(&format!("sha256={}", hex::encode(mac.as_bytes()))));
        value.map(|value| (HUB_SIGNATURE, value)).into_iter().collect()
    }
}

/// Makes a header value that debug output hides; `None` when the text cannot stand in a header.
pub(super) fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_in_digits_is_read_whole_or_not_at_all() {
        assert_eq!(read_hex(b"00ff9aBc"), Some([0x00, 0xff, 0x9a, 0xbc]));
        for odd in ["", "00", "00ff9aB", "00ff9aBc0", "00ff9aBc00", "00ff9aBg", "00ff9a:c", "00ff 9aB", "0xff9aBc"] {
            assert_eq!(read_hex::<4>(odd.as_bytes()), None, "{odd}");
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(read_hex::<256>(hex::encode(&all).as_bytes()).map(Vec::from), Some(all));
    }
}
