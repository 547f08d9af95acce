//! Faults that were found, each as the smallest input that shows it.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use onceledger::testkit::{Disk, Failure, FakeClock, Fault, FaultDisk, Operation, Plan};
use onceledger::{Claim, ErrorKind, Key, Options, Outcome, Recovery, Scope, Settlement, Standing};

use crate::driver::FILE;

fn key(name: &str) -> Key {
    Key::action(&Scope::new("acme/found").unwrap(), "act", [name]).unwrap()
}

fn options(disk: &Arc<dyn Disk>, clock: &FakeClock) -> Options {
    Options::new().disk(Arc::clone(disk)).clock(Arc::new(clock.clone())).threads(false)
}

/// A key whose retention has passed was granted anew in the same batch in which a sweep forgot it:
/// the index lost the grant, and the next claim was granted too. Two holders, one effect too many.
#[test]
fn a_sweep_does_not_forget_a_key_that_is_granted_anew_in_the_same_batch() {
    let clock = FakeClock::new();
    let ledger = Options::new().clock(Arc::new(clock.clone())).threads(false).in_memory().unwrap();
    let claim = Claim::unguarded(key("k")).remember(Duration::from_secs(10));
    let _ = ledger.claim(&claim).unwrap().granted().unwrap().complete("first").unwrap();
    clock.advance(Duration::from_secs(60));
    // The ledger has looked at the clock since, and has not swept yet.
    let _other = ledger.claim(&Claim::unguarded(key("other"))).unwrap();

    let mut context = Context::from_waker(Waker::noop());
    let mut claiming = Box::pin(ledger.claim_async(&claim));
    assert!(claiming.as_mut().poll(&mut context).is_pending());
    // In line behind the claim, and so in its batch.
    let _ = ledger.sweep(100).unwrap();
    let std::task::Poll::Ready(claimed) = claiming.as_mut().poll(&mut context) else { panic!("written") };
    let grant = claimed.unwrap().granted().unwrap();

    assert_eq!(ledger.check(&key("k")).unwrap().standing(), Standing::InProgress);
    assert!(ledger.claim(&claim).unwrap().granted().is_none(), "two holders of one key");
    let _ = grant.complete("second").unwrap();
}

/// A resend within the stored window stored the resender's own, laxer window: the claim after it was
/// judged by that.
#[test]
fn a_resend_does_not_make_the_stored_rule_laxer() {
    let clock = FakeClock::new();
    let ledger = Options::new().clock(Arc::new(clock.clone())).threads(false).in_memory().unwrap();
    let claim =
        |window_s| Claim::unguarded(key("k")).recovery(Recovery::Resend { window: Duration::from_secs(window_s) });
    drop(ledger.claim(&claim(10)).unwrap().granted().unwrap());
    clock.advance(Duration::from_secs(5));
    drop(ledger.claim(&claim(1000)).unwrap().granted().expect("inside the stored window"));
    clock.advance(Duration::from_secs(20));
    assert!(ledger.claim(&claim(1000)).unwrap().granted().is_none(), "granted outside the window stored first");
}

/// A failed read left the ledger half open: it answered other calls, while redb took no more writes.
#[test]
fn a_failed_read_of_an_outcome_closes_the_ledger() {
    let disk = FaultDisk::new(1);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let clock = FakeClock::new();
    let ledger = options(&shared, &clock).cache_bytes(0).page_cache_bytes(0).create(FILE).unwrap();
    let _ = ledger.claim(&Claim::unguarded(key("k"))).unwrap().granted().unwrap().complete("out").unwrap();
    disk.set_plan(Fault::on(Operation::Read).with(Failure::Io));
    assert_eq!(ledger.check(&key("k")).unwrap_err().kind(), ErrorKind::Storage);
    assert_eq!(ledger.check(&key("other")).unwrap_err().kind(), ErrorKind::Storage);
    assert_eq!(ledger.sweep(1).unwrap_err().kind(), ErrorKind::Storage);
    drop(ledger);
    let ledger = options(&shared, &clock).open(FILE).unwrap();
    assert_eq!(ledger.check(&key("k")).unwrap().standing(), Standing::Done);
}

/// The session's file was left behind where making it failed half-way; with the old handle alive, the
/// reopened ledger met it and could never grant again.
#[test]
fn a_session_whose_file_could_not_be_made_can_be_made_after_reopening() {
    for kind in [Operation::Lock, Operation::Write, Operation::Sync, Operation::SyncDir] {
        let disk = FaultDisk::new(1);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let clock = FakeClock::new();
        let ledger = options(&shared, &clock).create(FILE).unwrap();
        disk.set_plan(match kind {
            Operation::SyncDir => Fault::on(kind).path(".sessions"),
            _ => Fault::on(kind),
        });
        let failed = ledger.claim(&Claim::unguarded(key("k"))).unwrap_err();
        assert!(failed.is_storage(), "{kind:?}: {failed}");
        disk.set_plan(Plan::new());
        // The failed handle is still there: the session is the same.
        let again = options(&shared, &clock).open(FILE).unwrap();
        let granted = again.claim(&Claim::unguarded(key("k"))).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        let _ = granted.granted().unwrap().complete("").unwrap();
        drop(ledger);
    }
}

