//! `calls`: a model's tool calls, each run at most once by its tool's command, and answered in the
//! shape it came in.
//!
//! The library decides what may run. Here calls of one key go to one worker, one after the other, so
//! that the second of two equal calls gets the result of the first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use onceledger::tool::{Class, Reply, Status, ToolBook};
use onceledger::{Answer, EffectError, Key, Ledger, Scope};
use parking_lot::Mutex;
use serde::Serialize;

use crate::args::CallsArgs;
use crate::command::{self, Ran};
use crate::exit::{self, Failure};
use crate::input::{self, Asked, Broken, Input};
use crate::output;
use crate::pause;
use crate::printer::Printer;
use crate::signals::Stop;

/// What `calls --json` prints of a call; its `answer` comes last, as it is.
#[derive(Debug, Serialize)]
struct CallLine<'a> {
    line: Option<usize>,
    tool: &'a str,
    id: Option<&'a str>,
    shape: &'static str,
    key: Option<String>,
    status: &'static str,
    ran: bool,
    exit_code: i32,
    do_not_retry: bool,
}

/// What `calls --json` prints of what is broken.
#[derive(Debug, Serialize)]
struct BrokenLine<'a> {
    line: Option<usize>,
    #[serde(flatten)]
    error: output::ErrorLine<'a>,
}

#[derive(Debug, Default)]
struct Tally {
    ran: usize,
    repeated: usize,
    not_run: usize,
    /// The gravest answer so far: its rank, and the exit code that says so.
    gravest: Option<(usize, i32)>,
}

struct Work<'a> {
    args: &'a CallsArgs,
    book: ToolBook,
    ledger: &'a Ledger,
    scope: Scope,
    printer: Printer,
    tally: Mutex<Tally>,
    stop: Stop,
}

pub fn calls(args: &CallsArgs) -> Result<i32, Failure> {
    let scope = Scope::new(&args.scope)?;
    scope.run(&args.run)?;
    let book = book(args)?;
    let input = input::read(&args.file)?;
    for broken in &input.broken {
        tell(args, broken)?;
    }
    let stop = Stop::start().map_err(|error| Failure::io("taking over signals", &error))?;
    let options = command::options(args.ledger.lock_wait);
    let path = &args.ledger.path;
    let ledger = if args.create { options.open_or_create(path) } else { options.open(path) }?;
    let printer = Printer::new(input.calls.len());
    let work = Work { args, book, ledger: &ledger, scope, printer, tally: Mutex::default(), stop };
    work.all(&input);
    let Work { printer, tally, stop, .. } = work;
    let printed = printer.finish();
    let tally = tally.into_inner();
    output::close(ledger);
    summary(&tally, &input);
    printed?;
    if stop.is_asked() {
        stop.die();
    }
    Ok(match tally.gravest {
        _ if !input.broken.is_empty() => exit::USAGE,
        Some((_, code)) => code,
        None => exit::DONE,
    })
}

fn book(args: &CallsArgs) -> Result<ToolBook, Failure> {
    let of = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("the tool book {} cannot be read: {error}", args.tools.display()))
    };
    let text = std::fs::read_to_string(&args.tools).map_err(|error| of(&error))?;
    ToolBook::from_toml(&text).map_err(|error| of(&error))
}

fn tell(args: &CallsArgs, broken: &Broken) -> Result<(), Failure> {
    let failure = Failure::usage(broken.why.clone());
    output::note(&format!("{}: {}", args.file.display(), broken.words()));
    if args.ledger.json {
        output::object(&BrokenLine { line: broken.line, error: output::ErrorLine::new(&failure) })?;
    }
    Ok(())
}

fn summary(tally: &Tally, input: &Input) {
    let Tally { ran, repeated, not_run, .. } = tally;
    let left = input.calls.len() - ran - repeated - not_run;
    let left = if left > 0 { format!(", stopped before {left}") } else { String::new() };
    let (skipped, broken) = (input.skipped, input.broken.len());
    output::note(&format!(
        "calls: ran {ran}, repeated {repeated}, not run {not_run}, skipped {skipped}, broken {broken}{left}"
    ));
}

