//! docs/MESSAGES.md holds every word that a model is told. `ONCELEDGER_UPDATE=1 cargo test --test tool`
//! writes it anew.

use onceledger::tool::{Reply, Status, Tool, ToolBook};
use onceledger::{Claim, Claimed, EffectError, Ledger, Options, Outcome};

use crate::{ask, call, json, refund, scope};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/MESSAGES.md");
const BEGIN: &str = "<!-- begin: written by tests/tool/messages.rs -->\n";
const END: &str = "<!-- end -->\n";

const ARGS: &str = r#"{"order_id": "A1", "amount": 79}"#;

struct Desk {
    book: ToolBook,
    ledger: Ledger,
}

impl Desk {
    fn new(tool: Tool) -> Self {
        Desk { book: ToolBook::new().with("refund", tool).unwrap(), ledger: Ledger::in_memory().unwrap() }
    }

    fn small(tool: Tool) -> Self {
        Desk { ledger: Options::new().outcome_bytes_max(4).in_memory().unwrap(), ..Desk::new(tool) }
    }

    fn run(&self, arguments: &str, effect: impl FnOnce() -> Result<Outcome, EffectError>) -> Reply {
        self.book.run(&self.ledger, &ask("toolu_1", arguments), &scope(), "run_42", |_| effect())
    }

    fn claim(&self) -> Claim {
        self.book.claim(&ask("toolu_1", ARGS), &scope(), "run_42").unwrap()
    }
}

