//! T4: a sync fails, as each file system fails it; the process opens again and works on; the power
//! goes. One phase without the page pass must lose rows here, or the disk proves nothing; two-phase
//! commits without it are run and reported; with both nothing is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use onceledger::testkit::seam::BareStore;
use onceledger::testkit::{Disk, Failure, Fault, FaultDisk, Operation, SplitMix, SyncMode};

use crate::driver::{Driver, Step, check_image};
use crate::kit::{Tally, is_long, seed, violated};

const BARE: &str = "/bare.redb";
const ROWS_BEFORE: u64 = 60;

fn row(number: u64) -> Vec<u8> {
    (0..100 + number * 37 % 900).map(|index| (index ^ number) as u8).collect()
}

/// A disk that holds a store with some rows, numbered in hundreds, durably.
fn prepared() -> FaultDisk {
    let disk = FaultDisk::new(7);
    let mut store = BareStore::open(&disk, Path::new(BARE), true, false).unwrap();
    for number in 0..ROWS_BEFORE {
        store.commit(number * 100, &row(number * 100)).unwrap();
    }
    drop(store);
    disk.sync_dir(Path::new("/")).unwrap();
    disk.power_loss()
}

/// Fails one sync of the bare store, opens again, commits `later` rows, loses power. `None` where
/// the run has no such sync, otherwise whether every acknowledged row is there.
fn bare(from: &FaultDisk, mode: SyncMode, nth: u64, later: u64, two_phase: bool, page_pass: bool) -> Option<bool> {
    let disk = from.process_crash();
    disk.set_sync_mode(mode);
    disk.set_plan(Fault::on(Operation::Sync).after(nth).with(Failure::Sync));
    let mut acknowledged: Vec<u64> = (0..ROWS_BEFORE).map(|number| number * 100).collect();
    // Far apart, so that a page lost with one row is not written again with the next.
    let places = |from: u64| (from..).map(|index| index * 1700 % (ROWS_BEFORE * 100) + 1);
    let mut work = |disk: &FaultDisk, from, count: u64, page_pass| {
        let Ok(mut store) = BareStore::open(disk, Path::new(BARE), two_phase, page_pass) else { return };
        for number in places(from).take(count as usize) {
            match store.commit(number, &row(number)) {
                Ok(()) => acknowledged.push(number),
                Err(_) => break,
            }
        }
        disk.stop();
    };
    work(&disk, 0, 8, false);
    if disk.injected() == 0 {
        return None;
    }
    let disk = disk.process_crash();
    work(&disk, 20, later, page_pass);
    let after = disk.power_loss();
    let found = catch_unwind(AssertUnwindSafe(|| {
        let store = BareStore::open(&after, Path::new(BARE), two_phase, false)?;
        let missing = acknowledged.iter().filter(|number| store.row(**number).ok().flatten() != Some(row(**number)));
        let missing = missing.count();
        after.stop();
        onceledger::Result::Ok(missing)
    }));
    Some(matches!(found, Ok(Ok(0))))
}

#[test]
fn t04_the_bare_store_loses_rows_in_one_phase_and_none_with_two_phases_and_the_page_pass() {
    let from = prepared();
    let mut tally = Tally::default();
    let mut one_phase_lost = 0;
    for mode in SyncMode::ALL {
        for (two_phase, page_pass) in [(false, false), (true, false), (true, true)] {
            let (mut runs, mut lost) = (0_u64, 0_u64);
            for later in 0..=4 {
                for kept in (0..).map_while(|nth| bare(&from, mode, nth, later, two_phase, page_pass)) {
                    runs += 1;
                    lost += u64::from(!kept);
                }
            }
            println!("T4-bare mode={mode:?} two_phase={two_phase} page_pass={page_pass} runs={runs} lost={lost}");
            tally.cases += runs;
            tally.faults += runs;
            if two_phase && page_pass {
                assert_eq!(lost, 0, "{mode:?}: a row that was acknowledged is lost");
            }
            one_phase_lost += if two_phase { 0 } else { lost };
        }
    }
    assert!(one_phase_lost > 0, "a disk on which nothing is lost proves nothing");
    tally.end("T4-bare", 300, format!("one_phase_lost={one_phase_lost}"));
}

/// The ledger itself: one sync of a run fails, whichever file it is of.
fn ledger(seed: u64, mode: SyncMode, nth: u64, later: u64, failure: Failure) -> Result<Option<Tally>, String> {
    let mut driver = Driver::create(seed, false);
    driver.disk.set_sync_mode(mode);
    driver.disk.set_plan(Fault::on(Operation::Sync).after(nth).with(failure));
    let mut random = SplitMix::new(seed);
    for _ in 0..14 {
        driver.step(Step::random(&mut random, false))?;
    }
    if driver.disk.injected() == 0 {
        return Ok(None);
    }
    // The process is killed and started again under the same boot: the page cache is what it was.
    driver.step(Step::Crash { image: 0 })?;
    for number in 0..later {
        driver.step(Step::Claim { key: number as u8, args: 1, terms: 0 })?;
    }
    driver.disk.stop();
    let (known, clock) = (driver.known(), driver.clock.clone_hands());
    let unknown = driver.unknown;
    drop(driver.ledger.take());
    clock.reboot(Duration::ZERO);
    check_image(&driver.disk.power_loss(), &clock, known, true)?;
    Ok(Some(Tally { cases: 1, faults: 1, unknown }))
}

#[test]
fn t04_the_ledger_loses_nothing_to_a_failed_sync() {
    let every = if is_long() { 1 } else { 5 };
    let mut tally = Tally::default();
    for mode in SyncMode::ALL {
        for failure in [Failure::Sync, Failure::SyncPart] {
            for later in 0..=4 {
                for seed in seed()..seed() + 6 {
                    for nth in (later..).step_by(every) {
                        match ledger(seed, mode, nth, later, failure) {
                            Ok(Some(seen)) => tally.add(seen),
                            Ok(None) => break,
                            Err(what) => {
                                violated("t04", seed, format!("{mode:?} {failure:?} sync {nth}, {later} later: {what}"))
                            }
                        }
                    }
                }
            }
        }
    }
    tally.end("T4", 200, "");
}
