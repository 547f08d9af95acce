//! The kit's own random numbers: small, fixed for ever, the same on every machine.

/// The splitmix64 generator. The same seed gives the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct SplitMix {
    state: u64,
}

impl SplitMix {
    /// A generator with this seed. Every seed is as good as another, 0 too.
    pub fn new(seed: u64) -> Self {
        SplitMix { state: seed }
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number under `end`; 0 where `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of a 128-bit product: no division, and a bias no test can see.
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// True half of the time.
    pub fn coin(&mut self) -> bool {
        self.next_u64() >> 63 == 1
    }
}
