//! An effect, run once: for closures and for futures, over one core.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::claim::{Answer, Claim, Claimed, Finding, ProbeKind, Recovery, Settled, Uncertain};
use crate::engine::core::Core;
use crate::engine::event::Reason;
use crate::engine::index::KeyDigest;
use crate::engine::line::{Receive, this_thread};
use crate::engine::request::{Answered, Reply, VerdictWork, Work};
use crate::engine::state::{Record, Stored as StoredStanding};
use crate::engine::sync::Arc;
use crate::error::{Error, ErrorKind, Result};
use crate::grant::{Grant, Settlement, prepare};
use crate::key::Key;
use crate::ledger::{Ledger, doubt};
use crate::outcome::{Class, EffectError, Outcome, Stored};

thread_local! {
    /// The actions whose effects run on this thread right now, by ledger and key.
    static INSIDE: RefCell<Vec<(usize, KeyDigest)>> = const { RefCell::new(Vec::new()) };
}

/// Marks this thread as running an action's effect, until it is dropped.
struct Inside;

impl Inside {
    fn enter(core: &Arc<Core>, key: &Key) -> Self {
        INSIDE.with_borrow_mut(|inside| inside.push((Arc::as_ptr(core) as usize, *key.digest())));
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with_borrow_mut(|inside| inside.pop());
    }
}

/// Refuses a claim from inside the effect of the same key: it could only wait for itself.
pub(crate) fn check_not_inside(core: &Arc<Core>, key: &Key) -> Result<()> {
    let here = (Arc::as_ptr(core) as usize, *key.digest());
    if INSIDE.with_borrow(|inside| inside.contains(&here)) {
        return Err(Error::new(ErrorKind::Reentrant, format!("{key} was claimed from inside its own effect"))
            .next("give the inner effect a key of its own"));
    }
    Ok(())
}

impl Ledger {
    /// Runs an effect at most once, and answers what the world did, now or before.
    ///
    /// The effect runs on this thread, under no lock. What it returns is on disk when this returns.
    /// A panic in it leaves the claim uncertain and is answered as that.
    ///
    /// # Errors
    /// Bad input, storage, or unknown; [`Error::after_the_effect`] says whether the effect had run,
    /// and the error then carries its outcome.
    pub fn once<R, F>(&self, claim: &Claim, effect: F) -> Result<Answer>
    where
        F: FnOnce(&Grant) -> std::result::Result<R, EffectError>,
        R: Into<Outcome>,
    {
        let grant = match granted(self.claim(claim)?) {
            Ok(grant) => grant,
            Err(answer) => return Ok(answer),
        };
        let ran = {
            let _inside = Inside::enter(self.core(), claim.key());
            catch_unwind(AssertUnwindSafe(|| effect(&grant)))
        };
        let Some(end) = ended(grant, ran.map_err(drop)) else { return panicked(self, claim.key()) };
        let (grant, settlement, error) = end;
        let settled = grant.settle(settlement.clone())?;
        Ok(answer(self, claim.key(), settlement.outcome(), error, settled))
    }

    /// [`once`](Ledger::once) for futures, under any executor and holding no thread.
    ///
    /// Dropped while it claims, it leaves the key as it was; dropped while the effect runs, it leaves
    /// the claim uncertain; a settle once queued stands.
    pub fn once_async<R, F, E>(&self, claim: &Claim, effect: F) -> impl Future<Output = Result<Answer>> + use<R, F, E>
    where
        F: FnOnce(Grants) -> E,
        E: Future<Output = std::result::Result<R, EffectError>>,
        R: Into<Outcome>,
    {
        let (ledger, claim) = (self.clone(), claim.clone());
        async move {
            let grant = match granted(claim_async(ledger.clone(), claim.clone()).await?) {
                Ok(grant) => grant,
                Err(answer) => return Ok(answer),
            };
            let lent = Grants { key: grant.key().clone(), token: grant.token(), attempt: grant.attempt() };
            let begun = {
                let _inside = Inside::enter(ledger.core(), claim.key());
                catch_unwind(AssertUnwindSafe(|| Box::pin(effect(lent))))
            };
            let ran = match begun {
                Ok(effect) => Running { effect, core: Arc::clone(ledger.core()), key: claim.key().clone() }.await,
                Err(_) => Err(()),
            };
            let Some(end) = ended(grant, ran) else { return panicked(&ledger, claim.key()) };
            let (grant, settlement, error) = end;
            let outcome = settlement.outcome();
            let settled = grant.settle_async(settlement).await?;
            Ok(answer(&ledger, claim.key(), outcome, error, settled))
        }
    }
}

/// What a future's effect is given: the grant's name. The grant itself stays with the ledger, so that
/// dropping the future ends it.
#[derive(Clone, Debug)]
pub struct Grants {
    key: Key,
    token: crate::FencingToken,
    attempt: u32,
}

