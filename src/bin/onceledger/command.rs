//! The command of one tool call: arguments in on standard input, the result out on standard output.

use std::io::{ErrorKind, Stderr, Stdout, Write};
use std::process::{Child, Command, ExitStatus, Stdio};

use onceledger::canonical::Value;
use onceledger::tool::{Class, Permit, Shell};
use onceledger::{EffectError, Ledger, Outcome};

use crate::exit;
use crate::pause;
use crate::program::{STORED_BYTES_MAX, signal};
use crate::tap::{Captured, Tap};

/// The longest text that fits one environment variable everywhere, with room to spare.
const ARGS_BYTES_MAX: usize = 96 << 10;

/// Words of a command about a failure, at most, in bytes.
const WORDS_BYTES_MAX: usize = 4 << 10;

/// One stream of a command that is read, at most, in bytes.
const STREAM_BYTES_MAX: usize = 16 << 20;

/// What a command did besides its result.
#[derive(Debug, Default)]
pub struct Ran {
    pub started: bool,
    /// Its exit code, or the one that says that it was not started.
    pub code: Option<i32>,
    pub stderr: Vec<u8>,
}

/// Runs a tool's command to its end.
pub fn run(
    class: Class,
    shell: Option<&Shell>,
    permit: &Permit,
    ledger: &Ledger,
    ran: &mut Ran,
) -> Result<Outcome, EffectError> {
    let Some(shell) = shell.filter(|shell| !shell.command.is_empty()) else {
        ran.code = Some(exit::NOT_STARTED);
        return Err(EffectError::not_applied(format!("the tool book has no command for {}", permit.tool())));
    };
    let arguments = permit.arguments().to_canonical();
    pause::at("before-spawn");
    let mut child = match start(shell, permit, &arguments, class, ledger) {
        Ok(child) => child,
        Err(why) => {
            let not_found = why.kind() == ErrorKind::NotFound;
            ran.code = Some(if not_found { exit::NOT_FOUND } else { exit::NOT_STARTED });
            let name = shell.command.first().map(String::as_str).unwrap_or_default();
            return Err(EffectError::not_applied(format!("the program {name} could not be started: {why}")));
        }
    };
    ran.started = true;
    let (status, stdout, stderr) =
        watch(&mut child, arguments).map_err(|error| EffectError::unknown(format!("watching the command: {error}")))?;
    pause::at("after-exit");
    ran.code = status.code();
    ran.stderr = stderr.unwrap_or_else(|| b"(more than 16 MiB on stderr)\n".to_vec());
    match status.code() {
        Some(0) => Ok(result(stdout)),
        Some(code) if shell.final_codes.contains(&code) => Err(EffectError::final_failure(failure(code, stdout, ran))),
        Some(code) if shell.not_applied.contains(&code) => Err(EffectError::not_applied(words(status, ran))),
        _ => Err(EffectError::unknown(words(status, ran))),
    }
}

fn start(shell: &Shell, permit: &Permit, arguments: &str, class: Class, ledger: &Ledger) -> std::io::Result<Child> {
    let (name, rest) = shell.command.split_first().ok_or(ErrorKind::NotFound)?;
    let downstream = permit.downstream("");
    let mut command = Command::new(name);
    command
        .args(rest)
        .env("ONCELEDGER_KEY", permit.key().to_hex())
        .env("ONCELEDGER_ATTEMPT", permit.attempt().to_string())
        .env("ONCELEDGER_DOWNSTREAM_HEX", downstream.as_hex())
        .env("ONCELEDGER_DOWNSTREAM_BASE64URL", downstream.as_base64url())
        .env("ONCELEDGER_DOWNSTREAM_UUID", downstream.as_uuid())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    match permit.token() {
        Some(token) => command.env("ONCELEDGER_TOKEN", token.to_string()),
        None => command.env_remove("ONCELEDGER_TOKEN"),
    };
    if arguments.len() <= ARGS_BYTES_MAX {
        command.env("ONCELEDGER_ARGS", arguments);
    } else {
        command.env_remove("ONCELEDGER_ARGS");
    }
    // While this lives, what is started shares the session's lock: should `calls` be killed, the claim
    // stays in progress until the command has ended.
    let _shared = match class {
        Class::Effect => ledger.inheritable().map_err(std::io::Error::other)?,
        Class::Read | Class::Idempotent => None,
    };
    command.spawn()
}

/// Gives a command its arguments, and takes its output until it has exited.
fn watch(child: &mut Child, arguments: String) -> std::io::Result<(ExitStatus, Captured, Captured)> {
    let piped = || std::io::Error::from(ErrorKind::BrokenPipe);
    let mut stdin = child.stdin.take().ok_or_else(piped)?;
    let out = Tap::start(child.stdout.take().ok_or_else(piped)?, None::<Stdout>, STREAM_BYTES_MAX)?;
    let err = Tap::start(child.stderr.take().ok_or_else(piped)?, None::<Stderr>, STREAM_BYTES_MAX)?;
    std::thread::Builder::new().spawn(move || {
        // A command that does not read its arguments is free not to.
        let _ = stdin.write_all(arguments.as_bytes());
    })?;
    let status = child.wait()?;
    Ok((status, out.take(), err.take()))
}

/// What a command wrote is its result: JSON where it parses as JSON, else text, else bytes.
fn result(stdout: Captured) -> Outcome {
    let Some(bytes) = stdout else {
        return Outcome::text("the command succeeded; its output was over 16 MiB and was not kept");
    };
    match String::from_utf8(bytes) {
        Ok(text) if Value::parse(&text).is_ok() => Outcome::json(text),
        Ok(text) => Outcome::text(text),
        Err(error) => Outcome::binary(error.into_bytes()),
    }
}

/// The result of a final failure: its output, or else what it said on stderr.
fn failure(code: i32, stdout: Captured, ran: &Ran) -> Outcome {
    match stdout {
        None => {
            return Outcome::text(format!("exit code {code}; the command's output was over 16 MiB and was not kept"));
        }
        Some(bytes) if !bytes.trim_ascii().is_empty() => return result(Some(bytes)),
        Some(_) => {}
    }
    match tail(&ran.stderr) {
        said if said.is_empty() => Outcome::text(format!("exit code {code}")),
        said => Outcome::text(said),
    }
}

fn words(status: ExitStatus, ran: &Ran) -> String {
    let ended = match (status.code(), signal(status)) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no exit code".to_owned(),
    };
    match tail(&ran.stderr) {
        said if said.is_empty() => ended,
        said => format!("{ended}: {said}"),
    }
}

/// The end of what was said.
fn tail(said: &[u8]) -> String {
    let said = said.trim_ascii();
    let from = said.len().saturating_sub(WORDS_BYTES_MAX);
    String::from_utf8_lossy(said.get(from..).unwrap_or_default()).into_owned()
}

/// The ledger's own limit for an outcome, as `run` has it.
pub fn options(lock_wait: std::time::Duration) -> onceledger::Options {
    onceledger::Options::new().lock_wait(lock_wait).outcome_bytes_max(STORED_BYTES_MAX)
}
