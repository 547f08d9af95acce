//! What threads of one process, and several processes, do at the wrong moment.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::Waker;
use std::time::Duration;

use onceledger::testkit::Disk;
use onceledger::{
    Claim, Claimed, Error, ErrorKind, Ledger, Options, PastWhat, Recovery, Resolved, Settled, Settlement, Ticket,
    Transacted, Verdict,
};
use parking_lot::Mutex;

use crate::futures::{block_on, poll};
use crate::kit::*;

fn resend(part: &str) -> Claim {
    claim(part).recovery(Recovery::Resend { window: HOUR })
}

fn well() -> Settlement {
    Settlement::done("it went well")
}

/// Decides by force that a claim in progress did nothing.
#[track_caller]
fn force_not_done(ledger: &Ledger, part: &str, ticket: &Ticket) {
    let not_done = Verdict::NotDone;
    let forced = ledger.resolve_token(&key(part), ticket.token(), not_done, "ana", "looked", true);
    assert_eq!(forced.unwrap(), Resolved::Applied);
}

type Act = Box<dyn FnOnce() + Send>;

/// What is to be done at an operation of a disk, counted from when it was set.
#[derive(Clone, Default)]
struct Trap(Arc<Mutex<Set>>);

#[derive(Default)]
struct Set {
    operation: u64,
    acts: Vec<(u64, Act)>,
}

impl Trap {
    /// The disk of `place`, as another process has it, with this trap on it.
    fn on(&self, place: &Place) -> Arc<dyn Disk> {
        self.on_each(place, |_| true)
    }