impl Grants {
    /// The key that was granted.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The fencing token.
    pub fn token(&self) -> crate::FencingToken {
        self.token
    }

    /// How many times the key was granted, this time included.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The key to hand to the provider, the same in every attempt.
    pub fn downstream(&self, label: &str) -> crate::Downstream {
        self.key.downstream(label)
    }
}

/// An effect's future, polled under the mark of its key. A panic is an `Err`.
struct Running<E> {
    effect: Pin<Box<E>>,
    core: Arc<Core>,
    key: Key,
}

impl<E: Future> Future for Running<E> {
    type Output = std::result::Result<E::Output, ()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let _inside = Inside::enter(&self.core, &self.key);
        match catch_unwind(AssertUnwindSafe(|| self.effect.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(ran)) => Poll::Ready(Ok(ran)),
            Err(_) => Poll::Ready(Err(())),
        }
    }
}

#[allow(clippy::result_large_err)] // An answer is the usual end of a repeat, not an exception.
fn granted(claimed: Claimed) -> std::result::Result<Grant, Answer> {
    match claimed {
        Claimed::Granted(grant) => Ok(grant),
        Claimed::AlreadyDone(stored) => Err(Answer::AlreadyDone(stored)),
        Claimed::Failed(stored) => Err(Answer::Failed(stored)),
        Claimed::InProgress(holder) => Err(Answer::InProgress(holder)),
        Claimed::Uncertain(doubt) => Err(Answer::Uncertain(doubt)),
        Claimed::Mismatch(conflict) => Err(Answer::Mismatch(conflict)),
        Claimed::NotApproved(approval) => Err(Answer::NotApproved(approval)),
    }
}

/// How a grant is to be settled by what its effect returned. `None` where it panicked.
fn ended<R: Into<Outcome>>(
    grant: Grant,
    ran: std::result::Result<std::result::Result<R, EffectError>, ()>,
) -> Option<(Grant, Settlement, Option<EffectError>)> {
    match ran {
        Err(()) => {
            grant.panicked();
            None
        }
        Ok(Ok(outcome)) => Some((grant, Settlement::done(outcome.into()), None)),
        Ok(Err(error)) => {
            let settlement = match error.class() {
                Class::NotApplied => Settlement::not_applied(said(&error)),
                Class::Final => Settlement::failed(error.outcome().clone()),
                Class::Unknown => Settlement::uncertain(said(&error)),
            };
            Some((grant, settlement, Some(error)))
        }
    }
}

fn said(error: &EffectError) -> &str {
    error.outcome().as_str().unwrap_or_default()
}

fn panicked(ledger: &Ledger, key: &Key) -> Result<Answer> {
    // What a panic said may hold what must not reach a log.
    let error = EffectError::unknown("the effect panicked");
    Ok(Answer::Uncertain(doubtful(ledger, key, Some(error))))
}

fn doubtful(ledger: &Ledger, key: &Key, error: Option<EffectError>) -> Uncertain {
    let record = ledger.core().index.get(key.digest());
    let reason = |record: &Record| match record.standing {
        StoredStanding::Uncertain(reason) => reason,
        StoredStanding::Vacant | StoredStanding::InProgress | StoredStanding::Done | StoredStanding::Failed => {
            Reason::UnknownError
        }
    };
    let nothing = || crate::claim::Doubt {
        key: key.clone(),
        token: crate::FencingToken(0),
        attempt: 0,
        reason: crate::DoubtReason::UnknownError,
        since_ms: 0,
    };
    let doubt = record.map_or_else(nothing, |record| doubt(key, &record, reason(&record)));
    Uncertain { doubt, error, stored_rule_decided: false }
}

fn answer(
    ledger: &Ledger,
    key: &Key,
    outcome: Option<Outcome>,
    error: Option<EffectError>,
    settled: Settled,
) -> Answer {
    if let Settled::Lost(view) = settled {
        let outcome = outcome.or_else(|| error.map(|error| error.outcome().clone()));
        return Answer::Superseded(outcome.unwrap_or_else(|| Outcome::from(())), view);
    }
    match (error, outcome) {
        (None, Some(outcome)) => Answer::Done(outcome),
        (None, None) => Answer::Done(Outcome::from(())),
        (Some(error), outcome) => match error.class() {
            Class::NotApplied => Answer::NotApplied(error),
            Class::Final => Answer::Failed(Stored::Kept(outcome.unwrap_or_else(|| error.outcome().clone()))),
            Class::Unknown => Answer::Uncertain(doubtful(ledger, key, Some(error))),
        },
    }
}

/// A claim in line. Dropped before its answer was taken, it gives back what was granted.
pub(crate) struct Claiming {
    core: Arc<Core>,
    receive: Receive<Answered>,
}

impl Claiming {
    pub fn new(core: Arc<Core>, receive: Receive<Answered>) -> Self {
        Claiming { core, receive }
    }
}

