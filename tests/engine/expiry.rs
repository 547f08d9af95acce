//! Sweeps, the cleaning of the log, and what they must never take with them (P2, P9, P10, P12).

use std::sync::Arc;

use onceledger::{Claim, Keep, Options, Swept};

use crate::kit::*;

/// A key is granted anew and swept in one batch: the sweep must not forget the grant it meets, or a second
/// claimer is granted while the first runs.
#[test]
fn p2_a_sweep_in_the_batch_of_a_new_grant_does_not_forget_it() {
    let gated = Gated::new();
    let short = || claim("k").remember(SECOND);
    let _ = grant(&gated.ledger, &short()).complete("first life").unwrap();
    let words = gated.one_batch(
        || gated.clock.advance(10 * SECOND),
        vec![
            Box::new(move |ledger| {
                let claimed = ledger.claim(&short()).unwrap();
                let said = word(&claimed);
                std::mem::forget(claimed);
                said
            }),
            Box::new(|ledger| {
                ledger.sweep(100).unwrap();
                "swept"
            }),
        ],
    );
    assert_eq!(words, ["granted", "swept"]);
    assert_eq!(standing(&gated.ledger, "k"), "in_progress");
    assert_eq!(refused(&gated.ledger, &claim("k")), "in_progress", "granted twice");
}

/// Two sweeps in one batch clean the same stretch of the log: its rows must be taken out of count and digest
/// once, or the file is refused for ever.
#[test]
fn p12_two_sweeps_in_one_batch_leave_a_ledger_that_opens() {
    let gated = Gated::new();
    for n in 0..1200 {
        let _ = grant(&gated.ledger, &claim(format!("{n}")).remember(SECOND).keep(SECOND)).complete("x").unwrap();
    }
    gated.clock.advance(10 * SECOND);
    let swept = gated.ledger.sweep(1200).unwrap();
    assert!(swept.keys == 1200 && swept.rows > 0, "{swept:?}");
    let swept = gated.one_batch(
        || (),
        vec![Box::new(|ledger| ledger.sweep(1200).unwrap()), Box::new(|ledger| ledger.sweep(1200).unwrap())],
    );
    assert!(swept.iter().any(|swept| swept.rows > 0), "nothing was cleaned: {swept:?}");
    gated.ledger.verify().unwrap();
    let Gated { ledger, .. } = &gated;
    ledger.clone().close().unwrap();
    gated.reopen().unwrap().verify().unwrap();
}

/// Case 10: the counter of a sweep is exact, and its limit holds. (Leases are not swept here: a lapse is
/// derived when looked at. Retention is what a sweep is about.)
#[test]
fn case_10_a_thousand_expired_keys_are_swept_in_ten_hundreds() {
    on_every_backend(|place| {
        let ledger = place.create();
        for n in 0..1000 {
            let _ = grant(&ledger, &claim(format!("{n}")).remember(5 * MINUTE)).complete("x").unwrap();
        }
        assert_eq!(ledger.sweep(100).unwrap(), Swept::default(), "nothing is due yet");
        place.clock.advance(6 * MINUTE);
        for round in 0..10 {
            assert_eq!(ledger.sweep(100).unwrap().keys, 100, "round {round}");
        }
        assert_eq!(ledger.sweep(100).unwrap().keys, 0);
        assert_eq!(ledger.stats().unwrap().done, 0);
        ledger.close().unwrap();
        place.open().verify().unwrap();
    });
}

