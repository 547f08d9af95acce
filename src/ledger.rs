//! The handle of an open ledger, and what one asks of it.

use std::path::Path;
use std::time::Duration;

use crate::claim::{
    Claim, Claimed, Conflict, Doubt, DoubtReason, FencingToken, InProgress, Resolved, Settled, Uncertain, Verdict, View,
};
use crate::config::{Options, check_remember, check_text};
use crate::engine::clock::Now;
use crate::engine::core::Core;
use crate::engine::event::{FOREVER, Reason, Terms, VerdictRule};
use crate::engine::expiry::STRETCH_ROWS;
use crate::engine::recover::{self, How};
use crate::engine::request::{ClaimWork, Reply, ResolveWork, Work};
use crate::engine::side::ApprovalNeed;
use crate::engine::state::{Holder, Record, Seen};
use crate::engine::sync::Arc;
use crate::error::{Error, Result};
use crate::grant::{Grant, cut, prepare};
use crate::key::Key;
use crate::outcome::Stored;
use crate::{Swept, once};

/// An open ledger. Cheap to clone; all clones share one file, one index and one line of writes.
///
/// The last handle closes the ledger when it is dropped, as [`close`](Ledger::close) does but without
/// telling of errors.
#[derive(Clone)]
pub struct Ledger(Arc<Handle>);

struct Handle {
    core: Arc<Core>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Whoever wants to hear of it calls `close`.
        let _ = self.core.close();
    }
}

impl Ledger {
    pub(crate) fn start(path: &Path, options: Options, how: How<'_>) -> Result<Self> {
        let core = recover::open(path, options, how)?;
        Ok(Ledger(Arc::new(Handle { core })))
    }

