//! The commands that look and change nothing: `show`, `list`, `history`, `stats`, `key`.

use onceledger::{Adoption, Detail, Ledger, Options, Past, Standing, Stats};
use serde::Serialize;

use crate::args::{KeyCommandArgs, KeyedArgs, LedgerArgs, ListArgs, PlainArgs};
use crate::exit::{DONE, Failure};
use crate::keys::Named;
use crate::output::{self, KeyLine, OutcomeLine};

/// Opens a ledger for one look. Without threads: a command is over before they would do anything.
pub fn open(ledger: &LedgerArgs) -> Result<Ledger, Failure> {
    Ok(Options::new().threads(false).lock_wait(ledger.lock_wait).open(&ledger.path)?)
}

pub fn show(args: &KeyedArgs) -> Result<i32, Failure> {
    let key = Named::find(args.digits.as_deref(), &args.key)?;
    let ledger = open(&args.ledger)?;
    let line = ledger.show(&key)?.as_ref().map_or_else(|| KeyLine::vacant(&key), KeyLine::new);
    output::close(ledger);
    if args.ledger.json {
        output::object(&line)?;
    } else {
        output::table(&[], rows(&line))?;
    }
    Ok(DONE)
}

/// A key, one field a row.
fn rows(line: &KeyLine) -> Vec<Vec<String>> {
    let mut rows = vec![
        ("key", Some(line.key.clone())),
        ("standing", Some(line.standing.to_owned())),
        ("reason", line.reason.map(str::to_owned)),
        ("token", line.token.map(|token| token.to_string())),
        ("attempt", Some(line.attempt.to_string())),
        ("since", line.since_ms.map(output::time)),
        ("process", line.pid.map(|pid| pid.to_string())),
        ("lease left", line.lease_left_ms.map(|left| format!("{left} ms"))),
        ("scope", Some(line.scope.clone())),
        ("label", Some(line.label.clone())),
        ("fingerprint", line.fingerprint.clone()),
        ("args", line.args.clone()),
        ("recovery", line.recovery.map(str::to_owned)),
        ("exit code", line.exit_code.map(|code| code.to_string())),
    ];
    if let Some(outcome) = &line.outcome {
        let error = if outcome.error { ", error" } else { "" };
        let kept = if outcome.kept { "" } else { ", not kept" };
        rows.push(("outcome", Some(format!("{}{error}{kept}", outcome.kind))));
        rows.push(("body", outcome.body.clone().map(shown)));
    }
    rows.into_iter().filter_map(|(name, value)| Some(vec![name.to_owned(), value?])).collect()
}

fn shown(body: output::Bytes) -> String {
    match body {
        output::Bytes::Text(text) => text,
        output::Bytes::Other(encoded) => format!("base64 {}", encoded.base64),
    }
}

/// The beginning of an outcome, for a cell of a table.
fn beginning(outcome: OutcomeLine) -> String {
    const CHARS_MAX: usize = 60;
    let Some(body) = outcome.body else { return "not kept".to_owned() };
    let text = shown(body);
    match text.char_indices().nth(CHARS_MAX) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.trim_end().to_owned(),
    }
}

pub fn list(args: &ListArgs) -> Result<i32, Failure> {
    let ledger = open(&args.ledger)?;
    if !args.ledger.json {
        let mut found = Vec::new();
        each(&ledger, args, |detail| {
            found.push(row(&KeyLine::new(detail)));
            Ok(())
        })?;
        output::close(ledger);
        output::table(&["KEY", "STANDING", "TOKEN", "ATTEMPT", "SINCE", "SCOPE", "LABEL"], found)?;
        return Ok(DONE);
    }
    each(&ledger, args, |detail| output::object(&KeyLine::new(detail)))?;
    output::close(ledger);
    Ok(DONE)
}

fn row(line: &KeyLine) -> Vec<String> {
    vec![
        line.key.clone(),
        line.standing.to_owned(),
        line.token.map(|token| token.to_string()).unwrap_or_default(),
        line.attempt.to_string(),
        line.since_ms.map(output::time).unwrap_or_default(),
        line.scope.clone(),
        line.label.clone(),
    ]
}

