//! What a caller asks for, and what the ledger answers.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::approval::{ApprovalId, NotApproved};
use crate::canonical::Value;
use crate::engine::event::RecoveryRule;
use crate::engine::side::ApprovalNeed;
use crate::error::{Error, Result};
use crate::key::{ArgsDigest, Fingerprint, Key, Selection};
use crate::outcome::{EffectError, Outcome, Stored};

/// Names one grant; strictly increasing over the whole life of a ledger (P4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub(crate) u64);

impl FencingToken {
    /// The token as a number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// A token from its number, as `show` and error messages print it.
    pub fn from_number(number: u64) -> Self {
        FencingToken(number)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How long something is kept after the settle. Counted in whole seconds, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// For this long.
    For(Duration),
    /// For as long as the ledger exists.
    Forever,
}

impl From<Duration> for Keep {
    fn from(duration: Duration) -> Self {
        Keep::For(duration)
    }
}

impl Keep {
    /// Whole seconds, rounded up; `u32::MAX` for ever.
    pub(crate) fn seconds(self, what: &str) -> Result<u32> {
        let Keep::For(duration) = self else { return Ok(u32::MAX) };
        let up = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
        match u32::try_from(up) {
            Ok(u32::MAX) | Err(_) => {
                Err(Error::bad_input(format!("{what} of {up} seconds is over the limit of {}", u32::MAX - 1))
                    .next("use Keep::Forever"))
            }
            Ok(seconds) => Ok(seconds),
        }
    }
}

/// What may happen to a claim whose holder is gone. Stored with the key's first claim; a laxer
/// later claim is judged by the stored rule, a stricter one by its own.
#[derive(Clone, Debug, Default)]
pub enum Recovery {
    /// It stays uncertain until somebody resolves it.
    #[default]
    Hold,
    /// Ask the probe whether the effect exists, not before the settle delay.
    Reconcile(Probe),
    /// Run it again with the same downstream key while the downstream still deduplicates, counted
    /// from the first attempt ever made; hold after that. Whole seconds, rounded down.
    Resend {
        /// For how long the downstream remembers a key.
        window: Duration,
    },
}

impl Recovery {
    pub(crate) fn rule(&self) -> RecoveryRule {
        match self {
            Recovery::Hold => RecoveryRule::Hold,
            Recovery::Reconcile(_) => RecoveryRule::Reconcile,
            Recovery::Resend { window } => {
                RecoveryRule::Resend(u32::try_from(window.as_secs()).unwrap_or(u32::MAX - 1).min(u32::MAX - 1))
            }
        }
    }
}

/// Looks at the outside: does the effect of a doubtful claim exist? It runs outside every lock; a
/// panic counts as [`Finding::Unknown`], and so does a probe that is dropped.
#[derive(Clone)]
pub struct Probe(pub(crate) ProbeKind);

#[derive(Clone)]
pub(crate) enum ProbeKind {
    Blocking(Arc<dyn Fn(&Doubt) -> Finding + Send + Sync>),
    Future(Arc<dyn Fn(&Doubt) -> ProbeFuture + Send + Sync>),
}

/// What a probe's future is.
pub(crate) type ProbeFuture = Pin<Box<dyn Future<Output = Finding> + Send>>;

impl Probe {
    /// A probe from a closure. It runs on the thread that claims, or inside the poll of the future
    /// that claims.
    pub fn new(probe: impl Fn(&Doubt) -> Finding + Send + Sync + 'static) -> Self {
        Probe(ProbeKind::Blocking(Arc::new(probe)))
    }

    /// A probe that awaits.
    pub fn future<F>(probe: impl Fn(&Doubt) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Finding> + Send + 'static,
    {
        Probe(ProbeKind::Future(Arc::new(move |doubt| Box::pin(probe(doubt)))))
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Probe(..)")
    }
}

/// What a probe found.
#[derive(Clone, Debug)]
pub enum Finding {
    /// The effect exists; this is its outcome.
    Applied(Outcome),
    /// The effect certainly does not exist, and will not appear.
    NotApplied,
    /// The probe cannot tell.
    Unknown,
}

/// A request to be the one who runs an action.
///
/// What is not set here takes the ledger's defaults ([`Options`](crate::Options)). The parts are
/// checked when the claim is made.
#[derive(Clone, Debug)]
pub struct Claim {
    pub(crate) key: Key,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) args: Option<ArgsDigest>,
    pub(crate) lease: Option<Duration>,
    pub(crate) keep: Option<Keep>,
    pub(crate) remember: Option<Keep>,
    pub(crate) recovery: Recovery,
    pub(crate) wait: Option<Duration>,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) approval: Option<ApprovalNeed>,
}

impl Claim {
    /// The longest label, in bytes.
    pub const LABEL_BYTES_MAX: usize = 512;

    /// A claim whose every argument is guarded: the same key with other arguments is a mismatch.
    ///
    /// # Errors
    /// `BadInput` where the arguments have no JSON form.
    pub fn new<T: Serialize + ?Sized>(key: Key, arguments: &T) -> Result<Self> {
        Claim::of_value(key, &Value::from_serialize(arguments)?)
    }

