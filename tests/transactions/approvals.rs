//! Approvals: asked for, decided, spent once, given back, expired, redacted (P8).

use onceledger::*;

use crate::kit::*;

#[test]
fn the_first_decision_stands_and_a_deny_revokes_it() {
    for place in Place::all() {
        let ledger = place.open();
        let one = asked(&ledger, &claim("a"));
        assert!(matches!(ledger.approve(one, "ana").unwrap(), Decision::Applied(_)));
        assert!(matches!(ledger.approve(one, "ben").unwrap(), Decision::Same(_)));
        let Decision::Applied(denied) = ledger.deny(one, "eve", "no").unwrap() else { panic!() };
        assert_eq!(denied.state, ApprovalState::Denied);
        assert!(matches!(ledger.deny(one, "ben", "").unwrap(), Decision::Same(_)));
        let before = position(&ledger);
        let Decision::Conflict(stands) = ledger.approve(one, "ana").unwrap() else { panic!("a no was turned") };
        assert_eq!(stands.state, ApprovalState::Denied);
        assert!(matches!(ledger.withdraw(one, "bot").unwrap(), Decision::Conflict(_)));
        assert_eq!(position(&ledger), before);
        let two = asked(&ledger, &claim("b"));
        assert!(matches!(ledger.withdraw(two, "bot").unwrap(), Decision::Applied(_)));
        assert!(matches!(ledger.withdraw(two, "bot").unwrap(), Decision::Same(_)));
        assert!(matches!(ledger.approve(two, "ana").unwrap(), Decision::Conflict(_)));
        assert!(matches!(ledger.deny(two, "ana", "").unwrap(), Decision::Conflict(_)));
        let ledger = place.reopen(ledger);
        assert!(matches!(ledger.approve(one, "ana").unwrap(), Decision::Conflict(_)));
        assert!(matches!(ledger.claim(&claim("a").needs_approval()).unwrap(), Claimed::NotApproved(_)));
        ledger.close().unwrap();
    }
}

#[test]
fn asking_again_gives_the_same_request_while_it_is_worth_something() {
    let place = Place::memory();
    let ledger = place.open();
    let request = ApprovalRequest::new(&claim("a"), "please").by("bot").valid_for(seconds(60));
    let ask = |again: bool| {
        let request = if again { request.clone().again() } else { request.clone() };
        ledger.request(&request).unwrap()
    };
    let first = ask(false).id;
    assert_eq!((ask(false).id, ask(true).id), (first, first), "pending");
    let _ = ledger.approve(first, "ana").unwrap();
    assert_eq!((ask(false).id, ask(true).id), (first, first), "approved");
    let _ = ledger.deny(first, "ana", "").unwrap();
    let before = position(&ledger);
    let denied = ask(false);
    assert_eq!((denied.id, denied.state), (first, ApprovalState::Denied));
    assert_eq!(position(&ledger), before, "a repeat wrote something");
    let second = ask(true);
    assert!(second.id > first && second.state == ApprovalState::Pending);
    place.clock.advance(seconds(61));
    assert_eq!(ask(false).state, ApprovalState::Expired);
    let third = ask(true).id;
    assert!(third > second.id);
    let _ = ledger.withdraw(third, "bot").unwrap();
    assert_eq!(ask(false).state, ApprovalState::Withdrawn);
    let fourth = ask(true).id;
    let _ = ledger.approve(fourth, "ana").unwrap();
    let grant = granted(ledger.claim(&claim("a").needs_approval()).unwrap());
    assert_eq!((ask(false).id, ask(false).state), (fourth, ApprovalState::Spent));
    let _ = grant.complete("done").unwrap();
    assert_eq!(ask(false).state, ApprovalState::Spent);
    // Other arguments of the same key are another request.
    let other = Claim::new(key("a"), &serde_json::json!({"amount": 80})).unwrap();
    assert!(asked(&ledger, &other) > fourth);
}

