//! Looking: history, lists and their pages, counts, the full check.

use onceledger::{Outcome, PastWhat, Standing, Stored, Verdict, View};

use crate::kit::*;

/// The history tells everything in order: who decided, why, with which outcome, and when.
#[test]
fn the_history_tells_all_in_order() {
    on_every_backend(|place| {
        let ledger = place.create();
        let first = grant(&ledger, &claim("k").lease(MINUTE));
        place.clock.advance(SECOND);
        let _ = first.renew(HOUR).unwrap();
        place.clock.advance(SECOND);
        let _ = first.settle(onceledger::Settlement::uncertain("time-out")).unwrap();
        place.clock.advance(SECOND);
        let doubt = doubt(&ledger, "k");
        let _ = ledger.resolve(&doubt, Verdict::NotDone, "ops/ana", "no refund at the provider").unwrap();
        let second = grant(&ledger, &claim("k"));
        place.clock.advance(SECOND);
        let _ = second.complete(Outcome::json("{}")).unwrap();
        let told = ledger.history(&key("k")).unwrap();
        let words: Vec<_> = told.iter().map(|past| past.what.name()).collect();
        assert_eq!(words, ["granted", "renewed", "uncertain", "resolved_not_done", "granted", "done"]);
        assert_eq!(told[2].why, "time-out");
        assert_eq!((told[3].by.as_str(), told[3].why.as_str()), ("ops/ana", "no refund at the provider"));
        assert_eq!(told[5].outcome, Some(Stored::Kept(Outcome::json("{}"))));
        let seconds: Vec<_> = told.iter().map(|past| (past.at_ms - told[0].at_ms) / 1000).collect();
        assert_eq!(seconds, [0, 1, 2, 3, 3, 4]);
        assert_eq!(told[3].token, doubt.token);
        ledger.close().unwrap();
        assert_eq!(format!("{:?}", place.open().history(&key("k")).unwrap()), format!("{told:?}"));
    });
}

/// Pages of a list: every key once, in order, whatever the page's size.
#[test]
fn a_list_in_pages_shows_every_key_once() {
    on_every_backend(|place| {
        let ledger = place.create();
        for n in 0..57 {
            let held = grant(&ledger, &claim(format!("{n}")));
            match n % 3 {
                0 => drop(held.complete("x").unwrap()),
                1 => drop(held),
                _ => drop(held.release().unwrap()),
            }
        }
        for standing in [Standing::Done, Standing::Uncertain, Standing::Vacant] {
            for limit in [1, 2, 7, 18, 19, 20, 1000] {
                let mut all = Vec::new();
                let mut after = None;
                loop {
                    let page = ledger.list(standing, after.as_ref(), limit).unwrap();
                    assert!(page.keys.len() <= limit);
                    all.extend(page.keys.into_iter().map(|detail| *detail.key.digest()));
                    match page.next {
                        Some(next) => after = Some(next),
                        None => break,
                    }
                }
                assert_eq!(all.len(), 19, "{standing}, pages of {limit}");
                assert!(all.is_sorted() && all.windows(2).all(|pair| pair[0] != pair[1]));
            }
        }
        assert!(ledger.list(Standing::Failed, None, 10).unwrap().keys.is_empty());
    });
}

/// Counts of each standing, as a caller sees them now.
#[test]
fn stats_count_what_a_caller_sees() {
    on_every_backend(|place| {
        let ledger = place.create();
        let held = grant(&ledger, &claim("held"));
        let lapsed = grant(&ledger, &claim("lapsed").lease(SECOND));
        let _ = grant(&ledger, &claim("done")).complete("x").unwrap();
        let _ = grant(&ledger, &claim("failed")).fail("x").unwrap();
        let _ = grant(&ledger, &claim("free")).release().unwrap();
        drop(grant(&ledger, &claim("doubt")));
        place.clock.advance(MINUTE);
        let stats = ledger.stats().unwrap();
        let counts: Vec<_> = Standing::ALL.into_iter().map(|standing| stats.count(standing)).collect();
        assert_eq!(counts, [1, 1, 1, 1, 2], "{stats:?}");
        assert_eq!((stats.epoch, stats.early_ahead_ms, stats.late_ahead_ms), (1, 0, 0));
        assert!(stats.file_bytes > 0);
        let rows = ledger.verify().unwrap();
        assert_eq!((rows.bodies, rows.body_bytes), (2, 2));
        assert_eq!(ledger.uncertain().unwrap().len(), 2);
        drop((held, lapsed));
    });
}

