//! The program that `run` runs: started with the session's lock, watched, and its output captured.

use std::ffi::OsString;
use std::io::{stderr, stdout};
use std::process::{Command, ExitStatus, Stdio};

use onceledger::{Outcome, Ticket};
use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::output::Bytes;
use crate::pause;
use crate::signals::Signals;
use crate::tap::{Captured, Tap};

/// Output that is stored, at most, in bytes: the ledger's own limit for an outcome.
pub const STORED_BYTES_MAX: usize = 1 << 20;

/// Output of one stream that `--json` holds for its object, at most, in bytes.
const OBJECT_BYTES_MAX: usize = 64 << 20;

/// How an attempt to run the program ended.
pub enum Ran {
    Ended(Ended),
    /// It was not started: the reason, and whether it was not found.
    NotStarted {
        why: String,
        not_found: bool,
    },
    /// A signal came before it was started.
    Stopped,
}

/// A program that has exited.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; `None` where a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: Captured,
    pub stderr: Captured,
    taps: [Tap; 2],
}

/// What is stored of a program that has exited.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    pub exit_code: i32,
    pub stdout: Bytes,
    pub stderr: Bytes,
}

/// Runs the program. `quiet`: its output is captured only.
pub fn run(program: &[OsString], ticket: &Ticket, signals: &Signals, quiet: bool) -> Result<Ran, Failure> {
    let mut command = command(program, ticket);
    pause::at("before-spawn");
    let not_started = |error: &dyn std::fmt::Display, not_found| {
        let name = program.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Ran::NotStarted { why: format!("the program {name} could not be started: {error}"), not_found })
    };
    // While this lives, what is started shares the session's lock.
    let shared = match ticket.inheritable() {
        Ok(shared) => shared,
        Err(error) => return not_started(&error, false),
    };
    let started = signals.spawn(&mut command);
    drop(shared);
    let mut child = match started {
        Ok(Some(child)) => child,
        Ok(None) => return Ok(Ran::Stopped),
        Err(error) => return not_started(&error, error.kind() == std::io::ErrorKind::NotFound),
    };
    pause::at("after-spawn");
    let limit = if quiet { OBJECT_BYTES_MAX } else { STORED_BYTES_MAX };
    let doing = |error| Failure::io("reading the program's output", &error);
    let out = Tap::start(pipe(child.stdout.take())?, (!quiet).then(stdout), limit).map_err(doing)?;
    let err = Tap::start(pipe(child.stderr.take())?, (!quiet).then(stderr), limit).map_err(doing)?;
    let status = signals.wait(&mut child).map_err(|error| Failure::io("waiting for the program", &error))?;
    pause::at("after-exit");
    Ok(Ran::Ended(Ended {
        code: status.code(),
        signal: signal(status),
        stdout: out.take(),
        stderr: err.take(),
        taps: [out, err],
    }))
}

fn command(program: &[OsString], ticket: &Ticket) -> Command {
    let (name, arguments) =
        program.split_first().map_or((OsString::new(), &[][..]), |(name, rest)| (name.clone(), rest));
    let downstream = ticket.downstream("");
    let mut command = Command::new(name);
    command
        .args(arguments)
        .env("ONCELEDGER_KEY", ticket.key().to_hex())
        .env("ONCELEDGER_TOKEN", ticket.token().to_string())
        .env("ONCELEDGER_ATTEMPT", ticket.attempt().to_string())
        .env("ONCELEDGER_DOWNSTREAM_HEX", downstream.as_hex())
        .env("ONCELEDGER_DOWNSTREAM_BASE64URL", downstream.as_base64url())
        .env("ONCELEDGER_DOWNSTREAM_UUID", downstream.as_uuid())
        .stdin(Stdio::inherit())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn pipe<P>(pipe: Option<P>) -> Result<P, Failure> {
    pipe.ok_or_else(|| Failure::io("reading the program's output", &std::io::ErrorKind::BrokenPipe.into()))
}

#[cfg(unix)]
pub fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
pub fn signal(_status: ExitStatus) -> Option<i32> {
    None
}

impl Ended {
    /// Waits until all that was taken of the output has been passed on.
    pub fn flush(self) {
        for tap in self.taps {
            tap.finish();
        }
    }

    /// How it ended, in words.
    pub fn words(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no exit code".to_owned(),
        }
    }

    /// The outcome to store. Where the output is over the limit, one that is over the limit too: the
    /// ledger then records that it is not kept.
    pub fn outcome(&self) -> Outcome {
        let output = match (&self.stdout, &self.stderr, self.code) {
            (Some(stdout), Some(stderr), Some(exit_code)) if stdout.len() + stderr.len() <= STORED_BYTES_MAX => {
                serde_json::to_string(&Output { exit_code, stdout: Bytes::new(stdout), stderr: Bytes::new(stderr) })
                    .ok()
            }
            _ => None,
        };
        Outcome::json(output.unwrap_or_else(|| " ".repeat(STORED_BYTES_MAX + 1)))
    }
}
