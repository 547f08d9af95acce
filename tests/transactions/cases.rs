//! Cases from the field, by their number in `shared/cases.md`.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Barrier;
use std::time::Duration;

use onceledger::*;

use crate::kit::*;

/// A stored call was edited before it was resumed, and executed.
#[test]
fn case_72_an_edited_call_does_not_run_under_the_approval_of_the_first() {
    let place = Place::real();
    let ledger = place.open();
    let id = approved(&ledger, &noted("ord_42", "as shown"));
    // The agent is suspended, the stored call edited, the process started anew.
    let ledger = place.reopen(ledger);
    let edited = noted("ord_42", "as edited");
    let mut effects = 0;
    let mut run = |claim: &Claim| {
        let effect = |_: &Grant| {
            effects += 1;
            Ok::<_, EffectError>("refunded")
        };
        ledger.once(claim, effect).unwrap()
    };
    assert!(matches!(run(&edited.clone().needs_approval()), Answer::NotApproved(_)));
    let Answer::NotApproved(stands) = run(&edited.approved_by(id)) else { panic!() };
    let approval = stands.approval.unwrap();
    assert_eq!((approval.id, approval.state), (id, ApprovalState::Approved));
    assert_eq!(Some(approval.args_digest), noted("ord_42", "as shown").args_digest());
    assert!(matches!(run(&noted("ord_42", "as shown").needs_approval()), Answer::Done(_)));
    assert_eq!(effects, 1);
}

/// A reconnect replayed an order; the approval id was only the tool's name.
#[test]
fn case_75_two_approvals_of_one_tool_in_one_turn_coexist_and_a_lost_transport_is_a_doubt() {
    let place = Place::memory();
    let ledger = place.open();
    let (one, two) = (claim("order/1"), claim("order/2"));
    let (first, second) = (asked(&ledger, &one), asked(&ledger, &two));
    assert_ne!(first, second);
    let _ = ledger.approve(second, "ana").unwrap();
    assert!(matches!(ledger.claim(&one.clone().needs_approval()).unwrap(), Claimed::NotApproved(_)));
    let answer = ledger.once(&two.clone().needs_approval(), |_| Err::<(), _>(EffectError::unknown("connection lost")));
    assert!(matches!(answer.unwrap(), Answer::Uncertain(_)));
    assert_eq!((state(&ledger, first), state(&ledger, second)), (ApprovalState::Pending, ApprovalState::Spent));
    assert!(matches!(ledger.claim(&two.needs_approval()).unwrap(), Claimed::Uncertain(_)));
    let _ = ledger.approve(first, "ana").unwrap();
    assert_eq!(granted(ledger.claim(&one.needs_approval()).unwrap()).attempt(), 1);
}

/// Two approve messages ran the tool twice. Two threads are in `threads`; here it is two processes.
#[test]
fn case_78_two_processes_consume_one_approval_once() {
    let place = Place::real();
    // On the machine's own clock, which the children share.
    let ledger = Ledger::create(&place.path).unwrap();
    let id = approved(&ledger, &claim("a"));
    ledger.close().unwrap();
    let children: Vec<_> = (0..2)
        .map(|_| {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "cases::consume", "--ignored", "--nocapture"]);
            child.env("ONCELEDGER_CHILD", &place.path).env("ONCELEDGER_APPROVAL", id.to_string());
            child.stdout(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let said: BTreeSet<String> = children
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success());
            let text = String::from_utf8(output.stdout).unwrap();
            text.lines().find_map(|line| line.split_once("consumed: ")).unwrap().1.to_owned()
        })
        .collect();
    assert_eq!(said, BTreeSet::from(["already done".to_owned(), "granted".to_owned()]));
}

/// Not a test of its own: the child of case 78.
#[test]
#[ignore = "the child of case 78"]
fn consume() {
    let Some(path) = std::env::var_os("ONCELEDGER_CHILD") else { return };
    let id = ApprovalId::from_number(std::env::var("ONCELEDGER_APPROVAL").unwrap().parse().unwrap());
    let ledger = Options::new().lock_wait(Duration::from_secs(20)).open(path).unwrap();
    match ledger.claim(&claim("a").approved_by(id)).unwrap() {
        Claimed::Granted(grant) => {
            let _ = grant.complete("x").unwrap();
            println!("consumed: granted");
        }
        Claimed::AlreadyDone(_) => println!("consumed: already done"),
        other => println!("consumed: {other:?}"),
    }
    ledger.close().unwrap();
}

/// One click woke N waiters and all of them dispatched.
#[test]
fn case_79_eight_waiters_on_one_approval_make_one_claim() {
    const ROUNDS: usize = 50;
    let place = Place::memory().threaded();
    let ledger = place.open();
    for round in 0..ROUNDS {
        let claim = claim(&round.to_string());
        let id = asked(&ledger, &claim);
        let start = Barrier::new(9);
        let granted: usize = std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        while state(&ledger, id) == ApprovalState::Pending {
                            std::thread::yield_now();
                        }
                        match ledger.claim(&claim.clone().needs_approval()).unwrap() {
                            Claimed::Granted(grant) => {
                                let _ = grant.complete("x").unwrap();
                                1
                            }
                            Claimed::InProgress(_) | Claimed::AlreadyDone(_) => 0,
                            other => panic!("{other:?}"),
                        }
                    })
                })
                .collect();
            start.wait();
            let _ = ledger.approve(id, "ana").unwrap();
            waiters.into_iter().map(|waiter| waiter.join().unwrap()).sum()
        });
        assert_eq!(granted, 1);
    }
    println!("{ROUNDS} rounds of 8 waiters: {ROUNDS} claims");
}

