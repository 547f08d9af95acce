//! The byte of redb's header that names the last commit, and a commit whose first phase is all that reached
//! the file (P1, P12).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onceledger::testkit::{Disk, Failure, FakeClock, Fault, FaultDisk, Operation, Plan, SyncMode};
use onceledger::{Ledger, Options};

use crate::kit::*;

const FILE: &str = "/ledger";

fn options(disk: Arc<dyn Disk>) -> Options {
    Options::new().clock(Arc::new(FakeClock::new())).disk(disk).threads(false)
}

/// Some keys that are done, and one that is granted last.
fn with_a_last_grant(disk: &FaultDisk, keys: u64) -> Ledger {
    let ledger = options(Arc::new(disk.clone())).create(FILE).unwrap();
    for number in 0..keys {
        let _ = grant(&ledger, &claim(format!("filler {number}"))).complete("x").unwrap();
    }
    std::mem::forget(grant(&ledger, &claim("last")));
    ledger
}

/// The same after a claim whose first sync failed, as this disk fails them: its process is gone, and whatever was
/// planned for the disk.
fn with_an_unfinished_commit(mode: SyncMode) -> FaultDisk {
    let disk = FaultDisk::new(1);
    disk.set_sync_mode(mode);
    let ledger = with_a_last_grant(&disk, 10);
    disk.set_plan(Fault::on(Operation::Sync).with(Failure::Sync));
    assert!(ledger.claim(&claim("unanswered")).unwrap_err().is_unknown());
    disk.stop();
    drop(ledger);
    let disk = disk.process_crash();
    disk.set_plan(Plan::new());
    disk
}

/// A failed sync leaves a commit's first phase in the cache alone, which drops it at any moment of the next opening:
/// the slot it was in holds the commit before the last then, and that one is not what was looked at.
#[test]
fn p1_a_page_that_the_cache_drops_while_the_ledger_opens_does_not_roll_it_back() {
    for mode in [SyncMode::Ext4Ordered, SyncMode::Xfs] {
        let mut seen = Vec::new();
        for nth in 0..60 {
            let disk = with_an_unfinished_commit(mode);
            let (left, below) = (AtomicU64::new(nth), disk.clone());
            let evicting = HookDisk::new(Arc::new(disk.clone()), move |_| {
                let before = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                if before == Ok(1) {
                    below.drop_caches();
                }
            });
            let ledger = options(Arc::new(evicting)).open(FILE).unwrap();
            assert_eq!(standing(&ledger, "last"), "uncertain", "{mode:?}, dropped after operation {nth}");
            seen.push(standing(&ledger, "unanswered"));
        }
        assert!(
            seen.contains(&"vacant") && seen.contains(&"uncertain"),
            "both may be, by when it is dropped: {seen:?}"
        );
    }
}

/// What a ledger that may only read opens, redb does not write to either: it would overwrite the commit that only
/// the flag has lost.
#[test]
fn p12_a_changed_flag_on_a_full_disk_loses_nothing() {
    let mut read_only = 0;
    for keys in [0, 40, 400] {
        let disk = FaultDisk::new(1);
        let ledger = with_a_last_grant(&disk, keys);
        disk.stop();
        drop(ledger);
        let disk = disk.process_crash();
        disk.flip(FILE, 9, 1);
        disk.set_plan(Plan::new().full_from(1));
        let ledger = options(Arc::new(disk.clone())).open(FILE).unwrap();
        assert_eq!(standing(&ledger, "last"), "uncertain", "{keys} keys");
        read_only += u64::from(ledger.writable().is_err());
        drop(ledger);
        disk.set_plan(Plan::new());
        let ledger = options(Arc::new(disk)).open(FILE).unwrap();
        assert_eq!(standing(&ledger, "last"), "uncertain", "{keys} keys");
        assert!(ledger.claim(&claim("last")).unwrap().granted().is_none());
    }
    assert!(read_only > 0, "the disk was not full enough");
}

/// The page of a commit that a power loss cut short cannot be read: nothing that was answered refers to it.
#[test]
fn p12_an_unreadable_page_of_an_unfinished_commit_is_no_reason_to_refuse() {
    let mut fallen_back = 0;
    for nth in 0..40 {
        let disk = with_an_unfinished_commit(SyncMode::default());
        disk.set_plan(Fault::on(Operation::Read).after(nth).with(Failure::Io));
        // Another boot: what is in the cache is what is on disk, and the pass is for the newer commit alone.
        let clock = FakeClock::new();
        clock.reboot(std::time::Duration::ZERO);
        match options(Arc::new(disk.clone())).clock(Arc::new(clock)).open(FILE) {
            Ok(ledger) if disk.injected() > 0 => {
                assert_eq!(standing(&ledger, "last"), "uncertain");
                fallen_back += 1;
            }
            // Before the pass, in what both commits need, or nothing was read any more.
            Ok(_) => {}
            Err(error) => assert!(error.is_storage(), "{error:?}"),
        }
    }
    assert!(fallen_back > 0, "no read of the newer commit alone failed");
}
