//! What a transaction or a request must never be: each a typed error that writes nothing.

use std::time::Duration;

use onceledger::*;

use crate::kit::*;

/// Runs `call`, which must be refused as bad input and leave the log as it was.
#[track_caller]
fn check<T: std::fmt::Debug>(ledger: &Ledger, what: &str, call: impl FnOnce() -> Result<T>) {
    let before = position(ledger);
    let error = call().expect_err(what);
    assert_eq!(error.kind(), ErrorKind::BadInput, "{what}: {error}");
    assert_eq!(position(ledger), before, "{what} wrote something");
}

#[test]
fn every_bad_transaction_is_typed_and_writes_nothing() {
    for place in Place::all() {
        let ledger = place.open();
        let claim_a = claim("a");
        let id = approved(&ledger, &claim_a);
        let version = put(&ledger, "cell", "1");
        let mut seen = 0;
        let mut bad = |what: &str, build: &dyn Fn(Transaction) -> Transaction| {
            seen += 1;
            check(&ledger, what, || build(ledger.transaction()).commit());
        };
        bad("key twice", &|tx| tx.claim(claim("a")).claim(claim("a")));
        bad("key twice under two claims", &|tx| tx.claim(claim("a")).claim(Claim::unguarded(key("a"))));
        bad("cell expected twice", &|tx| tx.expect_cell("cell", version).expect_cell("cell", version));
        bad("cell expected twice, then set", &|tx| {
            tx.expect_cell("cell", version).expect_absent("cell").set_cell("cell", "2")
        });
        bad("cell set, then expected twice", &|tx| {
            tx.set_cell("cell", "2").expect_cell("cell", version).expect_cell("cell", version)
        });
        bad("cell set twice", &|tx| tx.expect_cell("cell", version).set_cell("cell", "2").set_cell("cell", "3"));
        bad("cell set and deleted", &|tx| tx.expect_cell("cell", version).set_cell("cell", "2").delete_cell("cell"));
        bad("cell deleted twice", &|tx| tx.expect_cell("cell", version).delete_cell("cell").delete_cell("cell"));
        bad("approval spent twice", &|tx| tx.claim(claim("a")).spend(id).spend(id));
        bad("approval named by claim and spend", &|tx| tx.claim(claim("a").approved_by(id)).spend(id));
        bad("approval named by two claims", &|tx| {
            tx.claim(claim("a").approved_by(id)).claim(claim("b").approved_by(id))
        });
        bad("approval named by spend and another claim", &|tx| {
            tx.claim(claim("a")).claim(claim("b").approved_by(id)).spend(id)
        });
        bad("spend without claim", &|tx| tx.spend(id));
        bad("spend with the claim of another key", &|tx| tx.claim(claim("b")).spend(id));
        bad("spend of an approval that never was", &|tx| tx.claim(claim("a")).spend(ApprovalId::from_number(9999)));
        bad("set without expect", &|tx| tx.set_cell("cell", "2"));
        bad("delete without expect", &|tx| tx.delete_cell("cell"));
        bad("delete of what is absent", &|tx| tx.expect_absent("nothing").delete_cell("nothing"));
        bad("waiting inside", &|tx| tx.claim(claim("a").wait(seconds(1))));
        bad("waiting by default inside", &|tx| tx.claim(claim("a").wait_default()));
        bad("probing inside", &|tx| {
            tx.claim(claim("a").recovery(Recovery::Reconcile(Probe::new(|_| Finding::Unknown))))
        });
        bad("zero lease inside", &|tx| tx.claim(claim("a").lease(Duration::ZERO)));
        bad("remembered for no time", &|tx| tx.claim(claim("a").remember(Duration::ZERO)));
        bad("unguarded claim that needs an approval", &|tx| tx.claim(Claim::unguarded(key("a")).needs_approval()));
        bad("unguarded claim that spends", &|tx| tx.claim(Claim::unguarded(key("a"))).spend(id));
        bad("cell without a name", &|tx| tx.expect_absent("").set_cell("", "2"));
        let long = "n".repeat(Cell::NAME_BYTES_MAX + 1);
        bad("name too long", &|tx| tx.expect_absent(&long));
        // 128 letters of two bytes each: the limit is in bytes.
        let wide = "ä".repeat(Cell::NAME_BYTES_MAX.div_ceil(2));
        bad("name too long in bytes", &|tx| tx.expect_absent(&wide));
        let large = "v".repeat(Cell::VALUE_BYTES_MAX + 1);
        bad("value too large", &|tx| tx.expect_absent("large").set_cell("large", large.as_str()));
        bad("too many members", &|mut tx| {
            for number in 0..=Transaction::MEMBERS_MAX {
                tx = tx.expect_absent(number.to_string());
            }
            tx
        });
        bad("too many claims and cells together", &|mut tx| {
            for number in 0..Transaction::MEMBERS_MAX {
                tx = tx.claim(claim(&number.to_string()));
            }
            tx.expect_absent("one")
        });
        // A good member beside a bad one is not applied either.
        bad("good members beside a bad one", &|tx| {
            tx.claim(claim("c")).expect_absent("good").set_cell("good", "1").set_cell("cell", "2")
        });
        assert!(ledger.cell("good").unwrap().is_none());
        assert_eq!(ledger.check(&key("c")).unwrap(), View::Vacant);
        assert_eq!(state(&ledger, id), ApprovalState::Approved);
        assert_eq!(seen, 32);
        println!("{}: {seen} bad transactions refused", place.name);
        ledger.close().unwrap();
    }
}

