//! The right to run an effect once, and the ways it ends.

use std::fmt;

use crate::claim::{FencingToken, Settled};
use crate::engine::codec::{LeftBody, LeftOutcome, LeftSettlement, body_checksum};
use crate::engine::core::Core;
use crate::engine::event::{Body, End, Place, Reason};
use crate::engine::files::Inheritable;
use crate::engine::line::Receive;
use crate::engine::request::{Answered, Granted, Prepared, Reply, SettleWork, Work};
use crate::engine::session::Session;
use crate::engine::sync::Arc;
use crate::error::{Error, ErrorKind, Result};
use crate::key::{Downstream, Key};
use crate::ledger::{Ledger, settled};
use crate::outcome::Outcome;

/// The durable right to run one action once (P1). Whoever holds it runs the effect and settles.
///
/// Dropped without a settle, it leaves the claim uncertain: the effect may have begun (P14). The
/// mark is in memory at once and on disk with the next batch; a crash in between gives the same.
#[must_use = "a grant that is dropped leaves its claim uncertain"]
pub struct Grant {
    core: Arc<Core>,
    key: Key,
    token: u64,
    attempt: u32,
    resumed: bool,
    /// Cleared once the grant was settled or turned into a ticket.
    live: bool,
}

/// How a grant ends.
#[derive(Clone, Debug)]
pub struct Settlement {
    end: Ending,
    exit_code: Option<i32>,
}

#[derive(Clone, Debug)]
enum Ending {
    Done(Outcome),
    Failed(Outcome),
    Released(String),
    Uncertain(String),
}

impl Settlement {
    /// The effect happened and returned this.
    pub fn done(outcome: impl Into<Outcome>) -> Self {
        Settlement::of(Ending::Done(outcome.into()))
    }

    /// The effect failed for good, with this answer.
    pub fn failed(outcome: impl Into<Outcome>) -> Self {
        Settlement::of(Ending::Failed(outcome.into()))
    }

    /// The effect certainly did not happen: the key is free again. `why` is kept in the history.
    pub fn not_applied(why: impl fmt::Display) -> Self {
        Settlement::of(Ending::Released(cut(why.to_string())))
    }

    /// Nobody knows. `why` is kept in the history.
    pub fn uncertain(why: impl fmt::Display) -> Self {
        Settlement::of(Ending::Uncertain(cut(why.to_string())))
    }

    fn of(end: Ending) -> Self {
        Settlement { end, exit_code: None }
    }

    /// A program's exit code, kept in the log as long as the key is remembered, whatever becomes of
    /// the outcome's body. Only of a settlement that is done or failed.
    pub fn exit_code(mut self, code: i32) -> Self {
        self.exit_code = Some(code);
        self
    }

    /// The request that settles a token so.
    fn work(self, key: &Key, token: u64, outcome_bytes_max: usize) -> Work {
        let key = *key.digest();
        let (end, outcome) = match self.end {
            Ending::Done(outcome) => (End::Done, outcome),
            Ending::Failed(outcome) => (End::Failed, outcome),
            Ending::Released(why) => return Work::Release { key, token, why },
            Ending::Uncertain(why) => return Work::Doubt { key, token, reason: Reason::UnknownError, why },
        };
        let prepared = prepare(Some(&outcome), self.exit_code, outcome_bytes_max);
        Work::Settle(Box::new(SettleWork { key, token, end, prepared }))
    }

    /// What is written where the ledger itself is busy.
    fn left(self, outcome_bytes_max: usize) -> LeftSettlement {
        let body = |outcome: &Outcome| {
            let stored = outcome.body().len() <= outcome_bytes_max;
            LeftBody {
                kind: outcome.kind(),
                error: outcome.is_error(),
                exit_code: self.exit_code,
                len: outcome.body().len() as u64,
                stored,
                bytes: if stored { outcome.body().to_vec() } else { Vec::new() },
            }
        };
        match &self.end {
            Ending::Done(outcome) => LeftSettlement::Done(body(outcome)),
            Ending::Failed(outcome) => LeftSettlement::Failed(body(outcome)),
            Ending::Released(why) => LeftSettlement::Released(why.clone()),
            Ending::Uncertain(why) => LeftSettlement::Uncertain(why.clone()),
        }
    }
}

