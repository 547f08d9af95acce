//! Settles, renewals, releases and verdicts against the fencing token (P4), and what is kept of a loser.

use onceledger::{Outcome, PastWhat, Resolved, Settled, Settlement, Stored, Verdict, View};

use crate::kit::*;

/// Case P9, P4: whoever lost its claim changes nothing, whatever it tries, and is told what stands.
#[test]
fn case_p9_p4_every_settle_renew_and_release_with_a_stale_token_changes_nothing() {
    on_every_backend(|place| {
        type Try = fn(onceledger::Grant) -> Settled;
        let tries: [(&str, Try); 5] = [
            ("complete", |grant| grant.complete("mine").unwrap()),
            ("fail", |grant| grant.fail("mine").unwrap()),
            ("release", |grant| grant.release().unwrap()),
            ("uncertain", |grant| grant.settle(Settlement::uncertain("?")).unwrap()),
            ("renew", |grant| {
                let renewed = grant.renew(HOUR).unwrap();
                let _ = grant.into_ticket();
                renewed
            }),
        ];
        let ledger = place.create();
        for (name, act) in tries {
            let first = grant(&ledger, &claim(name).lease(MINUTE));
            place.clock.advance(HOUR);
            assert_eq!(not_done(&ledger, name, first.token()), Resolved::Applied);
            let second = grant(&ledger, &claim(name));
            let lost = act(first);
            let Settled::Lost(View::InProgress(holder)) = lost else { panic!("{name}: {lost:?}") };
            assert_eq!((holder.token, holder.attempt), (second.token(), 2), "{name}");
            assert_eq!(standing(&ledger, name), "in_progress", "{name}");
            assert_eq!(second.complete("theirs").unwrap(), Settled::Applied, "{name}");
            let View::Done(stored) = ledger.check(&key(name)).unwrap() else { panic!("{name}") };
            assert_eq!(body(&stored), b"theirs", "{name}");
        }
    });
}

/// P4, cases 27 and 29: the late outcome of a holder that lost its claim is evidence, once per token, however
/// often it comes.
#[test]
fn case_27_p4_a_late_outcome_is_kept_as_evidence_once_per_token() {
    on_every_backend(|place| {
        let ledger = place.create();
        let ticket = grant(&ledger, &claim("k").lease(MINUTE)).into_ticket();
        place.clock.advance(2 * MINUTE);
        assert_eq!(reason(&ledger, "k"), onceledger::DoubtReason::Lapsed);
        assert_eq!(refused(&ledger, &claim("k")), "uncertain", "not fresh: the first may still run");
        assert_eq!(not_done(&ledger, "k", ticket.token()), Resolved::Applied);
        let second = grant(&ledger, &claim("k"));
        for _ in 0..3 {
            let late = ticket.settle(&ledger, Settlement::done("charged after all")).unwrap();
            assert!(matches!(late, Settled::Lost(View::InProgress(_))), "{late:?}");
        }
        let _ = ticket.settle(&ledger, Settlement::failed("another story")).unwrap();
        let late: Vec<_> = ledger.history(&key("k")).unwrap();
        let late: Vec<_> = late.iter().filter(|past| past.what == PastWhat::LateDone).collect();
        assert_eq!(late.len(), 1);
        assert_eq!(late[0].token, ticket.token());
        assert_eq!(late[0].outcome, Some(Stored::Kept(Outcome::text("charged after all"))));
        let _ = second.complete("second").unwrap();
        let words: Vec<_> = past(&ledger, "k").into_iter().map(|(_, what)| what.name()).collect();
        assert_eq!(words, ["granted", "resolved_not_done", "granted", "late_done", "done"]);
    });
}

/// Case 29: a frozen holder whom nobody replaced settles as if nothing had been.
#[test]
fn case_29_a_holder_past_its_lease_settles_where_nobody_resolved() {
    on_every_backend(|place| {
        let ledger = place.create();
        for (part, end) in [("done", Settlement::done("x")), ("failed", Settlement::failed("x"))] {
            let held = grant(&ledger, &claim(part).lease(10 * SECOND));
            place.clock.advance(20 * SECOND);
            assert_eq!(standing(&ledger, part), "uncertain");
            assert_eq!(held.settle(end).unwrap(), Settled::Applied);
            assert_eq!(standing(&ledger, part), part);
        }
        let held = grant(&ledger, &claim("released").lease(10 * SECOND));
        place.clock.advance(20 * SECOND);
        assert_eq!(held.release().unwrap(), Settled::Applied);
        assert_eq!(standing(&ledger, "released"), "vacant");
    });
}

