//! The eight faults that the field's own articles list, by name, over HTTP, against a provider that
//! honours keys and one that does not. One effect each, or the conflict.

use std::sync::Barrier;
use std::time::Duration;

use onceledger::testkit::{FakeProvider, Reply as Answers};
use onceledger::tool::{Call, Calls, Reply, Rule, Status, Tool, ToolBook};
use onceledger::{Ledger, Options, Recovery};

use crate::provider::{each, look, refund_at};
use crate::{ask, json, refund, scope, transcript};

const ARGS: &str = r#"{"order_id": "ord_42", "amount": 79, "note": "customer asked"}"#;

fn book(tool: Tool) -> ToolBook {
    ToolBook::new().with("refund", tool).unwrap()
}

fn ledger() -> Ledger {
    Options::new().settle_delay(Duration::ZERO).in_memory().unwrap()
}

fn run(book: &ToolBook, ledger: &Ledger, call: &Call, provider: &FakeProvider) -> Reply {
    book.run(ledger, call, &scope(), "run_42", |permit| refund_at(&provider.url(), permit))
}

fn result(reply: &Reply) -> serde_json::Value {
    json(&reply.body())["result"].clone()
}

#[test]
fn same_input_twice() {
    each(|provider| {
        let (book, ledger) = (book(refund()), ledger());
        let first = run(&book, &ledger, &ask("t1", ARGS), provider);
        let again = run(&book, &ledger, &ask("t1", ARGS), provider);
        assert_eq!((first.status(), again.status()), (Status::Done, Status::AlreadyDone));
        assert_eq!(result(&first), result(&again));
        assert_eq!(provider.effect_count(), 1);
    });
}

/// What the child of the next test does; nothing, where nobody started it.
#[test]
fn child_that_is_killed_after_the_effect() {
    let (Ok(path), Ok(url)) = (std::env::var("ONCELEDGER_TEST_LEDGER"), std::env::var("ONCELEDGER_TEST_URL")) else {
        return;
    };
    let ledger = Ledger::open_or_create(path).unwrap();
    let _ = book(refund()).run(&ledger, &ask("t1", ARGS), &scope(), "run_42", |permit| {
        let refunded = refund_at(&url, permit);
        assert!(refunded.is_ok());
        std::process::abort();
        #[allow(unreachable_code)]
        refunded
    });
}

#[test]
fn killed_after_the_effect_and_before_the_result_is_saved_then_resumed() {
    each(|provider| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.redb");
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "faults::child_that_is_killed_after_the_effect"])
            .env("ONCELEDGER_TEST_LEDGER", &path)
            .env("ONCELEDGER_TEST_URL", provider.url())
            .output()
            .unwrap();
        assert!(!child.status.success());
        assert_eq!(provider.effect_count(), 1);
        let ledger = Options::new().settle_delay(Duration::ZERO).open(&path).unwrap();
        let resumed = run(&book(refund()), &ledger, &ask("t1", ARGS), provider);
        assert_eq!(resumed.status(), Status::Uncertain);
        // The key stands under the rule of its first claim; a person, or a start-up that knows better,
        // resolves it.
        let doubt = ledger.uncertain().unwrap().remove(0);
        let verdict = onceledger::Verdict::Done(Some(onceledger::Outcome::json("{\"effect\":1}")));
        assert_eq!(ledger.resolve(&doubt, verdict, "ops/ana", "seen").unwrap(), onceledger::Resolved::Applied);
        let again = run(&book(refund()), &ledger, &ask("t1", ARGS), provider);
        assert_eq!(again.status(), Status::AlreadyDone);
        assert_eq!(provider.effect_count(), 1);
    });
}

