//! `run`: claim, close, run, leave the outcome, reopen, settle.
//!
//! The ledger file is held only to claim and to settle. Meanwhile the session's lock, which the
//! program inherits, keeps the claim in progress. The outcome is in the session file before the
//! ledger is opened again, so that a file that somebody else holds loses none.

use std::time::{Duration, Instant};

use onceledger::{
    Claim, Claimed, Conflict, Detail, ErrorKind, InProgress, Key, Ledger, Options, Past, PastWhat, Settled, Settlement,
    Standing, Stored, Ticket, Uncertain, View, Watch,
};
use serde::Serialize;

use crate::approvals::{self, ApprovalLine};
use crate::args::{LedgerArgs, RunArgs};
use crate::exit::{self, Failure};
use crate::keys::Named;
use crate::output::{self, Bytes, KeyLine, OutcomeLine};
use crate::pause;
use crate::program::{self, Ended, Ran};
use crate::replay::Replay;
use crate::signals::Signals;

/// What `run --json` prints.
#[derive(Debug, Default, Serialize)]
struct RunLine {
    #[serde(flatten)]
    key: KeyLine,
    /// The stored outcome was given again.
    repeat: bool,
    /// The program ran now.
    ran: bool,
    /// The outcome is in the session file: the ledger was busy.
    left: bool,
    signal: Option<i32>,
    stdout: Option<Bytes>,
    stderr: Option<Bytes>,
    /// What to do next, where there is something.
    next: Option<String>,
    /// The approval that is needed and cannot be spent.
    approval: Option<ApprovalLine>,
}

/// How a claim went.
enum Asked {
    Granted(Ticket),
    /// Nothing to run; this is the exit code.
    Answered(i32),
}

pub fn run(args: &RunArgs) -> Result<i32, Failure> {
    check_codes(args)?;
    let named = Named::from_args(&args.key)?;
    if args.approval && named.selection.is_none() {
        return Err(Failure::usage(
            "--approval needs --args JSON: an approval is bound to the arguments that the approver was shown",
        ));
    }
    let claim = claim_of(args, &named);
    let signals = Signals::start().map_err(|error| Failure::io("taking over signals", &error))?;
    match ask(args, &claim, &signals)? {
        Asked::Answered(code) => Ok(code),
        Asked::Granted(ticket) => {
            pause::at("after-close");
            let ran = program::run(&args.program, &ticket, &signals, args.ledger.json)?;
            match ran {
                Ran::Ended(ended) => settle(args, &ticket, ended),
                Ran::NotStarted { why, not_found } => {
                    let now = give_back(args, &ticket, &why)?;
                    let code = if not_found { exit::NOT_FOUND } else { exit::NOT_STARTED };
                    let key = ticket.key();
                    let message = match now {
                        Standing::Uncertain => format!("{why}; the key {key} is uncertain as it was before"),
                        _ => format!("{why}; the key {key} is free again: check the program and run it again"),
                    };
                    Err(Failure { code, kind: "not_started", message })
                }
                Ran::Stopped => {
                    give_back(args, &ticket, "stopped by a signal before the program began")?;
                    signals.die_of_noted();
                    Ok(exit::NOT_STARTED)
                }
            }
        }
    }
}

fn check_codes(args: &RunArgs) -> Result<(), Failure> {
    match args.final_codes.iter().find(|code| args.not_applied.contains(code)) {
        Some(code) => Err(Failure::usage(format!(
            "exit code {code} is named by --final and by --not-applied; name it once: it cannot mean both"
        ))),
        None => Ok(()),
    }
}

fn claim_of(args: &RunArgs, named: &Named) -> Claim {
    let mut claim = named.claim().recovery(args.recovery.clone());
    if let Some(lease) = args.lease {
        claim = claim.lease(lease);
    }
    if let Some(keep) = args.keep {
        claim = claim.keep(keep);
    }
    if let Some(remember) = args.remember {
        claim = claim.remember(remember);
    }
    if let Some(label) = args.label.clone().or_else(|| args.key.words()) {
        claim = claim.label(label);
    }
    if args.approval {
        claim = claim.needs_approval();
    }
    claim
}

