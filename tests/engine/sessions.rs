//! Sessions: which holder lives, over several opens and processes.
//!
//! Another process is another handle of the same disk: sessions tell processes apart by it. What a kill does
//! to a real process is in the fault suites.

use std::sync::Arc;

use onceledger::testkit::Disk;
use onceledger::{DoubtReason, Outcome, Resolved, Settled, Settlement, Stored, View};

use parking_lot::Mutex;

use crate::kit::*;

/// A ticket settles on a later open of the same process; until then its claim stays in progress for everybody.
#[test]
fn a_ticket_settles_after_close_and_reopening() {
    on_every_backend(|place| {
        let ledger = place.create();
        let ticket = grant(&ledger, &claim("k")).into_ticket();
        assert_eq!(ledger.close().unwrap(), 1, "one claim stays in progress");
        let theirs = place.open_elsewhere();
        assert_eq!(refused(&theirs, &claim("k")), "in_progress");
        theirs.close().unwrap();
        let ledger = place.open();
        assert_eq!(standing(&ledger, "k"), "in_progress");
        assert_eq!(ticket.settle(&ledger, Settlement::done("x")).unwrap(), Settled::Applied);
        assert_eq!(ledger.close().unwrap(), 0);
        assert_eq!(refused(&place.open_elsewhere(), &claim("k")), "done");
    });
}

/// A session that spans opens records the tokens that have neither grant nor ticket left as uncertain.
#[test]
fn a_sessions_next_open_records_tokens_that_nobody_holds() {
    on_every_backend(|place| {
        let ledger = place.create();
        let kept = grant(&ledger, &claim("kept")).into_ticket();
        let lost = grant(&ledger, &claim("lost"));
        ledger.close().unwrap();
        drop(lost);
        let ledger = place.open();
        assert_eq!((standing(&ledger, "kept"), standing(&ledger, "lost")), ("in_progress", "uncertain"));
        assert_eq!(reason(&ledger, "lost"), DoubtReason::Dropped);
        assert_eq!(ledger.close().unwrap(), 1);
        drop(kept);
    });
}

/// Case 6, P14: a ticket that is dropped while the ledger is open leaves its claim uncertain at once, and so does a
/// grant whose ledger was closed and opened again meanwhile: nobody is left who could settle.
#[test]
fn case_6_p14_the_last_ticket_or_grant_of_a_claim_leaves_it_uncertain_at_once() {
    on_every_backend(|place| {
        let ledger = place.create();
        let ticket = grant(&ledger, &claim("ticket")).into_ticket();
        drop(ticket);
        assert_eq!(standing(&ledger, "ticket"), "uncertain");
        let grant_over = grant(&ledger, &claim("grant"));
        let ticket_over = grant(&ledger, &claim("over")).into_ticket();
        ledger.close().unwrap();
        let ledger = place.open();
        assert_eq!((standing(&ledger, "grant"), standing(&ledger, "over")), ("in_progress", "in_progress"));
        drop(grant_over);
        drop(ticket_over);
        assert_eq!((standing(&ledger, "grant"), standing(&ledger, "over")), ("uncertain", "uncertain"));
        ledger.tick();
        ledger.close().unwrap();
        let ledger = place.open();
        assert_eq!((standing(&ledger, "grant"), standing(&ledger, "over")), ("uncertain", "uncertain"));
        // A ticket that settled, or one of two, doubts nothing.
        let held = grant(&ledger, &claim("settled"));
        let (one, two) = (held.ticket(), held.into_ticket());
        drop(one);
        assert_eq!(standing(&ledger, "settled"), "in_progress");
        let _ = two.settle(&ledger, Settlement::done("x")).unwrap();
        drop(two);
        assert_eq!(standing(&ledger, "settled"), "done");
        assert_eq!(past(&ledger, "settled").len(), 2);
    });
}

