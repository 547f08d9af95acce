//! Readings that were wrong, each as the input that shows it.

use onceledger::testkit::FakeClock;
use onceledger::tool::{Calls, Consent, Rule, Status, Tool, ToolBook};
use onceledger::{EffectError, Options, Scope};

fn answered(text: &str) -> Vec<bool> {
    Calls::parse(text).unwrap().all().iter().map(onceledger::tool::Call::is_answered).collect()
}

/// Google's SDKs answer without an id (`Part.from_function_response(name, response)`), though the call may have one.
#[test]
fn a_gemini_result_without_an_id_answers_by_name() {
    let call = r#"{"role":"model","parts":[{"functionCall":{"id":"fc-1","name":"refund","args":{"order_id":"A1"}}}]}"#;
    let result = r#"{"role":"user","parts":[{"functionResponse":{"name":"refund","response":{"output":"re_1"}}}]}"#;
    assert_eq!(answered(&format!("[{call},{result}]")), [true]);
}

/// The AI SDK had `args` before it had `input`: two calls must not become one without arguments.
#[test]
fn two_calls_of_the_older_ai_sdk_are_two() {
    let of = |id: &str, to: &str| {
        format!(r#"{{"type":"tool-call","toolCallId":"{id}","toolName":"mail","args":{{"to":"{to}"}}}}"#)
    };
    let text = format!(r#"{{"role":"assistant","content":[{},{}]}}"#, of("c1", "ana"), of("c2", "ben"));
    let calls = Calls::parse(&text).unwrap();
    let book = ToolBook::new().with("mail", Tool::effect()).unwrap();
    let scope = Scope::new("s").unwrap();
    let keys: Vec<_> = calls.all().iter().map(|call| book.key(call, &scope, "r").unwrap()).collect();
    assert_eq!(keys.len(), 2);
    assert_ne!(keys[0], keys[1]);
}

/// A confirmation that is pending holds its call back, whether that has an id or not.
#[test]
fn a_confirmation_of_a_call_without_an_id_holds_it_back() {
    let call = r#"{"function_call":{"name":"refund","args":{"order_id":"A1"}}}"#;
    let asked = r#"{"function_call":{"id":"adk-2","name":"adk_request_confirmation","args":
        {"originalFunctionCall":{"name":"refund","args":{"order_id":"A1"}},"toolConfirmation":{"confirmed":false}}}}"#;
    let text = format!(r#"{{"content":{{"role":"model","parts":[{call},{asked}]}}}}"#);
    let calls = Calls::parse(&text).unwrap();
    assert_eq!(calls.all()[0].consent(), Consent::Pending);
}

/// A business action is one, whichever run asks: a scope that names a run is refused, not taken as it is.
#[test]
fn a_business_key_takes_no_run_from_its_scope() {
    let call = r#"{"type":"tool_use","id":"t","name":"refund","input":{"order_id":"A1"}}"#;
    let calls = Calls::parse(call).unwrap();
    let book = ToolBook::new().with("refund", Tool::effect().rule(Rule::Business)).unwrap();
    let scope = Scope::new("s").unwrap().run("r1").unwrap();
    assert!(book.key(&calls.all()[0], &scope, "r1").unwrap_err().is_bad_input());
}

/// A request whose deadline has passed waits for nobody, and is not told as if it did.
#[test]
fn a_pending_transcript_with_an_expired_request_says_so() {
    let clock = FakeClock::new();
    let ledger = Options::new().clock(std::sync::Arc::new(clock.clone())).threads(false).in_memory().unwrap();
    let call = r#"{"type":"tool-call","toolCallId":"c1","toolName":"refund","input":{}}"#;
    let asks = r#"{"type":"tool-approval-request","approvalId":"a1","toolCallId":"c1"}"#;
    let calls = Calls::parse(&format!(r#"[{{"role":"assistant","content":[{call},{asks}]}}]"#)).unwrap();
    let book = ToolBook::new().with("refund", Tool::effect().approval(true)).unwrap();
    let scope = Scope::new("s").unwrap();
    let run = || book.run(&ledger, &calls.all()[0], &scope, "r", |_| Ok::<_, EffectError>("x"));
    assert_eq!(run().status(), Status::AwaitingApproval);
    clock.advance(std::time::Duration::from_secs(2 * 24 * 3600));
    assert_eq!(run().status(), Status::Expired);
}

/// The definition of a tool is no call of it.
#[test]
fn a_tool_definition_is_no_call() {
    let text = r#"{"type":"function","function":{"name":"refund","description":"x","parameters":{"type":"object"}}}"#;
    assert_eq!(Calls::parse(text).map_or(0, |calls| calls.to_run().count()), 0);
}