fn options(ledger: &LedgerArgs) -> Options {
    Options::new().threads(false).lock_wait(ledger.lock_wait).outcome_bytes_max(program::STORED_BYTES_MAX)
}

/// Claims, and waits for another holder where that was asked for. The ledger is closed when this
/// returns.
fn ask(args: &RunArgs, claim: &Claim, signals: &Signals) -> Result<Asked, Failure> {
    let path = &args.ledger.path;
    let until = args.wait.and_then(|wait| Instant::now().checked_add(wait));
    let mut waited = false;
    loop {
        let options = options(&args.ledger);
        // Only the first look may create: a ledger that vanishes meanwhile is not made anew.
        let ledger = if args.create && !waited { options.open_or_create(path) } else { options.open(path) }?;
        signals.claiming();
        let claimed = ledger.claim(claim)?;
        if let Claimed::Granted(grant) = claimed {
            pause::at("after-claim");
            let ticket = grant.into_ticket();
            if let Err(error) = ledger.close() {
                // Storage that fails now would fail again when there is an outcome to record.
                let left = ticket.leave(Settlement::not_applied("the ledger could not be closed after the claim"));
                return Err(left.err().unwrap_or(error).into());
            }
            return Ok(Asked::Granted(ticket));
        }
        signals.idle();
        match (claimed, until) {
            (Claimed::InProgress(holder), Some(until)) if Instant::now() < until => {
                let watch = ledger.watch(&holder);
                output::close(ledger);
                wait_for(watch.as_ref(), &holder, until);
                waited = true;
            }
            (claimed, _) => {
                let code = answer(args, &ledger, claim, claimed)?;
                close(ledger);
                return Ok(Asked::Answered(code));
            }
        }
    }
}

/// Waits until the holder's session has news, its lease is over, or the wait is. The ledger is
/// closed meanwhile.
fn wait_for(watch: Option<&Watch>, holder: &InProgress, until: Instant) {
    const FIRST: Duration = Duration::from_millis(10);
    const LONGEST: Duration = Duration::from_millis(100);
    let lapse = holder.lease_left.and_then(|left| Instant::now().checked_add(left));
    let until = lapse.map_or(until, |lapse| until.min(lapse));
    let mut pause = FIRST;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        std::thread::sleep(pause.min(left));
        // A look that fails says nothing; opening will tell.
        let news = watch.is_none_or(|watch| watch.has_news().unwrap_or(true));
        if news || left.is_zero() {
            return;
        }
        pause = (pause * 2).min(LONGEST);
    }
}

/// Says why nothing is run.
fn answer(args: &RunArgs, ledger: &Ledger, claim: &Claim, claimed: Claimed) -> Result<i32, Failure> {
    let key = claim.key();
    let detail = ledger.show(key)?;
    let line = detail.as_ref().map_or_else(|| KeyLine::vacant(key), KeyLine::new);
    let line = RunLine { key: line, ..RunLine::default() };
    match claimed {
        Claimed::AlreadyDone(stored) => repeat(args, detail.as_ref(), line, &stored, false),
        Claimed::Failed(stored) => repeat(args, detail.as_ref(), line, &stored, true),
        Claimed::InProgress(holder) => in_progress(args, line, &holder),
        Claimed::Uncertain(uncertain) => uncertain_before(args, line, &uncertain),
        Claimed::Mismatch(conflict) => mismatch(args, line, &conflict),
        Claimed::NotApproved(stands) => {
            let refused = approvals::ask(args, ledger, claim, stands)?;
            let line = RunLine { next: Some(refused.next), approval: Some(refused.line), ..line };
            tell(args, line, &refused.message)?;
            Ok(exit::NOT_APPROVED)
        }
        _ => Err(Failure {
            code: exit::REFUSED,
            kind: "unexpected",
            message: format!("{key}: the ledger gave an answer that this version does not know; update onceledger"),
        }),
    }
}

