//! Leases: the caller's own bound on how long a claim is held, and what time alone never does (P2).

use std::time::Duration;

use onceledger::{DoubtReason, Resolved, Settled, View};

use crate::kit::*;

/// Case 1: killed with a lease running: after it, uncertain; not fresh, not in progress for ever.
#[test]
fn case_1_after_the_lease_a_dropped_claim_is_uncertain_and_resolves() {
    on_every_backend(|place| {
        let ledger = place.create();
        let held = grant(&ledger, &claim("k").lease(10 * SECOND));
        let token = held.token();
        std::mem::forget(held);
        place.clock.advance(11 * SECOND);
        assert_eq!(refused(&ledger, &claim("k")), "uncertain");
        assert_eq!(not_done(&ledger, "k", token), Resolved::Applied);
        assert_eq!(grant(&ledger, &claim("k")).attempt(), 2);
    });
}

/// Case 2, P2: no lease, however long ago it ended, makes a key that was granted free again.
#[test]
fn case_2_p2_no_lapse_ever_gives_a_second_grant() {
    on_every_backend(|place| {
        let ledger = place.create();
        let leases = [Duration::from_millis(1), SECOND, MINUTE, HOUR, DAY, 365 * DAY];
        let held: Vec<_> = leases
            .iter()
            .enumerate()
            .map(|(n, lease)| grant(&ledger, &claim(format!("{n}")).lease(*lease).remember(SECOND).keep(SECOND)))
            .collect();
        for _ in 0..5 {
            place.clock.advance(400 * DAY);
            ledger.tick();
            ledger.sweep(1000).unwrap();
            for (n, lease) in leases.iter().enumerate() {
                let part = format!("{n}");
                assert_eq!(refused(&ledger, &claim(&part)), "uncertain", "lease {lease:?}");
                assert_eq!(reason(&ledger, &part), DoubtReason::Lapsed);
            }
        }
        drop(held);
        ledger.close().unwrap();
        let ledger = place.open();
        for n in 0..leases.len() {
            assert_eq!(refused(&ledger, &claim(format!("{n}"))), "uncertain");
        }
    });
}

/// Case 3: a lease of zero is a typed error, never «no lease».
#[test]
fn case_3_a_lease_of_zero_is_bad_input() {
    let ledger = Place::memory().create();
    let error = ledger.claim(&claim("k").lease(Duration::ZERO)).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("lease"), "{error}");
    assert_eq!(standing(&ledger, "k"), "vacant");
    let held = grant(&ledger, &claim("k").lease(MINUTE));
    assert!(held.renew(Duration::ZERO).unwrap_err().is_bad_input());
    assert_eq!(held.complete("x").unwrap(), Settled::Applied);
}

/// Cases 4 and P8: a lease of 30 s ends at 30 s, to the millisecond, whatever the part of a second.
#[test]
fn case_4_case_p8_a_lease_of_thirty_seconds_ends_at_thirty_seconds() {
    on_every_backend(|place| {
        for start in [0, 1, 499, 500, 998, 999] {
            place.clock.advance(Duration::from_millis(start));
        }
        let ledger = place.create();
        for lease in [30_000_u64, 1, 999, 1000, 1001] {
            let part = format!("{lease}");
            let held = grant(&ledger, &claim(&part).lease(Duration::from_millis(lease)));
            place.clock.advance(Duration::from_millis(lease - 1));
            assert_eq!(standing(&ledger, &part), "in_progress", "{lease} ms, 1 ms before");
            assert_eq!(refused(&ledger, &claim(&part)), "in_progress");
            place.clock.advance(Duration::from_millis(2));
            assert_eq!(standing(&ledger, &part), "uncertain", "{lease} ms, 1 ms after");
            assert_eq!(refused(&ledger, &claim(&part)), "uncertain");
            drop(held);
        }
    });
}

/// Cases 22 and 24: a long effect renews; whoever asks meanwhile is told in progress, and how long is left.
#[test]
fn case_22_case_24_a_renewed_claim_stays_in_progress() {
    on_every_backend(|place| {
        let ledger = place.create();
        let held = grant(&ledger, &claim("k").lease(2 * MINUTE));
        for minute in 0..10 {
            place.clock.advance(MINUTE);
            let View::InProgress(seen) = ledger.check(&key("k")).unwrap() else { panic!("minute {minute}") };
            assert_eq!(seen.lease_left, Some(MINUTE));
            assert_eq!((seen.token, seen.attempt, seen.pid), (held.token(), 1, Some(std::process::id())));
            assert_eq!(refused(&ledger, &claim("k")), "in_progress");
            assert_eq!(held.renew(2 * MINUTE).unwrap(), Settled::Applied);
        }
        assert_eq!(held.complete("x").unwrap(), Settled::Applied);
    });
}

