//! Approvals: a yes that is bound to one key and its arguments, expires, and is spent once (P8).

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::claim::{Claim, FencingToken};
use crate::config::check_text;
use crate::engine::clock::Now;
use crate::engine::core::Core;
use crate::engine::event::{ApprovalLine, ApprovalWhat};
use crate::engine::request::{Reply, Work};
use crate::engine::side::{self, ApprovalRecord, ApprovalSeen, Decide, RequestWork};
use crate::engine::sync::Arc;
use crate::error::{Error, Result};
use crate::grant::prepare;
use crate::key::{ArgsDigest, Key, Scope};
use crate::ledger::Ledger;
use crate::outcome::Outcome;

/// Names one approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApprovalId(pub(crate) u64);

impl ApprovalId {
    /// The id as a number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// An id from its number, as `approvals` prints it.
    pub fn from_number(number: u64) -> Self {
        ApprovalId(number)
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What an approval is worth now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ApprovalState {
    /// Nobody has decided.
    Pending,
    /// It may be spent until its deadline.
    Approved,
    /// Somebody said no. That is final.
    Denied,
    /// Whoever asked took the request back.
    Withdrawn,
    /// Its deadline has passed.
    Expired,
    /// A claim has spent it.
    Spent,
}

impl ApprovalState {
    /// A short, stable name.
    pub fn name(self) -> &'static str {
        match self {
            ApprovalState::Pending => "pending",
            ApprovalState::Approved => "approved",
            ApprovalState::Denied => "denied",
            ApprovalState::Withdrawn => "withdrawn",
            ApprovalState::Expired => "expired",
            ApprovalState::Spent => "spent",
        }
    }
}

/// An approval as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Approval {
    /// Its name.
    pub id: ApprovalId,
    /// The key it is for.
    pub key: Key,
    /// The complete arguments it is for.
    pub args_digest: ArgsDigest,
    /// What it is worth now.
    pub state: ApprovalState,
    /// What the approver was shown; `None` where that was redacted.
    pub shown: Option<Outcome>,
    /// About when it expires by the wall clock, in milliseconds since 1970. The ledger's own time
    /// decides.
    pub deadline_ms: u64,
    /// The grant that spent it.
    pub spent_by: Option<FencingToken>,
    /// What happened to it, oldest first.
    pub decisions: Vec<ApprovalDecision>,
}

/// One line of what happened to an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApprovalDecision {
    /// `requested`, `approved`, `denied`, `withdrawn`, `spent`, `returned` or `redacted`.
    pub what: &'static str,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who, where somebody did it.
    pub by: String,
    /// Why, where somebody said.
    pub why: String,
    /// The grant, where one was concerned.
    pub token: Option<FencingToken>,
}

/// A request for an approval of one claim.
#[derive(Clone, Debug)]
pub struct ApprovalRequest {
    claim: Claim,
    shown: Outcome,
    valid: Option<Duration>,
    again: bool,
    by: String,
}

impl ApprovalRequest {
    /// The most that an approver is shown, in bytes.
    pub const SHOWN_BYTES_MAX: usize = 64 * 1024;

    /// Asks for a yes to exactly this claim: its key and its complete arguments. `shown` is what the
    /// approver sees; it is kept until it is redacted.
    pub fn new(claim: &Claim, shown: impl Into<Outcome>) -> Self {
        ApprovalRequest { claim: claim.clone(), shown: shown.into(), valid: None, again: false, by: String::new() }
    }

    /// How long the approval is valid, from now. Default: 24 hours.
    pub fn valid_for(mut self, valid: Duration) -> Self {
        self.valid = Some(valid);
        self
    }

    /// Asks anew where the last request was denied, withdrawn, spent, or has expired. Without this
    /// such a request is given back as it stands.
    pub fn again(mut self) -> Self {
        self.again = true;
        self
    }

    /// Who asks.
    pub fn by(mut self, who: impl AsRef<str>) -> Self {
        self.by = who.as_ref().to_owned();
        self
    }
}

/// What became of a decision about an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decision {
    /// It is on disk.
    Applied(Approval),
    /// The same was decided before.
    Same(Approval),
    /// Another decision stands, or the deadline has passed: nothing changed.
    Conflict(Approval),
}

/// What stands in the way of a claim that needs an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotApproved {
    /// The key.
    pub key: Key,
    /// The request that stands, pending, denied, expired or spent; `None` where nobody has asked.
    pub approval: Option<Approval>,
}

