//! Going through every doubt at start-up.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use onceledger::testkit::FakeClock;
use onceledger::{
    Claim, Doubt, EffectError, Finding, Key, Ledger, Options, Outcome, Probe, Reconcile, Recovery, Resolved, Scope,
    Standing, Verdict,
};

fn claim(name: &str, recovery: Recovery) -> Claim {
    let key = Key::action(&Scope::new("acme").unwrap(), "refund", [name]).unwrap();
    Claim::new(key, &name).unwrap().recovery(recovery)
}

fn asked() -> Recovery {
    Recovery::Reconcile(Probe::new(|_| Finding::Unknown))
}

/// Leaves a doubt about each.
fn doubts(ledger: &Ledger, names: &[String], recovery: &Recovery) {
    for name in names {
        let answer = ledger.once(&claim(name, recovery.clone()), |_| Err::<Outcome, _>(EffectError::unknown("eof")));
        let _ = answer.unwrap();
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("o{n}")).collect()
}

fn open() -> Ledger {
    Options::new().settle_delay(Duration::ZERO).in_memory().unwrap()
}

fn quick(probe: impl Fn(&Doubt) -> Finding + Send + Sync + 'static) -> Reconcile {
    Reconcile::new(Probe::new(probe)).back_off(Duration::from_millis(1), Duration::from_millis(2))
}

#[test]
fn every_doubt_gets_its_verdict() {
    let ledger = open();
    let names = names(9);
    doubts(&ledger, &names, &asked());
    let keys: Vec<Key> = names.iter().map(|name| claim(name, asked()).key().clone()).collect();
    let ours = keys.clone();
    let how = quick(move |doubt| match ours.iter().position(|key| *key == doubt.key).unwrap() % 3 {
        0 => Finding::Applied(Outcome::text("found")),
        1 => Finding::NotApplied,
        _ => Finding::Unknown,
    });
    let told = ledger.reconcile_all(&how).unwrap();
    assert_eq!((told.applied.len(), told.not_applied.len(), told.left.len()), (3, 3, 3));
    assert_eq!((told.held.len(), told.elsewhere.len()), (0, 0));
    for (n, key) in keys.iter().enumerate() {
        let standing = [Standing::Done, Standing::Vacant, Standing::Uncertain][n % 3];
        assert_eq!(ledger.check(key).unwrap().standing(), standing);
    }
    // The doubt named its key with scope and label.
    assert!(told.applied.iter().all(|key| key.scope() == Some("acme")));
}

#[test]
fn a_key_that_is_held_is_left_to_a_person_and_the_probe_is_not_asked() {
    let ledger = open();
    doubts(&ledger, &names(2), &Recovery::Hold);
    let told = ledger.reconcile_all(&quick(|_| panic!("it was asked"))).unwrap();
    assert_eq!((told.held.len(), told.left.len()), (2, 0));
}

#[test]
fn a_lapsed_lease_is_no_holder_that_is_gone() {
    let clock = FakeClock::new();
    let ledger = Options::new().settle_delay(Duration::ZERO).clock(Arc::new(clock.clone())).in_memory().unwrap();
    let grant = ledger.claim(&claim("a", asked()).lease(Duration::from_secs(1))).unwrap().granted().unwrap();
    clock.advance(Duration::from_secs(5));
    let told = ledger.reconcile_all(&quick(|_| panic!("it was asked")).rounds(2)).unwrap();
    assert_eq!(told.left.len(), 1);
    let _ = grant.complete("late").unwrap();
}

#[test]
fn nothing_is_asked_before_the_settle_delay() {
    let clock = FakeClock::new();
    let ledger = Options::new().clock(Arc::new(clock.clone())).in_memory().unwrap();
    doubts(&ledger, &names(1), &asked());
    let probes = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&probes);
    let how = quick(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Finding::Applied(Outcome::text("found"))
    })
    .rounds(3);
    clock.advance(Duration::from_secs(59));
    assert_eq!(ledger.reconcile_all(&how).unwrap().left.len(), 1);
    assert_eq!(probes.load(Ordering::Relaxed), 0);
    clock.advance(Duration::from_secs(2));
    assert_eq!(ledger.reconcile_all(&how).unwrap().applied.len(), 1);
    assert_eq!(probes.load(Ordering::Relaxed), 1);
}

