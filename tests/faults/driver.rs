//! Calls of every kind on one ledger, held against the model as they are made.

#[path = "together.rs"]
mod together;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onceledger::testkit::{
    Call, Clock, CrashOptions, Decided, Disk, Effects, Failure, FakeClock, Fault, FaultDisk, Model, Operation, Plan,
    Saw, SplitMix, Stand, Terms,
};
use onceledger::{
    Claim, Claimed, Error, ErrorKind, FencingToken, Grant, Keep, Key, Ledger, Options, Outcome, Recovery, Refusal,
    Scope, Settlement, Ticket, Transacted, Verdict, Version, View,
};

use together::{CELL, Doubt, Ended, Together, token_of};

pub const FILE: &str = "/ledger.redb";
pub const KEYS: u8 = 6;
const OUTCOME_BYTES_MAX: usize = 4096;

/// One thing that is done. Numbers are taken modulo what there is to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Claim {
        key: u8,
        args: u8,
        terms: u8,
    },
    /// Claims two keys and writes a cell, all or nothing.
    Together {
        key: u8,
        other: u8,
        args: u8,
        terms: u8,
    },
    Complete {
        pick: u8,
        body: u8,
    },
    Fail {
        pick: u8,
        body: u8,
    },
    Release {
        pick: u8,
    },
    Drop {
        pick: u8,
    },
    Renew {
        pick: u8,
        lease: u8,
    },
    /// Turns a grant into a ticket.
    Ticket {
        pick: u8,
    },
    /// Settles by a ticket, whatever has become of its grant.
    Late {
        pick: u8,
        body: u8,
    },
    /// Leaves a settlement in the session's file, for the next opening.
    Leave {
        pick: u8,
        body: u8,
    },
    Resolve {
        key: u8,
        verdict: u8,
        force: bool,
        stale: bool,
    },
    Check {
        key: u8,
    },
    Advance {
        by: u8,
    },
    Sweep,
    Reopen,
    /// The process is killed (even), or the power goes (odd) and leaves one of its images.
    Crash {
        image: u16,
    },
    /// One operation from now on goes wrong.
    Fault {
        after: u8,
        kind: u8,
    },
}

impl Step {
    /// A step from random numbers; `faults` allows crashes and failing operations.
    pub fn random(random: &mut SplitMix, faults: bool) -> Step {
        let bytes = random.next_u64().to_le_bytes();
        Step::from_bytes(bytes, faults)
    }

    pub fn from_bytes([kind, key, pick, body, extra, more, low, high]: [u8; 8], faults: bool) -> Step {
        match kind % 100 {
            0..=25 => Step::Claim { key, args: pick % 16, terms: extra },
            26..=29 => Step::Together { key, other: more, args: pick % 16, terms: extra },
            30..=44 => Step::Complete { pick, body },
            45..=48 => Step::Fail { pick, body },
            49..=52 => Step::Release { pick },
            53..=56 => Step::Drop { pick },
            57..=60 => Step::Renew { pick, lease: body },
            61..=65 => Step::Ticket { pick },
            66..=68 => Step::Late { pick, body },
            69..=70 => Step::Leave { pick, body },
            71..=78 => Step::Resolve { key, verdict: body, force: extra % 4 == 0, stale: more % 4 == 0 },
            79..=81 => Step::Check { key },
            82..=86 => Step::Advance { by: body },
            87..=88 => Step::Sweep,
            89..=91 => Step::Reopen,
            92..=95 if faults => Step::Crash { image: u16::from_le_bytes([low, high]) },
            96..=99 if faults => Step::Fault { after: extra, kind: body },
            _ => Step::Check { key },
        }
    }
}

/// A step as it went, for the check of a crash in the middle of it.
#[derive(Clone, Debug)]
pub struct Logged {
    /// The last operation before it.
    pub from: u64,
    pub before: Model,
    pub pending: Vec<(Key, Call)>,
    /// What the session's file has for the next opening.
    pub left: Vec<(Key, Call)>,
    pub clock: FakeClock,
    together: Together,
    doubt: Option<Doubt>,
}

