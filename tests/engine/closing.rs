//! Closing while something is under way, and a ledger that may only read: nobody is left waiting, nothing that
//! was given to nobody stays held (P13, P14).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use onceledger::testkit::{FakeClock, FaultDisk, Plan};
use onceledger::{Grant, Ledger, Options, Settlement};

use crate::futures::poll;
use crate::kit::*;

fn gated() -> (GateDisk, FakeClock, Ledger) {
    let (disk, clock) = (GateDisk::new(), FakeClock::new());
    let options = Options::new().clock(Arc::new(clock.clone())).disk(Arc::new(disk.disk.clone()));
    let ledger = options.create("/ledger").unwrap();
    (disk, clock, ledger)
}

/// A task is cancelled while its grant is being committed, and the service shuts down: the effect cannot have
/// begun, and the key must be free again, not uncertain.
#[test]
fn p14_a_grant_that_nobody_took_is_given_back_though_the_ledger_closes() {
    let (disk, _clock, ledger) = gated();
    let _ = grant(&ledger, &claim("before")).complete("x").unwrap();
    disk.shut();
    let mut claiming = Box::pin(ledger.claim_async(&claim("k")));
    assert!(poll(claiming.as_mut(), Waker::noop()).is_pending());
    disk.await_somebody();
    drop(claiming);
    std::thread::scope(|scope| {
        scope.spawn(|| ledger.clone().close().unwrap());
        // Long enough for the closing to have begun.
        std::thread::sleep(Duration::from_millis(100));
        disk.open_up();
    });
    drop(ledger);
    let again = Options::new().disk(Arc::new(disk.disk)).open("/ledger").unwrap();
    assert_eq!(standing(&again, "k"), "vacant");
    let _ = grant(&again, &claim("k")).complete("x").unwrap();
}

/// The same where the answer had come, nobody looked at it, and the ledger was closed before it was dropped.
#[test]
fn p14_an_answer_dropped_after_the_close_is_given_back_at_the_next_opening() {
    let place = Place::memory();
    let ledger = place.create();
    let _ = grant(&ledger, &claim("before")).complete("x").unwrap();
    let mut claiming = Box::pin(ledger.claim_async(&claim("k")));
    assert!(poll(claiming.as_mut(), Waker::noop()).is_pending());
    ledger.tick();
    assert_eq!(standing(&ledger, "k"), "in_progress");
    ledger.close().unwrap();
    drop(claiming);
    assert_eq!(standing(&place.open(), "k"), "vacant");
}

/// A waker drops the last handle while the keeper has a sweep in line: the closing waits for the keeper, which
/// must not wait for an answer that only this thread would give.
#[test]
fn a_waker_that_closes_while_the_keeper_sweeps_does_not_wait_for_itself() {
    struct Last(Mutex<Option<Ledger>>, std::sync::mpsc::Sender<()>);
    impl Wake for Last {
        fn wake(self: Arc<Self>) {
            let last = self.0.lock().unwrap().take();
            if last.is_some() {
                drop(last);
                let _ = self.1.send(());
            }
        }
    }
    let (disk, clock, ledger) = gated();
    for n in 0..100 {
        let _ = grant(&ledger, &claim(format!("old {n}")).remember(SECOND)).complete("x").unwrap();
    }
    let grants: Vec<Grant> = (0..10).map(|n| grant(&ledger, &claim(format!("{n}")))).collect();
    let (send, receive) = std::sync::mpsc::channel();
    let last = Arc::new(Last(Mutex::new(None), send));
    let waker = Waker::from(Arc::clone(&last));
    disk.shut();
    let mut settling = Vec::new();
    for (n, held) in grants.into_iter().enumerate() {
        let mut future = Box::pin(held.settle_async(Settlement::done("y")));
        assert!(poll(future.as_mut(), &waker).is_pending());
        if n == 0 {
            disk.await_somebody();
        }
        settling.push(future);
    }
    // The keeper looks once a second.
    clock.advance(10 * SECOND);
    std::thread::sleep(Duration::from_millis(1300));
    *last.0.lock().unwrap() = Some(ledger);
    disk.open_up();
    receive.recv_timeout(Duration::from_secs(60)).expect("a deadlock");
}

/// A ledger closed in order and opened on a full disk.
fn only_reads(clock: &FakeClock) -> Ledger {
    let options = |disk: &FaultDisk| Options::new().clock(Arc::new(clock.clone())).disk(Arc::new(disk.clone()));
    let disk = FaultDisk::new(1);
    let ledger = options(&disk).create("/ledger").unwrap();
    let _ = grant(&ledger, &claim("hour").keep(HOUR).remember(HOUR)).complete("x").unwrap();
    ledger.close().unwrap();
    let disk = disk.process_crash();
    disk.set_plan(Plan::new().full_from(1));
    let ledger = options(&disk).open("/ledger").unwrap();
    assert!(ledger.writable().is_err());
    ledger
}