    #[inline]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    /// Opens the ledger at `path` with the default [`Options`].
    ///
    /// # Errors
    /// See [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    /// Creates a ledger at `path` with the default [`Options`].
    ///
    /// # Errors
    /// See [`Options::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().create(path)
    }

    /// Opens or creates a ledger with the default [`Options`].
    ///
    /// # Errors
    /// See [`Options::open_or_create`].
    pub fn open_or_create(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open_or_create(path)
    }

    /// A ledger in memory with the default [`Options`].
    ///
    /// # Errors
    /// See [`Options::in_memory`].
    pub fn in_memory() -> Result<Self> {
        Options::new().in_memory()
    }

    /// What the ledger knows of a key: from memory, without the writer. It reads the disk only for
    /// an outcome that is not cached. Of a holder in another process it knows what the last look
    /// found, at most a second ago.
    ///
    /// # Errors
    /// `Storage` after a storage failure, `Closed`, `Damaged` where an outcome is not what was written.
    pub fn check(&self, key: &Key) -> Result<View> {
        let core = self.core();
        core.check_open()?;
        let Some((record, slot)) = core.index.look(key.digest()) else { return Ok(View::Vacant) };
        let (seen, now) = core.seen(&record);
        let failed = match seen {
            Seen::Vacant => return Ok(View::Vacant),
            Seen::Done { kept: true } => false,
            Seen::Failed { kept: true } => true,
            Seen::Done { .. } | Seen::Failed { .. } | Seen::InProgress | Seen::Uncertain(_) => {
                return view(core, key, Some(&record), seen, now);
            }
        };
        match core.index.body(slot, &record) {
            Some(body) if failed => Ok(View::Failed(Stored::Kept(body))),
            Some(body) => Ok(View::Done(Stored::Kept(body))),
            None => view(core, key, Some(&record), seen, now),
        }
    }

    /// Since when a key stands as it does, in milliseconds since 1970.
    pub(crate) fn since_ms(&self, key: &Key) -> Option<u64> {
        self.core().index.get(key.digest()).map(|record| u64::from(record.since_s) * 1000)
    }

    /// Asks to be the one who runs an action. A grant is on disk when this returns (P1).
    ///
    /// A claim with [`Recovery::Reconcile`](crate::Recovery::Reconcile) may run its probe on this
    /// thread first; one with a wait may wait.
    ///
    /// # Errors
    /// `BadInput`, `Reentrant`: nothing is written. `Storage`: nothing of it is on disk. `Unknown`: it
    /// may be on disk; the effect must not run.
    pub fn claim(&self, claim: &Claim) -> Result<Claimed> {
        let core = self.core();
        if let Some(known) = self.known(claim)? {
            return Ok(known);
        }
        let work = self.claim_work(claim)?;
        let reply = core.call_checked(Work::Claim(Box::new(work)))?;
        let reply = match reply {
            Reply::Probe { record, .. } => once::probe_blocking(self, claim, &record)?,
            reply => reply,
        };
        self.claimed(claim, reply)
    }

    /// [`claim`](Ledger::claim) as a future that runs under any executor and holds no thread.
    /// Dropped before it is ready, it leaves the key as it was.
    pub fn claim_async(&self, claim: &Claim) -> impl Future<Output = Result<Claimed>> + Send + use<> {
        once::claim_async(self.clone(), claim.clone())
    }

    /// The answer that needs no writer: a settled key stays as it is until its retention passes.
    pub(crate) fn known(&self, claim: &Claim) -> Result<Option<Claimed>> {
        let core = self.core();
        core.check_call()?;
        once::check_not_inside(core, claim.key())?;
        let Some(record) = core.index.get(claim.key().digest()) else { return Ok(None) };
        // By the exact time: a claim may be all that happens here, and then nothing else reads a clock.
        let seen = seen_now(core, &record);
        let settled = matches!(seen, Seen::Done { .. } | Seen::Failed { .. });
        if !settled {
            return Ok(None);
        }
        self.claim_work(claim)?;
        if record.fingerprint != *claim.fingerprint.digest() {
            return Ok(Some(Claimed::Mismatch(conflict(claim, &record))));
        }
        self.standing(claim, Some(&record), seen, false).map(Some)
    }

    pub(crate) fn claimed(&self, claim: &Claim, reply: Reply) -> Result<Claimed> {
        let key = claim.key();
        match reply {
            Reply::Granted(granted) => Grant::new(Arc::clone(self.core()), key.clone(), granted).map(Claimed::Granted),
            Reply::NotApproved(record) => {
                let approval = record.map(|record| crate::approval::approval(self.core(), &record)).transpose()?;
                Ok(Claimed::NotApproved(crate::NotApproved { key: key.clone(), approval }))
            }
            Reply::Mismatch(record) => Ok(Claimed::Mismatch(conflict(claim, &record))),
            Reply::Stands { record, seen, stored_rule } => self.standing(claim, record.as_deref(), seen, stored_rule),
            _ => Err(unexpected("a claim")),
        }
    }

    fn standing(&self, claim: &Claim, record: Option<&Record>, seen: Seen, stored_rule: bool) -> Result<Claimed> {
        let core = self.core();
        Ok(match view(core, claim.key(), record, seen, core.times.now())? {
            View::Vacant => return Err(unexpected("a claim")),
            View::InProgress(holder) => Claimed::InProgress(holder),
            View::Done(stored) => Claimed::AlreadyDone(stored),
            View::Failed(stored) => Claimed::Failed(stored),
            View::Uncertain(doubt) => {
                Claimed::Uncertain(Uncertain { doubt, error: None, stored_rule_decided: stored_rule })
            }
        })
    }

    /// Checks a claim's parts once, and makes it ready for the writer.
    pub(crate) fn claim_work(&self, claim: &Claim) -> Result<ClaimWork> {
        let options = &self.core().options;
        let remember_s = claim.remember.unwrap_or(options.remember).seconds("remember")?;
        check_remember(remember_s)?;
        let keep_s = claim.keep.unwrap_or(options.keep).seconds("keep")?.min(remember_s);
        let label = claim.label.as_deref().unwrap_or_default();
        if label.len() > Claim::LABEL_BYTES_MAX {
            return Err(Error::bad_input(format!(
                "a label of {} bytes is over the limit of {}",
                label.len(),
                Claim::LABEL_BYTES_MAX
            ))
            .next("give a shorter one: it is for people only"));
        }
        let label = if label.is_empty() { claim.key.action_name().unwrap_or_default() } else { label };
        let wait_until_ms = match claim.wait {
            None => 0,
            Some(wait) => {
                let wait = if wait == Duration::MAX { options.wait } else { wait };
                let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                self.core().times.boot_ms().saturating_add(wait_ms)
            }
        };
        Ok(ClaimWork {
            key: *claim.key.digest(),
            fingerprint: *claim.fingerprint.digest(),
            args: claim.args.map_or([0; 32], |args| *args.digest()),
            lease_ms: claim.lease.map(lease_ms).transpose()?,
            terms: Terms { keep_s, remember_s, recovery: claim.recovery.rule() },
            has_probe: matches!(claim.recovery, crate::Recovery::Reconcile(_)),
            approval: approval_need(claim)?,
            wait_until_ms,
            scope: claim.key.scope().unwrap_or_default().to_owned(),
            label: label.to_owned(),
        })
    }

    /// Decides an uncertain claim. On disk when this returns. `by` and `why` are kept in the history.
    ///
    /// # Errors
    /// `BadInput` for an empty `by` or `why`; `Storage` and `Unknown` as everywhere. A token that is
    /// not the one in doubt is [`Resolved::Stale`] and changes nothing.
    pub fn resolve(&self, doubt: &Doubt, verdict: Verdict, by: &str, why: &str) -> Result<Resolved> {
        self.resolve_token(&doubt.key, doubt.token, verdict, by, why, false)
    }

    /// [`resolve`](Ledger::resolve) by key and token. By `force` it takes a claim that is in progress
    /// too; its holder's outcome is then kept as evidence only.
    ///
    /// # Errors
    /// As [`resolve`](Ledger::resolve).
    pub fn resolve_token(
        &self,
        key: &Key,
        token: FencingToken,
        verdict: Verdict,
        by: &str,
        why: &str,
        force: bool,
    ) -> Result<Resolved> {
        check_text("by", by)?;
        check_text("why", why)?;
        let core = self.core();
        let (rule, outcome) = match &verdict {
            Verdict::Done(outcome) => (VerdictRule::Done, outcome.as_ref()),
            Verdict::Failed(outcome) => (VerdictRule::Failed, outcome.as_ref()),
            Verdict::NotDone => (VerdictRule::NotDone, None),
        };
        let work = ResolveWork {
            key: *key.digest(),
            token: token.0,
            verdict: rule,
            prepared: prepare(outcome, None, core.options.outcome_bytes_max),
            by: cut(by.to_owned()),
            why: cut(why.to_owned()),
            force,
        };
        match core.call(Work::Resolve(Box::new(work)))? {
            Reply::Applied => Ok(Resolved::Applied),
            Reply::Stands { record, seen, .. } => {
                Ok(Resolved::Stale(view(core, key, record.as_deref(), seen, core.times.now())?))
            }
            _ => Err(unexpected("a resolve")),
        }
    }

    /// Forgets up to `limit` keys whose retention has passed, drops due bodies, and cleans a stretch
    /// of the log where enough of it is garbage. The ledger does so by itself where it has threads.
    ///
    /// # Errors
    /// `Storage` and `Unknown` as everywhere.
    pub fn sweep(&self, limit: u64) -> Result<Swept> {
        match self.core().call(Work::Sweep { limit, rows: STRETCH_ROWS })? {
            Reply::Swept(swept) => Ok(swept),
            _ => Err(unexpected("a sweep")),
        }
    }

    /// Whether the ledger can grant and settle. A disk that is full when a ledger is opened leaves it
    /// readable: it serves what it knows and refuses the rest with this error.
    ///
    /// # Errors
    /// `Storage`, `Closed`: why it cannot. Nothing is on disk of what it refused.
    pub fn writable(&self) -> Result<()> {
        self.core().check_writable()
    }

    /// Does what the ledger's threads do, once and on this thread: refreshes the clock, wakes those
    /// whose wait is over, looks at foreign holders, forgets what is due, keeps the anchor fresh.
    pub fn tick(&self) {
        self.core().tick();
    }

    /// Closes the ledger: what is in line is written, the file closed, the anchor marked clean. Says
    /// how many claims of this process are still in progress: they stay so for as long as a grant or
    /// ticket of them lives. Calls on other handles answer `Closed` from then on,
    /// but for `close`, which says the same again.
    ///
    /// # Errors
    /// `Storage` where closing failed, or the ledger had closed itself after a failure: everything
    /// acknowledged is on disk, and the next open takes longer. It is closed all the same.
    pub fn close(self) -> Result<u64> {
        self.core().close()
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ledger({})", self.core().paths.file.display())
    }
}

