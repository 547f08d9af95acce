//! What a closing says: the same to every handle, and never that a ledger that failed was closed in order (P13).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use onceledger::testkit::{Clock, Failure, FakeClock, Fault, Operation, Plan, Reading};
use onceledger::{Error, ErrorKind, Ledger, Settlement};

use crate::futures::poll;
use crate::kit::*;

/// What a close says, kind and words.
fn said(closed: Result<u64, Error>) -> Result<u64, (ErrorKind, String)> {
    closed.map_err(|error| (error.kind(), error.to_string()))
}

/// A close that fails says so; what was acknowledged is there.
#[test]
fn a_close_that_fails_says_so_to_everybody_and_loses_nothing() {
    for operation in 1.. {
        let place = Place::fault();
        let ledger = place.create();
        let _ = grant(&ledger, &claim("k")).complete("x").unwrap();
        let denied = Failure::Kind(std::io::ErrorKind::PermissionDenied);
        place.faults().set_plan(Fault::at(place.faults().operations() + operation).with(denied));
        let first = said(ledger.clone().close());
        assert!(first.as_ref().err().is_none_or(|(kind, _)| *kind == ErrorKind::Storage), "{operation}: {first:?}");
        assert_eq!(said(ledger.clone().close()), first, "operation {operation}");
        assert_eq!(ledger.check(&key("k")).unwrap_err().kind(), ErrorKind::Closed);
        let injected = place.faults().injected();
        place.faults().set_plan(Plan::new());
        assert_eq!(refused(&place.open(), &claim("k")), "done");
        if injected == 0 {
            assert!(first.is_ok() && operation > 8, "{operation}: {first:?}");
            break;
        }
    }
}

/// Closing a ledger that has closed itself after a failure is not told as a closing in order.
#[test]
fn p13_a_close_after_a_failure_says_what_failed() {
    let place = Place::fault();
    let ledger = place.create();
    place.faults().set_plan(Fault::on(Operation::Sync).path("/ledger").always());
    let failed = ledger.claim(&claim("k")).unwrap_err();
    place.faults().set_plan(Plan::new());
    let (kind, words) = said(ledger.clone().close()).unwrap_err();
    assert_eq!(kind, ErrorKind::Storage);
    assert!(failed.to_string().contains("injected") && words.contains("injected"), "{failed}; {words}");
    assert_eq!(said(ledger.close()), Err((kind, words)));
    let again = place.open();
    again.clone().close().unwrap();
    again.close().unwrap();
}

/// A disk that was full at the opening and then fails: it is the failure that is told.
#[test]
fn p13_a_failure_of_a_ledger_that_only_reads_is_told_by_its_close() {
    let place = Place::fault();
    let ledger = place.create();
    let _ = grant(&ledger, &claim("k")).complete("x".repeat(100_000)).unwrap();
    ledger.close().unwrap();
    let disk = place.faults().process_crash();
    let place = Place::of(disk.clone());
    let open = || place.options().cache_bytes(0).page_cache_bytes(0).open(&place.path).unwrap();
    disk.set_plan(Plan::new().full_from(1));
    let ledger = open();
    assert!(ledger.writable().is_err());
    ledger.clone().close().unwrap();
    ledger.close().unwrap();
    let ledger = open();
    disk.set_plan(Fault::on(Operation::Read).path("/ledger").always());
    assert!(ledger.check(&key("k")).is_err());
    for _ in 0..2 {
        let (_, words) = said(ledger.clone().close()).unwrap_err();
        assert!(words.contains("injected"), "{words}");
    }
}

/// The claims in progress are those when the line was written, for every handle.
#[test]
fn a_close_counts_what_is_in_progress_once_the_line_is_written() {
    let place = Place::memory();
    let ledger = place.create();
    let _held = grant(&ledger, &claim("held"));
    let mut settling = Box::pin(grant(&ledger, &claim("k")).settle_async(Settlement::done("x")));
    assert!(poll(settling.as_mut(), Waker::noop()).is_pending());
    assert_eq!(said(ledger.clone().close()), Ok(1));
    assert_eq!(said(ledger.close()), Ok(1));
}

/// A disk that panics while the ledger is closed: the close failed, and the file's lock is given back.
#[test]
fn p13_a_panic_while_closing_is_a_close_that_failed() {
    for operation in ["write_at", "sync", "rename", "sync_dir"] {
        let place = Place::memory();
        let panics = Arc::new(AtomicBool::new(false));
        let disk = {
            let panics = Arc::clone(&panics);
            HookDisk::new(Arc::clone(&place.disk), move |now| {
                assert!(now != operation || !panics.load(Ordering::SeqCst), "the disk panics at {now}");
            })
        };
        let ledger = place.options().disk(Arc::new(disk)).create(&place.path).unwrap();
        let _ = grant(&ledger, &claim("k")).complete("x").unwrap();
        panics.store(true, Ordering::SeqCst);
        let first = said(ledger.clone().close());
        panics.store(false, Ordering::SeqCst);
        assert!(first.is_err(), "{operation}");
        assert_eq!(said(ledger.close()), first);
        assert_eq!(refused(&place.open(), &claim("k")), "done");
    }
}

