//! Cases of the field by number.

use std::sync::atomic::{AtomicUsize, Ordering};

use onceledger::tool::{Calls, Rule, Status, Tool, ToolBook};
use onceledger::{Answer, EffectError, Ledger, Outcome};

use crate::{ask, call, json, refund, scope};

fn counted(eff: &AtomicUsize) -> Result<Outcome, EffectError> {
    eff.fetch_add(1, Ordering::Relaxed);
    Ok(Outcome::text("done"))
}

#[test]
fn case_67_four_calls_with_one_constant_id_are_four_effects() {
    let book = ToolBook::new()
        .with("refund", refund().rule(Rule::Call))
        .unwrap()
        .with("mail", Tool::effect().rule(Rule::Call))
        .unwrap()
        .with("publish", Tool::effect().rule(Rule::Call))
        .unwrap();
    let ledger = Ledger::in_memory().unwrap();
    let eff = AtomicUsize::new(0);
    let texts = [
        r#"{"type":"tool_use","id":"X","name":"refund","input":{"order_id":"A1"}}"#,
        r#"{"type":"tool_use","id":"X","name":"refund","input":{"order_id":"A2"}}"#,
        r#"{"type":"tool_use","id":"X","name":"mail","input":{}}"#,
        r#"{"type":"tool_use","id":"X","name":"publish","input":{}}"#,
    ];
    for text in texts {
        let reply = book.run(&ledger, &call(text), &scope(), "r", |_| counted(&eff));
        assert_eq!(reply.status(), Status::Done, "{text}");
    }
    assert_eq!(eff.load(Ordering::Relaxed), 4);
    // Equal arguments under an equal id are one action.
    let reply = book.run(&ledger, &call(texts[0]), &scope(), "r", |_| counted(&eff));
    assert_eq!((reply.status(), eff.load(Ordering::Relaxed)), (Status::AlreadyDone, 4));
}

