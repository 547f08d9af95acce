//! A resend goes on for an attempt that may have had its effect. That it did nothing itself says nothing of that one.

use std::task::Waker;

use onceledger::{ApprovalRequest, ApprovalState, Claim, Recovery, Settled};

use crate::futures::poll;
use crate::kit::*;

fn resend(part: &str) -> Claim {
    claim(part).recovery(Recovery::Resend { window: HOUR })
}

/// P2: a resend that was granted, and whose future was dropped before it was ready, leaves the key as it was: in doubt.
#[test]
fn p2_a_resend_that_nobody_took_leaves_the_doubt() {
    let place = Place::memory();
    let ledger = place.create();
    drop(grant(&ledger, &resend("k")));
    ledger.tick();
    assert_eq!(standing(&ledger, "k"), "uncertain");
    let again = resend("k");
    let mut future = Box::pin(ledger.claim_async(&again));
    assert!(poll(future.as_mut(), Waker::noop()).is_pending());
    ledger.tick();
    assert_eq!(standing(&ledger, "k"), "in_progress");
    drop(future);
    ledger.tick();
    assert_eq!(refused(&ledger, &claim("k")), "uncertain", "{:?}", past(&ledger, "k"));
}

/// P2: a resend that is released is in doubt as before: sent again inside the window, held after it.
#[test]
fn p2_a_released_resend_is_held_after_the_window() {
    on_every_backend(|place| {
        let ledger = place.create();
        drop(grant(&ledger, &resend("k")));
        place.clock.advance(MINUTE);
        let second = grant(&ledger, &resend("k"));
        let ticket = second.ticket();
        assert_eq!(second.release().unwrap(), Settled::Applied);
        assert_eq!(ticket.settle(&ledger, onceledger::Settlement::not_applied("again")).unwrap(), Settled::Same);
        let third = grant(&ledger, &resend("k"));
        assert_eq!(third.attempt(), 3);
        assert_eq!(third.release().unwrap(), Settled::Applied);
        ledger.close().unwrap();
        place.clock.advance(2 * HOUR);
        let ledger = place.open();
        assert_eq!(refused(&ledger, &resend("k")), "uncertain", "run outside the window: {:?}", past(&ledger, "k"));
        // A decision frees it.
        let _ = not_done(&ledger, "k", third_token(&ledger));
        let fourth = grant(&ledger, &resend("k"));
        assert_eq!(fourth.release().unwrap(), Settled::Applied);
        assert_eq!(standing(&ledger, "k"), "vacant");
    });
}

fn third_token(ledger: &onceledger::Ledger) -> onceledger::FencingToken {
    doubt(ledger, "k").token
}

/// P8: the yes that the first attempt spent stays spent: that attempt may have had its effect.
#[test]
fn p8_a_released_resend_keeps_the_approval_spent() {
    let place = Place::memory();
    let ledger = place.create();
    let of = || {
        let args = serde_json::json!({"amount": 79});
        Claim::new(key("k"), &args).unwrap().recovery(Recovery::Resend { window: HOUR })
    };
    let id = ledger.request(&ApprovalRequest::new(&of(), "x")).unwrap().id;
    let _ = ledger.approve(id, "ana").unwrap();
    drop(grant(&ledger, &of().approved_by(id)));
    assert_eq!(grant(&ledger, &of()).release().unwrap(), Settled::Applied);
    assert_eq!(ledger.approval(id).unwrap().unwrap().state, ApprovalState::Spent);
}
