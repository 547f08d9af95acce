//! The grant: one for each key, durable before it is returned (P1, P2, P5).

use std::sync::atomic::{AtomicU64, Ordering};

use onceledger::testkit::{Fault, Operation};
use onceledger::{Answer, Claim, Claimed, Downstream, EffectError, View};
use serde_json::json;

use crate::futures::join;
use crate::kit::*;

/// P1: the power goes right after a grant was returned: the claim must be there, or the effect could run twice.
#[test]
fn p1_a_grant_that_was_returned_survives_the_loss_of_power() {
    let place = Place::fault();
    let ledger = place.create();
    let mut tokens = Vec::new();
    for n in 0..20 {
        let held = grant(&ledger, &claim(format!("{n}")));
        tokens.push(held.token());
        let after = Place::of(place.faults().power_loss());
        let reopened = after.open();
        for (m, token) in tokens.iter().enumerate() {
            assert_eq!(doubt(&reopened, &format!("{m}")).token, *token, "after {n}");
        }
        std::mem::forget(held);
    }
}

/// P1: the same for what a settle, a release, a resolve and a renewal acknowledged.
#[test]
fn p1_what_was_acknowledged_survives_the_loss_of_power() {
    let place = Place::fault();
    let ledger = place.create();
    let check = |part: &str, wanted: &str| {
        let reopened = Place::of(place.faults().power_loss()).open();
        assert_eq!(standing(&reopened, part), wanted, "{part}");
    };
    let _ = grant(&ledger, &claim("done")).complete("x").unwrap();
    check("done", "done");
    let _ = grant(&ledger, &claim("failed")).fail("x").unwrap();
    check("failed", "failed");
    let _ = grant(&ledger, &claim("released")).release().unwrap();
    check("released", "vacant");
    drop(grant(&ledger, &claim("resolved")));
    let _ = not_done(&ledger, "resolved", doubt(&ledger, "resolved").token);
    check("resolved", "vacant");
    let unknown = grant(&ledger, &claim("unknown"));
    let _ = unknown.settle(onceledger::Settlement::uncertain("who knows")).unwrap();
    check("unknown", "uncertain");
}

/// P2, case 37: a hundred threads claim one key at once: one grant, 99 other answers, no error.
#[test]
fn case_37_p2_a_hundred_threads_get_one_grant_and_no_error() {
    on_every_backend(|place| {
        let ledger = place.options().threads(true).create(&place.path).unwrap();
        let barrier = std::sync::Barrier::new(100);
        let words: Vec<_> = std::thread::scope(|scope| {
            let run = || {
                barrier.wait();
                let claimed = ledger.claim(&claim("k")).unwrap();
                let said = word(&claimed);
                std::mem::forget(claimed);
                said
            };
            let threads: Vec<_> = (0..100).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(words.iter().filter(|word| **word == "granted").count(), 1);
        assert_eq!(words.iter().filter(|word| **word == "in_progress").count(), 99);
    });
}

/// P2: a hundred threads with a wait: one runs the effect, all get its outcome.
#[test]
fn p2_p6_a_hundred_threads_that_wait_all_get_the_one_outcome() {
    on_every_backend(|place| {
        let ledger = place.options().threads(true).create(&place.path).unwrap();
        let effects = AtomicU64::new(0);
        let barrier = std::sync::Barrier::new(100);
        std::thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| {
                    barrier.wait();
                    let answer = ledger.once(&claim("k").wait(DAY), |_| {
                        effects.fetch_add(1, Ordering::SeqCst);
                        Ok::<_, EffectError>("the outcome")
                    });
                    match answer.unwrap() {
                        Answer::Done(outcome) => assert_eq!(outcome.body(), b"the outcome"),
                        Answer::AlreadyDone(stored) => assert_eq!(body(&stored), b"the outcome"),
                        other => panic!("{other:?}"),
                    }
                });
            }
        });
        assert_eq!(effects.load(Ordering::SeqCst), 1);
    });
}

/// P2: a thousand futures on one thread claim one key at once: one grant, no error; with a wait, all get the
/// outcome.
#[test]
fn p2_a_thousand_futures_get_one_grant_and_the_one_outcome() {
    on_every_backend(|place| {
        let ledger = place.options().threads(true).create(&place.path).unwrap();
        let claimed = join((0..1000).map(|_| ledger.claim_async(&claim("at once"))));
        let words: Vec<_> = claimed.iter().map(|claimed| word(claimed.as_ref().unwrap())).collect();
        assert_eq!(words.iter().filter(|word| **word == "granted").count(), 1);
        assert_eq!(words.iter().filter(|word| **word == "in_progress").count(), 999);
        let effects = AtomicU64::new(0);
        let answers = join((0..1000).map(|_| {
            ledger.once_async(&claim("waiting").wait(DAY), |_| {
                effects.fetch_add(1, Ordering::SeqCst);
                async { Ok("the outcome") }
            })
        }));
        let done = answers.iter().filter(|answer| matches!(answer.as_ref().unwrap(), Answer::Done(_))).count();
        let repeats = answers.iter().filter(|answer| match answer.as_ref().unwrap() {
            Answer::AlreadyDone(stored) => body(stored) == b"the outcome",
            _ => false,
        });
        assert_eq!((done, repeats.count(), effects.load(Ordering::SeqCst)), (1, 999, 1));
    });
}