/// A foreign holder that lives is in progress; once its session's lock is free, uncertain: for claim, check, list and
/// resolve alike.
#[test]
fn a_foreign_holder_is_in_progress_while_it_lives_and_uncertain_after() {
    on_every_backend(|place| {
        let theirs = place.stranger().create(&place.path).unwrap();
        let held = grant(&theirs, &claim("a"));
        let other = grant(&theirs, &claim("b"));
        let token = held.token();
        assert_eq!(theirs.close().unwrap(), 2);
        let ledger = place.open();
        assert_eq!(refused(&ledger, &claim("a")), "in_progress");
        assert_eq!(ledger.uncertain().unwrap().len(), 0);
        assert!(matches!(not_done(&ledger, "a", token), Resolved::Stale(View::InProgress(_))));
        drop((held, other));
        // Claim probes afresh; check follows with the next look.
        assert_eq!(refused(&ledger, &claim("a")), "uncertain");
        ledger.tick();
        assert_eq!(standing(&ledger, "b"), "uncertain");
        assert_eq!(reason(&ledger, "b"), DoubtReason::HolderGone);
        assert_eq!(ledger.uncertain().unwrap().len(), 2);
        assert_eq!(not_done(&ledger, "a", token), Resolved::Applied);
        assert_eq!(refused(&ledger, &claim("a")), "granted");
    });
}

/// An outcome left in the session file is applied as its token's own settle: by the next open, by a claim, by a list,
/// by the background look; whoever looks first, and before the holder counts as gone.
#[test]
fn left_outcomes_are_applied_by_whoever_looks_first() {
    type Look = fn(&Place, &onceledger::Ledger);
    let looks: [(&str, Look); 6] = [
        ("claim", |_, ledger| assert_eq!(refused(ledger, &claim("k")), "done")),
        ("tick", |_, ledger| ledger.tick()),
        ("show", |_, ledger| drop(ledger.show(&key("k")).unwrap())),
        ("list", |_, ledger| drop(ledger.list(onceledger::Standing::Done, None, 9).unwrap())),
        ("history", |_, ledger| drop(ledger.history(&key("k")).unwrap())),
        ("resolve", |_, ledger| {
            let token = onceledger::FencingToken::from_number(2);
            assert!(matches!(not_done(ledger, "k", token), Resolved::Stale(View::Done(_))));
        }),
    ];
    for dies in [false, true] {
        for (name, look) in looks {
            on_every_backend(|place| {
                let theirs = place.stranger().create(&place.path).unwrap();
                let ticket = grant(&theirs, &claim("k")).into_ticket();
                theirs.close().unwrap();
                let ledger = place.open();
                assert_eq!(standing(&ledger, "k"), "in_progress");
                ticket.leave(Settlement::done(Outcome::json("{}").as_error()).exit_code(3)).unwrap();
                if dies {
                    drop(ticket);
                }
                look(place, &ledger);
                ledger.tick();
                let View::Done(stored) = ledger.check(&key("k")).unwrap() else { panic!("{name}, dies: {dies}") };
                assert_eq!(stored, Stored::Kept(Outcome::json("{}").as_error()));
                assert_eq!(ledger.show(&key("k")).unwrap().unwrap().exit_code, Some(3));
                ledger.close().unwrap();
                // Read again at every open, applied once.
                let ledger = place.open();
                assert_eq!(past(&ledger, "k").len(), 2, "{name}");
            });
        }
    }
}

/// Of a dead session with two open claims, one of them with an outcome left: a look by way of the other key must not
/// hide it.
#[test]
fn a_dead_sessions_left_outcome_is_found_by_way_of_another_key_too() {
    on_every_backend(|place| {
        let theirs = place.stranger().create(&place.path).unwrap();
        let left = grant(&theirs, &claim("left")).into_ticket();
        let lost = grant(&theirs, &claim("lost"));
        theirs.close().unwrap();
        let ledger = place.open();
        left.leave(Settlement::done("it went well")).unwrap();
        drop((left, lost));
        assert_eq!(refused(&ledger, &claim("lost")), "uncertain");
        assert_eq!(ledger.uncertain().unwrap().len(), 1, "only the one without an outcome");
        assert_eq!(standing(&ledger, "left"), "done");
        assert_eq!(ledger.list(onceledger::Standing::Done, None, 9).unwrap().keys.len(), 1);
    });
}

