//! What a repeat gets back (P6).

use onceledger::{Answer, Claimed, EffectError, Kind, Outcome, Resolved, Settled, Stored, Verdict, View};

use crate::kit::*;

/// Cases 31 and 32, P6: null, 0, false, "", [] and {} come back as they were, and so do a map, bytes, and a
/// mebibyte; with and without the error flag, from the cache and from the file.
#[test]
fn case_31_case_32_p6_every_outcome_comes_back_byte_for_byte() {
    let mebibyte: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
    let outcomes = [
        Outcome::from(()),
        Outcome::json("null"),
        Outcome::json("0"),
        Outcome::json("false"),
        Outcome::json("\"\""),
        Outcome::json("[]"),
        Outcome::json("{}"),
        Outcome::json(""),
        Outcome::text(""),
        Outcome::binary([]),
        Outcome::json("{\"b\": 1,  \"a\": [1.0, 1e400]}"),
        Outcome::text("müde\u{0}"),
        Outcome::binary([0, 255, 10, 13, 0]),
        Outcome::binary([7; 112]),
        Outcome::binary([8; 113]),
        Outcome::binary(&mebibyte),
        Outcome::value(&std::collections::BTreeMap::from([("k", 1)])).unwrap(),
    ];
    on_every_backend(|place| {
        let ledger = place.create();
        for (n, outcome) in outcomes.iter().enumerate() {
            let _ = grant(&ledger, &claim(format!("done {n}"))).complete(outcome.clone()).unwrap();
            let _ = grant(&ledger, &claim(format!("flag {n}"))).complete(outcome.clone().as_error()).unwrap();
            let _ = grant(&ledger, &claim(format!("fail {n}"))).fail(outcome.clone()).unwrap();
        }
        let check = |ledger: &onceledger::Ledger| {
            for (n, outcome) in outcomes.iter().enumerate() {
                for _ in 0..2 {
                    let Claimed::AlreadyDone(stored) = ledger.claim(&claim(format!("done {n}"))).unwrap() else {
                        panic!()
                    };
                    assert_eq!(stored, Stored::Kept(outcome.clone()));
                    let View::Done(stored) = ledger.check(&key(format!("flag {n}"))).unwrap() else { panic!() };
                    assert_eq!(stored, Stored::Kept(outcome.clone().as_error()));
                    let answer = ledger.once(&claim(format!("fail {n}")), |_| -> Result<(), EffectError> { panic!() });
                    let Answer::Failed(stored) = answer.unwrap() else { panic!() };
                    assert_eq!(stored, Stored::Kept(outcome.clone()));
                }
            }
        };
        check(&ledger);
        ledger.close().unwrap();
        check(&place.open());
        // Nothing cached at all.
        let bare = place.options().cache_bytes(0);
        let ledger = bare.open(&place.path).unwrap();
        check(&ledger);
        ledger.verify().unwrap();
    });
}

/// Cases P2 and 39, P6: over the limit it is done without a body: the caller gets it, a repeat is told already done,
/// and the file does not grow by it.
#[test]
fn case_p2_case_39_p6_an_outcome_over_the_limit_is_done_without_a_body() {
    on_every_backend(|place| {
        let ledger = place.options().outcome_bytes_max(1000).create(&place.path).unwrap();
        let before = ledger.stats().unwrap().file_bytes;
        let huge = Outcome::binary(vec![7; 10 << 20]).as_error();
        let answer = ledger.once(&claim("huge"), |_| Ok::<_, EffectError>(huge.clone())).unwrap();
        let Answer::Done(got) = answer else { panic!("{answer:?}") };
        assert_eq!(got, huge, "the caller gets it");
        let not_kept = Stored::NotKept { kind: Kind::Binary, error: true, bytes: 10 << 20 };
        let Claimed::AlreadyDone(stored) = ledger.claim(&claim("huge")).unwrap() else { panic!() };
        assert_eq!(stored, not_kept);
        assert!(ledger.stats().unwrap().file_bytes < before + (1 << 20));
        // At the limit and one over.
        let _ = grant(&ledger, &claim("at")).complete(vec![1; 1000]).unwrap();
        let _ = grant(&ledger, &claim("over")).complete(vec![1; 1001]).unwrap();
        let _ = grant(&ledger, &claim("failed")).fail(vec![1; 1001]).unwrap();
        ledger.close().unwrap();
        let ledger = place.open();
        let kept = |part: &str| match ledger.check(&key(part)).unwrap() {
            View::Done(stored) | View::Failed(stored) => stored.outcome().is_some(),
            other => panic!("{other:?}"),
        };
        assert!(kept("at") && !kept("over") && !kept("failed") && !kept("huge"));
    });
}

