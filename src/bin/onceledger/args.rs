//! The arguments of every command.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use onceledger::{Claim, Keep, Recovery, Standing};

use crate::approvals::{ApprovalsArgs, ApproveArgs, DenyArgs};
use crate::cells::CellCommand;
use crate::duration;
use crate::exit;

/// Makes the side effects of programs happen at most once.
#[derive(Debug, Parser)]
#[command(name = "onceledger", version, after_help = exit::TABLE)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a ledger file
    Init(InitArgs),
    /// Run a program at most once
    #[command(after_help = exit::TABLE)]
    Run(Box<RunArgs>),
    /// Run the commands of a model's tool calls at most once, and answer the calls
    #[command(after_help = exit::TABLE)]
    Calls(CallsArgs),
    /// Show everything that is known of a key
    Show(KeyedArgs),
    /// List keys by standing
    List(ListArgs),
    /// Show what happened to a key
    History(KeyedArgs),
    /// Decide an uncertain claim
    #[command(after_help = exit::TABLE)]
    Resolve(ResolveArgs),
    /// Derive a key and print every form of it
    Key(KeyCommandArgs),
    /// Forget what is past its retention, and clean the log
    Sweep(SweepArgs),
    /// Read the whole ledger and compare every checksum
    Verify(PlainArgs),
    /// Count keys by standing
    Stats(PlainArgs),
    /// Take over a file whose anchor is missing, damaged or ahead of it
    Adopt(AdoptArgs),
    /// Say yes to a request for approval
    Approve(ApproveArgs),
    /// Say no to a request for approval, or take a yes back
    Deny(DenyArgs),
    /// List requests for approval, and what became of them
    Approvals(ApprovalsArgs),
    /// Read, write or delete a cell: a named value that changes only where it is as expected
    #[command(subcommand)]
    Cell(CellCommand),
}

impl Command {
    pub fn is_json(&self) -> bool {
        match self {
            Command::Init(args) => args.ledger.json,
            Command::Run(args) => args.ledger.json,
            Command::Calls(args) => args.ledger.json,
            Command::Show(args) | Command::History(args) => args.ledger.json,
            Command::List(args) => args.ledger.json,
            Command::Resolve(args) => args.ledger.json,
            Command::Key(args) => args.json,
            Command::Sweep(args) => args.ledger.json,
            Command::Verify(args) | Command::Stats(args) => args.ledger.json,
            Command::Adopt(args) => args.ledger.json,
            Command::Approve(args) => args.ledger.json,
            Command::Deny(args) => args.ledger.json,
            Command::Approvals(args) => args.ledger.json,
            Command::Cell(command) => command.is_json(),
        }
    }
}

/// Which ledger, and how the answer is printed.
#[derive(Debug, Args)]
pub struct LedgerArgs {
    /// The ledger file
    #[arg(long = "ledger", value_name = "FILE")]
    pub path: PathBuf,
    /// How long to wait for a file that another process holds
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::duration)]
    pub lock_wait: Duration,
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

/// What names an action: `--key` parts, or a tool and its arguments.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// A part of the key: the first is the action, the rest is what it acts on; repeatable
    #[arg(long = "key", value_name = "PART")]
    pub parts: Vec<OsString>,
    /// A tool, whose key is made from its arguments
    #[arg(long, value_name = "NAME", conflicts_with = "parts")]
    pub tool: Option<String>,
    /// The arguments, as strict JSON; beside --key they make the fingerprint
    #[arg(long = "args", value_name = "JSON")]
    pub arguments: Option<String>,
    /// A field that makes the tool's key, as a JSON pointer; repeatable [default: all of --args]
    #[arg(long, value_name = "POINTER")]
    pub identity: Vec<String>,
    /// A field that a repeat must match, as a JSON pointer; repeatable
    #[arg(long, value_name = "POINTER", requires = "arguments")]
    pub guard: Vec<String>,
    /// Whose action this is
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub scope: String,
}

impl KeyArgs {
    /// The parts of a hand-made key, for people, as far as a label goes.
    pub fn words(&self) -> Option<String> {
        if self.parts.is_empty() {
            return None;
        }
        let parts: Vec<_> = self.parts.iter().map(|part| part.to_string_lossy()).collect();
        let words = parts.join(" ");
        (0..=words.len().min(Claim::LABEL_BYTES_MAX)).rev().find_map(|end| Some(words.get(..end)?.to_owned()))
    }
}

#[derive(Debug, Args)]
pub struct InitArgs {
    #[command(flatten)]
    pub ledger: LedgerArgs,
}