/// Case 16, P10: expired and not swept is vacant in every entry point: claim, check, show, list, stats,
/// history, resolve, once, and a late settle changes nothing.
#[test]
fn case_16_p10_expired_is_vacant_in_every_entry_point_swept_or_not() {
    on_every_backend(|place| {
        let ledger = place.create();
        let short = |part: &str| claim(part).remember(MINUTE);
        for part in ["claim", "check", "failed", "once", "async", "txn"] {
            let grant = grant(&ledger, &short(part));
            let settled = if part == "failed" { grant.fail("no") } else { grant.complete("yes") };
            let _ = settled.unwrap();
        }
        // Nobody calls tick: the time alone does it.
        place.clock.advance(DAY);
        assert_eq!(standing(&ledger, "check"), "vacant");
        assert!(ledger.show(&key("check")).unwrap().is_none());
        assert!(ledger.history(&key("check")).unwrap().is_empty());
        let stats = ledger.stats().unwrap();
        assert_eq!((stats.done, stats.failed, stats.vacant), (0, 0, 0));
        for standing in onceledger::Standing::ALL {
            assert!(ledger.list(standing, None, 100).unwrap().keys.is_empty(), "{standing}");
        }
        let second = grant(&ledger, &short("claim"));
        assert_eq!(second.attempt(), 1, "a new life");
        let _ = grant(&ledger, &short("failed")).complete("now").unwrap();
        let answer = ledger.once(&short("once"), |_| Ok::<_, onceledger::EffectError>("again")).unwrap();
        assert!(matches!(answer, onceledger::Answer::Done(_)), "{answer:?}");
        let waiting = short("async").wait(MINUTE);
        let third = grant(&ledger, &waiting);
        assert!(third.token() > second.token());
    });
}

/// Case 100, P10: a ledger without threads that is asked about nothing but settled keys still notices that
/// time passes: no answer depends on somebody else's call refreshing a clock.
#[test]
fn case_100_p10_a_repeat_without_ticks_notices_the_end_of_retention() {
    on_every_backend(|place| {
        let ledger = place.create();
        let _ = grant(&ledger, &claim("k")).complete("x").unwrap();
        place.clock.advance(8 * DAY);
        let onceledger::Claimed::AlreadyDone(stored) = ledger.claim(&claim("k")).unwrap() else { panic!() };
        assert!(stored.outcome().is_none(), "the body's 7 days are over");
        place.clock.advance(90 * DAY);
        assert_eq!(refused(&ledger, &claim("k")), "granted");
    });
}

/// Case 28: tokens rise over expiry, reopening, deletion and re-claim; a token that came back would let a
/// paused holder of an earlier life settle the present one.
#[test]
fn case_28_tokens_rise_across_expiry_cleaning_and_reopening() {
    on_every_backend(|place| {
        let mut ledger = place.create();
        let mut last = 0;
        for round in 0..6 {
            for n in 0..200 {
                let grant = grant(&ledger, &claim(format!("{n}")).remember(SECOND).keep(SECOND));
                assert!(grant.token().get() > last, "round {round}: {} after {last}", grant.token());
                last = grant.token().get();
                let _ = grant.complete("x").unwrap();
            }
            place.clock.advance(10 * SECOND);
            for _ in 0..4 {
                ledger.tick();
            }
            ledger.close().unwrap();
            ledger = place.open();
            assert_eq!(ledger.stats().unwrap().done, 0, "all expired");
        }
        for _ in 0..1000 {
            let grant = grant(&ledger, &claim("one key"));
            assert!(grant.token().get() > last);
            last = grant.token().get();
            let _ = grant.release().unwrap();
        }
    });
}

