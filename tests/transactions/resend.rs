//! A resend goes on under the approval that was spent, and under nothing else.

use onceledger::*;

use crate::kit::*;

fn resent(order: &str, note: &str) -> Claim {
    noted(order, note).recovery(Recovery::Resend { window: DAY })
}

/// A grant whose holder has dropped it.
#[track_caller]
fn doubtful(ledger: &Ledger, claim: &Claim) {
    drop(granted(ledger.claim(claim).unwrap()));
    assert_eq!(ledger.check(claim.key()).unwrap().standing(), Standing::Uncertain);
}

#[test]
fn a_resend_goes_on_under_the_approval_already_spent() {
    for place in Place::all() {
        let ledger = place.open();
        let claim = resent("o", "x");
        let id = approved(&ledger, &claim);
        doubtful(&ledger, &claim.clone().approved_by(id));
        // Neither a deny nor the deadline stops it: the action was begun under a yes.
        assert!(matches!(ledger.deny(id, "ben", "too late").unwrap(), Decision::Applied(_)));
        place.clock.advance(seconds(60));
        let again = granted(ledger.claim(&claim.clone().needs_approval()).unwrap());
        let approval = ledger.approval(id).unwrap().unwrap();
        assert_eq!((approval.state, approval.spent_by), (ApprovalState::Spent, Some(again.token())));
        // That it did nothing says nothing of the attempt before it: that one's doubt is back, and its yes is spent.
        assert_eq!(again.release().unwrap(), Settled::Applied);
        assert_eq!(ledger.check(claim.key()).unwrap().standing(), Standing::Uncertain);
        assert_eq!(state(&ledger, id), ApprovalState::Spent);
        ledger.close().unwrap();
    }
}

/// The approver saw X. A resend of body Y under that yes is an edited call that nobody approved
/// (case 72).
#[test]
fn a_resend_of_another_body_does_not_go_on_under_the_approval() {
    let place = Place::memory();
    let ledger = place.open();
    let id = approved(&ledger, &resent("o", "x"));
    doubtful(&ledger, &resent("o", "x").approved_by(id));
    let edited = resent("o", "pay somebody else");
    for claim in [edited.clone(), edited.clone().needs_approval(), edited.approved_by(id)] {
        let Claimed::NotApproved(stands) = ledger.claim(&claim).unwrap() else { panic!("ran an edited call") };
        assert_eq!(stands.approval.unwrap().id, id);
    }
    assert_eq!(state(&ledger, id), ApprovalState::Spent);
    assert_eq!(granted(ledger.claim(&resent("o", "x")).unwrap()).attempt(), 2);
}

/// The first attempt needed no yes, the resend asks for one: it is not granted without.
#[test]
fn a_resend_that_needs_an_approval_is_not_granted_where_none_was_spent() {
    let place = Place::memory();
    let ledger = place.open();
    doubtful(&ledger, &resent("o", "x"));
    let Claimed::NotApproved(stands) = ledger.claim(&resent("o", "x").needs_approval()).unwrap() else {
        panic!("granted without a yes")
    };
    assert_eq!(stands.approval, None);
    let id = approved(&ledger, &resent("o", "x"));
    let grant = granted(ledger.claim(&resent("o", "x").needs_approval()).unwrap());
    assert_eq!(ledger.approval(id).unwrap().unwrap().spent_by, Some(grant.token()));
}

#[test]
fn a_resend_inside_a_transaction_goes_on_too() {
    let place = Place::memory();
    let ledger = place.open();
    let claim = resent("o", "x");
    let id = approved(&ledger, &claim);
    doubtful(&ledger, &claim.clone().approved_by(id));
    let done = committed(ledger.transaction().claim(claim).spend(id).expect_absent("c").set_cell("c", "1"));
    assert_eq!(ledger.approval(id).unwrap().unwrap().spent_by, Some(done.grants[0].token()));
}
