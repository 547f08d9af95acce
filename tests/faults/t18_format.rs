//! T18: a file of every released format is opened by this version; one of a newer format is refused
//! in words.
//!
//! The fixture is made once for each format version, by
//! `ONCELEDGER_MAKE_FIXTURE=1 cargo test --features testkit --test faults t18`, and then never again.

use std::sync::Arc;
use std::time::Duration;

use onceledger::testkit::{Disk, FakeClock, FaultDisk};
use onceledger::{Claim, ErrorKind, Key, Ledger, Options, Outcome, PastWhat, Scope, Standing, Stored, Verdict, View};

use crate::driver::FILE;
use crate::kit::Tally;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/v1");
const ANCHOR: &str = "/ledger.redb.anchor";

fn key(name: &str) -> Key {
    Key::action(&Scope::new("acme/format").unwrap(), "act", [name]).unwrap()
}

fn open(disk: &FaultDisk, clock: &FakeClock, create: bool) -> onceledger::Result<Ledger> {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = Options::new().disk(shared).clock(Arc::new(clock.clone())).threads(false);
    if create { options.create(FILE) } else { options.open(FILE) }
}

/// One key in every standing, with histories of every kind of event.
fn make() -> FaultDisk {
    let (disk, clock) = (FaultDisk::new(1), FakeClock::new());
    let ledger = open(&disk, &clock, true).unwrap();
    let claim = |name| Claim::from_json(key(name), r#"{"amount":79}"#).unwrap();
    let granted = |name| ledger.claim(&claim(name)).unwrap().granted().unwrap();
    let _ = granted("done").complete(Outcome::json(r#"{"id":1}"#)).unwrap();
    let _ = granted("failed").fail(Outcome::text("no such order").as_error()).unwrap();
    let _ = granted("released").release().unwrap();
    let renewed = ledger.claim(&claim("uncertain").lease(Duration::from_secs(5))).unwrap().granted().unwrap();
    let _ = renewed.renew(Duration::from_secs(60)).unwrap();
    drop(renewed);
    let late = granted("resolved").into_ticket();
    let resolved =
        ledger.resolve_token(&key("resolved"), late.token(), Verdict::NotDone, "ana", "none at provider", true);
    assert_eq!(resolved.unwrap(), onceledger::Resolved::Applied);
    let _ = late.settle(&ledger, onceledger::Settlement::done("late")).unwrap();
    drop(late);
    let _ = granted("large").complete(Outcome::binary(vec![7; 10_000])).unwrap();
    ledger.close().unwrap();
    disk
}

fn check(ledger: &Ledger) {
    let view = |name: &str| ledger.check(&key(name)).unwrap();
    assert_eq!(view("done"), View::Done(Stored::Kept(Outcome::json(r#"{"id":1}"#))));
    assert_eq!(view("failed"), View::Failed(Stored::Kept(Outcome::text("no such order").as_error())));
    assert_eq!(view("large"), View::Done(Stored::Kept(Outcome::binary(vec![7; 10_000]))));
    assert_eq!(view("released").standing(), Standing::Vacant);
    assert_eq!(view("uncertain").standing(), Standing::Uncertain);
    assert_eq!(view("resolved").standing(), Standing::Vacant);
    let told =
        |name: &str| -> Vec<PastWhat> { ledger.history(&key(name)).unwrap().iter().map(|past| past.what).collect() };
    assert_eq!(told("uncertain"), [PastWhat::Granted, PastWhat::Renewed, PastWhat::Uncertain]);
    assert_eq!(told("resolved"), [PastWhat::Granted, PastWhat::ResolvedNotDone, PastWhat::LateDone]);
    ledger.verify().unwrap();
    let again = Claim::from_json(key("released"), r#"{"amount":79}"#).unwrap();
    let grant = ledger.claim(&again).unwrap().granted().unwrap();
    assert_eq!(grant.attempt(), 2);
    let _ = grant.complete("").unwrap();
}

fn read(name: &str) -> Vec<u8> {
    let path = format!("{FOLDER}/{name}");
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn fixture() -> FaultDisk {
    let disk = FaultDisk::new(2);
    disk.import(FILE, &read("ledger.redb"));
    disk.import(ANCHOR, &read("ledger.redb.anchor"));
    disk
}

#[test]
fn t18_a_file_of_format_1_is_opened() {
    if std::env::var_os("ONCELEDGER_MAKE_FIXTURE").is_some() {
        let disk = make();
        std::fs::create_dir_all(FOLDER).unwrap();
        std::fs::write(format!("{FOLDER}/ledger.redb"), disk.export(FILE).unwrap()).unwrap();
        std::fs::write(format!("{FOLDER}/ledger.redb.anchor"), disk.export(ANCHOR).unwrap()).unwrap();
    }
    let disk = fixture();
    check(&open(&disk, &FakeClock::new(), false).unwrap());
    // What this version writes is what the fixture has.
    let made = make();
    check(&open(&made, &FakeClock::new(), false).unwrap());
    Tally { cases: 1, faults: 0, unknown: 0 }.end("T18", 1, "");
}

/// Every envelope with the version after the last one: the anchor, the meta row, an event.
#[test]
fn t18_a_newer_format_is_refused_in_words() {
    use onceledger::testkit::seam::resealed;
    let disk = fixture();
    let anchor = disk.export(ANCHOR).unwrap();
    let (magic, sealed) = anchor.split_at(16);
    let mut newer = sealed[..sealed.len() - 4].to_vec();
    newer[0] += 1;
    disk.import(ANCHOR, &[magic, &resealed(0, &newer)].concat());
    let error = open(&disk, &FakeClock::new(), false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NewerFormat, "{error}");
    let text = error.to_string();
    assert!(text.contains("format version 2") && text.contains("reads up to 1"), "{text}");

    // The same for the row that says it inside the file.
    let disk = fixture();
    onceledger::testkit::seam::with_newer_meta(&disk, crate::driver::path()).unwrap();
    let error = open(&disk, &FakeClock::new(), false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NewerFormat, "{error}");
    Tally { cases: 2, faults: 0, unknown: 0 }.end("T18-newer", 2, "");
}