fn repeat(
    args: &RunArgs,
    detail: Option<&Detail>,
    mut line: RunLine,
    stored: &Stored,
    failed: bool,
) -> Result<i32, Failure> {
    let replay = detail.map(|detail| Replay::new(detail, stored, failed)).unwrap_or_default();
    if args.ledger.json {
        line.repeat = true;
        line.key.exit_code = Some(replay.code);
        line.stdout = replay.stdout.as_deref().map(Bytes::new);
        line.stderr = replay.stderr.as_deref().map(Bytes::new);
        output::object(&line)?;
        return Ok(replay.code);
    }
    replay.print()?;
    let what = if failed { "failed for good" } else { "was done" };
    let kept = if replay.stdout.is_none() { "; its output is not kept" } else { "" };
    let since = line.key.since_ms.map(output::time).unwrap_or_default();
    let token = line.key.token.unwrap_or_default();
    output::note(&format!("repeat: {} {what} at {since} (token {token}) and was not run again{kept}", line.key.key));
    Ok(replay.code)
}

fn in_progress(args: &RunArgs, line: RunLine, holder: &InProgress) -> Result<i32, Failure> {
    let by =
        holder.pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}, or what it started,"));
    let lease = holder.lease_left.map_or_else(String::new, |left| format!(", lease left {} s", left.as_secs()));
    let next = "do not run it another way; ask again later, or use --wait";
    let message = format!(
        "{}: in progress: {by} runs it since {} (token {}{lease}); {next}",
        line.key.key,
        output::time(holder.since_ms),
        holder.token
    );
    tell(args, RunLine { next: Some(next.to_owned()), ..line }, &message)?;
    Ok(exit::IN_PROGRESS)
}

fn uncertain_before(args: &RunArgs, line: RunLine, uncertain: &Uncertain) -> Result<i32, Failure> {
    let doubt = &uncertain.doubt;
    let rule = if uncertain.stored_rule_decided { " The recovery rule stored with the key decided." } else { "" };
    let why = format!("attempt {} ended without a sure answer ({})", doubt.attempt, doubt.reason.name());
    uncertain_now(args, line, doubt.token, &doubt.key, &format!("{why}.{rule}"))
}

fn uncertain_now(
    args: &RunArgs,
    line: RunLine,
    token: onceledger::FencingToken,
    key: &Key,
    why: &str,
) -> Result<i32, Failure> {
    let next = output::resolve_command(&args.ledger.path, key, token);
    let message = format!(
        "{key}: uncertain: {why} Whether it happened is not known: do not run it again. Find out, then say so:\n  {next}"
    );
    tell(args, RunLine { next: Some(next), ..line }, &message)?;
    Ok(exit::UNCERTAIN)
}

fn mismatch(args: &RunArgs, line: RunLine, conflict: &Conflict) -> Result<i32, Failure> {
    let next = "check the arguments, or use another key for another action";
    let message = format!(
        "{}: mismatch: the key stands with fingerprint {} (token {}), this call has {}; {next}",
        line.key.key, conflict.stands, conflict.token, conflict.asked
    );
    tell(args, RunLine { next: Some(next.to_owned()), ..line }, &message)?;
    Ok(exit::MISMATCH)
}

/// The object with `--json`, and words on stderr in any case.
fn tell(args: &RunArgs, line: RunLine, message: &str) -> Result<(), Failure> {
    output::note(message);
    if args.ledger.json { output::object(&line) } else { Ok(()) }
}

/// Closes a ledger in which everything is recorded: a failure costs the next open some time only.
fn close(ledger: Ledger) {
    ledger.tick();
    output::close(ledger);
}