#[test]
fn a_transaction_inside_the_effect_of_one_of_its_keys_is_refused_and_not_a_deadlock() {
    let place = Place::memory();
    let ledger = place.open();
    let answer = ledger.once(&claim("a"), |_| {
        let error = ledger.transaction().claim(claim("b")).claim(claim("a")).commit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Reentrant);
        Ok::<_, EffectError>("done")
    });
    assert!(matches!(answer.unwrap(), Answer::Done(_)));
    assert_eq!(ledger.check(&key("b")).unwrap(), View::Vacant);
}

#[test]
fn limits_are_inclusive_and_a_transaction_of_the_most_members_commits() {
    let place = Place::memory();
    let ledger = place.open();
    let name = "n".repeat(Cell::NAME_BYTES_MAX);
    let value = "v".repeat(Cell::VALUE_BYTES_MAX);
    let _ = committed(ledger.transaction().expect_absent(&name).set_cell(&name, value.as_str()));
    assert_eq!(ledger.cell(&name).unwrap().unwrap().value.body().len(), Cell::VALUE_BYTES_MAX);
    let mut tx = ledger.transaction();
    for number in 0..Transaction::MEMBERS_MAX / 2 {
        tx = tx.claim(claim(&number.to_string())).expect_absent(number.to_string()).set_cell(number.to_string(), "1");
    }
    assert_eq!(committed(tx).grants.len(), Transaction::MEMBERS_MAX / 2);
    let empty = committed(ledger.transaction());
    assert!(empty.grants.is_empty() && empty.versions.is_empty());
}

#[test]
fn every_bad_request_and_decision_is_typed_and_writes_nothing() {
    let place = Place::memory();
    let ledger = place.open();
    let id = asked(&ledger, &claim("a"));
    let request = |shown: &str| ApprovalRequest::new(&claim("b"), shown);
    check(&ledger, "no arguments", || ledger.request(&ApprovalRequest::new(&Claim::unguarded(key("b")), "x")));
    check(&ledger, "zero deadline", || ledger.request(&request("x").valid_for(Duration::ZERO)));
    check(&ledger, "deadline beyond any clock", || ledger.request(&request("x").valid_for(Duration::MAX)));
    let large = "s".repeat(ApprovalRequest::SHOWN_BYTES_MAX + 1);
    check(&ledger, "too much to show", || ledger.request(&request(&large)));
    check(&ledger, "a requester's name like a book", || ledger.request(&request("x").by("b".repeat(5000))));
    check(&ledger, "approved by nobody", || ledger.approve(id, " "));
    check(&ledger, "denied by nobody", || ledger.deny(id, "", "why"));
    check(&ledger, "a reason like a book", || ledger.deny(id, "ana", &"w".repeat(5000)));
    check(&ledger, "withdrawn by nobody", || ledger.withdraw(id, ""));
    check(&ledger, "redacted by nobody", || ledger.redact(id, ""));
    let nobody = ApprovalId::from_number(999);
    check(&ledger, "an approval that never was: approve", || ledger.approve(nobody, "ana"));
    check(&ledger, "an approval that never was: deny", || ledger.deny(nobody, "ana", ""));
    check(&ledger, "an approval that never was: withdraw", || ledger.withdraw(nobody, "ana"));
    check(&ledger, "an approval that never was: redact", || ledger.redact(nobody, "ana"));
    check(&ledger, "a claim without arguments that needs an approval", || {
        ledger.claim(&Claim::unguarded(key("b")).needs_approval())
    });
    check(&ledger, "a cell without a name", || ledger.cell(""));
    check(&ledger, "a cell with a name too long", || ledger.cell(&"n".repeat(256)));
    let shown = "s".repeat(ApprovalRequest::SHOWN_BYTES_MAX);
    let whole = ledger.request(&request(&shown)).unwrap();
    assert_eq!(whole.shown.unwrap().body(), shown.as_bytes());
    assert_eq!(state(&ledger, id), ApprovalState::Pending);
}