#[derive(Debug, Args)]
pub struct PlainArgs {
    #[command(flatten)]
    pub ledger: LedgerArgs,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub ledger: LedgerArgs,
    /// Create the ledger where there is none
    #[arg(long)]
    pub create: bool,
    #[command(flatten)]
    pub key: KeyArgs,
    /// A few words for people, shown by show and list [default: the parts of --key, or the tool]
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    /// The longest the claim is held; after it the claim is uncertain [default: until the program ends]
    #[arg(long, value_name = "DURATION", value_parser = duration::positive)]
    pub lease: Option<Duration>,
    /// How long the output is kept, or `forever` [default: 7d]
    #[arg(long, value_name = "DURATION", value_parser = duration::keep)]
    pub keep: Option<Keep>,
    /// How long the key is remembered, or `forever` [default: 90d]
    #[arg(long, value_name = "DURATION", value_parser = duration::remember)]
    pub remember: Option<Keep>,
    /// What may happen to an uncertain claim: hold, or resend=DURATION (run again within DURATION of
    /// the first attempt)
    #[arg(long, value_name = "RULE", default_value = "hold", value_parser = recovery)]
    pub recovery: Recovery,
    /// Wait this long for somebody who runs the action now
    #[arg(long, value_name = "DURATION", value_parser = duration::duration)]
    pub wait: Option<Duration>,
    /// Run only under an approval of --args, which the run spends. Where none was asked for, ask and
    /// exit with 77
    #[arg(long)]
    pub approval: bool,
    /// How long an approval that is asked for is valid [default: 24h]
    #[arg(long, value_name = "DURATION", requires = "approval", value_parser = duration::positive)]
    pub approval_valid: Option<Duration>,
    /// Ask anew where the last request was denied, has expired or was spent
    #[arg(long, requires = "approval")]
    pub ask_again: bool,
    /// Exit codes with which the program certainly had no effect: the key is free again
    #[arg(long, value_name = "CODES", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(1..=255))]
    pub not_applied: Vec<i32>,
    /// Exit codes with which the program failed for good: stored and repeated
    #[arg(long = "final", value_name = "CODES", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(1..=255))]
    pub final_codes: Vec<i32>,
    /// The program and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct CallsArgs {
    /// JSON Lines of tool calls or provider messages, or a whole transcript; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub ledger: LedgerArgs,
    /// Create the ledger where there is none
    #[arg(long)]
    pub create: bool,
    /// The run that the calls belong to
    #[arg(long, value_name = "ID")]
    pub run: String,
    /// The tool book: what each tool is, and its command
    #[arg(long, value_name = "FILE")]
    pub tools: PathBuf,
    /// Whose actions these are
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub scope: String,
    /// How many commands may run at once
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: u16,
}

/// A key that is there already: by its digits, or derived.
#[derive(Debug, Args)]
pub struct KeyedArgs {
    /// The key: 64 hex digits; or use --key or --tool
    #[arg(value_name = "KEY", conflicts_with_all = ["parts", "tool", "arguments"])]
    pub digits: Option<String>,
    #[command(flatten)]
    pub key: KeyArgs,
    #[command(flatten)]
    pub ledger: LedgerArgs,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub ledger: LedgerArgs,
    /// vacant, in_progress, done, failed or uncertain [default: all of them]
    #[arg(long, value_name = "STANDING", value_parser = standing)]
    pub standing: Option<Standing>,
    /// At most this many keys of each standing [default: all]
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<usize>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("verdict").required(true).args(["done", "failed", "not_done"]))]
pub struct ResolveArgs {
    /// The key: 64 hex digits; or use --key or --tool
    #[arg(value_name = "KEY", conflicts_with_all = ["parts", "tool", "arguments"])]
    pub digits: Option<String>,
    #[command(flatten)]
    pub key: KeyArgs,
    #[command(flatten)]
    pub ledger: LedgerArgs,
    /// The token of the claim in doubt, as show and run print it
    #[arg(long, value_name = "NUMBER")]
    pub token: u64,
    /// The action happened
    #[arg(long)]
    pub done: bool,
    /// The action failed for good
    #[arg(long)]
    pub failed: bool,
    /// The action certainly did not happen: the key is free again
    #[arg(long)]
    pub not_done: bool,
    /// A file with what the action returned
    #[arg(long, value_name = "FILE", conflicts_with = "not_done")]
    pub outcome: Option<PathBuf>,
    /// Who decides
    #[arg(long, value_name = "WHO")]
    pub by: String,
    /// Why
    #[arg(long, value_name = "WHY")]
    pub why: String,
    /// Decide a claim that is in progress too
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct KeyCommandArgs {
    #[command(flatten)]
    pub key: KeyArgs,
    /// The effect that the downstream names are for; `run` uses the empty one
    #[arg(long, value_name = "LABEL", default_value = "")]
    pub effect: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SweepArgs {
    #[command(flatten)]
    pub ledger: LedgerArgs,
    /// At most this many keys [default: all that are due]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
}

#[derive(Debug, Args)]
pub struct AdoptArgs {
    #[command(flatten)]
    pub ledger: LedgerArgs,
    /// Who decides
    #[arg(long, value_name = "WHO")]
    pub by: String,
    /// Why
    #[arg(long, value_name = "WHY")]
    pub why: String,
}

fn standing(text: &str) -> Result<Standing, String> {
    text.parse().map_err(|error: onceledger::Error| error.to_string())
}

fn recovery(text: &str) -> Result<Recovery, String> {
    match (text, text.strip_prefix("resend=")) {
        ("hold", _) => Ok(Recovery::Hold),
        (_, Some(window)) => Ok(Recovery::Resend { window: duration::positive(window)? }),
        (_, None) => Err(format!("{text:?} is not a recovery rule; use hold or resend=DURATION")),
    }
}
