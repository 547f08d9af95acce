//! Drops, panics, early returns and calls from inside (P14).

use std::panic::{AssertUnwindSafe, catch_unwind};

use onceledger::{Answer, DoubtReason, EffectError, ErrorKind};

use crate::futures::block_on;
use crate::kit::*;

/// Case 6, P14: every way out of a function leaves the claim uncertain at once, and on disk with the next batch.
#[test]
fn case_6_p14_every_early_way_out_leaves_the_claim_uncertain_at_once() {
    fn early(ledger: &onceledger::Ledger, part: &str) -> Result<(), String> {
        let grant = ledger.claim(&claim(part)).unwrap().granted().unwrap();
        Err("left by `?`".to_owned())?;
        let _ = grant.complete("never").unwrap();
        Ok(())
    }
    on_every_backend(|place| {
        let ledger = place.create();
        drop(grant(&ledger, &claim("drop")));
        assert!(early(&ledger, "early").is_err());
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let _grant = grant(&ledger, &claim("panic"));
            panic!("in between");
        }));
        for part in ["drop", "early", "panic"] {
            assert_eq!(reason(&ledger, part), DoubtReason::Dropped, "{part}");
            assert_eq!(refused(&ledger, &claim(part)), "uncertain");
        }
        ledger.close().unwrap();
        let ledger = place.open();
        for part in ["drop", "early", "panic"] {
            assert_eq!(reason(&ledger, part), DoubtReason::Dropped, "{part}");
        }
    });
}

/// Case 95, P14: a panicking effect leaves an uncertain claim, a usable ledger, and none of its words anywhere.
#[test]
fn case_95_p14_a_panic_in_the_effect_is_uncertain_and_its_text_is_kept_nowhere() {
    on_every_backend(|place| {
        let ledger = place.create();
        let answer = ledger.once(&claim("sync"), |_| -> Result<&str, EffectError> { panic!("card 4111111111111111") });
        let Answer::Uncertain(doubt) = answer.unwrap() else { panic!() };
        assert_eq!(doubt.doubt.reason, DoubtReason::Panicked);
        assert!(!format!("{doubt:?}").contains("4111"));
        assert_eq!(refused(&ledger, &claim("sync")), "uncertain");
        let _ = grant(&ledger, &claim("another")).complete("x").unwrap();
        let told = format!("{:?}", ledger.history(&key("sync")).unwrap());
        assert!(told.contains("panicked") && !told.contains("4111"), "{told}");
        ledger.close().unwrap();
        assert_eq!(reason(&place.open(), "sync"), DoubtReason::Panicked);
    });
}

/// The same for an effect that is a future, whether it panics as it is made, in its first poll or in a later one.
#[test]
fn case_95_p14_a_panic_in_a_future_is_uncertain() {
    let place = Place::memory();
    let ledger = place.options().threads(true).create(&place.path).unwrap();
    let made =
        block_on(ledger.once_async(&claim("made"), |_| -> std::future::Ready<Result<&str, EffectError>> {
            panic!("as it is made")
        }));
    let polled = block_on(ledger.once_async(&claim("polled"), |_| async {
        if true {
            panic!("in its first poll");
        }
        Ok("never")
    }));
    let later = block_on(ledger.once_async(&claim("later"), |_| async {
        crate::futures::yield_once().await;
        if true {
            panic!("in a later poll");
        }
        Ok("never")
    }));
    for (part, answer) in [("made", made), ("polled", polled), ("later", later)] {
        let Answer::Uncertain(doubt) = answer.unwrap() else { panic!() };
        assert_eq!(doubt.doubt.reason, DoubtReason::Panicked, "{part}");
        assert_eq!(reason(&ledger, part), DoubtReason::Panicked);
    }
}

/// A panic while the outcome is made from what the effect returned: the effect has run, so it is uncertain.
#[test]
fn p14_a_panic_in_the_conversion_of_the_outcome_is_uncertain() {
    struct Bomb;
    impl From<Bomb> for onceledger::Outcome {
        fn from(_: Bomb) -> Self {
            panic!("while converting")
        }
    }
    let ledger = Place::memory().create();
    let thrown = catch_unwind(AssertUnwindSafe(|| ledger.once(&claim("k"), |_| Ok::<_, EffectError>(Bomb))));
    assert!(thrown.is_err() || matches!(thrown, Ok(Ok(Answer::Uncertain(_)))));
    assert_eq!(standing(&ledger, "k"), "uncertain");
}

