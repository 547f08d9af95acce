//! The two stages of retention (P9): first the body goes, later the key.

use std::time::Duration;

use onceledger::{Claimed, Keep, Kind, Options, Stored};

use crate::kit::*;

fn kept(ledger: &onceledger::Ledger, part: &str) -> Option<bool> {
    match ledger.claim(&claim(part)).unwrap() {
        Claimed::AlreadyDone(stored) | Claimed::Failed(stored) => Some(stored.outcome().is_some()),
        Claimed::Granted(_) => None,
        other => panic!("{other:?}"),
    }
}

/// P9: counted from the settle, not from the claim; between the stages a repeat still says already done.
#[test]
fn p9_retention_counts_from_the_settle_and_has_two_stages() {
    on_every_backend(|place| {
        for swept in [false, true] {
            let part = if swept { "swept" } else { "unswept" };
            let ledger = match place.disk.node(&place.path).unwrap() {
                None => place.create(),
                Some(_) => place.open(),
            };
            let held = grant(&ledger, &claim(part).keep(MINUTE).remember(HOUR));
            place.clock.advance(DAY);
            let _ = held.complete("x").unwrap();
            let look = |ledger: &onceledger::Ledger| {
                if swept {
                    ledger.sweep(100).unwrap();
                }
                kept(ledger, part)
            };
            place.clock.advance(MINUTE - Duration::from_millis(2));
            assert_eq!(look(&ledger), Some(true), "just before the body's end");
            place.clock.advance(Duration::from_millis(4));
            assert_eq!(look(&ledger), Some(false), "just after it");
            let stored = ledger.show(&key(part)).unwrap().unwrap().view;
            let onceledger::View::Done(stored) = stored else { panic!() };
            assert_eq!(stored, Stored::NotKept { kind: Kind::Text, error: false, bytes: 1 });
            place.clock.advance(HOUR - MINUTE - Duration::from_millis(4));
            assert_eq!(look(&ledger), Some(false), "just before the key's end");
            place.clock.advance(Duration::from_millis(4));
            assert_eq!(look(&ledger), None, "just after it");
            ledger.close().unwrap();
        }
    });
}

/// P9: the stages hold across a close in between, and what was dropped from the file is not missed.
#[test]
fn p9_the_stages_hold_across_reopening() {
    on_every_backend(|place| {
        let ledger = place.create();
        let _ = grant(&ledger, &claim("k").keep(MINUTE).remember(HOUR)).complete("x").unwrap();
        ledger.close().unwrap();
        let ledger = place.open();
        assert_eq!(kept(&ledger, "k"), Some(true));
        place.clock.advance(2 * MINUTE);
        assert_eq!(ledger.sweep(10).unwrap().bodies, 1);
        ledger.close().unwrap();
        let ledger = place.open();
        assert_eq!(kept(&ledger, "k"), Some(false));
        ledger.verify().unwrap();
        ledger.close().unwrap();
        place.clock.advance(2 * HOUR);
        assert_eq!(kept(&place.open(), "k"), None);
    });
}

/// A body that was dropped is not dropped again by every later open: nothing to do costs no commit.
#[test]
fn a_dropped_body_is_dropped_once() {
    on_every_backend(|place| {
        let ledger = place.create();
        let _ = grant(&ledger, &claim("ever").keep(Keep::Forever).remember(Keep::Forever)).complete("x").unwrap();
        for n in 0..20 {
            let _ = grant(&ledger, &claim(format!("{n}")).keep(SECOND)).complete("x").unwrap();
        }
        place.clock.advance(MINUTE);
        assert_eq!(ledger.sweep(100).unwrap().bodies, 20);
        ledger.close().unwrap();
        for _ in 0..3 {
            let ledger = place.open();
            let before = ledger.stats().unwrap().next_sequence;
            assert_eq!(ledger.sweep(100).unwrap(), onceledger::Swept::default());
            assert_eq!(ledger.stats().unwrap().next_sequence, before, "a commit for nothing");
            ledger.close().unwrap();
        }
    });
}

