//! T1: the power goes before every sync of a run of calls of every kind, and the disk keeps any part
//! of what was pending. What was answered stands; what was not may stand; nothing else does.

use onceledger::testkit::{CrashOptions, FaultDisk, SplitMix};

use crate::driver::{Driver, Step, check_image, known_at};
use crate::kit::{Tally, floor, is_long, seed, violated};

/// Runs calls on a new ledger and keeps the state before every sync.
pub fn run(seed: u64, steps: usize) -> Driver {
    let disk = FaultDisk::new(seed);
    disk.keep_epochs(true);
    let mut driver = Driver::try_create(disk, false).unwrap_or_else(|(_, error)| panic!("{error}"));
    driver.log = Some(Vec::new());
    let mut random = SplitMix::new(seed);
    for _ in 0..steps {
        let step = Step::random(&mut random, false);
        if let Err(what) = driver.step(step) {
            violated("t01", seed, what);
        }
    }
    driver
}

/// Crashes one run at every sync, in `most` states at most.
fn crash(seed: u64, most: usize) -> Tally {
    const STEPS: usize = 50;
    let mut driver = run(seed, STEPS);
    let epochs = driver.disk.epochs();
    let log = driver.log.take().unwrap();
    let options = CrashOptions { seed, ..CrashOptions::default() };
    let mut tally = Tally::default();
    let all: usize = epochs.iter().map(|epoch| epoch.disk.crash_images(&options).len()).sum();
    let stride = all.div_ceil(most).max(1);
    let mut skip = 0;
    for epoch in epochs {
        let Some((known, clock, step)) = known_at(&log, epoch.operation) else { continue };
        clock.reboot(std::time::Duration::ZERO);
        let mut images = epoch.disk.crash_images(&options);
        let count = images.len();
        let mut at = skip;
        while at < count {
            let image = images.nth(if at == skip { at } else { stride - 1 }).unwrap();
            let deep = tally.cases.is_multiple_of(16);
            match check_image(&image, &clock, known.clone(), deep) {
                Ok(()) => {}
                Err(what) => violated("t01", seed, format!("{what}\n{step:#?}")),
            }
            tally.cases += 1;
            tally.faults += 1;
            tally.unknown += u64::from(!step.pending.is_empty());
            at += stride;
        }
        skip = at - count;
    }
    tally
}

#[test]
fn t01_what_was_answered_survives_a_power_loss_before_every_sync() {
    let floor = floor(50_000, 5_000_000);
    let most = if is_long() { 200_000 } else { 12_000 };
    let threads = if is_long() { std::thread::available_parallelism().map_or(1, usize::from) as u64 } else { 1 };
    let first = seed();
    let mut tally = Tally::default();
    let mut next = first;
    while tally.cases < floor {
        let seeds: Vec<u64> = (next..next + threads).collect();
        next += threads;
        let ended: Vec<Tally> = std::thread::scope(|scope| {
            let threads: Vec<_> = seeds.into_iter().map(|seed| scope.spawn(move || crash(seed, most))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        ended.into_iter().for_each(|ended| tally.add(ended));
    }
    tally.end("T1", floor, format!("seeds={first}..{next}"));
}

#[test]
fn t01_without_faults() {
    let mut tally = Tally::default();
    for seed in seed()..seed() + 20 {
        let mut driver = run(seed, 100);
        if let Err(what) = driver.end() {
            violated("t01", seed, what);
        }
        tally.cases += 1;
    }
    tally.end("T1-without-faults", 20, "");
}