/// Whoever claims on a ledger that only reads is refused, as a thread or as a future, alone or among others.
#[test]
fn p13_a_claim_on_a_ledger_that_only_reads_is_refused_and_never_waits() {
    let ledger = only_reads(&FakeClock::new());
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (ledger, refused) = (&ledger, &refused);
            scope.spawn(move || {
                for n in 0..5000 {
                    assert!(ledger.claim(&claim(format!("{thread} {n}"))).unwrap_err().is_storage());
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(refused.into_inner(), 20_000);
    let mut claiming = Box::pin(ledger.claim_async(&claim("future")));
    let std::task::Poll::Ready(claimed) = poll(claiming.as_mut(), Waker::noop()) else { panic!("it waits") };
    assert!(claimed.unwrap_err().is_storage());
    ledger.close().unwrap();
}

/// Time goes on there too: what was to be forgotten after an hour is vacant after two.
#[test]
fn p10_a_ledger_that_only_reads_knows_the_time() {
    let clock = FakeClock::new();
    let ledger = only_reads(&clock);
    assert_eq!(standing(&ledger, "hour"), "done");
    clock.advance(2 * HOUR);
    for _ in 0..600 {
        if standing(&ledger, "hour") == "vacant" {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("still there after a minute of the keeper's");
}

/// Who gives a key back had no effect, and may start again whatever becomes of the record.
#[test]
fn a_release_that_fails_does_not_say_that_the_effect_ran() {
    let place = Place::memory();
    let ledger = place.create();
    let [first, second, third] = ["a", "b", "c"].map(|name| grant(&ledger, &claim(name)));
    let ticket = third.ticket();
    ledger.clone().close().unwrap();
    let released = first.release().unwrap_err();
    assert!(!released.after_the_effect() && !released.to_string().contains("after the effect"), "{released}");
    let released = ticket.settle(&ledger, Settlement::not_applied("no need")).unwrap_err();
    assert!(!released.after_the_effect(), "{released}");
    let completed = second.complete("re_1").unwrap_err();
    assert!(completed.after_the_effect() && completed.to_string().contains("do not run it again"), "{completed}");
    assert_eq!(completed.outcome().and_then(|outcome| outcome.as_str()), Some("re_1"));
}

/// A disk that panics at every one of its operations in turn, once or from there on, and on whichever thread makes
/// it: as a failing one, it closes the ledger. Nobody waits for ever, and what was granted is not granted again.
#[test]
fn p13_a_panic_at_any_operation_closes_the_ledger_as_a_failure_does() {
    panic_at_every_operation(false);
    panic_at_every_operation(true);
}

fn panic_at_every_operation(for_ever: bool) {
    let mut closed = 0;
    for nth in 0.. {
        let (memory, left) = (Place::memory(), Arc::new(AtomicU64::new(u64::MAX)));
        let counted = Arc::clone(&left);
        let disk = HookDisk::new(memory.stranger_disk(), move |_| {
            let before = counted.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if before.is_err() {
                if !for_ever {
                    counted.store(u64::MAX, Ordering::SeqCst);
                }
                panic!("the disk panics");
            }
        });
        let clock = FakeClock::new();
        let options = Options::new().clock(Arc::new(clock.clone())).disk(Arc::new(disk));
        let ledger = options.create("/ledger").unwrap();
        let held = grant(&ledger, &claim("held"));
        left.store(nth, Ordering::SeqCst);
        // The anchor is due, which is the one write beside redb's own.
        clock.advance(Duration::from_secs(2));
        let claims: Vec<_> = (0..4).map(|number| claim(format!("waits {number}"))).collect();
        let answers = std::thread::scope(|scope| {
            let asked: Vec<_> = claims.iter().map(|claim| scope.spawn(|| ledger.claim(claim))).collect();
            let settled = held.complete("x");
            let failed = |error: &onceledger::Error| error.is_unknown() || error.is_storage();
            assert!(settled.as_ref().is_ok() || settled.as_ref().err().is_some_and(failed), "{nth}: {settled:?}");
            asked.into_iter().map(|asked| asked.join().expect("a call panicked")).collect::<Vec<_>>()
        });
        let left_now = left.swap(if for_ever { 0 } else { u64::MAX }, Ordering::SeqCst);
        let panicked = left_now == 0 || left_now > nth;
        let granted = answers.iter().map(Result::is_ok).collect::<Vec<_>>();
        for answer in answers {
            match answer {
                Ok(answer) => std::mem::forget(answer.granted().unwrap()),
                Err(error) => assert!(error.is_unknown() || error.is_storage(), "{nth}: {error:?}"),
            }
        }
        let all = granted.iter().all(|granted| *granted);
        if !all {
            closed += 1;
            let after = ledger.claim(&claim("after")).unwrap_err();
            assert!(after.is_storage(), "{nth}: {after:?}");
        }
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ledger.clone().close()));
        drop(ledger);
        left.store(u64::MAX, Ordering::SeqCst);
        let again = memory.open();
        for (number, granted) in granted.into_iter().enumerate() {
            let stands = standing(&again, &format!("waits {number}"));
            assert!(!granted || stands == "in_progress" || stands == "uncertain", "{nth}: {stands}");
        }
        if all && !panicked {
            break;
        }
    }
    assert!(closed > 8, "the disk panicked at {closed} operations only");
}