/// An uncertain claim by drop takes the same token's late settle too, where nobody resolved.
#[test]
fn p4_the_same_token_settles_its_own_doubt_late() {
    on_every_backend(|place| {
        let ledger = place.create();
        let held = grant(&ledger, &claim("k"));
        let ticket = held.ticket();
        drop(held);
        assert_eq!(standing(&ledger, "k"), "uncertain");
        assert_eq!(ticket.settle(&ledger, Settlement::done("late")).unwrap(), Settled::Applied);
        assert_eq!(refused(&ledger, &claim("k")), "done");
    });
}

/// A settle that says the same again is fine; another one is not, and does not replace the first.
#[test]
fn p4_an_equal_settle_is_the_same_and_another_is_lost() {
    on_every_backend(|place| {
        let ledger = place.create();
        let ticket = grant(&ledger, &claim("k")).into_ticket();
        assert_eq!(ticket.settle(&ledger, Settlement::done("one")).unwrap(), Settled::Applied);
        assert_eq!(ticket.settle(&ledger, Settlement::done("one")).unwrap(), Settled::Same);
        for other in [
            Settlement::done("two"),
            Settlement::done(Outcome::text("one").as_error()),
            Settlement::done(Outcome::binary("one")),
            Settlement::failed("one"),
            Settlement::not_applied(""),
        ] {
            let lost = ticket.settle(&ledger, other.clone()).unwrap();
            assert!(matches!(lost, Settled::Lost(View::Done(_))), "{other:?}: {lost:?}");
        }
        let View::Done(stored) = ledger.check(&key("k")).unwrap() else { panic!() };
        assert_eq!(body(&stored), b"one");
        assert_eq!(past(&ledger, "k").len(), 3, "granted, done, and the first of the others");
    });
}

/// Two outcomes with one length and one CRC are two outcomes: a settle with the other is not «the same», or its
/// evidence is lost and the caller believes a falsehood.
#[test]
fn p4_p6_an_outcome_with_the_same_checksum_is_not_the_same_outcome() {
    let (one, two) = colliding();
    assert!(one != two && one.len() == two.len());
    on_every_backend(|place| {
        let ledger = place.create();
        let ticket = grant(&ledger, &claim("k")).into_ticket();
        assert_eq!(ticket.settle(&ledger, Settlement::done(one.clone())).unwrap(), Settled::Applied);
        let other = ticket.settle(&ledger, Settlement::done(two.clone())).unwrap();
        assert!(matches!(other, Settled::Lost(View::Done(_))), "{other:?}");
        assert_eq!(ticket.settle(&ledger, Settlement::done(one.clone())).unwrap(), Settled::Same);
    });
}

