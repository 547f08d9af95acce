//! What the log records. One event is one row; the state of a key is what its events add up to.
//!
//! These types are the format: their order and their fields are on disk (`docs/FORMAT.md`).
//! Adding a variant at the end is a compatible change, anything else is a new format version.

use serde::{Deserialize, Serialize};

use crate::outcome::Kind;

/// No limit, no end: a duration or a moment that is never reached.
pub(crate) const FOREVER: u64 = u64::MAX;

/// A row of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub head: Head,
    pub event: Event,
}

/// What every event says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The grant that the event is about; 0 where there is none.
    pub token: u64,
    /// The sequence of the same key's event before this one; 0 where the chain begins.
    pub prev: u64,
    /// Late time of the ledger, in milliseconds.
    pub late_ms: u64,
    /// The wall clock, in milliseconds since 1970. For people only.
    pub wall_ms: u64,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event {
    /// A process began to work on the ledger.
    Session(SessionEvent),
    /// A key was granted. The token is the sequence under which this was first written.
    Grant(GrantEvent),
    /// The holder moved its lease.
    Renew(RenewEvent),
    /// The holder settled.
    Settle(SettleEvent),
    /// The holder gave the key back: certainly no effect.
    Release(ReleaseEvent),
    /// The grant ended without a settle.
    Doubt(DoubtEvent),
    /// Somebody decided an uncertain claim.
    Resolve(ResolveEvent),
    /// A holder that had lost its claim came back; nothing changed.
    Late(LateEvent),
    /// Everything that is known of a key, written again so that older rows can go.
    Moved(Box<MovedEvent>),
    /// Somebody took over a file that its anchor did not vouch for.
    Adopted(AdoptedEvent),
    /// A cell was written or deleted. The whole of it: the row before is garbage.
    Cell(CellEvent),
    /// An approval changed. The whole of it: the row before is garbage.
    Approval(Box<ApprovalEvent>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionEvent {
    /// The sequence under which this was first written: how grants name their session.
    pub number: u64,
    pub id: [u8; 16],
    pub boot_id: [u8; 16],
    pub pid: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GrantEvent {
    pub key: [u8; 32],
    pub fingerprint: [u8; 32],
    /// Digest of the complete canonical arguments; zero where there were none.
    pub args: [u8; 32],
    /// The version of the canonical form that both digests were made with.
    pub canonical: u8,
    pub session: u64,
    pub attempt: u32,
    /// Early time of the first attempt ever made under this key, in milliseconds.
    pub first_attempt_ms: u64,
    /// Early time at which the lease ends, in milliseconds; [`FOREVER`] for none.
    pub lease_until_ms: u64,
    pub terms: Terms,
    /// Whether this grant goes on for one whose holder is gone (a resend).
    pub resumed: bool,
    pub scope: String,
    pub label: String,
}

/// What holds for a key once it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// How long the body is kept after the settle, in seconds; `u32::MAX` for ever.
    pub keep_s: u32,
    /// How long the key is remembered after the settle, in seconds; `u32::MAX` for ever.
    pub remember_s: u32,
    pub recovery: RecoveryRule,
}

/// The recovery rule as it is stored, from strict to lax.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum RecoveryRule {
    Hold,
    Reconcile,
    /// The window in seconds, rounded down.
    Resend(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RenewEvent {
    pub key: [u8; 32],
    pub lease_until_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SettleEvent {
    pub key: [u8; 32],
    pub end: End,
    pub body: Body,
}

/// How a settled claim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    Done,
    Failed,
}

/// An outcome's body as an event states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Body {
    pub kind: Kind,
    pub error: bool,
    pub len: u64,
    pub crc: u32,
    pub place: Place,
    /// A program's exit code, kept as long as the key.
    pub exit_code: Option<i32>,
}

/// Where a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// Not stored: over the limit, or there was none.
    Nowhere,
    /// In `outcomes`, under the sequence of the event that says so.
    Here,
    /// In `outcomes`, under this number: the event was moved.
    At(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReleaseEvent {
    pub key: [u8; 32],
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DoubtEvent {
    pub key: [u8; 32],
    pub reason: Reason,
    pub why: String,
}

/// Why a claim is uncertain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reason {
    /// The grant was dropped without a settle.
    Dropped,
    /// The effect panicked.
    Panicked,
    /// The effect failed in a way nobody classified.
    UnknownError,
    /// The holder's process is gone.
    HolderGone,
    /// The lease passed. Derived when looked at, never written.
    Lapsed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResolveEvent {
    pub key: [u8; 32],
    pub verdict: VerdictRule,
    /// The outcome, where the verdict is done or failed.
    pub body: Body,
    pub by: String,
    pub why: String,
    pub forced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum VerdictRule {
    Done,
    Failed,
    NotDone,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LateEvent {
    pub key: [u8; 32],
    /// What the holder wanted to record; `None` for a release.
    pub end: Option<End>,
    pub body: Body,
}

/// The whole of a key: its record and the history behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MovedEvent {
    pub grant: GrantEvent,
    pub standing: StandingRule,
    /// Early end of the lease (in progress) or late time of the settle or doubt, in milliseconds.
    pub at_ms: u64,
    /// The wall clock when this standing began, in milliseconds since 1970.
    pub since_ms: u64,
    pub body: Body,
    pub history: Vec<Told>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StandingRule {
    Vacant,
    InProgress,
    Done,
    Failed,
    Uncertain(Reason),
}

/// One line of a key's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub token: u64,
    pub what: ToldWhat,
    pub wall_ms: u64,
    pub by: String,
    pub why: String,
    pub body: Option<Body>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToldWhat {
    Granted,
    Renewed,
    Done,
    Failed,
    Released,
    Uncertain(Reason),
    ResolvedDone,
    ResolvedFailed,
    ResolvedNotDone,
    LateDone,
    LateFailed,
    LateReleased,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AdoptedEvent {
    pub epoch: u64,
    pub by: String,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CellEvent {
    pub name: String,
    /// The sequence of the write, which this keeps when the row is written again.
    pub version: u64,
    /// The value, in `outcomes`; `None` where the cell was deleted.
    pub value: Option<Body>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ApprovalEvent {
    /// The sequence under which it was first written.
    pub id: u64,
    pub key: [u8; 32],
    /// Digest of the complete canonical arguments that the approver was shown.
    pub args: [u8; 32],
    /// Early time after which it may no longer be spent, in milliseconds.
    pub deadline_ms: u64,
    /// How long it is remembered after its last change, in seconds.
    pub remember_s: u32,
    pub decision: DecisionRule,
    /// The token that spent it; 0 where none has.
    pub spent_by: u64,
    /// Late time of the last change, in milliseconds.
    pub changed_ms: u64,
    /// What the approver was shown, in `outcomes`.
    pub shown: Body,
    pub scope: String,
    pub label: String,
    pub lines: Vec<ApprovalLine>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DecisionRule {
    Pending,
    Approved,
    Denied,
    Withdrawn,
}

/// One line of what happened to an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ApprovalLine {
    pub what: ApprovalWhat,
    pub token: u64,
    pub wall_ms: u64,
    pub by: String,
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ApprovalWhat {
    Requested,
    Approved,
    Denied,
    Withdrawn,
    Spent,
    Returned,
    Redacted,
}

impl Body {
    /// No outcome at all.
    pub const NONE: Body =
        Body { kind: Kind::Json, error: false, len: 0, crc: 0, place: Place::Nowhere, exit_code: None };

    /// The number of the row in `outcomes`, for an event at `sequence`.
    pub fn row(&self, sequence: u64) -> Option<u64> {
        match self.place {
            Place::Nowhere => None,
            Place::Here => Some(sequence),
            Place::At(number) => Some(number),
        }
    }
}

impl Event {
    /// The key that the event is about.
    pub fn key(&self) -> Option<&[u8; 32]> {
        match self {
            Event::Session(_) | Event::Adopted(_) | Event::Cell(_) | Event::Approval(_) => None,
            Event::Grant(event) => Some(&event.key),
            Event::Renew(event) => Some(&event.key),
            Event::Settle(event) => Some(&event.key),
            Event::Release(event) => Some(&event.key),
            Event::Doubt(event) => Some(&event.key),
            Event::Resolve(event) => Some(&event.key),
            Event::Late(event) => Some(&event.key),
            Event::Moved(event) => Some(&event.grant.key),
        }
    }

    /// Every body that the event states: its own, and those of the history that was moved with it.
    pub fn bodies(&self) -> impl Iterator<Item = &Body> {
        let history = match self {
            Event::Moved(moved) => moved.history.as_slice(),
            _ => &[],
        };
        self.body().into_iter().chain(history.iter().filter_map(|told| told.body.as_ref()))
    }

    /// The body that the event states, if any.
    pub fn body(&self) -> Option<&Body> {
        match self {
            Event::Settle(event) => Some(&event.body),
            Event::Resolve(event) => Some(&event.body),
            Event::Late(event) => Some(&event.body),
            Event::Moved(event) => Some(&event.body),
            Event::Cell(event) => event.value.as_ref(),
            Event::Approval(event) => Some(&event.shown),
            Event::Session(_)
            | Event::Adopted(_)
            | Event::Grant(_)
            | Event::Renew(_)
            | Event::Release(_)
            | Event::Doubt(_) => None,
        }
    }
}
