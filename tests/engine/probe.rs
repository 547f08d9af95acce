//! Reconcile: the caller's probe decides, once the holder is gone and some time has passed (P2).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};

use onceledger::{Claim, Claimed, Finding, Outcome, PastWhat, Probe, Recovery, Resolved, Verdict, View};

use crate::futures::poll;
use crate::kit::*;

fn reconcile(part: &str, probe: impl Fn() -> Finding + Send + Sync + 'static) -> Claim {
    claim(part).recovery(Recovery::Reconcile(Probe::new(move |_| probe())))
}

fn forbidden(part: &str) -> Claim {
    reconcile(part, || panic!("the probe must not run"))
}

/// Each finding: applied stores the outcome, not applied grants the prober in the same commit, unknown holds.
#[test]
fn a_probe_decides_by_what_it_finds() {
    on_every_backend(|place| {
        let ledger = place.create();
        for part in ["applied", "not", "unknown", "panic"] {
            drop(grant(&ledger, &forbidden(part)));
        }
        ledger.tick();
        place.clock.advance(61 * SECOND);
        let applied = reconcile("applied", || Finding::Applied(Outcome::json("{\"id\":1}")));
        let Claimed::AlreadyDone(stored) = ledger.claim(&applied).unwrap() else { panic!() };
        assert_eq!(body(&stored), b"{\"id\":1}");
        let not = reconcile("not", || Finding::NotApplied);
        let held = grant(&ledger, &not);
        assert_eq!(held.attempt(), 2);
        let words: Vec<_> = past(&ledger, "not").into_iter().map(|(_, what)| what).collect();
        assert_eq!(words, [PastWhat::Granted, PastWhat::Uncertain, PastWhat::ResolvedNotDone, PastWhat::Granted]);
        assert_eq!(ledger.history(&key("not")).unwrap()[2].by, "probe");
        assert_eq!(refused(&ledger, &reconcile("unknown", || Finding::Unknown)), "uncertain");
        assert_eq!(refused(&ledger, &reconcile("panic", || panic!("in the probe"))), "uncertain");
        // Neither keeps the next prober out.
        assert_eq!(refused(&ledger, &reconcile("unknown", || Finding::NotApplied)), "granted");
        assert_eq!(refused(&ledger, &reconcile("panic", || Finding::NotApplied)), "granted");
    });
}

/// Not before the settle delay after the end of the grant; until then the answer is uncertain. The same for a holder
/// that died: counted from when this open first saw it.
#[test]
fn p2_no_probe_runs_before_the_settle_delay() {
    on_every_backend(|place| {
        let ledger = place.create();
        drop(grant(&ledger, &forbidden("k")));
        ledger.tick();
        for _ in 0..59 {
            place.clock.advance(SECOND);
            assert_eq!(refused(&ledger, &forbidden("k")), "uncertain");
        }
        place.clock.advance(2 * SECOND);
        assert_eq!(refused(&ledger, &reconcile("k", || Finding::NotApplied)), "granted");
        ledger.close().unwrap();
        let theirs = place.open_elsewhere();
        let held = grant(&theirs, &forbidden("died"));
        theirs.close().unwrap();
        drop(held);
        place.clock.advance(DAY);
        let ledger = place.open();
        assert_eq!(refused(&ledger, &forbidden("died")), "uncertain", "seen gone only now");
        place.clock.advance(61 * SECOND);
        assert_eq!(refused(&ledger, &reconcile("died", || Finding::NotApplied)), "granted");
    });
}

/// A settle delay of nothing is over at once, at whatever part of a millisecond the doubt began.
#[test]
fn a_settle_delay_of_zero_lets_the_probe_run_at_once() {
    on_every_backend(|place| {
        place.clock.advance(std::time::Duration::from_micros(300));
        let ledger = place.options().settle_delay(std::time::Duration::ZERO).create(&place.path).unwrap();
        place.clock.advance(std::time::Duration::from_micros(300));
        drop(grant(&ledger, &forbidden("k")));
        assert_eq!(refused(&ledger, &reconcile("k", || Finding::NotApplied)), "granted");
    });
}

/// A holder that lives is never probed, lapsed or not; nor a key whose first claim said hold.
#[test]
fn p2_no_probe_runs_while_the_holder_may_live_or_the_rule_says_hold() {
    on_every_backend(|place| {
        let ledger = place.create();
        let held = grant(&ledger, &forbidden("k").lease(SECOND));
        place.clock.advance(DAY);
        assert_eq!(refused(&ledger, &forbidden("k")), "uncertain");
        drop(grant(&ledger, &claim("hold")));
        ledger.tick();
        place.clock.advance(DAY);
        let Claimed::Uncertain(doubt) = ledger.claim(&forbidden("hold")).unwrap() else { panic!() };
        assert!(doubt.stored_rule_decided);
        drop(held);
    });
}