/// Records a claim whose program never ran, and says what its key is now.
fn give_back(args: &RunArgs, ticket: &Ticket, why: &str) -> Result<Standing, Failure> {
    let settlement = Settlement::not_applied(why);
    let left = ticket.leave(settlement.clone());
    let ledger = match options(&args.ledger).open(&args.ledger.path) {
        Ok(ledger) => ledger,
        Err(error) if error.kind() == ErrorKind::Locked && left.is_ok() => {
            return Ok(if ticket.is_resend() { Standing::Uncertain } else { Standing::Vacant });
        }
        Err(error) => return Err(error.into()),
    };
    let settled = ticket.settle(&ledger, settlement)?;
    if let Settled::Lost(view) = settled {
        output::note(&format!("{}: the claim was decided meanwhile: it is {}", ticket.key(), view.standing()));
    }
    let now = ledger.check(ticket.key())?.standing();
    close(ledger);
    Ok(now)
}

/// What an exit means for the claim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Means {
    Done,
    Final,
    NotApplied,
    /// The same of a resend: the attempt before it is uncertain as it was.
    Resent,
    Unknown,
}

impl Means {
    fn of(args: &RunArgs, ticket: &Ticket, code: Option<i32>) -> Self {
        match code {
            Some(0) => Means::Done,
            Some(code) if args.final_codes.contains(&code) => Means::Final,
            Some(code) if args.not_applied.contains(&code) && ticket.is_resend() => Means::Resent,
            Some(code) if args.not_applied.contains(&code) => Means::NotApplied,
            Some(_) | None => Means::Unknown,
        }
    }

    fn settlement(self, ended: &Ended) -> Settlement {
        let settlement = match self {
            Means::Done => Settlement::done(ended.outcome()),
            Means::Final => Settlement::failed(ended.outcome().as_error()),
            Means::NotApplied | Means::Resent => return Settlement::not_applied(ended.words()),
            Means::Unknown => return Settlement::uncertain(ended.words()),
        };
        ended.code.map_or(settlement.clone(), |code| settlement.exit_code(code))
    }

    fn standing(self) -> Standing {
        match self {
            Means::Done => Standing::Done,
            Means::Final => Standing::Failed,
            Means::NotApplied => Standing::Vacant,
            Means::Resent | Means::Unknown => Standing::Uncertain,
        }
    }

    fn past(self) -> PastWhat {
        match self {
            Means::Done => PastWhat::Done,
            Means::Final => PastWhat::Failed,
            Means::NotApplied => PastWhat::Released,
            Means::Resent | Means::Unknown => PastWhat::Uncertain,
        }
    }
}

/// Records how the program ended, first in the session file, then in the ledger.
fn settle(args: &RunArgs, ticket: &Ticket, ended: Ended) -> Result<i32, Failure> {
    let means = Means::of(args, ticket, ended.code);
    let settlement = means.settlement(&ended);
    let left = ticket.leave(settlement.clone());
    pause::at("after-leave");
    let mut line = run_line(ticket, &ended);
    let ledger = match options(&args.ledger).open(&args.ledger.path) {
        Ok(ledger) => ledger,
        Err(error) if error.kind() == ErrorKind::Locked && left.is_ok() => {
            line.left = true;
            line.key.standing = means.standing().name();
            line.key.scope.clone_from(&args.key.scope);
            let busy = format!(
                "{}: {error}. The outcome is in the session file: whoever opens the ledger next, or looks at the claim, records it",
                ticket.key()
            );
            output::note(&busy);
            return report(args, ticket, means, ended, line);
        }
        Err(error) => return Err(not_recorded(ticket, &ended, left.is_ok(), error)),
    };
    pause::at("before-settle");
    let settled = match ticket.settle(&ledger, settlement) {
        Ok(settled) => settled,
        Err(error) => return Err(not_recorded(ticket, &ended, left.is_ok(), error)),
    };
    pause::at("after-settle");
    if let Settled::Lost(view) = &settled
        && !is_recorded(&ledger.history(ticket.key())?, ticket, means)
    {
        let failure = superseded(args, ticket, &ended, view);
        close(ledger);
        ended.flush();
        return Err(failure);
    }
    if let Some(detail) = ledger.show(ticket.key())? {
        // Somebody may have been granted the key since it was given back.
        let ours = detail.token == ticket.token();
        line.key = if ours { KeyLine::new(&detail) } else { line.key };
    }
    line.key.standing = means.standing().name();
    close(ledger);
    report(args, ticket, means, ended, line)
}