    /// The same, counting only some operations.
    fn on_each(&self, place: &Place, counts: impl Fn(&'static str) -> bool + Send + Sync + 'static) -> Arc<dyn Disk> {
        let trap = self.clone();
        let hook = move |operation| {
            // Operations that an act itself makes are not counted.
            let due = trap.0.try_lock().filter(|_| counts(operation)).map_or_else(Vec::new, |mut set| {
                set.operation += 1;
                let at = set.operation - 1;
                set.acts.extract_if(.., |(when, _)| *when == at).collect()
            });
            due.into_iter().for_each(|(_, act): (u64, Act)| act());
        };
        Arc::new(HookDisk::new(place.stranger_disk(), hook))
    }

    fn set(&self, acts: Vec<(u64, Act)>) {
        *self.0.lock() = Set { operation: 0, acts };
    }

    /// Takes away what did not come to pass. Whether all did.
    fn all_done(&self) -> bool {
        std::mem::take(&mut self.0.lock().acts).is_empty()
    }
}

/// P1: an answer that is taken out only after its ledger was closed and opened again is no grant: the opening found
/// nobody who held it, and may have given the key to somebody else.
#[test]
fn p1_a_grant_that_is_taken_after_the_next_opening_is_none() {
    for first in [resend("k"), claim("k")] {
        let place = Place::memory();
        let ledger = place.create();
        let mut claiming = Box::pin(ledger.claim_async(&first));
        assert!(poll(claiming.as_mut(), Waker::noop()).is_pending());
        ledger.tick();
        assert_eq!(standing(&ledger, "k"), "in_progress");
        ledger.close().unwrap();
        let again = place.open();
        let second = again.claim(&first).unwrap();
        let late = block_on(claiming);
        assert_eq!(late.unwrap_err().kind(), ErrorKind::Closed, "beside {}", word(&second));
    }
}

/// P13: the same where storage failed: the grant is on disk, and its effect must not run.
#[test]
fn p13_a_grant_that_is_taken_after_storage_failed_is_unknown() {
    let place = Place::fault();
    let ledger = place.create();
    let mut claiming = Box::pin(ledger.claim_async(&claim("k")));
    assert!(poll(claiming.as_mut(), Waker::noop()).is_pending());
    ledger.tick();
    place.faults().set_plan(onceledger::testkit::Plan::new().full_from(1));
    for part in 0..1000 {
        if ledger.claim(&claim(format!("other {part}"))).is_err() {
            break;
        }
    }
    assert_eq!(block_on(claiming).unwrap_err().kind(), ErrorKind::Unknown);
}

/// P14: what nobody took, given back only after the next opening and closing.
#[test]
fn p14_an_answer_dropped_after_the_next_opening_frees_its_key() {
    let place = Place::memory();
    let ledger = place.create();
    let mut claiming = Box::pin(ledger.claim_async(&claim("k")));
    assert!(poll(claiming.as_mut(), Waker::noop()).is_pending());
    ledger.tick();
    ledger.close().unwrap();
    let again = place.open();
    drop(claiming);
    again.close().unwrap();
    assert_eq!(standing(&place.open(), "k"), "vacant");
}

/// An outcome is left while nothing is in progress any more under its session: the closing must not remove it unread.
#[test]
fn what_was_left_is_not_removed_unread() {
    let place = Place::memory();
    let ledger = place.create();
    let held = grant(&ledger, &claim("dropped first"));
    let ticket = held.ticket();
    drop(held);
    ticket.leave(well()).unwrap();
    ledger.close().unwrap();
    drop(ticket);
    let ledger = place.open();
    assert_eq!(standing(&ledger, "dropped first"), "done");

    let held = grant(&ledger, &claim("two tickets"));
    let (one, two) = (held.ticket(), held.into_ticket());
    one.leave(well()).unwrap();
    drop(one);
    drop(two);
    ledger.close().unwrap();
    let ledger = place.open();
    assert_eq!(standing(&ledger, "two tickets"), "done");

    let ticket = grant(&ledger, &claim("forced")).into_ticket();
    force_not_done(&ledger, "forced", &ticket);
    ticket.leave(well()).unwrap();
    ledger.close().unwrap();
    drop(ticket);
    let lines = past(&place.open(), "forced");
    assert_eq!(lines.last().unwrap().1, PastWhat::LateDone, "{lines:?}");
}

/// One of two tickets leaves an outcome and the other is dropped, over an opening.
#[test]
fn a_ticket_dropped_beside_one_that_left_an_outcome_is_no_doubt() {
    let place = Place::memory();
    let ledger = place.create();
    let held = grant(&ledger, &claim("k"));
    let (one, two) = (held.ticket(), held.into_ticket());
    ledger.close().unwrap();
    one.leave(well()).unwrap();
    drop(one);
    let ledger = place.open();
    drop(two);
    ledger.close().unwrap();
    assert_eq!(standing(&place.open(), "k"), "done");
}

/// An outcome that is left while this very process has the ledger open is applied then.
#[test]
fn what_is_left_while_the_own_process_has_it_open_is_applied() {
    let place = Place::memory();
    let ledger = place.create();
    let ticket = grant(&ledger, &claim("k")).into_ticket();
    ledger.close().unwrap();
    let ledger = place.open();
    ticket.leave(well()).unwrap();
    drop(ticket);
    ledger.tick();
    assert_eq!(refused(&ledger, &claim("k")), "done");
}

/// P4: a session without open claims whose row is cleaned from the log while its holder lives: what that leaves
/// later is still evidence.
#[test]
fn p4_evidence_of_a_living_session_outlives_the_cleaning_of_the_log() {
    for clean in [false, true] {
        let place = Place::memory();
        let theirs = place.stranger().create(&place.path).unwrap();
        let ticket = grant(&theirs, &claim("k")).into_ticket();
        theirs.close().unwrap();
        let ledger = place.open();
        force_not_done(&ledger, "k", &ticket);
        if clean {
            for number in 0..800 {
                let short = claim(format!("old {number}")).remember(SECOND);
                let _ = grant(&ledger, &short).complete("x").unwrap();
            }
            place.clock.advance(MINUTE);
            for _ in 0..5 {
                ledger.sweep(10_000).unwrap();
            }
        }
        ledger.close().unwrap();
        ticket.leave(well()).unwrap();
        drop(ticket);
        let lines = past(&place.open(), "k");
        assert_eq!(lines.last().unwrap().1, PastWhat::LateDone, "cleaned {clean}: {lines:?}");
    }
}

/// A claim and a settle in line, and the ticket of what is settled is dropped meanwhile: that is no doubt, and the
/// claim before it must not be granted for it.
#[test]
fn p1_a_ticket_dropped_while_the_settle_is_in_line_is_no_doubt() {
    let gated = Gated::new();
    let held = grant(&gated.ledger, &resend("k"));
    let ticket = held.ticket();
    let told = gated.one_batch(
        || {},
        vec![
            Box::new(move |ledger: &Ledger| word(&ledger.claim(&resend("k")).unwrap()).to_owned()),
            Box::new(move |_: &Ledger| {
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(20));
                    drop(ticket);
                });
                format!("{:?}", held.complete("sent").unwrap())
            }),
        ],
    );
    assert_eq!(told[1], "Applied", "{told:?}, {:?}", past(&gated.ledger, "k"));
}

