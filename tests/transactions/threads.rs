//! Many threads at once.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onceledger::testkit::SplitMix;
use onceledger::*;

use crate::kit::*;

fn number(cell: &Cell) -> u64 {
    cell.value.as_str().unwrap().parse().unwrap()
}

/// Units are moved between cells by many threads. Not one is lost or made, at no moment.
#[test]
fn units_move_between_cells_and_their_sum_never_changes() {
    const CELLS: u64 = 8;
    const UNITS: u64 = 1000;
    const THREADS: u64 = 32;
    const MOVES: u64 = 15;
    for place in [Place::memory().threaded(), Place::real().threaded()] {
        let ledger = place.open();
        let name = |number: u64| format!("purse/{number}");
        for cell in 0..CELLS {
            put(&ledger, &name(cell), &UNITS.to_string());
        }
        let over = AtomicBool::new(false);
        let (moved, conflicts) = (AtomicU64::new(0), AtomicU64::new(0));
        let (claims, looks) = std::thread::scope(|scope| {
            let movers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (ledger, moved, conflicts) = (&ledger, &moved, &conflicts);
                    scope.spawn(move || {
                        let mut random = SplitMix::new(thread);
                        let mut done = 0;
                        while done < MOVES {
                            let from = random.below(CELLS);
                            let to = (from + 1 + random.below(CELLS - 1)) % CELLS;
                            let (a, b) =
                                (ledger.cell(&name(from)).unwrap().unwrap(), ledger.cell(&name(to)).unwrap().unwrap());
                            let units = random.below(number(&a).min(50) + 1);
                            let tx = ledger.transaction().claim(claim(&format!("move/{thread}/{done}")));
                            let tx = tx.expect_cell(&a.name, a.version).expect_cell(&b.name, b.version);
                            let tx = tx.set_cell(&a.name, (number(&a) - units).to_string());
                            let tx = tx.set_cell(&b.name, (number(&b) + units).to_string());
                            match tx.commit().unwrap() {
                                Transacted::Committed(mut all) => {
                                    let _ = all.grants.remove(0).complete(units.to_string()).unwrap();
                                    moved.fetch_add(1, Ordering::Relaxed);
                                    done += 1;
                                }
                                Transacted::Refused(told) => {
                                    assert!(told.iter().all(|told| matches!(told, Refusal::Cell { .. })), "{told:?}");
                                    conflicts.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                        }
                    })
                })
                .collect();
            let beside = scope.spawn(|| {
                let mut claims = 0;
                while !over.load(Ordering::Relaxed) {
                    let grant = granted(ledger.claim(&claim(&format!("beside/{claims}"))).unwrap());
                    let _ = grant.complete("x").unwrap();
                    claims += 1;
                }
                claims
            });
            // A transaction of expectations alone says whether what was read stood at one moment.
            let looker = scope.spawn(|| {
                let mut looks = 0;
                while !over.load(Ordering::Relaxed) {
                    let cells = ledger.cells("purse/", None, 100).unwrap().cells;
                    let expect = |tx: Transaction, cell: &Cell| tx.expect_cell(&cell.name, cell.version);
                    let tx = cells.iter().fold(ledger.transaction(), expect);
                    if let Transacted::Committed(_) = tx.commit().unwrap() {
                        assert_eq!(cells.iter().map(number).sum::<u64>(), CELLS * UNITS);
                        looks += 1;
                    }
                }
                looks
            });
            movers.into_iter().for_each(|mover| mover.join().unwrap());
            over.store(true, Ordering::Relaxed);
            (beside.join().unwrap(), looker.join().unwrap())
        });
        let sum = |ledger: &Ledger| ledger.cells("purse/", None, 100).unwrap().cells.iter().map(number).sum::<u64>();
        assert_eq!(sum(&ledger), CELLS * UNITS);
        let ledger = place.reopen(ledger);
        assert_eq!(sum(&ledger), CELLS * UNITS);
        assert_eq!(ledger.stats().unwrap().done, moved.load(Ordering::Relaxed) + claims);
        println!(
            "{}: {} moves by {THREADS} threads, {} conflicts, {claims} claims beside, {looks} sums at one moment",
            place.name,
            moved.load(Ordering::Relaxed),
            conflicts.load(Ordering::Relaxed)
        );
        assert_eq!(moved.load(Ordering::Relaxed), THREADS * MOVES);
        ledger.verify().unwrap();
        ledger.close().unwrap();
    }
}