/// A resolution was read, then written: both answers were recorded. (1,000 races are in `threads`.)
#[test]
fn case_81_one_first_decision_is_recorded() {
    let place = Place::memory();
    let ledger = place.open();
    let id = asked(&ledger, &claim("a"));
    let _ = ledger.deny(id, "ben", "").unwrap();
    assert!(matches!(ledger.approve(id, "ana").unwrap(), Decision::Conflict(_)));
    let decided = ledger.approval(id).unwrap().unwrap().decisions;
    assert_eq!(decided.iter().map(|line| line.what).collect::<Vec<_>>(), ["requested", "denied"]);
}

/// The approval was consumed and the effect done, then the run failed; the retry looked new.
#[test]
fn case_83_a_retry_after_the_effect_is_already_done_and_the_approval_stays_spent() {
    for place in Place::all() {
        let ledger = place.open();
        let claim = claim("a");
        let id = approved(&ledger, &claim);
        put(&ledger, "budget", "10");
        let version = ledger.cell("budget").unwrap().unwrap().version;
        let tx = |ledger: &Ledger| {
            let tx = ledger.transaction().claim(claim.clone()).spend(id);
            tx.expect_cell("budget", version).set_cell("budget", "9")
        };
        let mut done = committed(tx(&ledger));
        let _ = done.grants.remove(0).complete("refunded").unwrap();
        // The run fails here, and is tried again with what it knew.
        let ledger = place.reopen(ledger);
        let told = refused(tx(&ledger));
        let [Refusal::Claim { index: 0, stands: Claimed::AlreadyDone(stored) }, Refusal::Cell { name, stands }] =
            told.as_slice()
        else {
            panic!("{told:?}")
        };
        assert_eq!(stored.outcome().unwrap().body(), b"refunded");
        assert_eq!((name.as_str(), stands.as_ref().unwrap().value.body()), ("budget", &b"9"[..]));
        assert!(matches!(ledger.claim(&claim.clone().approved_by(id)).unwrap(), Claimed::AlreadyDone(_)));
        assert_eq!(state(&ledger, id), ApprovalState::Spent);
        ledger.close().unwrap();
    }
}

/// The approval was ignored when a context object was passed. Nothing but the key and the arguments
/// counts, however the claim was made.
#[test]
fn case_85_the_look_up_depends_on_the_ledger_alone() {
    let ways: [&dyn Fn(Claim) -> Claim; 6] = [
        &|claim| claim,
        &|claim| claim.label("with a context"),
        &|claim| claim.lease(seconds(5)),
        &|claim| claim.keep(seconds(5)).remember(Keep::Forever),
        &|claim| claim.recovery(Recovery::Resend { window: seconds(60) }),
        &|claim| claim.wait(seconds(1)),
    ];
    let texts = [r#"{"amount":79,"to":"a"}"#, r#"{ "to": "a", "amount": 79.0 }"#];
    for (number, way) in ways.iter().enumerate() {
        for place in Place::all() {
            let ledger = place.open();
            let key = || key(&number.to_string());
            let asked = way(Claim::from_json(key(), texts[0]).unwrap());
            let plain = Claim::from_json(key(), texts[1]).unwrap();
            let id = approved(&ledger, &asked);
            assert_eq!(ledger.request(&ApprovalRequest::new(&plain, "other words")).unwrap().id, id);
            let ledger = place.reopen(ledger);
            let grant = granted(ledger.clone().claim(&plain.needs_approval()).unwrap());
            assert_eq!(ledger.approval(id).unwrap().unwrap().spent_by, Some(grant.token()));
            let _ = grant.release().unwrap();
            let asked = granted(ledger.claim(&asked.needs_approval()).unwrap());
            let _ = asked.complete("x").unwrap();
            ledger.close().unwrap();
        }
    }
}

/// Side work was done before the row was flipped; a double click did it twice.
#[test]
fn case_87_the_flip_comes_first_and_a_double_click_notifies_once() {
    let place = Place::memory().threaded();
    let ledger = place.open();
    for round in 0..100 {
        let id = asked(&ledger, &claim(&round.to_string()));
        let start = Barrier::new(4);
        let notified: usize = std::thread::scope(|scope| {
            let clicks: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        match ledger.approve(id, "ana").unwrap() {
                            // On disk by now: only this one goes on to notify.
                            Decision::Applied(approval) => {
                                assert_eq!(approval.state, ApprovalState::Approved);
                                1
                            }
                            Decision::Same(_) => 0,
                            Decision::Conflict(stands) => panic!("{stands:?}"),
                        }
                    })
                })
                .collect();
            clicks.into_iter().map(|click| click.join().unwrap()).sum()
        });
        assert_eq!(notified, 1);
        assert_eq!(ledger.approval(id).unwrap().unwrap().decisions.len(), 2);
    }
}