/// Opening on a full disk failed at the lock's process id and at the anchor, so that nobody could
/// even look at what had been done.
#[test]
fn a_ledger_opened_on_a_full_disk_serves_what_it_knows() {
    let disk = FaultDisk::new(1);
    let clock = FakeClock::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let ledger = options(&shared, &clock).create(FILE).unwrap();
    let _ = ledger.claim(&Claim::unguarded(key("done"))).unwrap().granted().unwrap().complete("out").unwrap();
    let _held = ledger.claim(&Claim::unguarded(key("held"))).unwrap().granted().unwrap();
    disk.stop();
    drop(ledger);
    let disk = disk.process_crash();
    disk.set_plan(Plan::new().full_from(1));
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let ledger = options(&shared, &clock).open(FILE).unwrap();
    assert!(ledger.writable().unwrap_err().is_storage());
    let done = ledger.claim(&Claim::unguarded(key("done"))).unwrap();
    assert!(
        matches!(done, onceledger::Claimed::AlreadyDone(stored) if stored.outcome() == Some(&Outcome::text("out")))
    );
    assert_eq!(ledger.check(&key("held")).unwrap().standing(), Standing::Uncertain, "its holder is dead");
    assert_eq!(ledger.uncertain().unwrap().len(), 1);
    assert!(ledger.claim(&Claim::unguarded(key("new"))).unwrap_err().is_storage());
    ledger.close().unwrap();
    disk.set_plan(Plan::new());
    let ledger = options(&shared, &clock).open(FILE).unwrap();
    assert!(ledger.writable().is_ok());
    let _ =
        ledger.claim(&Claim::unguarded(key("new"))).unwrap().granted().unwrap().settle(Settlement::done("")).unwrap();
}

/// Opening looked at the file of every session that the log had ever known: it became slower with
/// every open, and the rows were never cleaned.
#[test]
fn opening_does_not_look_at_sessions_that_are_over() {
    let disk = FaultDisk::new(1);
    let clock = FakeClock::new();
    let open = |create: bool| {
        // Another process each time.
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let options = options(&shared, &clock);
        if create { options.create(FILE).unwrap() } else { options.open(FILE).unwrap() }
    };
    open(true).close().unwrap();
    let mut operations = Vec::new();
    for number in 0..60 {
        let before = disk.operations();
        let ledger = open(false);
        operations.push(disk.trace()[before as usize..].iter().filter(|line| line.contains(" node ")).count());
        let claim = Claim::unguarded(key(&number.to_string()));
        let _ = ledger.claim(&claim).unwrap().granted().unwrap().complete("").unwrap();
        ledger.close().unwrap();
    }
    assert!(operations[59] <= operations[5] + 2, "looks at opening: {operations:?}");
}

/// `create` after a creation that was cut off between the file's name and the anchor answered that
/// the ledger exists, though its own words promise to complete it.
#[test]
fn a_creation_that_was_cut_off_late_is_completed_by_create() {
    let mut completed = 0;
    for number in 1.. {
        let disk = FaultDisk::new(1);
        disk.stop_at(number);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let created = options(&shared, &FakeClock::new()).create(FILE);
        if created.is_ok() {
            break;
        }
        let left: Arc<dyn Disk> = Arc::new(disk.process_crash());
        match options(&left, &FakeClock::new()).create(FILE) {
            Ok(_) => completed += 1,
            // The last step of all: the anchor already says that the ledger is there.
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Exists, "{number}: {error}");
                options(&left, &FakeClock::new()).open(FILE).unwrap();
                let late = disk.operations();
                let anchored =
                    disk.trace().iter().filter(|line| line.contains("rename /ledger.redb.anchor.new")).count();
                assert_eq!(anchored, 2, "operation {number} of {late}: {error}");
            }
        }
    }
    assert!(completed > 20, "{completed}");
}

/// A growth of the file that was cut short left half a page at its end, which redb takes for damage: the ledger could
/// not be opened any more.
#[test]
fn a_growth_cut_short_leaves_a_ledger_that_opens() {
    let mut met = 0;
    for seed in 0..20 {
        let disk = FaultDisk::new(seed);
        let (shared, clock): (Arc<dyn Disk>, _) = (Arc::new(disk.clone()), FakeClock::new());
        let ledger = options(&shared, &clock).create(FILE).unwrap();
        disk.set_plan(Fault::on(Operation::SetLen).with(Failure::Short));
        let outcome = || Outcome::binary([7; 4000]);
        let mut settled = 0;
        while ledger.writable().is_ok() && settled < 200 {
            let claimed = ledger.claim(&Claim::unguarded(key(&format!("k{settled}"))));
            let Ok(Some(grant)) = claimed.map(onceledger::Claimed::granted) else { break };
            if grant.complete(outcome()).is_err() {
                break;
            }
            settled += 1;
        }
        met += disk.injected();
        drop(ledger);
        disk.set_plan(Plan::new());
        let ledger = options(&shared, &clock).open(FILE).unwrap();
        for number in 0..settled {
            let view = ledger.check(&key(&format!("k{number}"))).unwrap();
            assert_eq!(view.standing(), Standing::Done, "seed {seed}: the claim {number} was settled");
        }
        let _ =
            ledger.claim(&Claim::unguarded(key("another"))).unwrap().granted().unwrap().complete(outcome()).unwrap();
        let _ = ledger.verify().unwrap();
    }
    assert_eq!(met, 20, "a growth met each fault");
}
