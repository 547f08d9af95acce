//! The rows of the subject alone: memory, stalls, opening, expiry.
//!
//! What must not share a process with anything else (memory, and what is killed) runs in a child: this
//! program again, as `--child MODE DIR COUNT`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Result;
use crate::contest::Bench;
use crate::drive::{self, Timed};
use crate::options::Options;
use crate::peer::{AsyncPeer, Peer};
use crate::subject::{Subject, TheSubject};
use crate::system;
use crate::table::Row;
use crate::work::{self, OUTCOME};

const MILLION: u64 = 1_000_000;
const WARM_UP: u64 = 1_000;
const MEMORY: (&str, &str, f64) = ("memory per live claim without outcome, growth included", "limit 160 bytes", 160.0);
const STALL: (&str, &str, f64) = ("longest growth step that stalls a writer", "limit 5 ms", 5.0);
const OPEN_CLEAN: (&str, &str, f64) = ("open at 1 million claims, clean", "limit 0.8 s", 0.8);
const OPEN_KILLED: (&str, &str, f64) =
    ("open at 1 million claims, after kill -9, page pass included", "limit 1.5 s", 1.5);
const EXPIRY: (&str, &str) = ("p99 of claims while 1 million expire, as claims by p99", "itself idle");
/// The p99 while keys expire may be twice the idle one: half the ratio.
const EXPIRY_AT_LEAST: f64 = 0.5;
const EXPIRY_WAITING: usize = 16;
const MEMORY_ROUNDS: usize = 3;
/// Parts of the keys that steps are told of.
const PLACES: usize = 1_000;

/// The names of every row here: work and peer.
pub fn names() -> [(&'static str, &'static str); 5] {
    let limits = [MEMORY, STALL, OPEN_CLEAN, OPEN_KILLED].map(|(work, peer, _)| (work, peer));
    [limits[0], limits[1], limits[2], limits[3], EXPIRY]
}

/// Measures the wanted rows.
pub fn run(bench: &Bench) -> Vec<Row> {
    let options = &bench.options;
    let wants = |row: (&str, &str, f64)| options.wants(row.0, row.1);
    let mut rows = Vec::new();
    if wants(MEMORY) || wants(STALL) {
        eprintln!("{}", MEMORY.0);
        rows.extend(pair(memory(options), (MEMORY, "bytes"), (STALL, "ms"), wants));
    }
    if wants(OPEN_CLEAN) || wants(OPEN_KILLED) {
        eprintln!("{}", OPEN_CLEAN.0);
        rows.extend(pair(opening(options), (OPEN_CLEAN, "s"), (OPEN_KILLED, "s"), wants));
    }
    if options.wants(EXPIRY.0, EXPIRY.1) {
        eprintln!("{}", EXPIRY.0);
        let row = Row::new(EXPIRY.0, EXPIRY.1, Some(EXPIRY_AT_LEAST), "1/s");
        rows.push(match expiry(options) {
            Ok((busy, idle)) => row.compared(&busy, &idle),
            Err(error) => row.failed(error),
        });
    }
    rows
}

type Limit = (&'static str, &'static str, f64);

fn pair(
    measured: Result<(Vec<f64>, Vec<f64>)>,
    first: (Limit, &str),
    second: (Limit, &str),
    wants: impl Fn(Limit) -> bool,
) -> Vec<Row> {
    let row = |(limit, unit): (Limit, &str), values: Result<&[f64], String>| {
        let row = Row::new(limit.0, limit.1, Some(1.0), unit);
        let row = match values {
            Ok(values) => row.limited(values, limit.2),
            Err(error) => row.failed(error),
        };
        wants(limit).then_some(row)
    };
    let rows = match &measured {
        Ok((a, b)) => [row(first, Ok(a)), row(second, Ok(b))],
        Err(error) => [row(first, Err(error.to_string())), row(second, Err(error.to_string()))],
    };
    rows.into_iter().flatten().collect()
}

/// Bytes a claim of each round, and the longest step in milliseconds that every round had near the same place:
/// keys are the same in each, so a table that grows does so there.
fn memory(options: &Options) -> Result<(Vec<f64>, Vec<f64>)> {
    // A round takes a minute, and the bytes are the same in each.
    let rounds = if options.divide == 1 { options.rounds.min(MEMORY_ROUNDS) } else { 1 };
    let (mut bytes, mut steps) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let dir = TempDir::with_prefix_in("memory-", &options.dir)?;
        let (mut child, line) = spawn("memory", dir.path(), options.scaled(MILLION))?;
        child.wait()?;
        let mut said = line.split_whitespace().map(str::parse::<f64>);
        bytes.push(said.next().ok_or_else(|| format!("the child said {line:?}"))??);
        steps.push(said.collect::<std::result::Result<Vec<_>, _>>()?);
    }
    let longest = longest_of(&recurring(&steps));
    eprintln!("  longest steps by round {:?} ms", steps.iter().map(|round| longest_of(round)).collect::<Vec<_>>());
    Ok((bytes, vec![longest]))
}