#[test]
fn the_same_resume_twice_at_once() {
    each(|provider| {
        let (book, ledger) = (book(refund()), ledger());
        provider.set_default(Answers::Late(Duration::from_millis(100)));
        let start = Barrier::new(2);
        let mut told: Vec<_> = std::thread::scope(|scope| {
            let resume = || {
                start.wait();
                run(&book, &ledger, &ask("t1", ARGS), provider).status()
            };
            [scope.spawn(resume), scope.spawn(resume)].map(|thread| thread.join().unwrap()).into()
        });
        told.sort();
        assert!(told[0] == Status::Done && told[1] != Status::Done, "{told:?}");
        assert_eq!(provider.effect_count(), 1);
    });
}

#[test]
fn the_provider_times_out_after_succeeding_and_the_retry_finds_the_first_result() {
    each(|provider| {
        let resend = Recovery::Resend { window: Duration::from_secs(3600) };
        let honours = provider_honours(provider);
        // A provider that honours keys is asked again; one that does not is looked at.
        let recovery = if honours { resend } else { look(&provider.url()) };
        let (book, ledger) = (book(refund().recovery(recovery)), ledger());
        provider.script([Answers::CloseAfter]);
        let before = provider.effect_count();
        let first = run(&book, &ledger, &ask("t1", ARGS), provider);
        assert_eq!(first.status(), Status::Uncertain);
        let retry = run(&book, &ledger, &ask("t1", ARGS), provider);
        assert_eq!(retry.status(), if honours { Status::Done } else { Status::AlreadyDone });
        assert!(result(&retry)["effect"].is_number(), "{}", retry.body());
        assert_eq!(provider.effect_count(), before + 1);
        assert_eq!(run(&book, &ledger, &ask("t1", ARGS), provider).status(), Status::AlreadyDone);
    });
}

fn provider_honours(provider: &FakeProvider) -> bool {
    let again = || onceledger::testkit::post(&format!("{}/probe", provider.url()), &[("Idempotency-Key", "k")], b"");
    again().unwrap() == again().unwrap()
}

