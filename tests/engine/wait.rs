//! Waiting for somebody else's outcome: pushed, bounded, and nobody is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use onceledger::{Claim, Claimed, Recovery, Resolved, Settlement, Verdict};

use crate::futures::poll;
use crate::kit::*;

struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn waker() -> Waker {
    Waker::from(Arc::new(Count(0.into())))
}

type Waiting = std::pin::Pin<Box<dyn Future<Output = onceledger::Result<Claimed>>>>;

/// Claims that wait, in line behind a holder. Without threads they make progress in `tick` only.
fn waiting(ledger: &onceledger::Ledger, claim: &Claim, count: usize) -> Vec<Waiting> {
    let mut all: Vec<Waiting> = (0..count).map(|_| Box::pin(ledger.claim_async(claim)) as Waiting).collect();
    let waker = waker();
    for future in &mut all {
        assert!(poll(future.as_mut(), &waker).is_pending());
    }
    ledger.tick();
    for future in &mut all {
        assert!(poll(future.as_mut(), &waker).is_pending(), "still waiting");
    }
    all
}

/// What has become of each: a word, or nothing yet. Grants are kept alive.
fn told(waiting: &mut [Waiting], grants: &mut Vec<onceledger::Grant>) -> Vec<&'static str> {
    let waker = waker();
    let mut words = Vec::new();
    for future in waiting {
        words.push(match poll(future.as_mut(), &waker) {
            Poll::Pending => "",
            Poll::Ready(claimed) => {
                let claimed = claimed.unwrap();
                let said = word(&claimed);
                grants.extend(claimed.granted());
                said
            }
        });
    }
    words
}

/// Woken by settle, release, drop, resolve, lapse and death; on vacant exactly one is granted and the rest wait on,
/// on uncertain all hear it at once.
#[test]
fn waiters_are_woken_by_every_end_of_a_claim() {
    type End = fn(&Place, &onceledger::Ledger, onceledger::Grant);
    let ends: [(&str, &str, End); 8] = [
        ("done", "done", |_, _, grant| drop(grant.complete("x").unwrap())),
        ("failed", "failed", |_, _, grant| drop(grant.fail("x").unwrap())),
        ("unknown", "uncertain", |_, _, grant| drop(grant.settle(Settlement::uncertain("?")).unwrap())),
        ("dropped", "uncertain", |_, _, grant| drop(grant)),
        ("lapsed", "uncertain", |place, _, grant| {
            place.clock.advance(2 * MINUTE);
            std::mem::forget(grant);
        }),
        ("forced done", "done", |_, ledger, grant| {
            let forced = ledger.resolve_token(grant.key(), grant.token(), Verdict::Done(None), "ops", "x", true);
            assert_eq!(forced.unwrap(), Resolved::Applied);
            std::mem::forget(grant);
        }),
        ("released", "vacant", |_, _, grant| drop(grant.release().unwrap())),
        ("forced not done", "vacant", |_, ledger, grant| {
            let forced = ledger.resolve_token(grant.key(), grant.token(), Verdict::NotDone, "ops", "x", true);
            assert_eq!(forced.unwrap(), Resolved::Applied);
            std::mem::forget(grant);
        }),
    ];
    on_every_backend(|place| {
        let ledger = place.create();
        for (name, ends_as, end) in ends {
            let held = grant(&ledger, &claim(name).lease(MINUTE));
            let mut waiters = waiting(&ledger, &claim(name).wait(HOUR), 10);
            end(place, &ledger, held);
            ledger.tick();
            let mut grants = Vec::new();
            let words = told(&mut waiters, &mut grants);
            if ends_as == "vacant" {
                assert_eq!(words[0], "granted", "{name}: the first in line");
                assert!(words[1..].iter().all(|word| word.is_empty()), "{name}: {words:?}");
                // One after the other, in line.
                for n in 1..10 {
                    let _ = grants.pop().unwrap().release().unwrap();
                    ledger.tick();
                    let rest = told(&mut waiters[n..], &mut grants);
                    assert_eq!(rest[0], "granted", "{name} {n}: {rest:?}");
                    assert!(rest[1..].iter().all(|word| word.is_empty()), "{name} {n}: {rest:?}");
                }
                drop(grants);
            } else {
                assert!(words.iter().all(|word| *word == ends_as), "{name}: {words:?}");
            }
        }
    });
}

