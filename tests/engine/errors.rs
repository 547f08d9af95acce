//! What people are told: what failed, on what, and what to do next.

use onceledger::{Answer, Claim, Error, ErrorKind, Key, Outcome, Scope, Standing};

use crate::kit::*;

/// Every refused input is bad input: it names the thing, and nothing is written.
#[test]
fn bad_input_says_what_and_writes_nothing() {
    on_every_backend(|place| {
        let ledger = place.create();
        drop(grant(&ledger, &claim("doubt")));
        ledger.tick();
        let doubt = doubt(&ledger, "doubt");
        let rows = ledger.stats().unwrap().rows;
        let scope = Scope::new("s").unwrap();
        let long = "x".repeat(5000);
        let cases: Vec<(&str, Error)> = vec![
            ("scope", Scope::new("").unwrap_err()),
            ("action", Key::action(&scope, "", ["a"]).unwrap_err()),
            ("part", Key::action(&scope, "a", [""]).unwrap_err()),
            ("part", Key::action(&scope, "a", ["x".repeat(70_000)]).unwrap_err()),
            ("lease", ledger.claim(&claim("k").lease(std::time::Duration::ZERO)).unwrap_err()),
            ("remember", ledger.claim(&claim("k").remember(std::time::Duration::MAX)).unwrap_err()),
            ("keep", ledger.claim(&claim("k").keep(std::time::Duration::MAX)).unwrap_err()),
            ("label", ledger.claim(&claim("k").label(&long)).unwrap_err()),
            ("by", ledger.resolve(&doubt, onceledger::Verdict::NotDone, "", "why").unwrap_err()),
            ("why", ledger.resolve(&doubt, onceledger::Verdict::NotDone, "ana", "  ").unwrap_err()),
            ("why", ledger.resolve(&doubt, onceledger::Verdict::NotDone, "ana", &long).unwrap_err()),
            ("twice", Claim::from_json(key("k"), "{\"a\":1,\"a\":2}").unwrap_err()),
            ("surrogate", Claim::from_json(key("k"), "\"\\ud800\"").unwrap_err()),
            ("NaN", Claim::new(key("k"), &f64::NAN).unwrap_err()),
            ("standing", "asleep".parse::<Standing>().unwrap_err()),
        ];
        for (word, error) in cases {
            assert_eq!(error.kind(), ErrorKind::BadInput, "{error:?}");
            assert!(error.is_bad_input() && !error.after_the_effect() && error.outcome().is_none());
            assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
        }
        assert_eq!(ledger.stats().unwrap().rows, rows, "something was written");
        assert_eq!(standing(&ledger, "k"), "vacant");
    });
}

/// Bad input is refused the same for a settled key, where no writer is asked.
#[test]
fn bad_input_is_refused_on_a_settled_key_too() {
    let ledger = Place::memory().create();
    let _ = grant(&ledger, &claim("k")).complete("x").unwrap();
    assert!(ledger.claim(&claim("k").lease(std::time::Duration::ZERO)).unwrap_err().is_bad_input());
    assert!(ledger.claim(&claim("k").label("x".repeat(600))).unwrap_err().is_bad_input());
}

/// Outcomes and panics do not leak into words for a log.
#[test]
fn debug_words_hold_no_bodies() {
    let ledger = Place::memory().create();
    let answer =
        ledger.once(&claim("k"), |_| Ok::<_, onceledger::EffectError>(Outcome::text("4111111111111111"))).unwrap();
    assert!(!format!("{answer:?}").contains("4111"), "{answer:?}");
    let Answer::AlreadyDone(stored) = ledger.once(&claim("k"), |_| Ok::<_, onceledger::EffectError>("")).unwrap()
    else {
        panic!()
    };
    assert!(!format!("{stored:?}").contains("4111"));
}

/// Case 60, 63: every answer is a variant of its own; none is an error.
#[test]
fn case_60_case_63_what_the_world_did_is_always_an_answer() {
    let place = Place::memory();
    let ledger = place.create();
    let held = grant(&ledger, &claim("k"));
    assert!(matches!(
        ledger.once(&claim("k"), |_| Ok::<_, onceledger::EffectError>("")).unwrap(),
        Answer::InProgress(_)
    ));
    let other = Claim::new(key("k"), &1).unwrap();
    assert!(matches!(ledger.once(&other, |_| Ok::<_, onceledger::EffectError>("")).unwrap(), Answer::Mismatch(_)));
    drop(held);
    assert!(matches!(
        ledger.once(&claim("k"), |_| Ok::<_, onceledger::EffectError>("")).unwrap(),
        Answer::Uncertain(_)
    ));
}

/// A claim whose verdict came while its effect ran is superseded: the outcome is evidence, the view is what stands.
#[test]
fn p4_an_effect_that_was_overruled_is_superseded() {
    on_every_backend(|place| {
        let ledger = place.create();
        let answer = ledger.once(&claim("k"), |grant| {
            let forced =
                ledger.resolve_token(grant.key(), grant.token(), onceledger::Verdict::NotDone, "ops", "gave up", true);
            assert_eq!(forced.unwrap(), onceledger::Resolved::Applied);
            Ok::<_, onceledger::EffectError>("it worked")
        });
        let Answer::Superseded(outcome, onceledger::View::Vacant) = answer.unwrap() else { panic!() };
        assert_eq!(outcome.body(), b"it worked");
        let words: Vec<_> = past(&ledger, "k").into_iter().map(|(_, what)| what.name()).collect();
        assert_eq!(words, ["granted", "resolved_not_done", "late_done"]);
    });
}
