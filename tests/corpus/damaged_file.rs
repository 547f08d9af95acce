//! A good ledger with bytes of it replaced, or bytes that are the whole file: it is opened, refused or
//! what it said; never another answer, never a panic.

use std::sync::{Arc, OnceLock};

use onceledger::testkit::{FakeClock, FaultDisk, Stand};
use onceledger::{Claim, ErrorKind, Key, Options, Scope};

const FILE: &str = "/ledger.redb";
const KEYS: u8 = 12;

fn key(number: u8) -> Key {
    match Scope::new("acme/fuzz").and_then(|scope| Key::action(&scope, "act", [[number]])) {
        Ok(key) => key,
        Err(error) => panic!("{error}"),
    }
}

fn options(disk: &FaultDisk) -> Options {
    Options::new().disk(Arc::new(disk.clone())).clock(Arc::new(FakeClock::new())).threads(false).cache_bytes(0)
}

/// redb's flags, which no checksum covers; the bit that names the slot of the last commit, the one of a
/// file that was not closed; and where the slots are.
const FLAGS: usize = 9;
const SECOND: u8 = 1;
const OPEN: u8 = 2;
const SLOTS: [usize; 2] = [64, 192];

/// A ledger, and what it says.
struct Sample {
    disk: FaultDisk,
    stands: Vec<Stand>,
    /// What it says at the commit before the last, as a power loss between that one's phases leaves it;
    /// only of the file that was not closed.
    before: Option<Vec<Stand>>,
    flags: u8,
}

/// A ledger closed in order, and one that was not.
fn samples() -> &'static [Sample; 2] {
    static SAMPLES: OnceLock<[Sample; 2]> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        [true, false].map(|clean| {
            let disk = FaultDisk::new(1);
            make(&disk, clean).unwrap_or_else(|error| panic!("{error}"));
            disk.stop();
            let disk = disk.process_crash();
            let flags = disk.export(FILE).and_then(|file| file.get(FLAGS).copied()).unwrap_or_default();
            let before = disk.process_crash();
            before.flip(FILE, FLAGS as u64, SECOND);
            before.flip(FILE, SLOTS[usize::from(flags & SECOND)] as u64 + 64, 0xff);
            let before = (!clean).then(|| stands(&before));
            Sample { stands: stands(&disk.process_crash()), disk, before, flags }
        })
    })
}

fn stands(disk: &FaultDisk) -> Vec<Stand> {
    match options(disk).open(FILE) {
        Ok(ledger) => (0..KEYS).map(|number| stand(&ledger, number)).collect(),
        Err(error) => panic!("{error}"),
    }
}

fn make(disk: &FaultDisk, clean: bool) -> onceledger::Result<()> {
    let ledger = options(disk).create(FILE)?;
    for number in 0..KEYS {
        let Some(grant) = ledger.claim(&Claim::unguarded(key(number)))?.granted() else { continue };
        match number % 3 {
            0 => drop(grant.complete(vec![number; 40 * usize::from(number)])?),
            1 => drop(grant.fail("no")?),
            _ => drop(grant),
        }
    }
    if clean {
        ledger.close()?;
    } else {
        disk.stop();
    }
    Ok(())
}

fn stand(ledger: &onceledger::Ledger, number: u8) -> Stand {
    match ledger.check(&key(number)) {
        Ok(view) => Stand::of(&view),
        Err(error) => panic!("{error}"),
    }
}

pub fn run(bytes: &[u8]) {
    let Some((&kind, mut rest)) = bytes.split_first() else { return };
    let sample = &samples()[usize::from(kind & 1)];
    let disk = sample.disk.process_crash();
    let name = if kind & 2 == 0 { FILE.to_owned() } else { format!("{FILE}.anchor") };
    let Some(whole) = disk.export(&name) else { return };
    let mut file = whole.clone();
    if kind & 4 == 0 {
        // Where, as three bytes; how many, as one; the bytes.
        while let [a, b, c, count, more @ ..] = rest {
            let at = u32::from_le_bytes([*a, *b, *c, 0]) as usize % file.len().max(1);
            let (put, more) = more.split_at(more.len().min(usize::from(*count % 64)));
            let end = (at + put.len()).min(file.len());
            file[at..end].copy_from_slice(&put[..end - at]);
            rest = more;
        }
    } else {
        file = rest.to_vec();
    }
    let other_slot = kind & 2 == 0 && file.get(FLAGS).is_some_and(|flags| (flags ^ sample.flags) & !OPEN == SECOND);
    let more_than_that = file.iter().zip(&whole).enumerate().any(|(at, (new, old))| at != FLAGS && new != old);
    disk.import(&name, &file);
    let told = |kind: ErrorKind| {
        matches!(
            kind,
            ErrorKind::Damaged
                | ErrorKind::RolledBack
                | ErrorKind::NotALedger
                | ErrorKind::NewerFormat
                | ErrorKind::Missing
        )
    };
    let ledger = match options(&disk).open(FILE) {
        Ok(ledger) => ledger,
        Err(error) => {
            assert!(told(error.kind()), "{error:?}");
            return;
        }
    };
    let shows: Vec<_> = (0..KEYS)
        .map(|number| match ledger.check(&key(number)) {
            Ok(view) => Some(Stand::of(&view)),
            Err(error) => {
                assert!(told(error.kind()), "{error:?}");
                None
            }
        })
        .collect();
    let are = |stands: &Vec<Stand>| {
        shows.iter().zip(stands).all(|(shows, stood)| shows.as_ref().is_none_or(|shows| shows == stood))
    };
    // The name of the last commit's slot and that commit, both damaged: the limit that docs/FAULTS.md names.
    let is_before = other_slot && more_than_that && sample.before.as_ref().is_some_and(are);
    assert!(are(&sample.stands) || is_before, "silent: {shows:?}, and there was {:?}", sample.stands);
    disk.stop();
}
