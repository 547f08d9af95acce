//! Random transactions, cells, approvals, releases, resolves, time, sweeps, reopens and crashes against
//! the [model](crate::model).
//!
//! Prints its seed. `ONCELEDGER_SEED` replays a run, `ONCELEDGER_CASES` makes it longer.

use std::collections::{BTreeMap, BTreeSet};

use onceledger::testkit::FaultDisk;
use onceledger::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::kit::{Place, noted, seconds};
use crate::model::{self, Ask, Decided, Model, Need, REMEMBER_MS, Said, WINDOW_S, Worth};

const KEYS: usize = 2;
const NAMES: usize = 3;

/// An approval, by its place among those asked for so far, from the newest back.
type Back = usize;

#[derive(Clone, Debug)]
enum Expect {
    Current,
    Stale,
    Absent,
    Unsaid,
}

#[derive(Clone, Debug)]
enum Write {
    Nothing,
    Set(u8),
    Delete,
}

#[derive(Clone, Debug)]
struct Wanted {
    key: usize,
    body: (u8, u8),
    /// 0 none, 1 newest, 2 and more: the approval that many back, less two.
    need: usize,
    resend: bool,
}

#[derive(Clone, Debug)]
enum Op {
    Claim(Wanted),
    Transaction { claims: Vec<Wanted>, spends: Vec<Back>, cells: Vec<(Expect, Write)> },
    Complete(usize),
    Release(usize),
    Doubt(usize),
    DropTicket(usize),
    Resolve(usize, bool),
    Request { key: usize, body: (u8, u8), again: bool, valid_s: u64 },
    Decide(Back, u8),
    Pass(u64),
    Jump(i64),
    Sleepless(u64),
    Sweep,
    Clean,
    Reopen,
    Crash,
}

fn body() -> impl Strategy<Value = (u8, u8)> {
    // Mostly one body: without repeats nothing interesting happens.
    prop_oneof![10 => Just((0, 0)), 2 => Just((0, 1)), 1 => Just((1, 0))]
}

fn wanted() -> impl Strategy<Value = Wanted> {
    (0..KEYS, body(), prop_oneof![3 => Just(0_usize), 4 => Just(1), 4 => 2..5_usize], any::<bool>())
        .prop_map(|(key, body, need, resend)| Wanted { key, body, need, resend })
}

fn cell() -> impl Strategy<Value = (Expect, Write)> {
    let expect = prop_oneof![
        8 => Just(Expect::Current),
        1 => Just(Expect::Stale),
        1 => Just(Expect::Absent),
        1 => Just(Expect::Unsaid)
    ];
    let write = prop_oneof![2 => Just(Write::Nothing), 5 => any::<u8>().prop_map(Write::Set), 1 => Just(Write::Delete)];
    (expect, write)
}

fn op() -> impl Strategy<Value = Op> {
    let transaction = (
        proptest::collection::vec(wanted(), 0..3),
        prop_oneof![3 => Just(Vec::new()), 2 => proptest::collection::vec(0..3_usize, 1..3)],
        proptest::collection::vec(cell(), 0..=NAMES),
    );
    prop_oneof![
        10 => wanted().prop_map(Op::Claim),
        16 => transaction.prop_map(|(claims, spends, cells)| Op::Transaction { claims, spends, cells }),
        2 => any::<usize>().prop_map(Op::Complete),
        9 => any::<usize>().prop_map(Op::Release),
        5 => any::<usize>().prop_map(Op::Doubt),
        1 => any::<usize>().prop_map(Op::DropTicket),
        6 => (0..KEYS, any::<bool>()).prop_map(|(key, done)| Op::Resolve(key, done)),
        10 => (0..KEYS, body(), any::<bool>(), 200..3000_u64)
            .prop_map(|(key, body, again, valid_s)| Op::Request { key, body, again, valid_s }),
        16 => (0..3_usize, prop_oneof![10 => Just(0_u8), 2 => Just(1), 1 => Just(2), 1 => Just(3)])
            .prop_map(|(back, what)| Op::Decide(back, what)),
        4 => (1..600_u64).prop_map(Op::Pass),
        1 => (-600..600_i64).prop_map(Op::Jump),
        1 => (1..600_u64).prop_map(Op::Sleepless),
        2 => Just(Op::Sweep),
        1 => Just(Op::Clean),
        2 => Just(Op::Reopen),
        2 => Just(Op::Crash),
    ]
}

