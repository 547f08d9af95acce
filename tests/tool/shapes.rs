//! One call in every shape gives one key and one fingerprint, and its result goes back in that shape.

use onceledger::tool::{Calls, Rule, Shape, Tool, ToolBook};
use onceledger::{EffectError, Ledger, Outcome, Scope};
use serde_json::{Value as Json, json};

use crate::{call, file, json, refund, scope};

fn texts(case: &Json, field: &str) -> Vec<String> {
    case[field].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn tool_of(case: &Json) -> Tool {
    let rule = [Rule::Business, Rule::Run, Rule::Call].into_iter().find(|rule| rule.name() == case["rule"]).unwrap();
    Tool::effect().identity(texts(case, "identity")).guard(texts(case, "guard")).rule(rule)
}

fn scope_of(case: &Json) -> Scope {
    match case["scope"].as_str().unwrap() {
        "" => Scope::global(),
        name => Scope::new(name).unwrap(),
    }
}

/// Puts the body where the vectors have a placeholder.
fn filled(envelope: &Json, body: &str) -> Json {
    match envelope {
        Json::String(text) if text == "$TEXT" => Json::from(body),
        Json::String(text) if text == "$BODY" => json(body),
        Json::Array(items) => items.iter().map(|item| filled(item, body)).collect(),
        Json::Object(members) => {
            Json::Object(members.iter().map(|(name, value)| (name.clone(), filled(value, body))).collect())
        }
        other => other.clone(),
    }
}

#[test]
fn every_shape_of_the_vectors_is_read_and_answered() {
    let cases = json(&file("vectors/calls.json"));
    let cases = cases.as_array().unwrap();
    let mut shapes = std::collections::BTreeSet::new();
    for case in cases {
        let call = call(case["call"].as_str().unwrap());
        shapes.insert(call.shape());
        let book = ToolBook::new().with(case["tool"].as_str().unwrap(), tool_of(case)).unwrap();
        let (scope, run) = (scope_of(case), case["run"].as_str().unwrap());
        assert_eq!(call.shape().name(), case["shape"], "{case}");
        assert_eq!(call.tool(), case["tool"], "{case}");
        assert_eq!(json!(call.action_id()), case["call_id"], "{case}");
        assert_eq!(call.arguments().unwrap().to_canonical(), case["arguments"].as_str().unwrap(), "{case}");
        let claim = book.claim(&call, &scope, run).unwrap();
        assert_eq!(claim.key().to_hex(), case["key"].as_str().unwrap(), "{case}");
        assert_eq!(claim.fingerprint().to_hex(), case["fingerprint"].as_str().unwrap(), "{case}");
        let ledger = Ledger::in_memory().unwrap();
        let fail = || Err::<Outcome, _>(EffectError::not_applied("no"));
        let error = book.run(&ledger, &call, &scope, run, |_| fail());
        assert_eq!(json(&error.envelope()), filled(&case["error"], &error.body()), "{case}");
        let done = book.run(&ledger, &call, &scope, run, |_| Ok(Outcome::json(r#"{"refund_id": "re_1"}"#)));
        assert_eq!(json(&done.envelope()), filled(&case["result"], &done.body()), "{case}");
        assert!(!done.envelope().contains('\n'), "{case}");
    }
    println!("calls.json: {} cases", cases.len());
    assert!(cases.len() >= 40);
    assert_eq!(shapes.len(), Shape::ALL.len());
}

#[test]
fn all_shapes_of_one_call_are_one_action() {
    let shapes = json(&file("wire/shapes.json"));
    let mut calls = Vec::new();
    for (api, forms) in shapes.as_object().unwrap() {
        for (form, value) in forms.as_object().unwrap() {
            if form.contains("call") {
                calls.push((format!("{api}/{form}"), call(&value.to_string())));
            }
        }
    }
    assert!(calls.len() >= 9, "{}", calls.len());
    for rule in [Rule::Business, Rule::Run] {
        for tool in [refund(), Tool::effect()] {
            let book = ToolBook::new().with("refund", tool.rule(rule)).unwrap();
            let claims: Vec<_> = calls.iter().map(|(_, call)| book.claim(call, &scope(), "run_42").unwrap()).collect();
            for (claim, (name, _)) in claims.iter().zip(&calls) {
                assert_eq!(claim.key(), claims[0].key(), "{name}");
                assert_eq!(claim.fingerprint(), claims[0].fingerprint(), "{name}");
            }
        }
    }
}

#[test]
fn results_of_the_shapes_file_are_read_as_results() {
    let shapes = json(&file("wire/shapes.json"));
    let mut answered = 0;
    for (api, forms) in shapes.as_object().unwrap() {
        let find = |name: &str| forms.get(name).cloned();
        let asked = find("call").unwrap();
        let result = find("result").unwrap();
        let calls = Calls::parse(&json!([asked, result]).to_string()).unwrap();
        assert_eq!((calls.all().len(), calls.answered()), (1, 1), "{api}");
        let alone = Calls::parse(&result.to_string()).unwrap();
        assert_eq!(alone.all().len(), 0, "{api}");
        answered += 1;
        if let Some(error) = find("error") {
            let asked = find("call_no_id").unwrap_or(asked);
            let calls = Calls::parse(&json!([asked, error]).to_string()).unwrap();
            assert_eq!(calls.answered(), 1, "{api}");
        }
    }
    assert_eq!(answered, 7);
}

#[test]
fn our_own_envelopes_are_read_as_results() {
    let cases = json(&file("vectors/calls.json"));
    let book = ToolBook::new().with("refund", Tool::effect()).unwrap();
    for case in cases.as_array().unwrap().iter().filter(|case| case["tool"] == "refund") {
        let text = case["call"].as_str().unwrap();
        let reply = book.run(&Ledger::in_memory().unwrap(), &call(text), &scope(), "r", |_| Ok("re_1"));
        let calls = Calls::parse(&format!("[{text},{}]", reply.envelope())).unwrap();
        assert_eq!((calls.all().len(), calls.answered()), (1, 1), "{text} {}", reply.envelope());
    }
}

#[test]
fn whole_messages_and_bodies_are_read() {
    let use_ = r#"{"type":"tool_use","id":"t1","name":"refund","input":{"order_id":"A1"}}"#;
    let chat = r#"{"id":"c1","type":"function","function":{"name":"refund","arguments":"{}"}}"#;
    let part = r#"{"functionCall":{"name":"refund","args":{}}}"#;
    let item = r#"{"type":"function_call","call_id":"c1","name":"refund","arguments":"{}"}"#;
    let chain = r#"{"name":"refund","args":{},"id":"c1","type":"tool_call"}"#;
    let texts = [
        format!(r#"{{"type":"message","role":"assistant","content":[{{"type":"text","text":"so"}},{use_}]}}"#),
        format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"x"}},{{"role":"assistant","content":[{use_}]}}]}}"#
        ),
        format!(
            r#"{{"object":"chat.completion","choices":[{{"index":0,"message":{{"role":"assistant","tool_calls":[{chat}]}}}}]}}"#
        ),
        chat.to_owned(),
        format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{part}]}}}}]}}"#),
        format!(r#"{{"contents":[{{"role":"model","parts":[{part}]}}]}}"#),
        format!(r#"{{"object":"response","output":[{{"type":"reasoning","summary":[]}},{item}]}}"#),
        format!(r#"{{"type":"ai","content":[{use_}],"tool_calls":[{chain}]}}"#),
        format!(
            r#"{{"lc":1,"type":"constructor","id":["AIMessage"],"kwargs":{{"type":"ai","content":"","tool_calls":[{chain}]}}}}"#
        ),
        r#"{"name":"refund","args":{},"id":null}"#.to_owned(),
        format!("[{part}]"),
    ];
    for text in &texts {
        call(text);
    }
    assert!(texts.len() >= 11);
}

#[test]
fn what_is_no_call_is_refused_and_what_is_no_tool_of_ours_is_passed_over() {
    for text in ["null", "7", r#""refund""#, "{}", r#"{"name":"refund"}"#, "[1, 2]", r#"{"type":"function_cal"}"#] {
        let error = Calls::parse(text).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("known shape"), "{text}: {error}");
    }
    let none = [
        "[]",
        r#"{"role":"user","content":"hi"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        r#"{"type":"tool-call","toolCallId":"c","toolName":"search","input":"{}","providerExecuted":true}"#,
        r#"{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}}]}"#,
    ];
    for text in none {
        let calls = Calls::parse(text).unwrap();
        assert_eq!((calls.all().len(), calls.broken().len()), (0, 0), "{text}");
    }
}

