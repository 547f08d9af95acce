//! Exit codes, and failures that carry one.

use onceledger::{Error, ErrorKind};

/// The command did what it was asked.
pub const DONE: i32 = 0;
/// Bad usage or bad input: nothing was written.
pub const USAGE: i32 = 64;
/// Other arguments or another decision stand there.
pub const MISMATCH: i32 = 65;
/// The ledger was refused, or its storage failed.
pub const REFUSED: i32 = 69;
/// Somebody runs the action now.
pub const IN_PROGRESS: i32 = 75;
/// Nobody knows whether the action happened.
pub const UNCERTAIN: i32 = 76;
/// There is no such cell.
pub const NO_CELL: i32 = 66;
/// The action needs an approval that is not there to be spent.
pub const NOT_APPROVED: i32 = 77;
/// The program was found but could not be started.
pub const NOT_STARTED: i32 = 126;
/// The program was not found.
pub const NOT_FOUND: i32 = 127;

/// The table of `--help`. `docs/CLI.md` holds the same.
pub const TABLE: &str = "\
Exit codes:
    0   done, now or before; for commands other than `run`: the command did its work
    N   `run`, `calls`: the program's own code where --final or --not-applied names it, now or (final) before
   64   bad usage or bad input; nothing was written
   65   mismatch (the key stands with other arguments), or stale (another decision or version stands)
   66   `cell get`: there is no such cell
   69   the ledger was refused (missing, held by another process, damaged, read-only) or its storage failed
   75   in progress: somebody runs the action now
   76   uncertain: nobody knows whether the action happened; `run` prints the resolve command
   77   `run --approval`, `calls`: not approved (asked for now, pending, denied, expired or spent); nothing was run
  126   the program could not be started; the key is free again
  127   the program was not found; the key is free again

`calls` exits with 64 where a line was broken, or else with the gravest of its answers: 69, 76, 65, 64,
75, 77, 127, 126, N (1 where a repeat has no stored code), 0. It may have run the other calls.

`run` stopped by a signal before the program began gives the key back and ends by that signal.";

/// Why a command failed, and the exit code that says so.
#[derive(Debug)]
pub struct Failure {
    pub code: i32,
    /// A short, stable name for scripts.
    pub kind: &'static str,
    /// What failed, on what, and what to do next.
    pub message: String,
}

impl Failure {
    pub fn usage(message: impl Into<String>) -> Self {
        Failure { code: USAGE, kind: ErrorKind::BadInput.name(), message: message.into() }
    }

    pub fn stale(message: impl Into<String>) -> Self {
        Failure { code: MISMATCH, kind: "stale", message: message.into() }
    }

    pub fn io(doing: &str, error: &std::io::Error) -> Self {
        Failure { code: REFUSED, kind: "storage", message: format!("{doing}: {error}") }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::BadInput => USAGE,
            _ => REFUSED,
        };
        Failure { code, kind: error.kind().name(), message: error.to_string() }
    }
}
