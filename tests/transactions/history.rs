//! Who decided what, when, in the order in which it happened.

use onceledger::*;

use crate::kit::*;

fn told(ledger: &Ledger, part: &str) -> Vec<&'static str> {
    ledger.history(&key(part)).unwrap().iter().map(|past| past.what.name()).collect()
}

#[test]
fn who_and_when_of_every_decision_is_in_the_history_and_stays_there() {
    for place in Place::all() {
        let ledger = place.open();
        let claim = claim("a");
        let start = ledger.request(&ApprovalRequest::new(&claim, "79 EUR").by("bot")).unwrap();
        place.clock.advance(seconds(10));
        let _ = ledger.approve(start.id, "ana").unwrap();
        place.clock.advance(seconds(10));
        let _ = granted(ledger.claim(&claim.clone().needs_approval()).unwrap()).release().unwrap();
        place.clock.advance(seconds(10));
        let _ = ledger.deny(start.id, "ben", "changed our mind").unwrap();
        let check = |ledger: &Ledger| {
            let approval = ledger.approval(start.id).unwrap().unwrap();
            let at = start.decisions[0].at_ms;
            let lines: Vec<_> = approval
                .decisions
                .iter()
                .map(|line| (line.what, (line.at_ms - at) / 1000, line.by.as_str(), line.why.as_str()))
                .collect();
            let wanted = [
                ("requested", 0, "bot", ""),
                ("approved", 10, "ana", ""),
                ("spent", 20, "", ""),
                ("returned", 20, "", ""),
                ("denied", 30, "ben", "changed our mind"),
            ];
            assert_eq!(lines, wanted, "{}", place.name);
            let wanted = [
                "approval_requested",
                "approved",
                "granted",
                "approval_spent",
                "released",
                "approval_returned",
                "denied",
            ];
            assert_eq!(told(ledger, "a"), wanted);
        };
        check(&ledger);
        let ledger = place.reopen(ledger);
        check(&ledger);
        move_everything(&ledger);
        check(&ledger);
        ledger.close().unwrap();
    }
}

/// The wall clock is set back between two events: the history must not turn around.
#[test]
fn a_wall_clock_that_steps_back_does_not_reorder_the_history() {
    let place = Place::memory();
    let ledger = place.open();
    let claim = claim("a");
    let mut wanted = Vec::new();
    let back = || place.clock.jump_wall_ms(-3_600_000);
    let id = asked(&ledger, &claim);
    wanted.push("approval_requested");
    back();
    let _ = ledger.approve(id, "ana").unwrap();
    wanted.push("approved");
    for _ in 0..3 {
        back();
        let grant = granted(ledger.claim(&claim.clone().needs_approval()).unwrap());
        wanted.extend(["granted", "approval_spent"]);
        back();
        let _ = grant.release().unwrap();
        wanted.extend(["released", "approval_returned"]);
    }
    back();
    let _ = ledger.deny(id, "ben", "").unwrap();
    wanted.push("denied");
    assert_eq!(told(&ledger, "a"), wanted);
}

/// All of it in one millisecond: the order is that of the events.
#[test]
fn events_of_one_millisecond_keep_their_order() {
    let place = Place::memory();
    let ledger = place.open();
    let claim = claim("a");
    let first = approved(&ledger, &claim);
    let grant = granted(ledger.claim(&claim.clone().needs_approval()).unwrap());
    let _ = grant.complete("done").unwrap();
    let second = ledger.request(&ApprovalRequest::new(&claim, "again").again()).unwrap();
    assert_ne!(second.id, first);
    let wanted = ["approval_requested", "approved", "granted", "approval_spent", "done", "approval_requested"];
    assert_eq!(told(&ledger, "a"), wanted);
}

/// A loop that claims and releases under one approval must not make its row grow without end.
#[test]
fn an_approval_that_is_given_back_a_thousand_times_stays_small() {
    let place = Place::memory();
    let ledger = place.open();
    let id = approved(&ledger, &claim("a"));
    let bytes = |ledger: &Ledger| ledger.approval(id).unwrap().unwrap().decisions.len();
    for _ in 0..1000 {
        let _ = granted(ledger.claim(&claim("a").needs_approval()).unwrap()).release().unwrap();
    }
    let decisions = ledger.approval(id).unwrap().unwrap().decisions;
    assert!(bytes(&ledger) <= 64, "{} lines", decisions.len());
    assert_eq!((decisions[0].what, decisions[1].what, decisions[1].by.as_str()), ("requested", "approved", "ana"));
    let last = decisions.last().unwrap();
    assert_eq!((last.what, state(&ledger, id)), ("returned", ApprovalState::Approved));
    let _ = ledger.deny(id, "ben", "enough").unwrap();
    assert_eq!(ledger.approval(id).unwrap().unwrap().decisions.last().unwrap().by, "ben");
}