/// How often each thing happened, so that a property which never meets it is seen.
type Met = BTreeMap<&'static str, u64>;

struct Run {
    place: Place,
    disk: FaultDisk,
    ledger: Option<Ledger>,
    model: Model,
    tickets: Vec<(usize, Ticket)>,
    last_number: u64,
    met: Met,
}

fn options(place: &Place) -> Options {
    let remembered = seconds(REMEMBER_MS / 1000);
    place.options().remember(remembered).keep(remembered)
}

impl Run {
    fn new() -> Self {
        let disk = FaultDisk::new(1);
        let place = Place::on(disk.clone());
        let ledger = options(&place).create(&place.path).unwrap();
        Run {
            place,
            disk,
            ledger: Some(ledger),
            model: Model::default(),
            tickets: Vec::new(),
            last_number: 0,
            met: Met::new(),
        }
    }

    fn ledger(&self) -> &Ledger {
        self.ledger.as_ref().unwrap()
    }

    fn meet(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    /// Numbers that the ledger gives out only grow.
    fn number(&mut self, number: u64) -> u64 {
        assert!(number > self.last_number, "{number} after {}", self.last_number);
        self.last_number = number;
        number
    }

    fn place_of(&self, back: Back) -> Option<usize> {
        self.model.approvals.len().checked_sub(back + 1)
    }

    fn id(&self, place: usize) -> ApprovalId {
        ApprovalId::from_number(self.model.approvals[place].id)
    }

    fn claim_of(&self, wanted: &Wanted) -> (Ask, Claim) {
        let mut claim = claim_for(wanted.key, wanted.body);
        if wanted.resend {
            claim = claim.recovery(Recovery::Resend { window: seconds(WINDOW_S) });
        }
        let need = match wanted.need {
            0 => Need::None,
            1 => Need::Newest,
            back => self.place_of(back - 2).map_or(Need::Newest, Need::This),
        };
        let claim = match need {
            Need::None => claim,
            Need::Newest => claim.needs_approval(),
            Need::This(place) => claim.approved_by(self.id(place)),
        };
        (Ask { key: wanted.key, body: wanted.body, need, resend: wanted.resend }, claim)
    }

    fn take(&mut self, ask: &Ask, under: Option<usize>, grant: Grant) {
        let token = self.number(grant.token().get());
        self.model.grant(ask, under, token);
        assert_eq!(grant.attempt(), self.model.keys[&ask.key].attempt);
        self.tickets.push((ask.key, grant.into_ticket()));
        self.meet(if under.is_some() { "grants under an approval" } else { "grants without" });
    }

    fn check_refusal(&mut self, verdict: &model::Verdict, stands: &Claimed) {
        use model::Verdict as V;
        let id = |stands: &NotApproved| stands.approval.as_ref().map(|approval| approval.id.get());
        let same = match (verdict, stands) {
            (V::InProgress, Claimed::InProgress(_))
            | (V::Uncertain, Claimed::Uncertain(_))
            | (V::Mismatch, Claimed::Mismatch(_)) => true,
            (V::Done(outcome), Claimed::AlreadyDone(stored)) => {
                stored.outcome().is_some_and(|stored| stored.body() == outcome.as_bytes())
            }
            (V::NotApproved(wanted), Claimed::NotApproved(stands)) => *wanted == id(stands),
            _ => false,
        };
        assert!(same, "wanted {verdict:?}, got {stands:?}");
        self.meet(match verdict {
            V::InProgress => "in progress",
            V::Uncertain => "uncertain",
            V::Mismatch => "mismatch",
            V::Done(_) => "already done",
            V::NotApproved(_) => "not approved",
            V::Grant(_) => "granted",
        });
    }

    fn claim(&mut self, wanted: &Wanted) {
        let (ask, claim) = self.claim_of(wanted);
        let verdict = self.model.judge(&ask);
        match (verdict, self.ledger().claim(&claim).unwrap()) {
            (model::Verdict::Grant(under), Claimed::Granted(grant)) => self.take(&ask, under, grant),
            (verdict, stands) => self.check_refusal(&verdict, &stands),
        }
    }

    fn transaction(&mut self, claims: &[Wanted], spends: &[Back], cells: &[(Expect, Write)]) {
        let mut tx = self.ledger().transaction();
        let mut asks: Vec<Ask> = Vec::new();
        for wanted in claims {
            let (ask, claim) = self.claim_of(wanted);
            asks.push(ask);
            tx = tx.claim(claim);
        }
        let mut bad = asks.iter().map(|ask| ask.key).collect::<BTreeSet<_>>().len() < asks.len();
        for place in spends.iter().filter_map(|back| self.place_of(*back)) {
            tx = tx.spend(self.id(place));
            let key = self.model.known(place).map(|approval| approval.key);
            match asks.iter_mut().find(|ask| Some(ask.key) == key && matches!(ask.need, Need::None)) {
                Some(ask) => ask.need = Need::This(place),
                None => bad = true,
            }
        }
        let named: Vec<usize> =
            asks.iter().filter_map(|ask| if let Need::This(place) = ask.need { Some(place) } else { None }).collect();
        bad |= named.iter().collect::<BTreeSet<_>>().len() < named.len();
        let mut conflicts = Vec::new();
        for (number, (expect, write)) in cells.iter().enumerate() {
            let name = format!("cell/{number}");
            let stands = self.model.cells.get(&name).map(|(version, _)| *version);
            let expected = match expect {
                Expect::Current => Some(stands),
                Expect::Stale => Some(Some(stands.map_or(1, |version| version - 1))),
                Expect::Absent => Some(None),
                Expect::Unsaid => None,
            };
            tx = match expected {
                Some(Some(version)) => tx.expect_cell(&name, Version::from_number(version)),
                Some(None) => tx.expect_absent(&name),
                None => tx,
            };
            tx = match write {
                Write::Nothing => tx,
                Write::Set(value) => tx.set_cell(&name, text(*value)),
                Write::Delete => tx.delete_cell(&name),
            };
            match (expected, write) {
                // Never named to the transaction at all.
                (None, Write::Nothing) => continue,
                (None, _) | (Some(None), Write::Delete) => bad = true,
                (Some(expected), _) if expected != stands => conflicts.push((name, stands)),
                (Some(_), _) => {}
            }
        }
        if bad {
            assert_eq!(tx.commit().unwrap_err().kind(), ErrorKind::BadInput);
            return self.meet("bad input");
        }
        let verdicts: Vec<_> = asks.iter().map(|ask| self.model.judge(ask)).collect();
        let refusals = verdicts.iter().filter(|verdict| !matches!(verdict, model::Verdict::Grant(_))).count();
        match tx.commit().unwrap() {
            Transacted::Refused(told) => {
                assert_eq!(told.len(), refusals + conflicts.len(), "{verdicts:?} {conflicts:?} {told:?}");
                let mut conflicts = conflicts.into_iter();
                for refusal in &told {
                    match refusal {
                        Refusal::Claim { index, stands } => self.check_refusal(&verdicts[*index], stands),
                        Refusal::Cell { name, stands } => {
                            let stands = stands.as_ref().map(|cell| cell.version.get());
                            assert_eq!(Some((name.clone(), stands)), conflicts.next());
                        }
                        other => panic!("{other:?}"),
                    }
                }
                self.meet("refused transactions");
            }
            Transacted::Committed(all) => {
                assert_eq!((refusals, conflicts.len()), (0, 0), "{verdicts:?} {conflicts:?}");
                assert_eq!(all.grants.len(), asks.len());
                for ((ask, verdict), grant) in asks.iter().zip(verdicts).zip(all.grants) {
                    let model::Verdict::Grant(under) = verdict else { panic!() };
                    self.take(ask, under, grant);
                }
                let mut versions = all.versions.into_iter();
                for (number, (expect, write)) in cells.iter().enumerate() {
                    if matches!((expect, write), (Expect::Unsaid, Write::Nothing)) {
                        continue;
                    }
                    let name = format!("cell/{number}");
                    let (named, version) = versions.next().unwrap();
                    assert_eq!(named, name);
                    match write {
                        Write::Nothing => {
                            let stands = self.model.cells.get(&name).map(|(version, _)| *version);
                            assert_eq!(version.map(Version::get), stands);
                        }
                        Write::Set(value) => {
                            let version = self.number(version.unwrap().get());
                            self.model.cells.insert(name, (version, text(*value)));
                        }
                        Write::Delete => {
                            assert_eq!(version, None);
                            self.model.cells.remove(&name);
                        }
                    }
                }
                self.meet("committed transactions");
            }
        }
    }

    fn settle(&mut self, which: usize, what: &'static str) {
        if self.tickets.is_empty() {
            return;
        }
        // The ticket stays: a holder may come again, or late.
        let which = which % self.tickets.len();
        let (key, token) = (self.tickets[which].0, self.tickets[which].1.token().get());
        let outcome = format!("outcome of {token}");
        let (wanted, settlement) = match what {
            "complete" => (self.model.settle(key, token, Some(&outcome)), Settlement::done(outcome.as_str())),
            "release" => (self.model.settle(key, token, None), Settlement::not_applied("no")),
            _ => (self.model.doubt(key, token), Settlement::uncertain("who knows")),
        };
        let settled = match self.tickets[which].1.settle(self.ledger(), settlement).unwrap() {
            Settled::Applied => model::Settled::Applied,
            Settled::Same => model::Settled::Same,
            Settled::Lost(_) => model::Settled::Lost,
        };
        assert_eq!(settled, wanted, "{what} of {token}");
        self.meet(match settled {
            model::Settled::Lost => "late holders",
            model::Settled::Applied | model::Settled::Same => what,
        });
    }

    fn resolve(&mut self, key: usize, done: bool) {
        let Some(token) = self.model.keys.get(&key).map(|state| state.token) else { return };
        let applies = self.model.resolve(key, done.then_some("resolved"));
        let verdict = if done { Verdict::Done(Some(Outcome::text("resolved"))) } else { Verdict::NotDone };
        let key = claim_for(key, (0, 0)).key().clone();
        let token = FencingToken::from_number(token);
        let resolved = self.ledger().resolve_token(&key, token, verdict, "ops", "looked", false).unwrap();
        assert_eq!(matches!(resolved, Resolved::Applied), applies);
        self.meet(if applies { "resolves" } else { "stale resolves" });
    }

    fn request(&mut self, key: usize, body: (u8, u8), again: bool, valid_s: u64) {
        let stands = self.model.standing_request(key, body, again);
        let request = ApprovalRequest::new(&claim_for(key, body), "shown").valid_for(seconds(valid_s)).by("bot");
        let request = if again { request.again() } else { request };
        let id = self.ledger().request(&request).unwrap().id.get();
        match stands {
            Some(place) => assert_eq!(id, self.model.approvals[place].id),
            None => {
                let id = self.number(id);
                self.model.request(key, body, valid_s * 1000, id);
            }
        }
        self.meet(if stands.is_some() { "requests that stand" } else { "new requests" });
    }

    fn decide(&mut self, back: Back, what: u8) {
        let Some(place) = self.place_of(back) else { return };
        let id = self.id(place);
        let ledger = self.ledger();
        let (decided, wanted) = match what {
            0 => (ledger.approve(id, "ana"), self.model.decide(place, Said::Yes)),
            1 => (ledger.deny(id, "ben", "no"), self.model.decide(place, Said::No)),
            2 => (ledger.withdraw(id, "bot"), self.model.decide(place, Said::Withdrawn)),
            _ => (ledger.redact(id, "dpo"), self.model.redact(place)),
        };
        let decided = match decided {
            Ok(Decision::Applied(_)) => Decided::Applied,
            Ok(Decision::Same(_)) => Decided::Same,
            Ok(Decision::Conflict(_)) => Decided::Conflict,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::BadInput);
                Decided::Unknown
            }
        };
        assert_eq!(decided, wanted, "decision {what} on {id}");
        self.meet(match decided {
            Decided::Applied => "decisions",
            Decided::Same => "equal decisions",
            Decided::Conflict => "conflicting decisions",
            Decided::Unknown => "decisions on what is forgotten",
        });
    }

    /// A commit, so that the times are recorded: what no commit has seen is not carried over an end.
    fn stamp(&mut self) {
        crate::kit::put(self.ledger(), "stamp", "x");
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Claim(wanted) => self.claim(wanted),
            Op::Transaction { claims, spends, cells } => self.transaction(claims, spends, cells),
            Op::Complete(which) => self.settle(*which, "complete"),
            Op::Release(which) => self.settle(*which, "release"),
            Op::Doubt(which) => self.settle(*which, "doubt"),
            Op::DropTicket(which) => {
                if !self.tickets.is_empty() {
                    let (key, ticket) = self.tickets.remove(which % self.tickets.len());
                    // Nobody can settle it any more: in doubt at once (P14).
                    self.model.doubt(key, ticket.token().get());
                }
            }
            Op::Resolve(key, done) => self.resolve(*key, *done),
            Op::Request { key, body, again, valid_s } => self.request(*key, *body, *again, *valid_s),
            Op::Decide(back, what) => self.decide(*back, *what),
            Op::Pass(count) => {
                self.place.clock.advance(seconds(*count));
                self.model.early += count * 1000;
                self.model.late += count * 1000;
            }
            Op::Jump(by) => {
                self.place.clock.jump_wall_ms(i128::from(*by) * 1000);
                self.model.early += u64::try_from(*by).unwrap_or(0) * 1000;
            }
            Op::Sleepless(count) => {
                self.place.clock.advance_boot(seconds(*count));
                self.model.early += count * 1000;
            }
            Op::Sweep => drop(self.ledger().sweep(4096).unwrap()),
            Op::Clean => {
                crate::kit::move_everything(self.ledger());
                self.meet("cleanings");
            }
            Op::Reopen => {
                self.stamp();
                let living = self.tickets.iter().map(|(_, ticket)| ticket.token().get()).collect();
                self.model.reopen(&living);
                self.ledger.take().unwrap().close().unwrap();
                self.ledger = Some(options(&self.place).open(&self.place.path).unwrap());
                self.meet("reopens");
            }
            Op::Crash => {
                self.stamp();
                // Everything of that process is gone, its tickets too.
                self.disk = self.disk.process_crash();
                self.place.disk = std::sync::Arc::new(self.disk.clone());
                self.tickets.clear();
                self.model.reopen(&BTreeSet::new());
                self.ledger = Some(options(&self.place).open(&self.place.path).unwrap());
                self.meet("crashes");
            }
        }
    }

    /// Everything that a caller can see is what the model says.
    fn compare(&self) {
        let ledger = self.ledger();
        // `check` knows the time as of the last tick.
        ledger.tick();
        for key in 0..KEYS {
            let seen = ledger.check(claim_for(key, (0, 0)).key()).unwrap().standing();
            let wanted = match self.model.standing(key) {
                model::Standing::Vacant => Standing::Vacant,
                model::Standing::InProgress => Standing::InProgress,
                model::Standing::Done => Standing::Done,
                model::Standing::Uncertain => Standing::Uncertain,
            };
            assert_eq!(seen, wanted, "key {key}");
        }
        let seen = ledger.approvals(None, None, 1000).unwrap().into_iter().map(|approval| {
            let worth = match approval.state {
                ApprovalState::Pending => Worth::Pending,
                ApprovalState::Approved => Worth::Approved,
                ApprovalState::Denied => Worth::Denied,
                ApprovalState::Withdrawn => Worth::Withdrawn,
                ApprovalState::Expired => Worth::Expired,
                ApprovalState::Spent => Worth::Spent,
                other => panic!("{other:?}"),
            };
            (approval.id.get(), worth, approval.spent_by.map(FencingToken::get), approval.shown.is_some())
        });
        let seen: Vec<_> = seen.collect();
        let remembered = self.model.approvals.iter().filter(|approval| self.model.is_remembered(approval));
        let wanted: Vec<_> = remembered
            .map(|approval| (approval.id, self.model.worth(approval), approval.spent_by, approval.shown))
            .collect();
        assert_eq!(seen, wanted);
        let cells = ledger.cells("cell/", None, 100).unwrap().cells;
        let seen: Vec<_> =
            cells.iter().map(|cell| (cell.name.as_str(), cell.version.get(), cell.value.as_str())).collect();
        let wanted: Vec<_> = self
            .model
            .cells
            .iter()
            .map(|(name, (version, value))| (name.as_str(), *version, Some(value.as_str())))
            .collect();
        assert_eq!(seen, wanted);
    }
}