/// A lease in milliseconds.
pub(crate) fn lease_ms(lease: Duration) -> Result<u64> {
    span_ms("a lease", lease)
}

/// A span of early time in milliseconds: not zero, and within any clock.
pub(crate) fn span_ms(what: &str, span: Duration) -> Result<u64> {
    if span.is_zero() {
        return Err(Error::bad_input(format!("{what} of zero would be over at once"))
            .next("leave it out, or give it some time"));
    }
    let ms = u64::try_from(span.as_millis()).unwrap_or(FOREVER);
    if ms >= FOREVER / 2 {
        return Err(
            Error::bad_input(format!("{what} of {} s is beyond any clock", span.as_secs())).next("leave it out")
        );
    }
    // Part of a millisecond counts as a whole one.
    Ok(ms + u64::from(!span.subsec_nanos().is_multiple_of(1_000_000)))
}

pub(crate) fn unexpected(what: &str) -> Error {
    Error::damaged(format!("the writer answered {what} as no writer should"))
}

/// What a claim needs before it is granted. Only a claim with arguments can be approved.
fn approval_need(claim: &Claim) -> Result<Option<ApprovalNeed>> {
    if claim.approval.is_some() && claim.args.is_none() {
        return Err(Error::bad_input("a claim without arguments cannot need an approval: nobody would know what for")
            .next("make the claim with its arguments"));
    }
    Ok(claim.approval)
}

