//! What became of one call.

use super::call::Call;
use super::envelope::{Address, Members, quoted, result};
use super::words::{self, Words};
use crate::approval::{Approval, ApprovalId, ApprovalState, NotApproved};
use crate::claim::{Answer, FencingToken};
use crate::encoding::rfc3339;
use crate::error::Error;
use crate::key::{ArgsDigest, Key};
use crate::outcome::{EffectError, Outcome, Stored};

/// What became of a call, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Status {
    /// It ran now and succeeded.
    Done,
    /// It ran before and succeeded.
    AlreadyDone,
    /// It runs now, in another call.
    InProgress,
    /// It failed for good, now or before.
    Failed,
    /// Nobody knows whether it happened.
    Uncertain,
    /// The same action stands with other arguments.
    Mismatch,
    /// A person must approve it first.
    AwaitingApproval,
    /// A person refused it.
    Denied,
    /// Its approval was not given or used in time.
    Expired,
    /// It certainly had no effect; it may be asked for again.
    NotApplied,
    /// It ran, but somebody had decided about it meanwhile.
    Superseded,
    /// Something failed before it was started.
    ErrorBefore,
    /// Something failed after it ran.
    ErrorAfter,
}

impl Status {
    /// All of them, in the order of docs/MESSAGES.md.
    pub const ALL: [Status; 13] = [
        Status::Done,
        Status::AlreadyDone,
        Status::InProgress,
        Status::Failed,
        Status::Uncertain,
        Status::Mismatch,
        Status::AwaitingApproval,
        Status::Denied,
        Status::Expired,
        Status::NotApplied,
        Status::Superseded,
        Status::ErrorBefore,
        Status::ErrorAfter,
    ];

    /// The word in the JSON body.
    pub fn name(self) -> &'static str {
        match self {
            Status::Done => "done",
            Status::AlreadyDone => "already_done",
            Status::InProgress => "in_progress",
            Status::Failed => "failed",
            Status::Uncertain => "uncertain",
            Status::Mismatch => "mismatch",
            Status::AwaitingApproval => "awaiting_approval",
            Status::Denied => "denied",
            Status::Expired => "expired",
            Status::NotApplied => "not_applied",
            Status::Superseded => "superseded",
            Status::ErrorBefore => "error_before",
            Status::ErrorAfter => "error_after",
        }
    }

    /// Whether a provider's error flag is set, whatever the result says of itself. It is not set while
    /// nothing has gone wrong.
    fn is_error(self) -> bool {
        match self {
            Status::Done | Status::AlreadyDone | Status::InProgress | Status::AwaitingApproval => false,
            Status::Failed
            | Status::Uncertain
            | Status::Mismatch
            | Status::Denied
            | Status::Expired
            | Status::NotApplied
            | Status::Superseded
            | Status::ErrorBefore
            | Status::ErrorAfter => true,
        }
    }
}

/// The answer to one call: for the program a status and the ledger's [`Answer`], for the model a JSON
/// body, for the provider an envelope around it.
#[derive(Debug)]
#[must_use]
pub struct Reply {
    status: Status,
    words: Words,
    /// JSON text.
    result: Option<String>,
    outcome_error: bool,
    at_ms: Option<u64>,
    ticket: Option<Ticket>,
    address: Address,
    answer: Option<Answer>,
    error: Option<Error>,
}

/// What an operator or approver needs to name the action.
#[derive(Clone, Debug)]
enum Ticket {
    Doubt(Key, FencingToken),
    /// The approval where the ledger was asked for one; it was not, where a transcript says no.
    Approval(Option<ApprovalId>, Key, ArgsDigest),
}

impl Reply {
    fn new(call: &Call, status: Status, words: Words) -> Self {
        Reply {
            status,
            words,
            result: None,
            outcome_error: false,
            at_ms: None,
            ticket: None,
            address: Address::of(call),
            answer: None,
            error: None,
        }
    }

    /// The words of a status, without more.
    pub(super) fn plain(call: &Call, status: Status) -> Self {
        Reply::new(call, status, words::of(status))
    }

    pub(super) fn with_words(mut self, words: Words) -> Self {
        self.words = words;
        self
    }

    /// Since when it stands so, in milliseconds since 1970.
    pub(super) fn at(mut self, at_ms: Option<u64>) -> Self {
        self.at_ms = self.at_ms.or(at_ms);
        self
    }

    pub(super) fn outcome(mut self, outcome: &Outcome) -> Self {
        self.result = Some(result(outcome));
        self.outcome_error = outcome.is_error();
        self
    }

    /// What a call said of itself that it did not do.
    pub(super) fn said(self, error: &EffectError) -> Self {
        self.outcome(error.outcome())
    }

    /// What the ledger answered.
    pub(super) fn of_answer(call: &Call, answer: Answer) -> Self {
        let mut reply = match &answer {
            Answer::Done(outcome) => Reply::plain(call, Status::Done).outcome(outcome),
            Answer::AlreadyDone(stored) => Reply::stored(call, Status::AlreadyDone, stored, words::NOT_KEPT),
            Answer::Failed(stored) => Reply::stored(call, Status::Failed, stored, words::FAILURE_NOT_KEPT),
            Answer::NotApplied(error) => Reply::plain(call, Status::NotApplied).said(error),
            Answer::InProgress(holder) => Reply::plain(call, Status::InProgress).at(Some(holder.since_ms)),
            Answer::Uncertain(uncertain) => {
                let doubt = &uncertain.doubt;
                let mut reply = Reply::plain(call, Status::Uncertain);
                reply.ticket = Some(Ticket::Doubt(doubt.key.clone(), doubt.token));
                reply.at(Some(doubt.since_ms).filter(|since| *since > 0))
            }
            Answer::Mismatch(_) => Reply::plain(call, Status::Mismatch),
            Answer::NotApproved(missing) => Reply::not_approved(call, missing),
            Answer::Superseded(outcome, _) => Reply::plain(call, Status::Superseded).outcome(outcome),
        };
        reply.answer = Some(answer);
        reply
    }