/// Woken by the death of a holder in another process.
#[test]
fn waiters_are_woken_by_the_death_of_a_foreign_holder() {
    on_every_backend(|place| {
        let theirs = place.stranger().create(&place.path).unwrap();
        let held = grant(&theirs, &claim("k"));
        assert_eq!(theirs.close().unwrap(), 1);
        let ledger = place.open();
        let mut waiters = waiting(&ledger, &claim("k").wait(HOUR), 3);
        drop(held);
        ledger.tick();
        assert_eq!(told(&mut waiters, &mut Vec::new()), ["uncertain"; 3]);
        assert_eq!(reason(&ledger, "k"), onceledger::DoubtReason::HolderGone);
    });
}

/// A wait ends at its deadline: in progress is the answer then, and the wait has a default.
#[test]
fn case_15_case_101_a_wait_ends_at_its_deadline() {
    on_every_backend(|place| {
        let ledger = place.create();
        let held = grant(&ledger, &claim("k"));
        let waits = [(claim("k").wait(10 * SECOND), 10 * SECOND), (claim("k").wait_default(), 30 * SECOND)];
        for (claim, wait) in waits {
            let mut waiters = waiting(&ledger, &claim, 2);
            place.clock.advance(wait - Duration::from_millis(1));
            ledger.tick();
            assert_eq!(told(&mut waiters, &mut Vec::new()), ["", ""]);
            place.clock.advance(Duration::from_millis(1));
            ledger.tick();
            assert_eq!(told(&mut waiters, &mut Vec::new()), ["in_progress"; 2], "{wait:?}");
        }
        assert_eq!(refused(&ledger, &claim("k").wait(Duration::ZERO)), "in_progress", "no wait at all");
        drop(held);
    });
}

/// Case 15: under contention, with the key changing hands again and again, a victim's wait still ends in time:
/// whenever it is looked at after its deadline, it has its answer.
#[test]
fn case_15_a_victim_among_twenty_others_is_answered_by_its_deadline() {
    let place = Place::memory();
    let ledger = place.create();
    let mut held = grant(&ledger, &claim("k"));
    let mut others = waiting(&ledger, &claim("k").wait(DAY), 20);
    let mut victim = waiting(&ledger, &claim("k").wait(Duration::from_millis(200)), 1);
    for step in 1..=20 {
        place.clock.advance(Duration::from_millis(10));
        let _ = held.release().unwrap();
        ledger.tick();
        let mut grants = Vec::new();
        told(&mut others[step - 1..step], &mut grants);
        held = grants.pop().unwrap();
        let word = if step < 20 { told(&mut victim, &mut Vec::new())[0] } else { "" };
        assert_eq!(word, "", "step {step}");
    }
    ledger.tick();
    assert_eq!(told(&mut victim, &mut Vec::new()), ["in_progress"]);
    drop(held);
}

/// Cases 92 and 94: a hundred wait, 99 are cancelled, before the hand-over and at its very moment: the last one is
/// granted, and nothing stays in progress with nobody behind it.
#[test]
fn case_92_case_94_a_cancelled_waiter_never_keeps_its_place() {
    on_every_backend(|place| {
        let ledger = place.create();
        for (part, before) in [("before", true), ("at the moment", false)] {
            let held = grant(&ledger, &claim(part));
            let mut waiters = waiting(&ledger, &claim(part).wait(HOUR), 100);
            let mut last = waiters.split_off(99);
            if before {
                drop(waiters);
                let _ = held.release().unwrap();
                ledger.tick();
            } else {
                let _ = held.release().unwrap();
                // The grant is handed to one after the other, each of whom has just left.
                ledger.tick();
                for waiter in waiters {
                    drop(waiter);
                    ledger.tick();
                }
            }
            let mut grants = Vec::new();
            assert_eq!(told(&mut last, &mut grants), ["granted"], "{part}");
            assert_eq!(refused(&ledger, &claim(part)), "in_progress");
            drop(grants);
        }
    });
}