impl Ledger {
    /// Records a request for approval, or gives back the one that stands for the same key and
    /// arguments. On disk when this returns.
    ///
    /// # Errors
    /// `BadInput` for a claim without arguments, a deadline of zero or too much to show; `Storage`
    /// and `Unknown` as everywhere.
    pub fn request(&self, request: &ApprovalRequest) -> Result<Approval> {
        let work = self.request_work(request)?;
        requested(self.core(), self.core().call(Work::Request(Box::new(work)))?)
    }

    /// [`request`](Ledger::request) as a future. Queued at once: the request stands, whether the future
    /// is polled on or not.
    pub fn request_async(&self, request: &ApprovalRequest) -> impl Future<Output = Result<Approval>> + Send + use<> {
        let core = Arc::clone(self.core());
        let sent = self.request_work(request).and_then(|work| core.send(Work::Request(Box::new(work))));
        async move { requested(&core, sent?.await?) }
    }

    fn request_work(&self, request: &ApprovalRequest) -> Result<RequestWork> {
        let claim = &request.claim;
        let Some(args) = claim.args else {
            return Err(Error::bad_input("a claim without arguments cannot be approved: nobody would know what for")
                .next("make the claim with the arguments that the approver is shown"));
        };
        let len = request.shown.body().len();
        if len > ApprovalRequest::SHOWN_BYTES_MAX {
            let what = format!("{len} bytes to show are over the limit of {}", ApprovalRequest::SHOWN_BYTES_MAX);
            return Err(Error::bad_input(what).next("show a summary"));
        }
        if !request.by.is_empty() {
            check_text("by", &request.by)?;
        }
        let options = &self.core().options;
        let terms = self.claim_work(claim)?;
        Ok(RequestWork {
            key: *claim.key.digest(),
            args: *args.digest(),
            valid_ms: crate::ledger::span_ms("the time for an approval", request.valid.unwrap_or(options.approval))?,
            remember_s: terms.terms.remember_s,
            shown: prepare(Some(&request.shown), None, ApprovalRequest::SHOWN_BYTES_MAX),
            again: request.again,
            by: request.by.clone(),
            scope: terms.scope,
            label: terms.label,
        })
    }

    /// Says yes. The first decision on a pending request stands.
    ///
    /// # Errors
    /// `BadInput` for an id that does not exist or an empty `by`; `Storage`, `Unknown`.
    pub fn approve(&self, id: ApprovalId, by: &str) -> Result<Decision> {
        self.decide(id, Decide::Approve, by, "")
    }

    /// Says no, for good. A deny after an approval revokes it; one that comes while the approval is
    /// spent takes effect if the claim gives it back.
    ///
    /// # Errors
    /// As [`approve`](Ledger::approve).
    pub fn deny(&self, id: ApprovalId, by: &str, why: &str) -> Result<Decision> {
        self.decide(id, Decide::Deny, by, why)
    }

    /// Takes a request back.
    ///
    /// # Errors
    /// As [`approve`](Ledger::approve).
    pub fn withdraw(&self, id: ApprovalId, by: &str) -> Result<Decision> {
        self.decide(id, Decide::Withdraw, by, "")
    }

    /// Drops what the approver was shown; the decision stays, and so do the text's length and CRC-32. The
    /// file's free space may hold the bytes until it is used again.
    ///
    /// # Errors
    /// As [`approve`](Ledger::approve).
    pub fn redact(&self, id: ApprovalId, by: &str) -> Result<Decision> {
        self.decide(id, Decide::Redact, by, "")
    }

    fn decide(&self, id: ApprovalId, decide: Decide, by: &str, why: &str) -> Result<Decision> {
        check_text("by", by)?;
        if !why.is_empty() {
            check_text("why", why)?;
        }
        let work = Work::Decide { id: id.0, decide, by: by.to_owned(), why: why.to_owned() };
        match self.core().call(work)? {
            Reply::Approval(record, decided) => {
                let approval = approval(self.core(), &record)?;
                Ok(match decided {
                    side::Decided::Applied => Decision::Applied(approval),
                    side::Decided::Same => Decision::Same(approval),
                    side::Decided::Conflict => Decision::Conflict(approval),
                })
            }
            _ => Err(crate::ledger::unexpected("a decision")),
        }
    }

    /// One approval.
    ///
    /// # Errors
    /// `Storage`, `Closed`, `Damaged`.
    pub fn approval(&self, id: ApprovalId) -> Result<Option<Approval>> {
        let core = self.core();
        core.check_call()?;
        let now = core.times.now();
        let record = core.side.read().approvals.get(&id.0).cloned();
        let record = record.filter(|record| side::is_remembered(core, &record.event, now));
        record.map(|record| approval(core, &record)).transpose()
    }