#[test]
fn eight_threads_drain_a_budget_of_a_hundred_and_get_a_hundred_grants() {
    const BUDGET: u64 = 100;
    for place in [Place::memory().threaded(), Place::real().threaded()] {
        let ledger = place.open();
        put(&ledger, "budget", &BUDGET.to_string());
        let grants: u64 = std::thread::scope(|scope| {
            let drains: Vec<_> = (0..8)
                .map(|thread| {
                    let ledger = &ledger;
                    scope.spawn(move || {
                        let mut grants = 0;
                        for attempt in 0_u64.. {
                            let cell = ledger.cell("budget").unwrap().unwrap();
                            let left = number(&cell);
                            if left == 0 {
                                break;
                            }
                            let tx = ledger.transaction().claim(claim(&format!("{thread}/{attempt}")));
                            let tx = tx.expect_cell("budget", cell.version);
                            if let Transacted::Committed(all) =
                                tx.set_cell("budget", (left - 1).to_string()).commit().unwrap()
                            {
                                grants += all.grants.len() as u64;
                                // What becomes of a grant gives the budget nothing back.
                                drop(all);
                            }
                        }
                        grants
                    })
                })
                .collect();
            drains.into_iter().map(|drain| drain.join().unwrap()).sum()
        });
        assert_eq!(grants, BUDGET, "{}", place.name);
        assert_eq!(ledger.uncertain().unwrap().len() as u64, BUDGET);
        println!("{}: {grants} grants", place.name);
        ledger.close().unwrap();
    }
}

const RACES: usize = 1000;

#[test]
fn two_deliveries_of_one_approval_spend_it_once() {
    let place = Place::memory().threaded();
    let ledger = place.open();
    let (mut spends, mut in_progress) = (0, 0);
    for race in 0..RACES {
        let claim = claim(&race.to_string());
        let id = approved(&ledger, &claim);
        let start = Barrier::new(2);
        let deliver = |by_transaction: bool| {
            start.wait();
            if by_transaction {
                match ledger.transaction().claim(claim.clone()).spend(id).commit().unwrap() {
                    Transacted::Committed(mut all) => Claimed::Granted(all.grants.remove(0)),
                    Transacted::Refused(mut told) => match told.remove(0) {
                        Refusal::Claim { stands, .. } => stands,
                        other => panic!("{other:?}"),
                    },
                }
            } else {
                ledger.claim(&claim.clone().approved_by(id)).unwrap()
            }
        };
        let both = std::thread::scope(|scope| {
            let one = scope.spawn(|| deliver(race % 2 == 0));
            let two = scope.spawn(|| deliver(false));
            [one.join().unwrap(), two.join().unwrap()]
        });
        let mut grants = Vec::new();
        for claimed in both {
            match claimed {
                Claimed::Granted(grant) => grants.push(grant),
                Claimed::InProgress(_) => in_progress += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(grants.len(), 1);
        let approval = ledger.approval(id).unwrap().unwrap();
        assert_eq!((approval.state, approval.spent_by), (ApprovalState::Spent, Some(grants[0].token())));
        assert_eq!(approval.decisions.iter().filter(|line| line.what == "spent").count(), 1);
        spends += 1;
        for grant in grants {
            let _ = grant.complete("x").unwrap();
        }
    }
    println!("{RACES} races of two deliveries: {spends} spends, {in_progress} told in progress");
    assert_eq!((spends, in_progress), (RACES, RACES));
}

/// One approval, two keys that both name it: only its own key gets through, whoever comes first.
#[test]
fn approve_against_deny_records_one_first_decision_and_never_spends_after_a_no() {
    let place = Place::memory().threaded();
    let ledger = place.open();
    let (mut yes_first, mut no_first, mut spent) = (0, 0, 0);
    for race in 0..RACES {
        let claim = claim(&race.to_string());
        let id = asked(&ledger, &claim);
        let start = Barrier::new(3);
        let (approve, deny, claimed) = std::thread::scope(|scope| {
            let approve = scope.spawn(|| {
                start.wait();
                ledger.approve(id, "ana").unwrap()
            });
            let deny = scope.spawn(|| {
                start.wait();
                ledger.deny(id, "ben", "").unwrap()
            });
            let claimed = scope.spawn(|| {
                start.wait();
                ledger.claim(&claim.clone().needs_approval()).unwrap()
            });
            (approve.join().unwrap(), deny.join().unwrap(), claimed.join().unwrap())
        });
        assert!(matches!(deny, Decision::Applied(_)));
        let approval = ledger.approval(id).unwrap().unwrap();
        let lines: Vec<&str> = approval.decisions.iter().map(|line| line.what).collect();
        match (&approve, lines.as_slice()) {
            (Decision::Conflict(_), ["requested", "denied"]) => no_first += 1,
            (Decision::Applied(_), ["requested", "approved", "denied"]) => yes_first += 1,
            (Decision::Applied(_), ["requested", "approved", "spent", "denied"]) => {
                yes_first += 1;
                spent += 1;
            }
            other => panic!("{other:?}"),
        }
        if let Claimed::Granted(grant) = claimed {
            assert_eq!(approval.state, ApprovalState::Spent);
            let _ = grant.release().unwrap();
        }
        assert_eq!(state(&ledger, id), ApprovalState::Denied);
        assert!(matches!(ledger.claim(&claim.needs_approval()).unwrap(), Claimed::NotApproved(_)));
    }
    println!("{RACES} races: approve first {yes_first} (spent before the deny {spent}), deny first {no_first}");
    assert_eq!(yes_first + no_first, RACES);
}
