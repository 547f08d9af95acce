//! T16: what clocks do, against everything that a clock ends: +-1 ms, an hour, ten years, the end of
//! time, one bad second, a freeze, back over a restart, suspend.

use std::sync::Arc;
use std::time::Duration;

use onceledger::testkit::{Disk, FakeClock, FaultDisk};
use onceledger::{Claim, Key, Ledger, Options, Recovery, Scope, Standing, Stored, View};

use crate::driver::FILE;
use crate::kit::Tally;

const YEARS_10: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
const HOUR: Duration = Duration::from_secs(3600);
const S: Duration = Duration::from_secs(1);
/// What every limit of the table is set to.
const LIMIT: Duration = Duration::from_secs(600);

fn key(name: &str) -> Key {
    Key::action(&Scope::new("acme/clock").unwrap(), "act", [name]).unwrap()
}

struct Row {
    what: &'static str,
    /// What the clock does once everything stands.
    does: fn(&FakeClock),
    /// Whether the file is reopened after that, as by another process.
    reopens: bool,
    /// Real time that has passed is under the limit: nothing that ends late may have ended.
    late_holds: bool,
    /// What must have ended early: leases and resend windows.
    early_over: bool,
}

fn rows() -> Vec<Row> {
    let row = |what, does, late_holds, early_over| Row { what, does, reopens: false, late_holds, early_over };
    let nothing: fn(&FakeClock) = |_| {};
    let mut rows = vec![
        row("nothing", nothing, true, false),
        row("1 ms short of the limit", |clock| clock.advance(LIMIT - Duration::from_millis(1)), true, false),
        row("the limit", |clock| clock.advance(LIMIT), false, true),
        row("1 ms past the limit", |clock| clock.advance(LIMIT + Duration::from_millis(1)), false, true),
        row("the wall jumps 1 ms", |clock| clock.jump_wall_ms(1), true, false),
        row("the wall jumps back 1 ms", |clock| clock.jump_wall_ms(-1), true, false),
        row("the wall jumps an hour", |clock| clock.jump_wall_ms(3_600_000), true, true),
        row("the wall jumps back an hour", |clock| clock.jump_wall_ms(-3_600_000), true, false),
        row("the wall jumps ten years", |clock| clock.jump_wall_ms(YEARS_10.as_millis() as i128), true, true),
        row("the wall jumps back ten years", |clock| clock.jump_wall_ms(-(YEARS_10.as_millis() as i128)), true, false),
        row("the wall is at the end of time", |clock| clock.set_wall_ms(u64::MAX), true, true),
        row("the wall is at 0", |clock| clock.set_wall_ms(0), true, false),
        row("boot time is at the end of time", |clock| clock.set_boot_ms(u64::MAX), true, true),
        row("boot time goes back to 0", |clock| clock.set_boot_ms(0), true, false),
        row(
            "both at the end of time",
            |clock| {
                clock.set_wall_ms(u64::MAX);
                clock.set_boot_ms(u64::MAX)
            },
            false,
            true,
        ),
        row(
            "one bad second: an hour ahead, and back",
            |clock| {
                clock.jump_wall_ms(3_600_000);
                clock.advance(S);
                clock.jump_wall_ms(-3_600_000);
            },
            true,
            false,
        ),
        row(
            "a frozen clock",
            |clock| {
                clock.freeze();
                clock.advance(HOUR)
            },
            true,
            false,
        ),
        row(
            "the wall is frozen",
            |clock| {
                clock.freeze_wall();
                clock.advance(HOUR)
            },
            true,
            true,
        ),
        row(
            "boot time is frozen",
            |clock| {
                clock.freeze_boot();
                clock.advance(HOUR)
            },
            true,
            true,
        ),
        row("suspend for an hour", |clock| clock.suspend(HOUR), false, true),
        row("suspend that boot time does not count", |clock| clock.suspend_uncounted(HOUR), true, true),
        row("suspend for a second", |clock| clock.suspend(S), true, false),
    ];
    let mut again = Vec::new();
    for Row { what, does, late_holds, early_over, .. } in &rows {
        again.push(Row { what, does: *does, reopens: true, late_holds: *late_holds, early_over: *early_over });
    }
    rows.extend(again);
    let boot = |what, does, late_holds, early_over| Row { what, does, reopens: true, late_holds, early_over };
    rows.extend([
        boot("a reboot at once", |clock: &FakeClock| clock.reboot(Duration::ZERO), true, false),
        boot(
            "a reboot with the wall an hour back",
            |clock| {
                clock.reboot(S);
                clock.jump_wall_ms(-3_600_000)
            },
            true,
            false,
        ),
        boot("a reboot an hour later", |clock| clock.reboot(HOUR), false, true),
        boot(
            "a reboot, the wall lost",
            |clock| {
                clock.reboot(HOUR);
                clock.set_wall_ms(0)
            },
            true,
            false,
        ),
        boot(
            "a reboot, the wall lost, up for an hour",
            |clock| {
                clock.reboot(S);
                clock.set_wall_ms(0);
                clock.advance(HOUR)
            },
            true,
            true,
        ),
    ]);
    rows
}