    /// As [`Claim::new`], from JSON text.
    ///
    /// # Errors
    /// `BadInput` where the text is not strict JSON.
    pub fn from_json(key: Key, arguments: &str) -> Result<Self> {
        Claim::of_value(key, &Value::parse(arguments)?)
    }

    /// As [`Claim::new`], from a parsed value.
    ///
    /// # Errors
    /// `BadInput` where a guard pointer is malformed; none is given here.
    pub fn of_value(key: Key, arguments: &Value) -> Result<Self> {
        let none: [&str; 0] = [];
        Ok(Claim::selected(key, &Selection::by_hand(arguments, &none)?))
    }

    /// A claim under the fingerprint of chosen fields.
    pub fn selected(key: Key, selection: &Selection) -> Self {
        Claim::with_fingerprint(key, selection.fingerprint(), Some(selection.args_digest()))
    }

    /// A claim without arguments: nothing but the key is compared. Against a claim with arguments
    /// it is a mismatch.
    pub fn unguarded(key: Key) -> Self {
        Claim::with_fingerprint(key, Fingerprint::UNGUARDED, None)
    }

    fn with_fingerprint(key: Key, fingerprint: Fingerprint, args: Option<ArgsDigest>) -> Self {
        Claim {
            key,
            fingerprint,
            args,
            lease: None,
            keep: None,
            remember: None,
            recovery: Recovery::Hold,
            wait: None,
            label: None,
            approval: None,
        }
    }

    /// Sets an upper bound on how long the claim is held without being renewed. By default it is
    /// held for as long as its grant lives in a living process.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// How long the outcome's body is kept after the settle.
    pub fn keep(mut self, keep: impl Into<Keep>) -> Self {
        self.keep = Some(keep.into());
        self
    }

    /// How long the key is remembered after the settle: a repeat says already done until then.
    pub fn remember(mut self, remember: impl Into<Keep>) -> Self {
        self.remember = Some(remember.into());
        self
    }

    /// What may happen once the holder is gone.
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = recovery;
        self
    }

    /// Waits this long for the holder's outcome instead of answering in progress at once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Waits for the holder's outcome as long as the ledger's default says.
    pub fn wait_default(mut self) -> Self {
        self.wait = Some(Duration::MAX);
        self
    }

    /// A few words for people, shown by `show` and `list`. By default the action's or tool's name.
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.label = Some(Arc::from(label.as_ref()));
        self
    }

    /// Grants the claim only by spending the newest approval of its key and arguments.
    pub fn needs_approval(mut self) -> Self {
        self.approval = Some(ApprovalNeed::Newest);
        self
    }

    /// Grants the claim only by spending this approval.
    pub fn approved_by(mut self, approval: ApprovalId) -> Self {
        self.approval = Some(ApprovalNeed::This(approval.0));
        self
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The digest of the complete arguments, where there are any.
    pub fn args_digest(&self) -> Option<ArgsDigest> {
        self.args
    }

    /// The fingerprint of the arguments.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// Why a claim is uncertain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DoubtReason {
    /// Its grant was dropped without being settled.
    Dropped,
    /// The effect panicked.
    Panicked,
    /// The effect failed in a way nobody classified.
    UnknownError,
    /// The process that held it is gone.
    HolderGone,
    /// Its lease passed; the holder may still be running.
    Lapsed,
}

impl DoubtReason {
    /// A short, stable name.
    pub fn name(self) -> &'static str {
        match self {
            DoubtReason::Dropped => "dropped",
            DoubtReason::Panicked => "panicked",
            DoubtReason::UnknownError => "unknown_error",
            DoubtReason::HolderGone => "holder_gone",
            DoubtReason::Lapsed => "lapsed",
        }
    }
}

/// A claim of which nobody knows whether its effect happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Doubt {
    /// The key.
    pub key: Key,
    /// The grant that is in doubt; `resolve` names it.
    pub token: FencingToken,
    /// How many times the key was granted.
    pub attempt: u32,
    /// Why.
    pub reason: DoubtReason,
    /// Since when, in milliseconds since 1970, to the second.
    pub since_ms: u64,
}

/// Who runs an action now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InProgress {
    /// The key.
    pub key: Key,
    /// The holder's grant.
    pub token: FencingToken,
    /// How many times the key was granted.
    pub attempt: u32,
    /// Since when, in milliseconds since 1970, to the second.
    pub since_ms: u64,
    /// How long the lease still runs, where there is one.
    pub lease_left: Option<Duration>,
    /// The process that claimed, where it is known. Where it is gone, a program that it started holds the
    /// claim.
    pub pid: Option<u32>,
}

/// The same key stands with other arguments (P5).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conflict {
    /// The key.
    pub key: Key,
    /// The grant that stands.
    pub token: FencingToken,
    /// The fingerprint that stands.
    pub stands: Fingerprint,
    /// The fingerprint that was asked for.
    pub asked: Fingerprint,
}

