//! Where the ledger's approvals meet a tool that needs one.

use crate::approval::{Approval, ApprovalRequest, NotApproved};
use crate::canonical::Value;
use crate::claim::{Answer, Claim};
use crate::error::Result;
use crate::key::ArgsDigest;
use crate::ledger::Ledger;
use crate::outcome::Outcome;

/// The request for a yes to one call: its approver is shown the whole arguments, or how many there are.
pub(super) fn request(claim: &Claim, arguments: &Value, args: ArgsDigest) -> ApprovalRequest {
    let text = arguments.to_canonical();
    let shown = if text.len() <= ApprovalRequest::SHOWN_BYTES_MAX {
        Outcome::json(text)
    } else {
        Outcome::text(format!("{} bytes of arguments with the digest {args}", text.len()))
    };
    ApprovalRequest::new(claim, shown)
}

/// Asks for an approval where a claim found that nobody had.
pub(super) fn asked(ledger: &Ledger, request: Option<&ApprovalRequest>, answer: Result<Answer>) -> Result<Answer> {
    match (missing(&answer), request) {
        (true, Some(request)) => found(answer, ledger.request(request)),
        _ => answer,
    }
}

/// [`asked`] as a future.
pub(super) async fn asked_async(
    ledger: &Ledger,
    request: Option<&ApprovalRequest>,
    answer: Result<Answer>,
) -> Result<Answer> {
    match (missing(&answer), request) {
        (true, Some(request)) => found(answer, ledger.request_async(request).await),
        _ => answer,
    }
}

fn missing(answer: &Result<Answer>) -> bool {
    matches!(answer, Ok(Answer::NotApproved(NotApproved { approval: None, .. })))
}

fn found(answer: Result<Answer>, approval: Result<Approval>) -> Result<Answer> {
    let approval = approval?;
    answer.map(|answer| match answer {
        Answer::NotApproved(missing) => Answer::NotApproved(NotApproved { approval: Some(approval), ..missing }),
        other => other,
    })
}