/// Reasons are for people: cut rather than refused, for the effect has run.
pub(crate) fn cut(mut why: String) -> String {
    const BYTES_MAX: usize = 4096;
    if why.len() > BYTES_MAX {
        let end = (0..=BYTES_MAX).rev().find(|end| why.is_char_boundary(*end)).unwrap_or(0);
        why.truncate(end);
    }
    why
}

/// Makes an outcome ready on the caller's thread: the writer only appends.
pub(crate) fn prepare(outcome: Option<&Outcome>, exit_code: Option<i32>, outcome_bytes_max: usize) -> Prepared {
    let Some(outcome) = outcome else {
        return Prepared { body: Body { exit_code, ..Body::NONE }, outcome: None };
    };
    let stored = outcome.body().len() <= outcome_bytes_max;
    let body = Body {
        kind: outcome.kind(),
        error: outcome.is_error(),
        len: outcome.body().len() as u64,
        crc: body_checksum(outcome.body()),
        place: if stored { Place::Here } else { Place::Nowhere },
        exit_code,
    };
    Prepared { body, outcome: stored.then(|| outcome.clone()) }
}

impl Grant {
    /// Refused where the ledger has been closed since: whoever opened it next has not seen this grant
    /// live, and may have given the key to somebody else. The effect has not begun, so it is given back.
    pub(crate) fn new(core: Arc<Core>, key: Key, granted: Granted) -> Result<Self> {
        core.session.hold(granted.token);
        // After: an opening that comes later than this look finds the token living.
        let open = core.check_open();
        let Granted { token, attempt, resumed, .. } = granted;
        let grant = Grant { core, key, token, attempt, resumed, live: true };
        let Err(error) = open else { return Ok(grant) };
        grant.give_back();
        // Where storage failed since, the grant is on disk.
        let is_storage = error.kind() == ErrorKind::Storage;
        Err(if is_storage { error.again(ErrorKind::Unknown) } else { error })
    }

    /// Gives the key back: nobody was told of this grant.
    pub(crate) fn give_back(mut self) {
        self.live = false;
        self.core.session.let_go(self.token);
        let Grant { token, attempt, resumed, .. } = self;
        let granted = Granted { key: *self.key.digest(), token, attempt, resumed };
        self.core.give_back(Ok(Reply::Granted(granted)));
    }

    /// The key that was granted.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The fencing token: larger than that of every earlier grant of this ledger.
    pub fn token(&self) -> FencingToken {
        FencingToken(self.token)
    }

    /// How many times the key was granted, this time included.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The key to hand to the provider, the same in every attempt. `label` tells apart the effects
    /// of one action.
    pub fn downstream(&self, label: &str) -> Downstream {
        self.key.downstream(label)
    }

    /// Moves the lease to end this long from now. On disk when this returns.
    ///
    /// # Errors
    /// `BadInput` for a lease of zero; `Storage` and `Unknown` as everywhere. [`Settled::Lost`]
    /// where the claim is no longer this grant's.
    pub fn renew(&self, lease: std::time::Duration) -> Result<Settled> {
        let lease_ms = crate::ledger::lease_ms(lease)?;
        let work = Work::Renew { key: *self.key.digest(), token: self.token, lease_ms };
        let answer = self.core.call(work)?;
        settled(&self.core, &self.key, answer)
    }

    /// Records that the effect happened. On disk when this returns.
    ///
    /// # Errors
    /// `Storage`, `Unknown`, `Closed`: the outcome may not be recorded; the error carries it. The
    /// effect has run, so the claim is uncertain once the ledger is reopened.
    pub fn complete(self, outcome: impl Into<Outcome>) -> Result<Settled> {
        self.settle(Settlement::done(outcome))
    }

