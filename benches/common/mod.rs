//! What the benches share: keys, filled ledgers, crowds of callers.
#![allow(dead_code, missing_docs)]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use onceledger::{Claim, Key, Ledger, Options, Outcome, Scope, Settlement};

/// About what a provider answers: 100 bytes.
pub const OUTCOME: &str =
    r#"{"status":"refunded","id":"re_0123456789abcdef0123456789abcdef","amount":79,"currency":"EUR","n":1}"#;

static NEXT: AtomicU64 = AtomicU64::new(1 << 40);

/// A number that no key of this process has had.
pub fn fresh() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub fn key(number: u64) -> Key {
    Key::action(&Scope::new("bench").unwrap(), "refund", [number.to_string()]).unwrap()
}

pub fn options() -> Options {
    Options::new().cache_bytes(512 << 20)
}

/// A folder on the disk the build uses: the system's temporary folder may be memory.
pub fn folder() -> tempfile::TempDir {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    tempfile::tempdir_in(base).unwrap()
}

/// Claims and settles one fresh key on this thread.
pub fn pair(ledger: &Ledger, number: u64) {
    let grant = ledger.claim(&Claim::unguarded(key(number))).unwrap().granted().unwrap();
    let _ = grant.complete(Outcome::json(OUTCOME)).unwrap();
}

/// Claims and settles `count` fresh keys on each of `threads` threads.
pub fn pairs_by_threads(ledger: &Ledger, threads: u64, count: u64) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..count).for_each(|_| pair(ledger, fresh())));
        }
    });
}

/// Claims and settles every number of a range, with `waiting` futures in flight.
pub fn pairs_by_futures(ledger: &Ledger, waiting: u64, numbers: std::ops::Range<u64>) {
    let next = std::sync::Arc::new(AtomicU64::new(numbers.start));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let one = || {
            let (ledger, next, end) = (ledger.clone(), std::sync::Arc::clone(&next), numbers.end);
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= end {
                        return;
                    }
                    let claim = Claim::unguarded(key(number));
                    let grant = ledger.claim_async(&claim).await.unwrap().granted().unwrap();
                    let _ = grant.settle_async(Settlement::done(Outcome::json(OUTCOME))).await.unwrap();
                }
            })
        };
        let tasks: Vec<_> = (0..waiting).map(|_| one()).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// A ledger with `done` settled keys, numbered from 0.
pub fn filled(path: &Path, done: u64) -> Ledger {
    let ledger = options().create(path).unwrap();
    pairs_by_futures(&ledger, 1024, 0..done);
    ledger
}
