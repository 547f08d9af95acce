//! What a ledger may answer: a set of possible states for each key.
//!
//! A call with a known answer moves every possible state on and throws out those that would have
//! answered otherwise; none left is a [`Violation`]. A call with an unknown answer keeps the old
//! states and adds what they become if it went through. A read narrows the set again. The rules
//! here are written down a second time, apart from the ledger's own, on purpose.
//!
//! ```
//! use onceledger::testkit::{Call, Model, Saw, Terms};
//! use onceledger::{Claim, Key, Ledger, Scope};
//!
//! let ledger = Ledger::in_memory()?;
//! let mut model = Model::new();
//! let claim = Claim::unguarded(Key::action(&Scope::new("acme")?, "mail", ["ana"])?);
//!
//! let claimed = ledger.claim(&claim);
//! model.call(claim.key(), 0, &Call::claim(&claim, Terms::default()), &Saw::claimed(&claimed))?;
//! let grant = claimed?.granted().unwrap();
//! let token = grant.token();
//! let settled = grant.complete("sent");
//! model.call(claim.key(), 0, &Call::complete(token, "sent"), &Saw::settled(&settled))?;
//! model.call(claim.key(), 0, &Call::Check, &Saw::view(&ledger.check(claim.key())))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;

use crate::{
    Claim, Claimed, Error, ErrorKind, FencingToken, Fingerprint, Key, Outcome, Resolved, Settled, Standing, Stored,
    View,
};

/// A call on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Ledger::claim`](crate::Ledger::claim).
    Claim(Fingerprint, Terms),
    /// [`Grant::complete`](crate::Grant::complete).
    Complete(u64, Outcome),
    /// [`Grant::fail`](crate::Grant::fail).
    Fail(u64, Outcome),
    /// [`Grant::release`](crate::Grant::release).
    Release(u64),
    /// The grant was dropped, or its effect ended in an error that nobody classified.
    Drop(u64),
    /// [`Grant::renew`](crate::Grant::renew), by so many milliseconds.
    Renew(u64, u64),
    /// [`Ledger::resolve_token`](crate::Ledger::resolve_token): the token, the verdict, by force.
    Resolve(u64, Decided, bool),
    /// [`Ledger::check`](crate::Ledger::check).
    Check,
}

/// A verdict on an uncertain claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// It happened.
    Done(Option<Outcome>),
    /// It failed for good.
    Failed(Option<Outcome>),
    /// It did not happen.
    NotDone,
}

/// What a claim asks for beside its key and fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The lease in milliseconds.
    pub lease_ms: Option<u64>,
    /// How long the body is kept, in seconds; `u32::MAX` for ever.
    pub keep_s: u32,
    /// How long the key is remembered, in seconds; `u32::MAX` for ever.
    pub remember_s: u32,
    /// For how many seconds it may be resent, counted from the first attempt; `None` to hold.
    pub resend_s: Option<u32>,
    /// The largest outcome body that is stored, in bytes.
    pub outcome_bytes_max: usize,
}

impl Default for Terms {
    /// The defaults of [`Options`](crate::Options): 7 and 90 days, no lease, hold.
    fn default() -> Self {
        const DAY_S: u32 = 24 * 60 * 60;
        Terms { lease_ms: None, keep_s: 7 * DAY_S, remember_s: 90 * DAY_S, resend_s: None, outcome_bytes_max: 1 << 20 }
    }
}

impl Call {
    /// A claim; its terms are not read from it.
    pub fn claim(claim: &Claim, terms: Terms) -> Self {
        Call::Claim(claim.fingerprint(), terms)
    }

    /// A completion under this token.
    pub fn complete(token: FencingToken, outcome: impl Into<Outcome>) -> Self {
        Call::Complete(token.get(), outcome.into())
    }
}

/// What a call answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saw {
    /// A grant under this token, for so many attempts.
    Granted(u64, u32),
    /// What stands, where a claim was refused or a check asked.
    Stands(Stand),
    /// Another fingerprint stands.
    Mismatch,
    /// A settle, renew, release, drop or resolve was applied.
    Applied,
    /// The same was recorded before.
    Same,
    /// The token no longer holds, or is stale; this stands.
    Lost(Stand),
    /// The call may have gone through or not.
    Unknown,
    /// The call did not go through: nothing of it was written.
    NotAttempted,
}