/// A key is remembered to the full, at whatever part of a millisecond it was settled.
#[test]
fn p9_no_retention_ends_a_part_of_a_millisecond_early() {
    on_every_backend(|place| {
        let micros = std::time::Duration::from_micros;
        let ledger = place.create();
        place.clock.advance(micros(900));
        let _ = grant(&ledger, &claim("k").keep(SECOND).remember(SECOND)).complete("x").unwrap();
        place.clock.advance(SECOND - micros(100));
        assert_eq!(refused(&ledger, &claim("k")), "done", "forgotten 0.1 ms early");
        place.clock.advance(micros(200));
        assert_eq!(refused(&ledger, &claim("k")), "granted");
    });
}

/// P9: an uncertain claim never expires, and neither does one in progress.
#[test]
fn p9_uncertain_claims_never_expire() {
    on_every_backend(|place| {
        let ledger = place.create();
        drop(grant(&ledger, &claim("doubt").remember(SECOND).keep(SECOND)));
        let held = grant(&ledger, &claim("held").remember(SECOND).keep(SECOND));
        for _ in 0..10 {
            place.clock.advance(1000 * DAY);
            ledger.tick();
            ledger.sweep(100).unwrap();
        }
        assert_eq!((standing(&ledger, "doubt"), standing(&ledger, "held")), ("uncertain", "in_progress"));
        let _ = held.complete("x").unwrap();
        assert_eq!(standing(&ledger, "held"), "done", "counted from the settle");
    });
}

/// For ever exists; and a body is never kept longer than its key.
#[test]
fn forever_is_for_ever_and_no_body_outlives_its_key() {
    on_every_backend(|place| {
        let ledger = place.create();
        let _ = grant(&ledger, &claim("ever").keep(Keep::Forever).remember(Keep::Forever)).complete("x").unwrap();
        let _ = grant(&ledger, &claim("key").keep(Keep::Forever).remember(MINUTE)).complete("x").unwrap();
        let _ = grant(&ledger, &claim("none").keep(Duration::ZERO)).complete("x").unwrap();
        assert_eq!(kept(&ledger, "none"), Some(false));
        place.clock.advance(HOUR);
        assert_eq!(ledger.sweep(10).unwrap().bodies, 2);
        assert_eq!(kept(&ledger, "key"), None);
        for _ in 0..20 {
            place.clock.advance(1000 * DAY);
            ledger.tick();
        }
        assert_eq!(kept(&ledger, "ever"), Some(true));
    });
}

/// A released key keeps attempt and first attempt until its retention passes, and is a new one after it.
#[test]
fn p9_a_released_key_is_remembered_and_then_forgotten() {
    on_every_backend(|place| {
        let ledger = place.create();
        let short = || claim("k").remember(HOUR);
        let _ = grant(&ledger, &short()).release().unwrap();
        assert_eq!(grant(&ledger, &short()).release().unwrap(), onceledger::Settled::Applied);
        assert_eq!(past(&ledger, "k").len(), 4);
        place.clock.advance(2 * HOUR);
        assert!(past(&ledger, "k").is_empty());
        assert_eq!(grant(&ledger, &short()).attempt(), 1);
    });
}

/// The defaults are those that the documents state: 7 days, 90 days, 30 s, 1 MiB.
#[test]
fn the_defaults_are_the_ones_that_are_documented() {
    let place = Place::memory();
    let ledger = place.create();
    let _ = grant(&ledger, &claim("k")).complete(vec![0; 1 << 20]).unwrap();
    place.clock.advance(7 * DAY - SECOND);
    assert_eq!(kept(&ledger, "k"), Some(true));
    place.clock.advance(2 * SECOND);
    assert_eq!(kept(&ledger, "k"), Some(false));
    place.clock.advance(83 * DAY - 3 * SECOND);
    assert_eq!(kept(&ledger, "k"), Some(false));
    place.clock.advance(3 * SECOND);
    assert_eq!(kept(&ledger, "k"), None);
    let options = |options: Options| options.in_memory().map(drop);
    assert!(options(Options::new().remember(Duration::ZERO)).unwrap_err().is_bad_input());
    assert!(options(Options::new().keep(Duration::MAX)).unwrap_err().is_bad_input());
    assert!(options(Options::new().outcome_bytes_max(257 << 20)).unwrap_err().is_bad_input());
}
