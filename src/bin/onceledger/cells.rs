//! The commands about cells: `cell get`, `cell set`, `cell delete`.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use onceledger::{Cell, Outcome, Refusal, Transacted, Transaction, Version};
use serde::Serialize;

use crate::args::LedgerArgs;
use crate::exit::{self, DONE, Failure};
use crate::output::{self, Bytes};
use crate::show::open;

#[derive(Debug, Subcommand)]
pub enum CellCommand {
    /// Print a cell's value
    Get(GetArgs),
    /// Write a cell
    Set(SetArgs),
    /// Delete a cell
    Delete(DeleteArgs),
}

impl CellCommand {
    pub fn is_json(&self) -> bool {
        match self {
            CellCommand::Get(args) => args.ledger.json,
            CellCommand::Set(args) => args.ledger.json,
            CellCommand::Delete(args) => args.ledger.json,
        }
    }
}

#[derive(Debug, Args)]
pub struct GetArgs {
    /// The cell's name
    pub name: String,
    #[command(flatten)]
    pub ledger: LedgerArgs,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("source").required(true).args(["value", "file"]))]
pub struct SetArgs {
    /// The cell's name
    pub name: String,
    /// The value; or use --file
    pub value: Option<String>,
    /// A file with the value; `-` is stdin
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// What must stand there now: a version, as get and set print it, or `absent`
    #[arg(long, value_name = "VERSION", value_parser = expectation)]
    pub expect: Expectation,
    #[command(flatten)]
    pub ledger: LedgerArgs,
}

#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// The cell's name
    pub name: String,
    /// What must stand there now: a version, as get and set print it
    #[arg(long, value_name = "VERSION", value_parser = expectation)]
    pub expect: Expectation,
    #[command(flatten)]
    pub ledger: LedgerArgs,
}

/// What is expected to stand: a version, or nothing.
#[derive(Clone, Copy, Debug)]
pub enum Expectation {
    Version(u64),
    Absent,
}

fn expectation(text: &str) -> Result<Expectation, String> {
    if text == "absent" {
        return Ok(Expectation::Absent);
    }
    let version = text.parse().map(Expectation::Version);
    version.map_err(|_| format!("{text:?} is neither a version nor `absent`; `cell get --json` prints the version"))
}

/// A cell, as `--json` prints it.
#[derive(Debug, Serialize)]
struct CellLine<'a> {
    name: &'a str,
    /// `null` where there is no such cell.
    version: Option<u64>,
    kind: Option<&'static str>,
    error: Option<bool>,
    value: Option<Bytes>,
}

impl<'a> CellLine<'a> {
    fn new(name: &'a str, version: Option<Version>, value: Option<&Outcome>) -> Self {
        CellLine {
            name,
            version: version.map(Version::get),
            kind: value.map(|value| value.kind().name()),
            error: value.map(Outcome::is_error),
            value: value.map(|value| Bytes::new(value.body())),
        }
    }
}

pub fn cell(command: &CellCommand) -> Result<i32, Failure> {
    match command {
        CellCommand::Get(args) => get(args),
        CellCommand::Set(args) => set(args),
        CellCommand::Delete(args) => delete(args),
    }
}

fn get(args: &GetArgs) -> Result<i32, Failure> {
    let ledger = open(&args.ledger)?;
    let cell = ledger.cell(&args.name)?;
    output::close(ledger);
    if args.ledger.json {
        let (version, value) = cell.as_ref().map(|cell| (cell.version, &cell.value)).unzip();
        output::object(&CellLine::new(&args.name, version, value))?;
    }
    match cell {
        Some(cell) if !args.ledger.json => output::bytes(cell.value.body()).map(|()| DONE),
        Some(_) => Ok(DONE),
        None => {
            output::note(&format!("there is no cell {:?}; write it with `cell set --expect absent`", args.name));
            Ok(exit::NO_CELL)
        }
    }
}

fn set(args: &SetArgs) -> Result<i32, Failure> {
    let value = match (&args.value, &args.file) {
        (Some(value), _) => Outcome::text(value),
        (None, Some(file)) => read(file)?,
        (None, None) => return Err(Failure::usage("no value is given; give it as an argument or with --file")),
    };
    change(&args.ledger, &args.name, args.expect, Some(&value))
}

fn delete(args: &DeleteArgs) -> Result<i32, Failure> {
    change(&args.ledger, &args.name, args.expect, None)
}

/// Writes a cell, or deletes it.
fn change(args: &LedgerArgs, name: &str, expect: Expectation, value: Option<&Outcome>) -> Result<i32, Failure> {
    let ledger = open(args)?;
    let expected = |transaction: Transaction| match expect {
        Expectation::Version(version) => transaction.expect_cell(name, Version::from_number(version)),
        Expectation::Absent => transaction.expect_absent(name),
    };
    let transaction = expected(ledger.transaction());
    let transaction = match value {
        Some(value) => transaction.set_cell(name, value.clone()),
        None => transaction.delete_cell(name),
    };
    let transacted = transaction.commit()?;
    output::close(ledger);
    let committed = match transacted {
        Transacted::Committed(committed) => committed,
        Transacted::Refused(refused) => return Err(stale(name, expect, &refused)),
    };
    let version = committed.versions.first().and_then(|(_, version)| *version);
    if args.json {
        output::object(&CellLine::new(name, version, value))?;
    } else if let Some(version) = version {
        output::bytes(format!("{version}\n").as_bytes())?;
    }
    Ok(DONE)
}

fn stale(name: &str, expect: Expectation, refused: &[Refusal]) -> Failure {
    let stands = refused.iter().find_map(|refusal| match refusal {
        Refusal::Cell { stands, .. } => stands.as_ref().map(|cell| cell.version),
        _ => None,
    });
    let stands = stands.map_or_else(|| "is not there".to_owned(), |version| format!("is at version {version}"));
    let wanted = match expect {
        Expectation::Version(version) => format!("version {version} was expected"),
        Expectation::Absent => "it was expected to be absent".to_owned(),
    };
    Failure::stale(format!(
        "cell {name:?} {stands} where {wanted}; nothing was written: look at it (`cell get --json`) and decide again"
    ))
}

/// Text where it is UTF-8, bytes where it is not. Reads no more than one byte over the limit, which the
/// ledger then refuses.
fn read(path: &Path) -> Result<Outcome, Failure> {
    let failed = |error: std::io::Error| {
        Failure::usage(format!("reading the value {}: {error}; give a file that can be read", path.display()))
    };
    let source: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(failed)?)
    };
    let mut bytes = Vec::new();
    source.take(Cell::VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(String::from_utf8(bytes).map_or_else(|error| Outcome::binary(error.into_bytes()), Outcome::text))
}