#[test]
fn a_claim_that_needs_a_yes_is_told_what_stands() {
    let place = Place::memory();
    let ledger = place.open();
    let needs = claim("a").needs_approval();
    let stands = || match ledger.claim(&needs).unwrap() {
        Claimed::NotApproved(stands) => stands.approval.map(|approval| (approval.id, approval.state)),
        other => panic!("{other:?}"),
    };
    assert_eq!(stands(), None);
    let id = asked(&ledger, &claim("a"));
    assert_eq!(stands(), Some((id, ApprovalState::Pending)));
    let _ = ledger.deny(id, "ana", "").unwrap();
    assert_eq!(stands(), Some((id, ApprovalState::Denied)));
    let id = ledger.request(&ApprovalRequest::new(&claim("a"), "x").again().valid_for(seconds(1))).unwrap().id;
    place.clock.advance(seconds(1));
    assert_eq!(stands(), Some((id, ApprovalState::Expired)));
    let id = ledger.request(&ApprovalRequest::new(&claim("a"), "x").again()).unwrap().id;
    let _ = ledger.approve(id, "ana").unwrap();
    drop(granted(ledger.claim(&needs).unwrap()));
    // The standing comes before the approval.
    assert!(matches!(ledger.claim(&needs).unwrap(), Claimed::Uncertain(_)));
    let doubt = ledger.uncertain().unwrap().remove(0);
    let _ = ledger.resolve(&doubt, Verdict::NotDone, "ops", "looked").unwrap();
    assert_eq!(state(&ledger, id), ApprovalState::Approved);
    let _ = granted(ledger.claim(&needs).unwrap()).complete("x").unwrap();
    // Mismatch before standing before approval, in a transaction too.
    let other = Claim::new(key("a"), &serde_json::json!({"amount": 1})).unwrap();
    assert!(matches!(ledger.claim(&other.clone().needs_approval()).unwrap(), Claimed::Mismatch(_)));
    let told = refused(ledger.transaction().claim(other.needs_approval()));
    assert!(matches!(&told[0], Refusal::Claim { index: 0, stands: Claimed::Mismatch(_) }));
    let told = refused(ledger.transaction().claim(needs.clone()));
    assert!(matches!(&told[0], Refusal::Claim { index: 0, stands: Claimed::AlreadyDone(_) }));
}

/// The approver saw X; body Y has the same key and the same fingerprint, and is refused.
#[test]
fn a_yes_to_one_body_does_not_let_another_through() {
    for place in Place::all() {
        let ledger = place.open();
        let (x, y) = (noted("o", "x"), noted("o", "y"));
        assert_eq!((x.key(), x.fingerprint()), (y.key(), y.fingerprint()));
        assert_ne!(x.args_digest(), y.args_digest());
        let id = approved(&ledger, &x);
        let before = position(&ledger);
        assert!(matches!(ledger.claim(&y.clone().needs_approval()).unwrap(), Claimed::NotApproved(_)));
        assert!(matches!(ledger.claim(&y.clone().approved_by(id)).unwrap(), Claimed::NotApproved(_)));
        let told = refused(ledger.transaction().claim(y).spend(id).expect_absent("c").set_cell("c", "1"));
        assert!(matches!(told.as_slice(), [Refusal::Claim { index: 0, stands: Claimed::NotApproved(_) }]));
        assert_eq!(position(&ledger), before);
        assert_eq!(state(&ledger, id), ApprovalState::Approved);
        // Another key with the same arguments is no better.
        let other = noted("p", "x").approved_by(id);
        assert!(matches!(ledger.claim(&other).unwrap(), Claimed::NotApproved(_)));
        assert_eq!(granted(ledger.claim(&x.approved_by(id)).unwrap()).attempt(), 1);
        assert_eq!(state(&ledger, id), ApprovalState::Spent);
        ledger.close().unwrap();
    }
}

/// One way in which a grant ends.
type End<'a> = &'a dyn Fn(&Ledger, Grant);

#[test]
fn a_deny_while_it_is_spent_takes_effect_when_it_comes_back() {
    for place in Place::all() {
        let ledger = place.open();
        let ends: [End; 3] = [
            &|_, grant| assert_eq!(grant.release().unwrap(), Settled::Applied),
            &|ledger, grant| {
                drop(grant);
                let doubt = ledger.uncertain().unwrap().remove(0);
                assert_eq!(ledger.resolve(&doubt, Verdict::NotDone, "ops", "no").unwrap(), Resolved::Applied);
            },
            &|ledger, grant| {
                let (key, token) = (grant.key().clone(), grant.token());
                let resolved = ledger.resolve_token(&key, token, Verdict::NotDone, "ops", "no", true).unwrap();
                assert_eq!(resolved, Resolved::Applied);
                assert!(matches!(grant.release().unwrap(), Settled::Same | Settled::Lost(_)));
            },
        ];
        for (number, end) in ends.iter().enumerate() {
            let claim = claim(&number.to_string());
            let id = approved(&ledger, &claim);
            let grant = granted(ledger.claim(&claim.clone().needs_approval()).unwrap());
            let Decision::Applied(stands) = ledger.deny(id, "ben", "stop").unwrap() else { panic!() };
            assert_eq!(stands.state, ApprovalState::Spent);
            end(&ledger, grant);
            assert_eq!(state(&ledger, id), ApprovalState::Denied);
            let Claimed::NotApproved(stands) = ledger.claim(&claim.needs_approval()).unwrap() else {
                panic!("a spend after a recorded deny")
            };
            assert_eq!(stands.approval.unwrap().state, ApprovalState::Denied);
        }
        ledger.close().unwrap();
    }
}

