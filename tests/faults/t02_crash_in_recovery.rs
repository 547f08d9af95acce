//! T2: a crash inside recovery itself, at every operation of an open, after a crash of a run.

use std::time::Duration;

use onceledger::testkit::{CrashOptions, FakeClock, FaultDisk, SplitMix};

use crate::driver::{Driver, Known, check_image, known_at};
use crate::kit::{Tally, floor, is_long, seed, violated};
use crate::t01_crash_at_every_sync::run;

/// Opens a disk and dies at each operation of it; what is left is opened again, `depth` times.
fn crash_open(disk: &FaultDisk, clock: &FakeClock, known: &Known, depth: u32, tally: &mut Tally) -> Result<(), String> {
    let options = |disk: &FaultDisk, clock: &FakeClock| {
        onceledger::Options::new()
            .disk(std::sync::Arc::new(disk.clone()))
            .clock(std::sync::Arc::new(clock.clone()))
            .threads(false)
    };
    for number in 1.. {
        let copy = disk.process_crash();
        copy.stop_at(number);
        let clock = clock.clone_hands();
        let opened = options(&copy, &clock).open(crate::driver::FILE);
        let whole = !copy.stopped();
        copy.stop();
        drop(opened);
        if whole {
            return Ok(());
        }
        // The same boot, or the power lost and another one.
        let images = copy.crash_images(&CrashOptions { seed: number, ..CrashOptions::default() });
        let stride = images.len().div_ceil(3).max(1);
        let rebooted = clock.clone_hands();
        rebooted.reboot(Duration::ZERO);
        let lost = std::iter::once((copy.power_loss(), &rebooted));
        let left = std::iter::once((copy.process_crash(), &clock)).chain(lost);
        for (image, clock) in left.chain(images.step_by(stride).map(|image| (image, &rebooted))) {
            if depth > 1 && tally.cases.is_multiple_of(5) {
                crash_open(&image, clock, known, depth - 1, tally)?;
            }
            let deep = tally.cases.is_multiple_of(16);
            check_image(&image, clock, known.clone(), deep)
                .map_err(|what| format!("died at operation {number} of the open: {what}"))?;
            tally.cases += 1;
            tally.faults += 1;
        }
    }
    Ok(())
}

#[test]
fn t02_a_crash_inside_recovery_loses_nothing() {
    let floor = floor(5_000, 200_000);
    let depth = if is_long() { 2 } else { 1 };
    let mut tally = Tally::default();
    let mut number = seed();
    while tally.cases < floor {
        let mut driver = run(number, 50);
        let epochs = driver.disk.epochs();
        let log = driver.log.take().unwrap();
        let mut random = SplitMix::new(number);
        for _ in 0..4 {
            let epoch = &epochs[random.below(epochs.len() as u64) as usize];
            let Some((known, clock, step)) = known_at(&log, epoch.operation) else { continue };
            let options = CrashOptions { seed: number, ..CrashOptions::default() };
            let mut images = epoch.disk.crash_images(&options);
            let at = random.below(images.len() as u64) as usize;
            let rebooted = clock.clone_hands();
            rebooted.reboot(Duration::ZERO);
            let states = [(epoch.disk.process_crash(), clock), (images.nth(at).unwrap(), rebooted)];
            for (disk, clock) in states {
                if let Err(what) = crash_open(&disk, &clock, &known, depth, &mut tally) {
                    violated("t02", number, format!("{}: {what}\n{step:#?}", disk.origin()));
                }
            }
        }
        number += 1;
    }
    tally.end("T2", floor, format!("depth={depth}"));
}

#[test]
fn t02_a_crash_while_creating_is_completed_or_started_over() {
    let mut tally = Tally::default();
    for number in 1.. {
        let disk = FaultDisk::new(7);
        disk.stop_at(number);
        let created = Driver::try_create(disk.clone(), false);
        let whole = !disk.stopped();
        disk.stop();
        drop(created);
        let images = disk.crash_images(&CrashOptions::default());
        let stride = images.len().div_ceil(200).max(1);
        for image in [disk.process_crash(), disk.power_loss()].into_iter().chain(images.step_by(stride)) {
            let clock = FakeClock::new();
            let options = || {
                onceledger::Options::new()
                    .disk(std::sync::Arc::new(image.clone()))
                    .clock(std::sync::Arc::new(clock.clone()))
                    .threads(false)
            };
            // `open` finds a ledger or says that there is none; it never makes one.
            if let Err(error) = options().open(crate::driver::FILE)
                && error.kind() != onceledger::ErrorKind::Missing
            {
                panic!("{}: operation {number}: open ended with {error:?}", image.origin());
            }
            // Whichever of the two is asked; a `create` may only find that it had been completed.
            let ledger = match options().create(crate::driver::FILE) {
                Err(error) if error.kind() == onceledger::ErrorKind::Exists => options().open(crate::driver::FILE),
                created if tally.cases.is_multiple_of(2) => created,
                created => {
                    drop(created);
                    options().open_or_create(crate::driver::FILE)
                }
            };
            let ledger = ledger.unwrap_or_else(|error| panic!("{}: operation {number}: {error:?}", image.origin()));
            let terms = onceledger::testkit::Terms::default();
            let claimed = ledger.claim(&crate::driver::claim(0, 1, &terms)).unwrap();
            assert!(claimed.granted().is_some(), "{}: operation {number}", image.origin());
            ledger.close().unwrap();
            check_image(&image, &clock, Known::new(), false).expect_err("the claim is there");
            tally.cases += 1;
            tally.faults += 1;
        }
        if whole {
            break;
        }
    }
    tally.end("T2-creating", 100, "");
}
