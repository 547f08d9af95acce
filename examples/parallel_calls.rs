//! Eight equal calls at once: one runs, the others hear its result.
//!
//!     cargo run --example parallel_calls --features testkit

use std::error::Error;
use std::time::Duration;

use onceledger::testkit::{FakeProvider, Keys, Reply, post};
use onceledger::tool::{Calls, Tool, ToolBook};
use onceledger::{EffectError, Ledger, Outcome, Scope};

fn main() -> Result<(), Box<dyn Error>> {
    let provider = FakeProvider::start(Keys::Ignore)?;
    provider.set_default(Reply::Late(Duration::from_millis(200)));
    let ledger = Ledger::in_memory()?;
    let refund = Tool::effect().identity(["/order_id"]).guard(["/amount"]).wait(Duration::from_secs(10));
    let book = ToolBook::new().with("refund", refund)?;
    let scope = Scope::new("acme/support")?;

    // A model that cannot wait asks eight times, and rephrases the note every time.
    let asked: Vec<String> = (0..8)
        .map(|n| {
            format!(
                r#"{{"type": "function_call", "call_id": "call_{n}", "name": "refund",
                     "arguments": "{{\"order_id\": \"ord_42\", \"amount\": 79, \"note\": \"attempt {n}\"}}"}}"#
            )
        })
        .collect();
    let calls = Calls::parse(&format!("[{}]", asked.join(",")))?;

    std::thread::scope(|threads| {
        for call in calls.to_run() {
            let (book, ledger, scope, url) = (&book, &ledger, &scope, provider.url());
            threads.spawn(move || {
                let reply = book.run(ledger, call, scope, "run_42", |permit| {
                    let key = permit.downstream("refund").as_uuid();
                    let (_, answer) = post(&format!("{url}/refunds"), &[("Idempotency-Key", &key)], b"79")?;
                    Ok::<_, EffectError>(Outcome::json(String::from_utf8_lossy(&answer)))
                });
                println!("{:>8}  {:<12}  {}", call.id().unwrap_or("-"), reply.status().name(), reply.part());
            });
        }
    });
    println!("refunds at the provider: {}", provider.effect_count());
    Ok(())
}