    /// Records that the effect failed for good. On disk when this returns.
    ///
    /// # Errors
    /// As [`complete`](Grant::complete).
    pub fn fail(self, outcome: impl Into<Outcome>) -> Result<Settled> {
        self.settle(Settlement::failed(outcome))
    }

    /// Gives the key back: the effect certainly did not happen. On disk when this returns.
    ///
    /// # Errors
    /// As [`complete`](Grant::complete), without an outcome.
    pub fn release(self) -> Result<Settled> {
        self.settle(Settlement::not_applied(""))
    }

    /// Ends the grant in any of the four ways. On disk when this returns.
    ///
    /// # Errors
    /// As [`complete`](Grant::complete).
    pub fn settle(mut self, settlement: Settlement) -> Result<Settled> {
        let after = settlement.after();
        self.core.check_call().map_err(&after)?;
        let work = settlement.work(&self.key, self.token, self.core.options.outcome_bytes_max);
        self.core.session.tell(self.token, true);
        let answer = self.core.call_checked(work).and_then(|reply| settled(&self.core, &self.key, reply));
        self.core.session.tell(self.token, answer.is_ok());
        self.end();
        answer.map_err(after)
    }

    /// [`settle`](Grant::settle) as a future. Queued at once: a settle once queued stands, whether
    /// the future is polled on or not.
    pub fn settle_async(mut self, settlement: Settlement) -> impl Future<Output = Result<Settled>> + Send {
        let sent = self.send(settlement);
        let (core, key, token) = (Arc::clone(&self.core), self.key.clone(), self.token);
        async move {
            let (receive, after) = sent?;
            let answer = receive.await.and_then(|reply| settled(&core, &key, reply));
            if answer.is_err() {
                core.session.tell(token, false);
            }
            answer.map_err(after)
        }
    }

    fn send(&mut self, settlement: Settlement) -> Result<(Receive<Answered>, impl Fn(Error) -> Error + Send + use<>)> {
        let after = settlement.after();
        self.core.check_call().map_err(&after)?;
        let work = settlement.work(&self.key, self.token, self.core.options.outcome_bytes_max);
        self.core.session.tell(self.token, true);
        let receive = self.core.send_checked(work);
        self.end();
        Ok((receive, after))
    }

    /// Ends the grant because its effect panicked.
    pub(crate) fn panicked(mut self) {
        self.end();
        self.core.doubt(self.key.digest(), self.token, Reason::Panicked, String::new());
    }

    /// A ticket that can settle this grant too, also on a later open of the ledger. It keeps the session
    /// alive. Dropping the grant itself still leaves the claim uncertain, ticket or not;
    /// [`into_ticket`](Grant::into_ticket) hands the claim over and leaves it in progress.
    pub fn ticket(&self) -> Ticket {
        self.core.session.hold(self.token);
        Ticket {
            session: Arc::clone(&self.core.session),
            key: self.key.clone(),
            token: self.token,
            attempt: self.attempt,
            resumed: self.resumed,
            outcome_bytes_max: self.core.options.outcome_bytes_max,
        }
    }

    /// Turns the grant into its ticket: the claim stays in progress when the ledger is closed.
    pub fn into_ticket(mut self) -> Ticket {
        let ticket = self.ticket();
        self.end();
        ticket
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.live) {
            self.core.session.let_go(self.token);
            // Its ledger may have been closed and opened again meanwhile.
            if self.core.check_open().is_err() {
                self.core.session.orphan(self.key.digest(), self.token);
            }
        }
    }
}

