//! The model: which answers it takes for right.

use onceledger::testkit::{Call, Decided, Model, Saw, Stand, Terms};
use onceledger::{Claim, Key, Outcome, Scope};

/// A key whose claim was answered as unknown: vacant still, or in progress under a token that nobody was told.
fn unknown() -> (Model, Key) {
    let claim = Claim::unguarded(Key::action(&Scope::new("acme").unwrap(), "mail", ["ana"]).unwrap());
    let mut model = Model::new();
    model.call(claim.key(), 0, &Call::claim(&claim, Terms::default()), &Saw::Unknown).unwrap();
    (model, claim.key().clone())
}

/// Found by T11: a stale token is told what stands, and then it is known that the token is another.
#[test]
fn a_token_that_is_told_to_hold_nothing_is_not_the_one_that_stands() {
    let stale = [
        Call::Resolve(1, Decided::NotDone, true),
        Call::Complete(1, Outcome::text("sent")),
        Call::Fail(1, Outcome::text("no")),
        Call::Release(1),
        Call::Renew(1, 1000),
    ];
    for call in stale {
        let (mut model, key) = unknown();
        model.call(&key, 0, &call, &Saw::Lost(Stand::InProgress(3))).unwrap();
        model.call(&key, 0, &Call::Check, &Saw::Stands(Stand::InProgress(3))).unwrap();
        // It stands under 3 from then on, and the claim did go through.
        model.call(&key, 0, &Call::Check, &Saw::Stands(Stand::InProgress(4))).unwrap_err();
        model.call(&key, 0, &Call::Check, &Saw::Stands(Stand::Vacant)).unwrap_err();

        // Whoever holds the claim is not told that it holds nothing.
        let (mut model, key) = unknown();
        model.call(&key, 0, &call, &Saw::Lost(Stand::InProgress(1))).unwrap_err();
    }
}