/// What stands at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stand {
    /// Nothing.
    Vacant,
    /// In progress under this token.
    InProgress(u64),
    /// Done, with this outcome where it is kept.
    Done(Option<Outcome>),
    /// Failed for good, with this outcome where it is kept.
    Failed(Option<Outcome>),
    /// Uncertain under this token.
    Uncertain(u64),
}

impl Stand {
    /// From a view of the ledger.
    pub fn of(view: &View) -> Self {
        match view {
            View::Vacant => Stand::Vacant,
            View::InProgress(holder) => Stand::InProgress(holder.token.get()),
            View::Done(stored) => Stand::Done(stored.outcome().cloned()),
            View::Failed(stored) => Stand::Failed(stored.outcome().cloned()),
            View::Uncertain(doubt) => Stand::Uncertain(doubt.token.get()),
        }
    }
}

fn outcome(stored: &Stored) -> Option<Outcome> {
    stored.outcome().cloned()
}

impl Saw {
    /// From the answer to a claim.
    pub fn claimed(claimed: &Result<Claimed, Error>) -> Self {
        match claimed {
            Ok(Claimed::Granted(grant)) => Saw::Granted(grant.token().get(), grant.attempt()),
            Ok(Claimed::AlreadyDone(stored)) => Saw::Stands(Stand::Done(outcome(stored))),
            Ok(Claimed::Failed(stored)) => Saw::Stands(Stand::Failed(outcome(stored))),
            Ok(Claimed::InProgress(holder)) => Saw::Stands(Stand::InProgress(holder.token.get())),
            Ok(Claimed::Uncertain(uncertain)) => Saw::Stands(Stand::Uncertain(uncertain.doubt.token.get())),
            Ok(Claimed::Mismatch(_)) => Saw::Mismatch,
            // The model knows no approvals: nothing was granted, and the key stands as it stood.
            Ok(Claimed::NotApproved(_)) => Saw::Stands(Stand::Vacant),
            Err(error) => Saw::error(error),
        }
    }

    /// From the answer to a settle, renew or release.
    pub fn settled(settled: &Result<Settled, Error>) -> Self {
        match settled {
            Ok(Settled::Applied) => Saw::Applied,
            Ok(Settled::Same) => Saw::Same,
            Ok(Settled::Lost(view)) => Saw::Lost(Stand::of(view)),
            Err(error) => Saw::error(error),
        }
    }

    /// From the answer to a resolve.
    pub fn resolved(resolved: &Result<Resolved, Error>) -> Self {
        match resolved {
            Ok(Resolved::Applied) => Saw::Applied,
            Ok(Resolved::Stale(view)) => Saw::Lost(Stand::of(view)),
            Err(error) => Saw::error(error),
        }
    }

    /// From the answer to a check.
    pub fn view(view: &Result<View, Error>) -> Self {
        match view {
            Ok(view) => Saw::Stands(Stand::of(view)),
            Err(error) => Saw::error(error),
        }
    }

    fn error(error: &Error) -> Self {
        if error.kind() == ErrorKind::Unknown { Saw::Unknown } else { Saw::NotAttempted }
    }
}

/// A token that may not be known: of a grant whose answer was lost it is only known that it is
/// larger than every one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Is(u64),
    After(u64),
}

impl Token {
    fn may_be(self, number: u64) -> bool {
        match self {
            Token::Is(token) => token == number,
            Token::After(floor) => number > floor,
        }
    }

    fn at_least(self) -> u64 {
        match self {
            Token::Is(token) => token,
            Token::After(floor) => floor,
        }
    }
}

/// One state that a key may be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Possible {
    standing: Standing,
    token: Token,
    fingerprint: Fingerprint,
    /// When this standing began; in progress: when the lease ends.
    at_ms: u64,
    terms: Terms,
    outcome: Option<Outcome>,
    first_s: u64,
    attempt: u32,
    /// Whether the last grant went on for one in doubt.
    resumed: bool,
}

const NEVER: u64 = u64::MAX;

fn after(at_ms: u64, seconds: u32) -> u64 {
    if seconds == u32::MAX { NEVER } else { at_ms.saturating_add(u64::from(seconds) * 1000) }
}

impl Possible {
    /// A key that was never granted.
    pub fn fresh() -> Self {
        Possible {
            standing: Standing::Vacant,
            token: Token::Is(0),
            fingerprint: Fingerprint::UNGUARDED,
            at_ms: NEVER,
            terms: Terms::default(),
            outcome: None,
            first_s: 0,
            attempt: 0,
            resumed: false,
        }
    }

