//! A tool that needs a person's yes, from the call to the effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceledger::testkit::FakeClock;
use onceledger::tool::{Call, Reply, Status, ToolBook};
use onceledger::{ApprovalId, ApprovalRequest, ApprovalState, EffectError, Ledger, Options, Outcome, Verdict};

use crate::{ask, json, refund, scope, transcript};

const ARGS: &str = r#"{"order_id": "A1", "amount": 79, "note": "customer asked"}"#;

struct Desk {
    book: ToolBook,
    ledger: Ledger,
    clock: FakeClock,
    eff: AtomicUsize,
}

impl Desk {
    fn new() -> Self {
        let clock = FakeClock::new();
        let ledger = Options::new().clock(Arc::new(clock.clone())).in_memory().unwrap();
        let book = ToolBook::new().with("refund", refund().approval(true)).unwrap();
        Desk { book, ledger, clock, eff: AtomicUsize::new(0) }
    }

    fn run(&self, call: &Call) -> Reply {
        self.with(call, || Ok(Outcome::text("refunded")))
    }

    fn with(&self, call: &Call, effect: impl FnOnce() -> Result<Outcome, EffectError>) -> Reply {
        self.book.run(&self.ledger, call, &scope(), "run_42", |_| {
            self.eff.fetch_add(1, Ordering::Relaxed);
            effect()
        })
    }

    fn effects(&self) -> usize {
        self.eff.load(Ordering::Relaxed)
    }

    /// Asks, and gives back the approval that the model's ticket names.
    fn asked(&self, call: &Call) -> ApprovalId {
        let reply = self.run(call);
        assert_eq!(reply.status(), Status::AwaitingApproval);
        id(&reply)
    }

    fn approve(&self, id: ApprovalId) {
        let decided = self.ledger.approve(id, "ops/ana").unwrap();
        assert!(matches!(decided, onceledger::Decision::Applied(_)), "{decided:?}");
    }

    fn state(&self, id: ApprovalId) -> ApprovalState {
        self.ledger.approval(id).unwrap().unwrap().state
    }
}

fn id(reply: &Reply) -> ApprovalId {
    ApprovalId::from_number(json(&reply.body())["ticket"]["approval"].as_u64().unwrap())
}

#[test]
fn an_effect_waits_for_its_approval_runs_once_under_it_and_spends_it() {
    let desk = Desk::new();
    let call = ask("t1", ARGS);
    let id = desk.asked(&call);
    let approval = desk.ledger.approval(id).unwrap().unwrap();
    let ticket = json(&desk.run(&call).body())["ticket"].clone();
    assert_eq!(ticket["key"], approval.key.to_hex());
    assert_eq!(ticket["args_digest"], approval.args_digest.to_hex());
    assert_eq!(approval.shown.unwrap().body(), call.arguments().unwrap().to_canonical().as_bytes());
    assert_eq!(desk.asked(&ask("t2", ARGS)), id, "the same request for the same call");
    assert_eq!(desk.effects(), 0);
    desk.approve(id);
    assert_eq!(desk.run(&call).status(), Status::Done);
    // Case 83: a retry finds what was done, and the approval stays spent.
    assert_eq!(desk.run(&call).status(), Status::AlreadyDone);
    assert_eq!((desk.effects(), desk.state(id)), (1, ApprovalState::Spent));
}