/// Two byte strings of one length with one CRC-32: found by the birthday, a few hundred milliseconds.
fn colliding() -> (Vec<u8>, Vec<u8>) {
    let mut seen = std::collections::HashMap::new();
    for n in 0_u64.. {
        // Spread over all bits, or short strings never collide.
        let text = format!("{:016x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).into_bytes();
        if let Some(other) = seen.insert(crc32fast::hash(&text), text.clone()) {
            return (other, text);
        }
    }
    unreachable!()
}

/// Case 18, P2: resolve is a compare-and-set on the token; acting on an old list changes nothing.
#[test]
fn case_18_a_resolve_from_an_old_list_is_stale_and_changes_nothing() {
    on_every_backend(|place| {
        let ledger = place.create();
        drop(grant(&ledger, &claim("k")));
        let listed = ledger.uncertain().unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(not_done(&ledger, "k", listed[0].token), Resolved::Applied);
        let second = grant(&ledger, &claim("k"));
        let before = past(&ledger, "k");
        for verdict in [Verdict::NotDone, Verdict::Done(None), Verdict::Failed(Some(Outcome::text("x")))] {
            let stale = ledger.resolve(&listed[0], verdict, "ops", "old list").unwrap();
            assert!(matches!(stale, Resolved::Stale(View::InProgress(_))), "{stale:?}");
        }
        assert_eq!(past(&ledger, "k"), before);
        drop(second);
        // The new doubt is another token: the old one is stale still.
        assert!(matches!(not_done(&ledger, "k", listed[0].token), Resolved::Stale(View::Uncertain(_))));
        let future = onceledger::FencingToken::from_number(u64::MAX);
        assert!(matches!(not_done(&ledger, "k", future), Resolved::Stale(_)));
        assert!(matches!(not_done(&ledger, "never claimed", future), Resolved::Stale(View::Vacant)));
    });
}

/// A claim in progress is resolved by force only; its holder's outcome is then evidence.
#[test]
fn p4_force_takes_a_claim_in_progress_and_nothing_less_does() {
    on_every_backend(|place| {
        let ledger = place.create();
        let held = grant(&ledger, &claim("k"));
        let token = held.token();
        assert!(matches!(not_done(&ledger, "k", token), Resolved::Stale(View::InProgress(_))));
        let forced = ledger.resolve_token(&key("k"), token, Verdict::Failed(None), "ops", "pulled the plug", true);
        assert_eq!(forced.unwrap(), Resolved::Applied);
        let lost = held.complete("it worked").unwrap();
        assert!(matches!(lost, Settled::Lost(View::Failed(_))), "{lost:?}");
        let words: Vec<_> = past(&ledger, "k").into_iter().map(|(_, what)| what.name()).collect();
        assert_eq!(words, ["granted", "resolved_failed", "late_done"]);
        assert_eq!(refused(&ledger, &claim("k")), "failed");
    });
}

/// A holder whose effect was resolved as done, with the outcome it then brings, is simply right.
#[test]
fn p4_a_late_outcome_equal_to_the_verdict_is_the_same() {
    on_every_backend(|place| {
        let ledger = place.create();
        let ticket = grant(&ledger, &claim("k").lease(SECOND)).into_ticket();
        place.clock.advance(MINUTE);
        let doubt = doubt(&ledger, "k");
        let verdict = Verdict::Done(Some(Outcome::text("seen at the provider")));
        assert_eq!(ledger.resolve(&doubt, verdict, "ops", "looked").unwrap(), Resolved::Applied);
        assert_eq!(ticket.settle(&ledger, Settlement::done("seen at the provider")).unwrap(), Settled::Same);
    });
}

/// What was settled once is never doubted again: not by a drop, not by a late «unknown».
#[test]
fn p4_a_settled_claim_is_not_made_uncertain_by_its_holder() {
    on_every_backend(|place| {
        let ledger = place.create();
        let ticket = grant(&ledger, &claim("k")).into_ticket();
        let _ = ticket.settle(&ledger, Settlement::done("x")).unwrap();
        let late = ticket.settle(&ledger, Settlement::uncertain("I forgot")).unwrap();
        assert!(matches!(late, Settled::Lost(View::Done(_))));
        drop(ticket);
        assert_eq!(standing(&ledger, "k"), "done");
        assert_eq!(past(&ledger, "k").len(), 2);
    });
}

/// A release by its own holder is no evidence when it is told again after somebody else was granted.
#[test]
fn p4_a_release_told_twice_leaves_no_evidence_of_a_loss() {
    on_every_backend(|place| {
        let ledger = place.create();
        let ticket = grant(&ledger, &claim("k")).into_ticket();
        assert_eq!(ticket.settle(&ledger, Settlement::not_applied("no route")).unwrap(), Settled::Applied);
        assert_eq!(ticket.settle(&ledger, Settlement::not_applied("no route")).unwrap(), Settled::Same);
        let second = grant(&ledger, &claim("k"));
        let _ = ticket.settle(&ledger, Settlement::not_applied("no route")).unwrap();
        let words: Vec<_> = past(&ledger, "k").into_iter().map(|(_, what)| what.name()).collect();
        assert_eq!(words, ["granted", "released", "granted"]);
        drop(second);
    });
}

/// Case P1: a settle without a grant does not compile; a token that was never granted settles nothing.
/// (A ticket of another ledger is refused as bad input.)
#[test]
fn case_p1_a_ticket_settles_only_on_its_own_ledger() {
    let (one, other) = (Place::memory(), Place::memory());
    let (ledger, wrong) = (one.create(), other.create());
    let ticket = grant(&ledger, &claim("k")).into_ticket();
    let error = ticket.settle(&wrong, Settlement::done("x")).unwrap_err();
    assert!(error.is_bad_input(), "{error}");
    assert_eq!(standing(&wrong, "k"), "vacant");
    assert_eq!(ticket.settle(&ledger, Settlement::done("x")).unwrap(), Settled::Applied);
}
