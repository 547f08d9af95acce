//! After a storage failure (P3, P13). The full walks are in the fault suites; here is what each call answers.

use onceledger::testkit::{Failure, Fault, Operation, Plan};
use onceledger::{EffectError, ErrorKind, Verdict};

use crate::futures::block_on;
use crate::kit::*;

fn no_faults() -> Plan {
    Plan::new()
}

/// Cases 105 and 106, P13: after a storage failure every call fails until the ledger is reopened; nothing is ever
/// called fresh.
#[test]
fn case_105_case_106_p13_after_a_failure_every_call_fails_until_reopened() {
    let place = Place::fault();
    let ledger = place.create();
    let _ = grant(&ledger, &claim("done")).complete("x").unwrap();
    let held = grant(&ledger, &claim("held"));
    drop(grant(&ledger, &claim("doubt")));
    let doubt = doubt(&ledger, "doubt");
    place.faults().set_plan(Fault::on(Operation::Sync).path("/ledger"));
    assert!(ledger.claim(&claim("k")).unwrap_err().is_unknown());
    // The disk is well again; the ledger stays closed all the same.
    place.faults().set_plan(no_faults());
    let failed = |error: onceledger::Error| {
        assert_eq!(error.kind(), ErrorKind::Storage, "{error:?}");
        assert!(error.is_storage() && error.advice().is_some(), "{error}");
    };
    failed(ledger.claim(&claim("k")).unwrap_err());
    failed(ledger.claim(&claim("done")).unwrap_err());
    failed(ledger.check(&key("done")).unwrap_err());
    failed(ledger.check(&key("never")).unwrap_err());
    failed(ledger.list(onceledger::Standing::Done, None, 1).unwrap_err());
    failed(ledger.history(&key("done")).unwrap_err());
    failed(ledger.show(&key("done")).unwrap_err());
    failed(ledger.uncertain().unwrap_err());
    failed(ledger.stats().unwrap_err());
    failed(ledger.verify().unwrap_err());
    failed(ledger.sweep(1).unwrap_err());
    failed(ledger.resolve(&doubt, Verdict::NotDone, "a", "b").unwrap_err());
    failed(ledger.once(&claim("x"), |_| -> Result<&str, EffectError> { panic!("ran") }).unwrap_err());
    failed(block_on(ledger.claim_async(&claim("x"))).unwrap_err());
    failed(held.renew(HOUR).unwrap_err());
    let error = held.complete("charged").unwrap_err();
    assert!(error.after_the_effect() && error.outcome().unwrap().body() == b"charged", "{error}");
    failed(error);
    ledger.tick();
    let ledger = place.open();
    assert_eq!((standing(&ledger, "done"), standing(&ledger, "doubt")), ("done", "uncertain"));
    assert_eq!(standing(&ledger, "held"), "uncertain");
    assert!(["vacant", "uncertain"].contains(&standing(&ledger, "k")));
}

/// P3: the effect of a claim that is unknown never runs, and the error says that it came before the effect.
#[test]
fn p3_an_unknown_claim_runs_no_effect() {
    let place = Place::fault();
    let ledger = place.create();
    place.faults().set_plan(Fault::on(Operation::Sync).path("/ledger").with(Failure::Sync));
    let error = ledger.once(&claim("k"), |_| -> Result<&str, EffectError> { panic!("ran") }).unwrap_err();
    assert!(error.is_unknown() && !error.after_the_effect(), "{error:?}");
}

/// A settle that fails in mid commit is unknown, and carries what the effect returned.
#[test]
fn p3_an_unknown_settle_carries_the_outcome() {
    let place = Place::fault();
    let ledger = place.create();
    let error = ledger
        .once(&claim("k"), |_| {
            place.faults().set_plan(Fault::on(Operation::Sync).path("/ledger").always());
            Ok::<_, EffectError>("charged")
        })
        .unwrap_err();
    assert!(error.is_unknown() && error.after_the_effect(), "{error:?}");
    assert_eq!(error.outcome().unwrap().body(), b"charged");
    place.faults().set_plan(no_faults());
    drop(ledger);
    let ledger = place.open();
    assert!(["uncertain", "done"].contains(&standing(&ledger, "k")), "{}", standing(&ledger, "k"));
}

/// A failed anchor is a storage failure: it may lag behind commits, but not for ever.
#[test]
fn p13_a_failed_anchor_closes_the_ledger() {
    for operation in [Operation::Open, Operation::Write, Operation::Sync, Operation::Rename, Operation::SyncDir] {
        let place = Place::fault();
        let ledger = place.create();
        let _ = grant(&ledger, &claim("k")).complete("x").unwrap();
        let ending = if operation == Operation::SyncDir { "" } else { ".anchor.new" };
        place.faults().set_plan(Fault::on(operation).path(ending).always());
        place.clock.advance(5 * SECOND);
        ledger.tick();
        let error = ledger.claim(&claim("next")).unwrap_err();
        assert!(error.is_storage(), "{operation:?}: {error:?}");
        place.faults().set_plan(no_faults());
        drop(ledger);
        assert_eq!(refused(&place.open(), &claim("k")), "done");
    }
}

/// A session whose file cannot be made is granted nothing.
#[test]
fn p1_no_grant_without_a_durable_session() {
    for operation in [Operation::CreateDir, Operation::Open, Operation::Lock, Operation::Write, Operation::Sync] {
        let place = Place::fault();
        place.create().close().unwrap();
        let ledger = place.open();
        let before = place.faults().operations();
        // The first operation of this kind that the claim makes is on the session's file or folder.
        place.faults().set_plan(Fault::from(before + 1).always());
        let error = ledger.claim(&claim("k")).unwrap_err();
        assert!(error.is_storage() || error.kind() == ErrorKind::Unsupported, "{operation:?}: {error:?}");
        assert!(!error.is_unknown(), "nothing was written: {error:?}");
        place.faults().set_plan(no_faults());
        drop(ledger);
        assert_eq!(standing(&place.open(), "k"), "vacant");
    }
}

/// A disk that is full refuses claims and serves what is stored, once reopened.
#[test]
fn a_full_disk_refuses_claims_and_serves_repeats() {
    let place = Place::fault();
    let ledger = place.create();
    let _ = grant(&ledger, &claim("k")).complete("x").unwrap();
    ledger.close().unwrap();
    let ledger = place.open();
    place.faults().set_plan(Plan::new().full_from(1));
    let mut failures = 0;
    for n in 0..2000 {
        match ledger.claim(&claim(format!("{n}"))) {
            Ok(claimed) => std::mem::forget(claimed),
            Err(error) => {
                assert!(error.is_storage(), "{error:?}");
                failures += 1;
                break;
            }
        }
    }
    assert_eq!(failures, 1);
}