/// A settle that is being made ready while its ledger closes and opens again, and is refused: nobody is left who could
/// settle, and the claim is not in progress.
#[test]
fn p14_a_settle_that_a_closing_refuses_leaves_a_doubt() {
    for wait_ms in [1, 5] {
        let place = Place::memory();
        let options = || place.options().outcome_bytes_max(64 << 20);
        let ledger = options().create(&place.path).unwrap();
        let held = grant(&ledger, &claim("k"));
        let outcome = onceledger::Outcome::binary(vec![7_u8; 48 << 20]);
        let (now, settled) = std::thread::scope(|scope| {
            let settling = scope.spawn(move || block_on(held.settle_async(Settlement::done(outcome))));
            std::thread::sleep(Duration::from_millis(wait_ms));
            ledger.close().unwrap();
            let again = options().open(&place.path).unwrap();
            let settled = settling.join().unwrap();
            again.tick();
            (standing(&again, "k"), settled)
        });
        assert!(settled.is_ok() || now != "in_progress", "{:?}", settled.map_err(|error| error.kind()));
    }
}

/// The same process opens the ledger again while another of its threads leaves an outcome and drops the ticket, at
/// any operation of the opening.
#[test]
fn an_outcome_may_be_left_at_any_operation_of_the_own_opening() {
    for gap in [0, 1, 3] {
        let mut at = 0;
        while left_at(at, at + gap) {
            at += 1;
        }
        assert!(at > 40, "too few operations to mean anything: {at}");
    }
}

/// Whether both operations came to pass.
fn left_at(leave: u64, end: u64) -> bool {
    let (place, trap) = (Place::memory(), Trap::default());
    let disk = trap.on(&place);
    let ours = || place.options().disk(Arc::clone(&disk));
    let ledger = ours().create(&place.path).unwrap();
    let left = Arc::new(grant(&ledger, &claim("left")).into_ticket());
    let lost = grant(&ledger, &claim("lost")).into_ticket();
    ledger.close().unwrap();
    let told = Arc::new(Mutex::new(false));
    let (leaves, told_by) = (Arc::clone(&left), Arc::clone(&told));
    let leaves = move || {
        let is_left = leaves.leave(well()).is_ok();
        *told_by.lock() = is_left;
    };
    trap.set(vec![(leave, Box::new(leaves)), (end, Box::new(move || drop((left, lost))))]);
    let ledger = ours().open(&place.path).unwrap();
    ledger.tick();
    ledger.close().unwrap();
    let ledger = ours().open(&place.path).unwrap();
    drop(ledger.claim(&claim("lost")).unwrap());
    ledger.close().unwrap();
    if !trap.all_done() {
        return false;
    }
    let ledger = place.open_elsewhere();
    let (is_left, is_lost) = (standing(&ledger, "left"), standing(&ledger, "lost"));
    assert!(!*told.lock() || is_left == "done", "left at operation {leave}, dropped at {end}: {is_left}");
    assert_eq!(is_lost, "uncertain", "left at operation {leave}, dropped at {end}");
    true
}

/// What another process does at an operation of ours: it leaves its outcome; or opens, settles and closes too; or
/// claims more besides.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Theirs {
    Leaves,
    Settles,
    ClaimsMore,
}

#[test]
fn another_process_may_do_anything_at_any_operation() {
    for theirs in [Theirs::Leaves, Theirs::Settles, Theirs::ClaimsMore] {
        let mut at = 0;
        while they_act_at(at, theirs) {
            at += 1;
        }
        assert!(at > 100, "too few operations to mean anything: {at}");
    }
}

/// Whether the operation came to pass.
fn they_act_at(at: u64, theirs: Theirs) -> bool {
    let (place, trap) = (Place::memory(), Trap::default());
    let options = place.stranger();
    let ledger = options.clone().create(&place.path).unwrap();
    let ticket = grant(&ledger, &claim("k")).into_ticket();
    let other = grant(&ledger, &claim("other")).into_ticket();
    ledger.close().unwrap();
    let (path, answer) = (place.path.clone(), Arc::new(Mutex::new(Ok(()))));
    let act = move || -> Result<(), Error> {
        ticket.leave(well())?;
        if theirs == Theirs::Leaves {
            return Ok(());
        }
        let ledger = match options.open(&path) {
            Err(error) if error.kind() == ErrorKind::Locked => return Ok(()),
            ledger => ledger?,
        };
        assert!(!matches!(ticket.settle(&ledger, well())?, Settled::Lost(_)), "its own settle is lost");
        if theirs == Theirs::ClaimsMore {
            let _ = grant(&ledger, &claim("more")).complete("x")?;
        }
        ledger.close().map(drop)
    };
    let answered = Arc::clone(&answer);
    trap.set(vec![(at, Box::new(move || *answered.lock() = act()))]);
    let disk = trap.on(&place);
    let ours = || place.options().disk(Arc::clone(&disk)).open(&place.path).unwrap();

    let ledger = ours();
    ledger.tick();
    drop(ledger.claim(&claim("mine")).unwrap());
    let word = refused(&ledger, &claim("k"));
    let watch = match ledger.claim(&claim("k")).unwrap() {
        Claimed::InProgress(holder) => ledger.watch(&holder),
        _ => None,
    };
    ledger.close().unwrap();
    if let Some(watch) = watch {
        watch.has_news().unwrap();
    }
    let ledger = ours();
    assert!(
        word != "done" || refused(&ledger, &claim("k")) == "done",
        "operation {at}, {theirs:?}: done, and then not"
    );
    ledger.close().unwrap();
    if !trap.all_done() {
        return false;
    }
    answer.lock().as_ref().unwrap();
    drop(other);
    let ledger = place.open_elsewhere();
    let told: Vec<_> = past(&ledger, "k").into_iter().map(|(_, what)| what.name()).collect();
    assert_eq!(told, ["granted", "done"], "operation {at}, {theirs:?}");
    assert_eq!(standing(&ledger, "other"), "uncertain", "operation {at}, {theirs:?}");
    true
}