/// A holder leaves an outcome and ends at any moment of what another process does with the file: opening it, looking,
/// claiming, closing. Nothing is lost and nothing stays in progress, whichever look finds it.
#[test]
fn a_holder_may_end_at_any_operation_of_another_process() {
    for gap in [0, 1, 3] {
        let mut at = 0;
        while holder_ends_at(at, at + gap) {
            at += 1;
        }
        println!("gap {gap}: {at} operations");
        assert!(at > 40, "too few operations to mean anything: {at}");
    }
}

/// Whether operation `end` of the other process came to pass.
fn holder_ends_at(leave: u64, end: u64) -> bool {
    let place = Place::memory();
    let theirs = place.stranger().create(&place.path).unwrap();
    let left = grant(&theirs, &claim("left")).into_ticket();
    let lost = grant(&theirs, &claim("lost")).into_ticket();
    theirs.close().unwrap();
    let holder = Arc::new(Mutex::new((0, Some((left, lost)))));
    let acts = {
        let holder = Arc::clone(&holder);
        move |_| {
            let mut holder = holder.lock();
            let (operation, tickets) = &mut *holder;
            if let Some((left, _)) = tickets.as_ref().filter(|_| *operation == leave) {
                left.leave(Settlement::done("it went well")).unwrap();
            }
            let ends = (*operation == end).then(|| tickets.take());
            *operation += 1;
            drop(ends);
        }
    };
    let watched: Arc<dyn Disk> = Arc::new(HookDisk::new(place.stranger_disk(), acts));
    let ours = || place.options().disk(Arc::clone(&watched)).open(&place.path).unwrap();
    let ledger = ours();
    ledger.tick();
    ledger.close().unwrap();
    let ledger = ours();
    drop(ledger.claim(&claim("lost")).unwrap());
    ledger.close().unwrap();
    let (_, tickets) = &mut *holder.lock();
    let ended = tickets.take().is_none();
    if ended {
        let ledger = place.open_elsewhere();
        assert_eq!(standing(&ledger, "left"), "done", "left at operation {leave}, ended at {end}");
        assert_eq!(standing(&ledger, "lost"), "uncertain", "left at operation {leave}, ended at {end}");
    }
    ended
}

/// Every way to leave: released frees the key, uncertain says so, and a loser's is evidence.
#[test]
fn what_is_left_may_be_any_settlement() {
    on_every_backend(|place| {
        let theirs = place.stranger().create(&place.path).unwrap();
        let ends = [
            ("failed", Settlement::failed("no")),
            ("vacant", Settlement::not_applied("could not start")),
            ("uncertain", Settlement::uncertain("killed by 9")),
        ];
        let tickets: Vec<_> = ends.iter().map(|(part, _)| grant(&theirs, &claim(part)).into_ticket()).collect();
        let loser = grant(&theirs, &claim("loser")).into_ticket();
        let forced = theirs.resolve_token(&key("loser"), loser.token(), onceledger::Verdict::NotDone, "o", "w", true);
        assert_eq!(forced.unwrap(), Resolved::Applied);
        theirs.close().unwrap();
        for (ticket, (_, end)) in tickets.iter().zip(&ends) {
            ticket.leave(end.clone()).unwrap();
        }
        loser.leave(Settlement::done("late")).unwrap();
        let ledger = place.open();
        for (part, _) in &ends {
            assert_eq!(standing(&ledger, part), *part);
        }
        assert_eq!(standing(&ledger, "loser"), "vacant");
        let lines = past(&ledger, "loser");
        assert_eq!(lines.last().unwrap().1, onceledger::PastWhat::LateDone);
        // The file is read at each open, and each look: nothing is added.
        drop(grant(&ledger, &claim("vacant")));
        for _ in 0..3 {
            ledger.tick();
        }
        ledger.close().unwrap();
        let ledger = place.open();
        assert_eq!(past(&ledger, "loser"), lines);
        let words: Vec<_> = past(&ledger, "vacant").into_iter().map(|(_, what)| what.name()).collect();
        assert_eq!(words, ["granted", "released", "granted", "uncertain"]);
    });
}

