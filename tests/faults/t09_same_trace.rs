//! T9: the same seed twice gives the same trace, and with it the same run.

use onceledger::testkit::SplitMix;

use crate::driver::{Driver, Step};
use crate::kit::{Tally, floor, seed, violated};

fn trace(seed: u64) -> (Vec<String>, String) {
    let mut driver = Driver::create(seed, false);
    let mut random = SplitMix::new(seed);
    let mut traces = Vec::new();
    for _ in 0..60 {
        let step = Step::random(&mut random, true);
        if matches!(step, Step::Crash { .. }) {
            traces.extend(driver.disk.trace());
        }
        if let Err(what) = driver.step(step) {
            violated("t09", seed, what);
        }
    }
    traces.extend(driver.disk.trace());
    (traces, driver.trail())
}

#[test]
fn t09_the_same_seed_gives_the_same_trace() {
    let floor = floor(3, 200);
    let mut tally = Tally::default();
    for seed in seed()..seed() + floor {
        let (first, again) = (trace(seed), trace(seed));
        assert!(first.0.len() > 100);
        assert_eq!(first.1, again.1, "seed {seed}");
        for (one, other) in first.0.iter().zip(&again.0) {
            assert_eq!(one, other, "seed {seed}");
        }
        assert_eq!(first.0.len(), again.0.len(), "seed {seed}");
        tally.cases += 1;
    }
    tally.end("T9", floor, "");
}