/// A claim from inside the effect of the same key is a typed error, never a deadlock: with and without a wait, in a
/// thread and in a poll.
#[test]
fn a_claim_from_inside_its_own_effect_is_refused() {
    on_every_backend(|place| {
        let ledger = place.options().threads(true).create(&place.path).unwrap();
        let answer = ledger.once(&claim("k"), |_| {
            for inner in [claim("k"), claim("k").wait(DAY)] {
                let error = ledger.claim(&inner).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Reentrant);
                let error = ledger.once(&inner, |_| Ok::<_, EffectError>("")).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Reentrant);
                assert!(!error.after_the_effect());
                let error = block_on(ledger.claim_async(&inner)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Reentrant);
            }
            // Another key is fine, and so is a look.
            let inner = ledger.once(&claim("inner"), |_| Ok::<_, EffectError>("fine")).unwrap();
            assert!(matches!(inner, Answer::Done(_)));
            assert_eq!(standing(&ledger, "k"), "in_progress");
            Ok::<_, EffectError>("outer")
        });
        assert!(matches!(answer.unwrap(), Answer::Done(_)));
        let inner = ledger.clone();
        let answer = block_on(ledger.once_async(&claim("future"), |_| async move {
            crate::futures::yield_once().await;
            let error = inner.claim_async(&claim("future").wait(DAY)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Reentrant);
            crate::futures::yield_once().await;
            Ok("outer")
        }));
        assert!(matches!(answer.unwrap(), Answer::Done(_)));
        // The mark is gone with the effect.
        assert_eq!(refused(&ledger, &claim("k")), "done");
        assert_eq!(refused(&ledger, &claim("future")), "done");
    });
}

/// A panic leaves no mark behind either: the same thread may claim the key.
#[test]
fn a_panicking_effect_leaves_no_mark_on_its_thread() {
    let ledger = Place::memory().create();
    let _ = ledger.once(&claim("k"), |_| -> Result<&str, EffectError> { panic!() }).unwrap();
    assert_eq!(not_done(&ledger, "k", doubt(&ledger, "k").token), onceledger::Resolved::Applied);
    assert_eq!(refused(&ledger, &claim("k")), "granted");
}

/// A closed or failed ledger under a living grant: the error comes after the effect, says so, and carries what the
/// effect returned; or the caller, told that the effect never started, would run it again.
#[test]
fn p13_p14_an_error_after_the_effect_says_so_and_carries_the_outcome() {
    on_every_backend(|place| {
        let ledger = place.create();
        let held = grant(&ledger, &claim("settle"));
        let held_async = grant(&ledger, &claim("async"));
        let other = ledger.clone();
        let error = ledger
            .once(&claim("once"), |_| {
                other.clone().close().unwrap();
                Ok::<_, EffectError>("charged")
            })
            .unwrap_err();
        for error in [
            error,
            held.complete("charged").unwrap_err(),
            block_on(held_async.settle_async(onceledger::Settlement::done("charged"))).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Closed);
            assert!(error.after_the_effect(), "{error}");
            assert_eq!(error.outcome().unwrap().body(), b"charged");
        }
        let ledger = place.open();
        for part in ["once", "settle", "async"] {
            assert_eq!(standing(&ledger, part), "uncertain", "{part}");
        }
    });
}

/// A drop never waits for the disk: with the writer held up, it returns.
#[test]
fn p14_a_drop_never_waits_for_the_disk() {
    let gated = Gated::new();
    let held = grant(&gated.ledger, &claim("k"));
    gated.disk.shut();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(grant(&gated.ledger, &claim("that holds the writer up"))));
        gated.disk.await_somebody();
        drop(held);
        assert_eq!(standing(&gated.ledger, "k"), "uncertain");
        gated.disk.open_up();
    });
    assert_eq!(refused(&gated.ledger, &claim("k")), "uncertain");
}