/// What may stand.
#[derive(Clone)]
pub struct Known {
    model: Model,
    together: Together,
}

impl Known {
    /// A ledger in which nothing was ever claimed.
    pub fn new() -> Known {
        Known { model: Model::new(), together: Together::new() }
    }
}

pub struct Driver {
    pub disk: FaultDisk,
    shared: Arc<dyn Disk>,
    pub clock: FakeClock,
    pub ledger: Option<Ledger>,
    pub model: Model,
    pub effects: Effects,
    pub grants: Vec<Grant>,
    pub tickets: Vec<Ticket>,
    tokens: Vec<(u8, u64)>,
    left: Vec<(Key, Call)>,
    together: Together,
    /// The transaction of the step that is done.
    doubt: Option<Doubt>,
    created_ms: u64,
    pub small: bool,
    /// Whether a storage failure was answered since the last open (P13).
    failed: bool,
    /// Opened on a full disk: what is known is served, the rest refused.
    reads_only: bool,
    pub log: Option<Vec<Logged>>,
    pub unknown: u64,
    pub faults: u64,
    pub crashes: u64,
    steps: Vec<String>,
}

pub fn key(number: u8) -> Key {
    let scope = Scope::new("acme/faults").unwrap();
    Key::action(&scope, "act", [[b'a' + number % KEYS]]).unwrap()
}

fn terms(number: u8) -> Terms {
    let base = Terms { keep_s: 60, remember_s: 600, outcome_bytes_max: OUTCOME_BYTES_MAX, ..Terms::default() };
    match number % 8 {
        0..=3 => base,
        4 => Terms { lease_ms: Some(10_000), ..base },
        5 => Terms { keep_s: u32::MAX, remember_s: u32::MAX, ..base },
        6 => Terms { resend_s: Some(120), ..base },
        _ => Terms { lease_ms: Some(1), keep_s: 1, remember_s: 1, ..base },
    }
}

fn keep(seconds: u32) -> Keep {
    if seconds == u32::MAX { Keep::Forever } else { Keep::For(Duration::from_secs(u64::from(seconds))) }
}