/// One uncertain claim at the start of the log, and many claims expired behind it: the doubt must survive, and
/// must not pin the rows behind it. `ONCELEDGER_EXPIRED` scales it; the ignored test below runs a million.
fn expire_behind_a_doubt(count: u64) {
    let place = Place::file();
    // Many threads on one real file: batches make it quick.
    let options = |place: &Place| place.options().threads(true);
    let ledger = options(&place).create(&place.path).unwrap();
    let token = {
        let doubtful = grant(&ledger, &claim("doubt").label("the first"));
        let token = doubtful.token();
        drop(doubtful);
        token
    };
    let rounds = 10;
    let mut sizes = Vec::new();
    for round in 0..rounds {
        let each = count / rounds / 8;
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let ledger = &ledger;
                scope.spawn(move || {
                    let once = |n| {
                        let claim = claim(format!("{round}/{thread}/{n}")).remember(SECOND).keep(SECOND);
                        ledger.once_async(&claim, |_| async { Ok("some outcome") })
                    };
                    let answers = crate::futures::join((0..each).map(once));
                    assert!(answers.iter().all(|answer| matches!(answer, Ok(onceledger::Answer::Done(_)))));
                });
            }
        });
        place.clock.advance(HOUR);
        // The keeper works too; each sweep here is one of many.
        while ledger.sweep(4096).unwrap() != Swept::default() {}
        let stats = ledger.stats().unwrap();
        sizes.push((stats.rows, stats.file_bytes));
        assert!(stats.rows < 6000, "round {round}: {} rows are left of {}", stats.rows, each * 8 * (round + 1));
        assert_eq!((stats.uncertain, stats.done), (1, 0));
    }
    let ledger = {
        ledger.close().unwrap();
        options(&place).open(&place.path).unwrap()
    };
    println!("{count} claims expired behind one doubt: rows and bytes after each round {sizes:?}");
    assert!(sizes[9].1 <= sizes[4].1 * 2, "the file goes on growing: {sizes:?}");
    assert_eq!(doubt(&ledger, "doubt").token, token);
    assert_eq!(ledger.show(&key("doubt")).unwrap().unwrap().label, "the first");
    assert_eq!(not_done(&ledger, "doubt", token), onceledger::Resolved::Applied);
}

