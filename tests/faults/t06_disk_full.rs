//! T6: the disk is full, or a write is cut short, at every operation that grows something. With the
//! space still gone a reopened ledger serves what it knows and refuses to grant; with space again it
//! goes on.

use onceledger::Claimed;
use onceledger::testkit::{Failure, Fault, Plan, SplitMix};

use crate::driver::{Driver, KEYS, Step, key};
use crate::kit::{Tally, seed, violated};
use crate::t05_io_errors::under;

/// Fills the disk from an operation on; reopens on the full disk; frees it. `None`: met nothing.
fn full(seed: u64, from: u64) -> Result<Option<(Tally, u64)>, String> {
    let mut driver = Driver::create(seed, false);
    let start = driver.disk.operations();
    let at = start + from;
    driver.disk.set_plan(Plan::new().full_from(at));
    let mut random = SplitMix::new(seed);
    for _ in 0..40 {
        driver.step(Step::random(&mut random, false))?;
        if driver.disk.injected() > 0 {
            break;
        }
    }
    if driver.disk.injected() == 0 {
        return Ok(None);
    }
    let unknown = driver.unknown;
    let trace = driver.disk.trace();
    let met = trace.iter().position(|line| line.contains("failed: Full")).unwrap() as u64 + 1 - start;
    // Killed, and started again with the space still gone.
    driver.disk.stop();
    driver.ledger = None;
    driver.grants.clear();
    driver.tickets.clear();
    driver.model.orphan(&[]);
    let disk = driver.disk.process_crash();
    disk.set_plan(Plan::new().full_from(1));
    let options = |disk: &onceledger::testkit::FaultDisk| {
        onceledger::Options::new()
            .disk(std::sync::Arc::new(disk.clone()))
            .clock(std::sync::Arc::new(driver.clock.clone_hands()))
            .threads(false)
            .outcome_bytes_max(4096)
    };
    let trail = |what: String| format!("{what}\n  {}", driver.trail());
    let ledger = options(&disk).open(crate::driver::FILE);
    let ledger = ledger.map_err(|error| trail(format!("opening on a full disk ended with {error:?}")))?;
    for number in 0..KEYS {
        let view = ledger.check(&key(number));
        let saw = onceledger::testkit::Saw::view(&view);
        let _ = view.map_err(|error| trail(format!("a check on a full disk ended with {error}")))?;
        let held = driver.model.clone().call(&key(number), driver.now_ms(), &onceledger::testkit::Call::Check, &saw);
        held.map_err(|what| trail(what.to_string()))?;
    }
    // A new key, so that only the space stands in the way.
    let scope = onceledger::Scope::new("acme/full").unwrap();
    let new = onceledger::Claim::unguarded(onceledger::Key::action(&scope, "act", ["new"]).unwrap());
    match ledger.claim(&new) {
        Err(error) if error.is_storage() => {}
        Err(error) => return Err(trail(format!("a claim on a full disk ended with {error:?}"))),
        // What fits into the space the file has is granted rightly: it is on disk.
        Ok(Claimed::Granted(_)) => {}
        Ok(other) => return Err(trail(format!("a claim on a full disk answered {other:?}"))),
    }
    disk.stop();
    drop(ledger);
    let freed = disk.process_crash();
    let checked = crate::driver::check_image(&freed, &driver.clock.clone_hands(), driver.known(), true);
    checked.map_err(&trail)?;
    Ok(Some((Tally { cases: 1, faults: 1, unknown }, met)))
}

#[test]
fn t06_a_full_disk_serves_what_is_known_and_grants_nothing() {
    let mut tally = Tally::default();
    let mut places = std::collections::BTreeSet::new();
    for seed in seed()..seed() + 4 {
        let mut from = 1;
        loop {
            match full(seed, from) {
                // From the operation that met it on: the ones before it meet the same.
                Ok(Some((seen, met))) => {
                    tally.add(seen);
                    places.insert((seed, met));
                    from = met + 1;
                }
                Ok(None) => break,
                Err(what) => violated("t06", seed, format!("full from operation {from}: {what}")),
            }
        }
    }
    tally.end("T6", 25, format!("growths={}", places.len()));
}

#[test]
fn t06_a_write_cut_short_loses_nothing_that_was_answered() {
    let mut tally = Tally::default();
    for number in 1.. {
        let plan = Fault::at(number).with(Failure::Short);
        match under(seed() + 1, 20, plan.into()) {
            Ok(Some(seen)) => tally.add(seen),
            Ok(None) => break,
            Err(what) => violated("t06", seed(), format!("short at operation {number}: {what}")),
        }
    }
    tally.end("T6-short", 100, "");
}
