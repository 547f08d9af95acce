//! The commands that change a ledger and run nothing: `init`, `resolve`, `sweep`, `verify`, `adopt`.

use onceledger::{Detail, FencingToken, Options, Outcome, Resolved, Stored, Swept, Verdict, View};
use serde::Serialize;

use crate::args::{AdoptArgs, InitArgs, LedgerArgs, PlainArgs, ResolveArgs, SweepArgs};
use crate::exit::{DONE, Failure};
use crate::keys::Named;
use crate::output::{self, KeyLine};
use crate::show::open;

/// Prints the object with `--json`, and a sentence without.
fn tell(ledger: &LedgerArgs, line: &impl Serialize, sentence: &str) -> Result<i32, Failure> {
    if ledger.json {
        output::object(line)?;
    } else {
        output::bytes(format!("{}\n", output::printable(sentence)).as_bytes())?;
    }
    Ok(DONE)
}

/// A ledger that was made or taken over.
#[derive(Debug, Serialize)]
struct FileLine {
    ledger: String,
    epoch: u64,
}

fn options(ledger: &LedgerArgs) -> Options {
    Options::new().threads(false).lock_wait(ledger.lock_wait)
}

pub fn init(args: &InitArgs) -> Result<i32, Failure> {
    let ledger = options(&args.ledger).create(&args.ledger.path)?;
    let epoch = ledger.stats()?.epoch;
    output::close(ledger);
    let path = args.ledger.path.display().to_string();
    tell(&args.ledger, &FileLine { ledger: path.clone(), epoch }, &format!("created {path}"))
}

pub fn adopt(args: &AdoptArgs) -> Result<i32, Failure> {
    let ledger = options(&args.ledger).adopt(&args.ledger.path, &args.by, &args.why)?;
    let epoch = ledger.stats()?.epoch;
    output::close(ledger);
    let path = args.ledger.path.display().to_string();
    let sentence = format!("adopted {path}: epoch {epoch}. Claims that only a newer copy knew may run again");
    tell(&args.ledger, &FileLine { ledger: path, epoch }, &sentence)
}

/// What `resolve` prints: the key as it stands after it.
#[derive(Debug, Serialize)]
struct ResolvedLine {
    #[serde(flatten)]
    key: KeyLine,
    verdict: &'static str,
}

pub fn resolve(args: &ResolveArgs) -> Result<i32, Failure> {
    let key = Named::find(args.digits.as_deref(), &args.key)?;
    let outcome = args.outcome.as_deref().map(read_outcome).transpose()?;
    let (verdict, name) = match (args.done, args.failed) {
        (true, _) => (Verdict::Done(outcome), "done"),
        (_, true) => (Verdict::Failed(outcome.map(Outcome::as_error)), "failed"),
        (false, false) => (Verdict::NotDone, "not_done"),
    };
    let token = FencingToken::from_number(args.token);
    let ledger = open(&args.ledger)?;
    let resolved = ledger.resolve_token(&key, token, verdict, &args.by, &args.why, args.force)?;
    let detail = ledger.show(&key)?;
    output::close(ledger);
    if let Resolved::Stale(view) = resolved {
        let stands = detail.as_ref().map_or_else(
            || "nothing is known of it".to_owned(),
            |detail| format!("it is {} under token {}", view.standing(), detail.token),
        );
        let next = match (view, detail) {
            (View::InProgress(_), _) => "wait for its end, or use --force to decide it now".to_owned(),
            (_, Some(_)) => {
                let history = output::history_command(&args.ledger.path, &key);
                format!("look at it with `{history}`, and decide again if that is still needed")
            }
            (_, None) => "check the key, --scope and --ledger".to_owned(),
        };
        return Err(Failure::stale(format!(
            "{key}: stale: token {token} is not in doubt: {stands}; nothing changed; {next}"
        )));
    }
    if detail.as_ref().is_some_and(is_cut) {
        output::note(&format!("{key}: the outcome is over the limit of 1 MiB and is not kept; the decision is"));
    }
    let key_line = detail.as_ref().map_or_else(|| KeyLine::vacant(&key), KeyLine::new);
    let sentence = format!("{key}: token {token} is resolved as {}", name.replace('_', " "));
    tell(&args.ledger, &ResolvedLine { key: key_line, verdict: name }, &sentence)
}

/// Whether an outcome of more than no bytes is not kept.
fn is_cut(detail: &Detail) -> bool {
    let (View::Done(stored) | View::Failed(stored)) = &detail.view else { return false };
    matches!(stored, Stored::NotKept { bytes, .. } if *bytes > 0)
}

/// Text where it is UTF-8, bytes where it is not.
fn read_outcome(path: &std::path::Path) -> Result<Outcome, Failure> {
    let bytes = std::fs::read(path).map_err(|error| {
        Failure::usage(format!("reading the outcome {}: {error}; give a file that can be read", path.display()))
    })?;
    Ok(String::from_utf8(bytes).map_or_else(|error| Outcome::binary(error.into_bytes()), Outcome::text))
}

/// What `sweep` prints.
#[derive(Debug, Default, Serialize)]
struct SweptLine {
    keys: u64,
    bodies: u64,
    rows: u64,
    moved: u64,
}

impl SweptLine {
    fn add(&mut self, swept: &Swept) {
        self.keys += swept.keys;
        self.bodies += swept.bodies;
        self.rows += swept.rows;
        self.moved += swept.moved;
    }
}

pub fn sweep(args: &SweepArgs) -> Result<i32, Failure> {
    const KEYS_AT_ONCE: u64 = 4096;
    let ledger = open(&args.ledger)?;
    let mut line = SweptLine::default();
    let mut left = args.limit.unwrap_or(u64::MAX);
    while left > 0 {
        let swept = ledger.sweep(left.min(KEYS_AT_ONCE))?;
        line.add(&swept);
        left -= swept.keys.min(left);
        if swept == Swept::default() {
            break;
        }
    }
    output::close(ledger);
    let sentence = format!(
        "forgot {} keys and {} outcomes; removed {} rows of the log, moved {} keys",
        line.keys, line.bodies, line.rows, line.moved
    );
    tell(&args.ledger, &line, &sentence)
}

/// What `verify` prints.
#[derive(Debug, Serialize)]
struct VerifiedLine {
    rows: u64,
    bodies: u64,
    body_bytes: u64,
}

pub fn verify(args: &PlainArgs) -> Result<i32, Failure> {
    let ledger = open(&args.ledger)?;
    let verified = ledger.verify()?;
    output::close(ledger);
    let line = VerifiedLine { rows: verified.rows, bodies: verified.bodies, body_bytes: verified.body_bytes };
    let sentence =
        format!("{} rows and {} outcomes ({} bytes) are as written", line.rows, line.bodies, line.body_bytes);
    tell(&args.ledger, &line, &sentence)
}