/// Case 8: A completes between the waking of B and B's claim: B gets the outcome, and runs nothing.
#[test]
fn case_8_what_happens_between_waking_and_claiming_is_seen() {
    on_every_backend(|place| {
        let ledger = place.create();
        let held = grant(&ledger, &claim("k").lease(MINUTE));
        let ticket = held.ticket();
        let mut waiters = waiting(&ledger, &claim("k").wait(HOUR), 3);
        // Wakes them by the lapse; before they are looked at again, the holder settles.
        place.clock.advance(2 * MINUTE);
        assert_eq!(ticket.settle(&ledger, Settlement::done("x")).unwrap(), onceledger::Settled::Applied);
        ledger.tick();
        let words = told(&mut waiters, &mut Vec::new());
        assert!(words.iter().all(|word| *word == "done" || *word == "uncertain"), "{words:?}");
        std::mem::forget(held);
        assert_eq!(refused(&ledger, &claim("k")), "done");
    });
}

/// Case 101: a thousand waiters hold no writer up, and no thread.
#[test]
fn case_101_a_thousand_waiters_hold_nobody_up() {
    let place = Place::memory();
    let ledger = place.create();
    let held = grant(&ledger, &claim("k"));
    let mut waiters = waiting(&ledger, &claim("k").wait(HOUR), 1000);
    for n in 0..100 {
        let _ = grant(&ledger, &claim(format!("{n}"))).complete("x").unwrap();
    }
    let _ = held.complete("x").unwrap();
    ledger.tick();
    assert_eq!(told(&mut waiters, &mut Vec::new()), ["done"; 1000]);
}

/// A waiter whose claim allows a resend is let in when the holder is gone; the others wait on.
#[test]
fn one_waiter_that_may_resend_goes_on_when_the_holder_is_gone() {
    on_every_backend(|place| {
        let ledger = place.create();
        let resend = claim("k").recovery(Recovery::Resend { window: DAY });
        let held = grant(&ledger, &resend);
        let mut waiters = waiting(&ledger, &resend.clone().wait(HOUR), 3);
        drop(held);
        ledger.tick();
        let mut grants = Vec::new();
        assert_eq!(told(&mut waiters, &mut grants), ["granted", "", ""]);
        assert_eq!(grants[0].attempt(), 2);
        let _ = grants.pop().unwrap().complete("x").unwrap();
        ledger.tick();
        assert_eq!(told(&mut waiters[1..], &mut grants), ["done", "done"]);
    });
}

/// Closing answers everybody who waits.
#[test]
fn closing_answers_everybody_who_waits() {
    let place = Place::memory();
    let ledger = place.create();
    let held = grant(&ledger, &claim("k"));
    let mut waiters = waiting(&ledger, &claim("k").wait(HOUR), 3);
    ledger.clone().close().unwrap();
    for waiter in &mut waiters {
        let Poll::Ready(Err(error)) = poll(waiter.as_mut(), &waker()) else { panic!() };
        assert_eq!(error.kind(), onceledger::ErrorKind::Closed);
    }
    drop(held);
}

/// Threads wait as futures do.
#[test]
fn threads_that_wait_are_woken_by_a_release_one_after_the_other() {
    let place = Place::memory();
    let ledger = place.options().threads(true).create(&place.path).unwrap();
    let held = grant(&ledger, &claim("k"));
    let inside = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let grant = grant(&ledger, &claim("k").wait(DAY));
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                std::thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
                let _ = grant.release().unwrap();
            });
        }
        let _ = held.release().unwrap();
    });
    assert_eq!(standing(&ledger, "k"), "vacant");
}