fn refunded() -> Result<Outcome, EffectError> {
    Ok(Outcome::json(r#"{"refund_id":"re_1"}"#))
}

fn must_not_run() -> Result<Outcome, EffectError> {
    panic!("it ran")
}

/// Every situation that has words of its own.
fn situations() -> Vec<(&'static str, Status, Reply)> {
    let mut all = Vec::new();
    let mut add = |what, status, reply: Reply| {
        assert_eq!(reply.status(), status, "{what}");
        all.push((what, status, reply));
    };
    let desk = Desk::new(refund());
    add("ran now", Status::Done, desk.run(ARGS, refunded));
    add("ran before", Status::AlreadyDone, desk.run(ARGS, must_not_run));
    let other = desk.run(r#"{"order_id": "A1", "amount": 80}"#, must_not_run);
    let small = Desk::small(refund());
    let _ = small.run(ARGS, refunded);
    add("ran before, result not kept", Status::AlreadyDone, small.run(ARGS, must_not_run));
    let desk = Desk::new(refund());
    let Claimed::Granted(grant) = desk.ledger.claim(&desk.claim()).unwrap() else { panic!() };
    add("runs in another call", Status::InProgress, desk.run(ARGS, must_not_run));
    drop(grant);
    let desk = Desk::new(refund());
    let declined = || Err(EffectError::final_failure("card declined"));
    add("failed for good", Status::Failed, desk.run(ARGS, declined));
    assert_eq!(desk.run(ARGS, must_not_run).status(), Status::Failed);
    let small = Desk::small(refund());
    let _ = small.run(ARGS, declined);
    add("failed for good before, answer not kept", Status::Failed, small.run(ARGS, must_not_run));
    let desk = Desk::new(refund());
    add("nobody knows", Status::Uncertain, desk.run(ARGS, || Err(EffectError::unknown("timed out"))));
    assert_eq!(desk.run(ARGS, must_not_run).status(), Status::Uncertain);
    add("stands with other arguments", Status::Mismatch, other);
    let desk = Desk::new(refund().approval(true));
    add("needs an approval", Status::AwaitingApproval, desk.run(ARGS, must_not_run));
    add("was refused", Status::Denied, refused());
    let waiting = desk.ledger.approvals(None, None, 1).unwrap().remove(0);
    let _ = desk.ledger.withdraw(waiting.id, "ops/ana").unwrap();
    add("not approved in time", Status::Expired, desk.run(ARGS, must_not_run));
    let desk = Desk::new(refund());
    add("certainly no effect", Status::NotApplied, desk.run(ARGS, || Err(EffectError::not_applied("out of stock"))));
    add("decided meanwhile", Status::Superseded, superseded());
    let desk = Desk::new(refund());
    add("bad arguments", Status::ErrorBefore, desk.run("{}", must_not_run));
    let desk = Desk::new(refund());
    desk.ledger.clone().close().unwrap();
    add("the ledger cannot be used", Status::ErrorBefore, desk.run(ARGS, must_not_run));
    add("has its result already", Status::ErrorBefore, answered());
    let desk = Desk::new(refund());
    let closed = desk.ledger.clone();
    let late = desk.run(ARGS, move || {
        closed.close().unwrap();
        refunded()
    });
    add("ran, not recorded", Status::ErrorAfter, late);
    add("a read, or a repeatable write", Status::Done, Desk::new(Tool::read()).run(ARGS, refunded));
    let unknown = Desk::new(Tool::idempotent()).run(ARGS, || Err(EffectError::unknown("timed out")));
    add("a repeatable write of which nobody knows", Status::Uncertain, unknown);
    all
}

fn refused() -> Reply {
    let text = format!(
        r#"[{{"type":"tool-call","toolCallId":"c","toolName":"refund","input":{ARGS}}},
            {{"type":"tool-approval-request","approvalId":"a","toolCallId":"c"}},
            {{"type":"tool-approval-response","approvalId":"a","approved":false}}]"#
    );
    let desk = Desk::new(refund());
    desk.book.run(&desk.ledger, &call(&text), &scope(), "run_42", |_| must_not_run())
}

fn answered() -> Reply {
    let text = format!(
        r#"[{{"type":"tool_use","id":"t","name":"refund","input":{ARGS}}},{{"type":"tool_result","tool_use_id":"t"}}]"#
    );
    let desk = Desk::new(refund());
    desk.book.run(&desk.ledger, &call(&text), &scope(), "run_42", |_| must_not_run())
}

fn superseded() -> Reply {
    let desk = Desk::new(refund());
    let (ledger, key) = (desk.ledger.clone(), desk.claim().key().clone());
    let book = &desk.book;
    book.run(&desk.ledger, &ask("toolu_1", ARGS), &scope(), "run_42", |permit| {
        let token = permit.token().unwrap();
        let verdict = onceledger::Verdict::Done(None);
        let _ = ledger.resolve_token(&key, token, verdict, "ops/ana", "seen at the provider", true).unwrap();
        refunded()
    })
}

/// The body with what differs from run to run made plain.
fn plain(reply: &Reply) -> String {
    let mut body = json(&reply.body());
    if !body["at"].is_null() {
        body["at"] = "2026-11-29T17:24:00Z".into();
    }
    for number in ["token", "approval"] {
        if body["ticket"][number].is_number() {
            body["ticket"][number] = 7.into();
        }
    }
    let order = ["status", "result", "note", "at", "decides", "do_not_retry", "ticket"];
    let members = body.as_object().unwrap();
    assert!(members.keys().all(|name| order.contains(&name.as_str())));
    let lines: Vec<_> =
        order.iter().filter_map(|name| members.get(*name).map(|value| format!("  {:?}: {value}", name))).collect();
    format!("{{\n{}\n}}", lines.join(",\n"))
}

#[test]
fn the_words_are_those_of_the_documents() {
    let mut text = String::new();
    for (what, status, reply) in situations() {
        let flag = if reply.is_error() { "set" } else { "not set" };
        text +=
            &format!("### `{}`: {what}\n\nError flag {flag}.\n\n```json\n{}\n```\n\n", status.name(), plain(&reply));
    }
    let page = std::fs::read_to_string(PATH).unwrap();
    let (head, rest) = page.split_once(BEGIN).unwrap();
    let (found, tail) = rest.split_once(END).unwrap();
    if std::env::var_os("ONCELEDGER_UPDATE").is_some() {
        std::fs::write(PATH, format!("{head}{BEGIN}{text}{END}{tail}")).unwrap();
    } else {
        assert!(
            found == text,
            "docs/MESSAGES.md is behind: ONCELEDGER_UPDATE=1 cargo test --test tool messages\n{text}"
        );
    }
}

#[test]
fn every_status_has_a_situation() {
    let seen: std::collections::BTreeSet<_> = situations().into_iter().map(|(_, status, _)| status).collect();
    assert!(Status::ALL.iter().all(|status| seen.contains(status)), "{seen:?}");
}

#[test]
fn case_76_an_uncertain_answer_says_not_known_do_not_retry_and_who_resolves() {
    let desk = Desk::new(refund());
    let reply = desk.run(ARGS, || Err(EffectError::unknown("timed out")));
    let body = json(&reply.body());
    let note = body["note"].as_str().unwrap();
    assert!(note.contains("not known") && note.contains("Do not retry") && note.contains("operator"), "{note}");
    assert_eq!((&body["do_not_retry"], &body["decides"]), (&true.into(), &"operator".into()));
    assert_eq!(body["ticket"]["key"], desk.claim().key().to_hex());
    // A panic and an unknown error say the same, and never what the panic said.
    let desk = Desk::new(refund());
    let panicked = desk.run(ARGS, || panic!("secret"));
    assert_eq!(panicked.status(), Status::Uncertain);
    assert!(!panicked.envelope().contains("secret"));
}

#[test]
fn a_replay_carries_the_first_result_verbatim_error_flag_included() {
    let outcomes = [
        Outcome::json("null"),
        Outcome::json("0"),
        Outcome::json("false"),
        Outcome::json(r#""""#),
        Outcome::json("[]"),
        Outcome::json("{}"),
        Outcome::json(r#"{"a": 1.0, "b":	10e2}"#),
        Outcome::json("not json"),
        Outcome::json(r#"{"a":1,"a":2}"#),
        Outcome::text(""),
        Outcome::text("line\nbreak \u{1F600}"),
        Outcome::binary([0, 255]),
        Outcome::text("declined").as_error(),
    ];
    for outcome in outcomes {
        let desk = Desk::new(refund());
        let first = desk.run(ARGS, || Ok(outcome.clone()));
        let again = desk.run(ARGS, must_not_run);
        let result = |reply: &Reply| {
            let body = reply.body();
            let from = body.find(r#","result":"#).unwrap();
            body[from..body.find(r#","note":"#).unwrap()].to_owned()
        };
        assert_eq!((first.status(), again.status()), (Status::Done, Status::AlreadyDone));
        assert_eq!(result(&first), result(&again));
        assert_eq!((first.is_error(), again.is_error()), (outcome.is_error(), outcome.is_error()));
    }
}