#[test]
fn what_comes_back_has_its_old_deadline() {
    for place in Place::all() {
        let ledger = place.open();
        let claim = claim("a");
        let id = ledger.request(&ApprovalRequest::new(&claim, "x").valid_for(seconds(100))).unwrap().id;
        let _ = ledger.approve(id, "ana").unwrap();
        let deadline = ledger.approval(id).unwrap().unwrap().deadline_ms;
        place.clock.advance(seconds(40));
        drop(granted(ledger.claim(&claim.clone().needs_approval()).unwrap()));
        place.clock.advance(seconds(40));
        let doubt = ledger.uncertain().unwrap().remove(0);
        let _ = ledger.resolve(&doubt, Verdict::NotDone, "ops", "looked").unwrap();
        let back = ledger.approval(id).unwrap().unwrap();
        assert_eq!((back.state, back.deadline_ms), (ApprovalState::Approved, deadline), "{}", place.name);
        let grant = granted(ledger.claim(&claim.clone().needs_approval()).unwrap());
        place.clock.advance(seconds(20));
        let _ = grant.release().unwrap();
        assert_eq!(state(&ledger, id), ApprovalState::Expired);
        assert!(matches!(ledger.claim(&claim.needs_approval()).unwrap(), Claimed::NotApproved(_)));
        ledger.close().unwrap();
    }
}

/// An approval must not be kept open late by any clock (P11).
#[test]
fn it_expires_by_the_faster_clock_and_does_not_come_to_life_again() {
    for place in Place::all() {
        let ledger = place.open();
        let ask = |part: &str| {
            let request = ApprovalRequest::new(&claim(part), "x").valid_for(seconds(100));
            let id = ledger.request(&request).unwrap().id;
            let _ = ledger.approve(id, "ana").unwrap();
            id
        };
        let id = ask("boot");
        place.clock.advance_boot(seconds(99));
        assert_eq!(state(&ledger, id), ApprovalState::Approved);
        place.clock.advance_boot(seconds(1));
        assert_eq!(state(&ledger, id), ApprovalState::Expired);
        let id = ask("wall");
        place.clock.jump_wall_ms(100_000);
        assert_eq!(state(&ledger, id), ApprovalState::Expired);
        place.clock.jump_wall_ms(-100_000);
        assert_eq!(state(&ledger, id), ApprovalState::Expired);
        assert!(matches!(ledger.claim(&claim("wall").needs_approval()).unwrap(), Claimed::NotApproved(_)));
        assert!(matches!(ledger.approve(id, "ana").unwrap(), Decision::Same(_)));
        let pending = ledger.request(&ApprovalRequest::new(&claim("late"), "x").valid_for(seconds(10))).unwrap().id;
        place.clock.advance(seconds(10));
        assert!(matches!(ledger.approve(pending, "ana").unwrap(), Decision::Conflict(_)));
        let id = ask("back");
        place.clock.jump_wall_ms(-1_000_000);
        place.clock.advance(seconds(99));
        assert_eq!(state(&ledger, id), ApprovalState::Approved);
        let ledger = place.reopen(ledger);
        place.clock.advance(seconds(1));
        assert_eq!(state(&ledger, id), ApprovalState::Expired);
        place.clock.jump_wall_ms(-1_000_000);
        let ledger = place.reopen(ledger);
        assert_eq!(state(&ledger, id), ApprovalState::Expired);
        ledger.close().unwrap();
    }
}

#[test]
fn a_reboot_does_not_keep_it_open() {
    let place = Place::faulty();
    let ledger = place.open();
    let id = ledger.request(&ApprovalRequest::new(&claim("a"), "x").valid_for(seconds(100))).unwrap().id;
    let _ = ledger.approve(id, "ana").unwrap();
    ledger.close().unwrap();
    place.clock.reboot(seconds(100));
    let ledger = place.open();
    assert_eq!(state(&ledger, id), ApprovalState::Expired);
}