#[test]
fn a_broken_call_is_told_with_its_place_and_the_rest_goes_on() {
    let good = r#"{"type":"tool_use","id":"t1","name":"refund","input":{}}"#;
    let cases = [
        (format!(r#"[{{"type":"tool_use","id":"t0","input":{{}}}},{good}]"#), "/0"),
        (format!(r#"{{"role":"assistant","content":[{good},{{"type":"tool_use","id":7,"name":"x"}}]}}"#), "/content/1"),
        (
            format!(r#"[{good},{{"role":"assistant","tool_calls":[{{"id":"c","function":{{"name":""}}}}]}}]"#),
            "/1/tool_calls/0",
        ),
        (format!(r#"[{good},{{"role":"assistant","tool_calls":[{{"id":"c","type":"custom"}}]}}]"#), "/1/tool_calls/0"),
        (format!(r#"[{good},{{"role":"assistant","function_call":{{"name":"f","arguments":"{{}}"}}}}]"#), "/1"),
    ];
    for (text, place) in &cases {
        let calls = Calls::parse(text).unwrap();
        assert_eq!((calls.all().len(), calls.broken().len()), (1, 1), "{text}");
        let told = calls.broken()[0].to_string();
        assert!(told.starts_with(&format!("at {place}: ")), "{told}");
    }
    let choice = |name: &str| {
        format!(r#"{{"message":{{"role":"assistant","tool_calls":[{{"id":"c","function":{{"name":"{name}"}}}}]}}}}"#)
    };
    let error = Calls::parse(&format!(r#"{{"choices":[{},{}]}}"#, choice("a"), choice("b"))).unwrap_err();
    assert!(error.to_string().contains("alternative"), "{error}");
}
