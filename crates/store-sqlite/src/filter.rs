//! A split-block Bloom filter: says "certainly not here" about nearly every key that is not in a sealed period.

/// Eight 32-bit words, one bit set in each per key: one cache line answers.
type Block = [u32; 8];

const BITS_PER_KEY: usize = 16;
const BLOCK_BYTES: usize = 32;

pub(super) struct Filter(Vec<Block>);

impl Filter {
    pub(super) fn for_keys(count: usize) -> Self {
        Self(vec![[0; 8]; (count * BITS_PER_KEY).div_ceil(BLOCK_BYTES * 8).max(1)])
    }

    pub(super) fn insert(&mut self, key: &[u8; 32]) {
        let (block, bits) = halves(key);
        self.insert_halves(block, bits);
    }

    /// The same for what is as uniformly random: a number for the block and one for the bits.
    pub(super) fn insert_halves(&mut self, block: u64, bits: u64) {
        let (at, bits) = self.place(block, bits);
        for (word, bit) in self.0[at].iter_mut().zip(bits) {
            *word |= bit;
        }
    }

    /// False means certainly not; true means look it up.
    pub(super) fn may_hold(&self, key: &[u8; 32]) -> bool {
        let (block, bits) = halves(key);
        self.may_hold_halves(block, bits)
    }

    pub(super) fn may_hold_halves(&self, block: u64, bits: u64) -> bool {
        let (at, bits) = self.place(block, bits);
        self.0[at].iter().zip(bits).all(|(word, bit)| word & bit != 0)
    }

    fn place(&self, block: u64, draw: u64) -> (usize, Block) {
        let block = ((u128::from(block) * self.0.len() as u128) >> 64) as usize;
        let mut bits = [0; 8];
        for (n, bit) in bits.iter_mut().enumerate() {
            *bit = 1 << ((draw >> (n * 5)) & 31);
        }
        (block, bits)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flatten().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// `None` when the bytes are no filter.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || !bytes.len().is_multiple_of(BLOCK_BYTES) {
            return None;
        }
        let mut blocks = vec![[0; 8]; bytes.len() / BLOCK_BYTES];
        for (word, chunk) in blocks.iter_mut().flatten().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        }
        Some(Self(blocks))
    }
}

/// Keys are uniformly random already, so their own bytes serve as the hash.
fn halves(key: &[u8; 32]) -> (u64, u64) {
    let number = |at: usize| key[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (number(8), number(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> [u8; 32] {
        *blake3::hash(&n.to_le_bytes()).as_bytes()
    }

    #[test]
    fn what_went_in_is_always_found_and_little_else() {
        let mut filter = Filter::for_keys(10_000);
        (0..10_000).for_each(|n| filter.insert(&key(n)));
        let filter = Filter::from_bytes(&filter.to_bytes()).unwrap();
        assert!((0..10_000).all(|n| filter.may_hold(&key(n))));
        let wrong = (10_000..110_000).filter(|&n| filter.may_hold(&key(n))).count();
        assert!(wrong < 500, "{wrong} of 100000 found that never went in");
    }

    #[test]
    fn torn_bytes_are_no_filter() {
        assert!(Filter::from_bytes(&[]).is_none());
        assert!(Filter::from_bytes(&[0; 33]).is_none());
    }
}