    /// The standing at a time, with leases and retention counted.
    pub fn standing(&self, now_ms: u64) -> Standing {
        let is_forgotten = self.is_forgotten(now_ms);
        match self.standing {
            Standing::Done | Standing::Failed if is_forgotten => Standing::Vacant,
            Standing::InProgress if now_ms >= self.at_ms => Standing::Uncertain,
            other => other,
        }
    }

    fn is_forgotten(&self, now_ms: u64) -> bool {
        let counted = matches!(self.standing, Standing::Done | Standing::Failed | Standing::Vacant);
        counted && self.at_ms != NEVER && now_ms >= after(self.at_ms, self.terms.remember_s)
    }

    fn body(&self, now_ms: u64) -> Option<Outcome> {
        let keep_s = self.terms.keep_s.min(self.terms.remember_s);
        let kept = |outcome: &Outcome| outcome.body().len() <= self.terms.outcome_bytes_max;
        self.outcome.clone().filter(kept).filter(|_| now_ms < after(self.at_ms, keep_s))
    }

    fn shows(&self, now_ms: u64, stand: &Stand) -> Option<Possible> {
        let same = match (self.standing(now_ms), stand) {
            (Standing::Vacant, Stand::Vacant) => true,
            (Standing::InProgress, Stand::InProgress(token)) | (Standing::Uncertain, Stand::Uncertain(token)) => {
                return self.token.may_be(*token).then(|| Possible { token: Token::Is(*token), ..self.clone() });
            }
            (Standing::Done, Stand::Done(outcome)) | (Standing::Failed, Stand::Failed(outcome)) => {
                *outcome == self.body(now_ms)
            }
            _ => false,
        };
        same.then(|| self.clone())
    }

    fn settled(&self, standing: Standing, outcome: Option<Outcome>, now_ms: u64) -> Possible {
        Possible { standing, outcome, at_ms: now_ms, ..self.clone() }
    }

    fn grants(&self, fingerprint: Fingerprint, terms: Terms, now_ms: u64) -> Option<Possible> {
        let forgotten = self.is_forgotten(now_ms) || self.attempt == 0;
        let resend = || {
            // By a doubt that is recorded, not by a lease that has passed.
            let window_s = self.terms.resend_s?.min(terms.resend_s?);
            let doubtful = self.standing == Standing::Uncertain && self.fingerprint == fingerprint;
            (doubtful && now_ms < (self.first_s + u64::from(window_s)) * 1000).then_some(self.terms.resend_s)
        };
        let next = |first_s, attempt, terms| Possible {
            standing: Standing::InProgress,
            token: Token::After(self.token.at_least()),
            fingerprint,
            at_ms: terms_end(&terms, now_ms),
            terms,
            outcome: None,
            first_s,
            attempt,
            resumed: false,
        };
        match self.standing(now_ms) {
            Standing::Vacant if forgotten => Some(next(now_ms / 1000, 1, terms)),
            Standing::Vacant => Some(next(self.first_s, self.attempt + 1, terms)),
            // The rule stays the one that was stored with the key's first claim.
            Standing::Uncertain => resend().map(|resend_s| Possible {
                resumed: true,
                ..next(self.first_s, self.attempt + 1, Terms { resend_s, ..terms })
            }),
            Standing::InProgress | Standing::Done | Standing::Failed => None,
        }
    }

    /// The state after a call, where the call can have answered so.
    pub fn step(&self, now_ms: u64, call: &Call, saw: &Saw) -> Option<Possible> {
        match (call, saw) {
            (_, Saw::NotAttempted) => Some(self.clone()),
            // A drop has no answer: where it changes nothing nobody is told.
            (Call::Drop(_), _) => Some(self.taken(now_ms, call).unwrap_or_else(|| self.clone())),
            (_, Saw::Unknown) => self.taken(now_ms, call),
            (Call::Check, Saw::Stands(stand)) => self.shows(now_ms, stand),
            (Call::Claim(fingerprint, terms), saw) => self.step_claim(now_ms, *fingerprint, *terms, saw),
            (_, Saw::Applied) => self.taken(now_ms, call),
            (Call::Complete(..) | Call::Fail(..) | Call::Release(_), Saw::Same) => {
                self.is_same(now_ms, call).then(|| self.clone())
            }
            (
                Call::Complete(..) | Call::Fail(..) | Call::Release(_) | Call::Renew(..) | Call::Resolve(..),
                Saw::Lost(stand),
            ) => {
                // First what stands: it may name the token of a grant whose answer was lost.
                let shown = self.shows(now_ms, stand)?;
                let lost = shown.taken(now_ms, call).is_none() && !shown.is_same(now_ms, call);
                lost.then_some(shown)
            }
            _ => None,
        }
    }

