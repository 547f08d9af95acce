//! T8: sequences of calls, crashes, failing operations, time and reopening in one alphabet, against
//! the model; in half of the runs with caches so small that nothing stays in them.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::driver::{Driver, Step};
use crate::kit::{Tally, floor, seed, violated};

fn steps(faults: bool) -> impl Strategy<Value = (u64, bool, Vec<Step>)> {
    let step = any::<[u8; 8]>().prop_map(move |bytes| Step::from_bytes(bytes, faults));
    (any::<u64>(), any::<bool>(), proptest::collection::vec(step, 1..40))
}

fn explore(name: &str, cases: u64, faults: bool) -> Tally {
    let tally = Cell::new(Tally::default());
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed().to_le_bytes());
    let config = Config {
        cases: u32::try_from(cases).unwrap(),
        failure_persistence: None,
        max_shrink_iters: 4_000,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let ended = runner.run(&steps(faults), |(seed, small, steps)| {
        let mut driver = Driver::create(seed, small);
        for step in steps {
            driver.step(step).map_err(TestCaseError::fail)?;
        }
        driver.end().map_err(TestCaseError::fail)?;
        let mut seen = tally.get();
        seen.add(Tally { cases: 1, faults: driver.faults + driver.crashes, unknown: driver.unknown });
        tally.set(seen);
        Ok(())
    });
    match ended {
        Ok(()) => tally.get(),
        Err(TestError::Fail(why, input)) => violated(name, seed(), format!("{why}\nsteps: {input:?}")),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

#[test]
fn t08_every_sequence_of_calls_crashes_and_faults_stays_within_the_model() {
    let floor = floor(2_000, 1_000_000);
    explore("t08", floor, true).end("T8", floor, "");
}

#[test]
fn t08_without_faults() {
    explore("t08", 500, false).end("T8-without-faults", 500, "");
}
