//! `calls`: a model's tool calls from the shell.

use std::process::Stdio;

use onceledger::canonical::Value;
use onceledger::{ApprovalId, Key, Ledger, Scope, Selection};
use serde_json::json;

use crate::support::{Place, Running, Said, signal, until, until_code};

const BOOK: &str = r#"
[tool.refund]
class = "effect"
identity = ["/order_id"]
guard = ["/amount"]
scope = "business"
command = ["sh", "-c", "cat >> arguments.log; echo $ONCELEDGER_KEY >> effects.log; echo '{\"refund_id\": \"re_1\"}'"]

[tool.mail]
class = "effect"
command = ["sh", "-c", "echo effect >> effects.log; echo sent; echo posted >&2"]

[tool.twice]
class = "effect"
scope = "call"
command = ["sh", "-c", "echo effect >> effects.log"]

[tool.judged]
class = "effect"
final = [3]
not_applied = [75]
command = ["sh", "-c", "echo effect >> effects.log; echo why >&2; exit $(cat | tr -dc 0-9)"]

[tool.look]
class = "read"
command = ["sh", "-c", "echo look >> looks.log; echo \"$ONCELEDGER_ARGS ${ONCELEDGER_TOKEN-none}\""]

[tool.put]
class = "idempotent"
command = ["sh", "-c", "echo $ONCELEDGER_DOWNSTREAM_UUID >> puts.log"]

[tool.guarded]
class = "effect"
approval = true
command = ["sh", "-c", "echo effect >> effects.log"]

[tool.meet]
class = "effect"
command = ["sh", "-c", "n=$(tr -dc 0-9); touch here$n; while [ ! -e here1 -o ! -e here2 ]; do sleep 0.01; done; echo $n"]

[tool.slow]
class = "effect"
command = ["sh", "-c", "echo effect >> effects.log; echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done"]

[tool.bare]
class = "effect"

[tool.nowhere]
class = "effect"
command = ["./nothing-here"]
"#;

const TRANSCRIPTS: [(&str, usize, usize); 6] = [
    ("google_adk_events", 0, 2),
    ("langchain_messages", 0, 2),
    ("openai_agents_runstate_paused", 2, 0),
    ("openai_responses_items", 0, 2),
    ("vercel_ai_messages", 0, 2),
    ("vercel_ai_messages_paused", 2, 0),
];

fn wire(name: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/wire/{name}.json", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn place() -> Place {
    let place = Place::quick_with_ledger();
    place.write("tools.toml", BOOK);
    place
}

fn arguments<'a>(file: &'a str, more: &'a str) -> Vec<&'a str> {
    let fixed = ["calls", file, "--ledger", "l.redb", "--run", "run_42", "--tools", "tools.toml"];
    fixed.into_iter().chain(more.split_whitespace()).collect()
}

#[track_caller]
fn calls(place: &Place, text: &str, more: &str) -> Said {
    place.write("in.jsonl", text);
    place.once(&arguments("in.jsonl", more))
}

fn start(place: &Place, text: &str, more: &str) -> Running {
    place.write("in.jsonl", text);
    Running(place.command(&arguments("in.jsonl", more)).spawn().unwrap())
}

fn call(id: &str, tool: &str, input: serde_json::Value) -> String {
    json!({"type": "tool_use", "id": id, "name": tool, "input": input}).to_string()
}

/// The ledger's answers in Anthropic's messages, with their ids.
#[track_caller]
fn answers(said: &Said) -> Vec<(String, serde_json::Value)> {
    let answer = |message: &serde_json::Value| {
        let part = &message["content"][0];
        assert_eq!((&message["role"], &part["type"]), (&json!("user"), &json!("tool_result")), "{message}");
        let body = serde_json::from_str(part["content"].as_str().unwrap()).unwrap();
        (part["tool_use_id"].as_str().unwrap().to_owned(), body)
    };
    said.lines().iter().map(answer).collect()
}

