//! What callers ask of the writer, and what it answers: made ready on the caller's thread, so that
//! the writer only decides and appends.

use crate::engine::event::{Body, End, Reason, Terms, VerdictRule};
use crate::engine::expiry::Swept;
use crate::engine::index::KeyDigest;
use crate::engine::line::Cell;
use crate::engine::side::{self, ApprovalNeed, ApprovalRecord, CellRecord, Decide, RequestWork};
use crate::engine::state::{Record, Seen};
use crate::engine::sync::Arc;
use crate::error::Result;
use crate::outcome::Outcome;

/// A request in line.
pub(crate) struct Request {
    pub work: Work,
    /// Where the answer goes; `None` where nobody waits for one.
    pub cell: Option<Arc<Cell<Answered>>>,
}

impl Request {
    /// What is left of a request that a panic took along: who waits for it.
    pub fn lost(cell: Option<Arc<Cell<Answered>>>) -> Self {
        Request { work: Work::Poke { key: KeyDigest::default() }, cell }
    }
}

pub(crate) type Answered = Result<Reply>;

/// What a request wants.
pub(crate) enum Work {
    Claim(Box<ClaimWork>),
    Settle(Box<SettleWork>),
    Renew {
        key: KeyDigest,
        token: u64,
        lease_ms: u64,
    },
    Release {
        key: KeyDigest,
        token: u64,
        why: String,
    },
    Doubt {
        key: KeyDigest,
        token: u64,
        reason: Reason,
        why: String,
    },
    Resolve(Box<ResolveWork>),
    /// A probe's verdict and the prober's own claim, in one commit.
    Verdict(Box<VerdictWork>),
    /// A probe ended without a verdict.
    ProbeOver {
        key: KeyDigest,
    },
    /// Something about the key may have changed by itself: look at those who wait for it.
    Poke {
        key: KeyDigest,
    },
    /// A foreign session may have ended or left outcomes.
    Attend {
        session: u64,
    },
    /// Forget so many keys that are due, and clean so many rows of the log.
    Sweep {
        limit: u64,
        rows: usize,
    },
    /// Claims and cells, all or nothing.
    Transaction(Box<TransactionWork>),
    /// Ask for an approval.
    Request(Box<RequestWork>),
    /// Decide about an approval.
    Decide {
        id: u64,
        decide: Decide,
        by: String,
        why: String,
    },
}

/// The members of a transaction.
pub(crate) struct TransactionWork {
    pub claims: Vec<ClaimWork>,
    pub cells: Vec<CellWork>,
}

pub(crate) struct CellWork {
    pub name: String,
    /// The version that must stand; `None` for no cell of that name.
    pub expect: Option<u64>,
    pub change: Change,
}

pub(crate) enum Change {
    Nothing,
    Set(Prepared),
    Delete,
}

/// A grant as the writer gives it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub key: KeyDigest,
    pub token: u64,
    pub attempt: u32,
    /// Whether it goes on for an attempt that is in doubt.
    pub resumed: bool,
}

/// A member of a transaction that stands in its way.
#[derive(Debug)]
pub(crate) enum Refused {
    Claim { index: usize, reply: Reply },
    Cell { index: usize, stands: Option<CellRecord> },
}

pub(crate) struct ClaimWork {
    pub key: KeyDigest,
    pub fingerprint: [u8; 32],
    pub args: [u8; 32],
    pub lease_ms: Option<u64>,
    pub terms: Terms,
    pub has_probe: bool,
    pub approval: Option<ApprovalNeed>,
    /// Until when the claimer waits, by the boot-time clock; 0 for not at all.
    pub wait_until_ms: u64,
    pub scope: String,
    pub label: String,
}

/// An outcome made ready to be stored.
pub(crate) struct Prepared {
    pub body: Body,
    /// The bytes, where they are to be stored.
    pub outcome: Option<Outcome>,
}

pub(crate) struct SettleWork {
    pub key: KeyDigest,
    pub token: u64,
    pub end: End,
    pub prepared: Prepared,
}

pub(crate) struct ResolveWork {
    pub key: KeyDigest,
    pub token: u64,
    pub verdict: VerdictRule,
    pub prepared: Prepared,
    pub by: String,
    pub why: String,
    pub force: bool,
}

pub(crate) struct VerdictWork {
    pub claim: ClaimWork,
    pub token: u64,
    /// The outcome that the probe found; `None` where the effect was not applied.
    pub found: Option<Prepared>,
}

/// The answer to a request. Small: it is moved several times, and mostly says that a key was granted.
#[derive(Debug)]
pub(crate) enum Reply {
    Granted(Granted),
    /// What stands there; `stored_rule`: a laxer claim was judged by the stored recovery rule.
    Stands {
        record: Option<Box<Record>>,
        seen: Seen,
        stored_rule: bool,
    },
    Mismatch(Box<Record>),
    /// The claimer is the one to probe the claim in doubt.
    Probe {
        key: KeyDigest,
        record: Box<Record>,
    },
    /// The approval that is needed is not there to be spent.
    NotApproved(Option<Box<ApprovalRecord>>),
    Applied,
    Same,
    Lost {
        record: Option<Box<Record>>,
        seen: Seen,
    },
    Swept(Swept),
    Transacted {
        grants: Vec<Granted>,
        versions: Vec<Option<u64>>,
    },
    Refused(Vec<Refused>),
    Approval(Box<ApprovalRecord>, side::Decided),
}
