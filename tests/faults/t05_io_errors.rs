//! T5: an I/O error at operation N of a run, for N = 1, 2, … until a run meets none: once, and for
//! ever; and the same for each kind of operation.

use std::time::Duration;

use onceledger::testkit::{Failure, Fault, FaultDisk, Operation, Plan, SplitMix};

use crate::driver::{Driver, Step, check_image};
use crate::kit::{Tally, is_long, seed, violated};

/// One run under a plan, from the creation on. `None` where the plan met nothing.
pub fn under(seed: u64, calls: usize, plan: Plan) -> Result<Option<Tally>, String> {
    let disk = FaultDisk::new(seed);
    disk.set_plan(plan);
    let mut driver = match Driver::try_create(disk, false) {
        Ok(driver) => driver,
        Err((driver, error)) => {
            if driver.disk.injected() == 0 {
                return Err(format!("creating ended with {error}"));
            }
            return created_later(&driver.disk).map(Some);
        }
    };
    let mut random = SplitMix::new(seed);
    for _ in 0..calls {
        driver.step(Step::random(&mut random, false))?;
    }
    // As a process that ends by itself: what it holds is dropped, and the ledger closed.
    driver.step(Step::Reopen)?;
    driver.disk.stop();
    let injected = driver.disk.injected();
    let unknown = driver.unknown;
    driver.ledger = None;
    driver.grants.clear();
    driver.tickets.clear();
    for (disk, boots) in [(driver.disk.process_crash(), false), (driver.disk.power_loss(), true)] {
        let clock = driver.clock.clone_hands();
        if boots {
            clock.reboot(Duration::ZERO);
        }
        check_image(&disk, &clock, driver.known(), true).map_err(|what| format!("{what}\n  {}", driver.trail()))?;
    }
    Ok((injected > 0).then_some(Tally { cases: 1, faults: injected, unknown }))
}

/// A creation that failed is completed or started over once the disk works.
fn created_later(disk: &FaultDisk) -> Result<Tally, String> {
    for disk in [disk.process_crash(), disk.power_loss()] {
        let options = onceledger::Options::new()
            .disk(std::sync::Arc::new(disk.clone()))
            .clock(std::sync::Arc::new(onceledger::testkit::FakeClock::new()))
            .threads(false);
        let opened = options.open_or_create(crate::driver::FILE);
        opened.map_err(|error| format!("{}: after a failed creation: {error}", disk.origin()))?;
    }
    Ok(Tally { cases: 1, faults: 1, unknown: 0 })
}

#[test]
fn t05_an_error_at_any_operation_loses_nothing_that_was_answered() {
    let calls = if is_long() { 200 } else { 20 };
    let mut tally = Tally::default();
    let mut run = |what: &str, plan: &dyn Fn(u64) -> Plan| {
        for number in 0.. {
            match under(seed(), calls, plan(number)) {
                Ok(Some(seen)) => tally.add(seen),
                Ok(None) => break,
                Err(violation) => violated("t05", seed(), format!("{what} {number}: {violation}")),
            }
        }
    };
    run("once, at operation", &|number| Fault::at(number + 1).into());
    run("for ever, from operation", &|number| Fault::from(number + 1).always().into());
    for kind in Operation::ALL {
        run(kind.name(), &|number| Fault::on(kind).after(number).into());
        run(kind.name(), &|number| Fault::on(kind).after(number).always().into());
    }
    run("cut short, at operation", &|number| Fault::at(number + 1).with(Failure::Short).into());
    tally.end("T5", 1_000, format!("calls={calls}"));
}
