//! What clocks may do, and what they must not bring about (P11).

use std::time::Duration;

use onceledger::{Claimed, Recovery};

use crate::kit::*;

const YEARS_MS: i128 = 10 * 365 * 24 * 3_600_000;

/// P11: a step of the wall clock, forward or back, ends no retention early.
#[test]
fn p11_no_step_of_the_wall_clock_ends_a_retention_early() {
    for step in [1, 3_600_000, YEARS_MS, i128::from(u64::MAX), -1, -3_600_000, -YEARS_MS, i128::from(i64::MIN)] {
        let place = Place::fault();
        let ledger = place.create();
        let _ = grant(&ledger, &claim("k").remember(HOUR)).complete("x").unwrap();
        place.clock.jump_wall_ms(step);
        // Somebody looks at the clock between the step and what follows, as the ledger's threads do each second.
        ledger.tick();
        place.clock.advance(59 * MINUTE);
        assert_eq!(standing(&ledger, "k"), "done", "step {step}");
        ledger.close().unwrap();
        let ledger = place.open();
        assert_eq!(standing(&ledger, "k"), "done", "step {step}, reopened");
        // Nor is it kept much longer: the other clock has gone on.
        place.clock.advance(3 * MINUTE);
        // But for a wall clock that stands at the end of its type: retention then waits for it.
        // And for one that went back before the ledger was closed: what passed since the last commit counts by
        // the smaller advance, which is none.
        let end = if step == i128::from(u64::MAX) || step < -180_000 { "done" } else { "vacant" };
        assert_eq!(standing(&ledger, "k"), end, "step {step}, an hour later");
    }
}

/// P11: one bad second does not poison what comes after it.
#[test]
fn p11_one_bad_second_poisons_nothing() {
    let place = Place::memory();
    let ledger = place.create();
    let wall = 1_767_225_600_000;
    place.clock.set_wall_ms(wall + 2_000_000_000_000);
    ledger.tick();
    let _ = grant(&ledger, &claim("in the bad second").remember(HOUR)).complete("x").unwrap();
    let held = grant(&ledger, &claim("lease").lease(HOUR));
    place.clock.set_wall_ms(wall);
    ledger.tick();
    place.clock.advance(59 * MINUTE);
    assert_eq!(standing(&ledger, "in the bad second"), "done");
    assert_eq!(standing(&ledger, "lease"), "in_progress");
    place.clock.advance(2 * MINUTE);
    assert_eq!(standing(&ledger, "in the bad second"), "vacant");
    assert_eq!(standing(&ledger, "lease"), "uncertain");
    drop(held);
}

/// P11: a resend window closes early rather than late: the larger advance of the two clocks counts.
#[test]
fn p11_no_clock_keeps_a_resend_window_open_late() {
    type Move = fn(&onceledger::testkit::FakeClock);
    let moves: [(&str, Move); 5] = [
        ("wall frozen", |clock| {
            clock.freeze_wall();
            clock.advance(2 * HOUR);
        }),
        ("boot frozen", |clock| {
            clock.freeze_boot();
            clock.advance(2 * HOUR);
        }),
        ("back after", |clock| {
            clock.advance(2 * HOUR);
            clock.jump_wall_ms(-7_200_000);
        }),
        ("suspended", |clock| clock.suspend(2 * HOUR)),
        ("suspended, uncounted", |clock| clock.suspend_uncounted(2 * HOUR)),
    ];
    for reopened in [false, true] {
        for (name, change) in moves {
            let place = Place::memory();
            let mut ledger = place.create();
            let resend = claim("k").recovery(Recovery::Resend { window: HOUR });
            drop(grant(&ledger, &resend));
            if reopened {
                ledger.clone().close().unwrap();
            }
            change(&place.clock);
            if reopened {
                ledger = place.open();
            }
            assert_eq!(refused(&ledger, &resend), "uncertain", "{name}, reopened: {reopened}");
        }
    }
}

/// P11: over a reboot the wall clock is believed, up to the greatest gap; a later boot's own uptime closes windows.
#[test]
fn p11_a_gap_across_a_boot_counts_up_to_its_limit() {
    on_every_backend(|place| {
        let ledger = place.create();
        let _ = grant(&ledger, &claim("short").remember(10 * DAY)).complete("x").unwrap();
        let _ = grant(&ledger, &claim("long").remember(60 * DAY)).complete("x").unwrap();
        ledger.close().unwrap();
        // Off for a year, says the wall clock: no more than 30 days of it count.
        place.clock.reboot(365 * DAY);
        let ledger = place.open();
        assert_eq!((standing(&ledger, "short"), standing(&ledger, "long")), ("vacant", "done"));
        place.clock.advance(31 * DAY);
        assert_eq!(standing(&ledger, "long"), "vacant");
    });
}