#[test]
fn one_doubt_at_the_start_of_the_log_never_pins_what_expired_behind_it() {
    let count = std::env::var("ONCELEDGER_EXPIRED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    expire_behind_a_doubt(count);
}

/// `cargo test --release --features testkit --test engine -- --ignored million`
#[test]
#[ignore = "a million claims; minutes"]
fn one_doubt_and_a_million_claims_expired_behind_it() {
    expire_behind_a_doubt(1_000_000);
}

/// Case 99: a stored body is dropped from the file, also when the ledger is closed between the sweep that took
/// its key's rows and the one that would have dropped it: what nobody can name any more must not stay for ever.
#[test]
fn case_99_bodies_of_forgotten_keys_do_not_stay_in_the_file() {
    let place = Place::memory();
    let mut ledger = place.create();
    let mut sizes = Vec::new();
    for round in 0..6 {
        // The long kept are the older ones, and their bodies are swept last.
        for n in 0..900 {
            let (keep, bytes) = if n < 300 { (MINUTE, 20_000) } else { (SECOND, 10) };
            let claim = claim(format!("{round}/{n}")).remember(keep).keep(keep);
            let _ = grant(&ledger, &claim).complete("x".repeat(bytes)).unwrap();
        }
        place.clock.advance(HOUR);
        // Forgets all keys, drops 512 of 900 bodies and cleans a stretch; then the process ends.
        ledger.sweep(4096).unwrap();
        ledger.close().unwrap();
        ledger = place.open();
        while ledger.sweep(4096).unwrap() != Swept::default() {}
        sizes.push(ledger.stats().unwrap().file_bytes);
    }
    assert!(sizes[5] < sizes[1] * 3 / 2, "bodies pile up: {sizes:?}");
}

/// A live key whose rows are moved keeps all that is known of it: outcome, error flag, fingerprint, attempt,
/// retention, history, evidence.
#[test]
fn p6_a_key_that_is_moved_through_the_log_keeps_everything() {
    on_every_backend(|place| {
        let ledger = place.create();
        let json = serde_json::json!({"amount": 79});
        let guarded =
            Claim::new(key("done"), &json).unwrap().label("words").keep(Keep::Forever).remember(Keep::Forever);
        let _ = grant(&ledger, &guarded).release().unwrap();
        let first = grant(&ledger, &guarded);
        let ticket = first.ticket();
        drop(first);
        let second = {
            assert_eq!(not_done(&ledger, "done", ticket.token()), onceledger::Resolved::Applied);
            grant(&ledger, &guarded)
        };
        let late = ticket.settle(&ledger, onceledger::Settlement::done("late evidence")).unwrap();
        assert!(matches!(late, onceledger::Settled::Lost(_)));
        let _ = second.fail("{\"final\": true}").unwrap();
        let held = grant(&ledger, &claim("held").lease(DAY));
        let _ = grant(&ledger, &claim("vacant")).release().unwrap();
        drop(grant(&ledger, &claim("doubt")));
        let before = (ledger.history(&key("done")).unwrap(), ledger.show(&key("done")).unwrap().unwrap());
        // Enough garbage behind them that all four are moved.
        for n in 0..700 {
            let _ = grant(&ledger, &claim(format!("{n}")).remember(SECOND).keep(SECOND)).complete("x").unwrap();
        }
        place.clock.advance(10 * SECOND);
        let mut moved = 0;
        for _ in 0..20 {
            moved += ledger.sweep(4096).unwrap().moved;
        }
        assert!(moved >= 4, "{moved}");
        for ledger in [ledger.clone(), {
            let ticket = held.into_ticket();
            ledger.clone().close().unwrap();
            let ledger = place.open();
            assert_eq!(standing(&ledger, "held"), "in_progress");
            drop(ticket);
            ledger
        }] {
            if ledger.stats().is_err() {
                continue;
            }
            let after = (ledger.history(&key("done")).unwrap(), ledger.show(&key("done")).unwrap().unwrap());
            assert_eq!(format!("{before:?}"), format!("{after:?}"));
            assert_eq!(refused(&ledger, &claim("done")), "mismatch");
            assert_eq!(standing(&ledger, "vacant"), "vacant");
            assert_eq!(grant(&ledger, &claim("vacant")).attempt(), 2);
            assert_eq!(standing(&ledger, "doubt"), "uncertain");
            ledger.verify().unwrap();
        }
    });
}

/// The ledger's own threads sweep too; without them `tick` does.
#[test]
fn a_tick_forgets_what_is_due() {
    let place = Place::memory();
    let ledger = place.create();
    let _ = grant(&ledger, &claim("k").remember(SECOND)).complete("x").unwrap();
    place.clock.advance(10 * SECOND);
    ledger.tick();
    assert_eq!(ledger.sweep(10).unwrap().keys, 0, "nothing is left to forget");
    let threads = Options::new().clock(Arc::new(place.clock.clone())).in_memory().unwrap();
    let _ = grant(&threads, &claim("k")).complete("x").unwrap();
    threads.close().unwrap();
}

/// Everything that `futures` come to, in one batch.
fn in_one_batch<F: Future>(ledger: &onceledger::Ledger, futures: Vec<F>) -> Vec<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    for future in &mut futures {
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
    ledger.tick();
    let ready = |future: &mut std::pin::Pin<Box<F>>| match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("not answered by one batch"),
    };
    futures.iter_mut().map(ready).collect()
}

