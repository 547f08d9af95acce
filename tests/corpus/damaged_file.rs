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

/// A ledger closed in order, one that was not, and what both say.
fn samples() -> &'static [(FaultDisk, Vec<Stand>); 2] {
    static SAMPLES: OnceLock<[(FaultDisk, Vec<Stand>); 2]> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        [true, false].map(|clean| {
            let disk = FaultDisk::new(1);
            make(&disk, clean).unwrap_or_else(|error| panic!("{error}"));
            disk.stop();
            let disk = disk.process_crash();
            let look = disk.process_crash();
            let stands = match options(&look).open(FILE) {
                Ok(ledger) => (0..KEYS).map(|number| stand(&ledger, number)).collect(),
                Err(error) => panic!("{error}"),
            };
            (disk, stands)
        })
    })
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
    let (disk, stands) = &samples()[usize::from(kind & 1)];
    let disk = disk.process_crash();
    let name = if kind & 2 == 0 { FILE.to_owned() } else { format!("{FILE}.anchor") };
    let Some(mut file) = disk.export(&name) else { return };
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
    for (number, stood) in (0..KEYS).zip(stands) {
        match ledger.check(&key(number)) {
            Ok(view) => assert_eq!(Stand::of(&view), *stood, "silent"),
            Err(error) => assert!(told(error.kind()), "{error:?}"),
        }
    }
    disk.stop();
}
