//! Keys and outcomes: the same numbers, sizes and order for every side.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The key of a peer: 32 bytes that look random, as a digest does.
pub type Digest = [u8; 32];

/// What every effect returns: 100 bytes of JSON text.
pub const OUTCOME: &str = concat!(
    r#"{"refund":"re_3PqK2eLk","order":"ord_42","amount":79,"#,
    r#""currency":"EUR","status":"succeeded","n":1234}"#
);
const _: () = assert!(OUTCOME.len() == 100);

/// What every peer keeps beside a key, as onceledger keeps a fingerprint.
pub const FINGERPRINT: Digest = [0x5a; 32];

/// Look-ups made between two refreshes of a kept read transaction, and between two looks at the clock.
pub const CHUNK: usize = 1_024;

const SAMPLE: usize = 256 * CHUNK;
const FRESH_FIRST: u64 = 1 << 40;
const VACANT_FIRST: u64 = 1 << 48;

static FRESH: AtomicU64 = AtomicU64::new(FRESH_FIRST);

/// A number that no claim of this process had before.
pub fn fresh() -> u64 {
    FRESH.fetch_add(1, Ordering::Relaxed)
}

/// The digest of a number. A mixer and no hash: what a digest costs is not a peer's cost.
pub fn digest(number: u64) -> Digest {
    let mut digest = [0; 32];
    let mut state = number.wrapping_mul(4);
    for lane in digest.chunks_exact_mut(8) {
        state = state.wrapping_add(1);
        lane.copy_from_slice(&mix(state).to_le_bytes());
    }
    digest
}

/// The digests of `0..done`, sorted: the order in which a bulk load is cheapest.
pub fn sorted_digests(done: u64) -> Vec<Digest> {
    let mut digests: Vec<Digest> = (0..done).map(digest).collect();
    digests.sort_unstable();
    digests
}

/// Numbers of done claims in random order, with repeats.
pub fn done_sample(done: u64) -> impl Iterator<Item = u64> {
    (0..SAMPLE as u64).map(move |i| mix(i) % done)
}

/// Numbers nobody ever claims.
pub fn vacant_sample() -> Range<u64> {
    VACANT_FIRST..VACANT_FIRST + SAMPLE as u64
}

/// Tool arguments: 200 bytes of raw JSON, keys in the order a model writes them.
pub fn arguments(number: u64) -> String {
    let head = format!(
        r#"{{"order_id":"ord_{number:012}","amount":79.50,"currency":"EUR","reason":"damaged","items":[1,2,3],"note":""#
    );
    format!("{head:z<198}\"}}")
}

/// The finaliser of SplitMix64.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_200_bytes_of_json() {
        let text = arguments(7);
        assert_eq!(text.len(), 200);
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
    }

    #[test]
    fn digests_differ() {
        let digests = sorted_digests(10_000);
        assert!(digests.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
