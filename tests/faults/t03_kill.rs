//! T3: a process with four threads at work is killed (`kill -9`), again and again, on the real disk.
//! What it was told before it died stands afterwards.
//!
//! The child is this very test binary. It writes one line to its pipe before and after every call;
//! the pipe outlives it. Half of the keys belong to one thread each and are held against the model;
//! the others are fought over, and only effects count.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use onceledger::testkit::{Call, Effects, Model, Saw, SplitMix, Stand, Terms};
use onceledger::{Claim, Claimed, Key, Ledger, Options, Outcome, Scope, Settled, Standing};

use crate::kit::{Tally, floor, seed, violated};

const DIRECTORY: &str = "ONCELEDGER_T3_DIRECTORY";
const ROUND: &str = "ONCELEDGER_T3_ROUND";
const THREADS: u64 = 4;

fn key(name: &str) -> Key {
    Key::action(&Scope::new("acme/kill").unwrap(), "act", [name]).unwrap()
}

fn claim(name: &str) -> Claim {
    Claim::from_json(key(name), r#"{"amount":1}"#).unwrap()
}

fn outcome(name: &str) -> Outcome {
    Outcome::text(format!("outcome of {name}").repeat(1 + name.len() % 40))
}

fn open(directory: &Path) -> onceledger::Result<Ledger> {
    Options::new().lock_wait(Duration::from_secs(20)).open_or_create(directory.join("ledger.redb"))
}

/// The child: runs until it is killed.
#[test]
fn t03_child() {
    let (Ok(directory), Ok(round)) = (std::env::var(DIRECTORY), std::env::var(ROUND)) else { return };
    let out = Mutex::new(std::io::stdout());
    let say = |line: String| {
        // One write for each line, so that a kill cuts none in two.
        let _ = out.lock().unwrap().write_all(format!("\n{line}\n").as_bytes());
    };
    let ledger = open(Path::new(&directory)).unwrap();
    say("open".to_owned());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (say, ledger, round) = (&say, &ledger, &round);
            scope.spawn(move || {
                for number in 0..u64::MAX {
                    let name = match number % 2 {
                        0 => format!("own-{round}-{thread}-{number}"),
                        _ => format!("shared-{round}-{}", number / 8),
                    };
                    work(ledger, &name, number, say);
                }
            });
        }
    });
}

fn work(ledger: &Ledger, name: &str, number: u64, say: &impl Fn(String)) {
    say(format!("claim {name}"));
    let claimed = ledger.claim(&claim(name)).unwrap();
    let Claimed::Granted(grant) = claimed else {
        say(format!("refused {name}"));
        return;
    };
    let token = grant.token().get();
    say(format!("granted {name} {token}"));
    say(format!("effect {name} {token}"));
    match number % 16 {
        14 => {
            say(format!("releasing {name} {token}"));
            let _ = grant.release().unwrap();
            say(format!("released {name} {token}"));
        }
        12 => {
            drop(grant);
            say(format!("dropped {name} {token}"));
        }
        _ => {
            say(format!("settling {name} {token}"));
            assert_eq!(grant.complete(outcome(name)).unwrap(), Settled::Applied);
            say(format!("settled {name} {token}"));
        }
    }
}

/// What the pipe said about one key of one thread, in order.
#[derive(Default)]
struct Told {
    claims: u64,
    granted: Vec<u64>,
    last: String,
}