/// What the ledger knows of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum View {
    /// Nothing stands in the way of a claim.
    Vacant,
    /// Somebody runs the action now.
    InProgress(InProgress),
    /// The action was done.
    Done(Stored),
    /// The action failed for good.
    Failed(Stored),
    /// Nobody knows.
    Uncertain(Doubt),
}

impl View {
    /// `vacant`, `in_progress`, `done`, `failed` or `uncertain`.
    pub fn standing(&self) -> Standing {
        match self {
            View::Vacant => Standing::Vacant,
            View::InProgress(_) => Standing::InProgress,
            View::Done(_) => Standing::Done,
            View::Failed(_) => Standing::Failed,
            View::Uncertain(_) => Standing::Uncertain,
        }
    }
}

/// The five standings of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Standing {
    /// Nothing stands in the way of a claim.
    Vacant,
    /// Somebody runs the action now.
    InProgress,
    /// The action was done.
    Done,
    /// The action failed for good.
    Failed,
    /// Nobody knows.
    Uncertain,
}

impl Standing {
    /// All standings, in the order of the documents.
    pub const ALL: [Standing; 5] =
        [Standing::Vacant, Standing::InProgress, Standing::Done, Standing::Failed, Standing::Uncertain];

    /// The name that the command line and JSON use.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Vacant => "vacant",
            Standing::InProgress => "in_progress",
            Standing::Done => "done",
            Standing::Failed => "failed",
            Standing::Uncertain => "uncertain",
        }
    }
}

impl std::str::FromStr for Standing {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Standing::ALL.into_iter().find(|standing| standing.name() == name);
        found.ok_or_else(|| {
            Error::bad_input(format!("{name:?} is not a standing"))
                .next("use vacant, in_progress, done, failed or uncertain")
        })
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What [`once`](crate::Ledger::once) answers: what the world did, now or before.
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub enum Answer {
    /// The effect ran now and was recorded.
    Done(Outcome),
    /// The effect ran before: the same bytes, or the word that they are not kept.
    AlreadyDone(Stored),
    /// The effect failed for good, now or before.
    Failed(Stored),
    /// The effect ran now and certainly had no effect: the key is free again. Where it ran as a resend,
    /// the attempt before it is uncertain as it was.
    NotApplied(EffectError),
    /// Somebody runs the action now.
    InProgress(InProgress),
    /// Nobody knows whether the effect happened: resolve or reconcile.
    Uncertain(Uncertain),
    /// The same key stands with other arguments.
    Mismatch(Conflict),
    /// It needs an approval that is not there to be spent: pending, denied, expired, spent, or never
    /// asked for.
    NotApproved(NotApproved),
    /// The effect ran now, but its claim had been decided by somebody else meanwhile. The outcome
    /// is kept as evidence; the view is what stands.
    Superseded(Outcome, View),
}

/// A doubt, with the error that caused it where that happened now.
#[derive(Debug)]
#[non_exhaustive]
pub struct Uncertain {
    /// The claim in doubt.
    pub doubt: Doubt,
    /// What the effect returned, where it ran now.
    pub error: Option<EffectError>,
    /// True where the claim asked for a laxer recovery than the one stored with the key, which
    /// decided.
    pub stored_rule_decided: bool,
}

/// What somebody found out about an uncertain claim.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The effect happened, with this outcome where it is known.
    Done(Option<Outcome>),
    /// The effect failed for good.
    Failed(Option<Outcome>),
    /// The effect certainly did not happen: the key is free again.
    NotDone,
}

/// What became of a [`resolve`](crate::Ledger::resolve).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Resolved {
    /// The verdict is on disk.
    Applied,
    /// The token is not the one in doubt: nothing changed. This is what stands.
    Stale(View),
}

/// What became of a settle, renew or release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Settled {
    /// It is on disk.
    Applied,
    /// The very same was on disk already.
    Same,
    /// The grant no longer held the claim: nothing changed, the outcome is kept as evidence, and
    /// this is what stands.
    Lost(View),
}

/// What a [`claim`](crate::Ledger::claim) answers.
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub enum Claimed {
    /// The caller is the one who runs the action.
    Granted(crate::Grant),
    /// It was done before.
    AlreadyDone(Stored),
    /// It failed for good before.
    Failed(Stored),
    /// Somebody runs it now.
    InProgress(InProgress),
    /// Nobody knows.
    Uncertain(Uncertain),
    /// The same key stands with other arguments.
    Mismatch(Conflict),
    /// It needs an approval that is not there to be spent.
    NotApproved(NotApproved),
}

impl Claimed {
    /// The grant, where there is one.
    pub fn granted(self) -> Option<crate::Grant> {
        match self {
            Claimed::Granted(grant) => Some(grant),
            Claimed::AlreadyDone(_)
            | Claimed::Failed(_)
            | Claimed::InProgress(_)
            | Claimed::Uncertain(_)
            | Claimed::Mismatch(_)
            | Claimed::NotApproved(_) => None,
        }
    }
}
