//! Bytes in a line.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hapax_store::steps::records::Hash;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Odd;

/// Bytes as base64.
pub(in crate::cli) struct Base64(pub(super) Vec<u8>);

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&base64::display::Base64Display::new(&self.0, &BASE64_STANDARD))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text).map(Self).map_err(D::Error::custom)
    }
}

impl Base64 {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    pub(super) fn hash(self) -> Result<Hash, Odd> {
        self.0.try_into().map_err(|_| Odd("a hash has 32 bytes"))
    }
}
