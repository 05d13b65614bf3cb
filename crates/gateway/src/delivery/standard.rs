//! Standard Webhooks headers, for bots that check one signature whatever the provider.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

/// Makes `webhook-signature` values with one secret.
pub(crate) struct StandardSigner(Hmac<Sha256>);

impl StandardSigner {
    /// A secret that starts with `whsec_` holds its key in base64; any other is the key.
    pub(crate) fn new(secret: &SecretString) -> Option<Self> {
        let text = secret.expose_secret();
        let key = text.strip_prefix("whsec_").and_then(|encoded| STANDARD.decode(encoded).ok());
        let mac = Hmac::<Sha256>::new_from_slice(key.as_deref().unwrap_or(text.as_bytes())).ok()?;
        Some(Self(mac))
    }

    pub(crate) fn sign(&self, id: &str, at_s: i64, body: &[u8]) -> Option<HeaderValue> {
        let mut mac = self.0.clone();
        mac.update(format!("{id}.{at_s}.").as_bytes());
        mac.update(body);
        HeaderValue::from_str(&format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's own libraries.
    #[test]
    fn the_published_example_comes_out() {
        let signer = StandardSigner::new(&"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into()).expect("a signer");
        let value = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(value.expect("a header"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