/// A torn record in a session file is as if it had not been left, and one behind it does not count either.
#[test]
fn a_torn_left_outcome_is_none() {
    let place = Place::fault();
    let theirs = place.stranger().create(&place.path).unwrap();
    let ticket = grant(&theirs, &claim("k")).into_ticket();
    theirs.close().unwrap();
    ticket.leave(Settlement::done("x")).unwrap();
    let folder = place.beside(".sessions");
    let files = place.disk.list(&folder).unwrap();
    assert_eq!(files.len(), 1);
    let whole = place.faults().export(&files[0]).unwrap();
    for cut in [1, 4, 5, 20] {
        let disk = place.faults().process_crash();
        disk.truncate(&files[0], whole.len() as u64 - cut);
        let ledger = Place::of(disk).open();
        assert_eq!(standing(&ledger, "k"), "uncertain", "{cut} bytes cut off");
    }
    for at in [0, 9, whole.len() as u64 - 1, whole.len() as u64 - 10] {
        let disk = place.faults().process_crash();
        disk.flip(&files[0], at, 1);
        let ledger = Place::of(disk).open();
        assert_eq!(standing(&ledger, "k"), "uncertain", "byte {at} flipped");
    }
    assert_eq!(standing(&Place::of(place.faults().process_crash()).open(), "k"), "done");
}

/// A missing session file alone proves nothing: somebody may have tidied up while the holder runs.
#[test]
fn a_missing_session_file_is_no_death() {
    let place = Place::fault();
    let theirs = place.stranger().create(&place.path).unwrap();
    let held = grant(&theirs, &claim("k"));
    theirs.close().unwrap();
    for file in place.disk.list(&place.beside(".sessions")).unwrap() {
        place.faults().lose(&file);
    }
    let ledger = place.open();
    assert_eq!(refused(&ledger, &claim("k")), "in_progress");
    // Another boot ends every process of this one.
    ledger.close().unwrap();
    place.clock.reboot(MINUTE);
    let ledger = place.open();
    assert_eq!(reason(&ledger, "k"), DoubtReason::HolderGone);
    drop(held);
}

/// The files of dead sessions are removed once their claims are recorded, and those of the living are not.
#[test]
fn files_of_dead_sessions_are_removed() {
    on_every_backend(|place| {
        let folder = place.beside(".sessions");
        let first = place.create();
        let held = grant(&first, &claim("a"));
        first.close().unwrap();
        let theirs = place.open_elsewhere();
        let dying = grant(&theirs, &claim("b"));
        theirs.close().unwrap();
        assert_eq!(place.disk.list(&folder).unwrap().len(), 2);
        drop(dying);
        let third = place.open_elsewhere();
        assert_eq!(place.disk.list(&folder).unwrap().len(), 1, "the dead one is gone");
        assert_eq!((standing(&third, "a"), standing(&third, "b")), ("in_progress", "uncertain"));
        third.close().unwrap();
        drop(held);
        place.open_elsewhere().close().unwrap();
        assert!(place.disk.list(&folder).unwrap().is_empty());
    });
}

/// A session that ended in order and begins again in one process gets a file again.
#[test]
fn a_session_begins_again_after_its_orderly_end() {
    on_every_backend(|place| {
        let mut ledger = place.create();
        for n in 0..3 {
            let held = grant(&ledger, &claim(format!("{n}")));
            let spare = held.ticket();
            let _ = held.complete("x").unwrap();
            assert_eq!(ledger.close().unwrap(), 0);
            // The ticket keeps the session object alive over the close.
            ledger = place.open();
            let running = grant(&ledger, &claim(format!("running {n}")));
            assert_eq!(place.disk.list(&place.beside(".sessions")).unwrap().len(), 1);
            let _ = running.release().unwrap();
            drop(spare);
        }
    });
}
