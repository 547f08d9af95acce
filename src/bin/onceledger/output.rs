//! What is printed: JSON objects with stable field names, tables for people, and bytes.
//!
//! A closed stdout ends nothing: whoever stopped reading has what they wanted. Any other failure to
//! write is a failure of the command.

use std::io::{ErrorKind, Write};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use comfy_table::{Table, presets};
use onceledger::{ApprovalId, Detail, FencingToken, Key, Outcome, Stored, View};
use serde::{Deserialize, Serialize};

use crate::exit::Failure;

/// Text as it is; other bytes as `{"base64": ...}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Bytes {
    Text(String),
    Other(Encoded),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encoded {
    pub base64: String,
}

impl Bytes {
    pub fn new(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Bytes::Text(text.to_owned()),
            Err(_) => Bytes::Other(Encoded { base64: STANDARD.encode(bytes) }),
        }
    }

    /// The bytes again; `None` where the base64 is none.
    pub fn decode(self) -> Option<Vec<u8>> {
        match self {
            Bytes::Text(text) => Some(text.into_bytes()),
            Bytes::Other(encoded) => STANDARD.decode(encoded.base64).ok(),
        }
    }
}

/// An outcome, kept or not.
#[derive(Clone, Debug, Serialize)]
pub struct OutcomeLine {
    pub kind: &'static str,
    pub error: bool,
    pub body: Option<Bytes>,
    pub kept: bool,
}

impl OutcomeLine {
    pub fn new(stored: &Stored) -> Self {
        OutcomeLine {
            kind: stored.kind().name(),
            error: stored.is_error(),
            body: stored.outcome().map(|outcome| Bytes::new(outcome.body())),
            kept: stored.outcome().is_some(),
        }
    }

    pub fn kept(outcome: &Outcome) -> Self {
        OutcomeLine::new(&Stored::Kept(outcome.clone()))
    }
}

/// A key, as `show`, `list` and `run` print it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KeyLine {
    pub key: String,
    pub standing: &'static str,
    pub token: Option<u64>,
    pub attempt: u32,
    pub since_ms: Option<u64>,
    pub scope: String,
    pub label: String,
    pub fingerprint: Option<String>,
    pub args: Option<String>,
    pub recovery: Option<&'static str>,
    pub outcome: Option<OutcomeLine>,
    pub exit_code: Option<i32>,
    /// Why it is uncertain.
    pub reason: Option<&'static str>,
    /// The process that runs it.
    pub pid: Option<u32>,
    pub lease_left_ms: Option<u64>,
}

impl KeyLine {
    pub fn new(detail: &Detail) -> Self {
        let mut line = KeyLine {
            key: detail.key.to_hex(),
            standing: detail.view.standing().name(),
            token: Some(detail.token.get()),
            attempt: detail.attempt,
            since_ms: Some(detail.since_ms),
            scope: detail.scope.clone(),
            label: detail.label.clone(),
            fingerprint: Some(detail.fingerprint.to_hex()),
            args: detail.args.map(|args| args.to_hex()),
            recovery: Some(detail.recovery),
            exit_code: detail.exit_code,
            ..KeyLine::default()
        };
        match &detail.view {
            View::Done(stored) | View::Failed(stored) => line.outcome = Some(OutcomeLine::new(stored)),
            View::Uncertain(doubt) => line.reason = Some(doubt.reason.name()),
            View::InProgress(holder) => {
                line.pid = holder.pid;
                line.lease_left_ms = holder.lease_left.and_then(|left| u64::try_from(left.as_millis()).ok());
            }
            _ => {}
        }
        line
    }

    /// A key of which nothing is known.
    pub fn vacant(key: &Key) -> Self {
        KeyLine {
            key: key.to_hex(),
            standing: onceledger::Standing::Vacant.name(),
            scope: key.scope().unwrap_or_default().to_owned(),
            label: key.action_name().unwrap_or_default().to_owned(),
            ..KeyLine::default()
        }
    }
}

/// A failure, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct ErrorLine<'a> {
    error: ErrorFields<'a>,
}

#[derive(Debug, Serialize)]
struct ErrorFields<'a> {
    kind: &'a str,
    message: &'a str,
    exit_code: i32,
}

impl<'a> ErrorLine<'a> {
    pub fn new(failure: &'a Failure) -> Self {
        ErrorLine { error: ErrorFields { kind: failure.kind, message: &failure.message, exit_code: failure.code } }
    }
}