    fn stored(call: &Call, status: Status, stored: &Stored, not_kept: Words) -> Self {
        match stored {
            Stored::Kept(outcome) => Reply::plain(call, status).outcome(outcome),
            Stored::NotKept { error, .. } => {
                let mut reply = Reply::new(call, status, not_kept);
                reply.outcome_error = *error;
                reply
            }
        }
    }

    /// What failed, before or after the effect.
    pub(super) fn of_error(call: &Call, error: Error) -> Self {
        let mut reply = match (error.after_the_effect(), error.is_bad_input()) {
            (true, _) => Reply::plain(call, Status::ErrorAfter),
            (false, true) => Reply::plain(call, Status::ErrorBefore),
            (false, false) => Reply::new(call, Status::ErrorBefore, words::STORAGE_BEFORE),
        };
        match error.outcome() {
            Some(outcome) => reply = reply.outcome(outcome),
            None => reply.result = Some(quoted(&error.to_string())),
        }
        reply.error = Some(error);
        reply
    }

    fn not_approved(call: &Call, missing: &NotApproved) -> Self {
        let Some(approval) = &missing.approval else { return Reply::plain(call, Status::AwaitingApproval) };
        let status = match approval.state {
            ApprovalState::Pending | ApprovalState::Approved => Status::AwaitingApproval,
            ApprovalState::Denied => Status::Denied,
            ApprovalState::Withdrawn | ApprovalState::Expired | ApprovalState::Spent => Status::Expired,
        };
        let mut reply = Reply::plain(call, status).at(approval.decisions.last().map(|last| last.at_ms));
        reply.ticket = Some(Ticket::Approval(Some(approval.id), missing.key.clone(), approval.args_digest));
        reply
    }

    /// A call whose transcript says that a person has not decided, or has said no. `approval` is the
    /// ledger's own request, where the tool needs one.
    pub(super) fn of_consent(
        call: &Call,
        refused: bool,
        approval: Option<&Approval>,
        key: &Key,
        args: ArgsDigest,
    ) -> Self {
        let status = match approval.map(|approval| approval.state) {
            _ if refused => Status::Denied,
            Some(ApprovalState::Denied) => Status::Denied,
            Some(ApprovalState::Withdrawn | ApprovalState::Expired) => Status::Expired,
            Some(ApprovalState::Pending | ApprovalState::Approved | ApprovalState::Spent) | None => {
                Status::AwaitingApproval
            }
        };
        let mut reply = Reply::plain(call, status);
        reply.ticket = Some(Ticket::Approval(approval.map(|approval| approval.id), key.clone(), args));
        reply
    }

    /// What became of the call.
    pub fn status(&self) -> Status {
        self.status
    }

    /// What the ledger answered; `None` where it was not asked, or failed.
    pub fn answer(&self) -> Option<&Answer> {
        self.answer.as_ref()
    }

    /// What failed.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Whether the same action may not be asked for again.
    pub fn do_not_retry(&self) -> bool {
        self.words.do_not_retry
    }

    /// Whether the provider's error flag is set: the call did not do what it should, or its outcome is
    /// an error.
    pub fn is_error(&self) -> bool {
        self.status.is_error() || self.outcome_error
    }

    /// What the model is told: a JSON object on one line. Its members are always the same, in this
    /// order: `status`, `result`, `note`, `at`, `decides`, `do_not_retry`; and `ticket` where somebody
    /// has to name the action.
    pub fn body(&self) -> String {
        let text = |text: Option<&str>| text.map_or_else(|| "null".to_owned(), quoted);
        let members = Members::new()
            .text("status", self.status.name())
            .json("result", self.result.as_deref().unwrap_or("null"))
            .text("note", self.words.note)
            .json("at", &text(self.at_ms.map(rfc3339).as_deref()))
            .json("decides", &text(self.words.decides.name()))
            .bool("do_not_retry", self.words.do_not_retry);
        match &self.ticket {
            None => members,
            Some(Ticket::Doubt(key, token)) => {
                let ticket = Members::new().text("key", &key.to_hex()).json("token", &token.to_string());
                members.json("ticket", &ticket.end())
            }
            Some(Ticket::Approval(id, key, args)) => {
                let id = id.map_or_else(|| "null".to_owned(), |id| id.to_string());
                let ticket =
                    Members::new().json("approval", &id).text("key", &key.to_hex()).text("args_digest", &args.to_hex());
                members.json("ticket", &ticket.end())
            }
        }
        .end()
    }

    /// The message that answers the call, in the shape the call came in: JSON on one line.
    pub fn envelope(&self) -> String {
        self.address.message(self.part())
    }

    /// The part of [`envelope`](Reply::envelope) that answers this call. Anthropic wants the results
    /// of all calls of one turn in one message; elsewhere part and message are mostly the same.
    pub fn part(&self) -> String {
        self.address.part(&self.body(), self.is_error(), self.status == Status::Denied)
    }

    /// The tool that was called.
    pub fn tool(&self) -> &str {
        self.address.tool()
    }

    /// The shape in which the call came.
    pub fn shape(&self) -> super::Shape {
        self.address.shape()
    }
}