/// Whether the log holds this very end of the grant: somebody recorded it from the session file.
fn is_recorded(history: &[Past], ticket: &Ticket, means: Means) -> bool {
    history.iter().any(|past| past.token == ticket.token() && past.what == means.past())
}

fn run_line(ticket: &Ticket, ended: &Ended) -> RunLine {
    let key = KeyLine { token: Some(ticket.token().get()), attempt: ticket.attempt(), ..KeyLine::vacant(ticket.key()) };
    RunLine {
        key,
        ran: true,
        signal: ended.signal,
        stdout: ended.stdout.as_deref().map(Bytes::new),
        stderr: ended.stderr.as_deref().map(Bytes::new),
        ..RunLine::default()
    }
}

fn not_recorded(ticket: &Ticket, ended: &Ended, left: bool, error: onceledger::Error) -> Failure {
    let where_it_is = if left {
        "its outcome is in the session file and is recorded by the next open"
    } else {
        "its outcome is not recorded, and the claim will be uncertain"
    };
    let failure = Failure::from(error);
    let message = format!(
        "{}: the program ran ({}), do not run it again; {where_it_is}: {}",
        ticket.key(),
        ended.words(),
        failure.message
    );
    Failure { code: exit::REFUSED, message, ..failure }
}

fn superseded(args: &RunArgs, ticket: &Ticket, ended: &Ended, view: &View) -> Failure {
    let free = match view.standing() {
        Standing::Vacant => "; the key is free: the next run of it starts the program again",
        _ => "",
    };
    Failure::stale(format!(
        "{}: stale: the program ran ({}), but its claim (token {}) was decided by somebody else meanwhile: it is {}{free}; \
         the outcome is kept as evidence: see `{}`",
        ticket.key(),
        ended.words(),
        ticket.token(),
        view.standing(),
        output::history_command(&args.ledger.path, ticket.key())
    ))
}

/// Prints what came of it, and picks the exit code.
fn report(args: &RunArgs, ticket: &Ticket, means: Means, ended: Ended, mut line: RunLine) -> Result<i32, Failure> {
    let code = ended.code.unwrap_or(exit::UNCERTAIN);
    line.key.exit_code = ended.code;
    if matches!(means, Means::Done | Means::Final) && line.key.outcome.is_none() {
        let outcome = if means == Means::Final { ended.outcome().as_error() } else { ended.outcome() };
        line.key.outcome =
            Some(OutcomeLine::kept(&outcome)).filter(|_| outcome.body().len() <= program::STORED_BYTES_MAX);
    }
    let words = ended.words();
    ended.flush();
    match means {
        Means::Unknown => {
            let why = format!("the program ended with {words}, which no option names.");
            uncertain_now(args, line, ticket.token(), ticket.key(), &why)
        }
        Means::Resent => {
            let why = format!("this attempt was not applied ({words}), and the one before it is as it was.");
            uncertain_now(args, line, ticket.token(), ticket.key(), &why)
        }
        Means::NotApplied => {
            output::note(&format!("{}: not applied ({words}): the key is free again", ticket.key()));
            if args.ledger.json { output::object(&line).map(|()| code) } else { Ok(code) }
        }
        Means::Done | Means::Final => {
            if args.ledger.json {
                output::object(&line)?;
            }
            Ok(code)
        }
    }
}
