//! The files that the SDKs wrote, read as they are.

use onceledger::tool::{Call, Calls, Consent, Shape, Status, ToolBook};
use onceledger::{Ledger, Outcome};

use crate::{file, json, refund, scope, transcript};

/// Name, shape, calls, answered, waiting.
const FILES: [(&str, Shape, usize, usize, usize); 6] = [
    ("google_adk_events", Shape::GeminiSnake, 2, 2, 0),
    ("langchain_messages", Shape::LangChain, 2, 2, 0),
    ("openai_agents_runstate_paused", Shape::OpenAiResponses, 2, 0, 2),
    ("openai_responses_items", Shape::OpenAiResponses, 2, 2, 0),
    ("vercel_ai_messages", Shape::AiSdk, 2, 2, 0),
    ("vercel_ai_messages_paused", Shape::AiSdk, 2, 0, 2),
];

#[test]
fn every_file_is_read_whole_with_its_calls_results_and_approval_requests() {
    for (name, shape, count, answered, waiting) in FILES {
        let calls = transcript(name);
        assert_eq!(calls.all().len(), count, "{name}");
        assert_eq!(calls.answered(), answered, "{name}");
        assert_eq!(calls.to_run().count(), count - answered, "{name}");
        assert!(calls.broken().is_empty(), "{name}");
        let pending = calls.all().iter().filter(|call| call.consent() == Consent::Pending).count();
        assert_eq!(pending, waiting, "{name}");
        for call in calls.all() {
            assert_eq!((call.tool(), call.shape()), ("refund", shape), "{name}");
            let arguments = call.arguments().unwrap().to_canonical();
            assert_eq!(arguments, r#"{"amount":79,"note":"customer asked twice","order_id":"ord_42"}"#, "{name}");
        }
    }
    let files = std::fs::read_dir(format!("{}/tests/wire", env!("CARGO_MANIFEST_DIR"))).unwrap();
    assert_eq!(files.count(), FILES.len() + 1, "a file that no test reads");
}

#[test]
fn the_calls_of_every_file_are_one_action() {
    let book = ToolBook::new().with("refund", refund()).unwrap();
    let key = |call: &Call| book.key(call, &scope(), "run_42").unwrap();
    let first = key(&transcript("google_adk_events").all()[0]);
    for (name, ..) in FILES {
        assert!(transcript(name).all().iter().all(|call| key(call) == first), "{name}");
    }
}

#[test]
fn a_call_that_waits_for_approval_answers_so_and_does_not_run() {
    for name in ["openai_agents_runstate_paused", "vercel_ai_messages_paused"] {
        let book = ToolBook::new().with("refund", refund()).unwrap();
        let ledger = Ledger::in_memory().unwrap();
        for call in transcript(name).to_run() {
            let reply = book.run(&ledger, call, &scope(), "run_42", |_| -> Result<Outcome, _> { panic!("it ran") });
            assert_eq!(reply.status(), Status::AwaitingApproval, "{name}");
            let body = json(&reply.body());
            assert_eq!(body["ticket"]["key"], book.key(call, &scope(), "run_42").unwrap().to_hex());
            assert_eq!(body["ticket"]["args_digest"].as_str().unwrap().len(), 64);
            assert!(!reply.is_error());
        }
        assert_eq!(ledger.stats().unwrap().in_progress, 0);
    }
}

#[test]
fn a_call_that_has_its_result_does_not_run() {
    let book = ToolBook::new().with("refund", refund()).unwrap();
    let ledger = Ledger::in_memory().unwrap();
    for call in transcript("openai_responses_items").all() {
        let reply = book.run(&ledger, call, &scope(), "run_42", |_| -> Result<Outcome, _> { panic!("it ran") });
        assert_eq!(reply.status(), Status::ErrorBefore);
        assert!(reply.do_not_retry());
    }
}

/// The file with something put in or taken out.
fn edited(name: &str, edit: impl FnOnce(&mut serde_json::Value)) -> Calls {
    let mut value = json(&file(&format!("wire/{name}.json")));
    edit(&mut value);
    Calls::parse(&value.to_string()).unwrap()
}

#[test]
fn a_decision_in_the_file_ends_the_waiting() {
    for (approved, consent) in [(true, Consent::Given), (false, Consent::Refused)] {
        let calls = edited("vercel_ai_messages_paused", |value| {
            let id = value[1]["content"][2]["approvalId"].clone();
            let response =
                serde_json::json!({"type": "tool-approval-response", "approvalId": id, "approved": approved});
            value.as_array_mut().unwrap().push(serde_json::json!({"role": "tool", "content": [response]}));
        });
        assert_eq!(calls.all()[0].consent(), consent);
        assert_eq!(calls.all()[1].consent(), Consent::Pending);
    }
}

#[test]
fn a_result_in_the_run_state_answers_its_call() {
    let calls = edited("openai_agents_runstate_paused", |value| {
        let output = serde_json::json!({"type": "tool_call_output_item",
            "raw_item": {"type": "function_call_output", "call_id": "call_0", "output": "re_1"}});
        value["generated_items"].as_array_mut().unwrap().push(output);
        value["current_step"]["data"]["interruptions"].as_array_mut().unwrap().remove(0);
    });
    let told: Vec<_> = calls.all().iter().map(|call| (call.is_answered(), call.consent())).collect();
    assert_eq!(told, [(true, Consent::NotAsked), (false, Consent::Pending)]);
}

#[test]
fn a_run_state_without_generated_items_is_an_error_not_an_empty_file() {
    let mut value = json(&file("wire/openai_agents_runstate_paused.json"));
    value.as_object_mut().unwrap().remove("generated_items");
    assert!(Calls::parse(&value.to_string()).unwrap_err().is_bad_input());
}

#[test]
fn an_id_that_repeats_in_a_later_turn_is_not_answered_by_the_first_result() {
    let call = r#"{"type":"function_call","call_id":"refund:0","name":"refund","arguments":"{}"}"#;
    let result = r#"{"type":"function_call_output","call_id":"refund:0","output":"re_1"}"#;
    let answered = |text: String| -> Vec<bool> {
        Calls::parse(&text).unwrap().all().iter().map(|call| call.is_answered()).collect()
    };
    assert_eq!(answered(format!("[{call},{result},{call}]")), [true, false]);
    assert_eq!(answered(format!("[{call},{call},{result}]")), [true, false]);
    assert_eq!(answered(format!("[{call},{call},{result},{result}]")), [true, true]);
    assert_eq!(answered(format!("[{result},{call}]")), [false]);
}

#[test]
fn a_confirmation_that_adk_asks_for_is_an_approval_and_no_call() {
    let call = r#"{"function_call":{"id":"adk-1","name":"refund","args":{"order_id":"A1"}}}"#;
    let interim = r#"{"function_response":{"id":"adk-1","name":"refund","response":
        {"error":"This tool call requires confirmation, please approve or reject."}}}"#;
    let asked = r#"{"function_call":{"id":"adk-2","name":"adk_request_confirmation","args":
        {"originalFunctionCall":{"id":"adk-1","name":"refund"},"toolConfirmation":{"confirmed":false}}}}"#;
    let decided =
        r#"{"function_response":{"id":"adk-2","name":"adk_request_confirmation","response":{"confirmed":true}}}"#;
    let read = |parts: &[&str]| {
        Calls::parse(&format!(r#"{{"content":{{"role":"model","parts":[{}]}}}}"#, parts.join(","))).unwrap()
    };
    let waiting = read(&[call, asked, interim]);
    assert_eq!(waiting.all().len(), 1);
    assert_eq!((waiting.answered(), waiting.all()[0].consent()), (0, Consent::Pending));
    let given = read(&[call, asked, interim, decided]);
    assert_eq!((given.answered(), given.all()[0].consent()), (0, Consent::Given));
}
