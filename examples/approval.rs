//! A refund that a person must approve: asked for, approved by a double click, run once.
//!
//!     cargo run --example approval

use std::error::Error;

use onceledger::tool::{Call, Calls, Reply, Tool, ToolBook};
use onceledger::{ApprovalState, Decision, EffectError, Ledger, Outcome, Scope};

struct Agent {
    ledger: Ledger,
    book: ToolBook,
    scope: Scope,
}

impl Agent {
    fn run(&self, call: &Call) -> Reply {
        let reply = self.book.run(&self.ledger, call, &self.scope, "run_42", |_| {
            println!("        (the refund happens)");
            Ok::<_, EffectError>(Outcome::json(r#"{"refund_id": "re_1"}"#))
        });
        println!("model:  {}", reply.body());
        reply
    }
}

fn call(amount: u32) -> Result<Calls, onceledger::Error> {
    Calls::parse(&format!(
        r#"{{"type": "tool_use", "id": "toolu_1", "name": "refund", "input": {{"order_id": "ord_42", "amount": {amount}}}}}"#
    ))
}

fn main() -> Result<(), Box<dyn Error>> {
    let refund = Tool::effect().identity(["/order_id"]).guard(["/amount"]).approval(true);
    let agent = Agent {
        ledger: Ledger::in_memory()?,
        book: ToolBook::new().with("refund", refund)?,
        scope: Scope::new("acme/support")?,
    };
    let asked = call(79)?;
    for call in asked.to_run() {
        let _ = agent.run(call);
    }
    for waiting in agent.ledger.approvals(Some(ApprovalState::Pending), None, 10)? {
        let shown = waiting.shown.as_ref().and_then(Outcome::as_str).unwrap_or_default();
        println!("person: {} {shown}", waiting.key);
        for click in ["click", "second click"] {
            let word = match agent.ledger.approve(waiting.id, "ops/ana")? {
                Decision::Applied(_) => "recorded",
                Decision::Same(_) => "recorded before",
                Decision::Conflict(_) => "too late",
            };
            println!("        {click}: {word}");
        }
    }
    // Somebody edited the stored call meanwhile: that is not what was approved.
    for call in call(790)?.to_run() {
        let _ = agent.run(call);
    }
    // Both clicks resume the agent.
    for call in asked.to_run().chain(asked.to_run()) {
        let _ = agent.run(call);
    }
    Ok(())
}