/// P5, cases 59 and 60: the same key with other arguments is a mismatch in every standing but vacant, names both
/// fingerprints, and leaks no outcome.
#[test]
fn case_59_case_60_p5_other_arguments_are_a_mismatch_in_every_standing_but_vacant() {
    on_every_backend(|place| {
        let ledger = place.create();
        let mine = |part: &str| Claim::new(key(part), &json!({"amount": 1})).unwrap().lease(MINUTE);
        let other = |part: &str| Claim::new(key(part), &json!({"amount": 2})).unwrap();
        let _ = grant(&ledger, &mine("done")).complete("secret").unwrap();
        let _ = grant(&ledger, &mine("failed")).fail("secret").unwrap();
        let held = grant(&ledger, &mine("in_progress"));
        drop(grant(&ledger, &mine("uncertain")));
        let lapsed = grant(&ledger, &mine("lapsed").lease(SECOND));
        place.clock.advance(2 * SECOND);
        for part in ["done", "failed", "in_progress", "uncertain", "lapsed"] {
            for claim in [other(part), other(part).wait(MINUTE), Claim::unguarded(key(part))] {
                let Claimed::Mismatch(conflict) = ledger.claim(&claim).unwrap() else { panic!("{part}") };
                assert_eq!((conflict.stands, conflict.asked), (mine(part).fingerprint(), claim.fingerprint()));
                let mut future = Box::pin(ledger.claim_async(&claim));
                let mut polled = crate::futures::step(&ledger, future.as_mut());
                if polled.is_pending() {
                    polled = crate::futures::step(&ledger, future.as_mut());
                }
                let std::task::Poll::Ready(answer) = polled else { panic!("{part}") };
                assert!(matches!(answer.unwrap(), Claimed::Mismatch(_)), "{part}");
                let answer = ledger.once(&claim, |_| -> Result<&str, EffectError> { panic!("ran") }).unwrap();
                assert!(matches!(answer, Answer::Mismatch(_)), "{part}: {answer:?}");
            }
        }
        let _ = grant(&ledger, &mine("vacant")).release().unwrap();
        assert_eq!(grant(&ledger, &other("vacant")).attempt(), 2, "a released key takes any fingerprint");
        drop((held, lapsed));
    });
}

/// Case 34: a mismatch first fills no cache: the matching repeat gets its outcome, the other never does.
#[test]
fn case_34_case_33_a_cache_never_serves_other_arguments_and_changes_no_answer() {
    for cache_bytes in [0, 10, 64 << 20] {
        let place = Place::memory();
        let ledger = place.options().cache_bytes(cache_bytes).create(&place.path).unwrap();
        let mine = Claim::new(key("k"), &json!({"amount": 1})).unwrap();
        let other = Claim::new(key("k"), &json!({"amount": 2})).unwrap();
        let _ = grant(&ledger, &mine).complete("for amount 1").unwrap();
        for _ in 0..3 {
            assert_eq!(refused(&ledger, &other), "mismatch");
            let Claimed::AlreadyDone(stored) = ledger.claim(&mine).unwrap() else { panic!() };
            assert_eq!(body(&stored), b"for amount 1");
            let View::Done(stored) = ledger.check(&key("k")).unwrap() else { panic!() };
            assert_eq!(body(&stored), b"for amount 1");
        }
    }
}

/// Case 74: the downstream key is there for the effect, one for every attempt, another for every label.
#[test]
fn case_74_the_downstream_key_is_stable_over_attempts() {
    on_every_backend(|place| {
        let ledger = place.create();
        let mut seen: Vec<Downstream> = Vec::new();
        for attempt in 1..=3 {
            let held = grant(&ledger, &claim("k"));
            assert_eq!(held.attempt(), attempt);
            seen.push(held.downstream("charge"));
            assert_ne!(held.downstream("mail"), seen[0]);
            let _ = held.release().unwrap();
        }
        assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
    });
}

/// Case 23: completed at T, delivered again at T + 1: the stored outcome.
#[test]
fn case_23_case_90_a_redelivery_gets_the_stored_outcome() {
    on_every_backend(|place| {
        let ledger = place.create();
        let mut effects = [0; 3];
        for round in 0..4 {
            for (n, effects) in effects.iter_mut().enumerate() {
                if round == 0 && n == 2 {
                    break;
                }
                let answer = ledger.once(&claim(format!("step {n}")), |_| {
                    *effects += 1;
                    Ok::<_, EffectError>("stored")
                });
                let _ = answer.unwrap();
            }
            place.clock.advance(SECOND);
        }
        assert_eq!(effects, [1, 1, 1]);
    });
}

/// Case 37, P3: a claim whose commit failed is an error, not a grant, and not «in progress».
#[test]
fn p3_a_failed_commit_is_unknown_and_the_key_is_never_lost_nor_granted_twice() {
    for operation in [Operation::Write, Operation::Sync, Operation::SetLen] {
        for after in 0..6 {
            let place = Place::fault();
            let ledger = place.create();
            let first = grant(&ledger, &claim("before"));
            let _ = first.complete("x").unwrap();
            place.faults().set_plan(Fault::on(operation).path("/ledger").after(after).always());
            let Err(error) = ledger.claim(&claim("k")) else { continue };
            assert!(error.is_unknown() && !error.after_the_effect(), "{operation:?} {after}: {error:?}");
            place.faults().set_plan(Fault::at(u64::MAX));
            drop(ledger);
            let ledger = place.open();
            assert_eq!(standing(&ledger, "before"), "done");
            assert!(["vacant", "uncertain"].contains(&standing(&ledger, "k")), "{}", standing(&ledger, "k"));
        }
    }
}
