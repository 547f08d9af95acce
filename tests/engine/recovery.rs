//! What may happen once a holder is gone: hold, and resend inside its window (P2, P11).

use std::time::Duration;

use onceledger::{Claim, Claimed, DoubtReason, Recovery, Resolved};

use crate::kit::*;

fn resend(part: &str, window: Duration) -> Claim {
    claim(part).recovery(Recovery::Resend { window })
}

/// Case 11, P2: only a claim that said so runs again after a crash; the default holds until resolved.
#[test]
fn case_11_p2_hold_never_runs_again_by_itself() {
    on_every_backend(|place| {
        let ledger = place.create();
        drop(grant(&ledger, &claim("k")));
        for _ in 0..5 {
            place.clock.advance(100 * DAY);
            ledger.tick();
            for again in [claim("k"), resend("k", 1000 * DAY)] {
                let Claimed::Uncertain(doubt) = ledger.claim(&again).unwrap() else { panic!() };
                assert_eq!(doubt.doubt.reason, DoubtReason::Dropped);
                assert_eq!(
                    doubt.stored_rule_decided,
                    matches!(again, ref claim if format!("{claim:?}").contains("Resend"))
                );
            }
        }
        ledger.close().unwrap();
        assert_eq!(refused(&place.open(), &resend("k", 1000 * DAY)), "uncertain");
    });
}

/// Case 11, case 73: a resend has a new token, the next attempt, and the same downstream key.
#[test]
fn case_11_case_73_a_resend_inside_its_window_goes_on_with_the_same_downstream_key() {
    on_every_backend(|place| {
        let ledger = place.create();
        let first = grant(&ledger, &resend("k", HOUR));
        let (token, downstream) = (first.token(), first.downstream("charge"));
        drop(first);
        place.clock.advance(MINUTE);
        let second = grant(&ledger, &resend("k", HOUR));
        assert!(second.token() > token);
        assert_eq!((second.attempt(), second.downstream("charge")), (2, downstream));
        assert_eq!(refused(&ledger, &resend("k", HOUR)), "in_progress", "one at a time");
        drop(second);
    });
}

/// P11: the window counts from the first attempt ever made under the key, and not from the last.
#[test]
fn p11_the_resend_window_counts_from_the_first_attempt_and_ends_for_good() {
    on_every_backend(|place| {
        let ledger = place.create();
        for minute in 0..59 {
            let held = grant(&ledger, &resend("k", HOUR));
            assert_eq!(held.attempt(), minute + 1);
            drop(held);
            place.clock.advance(MINUTE);
        }
        place.clock.advance(MINUTE);
        assert_eq!(refused(&ledger, &resend("k", HOUR)), "uncertain", "the window is over");
        // A decision frees the key; the first attempt stays the first.
        assert_eq!(not_done(&ledger, "k", doubt(&ledger, "k").token), Resolved::Applied);
        drop(grant(&ledger, &resend("k", HOUR)));
        assert_eq!(refused(&ledger, &resend("k", HOUR)), "uncertain", "counted from the first attempt ever");
    });
}

/// A laxer later claim is judged by the rule that the first one stored, and does not widen it by being granted.
#[test]
fn p2_a_laxer_claim_does_not_widen_the_stored_window() {
    on_every_backend(|place| {
        let ledger = place.create();
        drop(grant(&ledger, &resend("k", MINUTE)));
        place.clock.advance(10 * SECOND);
        // Inside the stored window the laxer claim is granted ...
        drop(grant(&ledger, &resend("k", 100 * DAY)));
        place.clock.advance(HOUR);
        // ... and must not have made the window its own.
        let Claimed::Uncertain(doubt) = ledger.claim(&resend("k", 100 * DAY)).unwrap() else { panic!("widened") };
        assert!(doubt.stored_rule_decided);
        ledger.close().unwrap();
        assert_eq!(refused(&place.open(), &resend("k", 100 * DAY)), "uncertain");
    });
}

/// A stricter later claim binds itself: it holds where it would not run the action again.
#[test]
fn a_stricter_claim_binds_itself() {
    on_every_backend(|place| {
        let ledger = place.create();
        drop(grant(&ledger, &resend("k", HOUR)));
        let Claimed::Uncertain(doubt) = ledger.claim(&claim("k")).unwrap() else { panic!() };
        assert!(!doubt.stored_rule_decided);
        place.clock.advance(2 * MINUTE);
        assert_eq!(refused(&ledger, &resend("k", MINUTE)), "uncertain");
        assert_eq!(refused(&ledger, &resend("k", HOUR)), "granted");
    });
}