/// Case 35: a final failure is an answer like any other: stored, and given to every repeat.
#[test]
fn case_35_a_final_failure_is_replayed_and_not_run_again() {
    on_every_backend(|place| {
        let ledger = place.create();
        let mut effects = 0;
        for _ in 0..3 {
            let answer = ledger.once(&claim("k"), |_| -> Result<&str, _> {
                effects += 1;
                Err(EffectError::final_failure("card declined"))
            });
            let Answer::Failed(stored) = answer.unwrap() else { panic!() };
            assert_eq!((body(&stored).as_slice(), stored.is_error()), (&b"card declined"[..], true));
        }
        assert_eq!(effects, 1);
    });
}

/// Cases P13 and 73: an error that nobody classified is unknown: uncertain, never final, never retried.
#[test]
fn case_p13_case_73_an_unclassified_error_is_uncertain() {
    on_every_backend(|place| {
        let ledger = place.create();
        let mut effects = 0;
        for _ in 0..3 {
            let answer = ledger.once(&claim("k"), |_| -> Result<&str, EffectError> {
                effects += 1;
                Err(std::io::Error::other("503"))?
            });
            let Answer::Uncertain(doubt) = answer.unwrap() else { panic!() };
            assert_eq!(doubt.doubt.reason, onceledger::DoubtReason::UnknownError);
        }
        assert_eq!(effects, 1);
    });
}

/// A verdict brings an outcome, or none: a repeat says already done either way.
#[test]
fn p6_a_verdicts_outcome_is_replayed_and_none_is_not_kept() {
    on_every_backend(|place| {
        let ledger = place.create();
        for (part, outcome) in
            [("with", Some(Outcome::json("{}"))), ("without", None), ("huge", Some(Outcome::binary(vec![0; 2 << 20])))]
        {
            drop(grant(&ledger, &claim(part)));
            let verdict = Verdict::Done(outcome.clone());
            assert_eq!(ledger.resolve(&doubt(&ledger, part), verdict, "ops", "seen").unwrap(), Resolved::Applied);
            let Claimed::AlreadyDone(stored) = ledger.claim(&claim(part)).unwrap() else { panic!() };
            let small = outcome.filter(|outcome| outcome.body().len() < 1 << 20);
            assert_eq!(stored.outcome(), small.as_ref(), "{part}");
        }
        ledger.verify().unwrap();
    });
}

/// P6: a body that should be in the file and is not is damage: in a repeat and in a full check.
#[test]
fn p6_a_body_that_is_not_what_was_written_is_damaged() {
    let place = Place::fault();
    let ledger = place.create();
    let needle = b"needle in the file";
    let _ = grant(&ledger, &claim("k")).complete(Outcome::binary(needle)).unwrap();
    ledger.close().unwrap();
    let bytes = place.faults().export(&place.path).unwrap();
    let places: Vec<_> = bytes.windows(needle.len()).enumerate().filter(|(_, bytes)| bytes == needle).collect();
    assert!(!places.is_empty());
    for (at, _) in places {
        place.faults().flip(&place.path, at as u64, 0x40);
    }
    match place.options().open(&place.path) {
        Err(error) => assert!(error.is_damaged(), "{error}"),
        Ok(ledger) => {
            assert!(ledger.check(&key("k")).unwrap_err().is_damaged());
            assert!(ledger.claim(&claim("k")).unwrap_err().is_damaged());
            assert!(ledger.verify().unwrap_err().is_damaged());
            assert_eq!(standing_of_other(&ledger), "vacant");
        }
    }
}

fn standing_of_other(ledger: &onceledger::Ledger) -> &'static str {
    standing(ledger, "another key")
}

/// Case 40: every public entry that takes a key knows of a duplicate.
#[test]
fn case_40_every_entry_knows_of_a_duplicate() {
    on_every_backend(|place| {
        let ledger = place.create();
        let ticket = grant(&ledger, &claim("k")).into_ticket();
        assert_eq!(refused(&ledger, &claim("k")), "in_progress");
        assert!(matches!(ledger.once(&claim("k"), |_| Ok::<_, EffectError>("")).unwrap(), Answer::InProgress(_)));
        assert_eq!(standing(&ledger, "k"), "in_progress");
        assert!(ledger.show(&key("k")).unwrap().is_some());
        assert_eq!(ticket.settle(&ledger, onceledger::Settlement::done("x")).unwrap(), Settled::Applied);
        assert_eq!(refused(&ledger, &claim("k")), "done");
        assert!(matches!(crate::futures::block_on(ledger.claim_async(&claim("k"))).unwrap(), Claimed::AlreadyDone(_)));
        let again = crate::futures::block_on(ledger.once_async(&claim("k"), |_| async { Ok("") }));
        assert!(matches!(again.unwrap(), Answer::AlreadyDone(_)));
    });
}