fn longest_of(steps: &[f64]) -> f64 {
    steps.iter().copied().fold(0.0, f64::max)
}

/// What every round had at a place, or near it: batches differ from round to round.
fn recurring(rounds: &[Vec<f64>]) -> Vec<f64> {
    const NEAR: usize = 3;
    let near = |round: &[f64], place: usize| {
        longest_of(round.get(place.saturating_sub(NEAR)..(place + NEAR + 1).min(round.len())).unwrap_or_default())
    };
    let places = rounds.first().map_or(0, Vec::len);
    (0..places).map(|place| rounds.iter().map(|round| near(round, place)).fold(f64::INFINITY, f64::min)).collect()
}

/// Seconds to open after a clean close and after a kill, of each round.
fn opening(options: &Options) -> Result<(Vec<f64>, Vec<f64>)> {
    let dir = TempDir::with_prefix_in("open-", &options.dir)?;
    let (mut clean, mut killed) = (Vec::new(), Vec::new());
    for round in 0..options.rounds {
        let (mode, count) = if round == 0 { ("fill", options.scaled(MILLION)) } else { ("reopen", 0) };
        let (mut child, _) = spawn(mode, dir.path(), count)?;
        child.kill()?;
        child.wait()?;
        for seconds in [&mut killed, &mut clean] {
            let started = Instant::now();
            let subject = TheSubject::open(dir.path())?;
            seconds.push(started.elapsed().as_secs_f64());
            subject.close()?;
        }
    }
    Ok((clean, killed))
}

/// One by the p99 in seconds, of each round: while keys expire, and before. The rounds cannot alternate, as
/// all keys were settled in one go.
fn expiry(options: &Options) -> Result<(Vec<f64>, Vec<f64>)> {
    let count = options.scaled(MILLION);
    let keep = Duration::from_secs(15 + 30 / options.divide);
    let dir = TempDir::with_prefix_in("expiry-", &options.dir)?;
    let subject = TheSubject::create_keeping(dir.path(), keep)?;
    let started = Instant::now();
    drive::fill(&subject, 0..count, OUTCOME)?;
    let idle = p99s(&subject, options)?;
    let left = keep.checked_sub(started.elapsed()).ok_or("filling outlasted the retention; use --divide")?;
    thread::sleep(left);
    let busy = p99s(&subject, options)?;
    subject.close()?;
    Ok((busy, idle))
}

fn p99s<P: AsyncPeer>(peer: &P, options: &Options) -> Result<Vec<f64>> {
    let round = |_| {
        let mut latencies = drive::latencies(peer, EXPIRY_WAITING, options.window, Timed::Claim)?;
        latencies.sort_unstable();
        let p99 = latencies.get(latencies.len() * 99 / 100).ok_or("no claim in a round")?;
        Ok(1.0 / p99.as_secs_f64())
    };
    (0..options.rounds).map(round).collect()
}

/// Starts a child and waits for its one line.
fn spawn(mode: &str, dir: &Path, count: u64) -> Result<(Child, String)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--child", mode])
        .arg(dir)
        .arg(count.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    if line.is_empty() {
        let status = child.wait()?;
        return Err(format!("the child {mode} ended without a word: {status}").into());
    }
    Ok((child, line))
}

/// What a child does; `arguments` follow `--child`.
pub fn child(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let mut next = || arguments.next().ok_or("--child MODE DIR COUNT");
    let (mode, dir, count) = (next()?, next()?, next()?.parse()?);
    let dir = Path::new(&dir);
    match mode.as_str() {
        "memory" => grow(dir, count),
        "fill" => hold(&TheSubject::create(dir, count)?),
        "reopen" => hold(&TheSubject::open(dir)?),
        _ => Err(format!("no child mode {mode}").into()),
    }
}

/// Fills, and says bytes a claim at the peak, and the longest step at each place in milliseconds.
fn grow(dir: &Path, count: u64) -> Result<()> {
    // The page cache of the file has a fixed size, whatever lives: it is kept small, and filled before.
    let subject = TheSubject::create_lean(dir)?;
    let first = 1 << 32;
    drive::fill_watched(&subject, first..first + WARM_UP, "", 1)?;
    let before = system::memory("VmRSS")?;
    let steps = drive::fill_watched(&subject, 0..count, "", PLACES)?;
    let peak = system::memory("VmHWM")?;
    let bytes = peak.saturating_sub(before) as f64 / count as f64;
    let steps: Vec<String> = steps.iter().map(|step| (step.as_secs_f64() * 1e3).to_string()).collect();
    say(&format!("{bytes} {}", steps.join(" ")))
}

/// Leaves claims done and one in progress, says so, and waits to be killed.
fn hold(subject: &TheSubject) -> Result<()> {
    let first = u64::from(std::process::id()) << 32;
    drive::fill(subject, first..first + WARM_UP, OUTCOME)?;
    let _grant = subject.claim(&TheSubject::key(work::fresh() ^ first))?.granted()?;
    say("ready")?;
    loop {
        thread::park();
    }
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
