//! Where the ledger's approvals meet a tool that needs one.
//!
//! This is the only file of the tool layer that knows how an approval is asked for.

use super::reply::Approval;
use crate::claim::Claim;
use crate::error::Result;
use crate::ledger::Ledger;

/// What a call that needs an approval may do now.
pub(super) enum Gate {
    /// Make this claim: it spends the approval that was given, or none is needed.
    Open(Box<Claim>),
    /// Not run.
    Shut(Approval),
}

/// Asks for what a claim needs. A tool that needs none goes through.
///
/// The ledger has no approvals yet: what needs one waits for it, and nothing runs.
pub(super) fn gate(_ledger: &Ledger, needed: bool, claim: Claim) -> Result<Gate> {
    if needed { Ok(Gate::Shut(Approval::Pending)) } else { Ok(Gate::Open(Box::new(claim))) }
}