/// Stats show how far the two times have left the wall clock, for people who wonder why a key is still held.
#[test]
fn stats_show_the_difference_from_the_wall_clock() {
    let place = Place::memory();
    let ledger = place.create();
    place.clock.jump_wall_ms(-3_600_000);
    place.clock.advance(SECOND);
    let stats = ledger.stats().unwrap();
    assert!(stats.early_ahead_ms > 3_500_000 && stats.late_ahead_ms > 0, "{stats:?}");
}

/// Readers and the cleaning of the log: what is read while rows are moved is never called damaged.
#[test]
fn a_history_read_while_the_log_is_cleaned_is_never_damaged() {
    let place = Place::memory();
    let ledger = place.create();
    for n in 0..40 {
        drop(grant(&ledger, &claim(format!("doubt {n}"))));
    }
    // The mark of the last one is on disk with the next batch.
    ledger.tick();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (ledger, stop) = (&ledger, &stop);
            scope.spawn(move || {
                let mut n = reader;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    n = (n + 1) % 40;
                    let told = ledger.history(&key(format!("doubt {n}"))).unwrap();
                    assert_eq!(
                        told.iter().map(|past| past.what).collect::<Vec<_>>(),
                        [PastWhat::Granted, PastWhat::Uncertain]
                    );
                }
            });
        }
        let mut moved = 0;
        for round in 0..12 {
            for n in 0..200 {
                let claim = claim(format!("{round} {n}")).remember(SECOND).keep(SECOND);
                let _ = grant(&ledger, &claim).complete("x").unwrap();
            }
            place.clock.advance(HOUR);
            for _ in 0..4 {
                moved += ledger.sweep(4096).unwrap().moved;
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(moved > 0);
    });
}

/// A settle that finds the chain at its limit has the key written again whole before it: its outcome is
/// found under the row that states it all the same.
#[test]
fn an_outcome_settled_at_the_limit_of_the_chain_is_kept() {
    for renewals in [4094, 4095] {
        let place = Place::memory();
        let ledger = place.create();
        let held = grant(&ledger, &claim("k"));
        for _ in 0..renewals {
            let _ = held.renew(HOUR).unwrap();
        }
        let _ = held.complete("kept").unwrap();
        let kept = |ledger: &onceledger::Ledger| match ledger.check(&key("k")).unwrap() {
            View::Done(stored) => body(&stored),
            other => panic!("{other:?}"),
        };
        assert_eq!(kept(&ledger), b"kept", "{renewals} renewals");
        ledger.close().unwrap();
        assert_eq!(kept(&place.open()), b"kept", "{renewals} renewals, reopened");
    }
}

/// A key renewed very often: its chain of rows has a limit, and the cleaning comes to an end.
#[test]
fn a_key_renewed_very_often_has_a_chain_of_bounded_length() {
    let place = Place::memory();
    let ledger = place.create();
    let held = grant(&ledger, &claim("k").lease(HOUR));
    for _ in 0..6000 {
        let _ = held.renew(HOUR).unwrap();
    }
    let lines = ledger.history(&key("k")).unwrap().len();
    assert!(lines < 5000, "{lines} rows are read to answer one call");
    let stats = ledger.stats().unwrap();
    // The session's row, and one that tells the grant and the last of the renewals before it.
    assert_eq!(stats.rows - stats.garbage_rows, lines as u64, "{stats:?}");
    let ticket = held.into_ticket();
    ledger.close().unwrap();
    let ledger = place.open();
    assert_eq!(ledger.stats().unwrap().garbage_rows, stats.garbage_rows, "counted alike at opening");
    let mut sweeps = 0;
    while ledger.sweep(4096).unwrap() != onceledger::Swept::default() {
        sweeps += 1;
        assert!(sweeps < 100, "the cleaner never rests: {:?}", ledger.stats().unwrap());
    }
    assert_eq!(standing(&ledger, "k"), "in_progress");
    assert_eq!(past(&ledger, "k")[0].1, PastWhat::Granted);
    ledger.verify().unwrap();
    drop(ticket);
}