/// Writes bytes to stdout.
pub fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    tolerate(stdout.write_all(bytes).and_then(|()| stdout.flush()))
        .map_err(|error| Failure::io("writing to stdout", &error))
}

/// A closed pipe is no failure.
pub fn tolerate(written: std::io::Result<()>) -> std::io::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Prints one JSON object on one line.
pub fn object(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value);
    let text =
        text.map_err(|error| Failure { code: crate::exit::REFUSED, kind: "json", message: error.to_string() })?;
    bytes(format!("{text}\n").as_bytes())
}

/// Closes a ledger at the end of a command. What was told as recorded is on disk by then, also where the ledger has
/// closed itself since.
pub fn close(ledger: onceledger::Ledger) {
    if let Err(error) = ledger.close() {
        note(&format!("closing failed: {error}. What was told as recorded is on disk"));
    }
}

/// Prints a line for people on stderr.
pub fn note(text: &str) {
    // With stderr closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "onceledger: {text}");
}

/// Prints a table without lines.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Result<(), Failure> {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    if !head.is_empty() {
        table.set_header(head);
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| printable(cell)));
    }
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    bytes(text.as_bytes())
}

/// Text without control characters: what is stored must not steer a terminal.
pub fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if is_unseen(c) { c.escape_default().collect() } else { vec![c] }).collect()
}

/// Whether a character moves, hides or turns around what stands beside it in place of being seen: controls, and
/// Unicode's format characters and separators of lines.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A time for people, in UTC.
pub fn time(ms: u64) -> String {
    const DAY_S: u64 = 86_400;
    let seconds = ms / 1000;
    let (mut year, mut day) = (1970, seconds / DAY_S);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = |year| if leap(year) { 366 } else { 365 };
    const YEAR_MAX: u64 = 9999;
    while day >= days(year) {
        if year == YEAR_MAX {
            return format!("{ms} ms since 1970");
        }
        day -= days(year);
        year += 1;
    }
    let months = [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in months {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
}

/// The command that decides an uncertain claim, as one would type it but for the decision: pasted as it is, it is
/// refused.
pub fn resolve_command(ledger: &Path, key: &Key, token: FencingToken) -> String {
    format!(
        "onceledger resolve {} --ledger {} --token {token} --by WHO --why WHY DECISION   # --done, --failed or --not-done",
        key.to_hex(),
        whole(ledger)
    )
}

/// The command that says yes to a request, as one would type it.
pub fn approve_command(ledger: &Path, id: ApprovalId) -> String {
    format!("onceledger approve {id} --ledger {} --by WHO   # or: deny {id} ... --by WHO", whole(ledger))
}

/// The command that shows what happened to a key, evidence included.
pub fn history_command(ledger: &Path, key: &Key) -> String {
    format!("onceledger history {} --ledger {} --json", key.to_hex(), whole(ledger))
}

/// A ledger's path as a word for a shell; whole, so that it works from any folder.
fn whole(ledger: &Path) -> String {
    let whole = std::fs::canonicalize(ledger).unwrap_or_else(|_| ledger.to_owned());
    quoted(&whole.to_string_lossy())
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_764_435_661_999, "2025-11-29T17:01:01Z"),
            (4_102_444_799_000, "2099-12-31T23:59:59Z"),
            (u64::MAX, "18446744073709551615 ms since 1970"),
        ] {
            assert_eq!(time(ms), text);
        }
    }

    #[test]
    fn what_moves_or_hides_other_text_is_escaped() {
        for unseen in ['\u{1b}', '\n', '\u{9b}', '\u{202e}', '\u{2028}', '\u{200b}', '\u{feff}', '\u{e0041}'] {
            assert_eq!(printable(&format!("a{unseen}b")), format!("a{}b", unseen.escape_default()));
        }
        assert_eq!(printable("für 79 €, 済み"), "für 79 €, 済み");
    }

    #[test]
    fn bytes_come_back_as_they_went() {
        for bytes in [&b""[..], b"text\n", b"\xff\x00", "\u{feff}é".as_bytes()] {
            let text = serde_json::to_string(&Bytes::new(bytes)).unwrap();
            assert_eq!(serde_json::from_str::<Bytes>(&text).unwrap().decode().unwrap(), bytes);
        }
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("/tmp/a.redb"), "/tmp/a.redb");
        assert_eq!(quoted("it's here"), r"'it'\''s here'");
        assert_eq!(printable("a\u{1b}[2J\n"), "a\\u{1b}[2J\\n");
    }
}