pub fn claim(number: u8, args: u8, terms: &Terms) -> Claim {
    // Mostly the same arguments, now and then others: a mismatch.
    let args = if args == 0 { r#"{"amount":80}"# } else { r#"{"amount":79}"# };
    let mut claim = Claim::from_json(key(number), args).unwrap();
    if let Some(lease_ms) = terms.lease_ms {
        claim = claim.lease(Duration::from_millis(lease_ms));
    }
    claim = claim.keep(keep(terms.keep_s)).remember(keep(terms.remember_s));
    if let Some(resend_s) = terms.resend_s {
        claim = claim.recovery(Recovery::Resend { window: Duration::from_secs(u64::from(resend_s)) });
    }
    claim
}

pub fn outcome(number: u8) -> Outcome {
    match number % 8 {
        0 => Outcome::json("null"),
        1 => Outcome::text(""),
        2 => Outcome::json("{}").as_error(),
        3 => Outcome::binary([number; 300]),
        4 => Outcome::binary(vec![number; 4000]),
        // Over the limit: recorded, not kept.
        5 => Outcome::text("x".repeat(OUTCOME_BYTES_MAX + 1)),
        _ => Outcome::text(format!("outcome {number}")),
    }
}

const PAUSES_MS: [u64; 8] = [1, 999, 1_000, 9_999, 10_000, 59_000, 600_000, 3_600_000];

type Checked = Result<(), String>;

impl Driver {
    /// A new ledger on a new disk.
    pub fn create(seed: u64, small: bool) -> Driver {
        Driver::try_create(FaultDisk::new(seed), small).unwrap_or_else(|(_, error)| panic!("{error}"))
    }

    /// The same on a disk that may fail. The error comes with the driver, without a ledger.
    pub fn try_create(disk: FaultDisk, small: bool) -> Result<Driver, (Box<Driver>, Error)> {
        let clock = FakeClock::new();
        let mut driver = Driver::on(disk, clock, small);
        match driver.options().create(FILE) {
            Ok(ledger) => driver.ledger = Some(ledger),
            Err(error) => return Err((Box::new(driver), error)),
        }
        Ok(driver)
    }

    fn on(disk: FaultDisk, clock: FakeClock, small: bool) -> Driver {
        let created_ms = wall_ms(&clock);
        Driver {
            shared: Arc::new(disk.clone()),
            disk,
            clock,
            ledger: None,
            model: Model::new(),
            effects: Effects::new(),
            grants: Vec::new(),
            tickets: Vec::new(),
            tokens: Vec::new(),
            left: Vec::new(),
            together: Together::new(),
            doubt: None,
            created_ms,
            small,
            failed: false,
            reads_only: false,
            log: None,
            unknown: 0,
            faults: 0,
            crashes: 0,
            steps: Vec::new(),
        }
    }

    pub fn options(&self) -> Options {
        let options = Options::new()
            .disk(Arc::clone(&self.shared))
            .clock(Arc::new(self.clock.clone()))
            .threads(false)
            .outcome_bytes_max(OUTCOME_BYTES_MAX);
        if self.small { options.cache_bytes(16).page_cache_bytes(0) } else { options }
    }

    pub fn now_ms(&self) -> u64 {
        wall_ms(&self.clock) - self.created_ms
    }

    fn ledger(&self) -> &Ledger {
        self.ledger.as_ref().unwrap()
    }

    /// What may stand once the process is gone.
    pub fn known(&self) -> Known {
        let mut model = self.model.clone();
        model.orphan(&[]);
        Known { model, together: self.together.clone() }
    }

    pub fn trail(&self) -> String {
        self.steps.join("\n  ")
    }

    /// Takes an answer in: the model, the effects, and whether storage has failed (P13).
    fn saw(&mut self, number: u8, call: &Call, saw: &Saw, error: Option<&Error>) -> Checked {
        let text = format!("{call:?} of key {number} -> {saw:?} {}", error.map_or(String::new(), Error::to_string));
        self.steps.push(text);
        let key = key(number);
        if self.reads_only && matches!(saw, Saw::Granted(..) | Saw::Applied | Saw::Unknown) {
            return Err(format!("a ledger that only reads wrote: {call:?} -> {saw:?}"));
        }
        if self.failed && !self.reads_only && error.is_none() {
            return Err(format!("after a storage failure a call was served (P13): {call:?} -> {saw:?}"));
        }
        if let Some(error) = error {
            if error.is_storage() || error.is_damaged() {
                self.failed = true;
            } else {
                return Err(format!("an error that is neither storage nor unknown: {error:?}"));
            }
            if error.is_damaged() {
                return Err(format!("an undamaged file is called damaged: {error}"));
            }
        }
        self.unknown += u64::from(*saw == Saw::Unknown);
        let decision = match (call, saw) {
            (Call::Release(_) | Call::Resolve(_, Decided::NotDone, _), Saw::Applied | Saw::Unknown) => true,
            // A new life of the key, or a downstream that was said to deduplicate.
            (Call::Claim(_, terms), Saw::Granted(_, attempt)) => *attempt == 1 || terms.resend_s.is_some(),
            _ => false,
        };
        if let Saw::Granted(token, _) = saw {
            self.tokens.push((number % KEYS, *token));
            self.effects.happened(&key, *token);
        }
        if decision {
            self.effects.decided(&key);
        }
        self.model.call(&key, self.now_ms(), call, saw).map_err(|violation| violation.to_string())?;
        let excess = self.effects.excess();
        if excess.is_empty() { Ok(()) } else { Err(format!("more effects than decisions allow: {excess:?}")) }
    }

    /// Does one step. An error is a violation.
    pub fn step(&mut self, step: Step) -> Checked {
        let (from, before) = (self.disk.operations(), self.log.is_some().then(|| self.model.clone()));
        self.steps.push(format!("{step:?} at {} ms", self.now_ms()));
        let (left, together) = (self.left.clone(), self.together.clone());
        let mut pending = Vec::new();
        let done = self.act(step, &mut pending);
        let doubt = self.doubt.take();
        if let (Some(log), Some(before)) = (&mut self.log, before) {
            // Time passes before the operations of a step, if at all.
            let clock = self.clock.clone_hands();
            log.push(Logged { from, before, pending, left, clock, together, doubt });
        }
        done.map_err(|what| format!("{what}\n  {}", self.trail()))
    }

    fn act(&mut self, step: Step, pending: &mut Vec<(Key, Call)>) -> Checked {
        // Without threads the ledger takes what was left with its next batch, whoever writes that.
        self.left_is_read();
        match step {
            Step::Claim { key, args, terms: number } => {
                let terms = terms(number);
                let claim = claim(key, args, &terms);
                let call = Call::claim(&claim, terms);
                pending.push((claim.key().clone(), call.clone()));
                let claimed = self.ledger().claim(&claim);
                let saw = Saw::claimed(&claimed);
                self.saw(key, &call, &saw, claimed.as_ref().err())?;
                if let Ok(Claimed::Granted(grant)) = claimed {
                    self.grants.push(grant);
                }
                Ok(())
            }
            Step::Together { key, other, args, terms: number } => {
                let key = key % KEYS;
                self.together([key, (key + 1 + other % (KEYS - 1)) % KEYS], args, &terms(number), pending)
            }
            Step::Complete { pick, body } => self
                .settle(pick, pending, |token| (Call::Complete(token, outcome(body)), Settlement::done(outcome(body)))),
            Step::Fail { pick, body } => self
                .settle(pick, pending, |token| (Call::Fail(token, outcome(body)), Settlement::failed(outcome(body)))),
            Step::Release { pick } => {
                self.settle(pick, pending, |token| (Call::Release(token), Settlement::not_applied("no need")))
            }
            Step::Drop { pick } => {
                let Some(grant) = self.take_grant(pick) else { return Ok(()) };
                let (number, token) = (number_of(grant.key()), grant.token().get());
                pending.push((grant.key().clone(), Call::Drop(token)));
                drop(grant);
                self.dropped(number, token)
            }
            Step::Renew { pick, lease } => {
                let at = usize::from(pick) % self.grants.len().max(1);
                let Some(grant) = self.grants.get(at) else { return Ok(()) };
                let lease_ms = PAUSES_MS[usize::from(lease) % 6];
                let call = Call::Renew(grant.token().get(), lease_ms);
                let number = number_of(grant.key());
                pending.push((grant.key().clone(), call.clone()));
                let renewed = grant.renew(Duration::from_millis(lease_ms));
                self.saw(number, &call, &Saw::settled(&renewed), renewed.as_ref().err())
            }
            Step::Ticket { pick } => {
                if let Some(grant) = self.take_grant(pick) {
                    self.tickets.push(grant.into_ticket());
                }
                Ok(())
            }
            Step::Late { pick, body } => {
                let at = usize::from(pick) % self.tickets.len().max(1);
                let Some(ticket) = self.tickets.get(at) else { return Ok(()) };
                let (number, token) = (number_of(ticket.key()), ticket.token().get());
                let call = Call::Complete(token, outcome(body));
                pending.push((ticket.key().clone(), call.clone()));
                let settled = ticket.settle(self.ledger(), Settlement::done(outcome(body)));
                self.saw(number, &call, &Saw::settled(&settled), settled.as_ref().err())
            }
            Step::Leave { pick, body } => self.leave(pick, body, pending),
            Step::Resolve { key, verdict, force, stale } => self.resolve(key, verdict, force, stale, pending),
            Step::Check { key } => self.check(key),
            Step::Advance { by } => {
                self.clock.advance(Duration::from_millis(PAUSES_MS[usize::from(by) % PAUSES_MS.len()]));
                // The settle is of the time at which it is taken.
                self.left_is_read();
                self.ledger().tick();
                Ok(())
            }
            Step::Sweep => match self.ledger().sweep(100) {
                Ok(_) if self.failed => Err("after a storage failure a sweep was served (P13)".to_owned()),
                Ok(_) => Ok(()),
                Err(error) if error.is_storage() => {
                    self.failed = true;
                    Ok(())
                }
                Err(error) => Err(format!("a sweep ended with {error}")),
            },
            Step::Reopen => self.reopen(),
            Step::Crash { image } => self.crash(image),
            Step::Fault { after, kind } => {
                let at = self.disk.operations() + 1 + u64::from(after % 40);
                match kind % 8 {
                    0 => self.disk.stop_at(at),
                    1 => self.disk.set_plan(Plan::new().full_from(at)),
                    2 => self.disk.set_plan(Fault::from(at).with(Failure::Short)),
                    3 => self.disk.set_plan(Fault::on(Operation::Sync).after(u64::from(after % 8)).with(Failure::Sync)),
                    _ => self.disk.set_plan(Fault::at(at).with(Failure::Io)),
                }
                Ok(())
            }
        }
    }

    fn together(&mut self, numbers: [u8; 2], args: u8, terms: &Terms, pending: &mut Vec<(Key, Call)>) -> Checked {
        let claims = numbers.map(|number| claim(number, args, terms));
        let calls = claims.each_ref().map(|claim| Call::claim(claim, *terms));
        let keys = numbers.map(key);
        let version = self.look_together()?;
        let tokens = keys.each_ref().map(|key| token_of(self.ledger(), key).ok().flatten());
        let number = self.together.number();
        let doubt = Doubt { number, keys: keys.clone(), tokens };
        self.doubt = Some(doubt.clone());
        pending.extend(keys.into_iter().zip(calls.clone()));
        let transaction = self.ledger().transaction().set_cell(CELL, Outcome::text(number.to_string()));
        let transaction = match version {
            Some(version) => transaction.expect_cell(CELL, version),
            None => transaction.expect_absent(CELL),
        };
        let [first, second] = claims;
        match transaction.claim(first).claim(second).commit() {
            Ok(Transacted::Committed(committed)) => {
                self.together.committed(number);
                for ((number, call), grant) in numbers.into_iter().zip(&calls).zip(committed.grants) {
                    self.saw(number, call, &Saw::Granted(grant.token().get(), grant.attempt()), None)?;
                    self.grants.push(grant);
                }
                Ok(())
            }
            Ok(Transacted::Refused(refusals)) if refusals.is_empty() => {
                Err("a transaction was refused, and nothing stood in its way".to_owned())
            }
            Ok(Transacted::Refused(refusals)) => refusals.into_iter().try_for_each(|refusal| match refusal {
                Refusal::Claim { index, stands } => {
                    self.saw(numbers[index], &calls[index], &Saw::claimed(&Ok(stands)), None)
                }
                other => Err(format!("nobody wrote the cell in between: {other:?}")),
            }),
            Err(error) => {
                let failed = Err(error);
                let saw = Saw::claimed(&failed);
                if saw == Saw::Unknown {
                    self.together.unknown(doubt);
                }
                let mut calls = numbers.into_iter().zip(&calls);
                calls.try_for_each(|(number, call)| self.saw(number, call, &saw, failed.as_ref().err()))
            }
        }
    }

    /// The version of the cell. A failure of storage is noted.
    fn look_together(&mut self) -> Result<Option<Version>, String> {
        let looked = self.together.look(self.ledger.as_ref().unwrap());
        match looked {
            Ok(_) if self.failed && !self.reads_only => {
                Err("after a storage failure a cell was served (P13)".to_owned())
            }
            Ok(version) => Ok(version),
            Err(Ended::Failed(error)) if error.is_storage() => {
                self.failed = true;
                Ok(None)
            }
            Err(Ended::Failed(error)) => Err(format!("a look at a cell ended with {error}")),
            Err(Ended::Violation(what)) => Err(what),
        }
    }

    fn take_grant(&mut self, pick: u8) -> Option<Grant> {
        let at = usize::from(pick) % self.grants.len().max(1);
        (at < self.grants.len()).then(|| self.grants.swap_remove(at))
    }

    /// A drop has no answer: the mark is in memory at once, or the ledger is closed.
    fn dropped(&mut self, number: u8, token: u64) -> Checked {
        let now_ms = self.now_ms();
        let taken = self.model.call(&key(number), now_ms, &Call::Drop(token), &Saw::Applied);
        taken.map_err(|violation| violation.to_string())
    }

    fn settle(
        &mut self,
        pick: u8,
        pending: &mut Vec<(Key, Call)>,
        how: impl FnOnce(u64) -> (Call, Settlement),
    ) -> Checked {
        let Some(grant) = self.take_grant(pick) else { return Ok(()) };
        let number = number_of(grant.key());
        let (call, settlement) = how(grant.token().get());
        pending.push((grant.key().clone(), call.clone()));
        let settled = grant.settle(settlement);
        self.saw(number, &call, &Saw::settled(&settled), settled.as_ref().err())
    }

    /// Whether it was left or not, it may be there: the ledger that is open applies it, or an opening.
    fn leave(&mut self, pick: u8, body: u8, pending: &mut Vec<(Key, Call)>) -> Checked {
        let at = usize::from(pick) % self.tickets.len().max(1);
        let Some(ticket) = self.tickets.get(at) else { return Ok(()) };
        let token = ticket.token().get();
        let (call, settlement) = match body % 4 {
            0 => (Call::Fail(token, outcome(body)), Settlement::failed(outcome(body))),
            1 => (Call::Release(token), Settlement::not_applied("no need")),
            _ => (Call::Complete(token, outcome(body)), Settlement::done(outcome(body))),
        };
        if matches!(call, Call::Release(_)) {
            self.effects.decided(ticket.key());
        }
        let key = ticket.key().clone();
        pending.push((key.clone(), call.clone()));
        self.left.push((key.clone(), call.clone()));
        let answer = ticket.leave(settlement);
        // The open ledger looks at its own session at once, and may fail as it does.
        let _ = self.model.call(&key, self.now_ms(), &call, &Saw::Unknown);
        match answer {
            // The session ended, because no claim was open under it.
            Err(error) if error.kind() == ErrorKind::Closed => {
                let open = Saw::Stands(Stand::InProgress(token));
                match self.model.clone().call(&key, self.now_ms(), &Call::Check, &open) {
                    Ok(()) => Err(format!("an outcome of an open claim was not left: {error}")),
                    Err(_) => Ok(()),
                }
            }
            Err(error) if !error.is_storage() => Err(format!("leaving an outcome ended with {error}")),
            _ => Ok(()),
        }
    }

    /// What an opening, or the open ledger, may find in the files of sessions.
    fn left_is_read(&mut self) {
        let now_ms = self.now_ms();
        for (key, call) in &self.left {
            let _ = self.model.call(key, now_ms, call, &Saw::Unknown);
        }
    }

    fn resolve(
        &mut self,
        number: u8,
        verdict: u8,
        force: bool,
        stale: bool,
        pending: &mut Vec<(Key, Call)>,
    ) -> Checked {
        let key = key(number);
        let known = self.tokens.iter().find(|(other, _)| *other == number % KEYS).map(|(_, token)| *token);
        let token = if stale {
            known
        } else {
            match self.ledger().check(&key) {
                Ok(View::InProgress(holder)) => Some(holder.token.get()),
                Ok(View::Uncertain(doubt)) => Some(doubt.token.get()),
                Ok(_) => known,
                Err(_) => None,
            }
        };
        let Some(token) = token else { return Ok(()) };
        let (decided, verdict) = match verdict % 4 {
            0 => (Decided::Done(Some(outcome(verdict))), Verdict::Done(Some(outcome(verdict)))),
            1 => (Decided::Failed(None), Verdict::Failed(None)),
            _ => (Decided::NotDone, Verdict::NotDone),
        };
        let call = Call::Resolve(token, decided, force);
        pending.push((key.clone(), call.clone()));
        let resolved =
            self.ledger().resolve_token(&key, FencingToken::from_number(token), verdict, "ana", "looked", force);
        self.saw(number, &call, &Saw::resolved(&resolved), resolved.as_ref().err())
    }

    fn check(&mut self, number: u8) -> Checked {
        let view = self.ledger().check(&key(number));
        self.saw(number, &Call::Check, &Saw::view(&view), view.as_ref().err())
    }

    /// Holds every key against the model.
    pub fn check_all(&mut self) -> Checked {
        self.look_together()?;
        (0..KEYS).try_for_each(|number| self.check(number))
    }

    /// Closes in order and opens again, in the same process.
    fn reopen(&mut self) -> Checked {
        if self.reads_only {
            self.heal();
        }
        for grant in std::mem::take(&mut self.grants) {
            let (number, token) = (number_of(grant.key()), grant.token().get());
            drop(grant);
            self.dropped(number, token)?;
        }
        if let Some(ledger) = self.ledger.take() {
            match ledger.close() {
                Ok(_) => {}
                Err(error) if error.is_storage() || self.failed => {}
                Err(error) => return Err(format!("closing ended with {error}")),
            }
        }
        if self.disk.stopped() {
            return self.crash(0);
        }
        let living: Vec<u64> = self.tickets.iter().map(|ticket| ticket.token().get()).collect();
        self.left_is_read();
        self.model.orphan(&living);
        self.open()
    }

    /// Opens; where a planned fault is met, opens again without it.
    fn open(&mut self) -> Checked {
        self.failed = false;
        match self.options().open(FILE) {
            Ok(ledger) => self.ledger = Some(ledger),
            Err(error) => {
                if self.disk.stopped() {
                    return self.crash(0);
                }
                if self.disk.injected() == 0 {
                    return Err(format!("opening ended with {error}"));
                }
                self.steps.push(format!("opening failed as planned: {error}"));
                self.heal();
                match self.options().open(FILE) {
                    Ok(ledger) => self.ledger = Some(ledger),
                    // The process was to be killed a few operations on.
                    Err(_) if self.disk.stopped() => return self.crash(0),
                    Err(error) => return Err(format!("opening after a failed opening ended with {error}")),
                }
            }
        }
        self.reads_only = self.ledger().writable().is_err();
        if self.reads_only && self.disk.injected() == 0 {
            return Err("a ledger only reads though nothing failed".to_owned());
        }
        self.check_all()
    }

    fn heal(&mut self) {
        self.disk.set_plan(Plan::new());
    }

    fn crash(&mut self, image: u16) -> Checked {
        self.crashes += 1;
        self.faults += self.disk.injected();
        self.heal();
        self.disk.stop();
        self.ledger = None;
        self.grants.clear();
        self.tickets.clear();
        let disk = if image.is_multiple_of(2) {
            self.disk.process_crash()
        } else {
            let images = self.disk.crash_images(&CrashOptions {
                subsets_max: 8,
                random: 32,
                pairs_max: 32,
                tears_max: 4,
                ..CrashOptions::default()
            });
            let at = usize::from(image / 2) % images.len();
            self.clock.reboot(Duration::ZERO);
            let mut images = images;
            images.nth(at).unwrap()
        };
        self.steps.push(disk.origin());
        self.disk = disk;
        self.shared = Arc::new(self.disk.clone());
        self.left_is_read();
        self.model.orphan(&[]);
        self.open()?;
        // The file of a dead session goes with what it left, unless nothing could be written.
        if !self.reads_only {
            self.left.clear();
        }
        Ok(())
    }

    /// Ends the run with a reopening and a look at everything.
    pub fn end(&mut self) -> Checked {
        self.faults += self.disk.injected();
        self.heal();
        if self.disk.stopped() {
            self.crash(0)?
        } else {
            self.reopen()?
        }
        self.check_all().map_err(|what| format!("{what}\n  {}", self.trail()))?;
        let verified = self.ledger().verify();
        verified.map(drop).map_err(|error| format!("verifying ended with {error}\n  {}", self.trail()))
    }
}

/// Which of the numbered keys this is.
pub fn number_of(found: &Key) -> u8 {
    (0..KEYS).find(|number| key(*number) == *found).unwrap()
}

pub fn wall_ms(clock: &FakeClock) -> u64 {
    u64::try_from(clock.read().wall_ns / 1_000_000).unwrap()
}

/// The ledger's time at this clock, for a ledger created at the start of a fake clock.
pub fn ledger_ms(clock: &FakeClock) -> u64 {
    wall_ms(clock) - wall_ms(&FakeClock::new())
}

/// Opens what a crash left and holds every key against what may stand. `deep`: claims every key too,
/// reopens, and looks again.
pub fn check_image(disk: &FaultDisk, clock: &FakeClock, known: Known, deep: bool) -> Result<(), String> {
    let Known { mut model, mut together } = known;
    let context = |what: String| format!("{}: {what}", disk.origin());
    let options = || {
        Options::new()
            .disk(Arc::new(disk.clone()))
            .clock(Arc::new(clock.clone()))
            .threads(false)
            .outcome_bytes_max(OUTCOME_BYTES_MAX)
    };
    let ledger = options().open(FILE).map_err(|error| context(format!("opening ended with {error:?}")))?;
    let now_ms = ledger_ms(clock);
    for number in 0..KEYS {
        let view = ledger.check(&key(number));
        if let Err(error) = &view {
            return Err(context(format!("a check ended with {error:?}")));
        }
        model
            .call(&key(number), now_ms, &Call::Check, &Saw::view(&view))
            .map_err(|error| context(error.to_string()))?;
    }
    match together.look(&ledger) {
        Ok(_) => {}
        Err(Ended::Failed(error)) => return Err(context(format!("a look at a cell ended with {error:?}"))),
        Err(Ended::Violation(what)) => return Err(context(what)),
    }
    if !deep {
        // Closing in good order is half of the time, and nothing is looked at afterwards.
        disk.stop();
        return Ok(());
    }
    ledger.verify().map_err(|error| context(format!("verifying ended with {error:?}")))?;
    for number in 0..KEYS {
        let terms = terms(0);
        let claim = claim(number, 1, &terms);
        let claimed = ledger.claim(&claim);
        let saw = Saw::claimed(&claimed);
        model
            .call(&key(number), now_ms, &Call::claim(&claim, terms), &saw)
            .map_err(|error| context(error.to_string()))?;
        if let Ok(Claimed::Granted(grant)) = claimed {
            let call = Call::Complete(grant.token().get(), outcome(3));
            let settled = grant.complete(outcome(3));
            model
                .call(&key(number), now_ms, &call, &Saw::settled(&settled))
                .map_err(|error| context(error.to_string()))?;
        }
    }
    ledger.close().map_err(|error| context(format!("closing ended with {error:?}")))?;
    model.orphan(&[]);
    let ledger = options().open(FILE).map_err(|error| context(format!("opening again ended with {error:?}")))?;
    for number in 0..KEYS {
        let view = ledger.check(&key(number));
        model
            .call(&key(number), now_ms, &Call::Check, &Saw::view(&view))
            .map_err(|error| context(error.to_string()))?;
    }
    disk.stop();
    Ok(())
}

/// What may stand once a run was cut off before operation `number`.
pub fn known_at(log: &[Logged], number: u64) -> Option<(Known, FakeClock, &Logged)> {
    let step = log.iter().rev().find(|step| step.from < number)?;
    let mut model = step.before.clone();
    let now_ms = ledger_ms(&step.clock);
    for (key, call) in step.pending.iter().chain(&step.left) {
        // Whatever it is, an unknown answer is always possible.
        let _ = model.call(key, now_ms, call, &Saw::Unknown);
    }
    model.orphan(&[]);
    let mut together = step.together.clone();
    step.doubt.iter().for_each(|doubt| together.unknown(doubt.clone()));
    Some((Known { model, together }, step.clock.clone_hands(), step))
}

pub fn path() -> &'static Path {
    Path::new(FILE)
}