fn conflict(claim: &Claim, record: &Record) -> Conflict {
    Conflict {
        key: claim.key.clone(),
        token: FencingToken(record.token),
        stands: crate::Fingerprint::from_digest(record.fingerprint),
        asked: claim.fingerprint,
    }
}

pub(crate) fn reason(reason: Reason) -> DoubtReason {
    match reason {
        Reason::Dropped => DoubtReason::Dropped,
        Reason::Panicked => DoubtReason::Panicked,
        Reason::UnknownError => DoubtReason::UnknownError,
        Reason::HolderGone => DoubtReason::HolderGone,
        Reason::Lapsed => DoubtReason::Lapsed,
    }
}

pub(crate) fn doubt(key: &Key, record: &Record, why: Reason) -> Doubt {
    Doubt {
        key: key.clone(),
        token: FencingToken(record.token),
        attempt: record.attempt,
        reason: reason(why),
        since_ms: u64::from(record.since_s) * 1000,
    }
}

/// A standing in the caller's words.
pub(crate) fn view(core: &Core, key: &Key, record: Option<&Record>, seen: Seen, now: Now) -> Result<View> {
    let Some(record) = record else { return Ok(View::Vacant) };
    Ok(match seen {
        Seen::Vacant => View::Vacant,
        Seen::InProgress => View::InProgress(in_progress(core, key, record, now)),
        Seen::Done { kept } => View::Done(core.stored(key.digest(), record, kept)?),
        Seen::Failed { kept } => View::Failed(core.stored(key.digest(), record, kept)?),
        Seen::Uncertain(why) => View::Uncertain(doubt(key, record, why)),
    })
}

fn in_progress(core: &Core, key: &Key, record: &Record, now: Now) -> InProgress {
    let lease_left = (record.at != FOREVER).then(|| Duration::from_millis(record.at.saturating_sub(now.early)));
    InProgress {
        key: key.clone(),
        token: FencingToken(record.token),
        attempt: record.attempt,
        since_ms: u64::from(record.since_s) * 1000,
        lease_left,
        pid: core.pid_of(record.link),
    }
}

/// What became of a settle, renew or release.
pub(crate) fn settled(core: &Core, key: &Key, reply: Reply) -> Result<Settled> {
    match reply {
        Reply::Applied => Ok(Settled::Applied),
        Reply::Same => Ok(Settled::Same),
        Reply::Lost { record, seen } => Ok(Settled::Lost(view(core, key, record.as_deref(), seen, core.times.now())?)),
        _ => Err(unexpected("a settle")),
    }
}

/// A record's standing where nobody knows more of its holder than the log.
pub(crate) fn seen_now(core: &Core, record: &Record) -> Seen {
    let holder = if record.standing.is_open() { Holder::Unknown } else { Holder::Alive };
    record.seen(core.times.now(), holder)
}