#[track_caller]
fn statuses(said: &Said) -> Vec<String> {
    answers(said).iter().map(|(_, body)| body["status"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_transcript_is_read_whole() {
    for (name, waiting, answered) in TRANSCRIPTS {
        let place = place();
        let said = calls(&place, &wire(name), "").code(if waiting > 0 { 77 } else { 0 });
        let said = said.says(&format!("ran 0, repeated 0, not run {waiting}, skipped {answered}, broken 0"));
        assert_eq!(said.lines().len(), waiting, "{name}");
        assert!(said.lines().iter().all(|line| line.to_string().contains("awaiting_approval")), "{name}");
        assert_eq!(place.effects(), 0, "{name}");
    }
    let files = std::fs::read_dir(format!("{}/tests/wire", env!("CARGO_MANIFEST_DIR"))).unwrap();
    assert_eq!(files.count(), TRANSCRIPTS.len() + 1, "a file that no test reads");
}

#[test]
fn transcripts_without_their_results_have_one_effect_whatever_their_shape() {
    let place = place();
    let mut first = true;
    for (name, member) in [
        ("google_adk_events", "function_response"),
        ("langchain_messages", "tool_call_id"),
        ("openai_responses_items", "function_call_output"),
        ("vercel_ai_messages", "tool-result"),
    ] {
        let whole: Vec<serde_json::Value> = serde_json::from_str(&wire(name)).unwrap();
        let open: Vec<_> = whole.into_iter().filter(|message| !message.to_string().contains(member)).collect();
        let repeated = if first { "ran 1, repeated 1" } else { "ran 0, repeated 2" };
        let said = calls(&place, &serde_json::to_string_pretty(&open).unwrap(), "").code(0).says(repeated);
        let text = String::from_utf8(said.out).unwrap();
        assert_eq!((text.lines().count(), text.matches("re_1").count() >= 2), (2, true), "{name}: {text}");
        // Line by line it is the same.
        let lines = open.iter().map(|message| format!("{message}\n")).collect::<String>();
        calls(&place, &lines, "").code(0).says("ran 0, repeated 2, not run 0, skipped 0, broken 0");
        first = false;
    }
    assert_eq!(place.effects(), 1);
    assert_eq!(place.read("arguments.log"), r#"{"amount":79,"note":"customer asked twice","order_id":"ord_42"}"#);
}

#[test]
fn every_shape_is_answered_in_its_own() {
    let place = place();
    let shapes: serde_json::Value = serde_json::from_str(&wire("shapes")).unwrap();
    let calls_of = |shape: &serde_json::Value| {
        let calls = ["call", "call_no_id", "provider_call"].map(|name| shape.get(name).cloned());
        calls.into_iter().flatten().collect::<Vec<_>>()
    };
    let all: Vec<_> = shapes.as_object().unwrap().values().flat_map(calls_of).collect();
    let text = all.iter().map(|call| format!("{call}\n")).collect::<String>();
    let said = calls(&place, &text, "--jobs 4").code(0).says(&format!("ran 1, repeated {},", all.len() - 1));
    assert_eq!(said.lines().len(), all.len());
    let again = calls(&place, &text, "").code(0).says(&format!("ran 0, repeated {},", all.len()));
    for (first, again) in said.lines().iter().zip(again.lines()).skip(1) {
        assert_eq!(*first, again);
    }
    assert_eq!(place.effects(), 1);
}

#[test]
fn run_twice_there_is_one_effect_each_and_the_same_results() {
    let place = place();
    let input: String = (0..6).map(|n| call(&format!("t{n}"), "mail", json!({ "to": n / 2 })) + "\n").collect();
    let first = calls(&place, &input, "").code(0).says("posted\n").says("ran 3, repeated 3, not run 0");
    let again = calls(&place, &input, "--jobs 3").code(0).says("ran 0, repeated 6, not run 0");
    assert_eq!(statuses(&first), ["done", "already_done", "done", "already_done", "done", "already_done"]);
    for ((id, first), (again_id, again)) in answers(&first).iter().zip(answers(&again)) {
        assert_eq!((id, &first["result"]), (&again_id, &json!("sent\n")));
        assert_eq!((&first["result"], &again["status"]), (&again["result"], &json!("already_done")));
    }
    assert_eq!(place.effects(), 3);
    // Ids count where the tool says so.
    let input = [call("a", "twice", json!({})), call("b", "twice", json!({})), call("b", "twice", json!({}))];
    calls(&place, &input.join("\n"), "").code(0).says("ran 2, repeated 1");
    assert_eq!(place.effects(), 5);
}

#[test]
fn jobs_run_at_once_and_answer_in_order() {
    let place = place();
    // Each of the two waits for the other.
    let input = [1, 2].map(|n| call(&format!("t{n}"), "meet", json!({ "n": n }))).join("\n");
    let said = calls(&place, &input, "--jobs 2").code(0).says("ran 2, ");
    let results: Vec<_> = answers(&said).into_iter().map(|(id, body)| (id, body["result"].clone())).collect();
    assert_eq!(results, [("t1".to_owned(), json!(1)), ("t2".to_owned(), json!(2))]);
    let input: String = (0..40).map(|n| call(&format!("t{n}"), "mail", json!({ "to": n % 20 })) + "\n").collect();
    let said = calls(&place, &input, "--jobs 8").code(0).says("ran 20, repeated 20");
    assert!(answers(&said).iter().enumerate().all(|(at, (id, _))| *id == format!("t{at}")));
    assert_eq!(place.effects(), 20);
}

#[test]
fn broken_lines_are_told_by_number_and_the_rest_goes_on() {
    let place = place();
    let good = call("t1", "mail", json!({"to": 1}));
    let input = format!("{good}\n{{\"type\": \n\n{}\n{{\"hello\": 1}}\n\n", call("t2", "mail", json!({"to": 2})));
    let said = calls(&place, &input, "").code(64).says("in.jsonl: line 2: ").says("in.jsonl: line 5: ");
    let said = said.says("ran 2, repeated 0, not run 0, skipped 0, broken 2");
    assert_eq!(statuses(&said), ["done", "done"]);
    assert!(!said.err.contains("line 4") && !said.err.contains("line 3"), "{}", said.err);
    let lines = calls(&place, &input, "--json").code(64).lines();
    assert_eq!((&lines[0]["line"], &lines[1]["line"]), (&json!(2), &json!(5)));
    assert_eq!(lines[0]["error"]["exit_code"], 64);
    assert_eq!((&lines[3]["line"], &lines[3]["status"]), (&json!(4), &json!("already_done")));
    assert_eq!(lines[3]["answer"]["content"][0]["tool_use_id"], "t2");
    // A tool that nobody knows, and arguments that are none, are answered.
    let input = format!(
        "{}\n{good}\n{}",
        call("t3", "mai", json!({})),
        json!({"type": "function_call", "call_id": "c", "name": "mail", "arguments": "{"})
    );
    let said = calls(&place, &input, "").code(64).says("line 1: mai: error_before: ").says("broken 0");
    let text = String::from_utf8(said.out).unwrap();
    assert!(text.lines().next().unwrap().contains("did you mean \\\\\\\"mail\\\\\\\"?"), "{text}");
    assert!(text.lines().nth(1).unwrap().contains("already_done"), "{text}");
    assert!(text.lines().nth(2).unwrap().contains("error_before"), "{text}");
    assert_eq!(place.effects(), 2);
}

#[test]
fn bad_usage_runs_nothing() {
    let place = place();
    calls(&place, "", "").code(0).prints("").says("ran 0, repeated 0, not run 0, skipped 0, broken 0");
    let good = call("t1", "mail", json!({}));
    calls(&place, &good, "--jobs 0").code(64);
    calls(&place, &good, "--scope=").code(64);
    place.once(&arguments("nowhere.jsonl", "")).code(64).says("nowhere.jsonl");
    place.once(&["calls", "in.jsonl", "--ledger", "no.redb", "--run", "r", "--tools", "tools.toml"]).code(69);
    place.once(&["calls", "in.jsonl", "--ledger", "l.redb", "--run", "", "--tools", "tools.toml"]).code(64);
    place.write("tools.toml", "[tool.mail]\nclass = \"efect\"");
    calls(&place, &good, "").code(64).says("tools.toml").says("line 2:");
    assert_eq!(place.effects(), 0);
}

#[test]
fn standard_input_and_a_new_ledger() {
    let place = place();
    let all = ["calls", "-", "--ledger", "new.redb", "--create", "--run", "r", "--tools", "tools.toml"];
    let mut child = place.command(&all).stdin(Stdio::piped()).spawn().unwrap();
    let text = call("t1", "look", json!({"b": 1.50, "a": "é"}));
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let said = Running(child).finish().code(0);
    assert_eq!(answers(&said)[0].1["result"], "{\"a\":\"é\",\"b\":1.5} none\n");
}

#[test]
fn exit_codes_mean_what_the_book_says_and_the_gravest_is_told() {
    let place = place();
    let judged = |code: i32| call(&format!("t{code}"), "judged", json!({ "exit": code }));
    let said = calls(&place, &judged(75), "").code(75).says("why");
    assert_eq!(answers(&said)[0].1["result"], "exit code 75: why");
    calls(&place, &judged(75), "").code(75).says("ran 1");
    let said = calls(&place, &judged(3), "").code(3);
    assert_eq!(answers(&said)[0].1["result"], "why");
    let said = calls(&place, &judged(3), "").code(1).says("repeated 1");
    assert_eq!(answers(&said)[0].1["result"], "why");
    let said = calls(&place, &[judged(75), judged(9), judged(0), judged(3)].join("\n"), "").code(76);
    assert_eq!(statuses(&said), ["not_applied", "uncertain", "done", "failed"]);
    let token = answers(&said)[1].1["ticket"]["token"].clone();
    let said = calls(&place, &judged(9), "").code(76).says(&format!("--token {token} --by WHO")).says("not run 1");
    assert_eq!(statuses(&said), ["uncertain"]);
    assert_eq!(place.effects(), 6);
    let said = calls(&place, &call("b", "bare", json!({})), "").code(126).says("could not be started");
    assert_eq!(statuses(&said), ["not_applied"]);
    calls(&place, &call("n", "nowhere", json!({})), "").code(127).says("ran 0, repeated 0, not run 1");
    let refund = |amount: u32| call("r", "refund", json!({"order_id": "o", "amount": amount}));
    let said = calls(&place, &[refund(1), refund(2)].join("\n"), "").code(65);
    assert_eq!(statuses(&said), ["done", "mismatch"]);
}

#[test]
fn reads_run_freely_and_idempotent_writes_repeat_under_one_key() {
    let place = place();
    let input = [call("a", "look", json!({})), call("b", "put", json!({})), call("c", "put", json!({}))].join("\n");
    calls(&place, &input, "").code(0).says("ran 3");
    calls(&place, &input, "").code(0).says("ran 3");
    assert_eq!(place.read("looks.log").lines().count(), 2);
    let puts = place.read("puts.log");
    assert_eq!(puts.lines().count(), 4);
    assert!(puts.lines().all(|key| key == puts.lines().next().unwrap()));
}

#[test]
fn an_effect_that_needs_an_approval_waits_for_it() {
    let place = place();
    let input = call("a", "guarded", json!({"n": 1}));
    let said = calls(&place, &input, "").code(77).says("ran 0, repeated 0, not run 1");
    assert_eq!(statuses(&said), ["awaiting_approval"]);
    let number = answers(&said)[0].1["ticket"]["approval"].as_u64().unwrap();
    calls(&place, &input, "").code(77);
    assert_eq!(place.effects(), 0);
    let ledger = Ledger::open(place.path("l.redb")).unwrap();
    let _ = ledger.approve(ApprovalId::from_number(number), "ann").unwrap();
    ledger.close().unwrap();
    calls(&place, &input, "").code(0).says("ran 1");
    calls(&place, &input, "").code(0).says("repeated 1");
    assert_eq!(place.effects(), 1);
}

#[test]
fn killed_in_the_middle_and_started_again_there_is_one_effect_each() {
    let place = place();
    let input =
        [call("a", "mail", json!({})), call("b", "slow", json!({})), call("c", "mail", json!({"n": 1}))].join("\n");
    let running = start(&place, &input, "");
    until("the command", || std::fs::read_to_string(place.path("pid")).is_ok_and(|pid| pid.ends_with('\n')));
    running.kill();
    // Its command lives, and nobody may run it again.
    let said = calls(&place, &input, "").code(75).says("ran 1, repeated 1, not run 1");
    assert_eq!(statuses(&said), ["already_done", "in_progress", "done"]);
    place.write("go", "");
    until_code("the command ends", 76, || calls(&place, &input, ""));
    let said = calls(&place, &input, "").code(76);
    assert_eq!(statuses(&said), ["already_done", "uncertain", "already_done"]);
    assert_eq!(place.effects(), 3);
}

#[test]
fn a_signal_lets_what_runs_end_and_starts_nothing_more() {
    let place = place();
    let input = [call("b", "slow", json!({})), call("c", "mail", json!({}))].join("\n");
    let running = start(&place, &input, "");
    until("the command", || std::fs::read_to_string(place.path("pid")).is_ok_and(|pid| pid.ends_with('\n')));
    signal(running.pid(), "TERM");
    std::thread::sleep(std::time::Duration::from_millis(500));
    place.write("go", "");
    let said = running.finish().says("ran 1, repeated 0, not run 0, skipped 0, broken 0, stopped before 1");
    assert_eq!((said.signal, statuses(&said)), (Some(15), vec!["done".to_owned()]));
    calls(&place, &input, "").code(0).says("ran 1, repeated 1");
    assert_eq!(place.effects(), 2);
}

#[test]
fn run_and_calls_of_one_business_scope_are_one_action() {
    let place = place();
    let run = |order: &str, scope: &str| {
        let args = json!({"order_id": order, "amount": 79, "note": "in other words"}).to_string();
        let fixed = ["run", "--ledger", "l.redb", "--scope", scope, "--tool", "refund", "--args", &args];
        let fields = ["--identity", "/order_id", "--guard", "/amount", "--", "sh", "-c"];
        place.once(&[&fixed[..], &fields, &["echo effect >> effects.log; echo by run"]].concat())
    };
    let refund = |order: &str| call("t1", "refund", json!({"order_id": order, "amount": 79.0, "note": "please"}));
    calls(&place, &refund("A"), "").code(0).says("ran 1");
    run("A", "default").code(0).prints("{\"refund_id\": \"re_1\"}\n").says("repeat");
    let args = Value::parse(r#"{"order_id":"A","amount":79}"#).unwrap();
    let selection = Selection::tool(&args, &["/order_id"], &["/amount"]).unwrap();
    let key = Key::tool(&Scope::new("default").unwrap(), "refund", &selection).unwrap();
    assert_eq!(place.read("effects.log"), format!("{}\n", key.to_hex()));

    run("B", "default").code(0).prints("by run\n");
    let said = calls(&place, &refund("B"), "").code(0).says("ran 0, repeated 1");
    assert_eq!(answers(&said)[0].1["result"]["stdout"], "by run\n");
    assert_eq!(place.effects(), 2);
    calls(&place, &refund("B"), "--scope other").code(0).says("ran 1");
    run("B", "other").code(0).says("repeat");
    assert_eq!(place.effects(), 3);
}