#[test]
fn case_67_another_amount_under_one_id_is_another_action_by_id_and_a_mismatch_by_identity() {
    let args = [r#"{"order_id":"A1","amount":1}"#, r#"{"order_id":"A1","amount":2}"#];
    for (rule, second) in [(Rule::Call, Status::Done), (Rule::Run, Status::Mismatch)] {
        let book = ToolBook::new().with("refund", refund().rule(rule)).unwrap();
        let ledger = Ledger::in_memory().unwrap();
        let told = args.map(|args| book.run(&ledger, &ask("X", args), &scope(), "r", |_| Ok("")).status());
        assert_eq!(told, [Status::Done, second]);
    }
}

#[test]
fn case_69_a_call_without_an_id_is_an_error_where_the_id_counts_and_runs_where_it_does_not() {
    let texts = [
        r#"{"functionCall":{"name":"refund","args":{"order_id":"A1"}}}"#,
        r#"{"functionCall":{"name":"refund","id":"","args":{"order_id":"A1"}}}"#,
        r#"{"type":"tool_call","name":"refund","args":{"order_id":"A1"},"id":null}"#,
        r#"{"type":"tool_call","name":"refund","args":{"order_id":"A1"},"id":""}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"refund","arguments":{"order_id":"A1"}}}"#,
        r#"{"role":"assistant","tool_calls":[{"id":"","type":"function","function":{"name":"refund","arguments":"{\"order_id\":\"A1\"}"}}]}"#,
        r#"{"type":"function_call","id":"fc_1","name":"refund","arguments":"{\"order_id\":\"A1\"}"}"#,
    ];
    for text in texts {
        let ledger = Ledger::in_memory().unwrap();
        let by_id = ToolBook::new().with("refund", refund().rule(Rule::Call)).unwrap();
        let reply = by_id.run(&ledger, &call(text), &scope(), "r", |_| -> Result<Outcome, _> { panic!("it ran") });
        assert_eq!(reply.status(), Status::ErrorBefore, "{text}");
        assert!(reply.error().unwrap().is_bad_input() && reply.body().contains("has no id"), "{}", reply.body());
        let by_identity = ToolBook::new().with("refund", refund()).unwrap();
        let reply = by_identity.run(&ledger, &call(text), &scope(), "r", |_| Ok(""));
        assert_eq!(reply.status(), Status::Done, "{text}");
    }
}

#[test]
fn case_70_three_identical_calls_while_the_first_runs_are_one_effect() {
    let book = ToolBook::new().with("refund", refund()).unwrap();
    let ledger = Ledger::in_memory().unwrap();
    let eff = AtomicUsize::new(0);
    let args = r#"{"order_id":"A1"}"#;
    let first = book.run(&ledger, &ask("t1", args), &scope(), "r", |_| {
        std::thread::scope(|threads| {
            for id in ["t2", "t3"] {
                let (book, ledger, eff) = (&book, &ledger, &eff);
                threads.spawn(move || {
                    let reply = book.run(ledger, &ask(id, args), &scope(), "r", |_| counted(eff));
                    assert_eq!(reply.status(), Status::InProgress);
                    let body = json(&reply.body());
                    assert!(body["note"].as_str().unwrap().contains("Do not retry"));
                    assert!(body["at"].is_string() && body["do_not_retry"] == true);
                    assert!(!reply.is_error());
                });
            }
        });
        counted(&eff)
    });
    assert_eq!((first.status(), eff.load(Ordering::Relaxed)), (Status::Done, 1));
}

#[test]
fn case_75_a_lost_transport_leaves_the_call_uncertain_and_a_replay_does_not_run_it() {
    let book = ToolBook::new().with("refund", refund()).unwrap();
    let ledger = Ledger::in_memory().unwrap();
    let lost = || Err::<Outcome, _>(EffectError::from(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)));
    let first = book.run(&ledger, &ask("t1", r#"{"order_id":"A1"}"#), &scope(), "r", |_| lost());
    assert!(matches!(first.answer(), Some(Answer::Uncertain(_))));
    let replay = book.run(&ledger, &ask("t1", r#"{"order_id":"A1"}"#), &scope(), "r", |_| -> Result<Outcome, _> {
        panic!("it ran")
    });
    assert_eq!(replay.status(), Status::Uncertain);
}

#[test]
fn case_77_a_key_in_the_metadata_names_the_call_and_is_no_part_of_its_identity() {
    let mcp = |id: u32, key: &str, amount: u32| {
        call(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"refund",
                "arguments":{{"order_id":"A1","amount":{amount}}},
                "_meta":{{"progressToken":{id},"example.com/idempotencyKey":"{key}"}}}}}}"#
        ))
    };
    let inside = |key: &str| {
        ask("t1", &format!(r#"{{"order_id":"A1","amount":79,"_meta":{{"com.example/idempotencyKey":"{key}"}}}}"#))
    };
    let book = ToolBook::new().with("refund", Tool::effect().rule(Rule::Call)).unwrap();
    let key = |call| book.key(&call, &scope(), "run_42").unwrap();
    assert_eq!(key(mcp(7, "k1", 79)), key(mcp(8, "k1", 79)));
    assert_eq!(key(mcp(7, "k1", 79)), key(inside("k1")));
    assert_ne!(key(mcp(7, "k1", 79)), key(mcp(7, "k2", 79)));
    assert_ne!(key(mcp(7, "k1", 79)), key(mcp(7, "k1", 80)));
    let by_arguments = ToolBook::new().with("refund", Tool::effect()).unwrap();
    let key = |call| by_arguments.key(&call, &scope(), "run_42").unwrap();
    assert_eq!(key(inside("k1")), key(inside("k2")));
    assert_eq!(key(inside("k1")), key(ask("t1", r#"{"order_id":"A1","amount":79}"#)));
    for bad in
        [r#"{"_meta":{"a.b/idempotencyKey":7}}"#, r#"{"_meta":{"a.b/idempotencyKey":"x","c.d/idempotencyKey":"y"}}"#]
    {
        assert!(ask("t1", bad).arguments().is_err(), "{bad}");
    }
}

#[test]
fn malformed_arguments_answer_and_never_run() {
    let texts = [
        r#""{\"order_id\":""#,
        r#""not json""#,
        r#""[1]""#,
        r#""null""#,
        r#""{\"a\":1,\"a\":2}""#,
        r#""{\"a\":\"\\ud800\"}""#,
        "[1]",
        "7",
        "true",
    ];
    let book = ToolBook::new().with("refund", Tool::effect()).unwrap();
    let ledger = Ledger::in_memory().unwrap();
    for text in texts {
        let shapes = [
            format!(r#"{{"type":"function_call","call_id":"c","name":"refund","arguments":{text}}}"#),
            format!(
                r#"{{"role":"assistant","tool_calls":[{{"id":"c","type":"function","function":{{"name":"refund","arguments":{text}}}}}]}}"#
            ),
            format!(r#"{{"type":"tool-call","toolCallId":"c","toolName":"refund","input":{text}}}"#),
            format!(
                r#"{{"type":"ai","content":"","tool_calls":[],"invalid_tool_calls":[{{"type":"invalid_tool_call","id":"c","name":"refund","args":{text}}}]}}"#
            ),
        ];
        for shape in shapes {
            let reply = book.run(&ledger, &call(&shape), &scope(), "r", |_| -> Result<Outcome, _> { panic!("it ran") });
            assert_eq!(reply.status(), Status::ErrorBefore, "{shape}");
            assert!(!reply.do_not_retry() && reply.body().contains("malformed"), "{}", reply.body());
        }
    }
    assert_eq!(ledger.stats().unwrap().next_sequence, Ledger::in_memory().unwrap().stats().unwrap().next_sequence);
}

#[test]
fn a_read_runs_freely_and_an_idempotent_write_every_time_under_one_downstream_key() {
    let book = ToolBook::new().with("look", Tool::read()).unwrap().with("set", Tool::idempotent()).unwrap();
    let ledger = Ledger::in_memory().unwrap();
    for tool in ["look", "set"] {
        let call = call(&format!(r#"{{"type":"tool_use","id":"t","name":"{tool}","input":{{"a":1}}}}"#));
        let keys: Vec<_> = (0..3)
            .map(|_| {
                let mut key = None;
                let reply = book.run(&ledger, &call, &scope(), "r", |permit| {
                    key = Some(permit.downstream("x").as_hex());
                    assert_eq!((permit.token(), permit.attempt()), (None, 1));
                    Ok("")
                });
                assert_eq!((reply.status(), reply.do_not_retry()), (Status::Done, false));
                key.unwrap()
            })
            .collect();
        assert!(keys.iter().all(|key| *key == keys[0]));
    }
    assert_eq!(ledger.stats().unwrap().done, 0);
}

#[test]
fn a_lone_surrogate_in_the_message_is_refused_before_any_call() {
    let error = Calls::parse(r#"{"type":"tool_use","id":"t","name":"refund","input":{"a":"\ud800"}}"#).unwrap_err();
    assert!(error.is_bad_input());
}