/// A window of no length holds; one at the limit of its type does not wrap.
#[test]
fn case_p11_a_resend_window_at_either_end_is_safe() {
    on_every_backend(|place| {
        let ledger = place.create();
        for window in [Duration::ZERO, Duration::from_millis(999)] {
            let part = format!("{window:?}");
            drop(grant(&ledger, &resend(&part, window)));
            assert_eq!(refused(&ledger, &resend(&part, window)), "uncertain");
        }
        for window in [Duration::MAX, Duration::from_secs(u64::from(u32::MAX)), Duration::from_secs(u64::MAX)] {
            let part = format!("{window:?}");
            drop(grant(&ledger, &resend(&part, window)));
            place.clock.advance(10_000 * DAY);
            assert_eq!(refused(&ledger, &resend(&part, window)), "granted");
        }
    });
}

/// A lapse alone lets nobody in: the holder may still be running.
#[test]
fn p2_a_lapsed_lease_is_no_reason_to_resend() {
    on_every_backend(|place| {
        let ledger = place.create();
        let held = grant(&ledger, &resend("k", 10 * DAY).lease(SECOND));
        place.clock.advance(MINUTE);
        assert_eq!(refused(&ledger, &resend("k", 10 * DAY)), "uncertain");
        assert_eq!(reason(&ledger, "k"), DoubtReason::Lapsed);
        drop(held);
        assert_eq!(refused(&ledger, &resend("k", 10 * DAY)), "granted", "now its holder is gone");
    });
}

/// Cases 9 and 95: killed at each point: after the claim, in the effect, after it before the settle, after the
/// settle. What the file says next is exact.
#[test]
fn case_9_killed_at_each_point_the_standing_is_exact() {
    let place = Place::fault();
    let ledger = place.create();
    std::mem::forget(grant(&ledger, &claim("claimed")));
    let _ = grant(&ledger, &claim("settled")).complete("x").unwrap();
    let _ = grant(&ledger, &claim("released")).release().unwrap();
    let after = Place::of(place.faults().process_crash());
    let reopened = after.open();
    assert_eq!(standing(&reopened, "claimed"), "uncertain");
    assert_eq!(reason(&reopened, "claimed"), DoubtReason::HolderGone);
    assert_eq!(standing(&reopened, "settled"), "done");
    assert_eq!(standing(&reopened, "released"), "vacant");
    assert_eq!(standing(&reopened, "never"), "vacant");
    // Twice over: opening again decides nothing new.
    let history = past(&reopened, "claimed");
    reopened.close().unwrap();
    assert_eq!(past(&after.open(), "claimed"), history);
}

/// Case 5: after a crash the list shows the doubt with what is needed to decide it.
#[test]
fn case_5_a_crashed_claim_is_listed_with_start_and_arguments() {
    let place = Place::fault();
    let ledger = place.create();
    let guarded = Claim::new(key("k"), &serde_json::json!({"amount": 79})).unwrap().label("refund of ord_42");
    let held = grant(&ledger, &guarded);
    let token = held.token();
    std::mem::forget(held);
    let reopened = Place::of(place.faults().process_crash()).open();
    let listed = reopened.list(onceledger::Standing::Uncertain, None, 10).unwrap().keys;
    assert_eq!(listed.len(), 1);
    let detail = &listed[0];
    assert_eq!((detail.token, detail.attempt, detail.scope.as_str()), (token, 1, "test"));
    assert_eq!(detail.label, "refund of ord_42");
    assert_eq!(detail.fingerprint, guarded.fingerprint());
    assert!(detail.args.is_some() && detail.since_ms >= 1_767_225_600_000);
    assert_eq!(detail.key, key("k"));
}

/// Case 36: an effect that says it did not start gives the key back, and no answer ever says done.
#[test]
fn case_36_not_applied_frees_the_key() {
    on_every_backend(|place| {
        let ledger = place.create();
        for attempt in 1..4 {
            let answer = ledger.once(&claim("k"), |grant| -> Result<&str, _> {
                assert_eq!(grant.attempt(), attempt);
                Err(onceledger::EffectError::not_applied("refused before it began"))
            });
            assert!(matches!(answer.unwrap(), onceledger::Answer::NotApplied(_)));
            assert_eq!(standing(&ledger, "k"), "vacant");
        }
    });
}
