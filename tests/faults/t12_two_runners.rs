//! T12: two runners on one file. A claims and stalls, B resolves and claims again, A wakes: A changes
//! nothing, its late outcome is evidence, once; a stale resolve changes nothing. All orders of 2 x 4
//! calls, with the runners in two processes that take turns at the file, and as two handles in one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use onceledger::testkit::{Call, Clock, Decided, Disk, Effects, FakeClock, FaultDisk, Model, Saw, Stand, Terms};
use onceledger::{
    Claim, Claimed, FencingToken, Key, Ledger, Options, Outcome, PastWhat, Scope, Settlement, Ticket, Verdict, View,
};

use crate::driver::FILE;
use crate::kit::Tally;

fn key() -> Key {
    Key::action(&Scope::new("acme/two").unwrap(), "act", ["k"]).unwrap()
}

/// One runner: its own view of the disk, and what it holds.
struct Runner {
    shared: Arc<dyn Disk>,
    clock: FakeClock,
    name: &'static str,
    ticket: Option<Ticket>,
    /// In one process both share this handle.
    handle: Option<Ledger>,
}

impl Runner {
    fn with<T>(&self, call: impl FnOnce(&Ledger) -> T) -> T {
        match &self.handle {
            Some(ledger) => call(ledger),
            None => {
                let options = Options::new().disk(Arc::clone(&self.shared)).clock(Arc::new(self.clock.clone()));
                let ledger = options.threads(false).open(FILE).unwrap();
                let answer = call(&ledger);
                ledger.close().unwrap();
                answer
            }
        }
    }
}

struct Table {
    model: Model,
    effects: Effects,
    first_token: Option<u64>,
    late: BTreeSet<u64>,
}

impl Table {
    fn saw(&mut self, call: &Call, saw: &Saw) {
        if let Err(violation) = self.model.call(&key(), 0, call, saw) {
            panic!("{violation}");
        }
    }

    fn claim(&mut self, runner: &mut Runner, living: &[u64]) {
        let _ = living;
        let claim = Claim::unguarded(key());
        let (saw, ticket) = runner.with(|ledger| {
            let claimed = ledger.claim(&claim);
            let saw = Saw::claimed(&claimed);
            let ticket = match claimed {
                Ok(Claimed::Granted(grant)) => Some(grant.into_ticket()),
                _ => None,
            };
            (saw, ticket)
        });
        self.saw(&Call::claim(&claim, Terms::default()), &saw);
        if let Saw::Granted(token, _) = saw {
            self.effects.happened(&key(), token);
            self.first_token.get_or_insert(token);
        }
        if ticket.is_some() {
            runner.ticket = ticket;
        }
    }

    fn complete(&mut self, runner: &mut Runner) {
        let Some(ticket) = &runner.ticket else { return };
        let outcome = Outcome::text(runner.name);
        let settled = runner.with(|ledger| ticket.settle(ledger, Settlement::done(outcome.clone())));
        let saw = Saw::settled(&settled);
        if matches!(saw, Saw::Lost(_)) {
            self.late.insert(ticket.token().get());
        }
        self.saw(&Call::Complete(ticket.token().get(), outcome), &saw);
    }

    fn check(&mut self, runner: &Runner) -> View {
        let view = runner.with(|ledger| ledger.check(&key())).unwrap();
        self.saw(&Call::Check, &Saw::Stands(Stand::of(&view)));
        view
    }

    fn resolve(&mut self, runner: &Runner, token: u64, force: bool) {
        let name = FencingToken::from_number(token);
        let resolved = runner.with(|ledger| ledger.resolve_token(&key(), name, Verdict::NotDone, "b", "looked", force));
        let saw = Saw::resolved(&resolved);
        if saw == Saw::Applied {
            self.effects.decided(&key());
        }
        self.saw(&Call::Resolve(token, Decided::NotDone, force), &saw);
    }
}

/// Four calls of A and four of B; bit n of `order` says whose turn it is.
fn run(order: u8, two_processes: bool) {
    let disk = FaultDisk::new(1);
    let clock = FakeClock::new();
    let options = || Options::new().clock(Arc::new(clock.clone())).threads(false);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let ledger = options().disk(Arc::clone(&shared)).create(FILE).unwrap();
    let handle = (!two_processes).then(|| ledger.clone());
    if two_processes {
        ledger.close().unwrap();
    }
    let runner = |name, shared| Runner { shared, clock: clock.clone(), name, ticket: None, handle: handle.clone() };
    let mut a = runner("a", shared);
    let mut b = runner("b", Arc::new(disk.clone()));
    let mut table = Table { model: Model::new(), effects: Effects::new(), first_token: None, late: BTreeSet::new() };
    let (mut turn_a, mut turn_b) = (0, 0);
    for turn in 0..8 {
        if order >> turn & 1 == 0 {
            match turn_a {
                0 => table.claim(&mut a, &[]),
                1 => drop(table.check(&a)),
                _ => table.complete(&mut a),
            }
            turn_a += 1;
        } else {
            match turn_b {
                // B takes the claim from A, whom it believes dead.
                0 => match table.check(&b) {
                    View::InProgress(holder) => table.resolve(&b, holder.token.get(), true),
                    View::Uncertain(doubt) => table.resolve(&b, doubt.token.get(), false),
                    _ => {}
                },
                1 => table.claim(&mut b, &[]),
                2 => table.complete(&mut b),
                // Stale: whatever the first grant was, it no longer is in doubt.
                _ => {
                    let token = table.first_token.unwrap_or(1);
                    table.resolve(&b, token, false);
                }
            }
            turn_b += 1;
        }
        assert!(table.effects.excess().is_empty(), "order {order:08b}: {:?}", table.effects.excess());
        clock.advance(Duration::ZERO);
    }
    let _ = table.check(&a);
    // Late outcomes are in the history, once for each token.
    let history = a.with(|ledger| ledger.history(&key())).unwrap();
    for token in &table.late {
        let told = history.iter().filter(|past| past.token.get() == *token && past.what == PastWhat::LateDone).count();
        assert_eq!(told, 1, "order {order:08b}: evidence of token {token}: {history:?}");
    }
    assert_eq!(clock.read().boot_id, FakeClock::new().read().boot_id);
}

#[test]
fn t12_in_every_order_the_one_that_lost_its_claim_changes_nothing() {
    let mut tally = Tally::default();
    for order in (0..=u8::MAX).filter(|order| order.count_ones() == 4) {
        for two_processes in [true, false] {
            run(order, two_processes);
            tally.cases += 1;
        }
    }
    tally.end("T12", 140, "");
}
