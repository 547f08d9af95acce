//! Maps by digest and by token.

use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::{HashMap, HashSet};

use crate::engine::slots::KeyDigest;

/// Keys are digests and tokens are counters: their own bits serve as the hash.
#[derive(Clone, Copy, Default)]
pub(crate) struct OwnBits(u64);

impl Hasher for OwnBits {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk::<8>() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    fn write_usize(&mut self, _length: usize) {}

    fn write_u64(&mut self, number: u64) {
        // The golden ratio spreads consecutive tokens over all bits.
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Bits = BuildHasherDefault<OwnBits>;
pub(crate) type DigestSet = HashSet<KeyDigest, Bits>;
pub(crate) type DigestMap<V> = HashMap<KeyDigest, V, Bits>;
pub(crate) type TokenMap<V> = HashMap<u64, V, Bits>;
