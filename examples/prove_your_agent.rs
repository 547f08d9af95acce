//! Proves an agent: its own code, run with a crash at every point there is; and the same agent with
//! the claim left out, which must be found out.
//!
//!     cargo run --example prove_your_agent --features testkit

use onceledger::testkit::{World, explore};
use onceledger::{Answer, Claim, EffectError, Error, Key, Ledger, Scope, Verdict};

const ORDERS: [&str; 2] = ["ord_41", "ord_42"];

/// The agent: refunds every order once, and says so in a mail.
fn agent(world: &World) -> Result<(), Error> {
    let ledger = world.open()?;
    settle_doubts(world, &ledger)?;
    for order in ORDERS {
        if once(world, &ledger, "refund", order)? {
            once(world, &ledger, "mail", order)?;
        }
    }
    ledger.close()?;
    Ok(())
}

/// Runs one action at most once. True where it was done, now or before.
fn once(world: &World, ledger: &Ledger, action: &str, order: &str) -> Result<bool, Error> {
    let key = Key::action(&Scope::new("acme/support")?, action, [order])?;
    let claim = Claim::unguarded(key).label(format!("{action} {order}"));
    let answer = ledger.once(&claim, |_grant| {
        world.effect(&format!("{action} {order}"));
        Ok::<_, EffectError>("ok")
    })?;
    Ok(matches!(answer, Answer::Done(_) | Answer::AlreadyDone(_)))
}

/// What a crash left in doubt is looked up at the provider, and decided.
fn settle_doubts(world: &World, ledger: &Ledger) -> Result<(), Error> {
    for doubt in ledger.uncertain()? {
        let label = ledger.show(&doubt.key)?.map(|detail| detail.label).unwrap_or_default();
        let happened = world.effects_of(&label) > 0;
        let verdict = if happened { Verdict::Done(None) } else { Verdict::NotDone };
        // No `decided_not_done`: the look-up tells the truth, so no second effect may follow.
        let _ = ledger.resolve(&doubt, verdict, "agent", "looked it up at the provider")?;
    }
    Ok(())
}

/// The same agent, with the claims left out: it remembers what it has done in a ledger, but only
/// after it did it.
fn careless_agent(world: &World) -> Result<(), Error> {
    let ledger = world.open()?;
    for order in ORDERS {
        let key = Key::action(&Scope::new("acme/support")?, "refund", [order])?;
        if ledger.check(&key)?.standing() == onceledger::Standing::Vacant {
            world.effect(&format!("refund {order}"));
            let _ = ledger.once(&Claim::unguarded(key), |_grant| Ok::<_, EffectError>("ok"))?;
        }
    }
    ledger.close()?;
    Ok(())
}

fn main() {
    let report = explore(agent);
    print!("with claims: {report}");
    report.assert_at_most_once();
    assert_eq!(report.held_back(), 0, "every restart finished the work");

    let report = explore(careless_agent);
    print!("without: {report}");
    assert!(!report.duplicates().is_empty(), "a proof that finds nothing here proves nothing");
    assert!(report.duplicates().iter().any(|duplicate| duplicate.crash.contains("just after the effect")));
}
