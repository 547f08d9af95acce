//! The two hands of the fake clock.

use std::time::Duration;

use onceledger::testkit::{Clock, FakeClock, Reading};

const MS: u128 = 1_000_000;
const HOUR: Duration = Duration::from_secs(3600);

/// How far wall and boot time moved, in milliseconds.
fn moved(clock: &FakeClock, from: Reading) -> (i128, i128) {
    let now = clock.read();
    let by = |now: u128, then: u128| (now as i128 - then as i128) / MS as i128;
    (by(now.wall_ns, from.wall_ns), by(now.boot_ns, from.boot_ns))
}

#[track_caller]
fn check(act: impl FnOnce(&FakeClock), wanted: (i128, i128)) {
    let clock = FakeClock::new();
    let before = clock.read();
    act(&clock);
    assert_eq!(moved(&clock, before), wanted);
    assert_eq!(clock.read().boot_id, before.boot_id);
}

#[test]
fn a_clock_stands_still_until_it_is_told_to_move() {
    check(|_| (), (0, 0));
    assert_eq!(FakeClock::new().read(), FakeClock::default().read());
    assert_ne!(FakeClock::new().read().boot_id, [0; 16]);
}

#[test]
fn both_parts_move_together_or_apart() {
    check(|clock| clock.advance(HOUR), (3_600_000, 3_600_000));
    check(|clock| clock.advance_wall(HOUR), (3_600_000, 0));
    check(|clock| clock.advance_boot(HOUR), (0, 3_600_000));
    check(|clock| clock.clone().advance(HOUR), (3_600_000, 3_600_000));
}

#[test]
fn the_wall_jumps_and_the_boot_time_does_not() {
    check(|clock| clock.jump_wall_ms(-1), (-1, 0));
    check(|clock| clock.jump_wall_ms(315_576_000_000), (315_576_000_000, 0));
    let clock = FakeClock::new();
    clock.jump_wall_ms(i128::MIN);
    assert_eq!(clock.read().wall_ns, 0);
    clock.jump_wall_ms(i128::MAX);
    assert_eq!(clock.read().wall_ns, u128::from(u64::MAX) * MS);
}

#[test]
fn a_frozen_part_moves_only_by_hand() {
    check(
        |clock| {
            clock.freeze_wall();
            clock.advance(HOUR);
        },
        (0, 3_600_000),
    );
    check(
        |clock| {
            clock.freeze_boot();
            clock.advance(HOUR);
        },
        (3_600_000, 0),
    );
    check(
        |clock| {
            clock.freeze();
            clock.advance(HOUR);
            clock.suspend(HOUR);
            clock.jump_wall_ms(5);
            clock.thaw();
            clock.advance(HOUR);
        },
        (3_600_005, 3_600_000),
    );
}

#[test]
fn sleep_counts_as_boot_time_where_the_platform_counts_it() {
    check(|clock| clock.suspend(HOUR), (3_600_000, 3_600_000));
    check(|clock| clock.suspend_uncounted(HOUR), (3_600_000, 0));
}

#[test]
fn a_reboot_starts_boot_time_again_under_another_id() {
    let clock = FakeClock::new();
    let before = clock.read();
    clock.reboot(HOUR);
    let after = clock.read();
    assert_eq!((after.boot_ns, after.wall_ns - before.wall_ns), (0, HOUR.as_nanos()));
    assert_ne!(after.boot_id, before.boot_id);
    clock.reboot(HOUR);
    assert_ne!(clock.read().boot_id, after.boot_id);
    clock.set_boot_id([0; 16]);
    assert_eq!(clock.read().boot_id, [0; 16]);
}

#[test]
fn every_value_up_to_the_last_can_be_shown() {
    let clock = FakeClock::new();
    for ms in [0, 1, u64::MAX] {
        clock.set_wall_ms(ms);
        clock.set_boot_ms(ms);
        assert_eq!(clock.read().wall_ns, u128::from(ms) * MS);
        assert_eq!(clock.read().boot_ns, u128::from(ms) * MS);
    }
    let before = clock.read();
    clock.advance(Duration::MAX);
    assert_eq!(clock.read(), before, "the last value is the last");
}