impl Future for Claiming {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        Pin::new(&mut self.receive).poll(context)
    }
}

impl Drop for Claiming {
    fn drop(&mut self) {
        if let Some(answer) = self.receive.give_up() {
            self.core.give_back(answer);
        }
    }
}

/// Notes that a probe is over, whichever way it ends.
struct Probing<'a> {
    core: &'a Core,
    key: KeyDigest,
    over: bool,
}

impl Drop for Probing<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.core.post(Work::ProbeOver { key: self.key });
        }
    }
}

pub(crate) async fn claim_async(ledger: Ledger, claim: Claim) -> Result<Claimed> {
    if let Some(known) = ledger.known(&claim)? {
        return Ok(known);
    }
    let core = Arc::clone(ledger.core());
    let key = *claim.key().digest();
    let line = |work: Work| core.send(work).map(|receive| Claiming::new(Arc::clone(&core), receive));
    let work = Work::Claim(Box::new(ledger.claim_work(&claim)?));
    let reply = Claiming::new(Arc::clone(&core), core.send_checked(work)).await?;
    let Reply::Probe { record, .. } = reply else { return ledger.claimed(&claim, reply) };
    let mut probing = Probing { core: &core, key, over: false };
    let finding = match &claim.recovery {
        Recovery::Reconcile(probe) => {
            let doubt = doubt_of(&claim, &record);
            match &probe.0 {
                ProbeKind::Blocking(probe) => {
                    catch_unwind(AssertUnwindSafe(|| probe(&doubt))).unwrap_or(Finding::Unknown)
                }
                ProbeKind::Future(probe) => match catch_unwind(AssertUnwindSafe(|| probe(&doubt))) {
                    Ok(future) => Caught(future).await,
                    Err(_) => Finding::Unknown,
                },
            }
        }
        Recovery::Hold | Recovery::Resend { .. } => Finding::Unknown,
    };
    let Some(work) = verdict(&ledger, &claim, &record, finding)? else {
        return Ok(unknown_still(&claim, &record));
    };
    let reply = line(work)?;
    probing.over = true;
    ledger.claimed(&claim, reply.await?)
}

/// Runs a probe on this thread, and hands its verdict in with the claim.
pub(crate) fn probe_blocking(ledger: &Ledger, claim: &Claim, record: &Record) -> Result<Reply> {
    let core = ledger.core();
    let mut probing = Probing { core, key: *claim.key().digest(), over: false };
    let doubt = doubt_of(claim, record);
    let finding = match &claim.recovery {
        Recovery::Reconcile(probe) => catch_unwind(AssertUnwindSafe(|| match &probe.0 {
            ProbeKind::Blocking(probe) => probe(&doubt),
            ProbeKind::Future(probe) => wait_for(probe(&doubt)),
        })),
        Recovery::Hold | Recovery::Resend { .. } => Ok(Finding::Unknown),
    };
    match verdict(ledger, claim, record, finding.unwrap_or(Finding::Unknown))? {
        Some(work) => {
            probing.over = true;
            core.call(work)
        }
        None => {
            let seen = crate::ledger::seen_now(core, record);
            Ok(Reply::Stands { record: Some(Box::new(*record)), seen, stored_rule: false })
        }
    }
}

fn doubt_of(claim: &Claim, record: &Record) -> crate::claim::Doubt {
    let reason = match record.standing {
        StoredStanding::Uncertain(reason) => reason,
        StoredStanding::Vacant | StoredStanding::InProgress | StoredStanding::Done | StoredStanding::Failed => {
            Reason::HolderGone
        }
    };
    doubt(claim.key(), record, reason)
}

fn unknown_still(claim: &Claim, record: &Record) -> Claimed {
    Claimed::Uncertain(Uncertain { doubt: doubt_of(claim, record), error: None, stored_rule_decided: false })
}

/// The request that a finding leads to; `None` where it found nothing out.
fn verdict(ledger: &Ledger, claim: &Claim, record: &Record, finding: Finding) -> Result<Option<Work>> {
    let found = match finding {
        Finding::Unknown => return Ok(None),
        Finding::NotApplied => None,
        Finding::Applied(outcome) => Some(prepare(Some(&outcome), None, ledger.core().options.outcome_bytes_max)),
    };
    let mut work = ledger.claim_work(claim)?;
    work.has_probe = false;
    Ok(Some(Work::Verdict(Box::new(VerdictWork { claim: work, token: record.token, found }))))
}

/// A future whose panic is [`Finding::Unknown`].
struct Caught(crate::claim::ProbeFuture);

impl Future for Caught {
    type Output = Finding;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Finding> {
        catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context))).unwrap_or(Poll::Ready(Finding::Unknown))
    }
}

/// Waits for a future on this thread.
fn wait_for<F: Future>(future: F) -> F::Output {
    let waker = this_thread();
    let mut context = Context::from_waker(&waker);
    let mut future = Box::pin(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
