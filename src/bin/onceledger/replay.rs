//! A stored outcome, given again.

use std::io::Write;

use onceledger::{Detail, Kind, Stored};

use crate::exit;
use crate::exit::Failure;
use crate::output;
use crate::program::Output;

/// What a repeat prints, and how it exits.
#[derive(Debug, Default)]
pub struct Replay {
    pub code: i32,
    /// `None` where it is not kept, or no program wrote it.
    pub stdout: Option<Vec<u8>>,
    pub stderr: Option<Vec<u8>>,
}

impl Replay {
    /// Of an outcome that a program left, its output; of any other, the body as stdout. Without a
    /// stored exit code, done is 0 and failed is 1.
    pub fn new(detail: &Detail, stored: &Stored, failed: bool) -> Self {
        let code = detail.exit_code.unwrap_or(if failed { 1 } else { exit::DONE });
        let Some(outcome) = stored.outcome() else { return Replay { code, ..Replay::default() } };
        let output = (detail.exit_code.is_some() && outcome.kind() == Kind::Json)
            .then(|| serde_json::from_slice::<Output>(outcome.body()).ok())
            .flatten();
        let streams = output.and_then(|output| Some((output.stdout.decode()?, output.stderr.decode()?)));
        let (stdout, stderr) = streams.unwrap_or_else(|| (outcome.body().to_vec(), Vec::new()));
        Replay { code, stdout: Some(stdout), stderr: Some(stderr) }
    }

    /// Prints both streams.
    pub fn print(&self) -> Result<(), Failure> {
        // With stderr closed there is nobody to read it.
        let _ = std::io::stderr().write_all(self.stderr.as_deref().unwrap_or_default());
        output::bytes(self.stdout.as_deref().unwrap_or_default())
    }
}