#[test]
fn the_model_asks_again_in_a_later_turn_with_a_new_call_id() {
    each(|provider| {
        for rule in [Rule::Run, Rule::Business] {
            let (book, ledger) = (book(refund().rule(rule)), ledger());
            let before = provider.effect_count();
            let first = run(&book, &ledger, &ask("t1", ARGS), provider);
            let rephrased = ask("t9", r#"{"note": "please refund", "amount": 79.0, "order_id": "ord_42"}"#);
            let later = run(&book, &ledger, &rephrased, provider);
            assert_eq!((first.status(), later.status()), (Status::Done, Status::AlreadyDone));
            assert!(later.envelope().contains("\"t9\""), "{}", later.envelope());
            let here = provider.effects().iter().filter(|effect| effect.path == "/refunds/ord_42").count();
            assert!(here - before <= 1, "{here}");
        }
    });
}

#[test]
fn two_equal_calls_in_one_response() {
    each(|provider| {
        let (book, ledger) = (book(refund()), ledger());
        let mut calls = Vec::new();
        for name in ["google_adk_events", "langchain_messages", "openai_responses_items", "vercel_ai_messages"] {
            let mut all = unanswered(name);
            assert_eq!(all.all().len(), 2, "{name}");
            calls.append(&mut std::mem::take(&mut all).all().to_vec());
        }
        let told: Vec<_> = calls.iter().map(|call| run(&book, &ledger, call, provider).status()).collect();
        assert_eq!(told[0], Status::Done);
        assert!(told[1..].iter().all(|status| *status == Status::AlreadyDone), "{told:?}");
        assert_eq!(provider.effect_count(), 1);
    });
}

/// A transcript up to its calls: the crash lost the results.
fn unanswered(name: &str) -> Calls {
    let value = json(&crate::file(&format!("wire/{name}.json")));
    let kept: Vec<_> = value.as_array().unwrap().iter().filter(|item| !is_result(item)).cloned().collect();
    let calls = Calls::parse(&serde_json::Value::from(kept).to_string()).unwrap();
    assert_eq!(calls.answered(), 0, "{name}");
    assert_eq!(transcript(name).answered(), 2, "{name}");
    calls
}

fn is_result(item: &serde_json::Value) -> bool {
    let text = item.to_string();
    ["function_response", "tool_call_id", "function_call_output", "tool-result"].iter().any(|word| text.contains(word))
}

#[test]
fn an_approval_is_delivered_twice() {
    each(|provider| {
        for needed in [false, true] {
            let (book, ledger) = (book(refund().approval(needed)), ledger());
            let before = provider.effect_count();
            // Each of the two deliveries approves both calls, and resumes both.
            let text = approved_twice();
            let start = Barrier::new(2);
            let deliver = || {
                start.wait();
                let calls = Calls::parse(&text).unwrap();
                let mut told: Vec<_> =
                    calls.to_run().map(|call| run(&book, &ledger, call, provider).status()).collect();
                for waiting in ledger.approvals(None, None, 10).unwrap() {
                    let decided = ledger.approve(waiting.id, "ops/ana").unwrap();
                    assert!(!matches!(decided, onceledger::Decision::Conflict(_)));
                    told.extend(calls.to_run().map(|call| run(&book, &ledger, call, provider).status()));
                }
                told
            };
            let told: Vec<Status> = std::thread::scope(|scope| {
                let threads = [scope.spawn(deliver), scope.spawn(deliver)];
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(told.iter().filter(|status| **status == Status::Done).count(), 1, "{told:?}");
            assert!(provider.effect_count() - before <= 1);
        }
        let here = provider.effects();
        let keys: std::collections::BTreeSet<_> = here.iter().map(|effect| effect.key.clone()).collect();
        assert_eq!(keys.len(), 1);
    });
}

/// A paused transcript whose approvals came twice.
fn approved_twice() -> String {
    let mut value = json(&crate::file("wire/vercel_ai_messages_paused.json"));
    let requests = value[1]["content"].as_array().unwrap()[2..].to_vec();
    let approvals: Vec<_> = requests
        .iter()
        .flat_map(|request| {
            let id = &request["approvalId"];
            let yes = serde_json::json!({"type": "tool-approval-response", "approvalId": id, "approved": true});
            [yes.clone(), yes]
        })
        .collect();
    value.as_array_mut().unwrap().push(serde_json::json!({"role": "tool", "content": approvals}));
    value.to_string()
}

#[test]
fn the_same_key_with_other_arguments() {
    each(|provider| {
        let (book, ledger) = (book(refund()), ledger());
        let first = run(&book, &ledger, &ask("t1", ARGS), provider);
        let other = run(&book, &ledger, &ask("t1", r#"{"order_id": "ord_42", "amount": 790}"#), provider);
        assert_eq!((first.status(), other.status()), (Status::Done, Status::Mismatch));
        assert!(result(&other).is_null() && other.is_error());
        assert_eq!(run(&book, &ledger, &ask("t1", ARGS), provider).status(), Status::AlreadyDone);
        assert_eq!(provider.effect_count(), 1);
    });
}

#[test]
fn free_text_outside_the_identity_may_change_between_attempts() {
    each(|provider| {
        let (book, ledger) = (book(refund()), ledger());
        for note in ["first", "second", "a third, longer one \u{1F600}"] {
            let arguments = serde_json::json!({"order_id": "ord_42", "amount": 79, "note": note}).to_string();
            let _ = run(&book, &ledger, &ask("t1", &arguments), provider);
        }
        assert_eq!(provider.effect_count(), 1);
    });
}

#[test]
fn a_provider_that_was_never_reached_leaves_the_key_free() {
    let (book, ledger) = (book(refund()), ledger());
    let gone = FakeProvider::start(onceledger::testkit::Keys::Honour).unwrap().url();
    let call = ask("t1", ARGS);
    let first = book.run(&ledger, &call, &scope(), "run_42", |permit| refund_at(&gone, permit));
    assert_eq!((first.status(), first.do_not_retry()), (Status::NotApplied, false));
    let provider = FakeProvider::start(onceledger::testkit::Keys::Ignore).unwrap();
    assert_eq!(run(&book, &ledger, &call, &provider).status(), Status::Done);
    assert_eq!(provider.effect_count(), 1);
}