    fn step_claim(&self, now_ms: u64, fingerprint: Fingerprint, terms: Terms, saw: &Saw) -> Option<Possible> {
        let stands = self.standing(now_ms) != Standing::Vacant;
        if stands && self.fingerprint != fingerprint {
            return (*saw == Saw::Mismatch).then(|| self.clone());
        }
        match (self.grants(fingerprint, terms, now_ms), saw) {
            (Some(next), Saw::Granted(token, attempt)) => {
                let right = next.token.may_be(*token) && next.attempt == *attempt;
                right.then_some(Possible { token: Token::Is(*token), ..next })
            }
            (None, Saw::Stands(stand)) => self.shows(now_ms, stand),
            _ => None,
        }
    }

    /// Whether a settle says what is recorded already.
    fn is_same(&self, now_ms: u64, call: &Call) -> bool {
        if self.is_forgotten(now_ms) {
            return false;
        }
        match call {
            Call::Complete(token, outcome) => {
                self.standing == Standing::Done && self.token.may_be(*token) && self.outcome.as_ref() == Some(outcome)
            }
            Call::Fail(token, outcome) => {
                self.standing == Standing::Failed && self.token.may_be(*token) && self.outcome.as_ref() == Some(outcome)
            }
            Call::Release(token) => {
                // A resend that did nothing leaves the doubt that it went on for.
                let given_back = if self.resumed { Standing::Uncertain } else { Standing::Vacant };
                (self.standing == given_back || self.standing == Standing::Vacant) && self.token.may_be(*token)
            }
            Call::Claim(..) | Call::Drop(_) | Call::Renew(..) | Call::Resolve(..) | Call::Check => false,
        }
    }

    /// The state after a call that went through; `None` where it changes nothing.
    fn taken(&self, now_ms: u64, call: &Call) -> Option<Possible> {
        let held = |token: u64| self.token.may_be(token) && !self.is_forgotten(now_ms);
        let open = matches!(self.standing, Standing::InProgress | Standing::Uncertain);
        let named = |token: u64, next: Possible| Possible { token: Token::Is(token), ..next };
        match call {
            Call::Claim(fingerprint, terms) => {
                let stands = self.standing(now_ms) != Standing::Vacant;
                if stands && self.fingerprint != *fingerprint {
                    return None;
                }
                self.grants(*fingerprint, *terms, now_ms)
            }
            Call::Complete(token, outcome) if held(*token) && open => {
                Some(named(*token, self.settled(Standing::Done, Some(outcome.clone()), now_ms)))
            }
            Call::Fail(token, outcome) if held(*token) && open => {
                Some(named(*token, self.settled(Standing::Failed, Some(outcome.clone()), now_ms)))
            }
            Call::Release(token) if held(*token) && self.resumed => (self.standing == Standing::InProgress)
                .then(|| named(*token, self.settled(Standing::Uncertain, None, now_ms))),
            Call::Release(token) if held(*token) && open => {
                Some(named(*token, self.settled(Standing::Vacant, None, now_ms)))
            }
            Call::Drop(token) if held(*token) && self.standing == Standing::InProgress => {
                Some(named(*token, self.settled(Standing::Uncertain, None, now_ms)))
            }
            Call::Renew(token, lease_ms) if held(*token) && self.standing == Standing::InProgress => {
                Some(named(*token, Possible { at_ms: now_ms + lease_ms, ..self.clone() }))
            }
            Call::Resolve(token, verdict, force) if held(*token) => {
                let standing = self.standing(now_ms);
                if standing != Standing::Uncertain && !(*force && standing == Standing::InProgress) {
                    return None;
                }
                let next = match verdict {
                    Decided::Done(outcome) => self.settled(Standing::Done, outcome.clone(), now_ms),
                    Decided::Failed(outcome) => self.settled(Standing::Failed, outcome.clone(), now_ms),
                    Decided::NotDone => self.settled(Standing::Vacant, None, now_ms),
                };
                Some(named(*token, next))
            }
            Call::Complete(..)
            | Call::Fail(..)
            | Call::Release(_)
            | Call::Drop(_)
            | Call::Renew(..)
            | Call::Resolve(..)
            | Call::Check => None,
        }
    }