/// Large values are read from the file, small ones from memory.
fn text(value: u8) -> String {
    if value.is_multiple_of(4) { value.to_string().repeat(3000) } else { value.to_string() }
}

/// The note is free text; the amount is not.
fn claim_for(key: usize, (amount, note): (u8, u8)) -> Claim {
    if amount == 0 {
        return noted(&format!("key {key}"), &format!("note {note}"));
    }
    let args = serde_json::json!({"order": format!("key {key}"), "amount": amount, "note": note}).to_string();
    let args = canonical::Value::parse(&args).unwrap();
    Claim::selected(crate::kit::key(&format!("key {key}")), &Selection::tool(&args, &["/order"], &["/amount"]).unwrap())
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[test]
fn random_histories_are_what_the_model_says() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = from_env("ONCELEDGER_SEED").unwrap_or(now.as_nanos() as u64);
    let cases = from_env("ONCELEDGER_CASES").unwrap_or(200);
    let replay = format!(
        "ONCELEDGER_SEED={seed} ONCELEDGER_CASES={cases} cargo test --features testkit --test transactions property -- --nocapture"
    );
    println!("seed {seed}; replay: {replay}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases: cases as u32, failure_persistence: None, max_shrink_iters: 4000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let met = std::cell::RefCell::new(Met::new());
    let result = runner.run(&proptest::collection::vec(op(), 10..100), |ops| {
        let run = std::panic::catch_unwind(|| {
            let mut run = Run::new();
            for op in &ops {
                run.apply(op);
                run.compare();
            }
            run.ledger().verify().unwrap();
            run.met
        });
        match run {
            Ok(counts) => {
                let mut met = met.borrow_mut();
                for (what, count) in counts {
                    *met.entry(what).or_default() += count;
                }
                Ok(())
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                Err(TestCaseError::fail(text.unwrap_or_else(|| "a panic".to_owned())))
            }
        }
    });
    let met = met.into_inner();
    println!("{cases} histories: {met:?}");
    if let Err(failure) = result {
        panic!("{failure}\nreplay: {replay}");
    }
    if cases >= 200 {
        for what in [
            "grants under an approval",
            "committed transactions",
            "refused transactions",
            "bad input",
            "late holders",
            "mismatch",
            "conflicting decisions",
            "cleanings",
            "crashes",
            "reopens",
        ] {
            assert!(met.get(what).copied().unwrap_or(0) >= 5, "hardly ever met: {what}");
        }
    }
}