    /// Up to `limit` approvals in the order in which they were asked for, from the first after
    /// `after`; of one state, or of all.
    ///
    /// # Errors
    /// `Storage`, `Closed`, `Damaged`.
    pub fn approvals(
        &self,
        state: Option<ApprovalState>,
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Result<Vec<Approval>> {
        let core = self.core();
        core.check_call()?;
        let now = core.times.now();
        let first = after.map_or(0, |after| after.0.saturating_add(1));
        let found: Vec<ApprovalRecord> = {
            let side = core.side.read();
            let records = side.approvals.range(first..).map(|(_, record)| record);
            let records = records.filter(|record| state.is_none_or(|state| state_of(record.seen(now)) == state));
            let records = records.filter(|record| side::is_remembered(core, &record.event, now));
            records.take(limit).cloned().collect()
        };
        found.iter().map(|record| approval(core, record)).collect()
    }
}

fn requested(core: &Core, reply: Reply) -> Result<Approval> {
    match reply {
        Reply::Approval(record, _) => approval(core, &record),
        _ => Err(crate::ledger::unexpected("a request")),
    }
}

fn state_of(seen: ApprovalSeen) -> ApprovalState {
    match seen {
        ApprovalSeen::Pending => ApprovalState::Pending,
        ApprovalSeen::Approved => ApprovalState::Approved,
        ApprovalSeen::Denied => ApprovalState::Denied,
        ApprovalSeen::Withdrawn => ApprovalState::Withdrawn,
        ApprovalSeen::Expired => ApprovalState::Expired,
        ApprovalSeen::Spent => ApprovalState::Spent,
    }
}

/// An approval in the caller's words.
pub(crate) fn approval(core: &Core, record: &ApprovalRecord) -> Result<Approval> {
    let event = &record.event;
    let now = core.times.now();
    let shown = shown(core, record)?;
    let key = Key::from_digest(event.key);
    let key = match Scope::new(&event.scope) {
        Ok(scope) => key.named(&scope, &event.label),
        Err(_) => key,
    };
    Ok(Approval {
        id: ApprovalId(event.id),
        key,
        args_digest: ArgsDigest::from_digest(event.args),
        state: state_of(record.seen(now)),
        shown,
        deadline_ms: on_the_wall(event.deadline_ms, now),
        spent_by: (event.spent_by != 0).then_some(FencingToken(event.spent_by)),
        decisions: event.lines.iter().map(line).collect(),
    })
}

/// What the approver was shown; `None` where it was redacted, or the approval forgotten under the reader.
fn shown(core: &Core, record: &ApprovalRecord) -> Result<Option<Outcome>> {
    let body = &record.event.shown;
    let Some(row) = body.row(record.row) else { return Ok(None) };
    if let Some(shown) = core.body(row, body.kind, body.error)? {
        return Ok(Some(shown));
    }
    core.wait_for_writer();
    let now = core.side.read().approvals.get(&record.event.id).cloned();
    match now {
        Some(now) if now.event.shown.row(now.row) == Some(row) => {
            let id = record.event.id;
            Err(Error::damaged(format!("what was shown for approval {id} should be in the file and is not")))
        }
        Some(_) | None => Ok(None),
    }
}

/// An early time as the wall clock will about show it.
fn on_the_wall(early_ms: u64, now: Now) -> u64 {
    let ahead = now.wall.saturating_add(early_ms.saturating_sub(now.early));
    if early_ms >= now.early { ahead } else { now.wall.saturating_sub(now.early - early_ms) }
}

fn line(line: &ApprovalLine) -> ApprovalDecision {
    ApprovalDecision {
        what: what(line.what),
        at_ms: line.wall_ms,
        by: line.by.clone(),
        why: line.why.clone(),
        token: (line.token != 0).then_some(FencingToken(line.token)),
    }
}

pub(crate) fn what(what: ApprovalWhat) -> &'static str {
    match what {
        ApprovalWhat::Requested => "requested",
        ApprovalWhat::Approved => "approved",
        ApprovalWhat::Denied => "denied",
        ApprovalWhat::Withdrawn => "withdrawn",
        ApprovalWhat::Spent => "spent",
        ApprovalWhat::Returned => "returned",
        ApprovalWhat::Redacted => "redacted",
    }
}