impl Work<'_> {
    /// Runs every call, as many at once as was asked for.
    fn all(&self, input: &Input) {
        let groups = self.groups(&input.calls);
        let next = AtomicUsize::new(0);
        let worker = || {
            while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                for (at, key, asked) in group {
                    if self.stop.is_asked() || !self.printer.works() {
                        return;
                    }
                    self.one(*at, key.as_ref(), asked);
                }
            }
        };
        std::thread::scope(|threads| {
            for _ in 1..usize::from(self.args.jobs).min(groups.len()) {
                let started = std::thread::Builder::new().spawn_scoped(threads, worker);
                // What runs already does the work of those that could not be started.
                if let Err(error) = started {
                    output::note(&format!("fewer jobs than asked for: {error}"));
                    break;
                }
            }
            worker();
        });
    }

    /// Calls by key, in the order of the first of each. What has no key, or no claim, stands alone.
    fn groups<'c>(&self, calls: &'c [Asked]) -> Vec<Vec<(usize, Option<Key>, &'c Asked)>> {
        let mut groups: Vec<Vec<_>> = Vec::new();
        let mut group_of = BTreeMap::new();
        for (at, asked) in calls.iter().enumerate() {
            let key = self.book.key(&asked.call, &self.scope, &self.args.run).ok();
            let read = self.book.get(asked.call.tool()).is_ok_and(|tool| tool.class() == Class::Read);
            let hex = key.as_ref().filter(|_| !read).map(Key::to_hex);
            let group = hex.map_or(groups.len(), |hex| *group_of.entry(hex).or_insert(groups.len()));
            match groups.get_mut(group) {
                Some(group) => group.push((at, key, asked)),
                None => groups.push(vec![(at, key, asked)]),
            }
        }
        groups
    }

    fn one(&self, at: usize, key: Option<&Key>, asked: &Asked) {
        let mut ran = Ran::default();
        let call = &asked.call;
        let reply = self.book.run(self.ledger, call, &self.scope, &self.args.run, |permit| {
            // It may have waited for another call's end since the last look.
            if self.stop.is_asked() {
                ran.code = Some(exit::NOT_STARTED);
                return Err(EffectError::not_applied("a signal came before it was started"));
            }
            let (class, shell) =
                self.book.get(call.tool()).map_or((Class::Effect, None), |tool| (tool.class(), tool.command()));
            command::run(class, shell, permit, self.ledger, &mut ran)
        });
        pause::at("after-settle");
        let code = self.code(&reply, &ran, key);
        self.count(&reply, &ran, code);
        let answer = if self.args.ledger.json {
            let line = CallLine {
                line: asked.line,
                tool: call.tool(),
                id: call.id(),
                shape: call.shape().name(),
                key: key.map(Key::to_hex),
                status: reply.status().name(),
                ran: ran.started,
                exit_code: code,
                do_not_retry: reply.do_not_retry(),
            };
            with_answer(&line, &reply.envelope())
        } else {
            reply.envelope()
        };
        self.printer.ended(at, answer, &ran.stderr, &self.notes(asked, &reply, code));
    }

    /// What an operator has to know.
    fn notes(&self, asked: &Asked, reply: &Reply, code: i32) -> Vec<String> {
        let place = asked.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        let tool = output::printable(asked.call.tool());
        if let Some(Answer::Uncertain(uncertain)) = reply.answer() {
            let doubt = &uncertain.doubt;
            let next = output::resolve_command(&self.args.ledger.path, &doubt.key, doubt.token);
            return vec![format!("{place}{tool}: uncertain: find out whether it happened, then say so:\n  {next}")];
        }
        if let Some(error) = reply.error() {
            return vec![format!("{place}{tool}: {}: {error}", reply.status().name())];
        }
        if matches!(code, exit::NOT_STARTED | exit::NOT_FOUND) && reply.status() == Status::NotApplied {
            return vec![format!("{place}{tool}: its command could not be started")];
        }
        Vec::new()
    }

    /// The exit code that `run` would give.
    fn code(&self, reply: &Reply, ran: &Ran, key: Option<&Key>) -> i32 {
        const FAILED: i32 = 1;
        match reply.status() {
            Status::Done | Status::AlreadyDone => exit::DONE,
            Status::InProgress => exit::IN_PROGRESS,
            Status::Uncertain => exit::UNCERTAIN,
            Status::Mismatch | Status::Superseded => exit::MISMATCH,
            Status::AwaitingApproval | Status::Denied | Status::Expired => exit::NOT_APPROVED,
            Status::ErrorBefore if reply.error().is_none_or(onceledger::Error::is_bad_input) => exit::USAGE,
            Status::Failed | Status::NotApplied => {
                let stored = || key.and_then(|key| self.ledger.show(key).ok()?).and_then(|detail| detail.exit_code);
                ran.code.or_else(stored).unwrap_or(FAILED)
            }
            _ => exit::REFUSED,
        }
    }

    fn count(&self, reply: &Reply, ran: &Ran, code: i32) {
        let rank = match (reply.status(), code) {
            (Status::Done | Status::AlreadyDone, _) => return self.tally.lock().add(reply, ran, None),
            (Status::Failed, _) => 1,
            (Status::NotApplied, exit::NOT_STARTED | exit::NOT_FOUND) if !ran.started => 2,
            (Status::NotApplied, _) => 1,
            (_, exit::NOT_APPROVED) => 3,
            (_, exit::IN_PROGRESS) => 4,
            (_, exit::USAGE) => 5,
            (_, exit::MISMATCH) => 6,
            (_, exit::UNCERTAIN) => 7,
            _ => 8,
        };
        self.tally.lock().add(reply, ran, Some((rank, code)));
    }
}

impl Tally {
    fn add(&mut self, reply: &Reply, ran: &Ran, grave: Option<(usize, i32)>) {
        match reply.status() {
            _ if ran.started => self.ran += 1,
            Status::AlreadyDone | Status::Failed => self.repeated += 1,
            _ => self.not_run += 1,
        }
        self.gravest = self.gravest.max(grave);
    }
}

/// One object with the answer as its last member, unchanged.
fn with_answer(line: &CallLine<'_>, answer: &str) -> String {
    let line = serde_json::to_string(line).unwrap_or_default();
    let members = line.strip_suffix('}').unwrap_or("{\"line\":null");
    format!("{members},\"answer\":{answer}}}")
}