#[test]
fn a_refused_call_is_denied_for_good_and_an_expired_one_only_asked_anew_by_a_person() {
    let desk = Desk::new();
    let (call, other) = (ask("t1", ARGS), ask("t2", r#"{"order_id": "A2"}"#));
    let denied = desk.asked(&call);
    let _ = desk.ledger.deny(denied, "ops/ana", "not this one").unwrap();
    let reply = desk.run(&call);
    assert_eq!((reply.status(), id(&reply), reply.is_error()), (Status::Denied, denied, true));
    let expired = desk.asked(&other);
    desk.approve(expired);
    desk.clock.advance(Duration::from_secs(25 * 3600));
    assert_eq!(desk.run(&other).status(), Status::Expired);
    let claim = desk.book.claim(&other, &scope(), "run_42").unwrap();
    let anew = desk.ledger.request(&ApprovalRequest::new(&claim, "again").again()).unwrap();
    assert_eq!(desk.asked(&other), anew.id);
    desk.approve(anew.id);
    assert_eq!(desk.run(&other).status(), Status::Done);
    assert_eq!(desk.effects(), 1);
}

#[test]
fn case_72_arguments_edited_after_the_approval_are_another_request() {
    let desk = Desk::new();
    let id = desk.asked(&ask("t1", ARGS));
    desk.approve(id);
    for edited in [
        r#"{"order_id": "A1", "amount": 790, "note": "customer asked"}"#,
        r#"{"order_id": "A1", "amount": 79, "note": "x"}"#,
    ] {
        assert_ne!(desk.asked(&ask("t1", edited)), id);
    }
    assert_eq!((desk.effects(), desk.state(id)), (0, ApprovalState::Approved));
}

#[test]
fn case_75_two_approvals_of_one_tool_in_one_turn_are_two() {
    let desk = Desk::new();
    let (first, second) = (ask("t1", r#"{"order_id": "A1"}"#), ask("t2", r#"{"order_id": "A2"}"#));
    let ids = [desk.asked(&first), desk.asked(&second)];
    assert_ne!(ids[0], ids[1]);
    desk.approve(ids[1]);
    assert_eq!(desk.run(&first).status(), Status::AwaitingApproval);
    assert_eq!(desk.run(&second).status(), Status::Done);
}

#[test]
fn an_effect_that_did_not_happen_gives_its_approval_back() {
    let desk = Desk::new();
    let call = ask("t1", ARGS);
    let id = desk.asked(&call);
    desk.approve(id);
    assert_eq!(desk.with(&call, || Err(EffectError::not_applied("out of stock"))).status(), Status::NotApplied);
    assert_eq!(desk.state(id), ApprovalState::Approved);
    assert_eq!(desk.with(&call, || Err(EffectError::unknown("timed out"))).status(), Status::Uncertain);
    assert_eq!(desk.state(id), ApprovalState::Spent);
    assert_eq!(desk.run(&call).status(), Status::Uncertain);
    let doubt = desk.ledger.uncertain().unwrap().remove(0);
    let _ = desk.ledger.resolve(&doubt, Verdict::NotDone, "ops/ana", "no refund at the provider").unwrap();
    assert_eq!(desk.run(&call).status(), Status::Done);
    assert_eq!(desk.state(id), ApprovalState::Spent);
}

#[test]
fn a_transcript_that_waits_asks_the_ledger_too_and_its_yes_is_not_the_ledgers() {
    for name in ["openai_agents_runstate_paused", "vercel_ai_messages_paused"] {
        let desk = Desk::new();
        let calls = transcript(name);
        let ids: Vec<_> = calls.to_run().map(|call| desk.asked(call)).collect();
        assert_eq!(ids[0], ids[1], "{name}: two equal calls are one action");
        desk.approve(ids[0]);
        // The transcript has not heard of it.
        assert!(calls.to_run().all(|call| desk.run(call).status() == Status::AwaitingApproval));
        assert_eq!(desk.run(&ask("t1", &calls.all()[0].arguments().unwrap().to_canonical())).status(), Status::Done);
        assert_eq!(desk.effects(), 1);
    }
}

#[test]
fn futures_ask_and_wait_in_the_same_way() {
    let desk = Desk::new();
    let call = ask("t1", ARGS);
    let run = || {
        let effect = |_| async { Ok::<_, EffectError>(Outcome::text("refunded")) };
        pollster::block_on(desk.book.run_async(&desk.ledger, &call, &scope(), "run_42", effect))
    };
    let reply = run();
    assert_eq!(reply.status(), Status::AwaitingApproval);
    assert_eq!(id(&run()), id(&reply));
    desk.approve(id(&reply));
    assert_eq!(run().status(), Status::Done);
    let paused = transcript("vercel_ai_messages_paused");
    let effect = |_| async { Ok::<_, EffectError>(Outcome::text("refunded")) };
    let reply = pollster::block_on(desk.book.run_async(&desk.ledger, &paused.all()[0], &scope(), "run_42", effect));
    assert_eq!(reply.status(), Status::AwaitingApproval);
}
