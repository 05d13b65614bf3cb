//! A hash for numbers that nobody hostile has chosen.

use std::hash::Hasher;

/// Spreads numbers of lanes and threads, which are handed out one after the other and by nobody hostile.
#[derive(Default)]
pub(super) struct NumberHash(u64);

impl Hasher for NumberHash {
    fn write(&mut self, _bytes: &[u8]) {}

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number.cast_unsigned());
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