fn open(disk: &FaultDisk, clock: &FakeClock, create: bool) -> Ledger {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = Options::new().disk(shared).clock(Arc::new(clock.clone())).threads(false);
    let opened = if create { options.create(FILE) } else { options.open(FILE) };
    opened.unwrap()
}

fn is_kept(view: &View) -> bool {
    matches!(view, View::Done(Stored::Kept(_)))
}

fn check(row: &Row) {
    let (disk, clock) = (FaultDisk::new(1), FakeClock::new());
    let mut ledger = open(&disk, &clock, true);
    let leased = ledger.claim(&Claim::unguarded(key("leased")).lease(LIMIT)).unwrap().granted().unwrap();
    let resend = || Claim::unguarded(key("resent")).recovery(Recovery::Resend { window: LIMIT });
    drop(ledger.claim(&resend()).unwrap().granted().unwrap());
    let kept = Claim::unguarded(key("kept")).keep(LIMIT);
    let _ = ledger.claim(&kept).unwrap().granted().unwrap().complete("out").unwrap();
    let remembered = || Claim::unguarded(key("remembered")).remember(LIMIT);
    let _ = ledger.claim(&remembered()).unwrap().granted().unwrap().complete("out").unwrap();
    let at_doubt = ledger.claim(&Claim::unguarded(key("doubt"))).unwrap().granted().unwrap();
    drop(at_doubt);
    ledger.tick();

    (row.does)(&clock);
    let mut leased = Some(leased);
    if row.reopens {
        // Another process: this one is gone.
        disk.stop();
        drop(ledger);
        leased = None;
        let disk = disk.process_crash();
        ledger = open(&disk, &clock, false);
    }
    ledger.tick();
    let what = format!("{} (reopened: {})", row.what, row.reopens);

    let standing = |name: &str| ledger.check(&key(name)).unwrap().standing();
    let lease_over = if row.reopens { true } else { row.early_over };
    assert_eq!(standing("leased") == Standing::Uncertain, lease_over, "{what}: lease");
    if !lease_over {
        assert_eq!(standing("leased"), Standing::InProgress, "{what}: lease");
    }
    let resent = ledger.claim(&resend()).unwrap();
    // A window that is open late is a second effect; one that is closed early is only a bother.
    if row.early_over {
        assert!(resent.granted().is_none(), "{what}: the resend window is open late");
    } else if row.late_holds {
        assert!(resent.granted().is_some(), "{what}: the resend window is closed though no time has passed");
    }
    if row.late_holds {
        assert!(is_kept(&ledger.check(&key("kept")).unwrap()), "{what}: the body was dropped early");
        assert_eq!(standing("remembered"), Standing::Done, "{what}: the key was forgotten early");
        let _ = ledger.sweep(100).unwrap();
        assert!(is_kept(&ledger.check(&key("kept")).unwrap()), "{what}: the body was swept early");
        assert!(ledger.claim(&remembered()).unwrap().granted().is_none(), "{what}: granted early");
    } else {
        assert!(!is_kept(&ledger.check(&key("kept")).unwrap()), "{what}: the body is there late");
        assert_eq!(standing("remembered"), Standing::Vacant, "{what}: the key is there late");
    }
    assert_eq!(standing("doubt"), Standing::Uncertain, "{what}: a doubt never ends by itself");
    // Whatever the clock did, the ledger goes on, and a reopening finds it well.
    let _ = ledger.claim(&Claim::unguarded(key("after"))).unwrap().granted().unwrap().complete("").unwrap();
    drop(leased);
    ledger.verify().unwrap();
    ledger.close().unwrap();
}

#[test]
fn t16_no_clock_ends_a_retention_early_or_keeps_a_window_open_late() {
    let mut tally = Tally::default();
    for row in rows() {
        check(&row);
        tally.cases += 1;
    }
    tally.end("T16", 45, "");
}

/// One bad reading is not kept: what ended late is counted on from where it was.
#[test]
fn t16_a_bad_second_does_not_poison_the_times() {
    for (ahead, reopens) in [(false, false), (false, true), (true, false), (true, true)] {
        let (disk, clock) = (FaultDisk::new(1), FakeClock::new());
        let mut disk = disk;
        let mut ledger = open(&disk, &clock, true);
        let claim = || Claim::unguarded(key("k")).remember(LIMIT);
        let _ = ledger.claim(&claim()).unwrap().granted().unwrap().complete("").unwrap();
        let by = if ahead { YEARS_10.as_millis() as i128 } else { -3_600_000 };
        clock.jump_wall_ms(by);
        clock.advance(S);
        let _ = ledger.claim(&Claim::unguarded(key("bad"))).unwrap().granted().unwrap().complete("").unwrap();
        clock.jump_wall_ms(-by);
        if reopens {
            disk.stop();
            drop(ledger);
            disk = disk.process_crash();
            ledger = open(&disk, &clock, false);
        }
        clock.advance(LIMIT / 2);
        ledger.tick();
        assert_eq!(ledger.check(&key("k")).unwrap().standing(), Standing::Done, "{ahead} {reopens}");
        clock.advance(LIMIT);
        ledger.tick();
        assert_eq!(
            ledger.check(&key("k")).unwrap().standing(),
            Standing::Vacant,
            "{ahead} {reopens}: forgotten too late"
        );
    }
}