/// A clock that does something at a reading.
#[derive(Clone)]
struct HookClock(FakeClock, Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for HookClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookClock")
    }
}

impl Clock for HookClock {
    fn read(&self) -> Reading {
        (self.1)();
        self.0.read()
    }
}

/// Whoever keeps time while somebody else closes: the closing is in order, and is told so.
#[test]
fn a_tick_beside_a_close_is_no_failure() {
    for reading in 0..4 {
        let place = Place::memory();
        let left = Arc::new(AtomicU64::new(u64::MAX));
        let closing: Arc<Mutex<Option<Ledger>>> = Arc::default();
        let hook = {
            let (left, closing) = (Arc::clone(&left), Arc::clone(&closing));
            move || {
                if left.fetch_sub(1, Ordering::SeqCst) == 0
                    && let Some(ledger) = closing.lock().unwrap().take()
                {
                    let close = std::thread::spawn(move || ledger.close().unwrap());
                    // The pen may be in this very thread's hand: then the close comes after.
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    drop(close);
                }
            }
        };
        let clock = HookClock(place.clock.clone(), Arc::new(hook));
        let ledger = place.options().clock(Arc::new(clock)).create(&place.path).unwrap();
        let _ = grant(&ledger, &claim("k")).complete("x").unwrap();
        *closing.lock().unwrap() = Some(ledger.clone());
        left.store(reading, Ordering::SeqCst);
        ledger.tick();
        left.store(u64::MAX, Ordering::SeqCst);
        assert_eq!(said(ledger.clone().close()), Ok(0), "at reading {reading}");
        assert_eq!(ledger.check(&key("k")).unwrap_err().kind(), ErrorKind::Closed);
    }
}

/// A clock that panics in a tick closes the ledger, as it does in a thread of the ledger's own.
#[test]
fn p13_a_panic_in_a_tick_closes_the_ledger() {
    let place = Place::memory();
    let panics = Arc::new(AtomicBool::new(false));
    let hook = {
        let panics = Arc::clone(&panics);
        move || assert!(!panics.load(Ordering::SeqCst), "the clock panics")
    };
    let clock = HookClock(place.clock.clone(), Arc::new(hook));
    let ledger = place.options().clock(Arc::new(clock)).create(&place.path).unwrap();
    let mut claiming = Box::pin(ledger.claim_async(&claim("k")));
    assert!(poll(claiming.as_mut(), Waker::noop()).is_pending());
    panics.store(true, Ordering::SeqCst);
    ledger.tick();
    let Poll::Ready(Err(error)) = poll(claiming.as_mut(), Waker::noop()) else { panic!("whoever waited hears of it") };
    assert!(error.is_storage(), "{error:?}");
    panics.store(false, Ordering::SeqCst);
    assert!(ledger.claim(&claim("z")).unwrap_err().is_storage());
    let (_, words) = said(ledger.close()).unwrap_err();
    assert!(words.contains("the clock panics"), "{words}");
    assert_eq!(standing(&place.open(), "k"), "vacant");
}

/// Many close at once, some beside a failure: all hear the same.
#[test]
fn p13_closes_at_once_all_say_the_same() {
    for round in 0..40 {
        let place = Place::fault();
        let ledger = place.options().threads(true).create(&place.path).unwrap();
        let _ = grant(&ledger, &claim("k")).complete("x").unwrap();
        place.faults().set_plan(match round % 4 {
            0 => Plan::new(),
            1 => Fault::on(Operation::Write).path(".anchor.new").always().into(),
            2 => Fault::on(Operation::Sync).path("/ledger").always().into(),
            _ => Fault::on(Operation::Sync).path("/ledger").after(1).always().into(),
        });
        let told: Vec<_> = std::thread::scope(|scope| {
            let closers: Vec<_> = (0..6)
                .map(|closer| {
                    let ledger = ledger.clone();
                    scope.spawn(move || {
                        if closer == 5 {
                            let _ = ledger.claim(&claim("z"));
                        }
                        said(ledger.close())
                    })
                })
                .collect();
            closers.into_iter().map(|closer| closer.join().unwrap()).collect()
        });
        assert!(told.iter().all(|one| *one == told[0]), "round {round}: {told:#?}");
        assert!(round % 4 != 0 || told[0].is_ok(), "round {round}: {told:#?}");
    }
}