/// A watch looks at the session's file, and has its lock for a moment, just as the session begins again: the claim
/// waits for that moment.
#[test]
fn a_watch_does_not_fail_the_claim_of_a_session_that_begins_again() {
    let (place, begins, looks) = (Place::memory(), Trap::default(), Trap::default());
    let ours = begins.on_each(&place, |operation| operation == "try_lock");
    let ours = || place.options().disk(Arc::clone(&ours));
    let theirs = looks.on_each(&place, |operation| operation == "unlock");
    let ledger = ours().create(&place.path).unwrap();
    let ticket = grant(&ledger, &claim("first")).into_ticket();
    ledger.close().unwrap();
    let theirs = place.options().disk(theirs).open(&place.path).unwrap();
    let Claimed::InProgress(holder) = theirs.claim(&claim("first")).unwrap() else { panic!("in progress") };
    let watch = theirs.watch(&holder).unwrap();
    theirs.close().unwrap();
    let ledger = ours().open(&place.path).unwrap();
    let _ = ticket.settle(&ledger, Settlement::done("x")).unwrap();
    ledger.close().unwrap();

    let ledger = ours().open(&place.path).unwrap();
    let (inside, is_inside) = channel();
    let hold = move || {
        inside.send(()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    };
    looks.set(vec![(0, Box::new(hold))]);
    let meet = move || {
        std::thread::spawn(move || watch.has_news());
        is_inside.recv().unwrap();
    };
    begins.set(vec![(0, Box::new(meet))]);
    assert!(ledger.claim(&claim("second")).unwrap().granted().is_some());
    assert!(begins.all_done() && looks.all_done());
}

/// A watch whose session ends in order while it looks has news, and no error.
#[test]
fn a_watch_whose_session_ends_under_it_has_no_error() {
    for at in 0..6 {
        let (place, trap) = (Place::memory(), Trap::default());
        let ledger = place.create();
        let ticket = grant(&ledger, &claim("k")).into_ticket();
        ledger.close().unwrap();
        let theirs = place.options().disk(trap.on(&place)).open(&place.path).unwrap();
        let Claimed::InProgress(holder) = theirs.claim(&claim("k")).unwrap() else { panic!("in progress") };
        let watch = theirs.watch(&holder).unwrap();
        theirs.close().unwrap();
        let (options, path) = (place.options(), place.path.clone());
        let ends = move || {
            let ledger = options.open(&path).unwrap();
            let _ = ticket.settle(&ledger, Settlement::done("x")).unwrap();
            ledger.close().unwrap();
        };
        trap.set(vec![(at, Box::new(ends))]);
        watch.has_news().unwrap();
    }
}

/// A program that another thread is starting has this process's open files until it runs, the ledger's lock among
/// them: a closed ledger can be opened again all the same.
#[test]
fn a_closed_ledger_opens_at_once_while_another_thread_starts_programs() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("l.redb");
    let options = || Options::new().threads(false);
    options().create(&path).unwrap().close().unwrap();
    let stop = AtomicBool::new(false);
    let mut refused = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = std::process::Command::new("true").status();
                }
            });
        }
        for _ in 0..100 {
            match options().open(&path) {
                Ok(ledger) => ledger.close().map(drop).unwrap(),
                Err(error) => refused.push(error.to_string()),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(refused.is_empty(), "{} of 100: {}", refused.len(), refused[0]);
}

/// Whoever holds a session's lock lives, under another boot id too: a container may have one of its own, and share
/// kernel, files and locks with its host.
#[test]
fn a_held_lock_is_a_living_holder_whatever_the_boot_id_says() {
    on_every_backend(|place| {
        let theirs = place.stranger().create(&place.path).unwrap();
        let ticket = grant(&theirs, &claim("k")).into_ticket();
        theirs.close().unwrap();
        let container = place.clock.clone_hands();
        container.set_boot_id([7; 16]);
        let ours = place.options().clock(Arc::new(container)).open(&place.path).unwrap();
        assert_eq!(refused(&ours, &claim("k")), "in_progress");
        ours.close().unwrap();
        ticket.leave(well()).unwrap();
        drop(ticket);
        assert_eq!(standing(&place.open(), "k"), "done");
    });
}

/// P7: a look at the session of one member takes everything that this left, for members judged before it too: all
/// looks come first.
#[test]
fn p7_a_transaction_looks_before_it_judges() {
    for order in [["b", "a"], ["a", "b"]] {
        let place = Place::memory();
        let theirs = place.stranger().create(&place.path).unwrap();
        let held = grant(&theirs, &resend("a"));
        let ticket = held.ticket();
        drop(held);
        let other = grant(&theirs, &resend("b")).into_ticket();
        theirs.tick();
        theirs.close().unwrap();
        let ledger = place.open();
        assert_eq!((standing(&ledger, "a"), standing(&ledger, "b")), ("uncertain", "in_progress"));
        ticket.leave(well()).unwrap();
        drop((ticket, other));
        let [first, second] = order.map(resend);
        let transacted = ledger.transaction().claim(first).claim(second).commit().unwrap();
        let told = past(&ledger, "a");
        assert!(matches!(transacted, Transacted::Refused(_)), "{order:?}: granted what is done: {told:?}");
        assert_eq!(standing(&ledger, "a"), "done");
    }
}

/// P4: evidence that a transaction finds as it looks is in the history.
#[test]
fn p4_evidence_that_a_transaction_takes_is_in_the_history() {
    let place = Place::memory();
    let theirs = place.stranger().create(&place.path).unwrap();
    let a = grant(&theirs, &claim("a")).into_ticket();
    let b = grant(&theirs, &resend("b")).into_ticket();
    theirs.close().unwrap();
    let ledger = place.open();
    force_not_done(&ledger, "a", &a);
    a.leave(well()).unwrap();
    drop((a, b));
    let transacted = ledger.transaction().claim(claim("a")).claim(resend("b")).commit().unwrap();
    let told = past(&ledger, "a");
    assert!(told.iter().any(|(_, what)| *what == PastWhat::LateDone), "{told:?}");
    drop(transacted);
}

/// P7: the ledger is closed between a transaction's commit and the look at its answer: its cells stand, so nobody is
/// told that nothing was written.
#[test]
fn p7_a_committed_transaction_is_not_told_as_one_that_was_not() {
    let place = Place::memory();
    let ledger = place.create();
    let transaction = ledger.transaction().claim(claim("a")).expect_absent("budget").set_cell("budget", "21");
    let mut future = Box::pin(transaction.commit_async());
    assert!(poll(future.as_mut(), Waker::noop()).is_pending());
    ledger.tick();
    ledger.close().unwrap();
    assert_eq!(block_on(future).unwrap_err().kind(), ErrorKind::Unknown);
    let ledger = place.open();
    assert!(ledger.cell("budget").unwrap().is_some());
    assert_eq!(standing(&ledger, "a"), "vacant");
}

/// P14: the ledger closes while a transaction's grants are taken out of its answer: all of them are given back.
#[test]
fn p14_a_closing_while_grants_are_taken_leaves_none_in_doubt() {
    const COUNT: usize = 300;
    for round in 0..60 {
        let place = Place::memory();
        let ledger = place.create();
        let claims = (0..COUNT).map(|at| claim(at.to_string()));
        let mut future = Box::pin(claims.fold(ledger.transaction(), onceledger::Transaction::claim).commit_async());
        assert!(poll(future.as_mut(), Waker::noop()).is_pending());
        ledger.tick();
        let answer = std::thread::scope(|scope| {
            let closer = ledger.clone();
            scope.spawn(move || closer.close().unwrap());
            (0..round * 8).for_each(|_| std::hint::spin_loop());
            block_on(future)
        });
        let failed = answer.is_err();
        drop((answer, ledger));
        let doubts = place.open().uncertain().unwrap().len();
        assert!(!failed || doubts == 0, "round {round}: {doubts} of {COUNT} in doubt, and no effect began");
    }
}