/// One prober at a time: whoever comes meanwhile is told uncertain, and its own probe does not run.
#[test]
fn one_prober_at_a_time() {
    let place = Place::memory();
    let ledger = place.create();
    drop(grant(&ledger, &forbidden("k")));
    ledger.tick();
    place.clock.advance(2 * MINUTE);
    let runs = Arc::new(AtomicU64::new(0));
    let (inner, count) = (ledger.clone(), Arc::clone(&runs));
    let outer = reconcile("k", move || {
        count.fetch_add(1, Ordering::SeqCst);
        assert_eq!(refused(&inner, &forbidden("k")), "uncertain");
        // Looks and other keys are fine from inside.
        assert_eq!(standing(&inner, "k"), "uncertain");
        drop(grant(&inner, &claim("another")));
        Finding::NotApplied
    });
    let held = grant(&ledger, &outer);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    drop(held);
}

/// A probe that is dropped counts as unknown, at every point: the next prober is let in.
#[test]
fn a_dropped_probe_is_unknown_and_lets_the_next_one_in() {
    on_every_backend(|place| {
        let ledger = place.create();
        drop(grant(&ledger, &forbidden("k")));
        ledger.tick();
        place.clock.advance(2 * MINUTE);
        let slow = claim("k").recovery(Recovery::Reconcile(Probe::future(|_| async {
            for _ in 0..3 {
                crate::futures::yield_once().await;
            }
            Finding::Unknown
        })));
        for polls in 0..5 {
            let mut future = Box::pin(ledger.claim_async(&slow));
            for _ in 0..polls {
                assert!(poll(future.as_mut(), Waker::noop()).is_pending());
                ledger.tick();
            }
            drop(future);
            ledger.tick();
            assert_eq!(standing(&ledger, "k"), "uncertain", "{polls}");
        }
        let mut whole = Box::pin(ledger.claim_async(&slow));
        let last = loop {
            match poll(whole.as_mut(), Waker::noop()) {
                Poll::Ready(last) => break last,
                Poll::Pending => ledger.tick(),
            }
        };
        assert_eq!(word(&last.unwrap()), "uncertain");
        assert_eq!(refused(&ledger, &reconcile("k", || Finding::NotApplied)), "granted");
    });
}

/// A verdict that comes too late changes nothing: somebody resolved while the probe looked. Its claim is judged by
/// what stands then, and where that is in progress and the claim waits, it waits.
#[test]
fn p4_a_stale_verdict_changes_nothing_and_its_claim_goes_on() {
    on_every_backend(|place| {
        let ledger = place.create();
        for (part, verdict, wanted) in [
            ("done", Verdict::Done(None), "done"),
            ("failed", Verdict::Failed(None), "failed"),
            ("free", Verdict::NotDone, "granted"),
        ] {
            drop(grant(&ledger, &forbidden(part)));
            ledger.tick();
            place.clock.advance(2 * MINUTE);
            let (inner, name) = (ledger.clone(), part.to_owned());
            let late = reconcile(part, move || {
                let decided = inner.resolve(&doubt(&inner, &name), verdict.clone(), "ops", "faster");
                assert_eq!(decided.unwrap(), Resolved::Applied);
                Finding::Applied(Outcome::text("too late"))
            });
            assert_eq!(refused(&ledger, &late), wanted, "{part}");
        }
    });
}

/// A prober that waits, whose key somebody else was granted meanwhile, waits for that outcome: it must be answered.
#[test]
fn a_prober_that_waits_is_answered_when_another_was_granted_meanwhile() {
    let place = Place::memory();
    let ledger = place.options().threads(true).create(&place.path).unwrap();
    drop(grant(&ledger, &forbidden("k")));
    // Recorded before the time moves on: the delay counts from there.
    assert_eq!(refused(&ledger, &forbidden("k")), "uncertain");
    place.clock.advance(2 * MINUTE);
    let held = Arc::new(std::sync::Mutex::new(None));
    let (inner, slot) = (ledger.clone(), Arc::clone(&held));
    let waiting = reconcile("k", move || {
        let token = doubt(&inner, "k").token;
        assert_eq!(not_done(&inner, "k", token), Resolved::Applied);
        *slot.lock().unwrap() = Some(grant(&inner, &claim("k")));
        Finding::NotApplied
    })
    .wait(DAY);
    let (send, receive) = std::sync::mpsc::channel();
    let prober = ledger.clone();
    std::thread::spawn(move || send.send(prober.claim(&waiting)).is_ok());
    let other = loop {
        if let Some(grant) = held.lock().unwrap().take() {
            break grant;
        }
        std::thread::yield_now();
    };
    // Time for the prober to be in line; it must be answered either way.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let _ = other.complete("theirs").unwrap();
    let answer = receive.recv_timeout(std::time::Duration::from_secs(60)).expect("never answered");
    let Claimed::AlreadyDone(stored) = answer.unwrap() else { panic!() };
    assert_eq!(body(&stored), b"theirs");
    let View::Done(_) = ledger.check(&key("k")).unwrap() else { panic!() };
}