#[test]
fn redaction_drops_what_was_shown_and_keeps_the_decision() {
    const SECRET: &str = "card number 4111 1111 1111 1111";
    for place in Place::all() {
        let ledger = place.open();
        let id = ledger.request(&ApprovalRequest::new(&claim("a"), SECRET)).unwrap().id;
        let _ = ledger.approve(id, "ana").unwrap();
        assert_eq!(ledger.approval(id).unwrap().unwrap().shown.unwrap().as_str(), Some(SECRET));
        assert!(matches!(ledger.redact(id, "dpo").unwrap(), Decision::Applied(_)));
        assert!(matches!(ledger.redact(id, "dpo").unwrap(), Decision::Same(_)));
        let ledger = place.reopen(ledger);
        let approval = ledger.approval(id).unwrap().unwrap();
        assert_eq!((approval.shown, approval.state), (None, ApprovalState::Approved));
        assert_eq!(approval.decisions.last().map(|line| (line.what, line.by.as_str())), Some(("redacted", "dpo")));
        move_everything(&ledger);
        assert_eq!(ledger.approval(id).unwrap().unwrap().shown, None);
        assert_eq!(granted(ledger.claim(&claim("a").needs_approval()).unwrap()).attempt(), 1);
        ledger.close().unwrap();
    }
}

#[test]
fn approvals_are_listed_in_order_by_state_and_page() {
    let place = Place::memory();
    let ledger = place.open();
    let ids: Vec<ApprovalId> = (0..9).map(|number| asked(&ledger, &claim(&number.to_string()))).collect();
    for id in &ids[..3] {
        let _ = ledger.approve(*id, "ana").unwrap();
    }
    let listed = |state, after, limit| -> Vec<ApprovalId> {
        ledger.approvals(state, after, limit).unwrap().into_iter().map(|approval| approval.id).collect()
    };
    assert_eq!(listed(None, None, 100), ids);
    assert_eq!(listed(None, Some(ids[3]), 2), ids[4..6]);
    assert_eq!(listed(Some(ApprovalState::Pending), None, 100), ids[3..]);
    assert_eq!(listed(Some(ApprovalState::Approved), Some(ids[0]), 100), ids[1..3]);
    assert_eq!(listed(None, Some(ids[8]), 100), []);
    assert_eq!(listed(None, None, 0), []);
}

/// A repeat after a crash names the approval that its first try spent. It must hear what became of
/// the key for as long as the key is remembered, swept or not.
#[test]
fn a_spent_approval_is_remembered_as_long_as_its_key() {
    for sweep in [false, true] {
        let place = Place::memory();
        let ledger = place.open();
        let claim = claim("a").remember(seconds(1000));
        let request = ApprovalRequest::new(&claim, "x").valid_for(seconds(10));
        let id = ledger.request(&request).unwrap().id;
        let _ = ledger.approve(id, "ana").unwrap();
        let grant = granted(ledger.claim(&claim.clone().approved_by(id)).unwrap());
        place.clock.advance(seconds(1500));
        if sweep {
            move_everything(&ledger);
        }
        assert_eq!(state(&ledger, id), ApprovalState::Spent);
        let _ = grant.complete("paid").unwrap();
        place.clock.advance(seconds(999));
        if sweep {
            move_everything(&ledger);
        }
        let told = refused(ledger.transaction().claim(claim.clone()).spend(id));
        assert!(matches!(&told[0], Refusal::Claim { stands: Claimed::AlreadyDone(_), .. }), "{told:?}");
        place.clock.advance(seconds(1));
        if sweep {
            move_everything(&ledger);
        }
        // Both are forgotten at once, swept or not (P10).
        assert_eq!(ledger.check(claim.key()).unwrap(), View::Vacant);
        assert_eq!(ledger.approval(id).unwrap(), None, "sweep: {sweep}");
        assert_eq!(ledger.approvals(None, None, 10).unwrap(), []);
        assert!(matches!(ledger.claim(&claim.clone().needs_approval()).unwrap(), Claimed::NotApproved(_)));
        assert!(ledger.approve(id, "ana").is_err());
        assert_eq!(ledger.request(&request).unwrap().state, ApprovalState::Pending);
    }
}

/// Requests that nobody answers must not stay for ever (case 99): there is no other garbage here.
#[test]
fn requests_that_nobody_answers_are_forgotten() {
    const REQUESTS: usize = 3000;
    let place = Place::memory();
    let ledger = place.open();
    for number in 0..REQUESTS {
        let claim = claim(&number.to_string()).remember(seconds(100));
        let _ = ledger.request(&ApprovalRequest::new(&claim, "x").valid_for(seconds(10))).unwrap();
    }
    let before = ledger.stats().unwrap().rows;
    let ledger = place.reopen(ledger);
    place.clock.advance(seconds(200));
    assert_eq!(ledger.approvals(None, None, 10).unwrap(), []);
    for _ in 0..200 {
        let _ = ledger.sweep(4096).unwrap();
    }
    let after = ledger.stats().unwrap().rows;
    println!("{before} rows, {after} after the sweeps");
    assert!(after < before / 2);
    assert_eq!(ledger.verify().unwrap().bodies, 0);
    let ledger = place.reopen(ledger);
    assert_eq!(ledger.approvals(None, None, 10).unwrap(), []);
    ledger.verify().unwrap();
}