/// P11: a wall clock that went back across a boot ends nothing early; the boot's uptime still ends what ends early.
#[test]
fn p11_a_wall_clock_that_went_back_across_a_boot_is_not_believed() {
    let place = Place::memory();
    let ledger = place.create();
    let resend = claim("resend").recovery(Recovery::Resend { window: HOUR });
    drop(grant(&ledger, &resend));
    let _ = grant(&ledger, &claim("k").remember(HOUR)).complete("x").unwrap();
    ledger.close().unwrap();
    place.clock.reboot(Duration::ZERO);
    place.clock.jump_wall_ms(-YEARS_MS);
    place.clock.advance_boot(2 * HOUR);
    let ledger = place.open();
    assert_eq!(standing(&ledger, "k"), "done");
    assert_eq!(refused(&ledger, &resend), "uncertain", "the machine has been up for two hours");
}

/// Case 97: a clock before the acquisition is neither expired nor freshly valid: nothing changes hands.
#[test]
fn case_97_a_clock_before_the_claim_changes_nothing() {
    on_every_backend(|place| {
        let ledger = place.create();
        let held = grant(&ledger, &claim("k").lease(MINUTE));
        let _ = grant(&ledger, &claim("done").remember(HOUR)).complete("x").unwrap();
        for back in [1, 60_000, 3_600_000, YEARS_MS] {
            place.clock.jump_wall_ms(-back);
            ledger.tick();
            assert_eq!(refused(&ledger, &claim("k")), "in_progress");
            assert_eq!(refused(&ledger, &claim("done")), "done");
        }
        // The lease still ends on time, by the clock that nobody set.
        place.clock.advance(61 * SECOND);
        assert_eq!(refused(&ledger, &claim("k")), "uncertain");
        drop(held);
    });
}

/// P11: a clock at the end of its type neither wraps nor panics.
#[test]
fn p11_a_clock_at_its_end_overflows_nothing() {
    on_every_backend(|place| {
        let ledger = place.create();
        let held = grant(&ledger, &claim("lease").lease(HOUR));
        let _ = grant(&ledger, &claim("k")).complete("x").unwrap();
        place.clock.set_wall_ms(u64::MAX);
        ledger.tick();
        assert_eq!(refused(&ledger, &claim("k")), "done");
        place.clock.set_boot_ms(u64::MAX);
        ledger.tick();
        drop(grant(&ledger, &claim("at the end").lease(HOUR)));
        assert_eq!(refused(&ledger, &claim("at the end")), "uncertain");
        let _ = grant(&ledger, &claim("settled")).complete("x").unwrap();
        assert!(["done", "vacant"].contains(&standing(&ledger, "settled")));
        assert_eq!(standing(&ledger, "lease"), "uncertain");
        ledger.sweep(100).unwrap();
        ledger.close().unwrap();
        let ledger = place.open();
        assert_eq!(refused(&ledger, &claim("at the end")), "uncertain");
        assert_eq!(standing(&ledger, "lease"), "uncertain");
        ledger.verify().unwrap();
        drop(held);
    });
}

/// A frozen clock holds everything as it is, and a thaw goes on from there.
#[test]
fn p11_a_frozen_clock_ends_nothing() {
    let place = Place::memory();
    let ledger = place.create();
    let held = grant(&ledger, &claim("k").lease(MINUTE));
    place.clock.freeze();
    place.clock.advance(DAY);
    assert_eq!(standing(&ledger, "k"), "in_progress");
    place.clock.thaw();
    place.clock.advance(2 * MINUTE);
    assert_eq!(standing(&ledger, "k"), "uncertain");
    drop(held);
}

/// A platform without a boot id is judged, at each opening, as across a boot: by the wall clock, and no session is
/// called dead for it.
#[test]
fn a_platform_without_a_boot_id_holds() {
    on_every_backend(|place| {
        place.clock.set_boot_id([0; 16]);
        let theirs = place.stranger().create(&place.path).unwrap();
        let held = grant(&theirs, &claim("k"));
        let _ = grant(&theirs, &claim("done").remember(HOUR)).complete("x").unwrap();
        theirs.close().unwrap();
        place.clock.advance(30 * MINUTE);
        let ledger = place.open();
        let Claimed::InProgress(_) = ledger.claim(&claim("k")).unwrap() else { panic!() };
        assert_eq!(standing(&ledger, "done"), "done");
        place.clock.advance(31 * MINUTE);
        assert_eq!(standing(&ledger, "done"), "vacant");
        drop(held);
        ledger.tick();
        assert_eq!(standing(&ledger, "k"), "uncertain");
    });
}

/// Case P8, case 4: no time is compared with the millisecond part of another: settled late in a second, kept to the
/// millisecond.
#[test]
fn case_p8_retention_is_to_the_millisecond() {
    let place = Place::memory();
    let ledger = place.create();
    for ms in [0, 1, 999] {
        place.clock.advance(Duration::from_millis(ms));
        let part = format!("{ms}");
        let _ = grant(&ledger, &claim(&part).remember(SECOND).keep(SECOND)).complete("x").unwrap();
        place.clock.advance(Duration::from_millis(999));
        assert_eq!(standing(&ledger, &part), "done");
        place.clock.advance(Duration::from_millis(1));
        assert_eq!(standing(&ledger, &part), "vacant");
    }
}
