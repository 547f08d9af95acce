//! The commands about approvals: `approve`, `deny`, `approvals`; and what `run --approval` asks for.

use clap::Args;
use onceledger::canonical::Value;
use onceledger::{
    Approval, ApprovalDecision, ApprovalId, ApprovalRequest, ApprovalState, Claim, Decision, Ledger, NotApproved,
    Outcome,
};
use serde::Serialize;

use crate::args::{KeyArgs, LedgerArgs, RunArgs};
use crate::exit::{DONE, Failure};
use crate::output::{self, Bytes};
use crate::show::open;

#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// The approval, as approvals and run print it
    #[arg(value_name = "ID")]
    pub id: u64,
    #[command(flatten)]
    pub ledger: LedgerArgs,
    /// Who says yes
    #[arg(long, value_name = "WHO")]
    pub by: String,
}

#[derive(Debug, Args)]
pub struct DenyArgs {
    /// The approval, as approvals and run print it
    #[arg(value_name = "ID")]
    pub id: u64,
    #[command(flatten)]
    pub ledger: LedgerArgs,
    /// Who says no
    #[arg(long, value_name = "WHO")]
    pub by: String,
    /// Why
    #[arg(long, value_name = "WHY")]
    pub why: Option<String>,
}

#[derive(Debug, Args)]
pub struct ApprovalsArgs {
    #[command(flatten)]
    pub ledger: LedgerArgs,
    /// Only those that nobody has decided
    #[arg(long)]
    pub pending: bool,
    /// At most this many [default: all]
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<usize>,
}

/// An approval, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct ApprovalLine {
    id: u64,
    key: String,
    args_digest: String,
    state: &'static str,
    /// `null` where it was redacted.
    shown: Option<Bytes>,
    deadline_ms: u64,
    scope: String,
    label: String,
    spent_by: Option<u64>,
    decisions: Vec<DecisionLine>,
}

#[derive(Debug, Serialize)]
struct DecisionLine {
    event: &'static str,
    at_ms: u64,
    by: String,
    why: String,
    token: Option<u64>,
}

impl ApprovalLine {
    pub fn new(approval: &Approval) -> Self {
        let decision = |line: &ApprovalDecision| DecisionLine {
            event: line.what,
            at_ms: line.at_ms,
            by: line.by.clone(),
            why: line.why.clone(),
            token: line.token.map(onceledger::FencingToken::get),
        };
        ApprovalLine {
            id: approval.id.get(),
            key: approval.key.to_hex(),
            args_digest: approval.args_digest.to_hex(),
            state: approval.state.name(),
            shown: approval.shown.as_ref().map(|shown| Bytes::new(shown.body())),
            deadline_ms: approval.deadline_ms,
            scope: approval.key.scope().unwrap_or_default().to_owned(),
            label: approval.key.action_name().unwrap_or_default().to_owned(),
            spent_by: approval.spent_by.map(onceledger::FencingToken::get),
            decisions: approval.decisions.iter().map(decision).collect(),
        }
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.state.to_owned(),
            output::time(self.deadline_ms),
            self.key.clone(),
            self.scope.clone(),
            self.label.clone(),
            self.shown.as_ref().map_or_else(|| "(redacted)".to_owned(), first_words),
        ]
    }
}

/// As much of what was shown as a table has room for.
fn first_words(shown: &Bytes) -> String {
    const LETTERS_MAX: usize = 80;
    let Bytes::Text(text) = shown else { return "(bytes)".to_owned() };
    let mut words: String = text.chars().take(LETTERS_MAX).collect();
    if words.len() < text.len() {
        words.push_str("...");
    }
    words
}

pub fn approve(args: &ApproveArgs) -> Result<i32, Failure> {
    decide(&args.ledger, args.id, "approved", |ledger, id| ledger.approve(id, &args.by))
}

pub fn deny(args: &DenyArgs) -> Result<i32, Failure> {
    let why = args.why.as_deref().unwrap_or_default();
    decide(&args.ledger, args.id, "denied", |ledger, id| ledger.deny(id, &args.by, why))
}

fn decide(
    args: &LedgerArgs,
    id: u64,
    word: &str,
    decide: impl FnOnce(&Ledger, ApprovalId) -> onceledger::Result<Decision>,
) -> Result<i32, Failure> {
    let ledger = open(args)?;
    let decision = decide(&ledger, ApprovalId::from_number(id))?;
    output::close(ledger);
    let (approval, sentence) = match decision {
        Decision::Applied(approval) => {
            let sentence = format!("{id}: {word}{}", still(&approval, word));
            (approval, sentence)
        }
        Decision::Same(approval) => {
            let sentence = format!("{id}: it was {word} before{}", still(&approval, word));
            (approval, sentence)
        }
        Decision::Conflict(approval) => {
            return Err(Failure::stale(format!(
                "approval {id} cannot be {word}: it is {}; the first decision stands, and a new request may be made \
                 (`run --approval --ask-again`)",
                stands(&approval)
            )));
        }
    };
    if args.json {
        output::object(&ApprovalLine::new(&approval))?;
    } else {
        output::bytes(format!("{}\n", output::printable(&sentence)).as_bytes())?;
    }
    Ok(DONE)
}

