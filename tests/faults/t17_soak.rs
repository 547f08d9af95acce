//! T17: writers, expiry and kills for a while: the file and the index stay bounded, and nothing is
//! granted twice.

use std::sync::Arc;
use std::time::Duration;

use onceledger::testkit::{Disk, Effects, FakeClock, FaultDisk, SplitMix};
use onceledger::{Claim, Claimed, Key, Ledger, Options, Outcome, Scope};

use crate::driver::FILE;
use crate::kit::{Tally, floor, seed, violated};

const REMEMBER: Duration = Duration::from_secs(60);

fn key(number: u64) -> Key {
    Key::action(&Scope::new("acme/soak").unwrap(), "act", [number.to_le_bytes()]).unwrap()
}

fn open(disk: &FaultDisk, clock: &FakeClock, create: bool) -> Ledger {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = Options::new().disk(shared).clock(Arc::new(clock.clone())).threads(false).remember(REMEMBER);
    if create { options.create(FILE).unwrap() } else { options.open(FILE).unwrap() }
}

#[test]
fn t17_file_and_index_stay_bounded() {
    // Each round: 200 claims in a second, of which all but a few are forgotten after a minute.
    const PER_ROUND: u64 = 200;
    let rounds = floor(150, 20_000);
    let mut random = SplitMix::new(seed());
    let mut disk = FaultDisk::new(seed());
    let clock = FakeClock::new();
    let mut ledger = open(&disk, &clock, true);
    let mut effects = Effects::new();
    let (mut bytes_max, mut half_bytes, mut live_max, mut kills) = (0, 0, 0, 0_u64);
    let mut doubts = 0_u64;
    for round in 0..rounds {
        let claims: Vec<Claim> =
            (0..PER_ROUND).map(|number| Claim::unguarded(key(round * PER_ROUND + number))).collect();
        let waiting: Vec<_> = claims.iter().map(|claim| ledger.claim_async(claim)).collect();
        let settled = run_all(&ledger, waiting);
        let mut settling = Vec::new();
        for (claim, claimed) in claims.iter().zip(settled) {
            let Ok(Claimed::Granted(grant)) = claimed else { violated("t17", seed(), format!("{claimed:?}")) };
            effects.happened(claim.key(), grant.token().get());
            // One in a thousand is left in doubt: it must not pin the log.
            if random.below(1000) == 0 {
                doubts += 1;
                drop(grant);
            } else {
                settling.push(grant.settle_async(onceledger::Settlement::done(Outcome::text("x".repeat(100)))));
            }
        }
        for settled in run_all(&ledger, settling) {
            let _ = settled.unwrap();
        }
        clock.advance(Duration::from_secs(1));
        for _ in 0..4 {
            ledger.tick();
        }
        if random.below(40) == 0 {
            kills += 1;
            disk.stop();
            drop(ledger);
            disk = disk.process_crash();
            ledger = open(&disk, &clock, false);
        }
        let stats = ledger.stats().unwrap();
        live_max = live_max.max(stats.done + stats.vacant);
        bytes_max = bytes_max.max(stats.file_bytes);
        if round == rounds / 2 {
            half_bytes = bytes_max;
        }
        if stats.uncertain != doubts {
            violated("t17", seed(), format!("{doubts} doubts were left and {} are there", stats.uncertain));
        }
    }
    assert!(effects.excess().is_empty(), "{:?}", effects.excess());
    // A minute's worth, and what a sweep lags behind.
    assert!(live_max <= PER_ROUND * 70, "{live_max} live keys");
    assert!(bytes_max <= half_bytes * 2, "the file grows: {half_bytes} bytes at half time, {bytes_max} at the end");
    ledger.verify().unwrap();
    let tally = Tally { cases: rounds * PER_ROUND, faults: kills, unknown: 0 };
    tally.end("T17", rounds * PER_ROUND, format!("file_bytes_max={bytes_max} live_max={live_max} doubts={doubts}"));
}

/// Polls futures on a ledger without threads until all are ready.
fn run_all<F: Future>(ledger: &Ledger, futures: Vec<F>) -> Vec<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut ready: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    while ready.iter().any(Option::is_none) {
        for (future, ready) in futures.iter_mut().zip(&mut ready).filter(|(_, ready)| ready.is_none()) {
            if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
                *ready = Some(output);
            }
        }
        ledger.tick();
    }
    ready.into_iter().map(Option::unwrap).collect()
}