#[test]
fn a_key_that_somebody_else_freed_meanwhile_is_not_told_as_what_the_probe_found() {
    let ledger = open();
    doubts(&ledger, &names(2), &asked());
    let (doubts, other) = (ledger.uncertain().unwrap(), ledger.clone());
    let how = quick(move |doubt| {
        // A person decides the second while the first is asked about.
        let left = doubts.iter().find(|other| other.key != doubt.key).unwrap();
        let resolved = other.resolve(left, Verdict::NotDone, "ana", "nothing there").unwrap();
        assert!(matches!(resolved, Resolved::Applied), "the probe was asked about both");
        Finding::Applied(Outcome::text("found"))
    })
    .at_once(1);
    let told = ledger.reconcile_all(&how).unwrap();
    assert_eq!((told.applied.len(), told.elsewhere.len(), told.not_applied.len()), (1, 1, 0));
    assert_eq!(ledger.check(&told.elsewhere[0]).unwrap().standing(), Standing::Vacant);
}

#[test]
fn a_probe_that_cannot_tell_yet_is_asked_again_after_a_pause() {
    let ledger = open();
    doubts(&ledger, &names(1), &asked());
    let probes = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&probes);
    let how = quick(move |_| match count.fetch_add(1, Ordering::Relaxed) {
        0 => Finding::Unknown,
        1 => panic!("a panic counts as unknown"),
        _ => Finding::Applied(Outcome::text("found")),
    });
    assert_eq!(ledger.reconcile_all(&how).unwrap().applied.len(), 1);
    assert_eq!(probes.load(Ordering::Relaxed), 3);
}

#[test]
fn no_more_probes_run_at_once_than_allowed_and_no_key_twice() {
    let ledger = open();
    doubts(&ledger, &names(24), &asked());
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let keys = Arc::new(Mutex::new(Vec::new()));
    let (running, top, asked_about) = (Arc::clone(&now), Arc::clone(&most), Arc::clone(&keys));
    let how = quick(move |doubt| {
        top.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        asked_about.lock().unwrap().push(doubt.key.clone());
        std::thread::sleep(Duration::from_millis(5));
        running.fetch_sub(1, Ordering::SeqCst);
        Finding::NotApplied
    })
    .at_once(3);
    assert_eq!(ledger.reconcile_all(&how).unwrap().not_applied.len(), 24);
    assert!((2..=3).contains(&most.load(Ordering::SeqCst)), "{}", most.load(Ordering::SeqCst));
    let mut keys = keys.lock().unwrap().clone();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 24);
}

#[test]
fn two_that_reconcile_at_once_and_a_claim_have_one_prober_for_a_key() {
    let ledger = open();
    doubts(&ledger, &names(1), &asked());
    let probes = Arc::new(AtomicUsize::new(0));
    let probe = {
        let probes = Arc::clone(&probes);
        move |_: &Doubt| {
            assert_eq!(probes.fetch_add(1, Ordering::SeqCst), 0, "a second prober");
            std::thread::sleep(Duration::from_millis(30));
            probes.fetch_sub(1, Ordering::SeqCst);
            Finding::Applied(Outcome::text("found"))
        }
    };
    let start = Barrier::new(3);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                start.wait();
                let _ = ledger.reconcile_all(&quick(probe.clone()).rounds(50)).unwrap();
            });
        }
        scope.spawn(|| {
            start.wait();
            let _ = ledger.claim(&claim("o0", Recovery::Reconcile(Probe::new(probe.clone())))).unwrap();
        });
    });
    assert_eq!(ledger.check(claim("o0", asked()).key()).unwrap().standing(), Standing::Done);
}

#[test]
fn a_verdict_that_comes_too_late_changes_nothing() {
    let ledger = open();
    doubts(&ledger, &names(1), &asked());
    let inner = ledger.clone();
    let how = quick(move |doubt| {
        let verdict = onceledger::Verdict::Failed(None);
        let _ = inner.resolve(doubt, verdict, "ops/ana", "the provider says declined").unwrap();
        Finding::NotApplied
    });
    let told = ledger.reconcile_all(&how).unwrap();
    assert_eq!(told.elsewhere.len(), 1);
    assert_eq!(ledger.check(&told.elsewhere[0]).unwrap().standing(), Standing::Failed);
}

#[test]
fn limits_of_zero_are_refused() {
    let ledger = open();
    for how in [quick(|_| Finding::Unknown).at_once(0), quick(|_| Finding::Unknown).rounds(0)] {
        assert!(ledger.reconcile_all(&how).unwrap_err().is_bad_input());
    }
}