/// Rows and outcomes of one batch share blocks. What is due goes, and takes nothing with it that is not, in
/// whatever order keys of one block end; nor does the cleaning of half a block.
#[test]
fn p9_p10_what_goes_from_a_block_takes_none_of_its_neighbours() {
    on_every_backend(|place| {
        let ledger = place.options().threads(false).cache_bytes(0).create(&place.path).unwrap();
        let keep = |n: u64| [10, 1000, 100, 10_000][(n % 4) as usize];
        // Of many lengths: some blocks hold one outcome, some dozens.
        let outcome = |n: u64| format!("{n} ").repeat(1 + (n * n % 700) as usize);
        let claims: Vec<Claim> =
            (0..600).map(|n| claim(format!("{n}")).keep(keep(n) as u32 * SECOND).remember(20_000 * SECOND)).collect();
        let claimed = in_one_batch(&ledger, claims.iter().map(|claim| ledger.claim_async(claim)).collect());
        let grants = claimed.into_iter().map(|claimed| claimed.unwrap().granted().unwrap());
        let settle =
            |(n, grant): (u64, onceledger::Grant)| grant.settle_async(onceledger::Settlement::done(outcome(n)));
        let settled = in_one_batch(&ledger, (0..).zip(grants).map(settle).collect());
        assert!(settled.into_iter().all(|settled| settled.is_ok()));
        let check = |ledger: &onceledger::Ledger, kept: &dyn Fn(u64) -> bool| {
            for n in 0..600 {
                let stands = ledger.check(&key(format!("{n}"))).unwrap();
                let onceledger::View::Done(stored) = stands else { panic!("{n}: {stands:?}") };
                match stored.outcome() {
                    Some(kept_body) => assert_eq!(kept_body.as_str().unwrap(), outcome(n), "{n}"),
                    None => assert!(!kept(n), "{n} was lost"),
                }
                assert_eq!(stored.outcome().is_some(), kept(n), "{n}");
            }
            ledger.verify().unwrap();
        };
        check(&ledger, &|_| true);
        let mut at = 0;
        for (until, left) in [(11, 10), (101, 100), (1001, 1000)] {
            place.clock.advance((until - at) * SECOND);
            at = until;
            // Garbage enough for the log to be cleaned, block by block.
            let short = |n: u64| claim(format!("{until} {n}")).remember(SECOND).keep(SECOND);
            let short: Vec<Claim> = (0..600).map(short).collect();
            let claimed = in_one_batch(&ledger, short.iter().map(|claim| ledger.claim_async(claim)).collect());
            let grants = claimed.into_iter().map(|claimed| claimed.unwrap().granted().unwrap());
            let release = |grant: onceledger::Grant| grant.settle_async(onceledger::Settlement::not_applied(""));
            let released = in_one_batch(&ledger, grants.map(release).collect());
            assert!(released.into_iter().all(|released| released.is_ok()));
            place.clock.advance(5 * SECOND);
            at += 5;
            while ledger.sweep(4096).unwrap() != Swept::default() {
                ledger.verify().unwrap();
            }
            let due = (0..600).filter(|n| keep(*n) <= left).count() as u64;
            assert_eq!(ledger.verify().unwrap().bodies, 600 - due, "after {until} s");
            check(&ledger, &|n| keep(n) > left);
        }
        ledger.close().unwrap();
        let ledger = place.options().threads(false).cache_bytes(0).open(&place.path).unwrap();
        check(&ledger, &|n| keep(n) > 1000);
    });
}

/// A body goes when its own retention has passed since the settle, also where its key is moved and the ledger
/// opened again more often than that.
#[test]
fn p9_moves_and_openings_do_not_prolong_the_life_of_a_body() {
    let place = Place::memory();
    let mut ledger = place.create();
    for n in 0..50 {
        let kept = claim(format!("{n}")).keep(10 * SECOND).remember(HOUR);
        let _ = grant(&ledger, &kept).complete(vec![7; 1000]).unwrap();
    }
    let mut moved = 0;
    for round in 0..4 {
        for n in 0..1200 {
            let short = claim(format!("{round} {n}")).keep(SECOND).remember(SECOND);
            let _ = grant(&ledger, &short).release().unwrap();
        }
        place.clock.advance(8 * SECOND);
        loop {
            let swept = ledger.sweep(10_000).unwrap();
            moved += swept.moved;
            if swept == Swept::default() {
                break;
            }
        }
        ledger.close().unwrap();
        ledger = place.open();
    }
    assert!(moved > 50, "{moved}");
    ledger.sweep(10_000).unwrap();
    assert_eq!(ledger.verify().unwrap().body_bytes, 0, "32 s after the settle");
}