/// Goes through the keys of a standing, or of all, page by page.
fn each(ledger: &Ledger, args: &ListArgs, mut see: impl FnMut(&Detail) -> Result<(), Failure>) -> Result<(), Failure> {
    const PAGE: usize = 256;
    for standing in Standing::ALL.into_iter().filter(|standing| args.standing.is_none_or(|only| only == *standing)) {
        let mut left = args.limit.unwrap_or(usize::MAX);
        let mut after = None;
        while left > 0 {
            let page = ledger.list(standing, after.as_ref(), left.min(PAGE))?;
            left = left.saturating_sub(page.keys.len());
            page.keys.iter().try_for_each(&mut see)?;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(())
}

/// One line of `history`.
#[derive(Debug, Serialize)]
struct PastLine {
    token: u64,
    event: &'static str,
    at_ms: u64,
    by: String,
    why: String,
    exit_code: Option<i32>,
    outcome: Option<OutcomeLine>,
}

impl PastLine {
    fn new(past: &Past) -> Self {
        PastLine {
            token: past.token.get(),
            event: past.what.name(),
            at_ms: past.at_ms,
            by: past.by.clone(),
            why: past.why.clone(),
            exit_code: past.exit_code,
            outcome: past.outcome.as_ref().map(OutcomeLine::new),
        }
    }

    fn row(self) -> Vec<String> {
        let exit_code = self.exit_code.map(|code| code.to_string()).unwrap_or_default();
        let outcome = self.outcome.map(beginning).unwrap_or_default();
        let at = output::time(self.at_ms);
        vec![self.token.to_string(), self.event.to_owned(), at, exit_code, self.by, self.why, outcome]
    }
}

pub fn history(args: &KeyedArgs) -> Result<i32, Failure> {
    let key = Named::find(args.digits.as_deref(), &args.key)?;
    let ledger = open(&args.ledger)?;
    let lines: Vec<PastLine> = ledger.history(&key)?.iter().map(PastLine::new).collect();
    output::close(ledger);
    if args.ledger.json {
        lines.iter().try_for_each(output::object)?;
    } else {
        output::table(&["TOKEN", "EVENT", "AT", "EXIT", "BY", "WHY", "OUTCOME"], lines.into_iter().map(PastLine::row))?;
    }
    Ok(DONE)
}

/// Who adopted the file.
#[derive(Debug, Serialize)]
struct AdoptionLine {
    epoch: u64,
    at_ms: u64,
    by: String,
    why: String,
}

impl AdoptionLine {
    fn new(adoption: &Adoption) -> Self {
        let Adoption { epoch, at_ms, by, why, .. } = adoption;
        AdoptionLine { epoch: *epoch, at_ms: *at_ms, by: by.clone(), why: why.clone() }
    }
}

/// What `stats` prints.
#[derive(Debug, Serialize)]
struct StatsLine {
    vacant: u64,
    in_progress: u64,
    done: u64,
    failed: u64,
    uncertain: u64,
    rows: u64,
    garbage_rows: u64,
    next_sequence: u64,
    epoch: u64,
    adoptions: Vec<AdoptionLine>,
    file_bytes: u64,
    early_ahead_ms: i64,
    late_ahead_ms: i64,
}

impl StatsLine {
    fn new(stats: &Stats) -> Self {
        StatsLine {
            vacant: stats.vacant,
            in_progress: stats.in_progress,
            done: stats.done,
            failed: stats.failed,
            uncertain: stats.uncertain,
            rows: stats.rows,
            garbage_rows: stats.garbage_rows,
            next_sequence: stats.next_sequence,
            epoch: stats.epoch,
            adoptions: stats.adoptions.iter().map(AdoptionLine::new).collect(),
            file_bytes: stats.file_bytes,
            early_ahead_ms: stats.early_ahead_ms,
            late_ahead_ms: stats.late_ahead_ms,
        }
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let rows = [
            ("vacant", self.vacant.to_string()),
            ("in_progress", self.in_progress.to_string()),
            ("done", self.done.to_string()),
            ("failed", self.failed.to_string()),
            ("uncertain", self.uncertain.to_string()),
            ("rows of the log", self.rows.to_string()),
            ("of them garbage", self.garbage_rows.to_string()),
            ("next sequence", self.next_sequence.to_string()),
            ("epoch", self.epoch.to_string()),
            ("file", format!("{} bytes", self.file_bytes)),
            ("lease time ahead of the wall", format!("{} ms", self.early_ahead_ms)),
            ("retention time ahead of the wall", format!("{} ms", self.late_ahead_ms)),
        ];
        let adopted = self.adoptions.iter().map(|adoption| {
            let AdoptionLine { epoch, at_ms, by, why } = adoption;
            (format!("epoch {epoch}"), format!("adopted at {} by {by}: {why}", output::time(*at_ms)))
        });
        let rows = rows.into_iter().map(|(name, value)| (name.to_owned(), value));
        rows.chain(adopted).map(|(name, value)| vec![name, value]).collect()
    }
}

pub fn stats(args: &PlainArgs) -> Result<i32, Failure> {
    let ledger = open(&args.ledger)?;
    let line = StatsLine::new(&ledger.stats()?);
    output::close(ledger);
    if args.ledger.json {
        output::object(&line)?;
    } else {
        output::table(&[], line.rows())?;
    }
    Ok(DONE)
}

/// What `key` prints.
#[derive(Debug, Serialize)]
struct KeyForms {
    key: String,
    fingerprint: String,
    args: Option<String>,
    scope: String,
    label: String,
    downstream: DownstreamForms,
}

#[derive(Debug, Serialize)]
struct DownstreamForms {
    hex: String,
    base64url: String,
    uuid: String,
}

pub fn key(args: &KeyCommandArgs) -> Result<i32, Failure> {
    let named = Named::from_args(&args.key)?;
    let downstream = named.key.downstream(&args.effect);
    let forms = KeyForms {
        key: named.key.to_hex(),
        fingerprint: named.claim().fingerprint().to_hex(),
        args: named.selection.map(|selection| selection.args_digest().to_hex()),
        scope: named.key.scope().unwrap_or_default().to_owned(),
        label: named.key.action_name().unwrap_or_default().to_owned(),
        downstream: DownstreamForms {
            hex: downstream.as_hex(),
            base64url: downstream.as_base64url(),
            uuid: downstream.as_uuid(),
        },
    };
    if args.json {
        output::object(&forms)?;
        return Ok(DONE);
    }
    let rows = [
        ("key", Some(forms.key)),
        ("fingerprint", Some(forms.fingerprint)),
        ("args", forms.args),
        ("scope", Some(forms.scope)),
        ("label", Some(forms.label)),
        ("downstream.hex", Some(forms.downstream.hex)),
        ("downstream.base64url", Some(forms.downstream.base64url)),
        ("downstream.uuid", Some(forms.downstream.uuid)),
    ];
    output::table(&[], rows.into_iter().filter_map(|(name, value)| Some(vec![name.to_owned(), value?])))?;
    Ok(DONE)
}