    /// The state once the process that held the claim is gone, unless its token is among `living`.
    #[must_use]
    pub fn orphaned(&self, living: &[u64]) -> Possible {
        let lives = matches!(self.token, Token::Is(token) if living.contains(&token));
        match self.standing {
            Standing::InProgress if !lives => Possible { standing: Standing::Uncertain, at_ms: 0, ..self.clone() },
            _ => self.clone(),
        }
    }
}

fn terms_end(terms: &Terms, now_ms: u64) -> u64 {
    terms.lease_ms.map_or(NEVER, |lease_ms| now_ms + lease_ms)
}

/// An answer that no possible state of the key gives.
#[derive(Debug)]
pub struct Violation {
    text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Violation {}

/// The possible states of every key of a ledger. Times are milliseconds since the ledger was created.
#[derive(Clone, Debug, Default)]
pub struct Model {
    keys: BTreeMap<[u8; 32], (Key, Vec<Possible>)>,
}

impl Model {
    /// A ledger in which nothing was ever claimed.
    pub fn new() -> Self {
        Model::default()
    }

    /// Takes a call and its answer in.
    ///
    /// # Errors
    /// A [`Violation`] where no possible state answers so. The model stays as it was.
    pub fn call(&mut self, key: &Key, now_ms: u64, call: &Call, saw: &Saw) -> Result<(), Violation> {
        let fresh = || (key.clone(), vec![Possible::fresh()]);
        let (_, states) = self.keys.entry(*key.digest()).or_insert_with(fresh);
        let mut next: Vec<Possible> = Vec::new();
        let stay = matches!(saw, Saw::Unknown).then(|| states.clone()).into_iter().flatten();
        for state in states.iter().filter_map(|state| state.step(now_ms, call, saw)).chain(stay) {
            if !next.contains(&state) {
                next.push(state);
            }
        }
        if next.is_empty() {
            let text = format!("{key} at {now_ms} ms: {call:?} answered {saw:?}, but the key may only be {states:?}");
            return Err(Violation { text });
        }
        *states = next;
        Ok(())
    }

    /// The process is gone, or the ledger was reopened: claims in progress become uncertain, but for
    /// those whose token is among `living`.
    pub fn orphan(&mut self, living: &[u64]) {
        for (_, states) in self.keys.values_mut() {
            for state in states.iter_mut() {
                *state = state.orphaned(living);
            }
        }
    }

    /// The possible states of a key.
    pub fn possible(&self, key: &Key) -> Vec<Possible> {
        self.keys.get(key.digest()).map_or_else(|| vec![Possible::fresh()], |(_, states)| states.clone())
    }

    /// Every key that a call was made for.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.values().map(|(key, _)| key)
    }

    /// Whether a key has more than one possible state.
    pub fn is_open(&self, key: &Key) -> bool {
        self.keys.get(key.digest()).is_some_and(|(_, states)| states.len() > 1)
    }
}

/// Effects as the outside sees them: who did what, counted apart from the ledger.
///
/// The rule that matters: for each key, effects are at most 1 + the decisions that one did not
/// happen (a release, or a resolve as not done).
#[derive(Clone, Debug, Default)]
pub struct Effects {
    done: BTreeMap<[u8; 32], Vec<u64>>,
    allowed: BTreeMap<[u8; 32], u64>,
}

impl Effects {
    /// Nothing has happened.
    pub fn new() -> Self {
        Effects::default()
    }

    /// An effect happened under this key and token.
    pub fn happened(&mut self, key: &Key, token: u64) {
        self.done.entry(*key.digest()).or_default().push(token);
    }

    /// Somebody decided that an effect of this key did not happen, or its retention has passed.
    pub fn decided(&mut self, key: &Key) {
        *self.allowed.entry(*key.digest()).or_insert(0) += 1;
    }

    /// How many effects there were.
    pub fn count(&self) -> u64 {
        self.done.values().map(|tokens| tokens.len() as u64).sum()
    }

    /// Keys with more effects than 1 + decisions, and their tokens.
    pub fn excess(&self) -> Vec<([u8; 32], Vec<u64>)> {
        let over = |(key, tokens): &(&[u8; 32], &Vec<u64>)| {
            tokens.len() as u64 > 1 + self.allowed.get(*key).copied().unwrap_or(0)
        };
        self.done.iter().filter(over).map(|(key, tokens)| (*key, tokens.clone())).collect()
    }
}