#[test]
fn t03_what_was_answered_before_a_kill_stands_after_it() {
    let floor = floor(100, 10_000);
    let directory = tempfile::tempdir().unwrap();
    let mut random = SplitMix::new(seed());
    let mut tally = Tally::default();
    let (mut unanswered, mut present) = (0_u64, 0_u64);
    let mut effects = Effects::new();
    for round in 0..floor {
        // A fresh file now and then, so that a long run does not measure the growth of one.
        let directory = directory.path().join(format!("{}", round / 50));
        std::fs::create_dir_all(&directory).unwrap();
        let lines = kill_one(&directory, round, 20 + random.below(400));
        tally.faults += 1;
        let ledger =
            open(&directory).unwrap_or_else(|error| violated("t03", seed(), format!("round {round}: {error}")));
        let mut told: BTreeMap<String, Told> = BTreeMap::new();
        for line in &lines {
            let words: Vec<&str> = line.split(' ').collect();
            let [verb, name, rest @ ..] = words.as_slice() else { continue };
            let token = rest.first().and_then(|token| token.parse::<u64>().ok());
            let entry = told.entry((*name).to_owned()).or_default();
            match *verb {
                "claim" => entry.claims += 1,
                "granted" => entry.granted.push(token.unwrap()),
                "effect" => effects.happened(&key(name), token.unwrap()),
                // A release that was asked for may have gone through.
                "releasing" => effects.decided(&key(name)),
                _ => {}
            }
            entry.last = (*verb).to_owned();
        }
        let excess = effects.excess();
        if !excess.is_empty() {
            violated("t03", seed(), format!("round {round}: more effects than decisions allow: {excess:?}"));
        }
        for (name, told) in &told {
            tally.cases += 1;
            let view = ledger.check(&key(name)).unwrap();
            if name.starts_with("own-") {
                if told.last == "claim" {
                    unanswered += 1;
                    present += u64::from(view.standing() != Standing::Vacant);
                }
                tally.unknown += u64::from(matches!(told.last.as_str(), "claim" | "settling" | "releasing"));
                if let Err(what) = hold_own(name, told, &Saw::Stands(Stand::of(&view))) {
                    violated("t03", seed(), format!("round {round}: {name} was last told `{}`: {what}", told.last));
                }
            } else if !told.granted.is_empty() && view.standing() == Standing::InProgress {
                violated("t03", seed(), format!("round {round}: {name} is in progress and its holder is dead"));
            }
        }
        ledger.verify().unwrap_or_else(|error| violated("t03", seed(), format!("round {round}: {error}")));
        ledger.close().unwrap();
    }
    let share = format!("rounds={floor} unacknowledged={unanswered} present={present}");
    assert!(present > 0, "no claim that nobody was told of was ever found: the harness is broken ({share})");
    tally.end("T3", floor, share);
}

/// Holds a key of one thread against the model: what it was told, and what is found.
fn hold_own(name: &str, told: &Told, found: &Saw) -> Result<(), onceledger::testkit::Violation> {
    let mut model = Model::new();
    let key = key(name);
    let call = Call::claim(&claim(name), Terms::default());
    let Some(token) = told.granted.first().copied() else {
        model.call(&key, 0, &call, &Saw::Unknown)?;
        model.orphan(&[]);
        return model.call(&key, 0, &Call::Check, found);
    };
    model.call(&key, 0, &call, &Saw::Granted(token, 1))?;
    let complete = Call::Complete(token, outcome(name));
    match told.last.as_str() {
        "settling" => model.call(&key, 0, &complete, &Saw::Unknown)?,
        "settled" => model.call(&key, 0, &complete, &Saw::Applied)?,
        "releasing" => model.call(&key, 0, &Call::Release(token), &Saw::Unknown)?,
        "released" => model.call(&key, 0, &Call::Release(token), &Saw::Applied)?,
        _ => {}
    }
    model.orphan(&[]);
    model.call(&key, 0, &Call::Check, found)
}

/// Starts the child, lets it say so many lines, kills it, and gives back all it said.
fn kill_one(directory: &Path, round: u64, after: u64) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["t03_kill::t03_child", "--exact", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said: Vec<String> = Vec::new();
    while (said.len() as u64) < after {
        match lines.next() {
            Some(line) => said.extend(line.ok().filter(|line| !line.is_empty())),
            None => panic!("the child ended by itself: {said:?}"),
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    said.extend(lines.map_while(Result::ok).filter(|line| !line.is_empty()));
    said
}
