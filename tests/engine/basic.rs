use onceledger::*;

fn key(part: &str) -> Key {
    Key::action(&Scope::new("test").unwrap(), "refund", [part]).unwrap()
}

#[test]
fn a_repeat_gets_the_first_outcome_in_memory() {
    let ledger = Ledger::in_memory().unwrap();
    let claim = Claim::new(key("a"), &serde_json::json!({"amount": 1})).unwrap();
    let mut effects = 0;
    for _ in 0..3 {
        let answer = ledger
            .once(&claim, |_| {
                effects += 1;
                Ok::<_, EffectError>("refunded")
            })
            .unwrap();
        match answer {
            Answer::Done(outcome) => assert_eq!(outcome.body(), b"refunded"),
            Answer::AlreadyDone(stored) => assert_eq!(stored.outcome().unwrap().body(), b"refunded"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(effects, 1);
    let other = Claim::new(key("a"), &serde_json::json!({"amount": 2})).unwrap();
    assert!(matches!(ledger.claim(&other).unwrap(), Claimed::Mismatch(_)));
    drop(ledger.claim(&Claim::unguarded(key("b"))).unwrap());
    assert!(matches!(ledger.check(&key("b")).unwrap(), View::Uncertain(_)));
    let doubts = ledger.uncertain().unwrap();
    assert_eq!(doubts.len(), 1);
    assert_eq!(ledger.resolve(&doubts[0], Verdict::NotDone, "ana", "looked").unwrap(), Resolved::Applied);
    assert_eq!(ledger.check(&key("b")).unwrap(), View::Vacant);
    for past in ledger.history(&key("b")).unwrap() {
        println!("{past:?}");
    }
    println!("{:?}", ledger.stats().unwrap());
    println!("{:?}", ledger.verify().unwrap());
    ledger.close().unwrap();
}

#[test]
fn a_reopened_file_remembers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.redb");
    let claim = Claim::unguarded(key("a"));
    {
        let ledger = Ledger::create(&path).unwrap();
        let grant = ledger.claim(&claim).unwrap().granted().unwrap();
        assert_eq!(grant.complete("hello").unwrap(), Settled::Applied);
        std::mem::forget(ledger.claim(&Claim::unguarded(key("b"))).unwrap());
    }
    let ledger = Ledger::open(&path).unwrap();
    let Claimed::AlreadyDone(stored) = ledger.claim(&claim).unwrap() else { panic!() };
    assert_eq!(stored.outcome().unwrap().body(), b"hello");
    println!("{:?}", ledger.show(&key("b")).unwrap());
    assert!(Ledger::open(&path).unwrap_err().is_locked());
    println!("{}", Ledger::open(&path).unwrap_err());
    ledger.close().unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        println!("{:?}", entry.unwrap().path());
    }
}

#[test]
fn a_transaction_with_cell_and_approval_applies_whole() {
    let ledger = Ledger::in_memory().unwrap();
    let claim = Claim::new(key("t"), &serde_json::json!({"amount": 1})).unwrap();
    let asked = ledger.request(&ApprovalRequest::new(&claim, "refund 1").by("bot")).unwrap();
    let Claimed::NotApproved(pending) = ledger.claim(&claim.clone().needs_approval()).unwrap() else { panic!() };
    assert_eq!(pending.approval.unwrap().state, ApprovalState::Pending);
    assert!(matches!(ledger.approve(asked.id, "ana").unwrap(), Decision::Applied(_)));
    let tx = ledger.transaction().claim(claim.clone()).spend(asked.id).expect_absent("budget").set_cell("budget", "9");
    let Transacted::Committed(done) = tx.commit().unwrap() else { panic!() };
    let version = done.versions[0].1.unwrap();
    assert_eq!(ledger.cell("budget").unwrap().unwrap().version, version);
    let tx = ledger.transaction().claim(claim.clone()).expect_absent("budget").set_cell("budget", "8");
    let Transacted::Refused(refused) = tx.commit().unwrap() else { panic!() };
    assert_eq!(refused.len(), 2);
    for grant in done.grants {
        let _ = grant.release().unwrap();
    }
    assert_eq!(ledger.approval(asked.id).unwrap().unwrap().state, ApprovalState::Approved);
    for past in ledger.history(claim.key()).unwrap() {
        println!("{past:?}");
    }
    ledger.close().unwrap();
}
