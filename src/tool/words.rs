//! What a model is told. Every text here is in docs/MESSAGES.md, and a test holds them together.
//!
//! The words tell apart "this succeeded", "this was already done", "this failed" and "nobody knows
//! yet". Each says whether anything happened, and what not to do.

use super::reply::Status;

/// Who decides what happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decides {
    Nobody,
    Caller,
    Running,
    Operator,
    Approver,
    User,
}

impl Decides {
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Decides::Nobody => None,
            Decides::Caller => Some("caller"),
            Decides::Running => Some("running_call"),
            Decides::Operator => Some("operator"),
            Decides::Approver => Some("approver"),
            Decides::User => Some("user"),
        }
    }
}

/// What is said of a status.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    pub(super) note: &'static str,
    pub(super) decides: Decides,
    pub(super) do_not_retry: bool,
}

const fn words(note: &'static str, decides: Decides, do_not_retry: bool) -> Words {
    Words { note, decides, do_not_retry }
}

/// The words for a status of an effect.
pub(super) fn of(status: Status) -> Words {
    match status {
        Status::Done => words(
            "This call did it, once, just now, and it is recorded. Do not call again for the same action.",
            Decides::Nobody,
            true,
        ),
        Status::AlreadyDone => words(
            "This was already done earlier; this call did nothing. The result is the one from that first time. Go on \
             as if this call had done it, and do not call again for the same action.",
            Decides::Nobody,
            true,
        ),
        Status::InProgress => words(
            "The same action is running right now in another call; this call did nothing. How it ends is not known \
             yet. Do not retry, and do not try another way: the running call brings the result.",
            Decides::Running,
            true,
        ),
        Status::Failed => words(
            "This failed for good; the result says how. Asking again for the same action gives the same answer. Do \
             not retry.",
            Decides::Nobody,
            true,
        ),
        Status::Uncertain => words(
            "It is not known whether this happened: it was started, and nobody saw how it ended. Do not say that it \
             succeeded or that it failed. Do not retry, and do not try another way: it could happen twice. An \
             operator finds out and resolves it; tell the user that it is being checked.",
            Decides::Operator,
            true,
        ),
        Status::Mismatch => words(
            "The same action was already asked for with other arguments, and those stand; this call did nothing. Do \
             not retry with these arguments. Ask the user which ones are meant.",
            Decides::User,
            true,
        ),
        Status::AwaitingApproval => words(
            "A person must approve this first; this call did nothing. Do not retry, and do not try another way. Tell the user that it waits for approval.",
            Decides::Approver,
            true,
        ),
        Status::Denied => words(
            "A person refused this; this call did nothing. Do not retry, and do not try another way. Tell the user that it was refused.",
            Decides::Nobody,
            true,
        ),
        Status::Expired => words(
            "The approval for this was not given or used in time; this call did nothing. Do not retry by yourself: a \
             person must ask for a new approval.",
            Decides::Approver,
            true,
        ),
        Status::NotApplied => words(
            "This certainly had no effect: nothing has happened. The result says why. The same action may be asked \
             for again.",
            Decides::Caller,
            false,
        ),
        Status::Superseded => words(
            "This call did run, but an operator had decided about it while it ran, and that decision stands. The \
             result is what this call returned; it is kept as evidence only. Do not retry.",
            Decides::Operator,
            true,
        ),
        Status::ErrorBefore => words(
            "The call was not started; it did nothing. The result says what was wrong with it. Correct it, and \
             ask again.",
            Decides::Caller,
            false,
        ),
        Status::ErrorAfter => words(
            "This ran, but its end could not be recorded. The result is what it returned, where that is known. Do \
             not retry: it could happen twice. An operator must look at the ledger.",
            Decides::Operator,
            true,
        ),
    }
}

/// A call that is started only once the ledger works again.
pub(super) const STORAGE_BEFORE: Words = words(
    "The call was not started; it did nothing. The ledger that protects it from happening twice cannot be used \
     right now. Do not retry; an operator must look at the ledger.",
    Decides::Operator,
    true,
);

/// Done before, without the result.
pub(super) const NOT_KEPT: Words = words(
    "This was already done earlier; this call did nothing. Its result is not kept any more. Do not call again for the \
     same action.",
    Decides::Nobody,
    true,
);

/// Failed before, without the result.
pub(super) const FAILURE_NOT_KEPT: Words =
    words("This failed for good earlier; what it answered is not kept any more. Do not retry.", Decides::Nobody, true);

/// A read, or a write that may be repeated, that went through.
pub(super) const FREE_DONE: Words = words("This call succeeded.", Decides::Nobody, false);

/// A write that may be repeated, and of which nobody knows.
pub(super) const FREE_UNCERTAIN: Words = words(
    "It is not known whether this happened. It may be repeated: calling again with the same arguments is safe.",
    Decides::Caller,
    false,
);

/// A call whose result is in the transcript.
pub(super) const ANSWERED: Words =
    words("The call was not started: its result is in the conversation already. Do not retry.", Decides::Nobody, true);