impl Settlement {
    /// What an error says once this was to be recorded: that it came after the effect, with its outcome. One
    /// that certainly had no effect may be started again.
    fn after(&self) -> impl Fn(Error) -> Error + Send + use<> {
        let (released, outcome) = (matches!(self.end, Ending::Released(_)), self.outcome());
        move |error| if released { error } else { error.after_effect(outcome.clone()) }
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match &self.end {
            Ending::Done(outcome) | Ending::Failed(outcome) => Some(outcome.clone()),
            Ending::Released(_) | Ending::Uncertain(_) => None,
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if self.live {
            self.end();
            self.core.doubt(self.key.digest(), self.token, Reason::Dropped, String::new());
        }
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Grant({:?}, token {}, attempt {})", self.key, self.token, self.attempt)
    }
}

/// Settles a grant on a later open of the same ledger by the same process. While it lives, the
/// session lives, and the claim stays in progress; dropped without a settle, it leaves the claim
/// uncertain, as a grant does.
#[must_use = "the claim stays in progress for as long as its ticket lives, and is uncertain after"]
pub struct Ticket {
    session: Arc<Session>,
    key: Key,
    token: u64,
    attempt: u32,
    resumed: bool,
    outcome_bytes_max: usize,
}

impl Ticket {
    /// The key that was granted.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The fencing token of the grant.
    pub fn token(&self) -> FencingToken {
        FencingToken(self.token)
    }

    /// How many times the key was granted.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether this is a resend: it goes on for an earlier attempt of which nobody knows. Where it ends as not
    /// applied, the claim is uncertain as it was, and the key not free.
    pub fn is_resend(&self) -> bool {
        self.resumed
    }

    /// The key to hand to the provider.
    pub fn downstream(&self, label: &str) -> Downstream {
        self.key.downstream(label)
    }

    /// Settles the grant on an open ledger. On disk when this returns; a settle equal to the stored
    /// one is [`Settled::Same`].
    ///
    /// # Errors
    /// `BadInput` where the ledger is another one; otherwise as [`Grant::complete`].
    pub fn settle(&self, ledger: &Ledger, settlement: Settlement) -> Result<Settled> {
        let core = ledger.core();
        if core.session.head.ledger_id != self.session.head.ledger_id {
            return Err(
                Error::bad_input("this ticket is of another ledger").next("settle it on the ledger that granted it")
            );
        }
        let after = settlement.after();
        let work = settlement.work(&self.key, self.token, self.outcome_bytes_max);
        let answer = core.call(work).and_then(|reply| settled(core, &self.key, reply));
        if answer.is_ok() {
            self.session.tell(self.token, true);
        }
        answer.map_err(after)
    }

    /// Writes and syncs the settlement into the session's file, without the ledger: whoever next
    /// looks at the claim applies it as this grant's own settle. For when the ledger is busy.
    ///
    /// # Errors
    /// `Storage` where it could not be written: it may be there or not. `Closed` where no claim of this
    /// session is in progress, this one's neither: the session has ended.
    pub fn leave(&self, settlement: Settlement) -> Result<()> {
        self.session.check_process()?;
        self.session.leave(&LeftOutcome {
            key: *self.key.digest(),
            token: self.token,
            settlement: settlement.left(self.outcome_bytes_max),
        })?;
        self.session.tell(self.token, true);
        Ok(())
    }

    /// A handle that a program started while it lives inherits: the session then lives until that
    /// program has ended too. `None` where the platform has no such thing.
    ///
    /// # Errors
    /// `Storage` where the session's file cannot be shared.
    pub fn inheritable(&self) -> Result<Option<impl fmt::Debug + use<>>> {
        shared(&self.session)
    }
}

impl Ledger {
    /// A handle that a program started while it lives inherits, for programs started inside
    /// [`once`](Ledger::once): what this process has in progress then stays so until that program has
    /// ended too. `None` where the platform has no such thing.
    ///
    /// # Errors
    /// `Closed` where this process was granted nothing yet; `Storage` where the session's file cannot
    /// be shared.
    pub fn inheritable(&self) -> Result<Option<impl fmt::Debug + use<>>> {
        shared(&self.core().session)
    }
}

fn shared(session: &Session) -> Result<Option<Inheritable>> {
    session.check_process()?;
    if !session.has_begun() {
        let what = "this session has no file: no claim of this process is in progress";
        return Err(
            Error::new(ErrorKind::Closed, what).next("ask again inside an effect, or with a grant or ticket in hand")
        );
    }
    session.inheritable()
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.session.let_go(self.token) {
            self.session.orphan(self.key.digest(), self.token);
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({:?}, token {})", self.key, self.token)
    }
}