/// What a decision did not change.
fn still(approval: &Approval, word: &str) -> &'static str {
    match approval.state {
        ApprovalState::Spent if word == "denied" => {
            "; a claim has spent it already: the denial takes effect if that claim gives it back"
        }
        ApprovalState::Spent => "; a claim has spent it",
        ApprovalState::Expired => "; its deadline has passed",
        _ => "",
    }
}

/// The state, and who brought it about.
fn stands(approval: &Approval) -> String {
    let state = approval.state;
    let at = match state {
        ApprovalState::Expired => return format!("expired since {}", output::time(approval.deadline_ms)),
        ApprovalState::Spent => {
            let token = approval.spent_by.map_or(0, onceledger::FencingToken::get);
            return format!("spent by the grant with token {token}");
        }
        _ => approval.decisions.iter().rev().find(|line| line.what == state.name()),
    };
    let Some(line) = at else { return state.name().to_owned() };
    let why = if line.why.is_empty() { String::new() } else { format!(": {}", line.why) };
    format!("{} by {} at {}{why}", state.name(), line.by, output::time(line.at_ms))
}

pub fn approvals(args: &ApprovalsArgs) -> Result<i32, Failure> {
    let ledger = open(&args.ledger)?;
    let mut rows = Vec::new();
    each(&ledger, args, |line| {
        if args.ledger.json {
            return output::object(&line);
        }
        rows.push(line.row());
        Ok(())
    })?;
    output::close(ledger);
    if !args.ledger.json {
        output::table(&["ID", "STATE", "DEADLINE", "KEY", "SCOPE", "LABEL", "SHOWN"], rows)?;
    }
    Ok(DONE)
}

/// Goes through the approvals page by page: what was shown may be large.
fn each(
    ledger: &Ledger,
    args: &ApprovalsArgs,
    mut see: impl FnMut(ApprovalLine) -> Result<(), Failure>,
) -> Result<(), Failure> {
    const PAGE: usize = 64;
    let state = args.pending.then_some(ApprovalState::Pending);
    let mut left = args.limit.unwrap_or(usize::MAX);
    let mut after = None;
    while left > 0 {
        let page = ledger.approvals(state, after, left.min(PAGE))?;
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        left = left.saturating_sub(page.len());
        page.iter().map(ApprovalLine::new).try_for_each(&mut see)?;
    }
    Ok(())
}

/// What `run --approval` says instead of running.
pub struct Refused {
    pub line: ApprovalLine,
    /// What stands, and what to do.
    pub message: String,
    pub next: String,
}

/// Asks for the approval that a claim needs, or says why the one that stands does not let it through.
pub fn ask(args: &RunArgs, ledger: &Ledger, claim: &Claim, stands_now: NotApproved) -> Result<Refused, Failure> {
    let again = |state| args.ask_again && !matches!(state, ApprovalState::Pending | ApprovalState::Approved);
    let approval = match stands_now.approval {
        Some(approval) if !again(approval.state) => approval,
        Some(_) | None => ledger.request(&request(args, claim)?)?,
    };
    let line = ApprovalLine::new(&approval);
    let id = approval.id;
    let (what, next) = match approval.state {
        ApprovalState::Pending => {
            let what =
                format!("approval {id} is pending until {}; nothing was run", output::time(approval.deadline_ms));
            (what, output::approve_command(&args.ledger.path, id))
        }
        // Decided between the claim and the request.
        ApprovalState::Approved => {
            (format!("approval {id} was given just now; nothing was run"), "run it again".to_owned())
        }
        _ => (
            format!("approval {id} is {}; nothing was run", stands(&approval)),
            "ask anew with --ask-again where it should run all the same".to_owned(),
        ),
    };
    let message = format!("{}: not approved: {what}:\n  {next}", stands_now.key);
    Ok(Refused { line, message, next })
}

fn request(args: &RunArgs, claim: &Claim) -> Result<ApprovalRequest, Failure> {
    let mut request = ApprovalRequest::new(claim, shown(args)?).by("onceledger run");
    if let Some(valid) = args.approval_valid {
        request = request.valid_for(valid);
    }
    Ok(if args.ask_again { request.again() } else { request })
}

/// What the approver sees: everything that the approval is bound to, and a label.
fn shown(args: &RunArgs) -> Result<Outcome, Failure> {
    #[derive(Serialize)]
    struct Shown<'a> {
        scope: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        tool: Option<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        key: Vec<Bytes>,
        #[serde(skip_serializing_if = "Option::is_none")]
        label: Option<&'a str>,
    }
    let KeyArgs { parts, tool, arguments, scope, .. } = &args.key;
    let shown = Shown {
        scope,
        tool: tool.as_deref(),
        key: parts.iter().map(|part| Bytes::new(part.as_encoded_bytes())).collect(),
        label: args.label.as_deref(),
    };
    let head = serde_json::to_string(&shown);
    let head = head.map_err(|error| Failure::usage(format!("showing the key: {error}")))?;
    // As they are digested, digit for digit: a JSON number of another program would be rounded.
    let canonical = Value::parse(arguments.as_deref().unwrap_or("null"))?.to_canonical();
    Ok(Outcome::json(format!("{},\"args\":{canonical}}}", head.trim_end_matches('}'))))
}
