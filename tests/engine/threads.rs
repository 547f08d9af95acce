//! Real threads against one ledger: the oracle that matters, effects <= 1 + recorded not-done decisions (P2).

use std::collections::BTreeMap;
use std::sync::Mutex;

use onceledger::testkit::SplitMix;
use onceledger::{Claimed, PastWhat, Settlement, Verdict};

use crate::kit::*;

/// P2: threads claim, settle, drop, release, resolve, renew, sweep and let time pass on a few keys, all at random.
/// For each key, grants <= 1 + recorded decisions that it was not done, in every life of it.
#[test]
fn p2_grants_never_outnumber_recorded_decisions() {
    let seed = std::env::var("ONCELEDGER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_129_u64);
    println!("ONCELEDGER_SEED={seed} replays this");
    for place in [Place::memory(), Place::fault()] {
        let ledger = place.options().threads(true).create(&place.path).unwrap();
        let grants: Mutex<BTreeMap<String, Vec<u64>>> = Mutex::default();
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let (ledger, grants, clock) = (&ledger, &grants, place.clock.clone());
                scope.spawn(move || {
                    let mut random = SplitMix::new(seed + thread);
                    for _ in 0..400 {
                        let part = format!("{}", random.below(5));
                        match random.below(12) {
                            0 => {
                                if let Ok(doubts) = ledger.uncertain() {
                                    for doubt in doubts {
                                        let _ = ledger.resolve(&doubt, Verdict::NotDone, "t", "x").unwrap();
                                    }
                                }
                            }
                            1 => drop(ledger.sweep(random.below(3)).unwrap()),
                            2 => clock.advance(std::time::Duration::from_millis(random.below(50))),
                            3 => drop(ledger.history(&key(&part)).unwrap()),
                            _ => {
                                let claimed = ledger.claim(&claim(&part)).unwrap();
                                let Claimed::Granted(grant) = claimed else { continue };
                                grants.lock().unwrap().entry(part).or_default().push(grant.token().get());
                                match random.below(4) {
                                    0 => drop(grant),
                                    1 => drop(grant.release().unwrap()),
                                    2 => drop(grant.settle(Settlement::uncertain("?")).unwrap()),
                                    _ => {
                                        let _ = grant.renew(HOUR).unwrap();
                                        drop(grant);
                                    }
                                }
                            }
                        }
                    }
                });
            }
        });
        ledger.close().unwrap();
        let ledger = place.open();
        let mut total = 0;
        for (part, mut tokens) in grants.into_inner().unwrap() {
            let told = past(&ledger, &part);
            let decisions =
                told.iter().filter(|(_, what)| matches!(what, PastWhat::ResolvedNotDone | PastWhat::Released)).count();
            assert!(tokens.len() <= 1 + decisions, "{part}: {} grants, {decisions} decisions", tokens.len());
            total += tokens.len();
            tokens.sort_unstable();
            let recorded: Vec<_> =
                told.iter().filter(|(_, what)| *what == PastWhat::Granted).map(|(token, _)| *token).collect();
            assert_eq!(recorded, tokens, "{part}");
        }
        println!("{total} grants on {}", place.name);
        assert!(total > 50);
        ledger.verify().unwrap();
    }
}

/// A ledger is closed while threads are at work: each call is answered, and what was acknowledged is there.
#[test]
fn closing_under_load_answers_every_call() {
    for _ in 0..5 {
        let place = Place::memory();
        let ledger = place.options().threads(true).create(&place.path).unwrap();
        let done = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let (ledger, done) = (ledger.clone(), &done);
                scope.spawn(move || {
                    for n in 0.. {
                        let part = format!("{thread} {n}");
                        match ledger.claim(&claim(&part)) {
                            Ok(Claimed::Granted(grant)) => match grant.complete("x") {
                                Ok(_) => done.lock().unwrap().push(part),
                                Err(error) => {
                                    assert_eq!(error.kind(), onceledger::ErrorKind::Closed);
                                    return;
                                }
                            },
                            Ok(other) => panic!("{other:?}"),
                            Err(error) => {
                                assert_eq!(error.kind(), onceledger::ErrorKind::Closed, "{error}");
                                return;
                            }
                        }
                    }
                });
            }
            while done.lock().unwrap().len() < 100 {
                std::thread::yield_now();
            }
            ledger.close().unwrap();
        });
        let ledger = place.open();
        for part in done.into_inner().unwrap() {
            assert_eq!(standing(&ledger, &part), "done", "{part}");
        }
        ledger.verify().unwrap();
    }
}

/// Case P12, case 78 in the small: two claims of one key in one batch: one grant.
#[test]
fn case_p12_two_claims_in_one_batch_give_one_grant() {
    let gated = Gated::new();
    let call = || -> Call<&'static str> {
        Box::new(|ledger| {
            let claimed = ledger.claim(&claim("k")).unwrap();
            let said = word(&claimed);
            std::mem::forget(claimed);
            said
        })
    };
    let mut words = gated.one_batch(|| (), vec![call(), call(), call()]);
    words.sort_unstable();
    assert_eq!(words, ["granted", "in_progress", "in_progress"]);
}