/// Case 24: four redeliveries during one effect of four hours, without a lease: held as long as the grant lives.
#[test]
fn case_24_a_claim_without_a_lease_is_held_as_long_as_its_grant_lives() {
    on_every_backend(|place| {
        let ledger = place.create();
        let held = grant(&ledger, &claim("k"));
        for _ in 0..4 {
            place.clock.advance(HOUR);
            ledger.tick();
            assert_eq!(refused(&ledger, &claim("k")), "in_progress");
        }
        place.clock.advance(4000 * DAY);
        assert_eq!(refused(&ledger, &claim("k")), "in_progress");
        assert_eq!(held.complete("x").unwrap(), Settled::Applied);
        assert_eq!(refused(&ledger, &claim("k")), "done");
    });
}

/// A lapsed claim that its holder renews is in progress again, where nobody resolved it; a dropped one is not.
#[test]
fn a_lapse_is_undone_by_renewing_and_a_doubt_is_not() {
    on_every_backend(|place| {
        let ledger = place.create();
        let held = grant(&ledger, &claim("k").lease(SECOND));
        place.clock.advance(MINUTE);
        assert_eq!(standing(&ledger, "k"), "uncertain");
        assert_eq!(held.renew(MINUTE).unwrap(), Settled::Applied);
        assert_eq!(standing(&ledger, "k"), "in_progress");
        assert_eq!(held.complete("x").unwrap(), Settled::Applied);
    });
}

/// Case 13: the rule is one over every store and for equal lease lengths: no lease steals from another.
#[test]
fn case_13_equal_leases_steal_nothing_on_any_backend() {
    on_every_backend(|place| {
        let ledger = place.create();
        let held = grant(&ledger, &claim("k").lease(MINUTE));
        place.clock.advance(MINUTE);
        assert_eq!(refused(&ledger, &claim("k").lease(MINUTE)), "uncertain");
        place.clock.advance(MINUTE);
        assert_eq!(refused(&ledger, &claim("k").lease(MINUTE)), "uncertain");
        drop(held);
    });
}

/// Case P11: a lease or retention near the limit of its type is never in the past.
#[test]
fn case_p11_durations_at_the_limit_are_refused_or_never_end() {
    let place = Place::memory();
    let ledger = place.create();
    let long = [
        Duration::MAX,
        Duration::from_secs(u64::MAX),
        Duration::from_millis(u64::MAX),
        Duration::from_millis(u64::MAX / 2),
    ];
    for (n, lease) in long.into_iter().enumerate() {
        let part = format!("lease {n}");
        match ledger.claim(&claim(&part).lease(lease)) {
            Err(error) => assert!(error.is_bad_input(), "{error}"),
            Ok(claimed) => {
                place.clock.advance(4000 * DAY);
                assert_eq!(standing(&ledger, &part), "in_progress", "{lease:?}");
                drop(claimed);
            }
        }
        assert!(ledger.claim(&claim(format!("remember {n}")).remember(lease)).unwrap_err().is_bad_input());
        assert!(ledger.claim(&claim(format!("keep {n}")).keep(lease)).unwrap_err().is_bad_input());
    }
    let most = Duration::from_secs(u64::from(u32::MAX) - 1);
    let _ = grant(&ledger, &claim("most").remember(most).keep(most)).complete("x").unwrap();
    let held = grant(&ledger, &claim("lease").lease(Duration::from_millis(u64::MAX / 2 - 1)));
    for _ in 0..12 {
        place.clock.advance(4000 * DAY);
        ledger.tick();
        assert_eq!(standing(&ledger, "most"), "done");
        assert_eq!(standing(&ledger, "lease"), "in_progress");
    }
    drop(held);
    for wait in [Duration::from_secs(u64::MAX), Duration::MAX - SECOND] {
        assert_eq!(refused(&ledger, &claim("most").wait(wait)), "done");
    }
    assert!(ledger.claim(&claim("k").remember(Duration::ZERO)).unwrap_err().is_bad_input());
}
