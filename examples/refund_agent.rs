//! An agent in a single binary that is killed at the worst moment, and refunds once.
//!
//!     cargo run --example refund_agent --features testkit [TRANSCRIPT.json]
//!
//! It starts a provider on loopback that refunds on every request, whatever key it carries, and then
//! itself as the agent. The first agent reads the transcript, asks for the refund and is killed
//! before it could write down that it had it. The second one reads the same transcript.

use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use onceledger::testkit::{FakeProvider, Keys, get, post};
use onceledger::tool::{Calls, Permit, Rule, Tool, ToolBook};
use onceledger::{EffectError, Finding, Options, Outcome, Probe, Reconcile, Recovery, Scope};

/// What the provider of the model sent: the same refund twice in one response.
const TRANSCRIPT: &str = r#"[
  {"role": "user", "content": "refund order 42"},
  {"role": "assistant", "content": [
    {"type": "tool_use", "id": "toolu_1", "name": "refund", "input": {"order_id": "ord_42", "amount": 79, "note": "asked"}},
    {"type": "tool_use", "id": "toolu_2", "name": "refund", "input": {"order_id": "ord_42", "amount": 79, "note": "asked twice"}}
  ]}
]"#;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("--agent") => agent(&arguments[1..]),
        transcript => show(transcript),
    }
}

/// The outside: a provider, and two lives of one agent.
fn show(transcript: Option<&str>) -> Result<ExitCode, Box<dyn Error>> {
    let text = transcript.map(std::fs::read_to_string).transpose()?.unwrap_or_else(|| TRANSCRIPT.to_owned());
    let provider = FakeProvider::start(Keys::Ignore)?;
    let folder = std::env::temp_dir().join(format!("onceledger-refund-agent-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("transcript.json"), text)?;
    for life in ["die", "live"] {
        let mut agent = Command::new(std::env::current_exe()?);
        let status = agent.args(["--agent", life, &provider.url()]).arg(&folder).status()?;
        println!("agent: {status}; refunds at the provider: {}", provider.effect_count());
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(if provider.effect_count() == 1 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One life of the agent.
fn agent(arguments: &[String]) -> Result<ExitCode, Box<dyn Error>> {
    let [life, url, folder] = arguments else { return Err("--agent LIFE URL FOLDER".into()) };
    let folder = Path::new(folder);
    // A real agent leaves the settle delay as it is: a request may still be on its way.
    let ledger = Options::new().settle_delay(Duration::ZERO).open_or_create(folder.join("agent.redb"))?;
    let refund = Tool::effect()
        .identity(["/order_id"])
        .guard(["/amount"])
        .rule(Rule::Business)
        .recovery(Recovery::Reconcile(look_at(url)));
    let book = ToolBook::new().with("refund", refund)?;

    let found = ledger.reconcile_all(&Reconcile::new(look_at(url)))?;
    println!("  at start: {} found done, {} left open", found.applied.len(), found.left.len());

    let calls = Calls::parse(&std::fs::read_to_string(folder.join("transcript.json"))?)?;
    let scope = Scope::new("acme/support")?;
    for call in calls.to_run() {
        let reply = book.run(&ledger, call, &scope, "run_42", |permit| {
            let refunded = refund_at(url, permit)?;
            if life == "die" {
                println!("  refunded, and killed before it is written down");
                std::process::abort();
            }
            Ok(refunded)
        });
        println!("  {}", reply.envelope());
    }
    ledger.close()?;
    Ok(ExitCode::SUCCESS)
}

/// The effect: one request. An error that nobody classified is unknown, and the claim stays uncertain.
fn refund_at(url: &str, permit: &Permit) -> Result<Outcome, EffectError> {
    let key = permit.downstream("refund").as_uuid();
    let body = permit.arguments().to_canonical();
    let (status, answer) = post(&format!("{url}/refunds"), &[("Idempotency-Key", &key)], body.as_bytes())?;
    match status {
        200 => Ok(Outcome::json(String::from_utf8_lossy(&answer))),
        400..=499 => Err(EffectError::final_failure(String::from_utf8_lossy(&answer).into_owned())),
        status => Err(EffectError::unknown(format!("the provider answered {status}"))),
    }
}

/// The probe: does the provider know a refund under this claim's key?
fn look_at(url: &str) -> Probe {
    let url = format!("{url}/refunds");
    Probe::new(move |doubt| {
        let key = doubt.key.downstream("refund").as_uuid();
        match get(&url, &[("Idempotency-Key", &key)]) {
            Ok((200, body)) if body == br#"{"effects":0}"# => Finding::NotApplied,
            Ok((200, body)) => Finding::Applied(Outcome::json(String::from_utf8_lossy(&body))),
            _ => Finding::Unknown,
        }
    })
}
