//! The format on disk, read by hand: every byte of every record is accounted for, and each is what
//! `golden.txt` has. A change here is a change of format: a new version, not a new golden file.
//!
//! `ONCELEDGER_BLESS=1 cargo test --features testkit --test format` writes the file anew.

#![cfg(feature = "testkit")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod bytes;
mod records;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onceledger::testkit::{Disk, FakeClock, FaultDisk};
use onceledger::{ApprovalRequest, Claim, Keep, Key, Ledger, Options, Outcome, Recovery, Scope, Settlement, Verdict};
use redb::{ReadableDatabase, ReadableTable, TableDefinition};
use serde_json::json;

use crate::bytes::{Fields, Value, encode, from_hex, hex, open, seal, words};

const SECOND: Duration = Duration::from_secs(1);
const PATH: &str = "/ledger";

fn options(disk: &Arc<FaultDisk>, clock: &FakeClock) -> Options {
    let disk: Arc<dyn Disk> = Arc::clone(disk) as Arc<dyn Disk>;
    Options::new().threads(false).clock(Arc::new(clock.clone())).disk(disk)
}

fn key(part: &str) -> Key {
    Key::action(&Scope::new("golden").unwrap(), "refund", [part]).unwrap()
}

fn claim(part: &str) -> Claim {
    Claim::new(key(part), &json!({"amount": 79})).unwrap()
}

#[track_caller]
fn grant(ledger: &Ledger, claim: &Claim) -> onceledger::Grant {
    ledger.claim(claim).unwrap().granted().unwrap()
}

/// A ledger with every kind of event in it but moved and adopted.
fn first_life() -> (Arc<FaultDisk>, FakeClock, onceledger::Ticket) {
    let (disk, clock) = (Arc::new(FaultDisk::new(18)), FakeClock::new());
    let ledger = options(&disk, &clock).create(PATH).unwrap();
    let tick = || clock.advance(SECOND);
    // Kept over the end: its session file stays.
    let left = grant(&ledger, &claim("left").lease(3600 * SECOND).recovery(Recovery::Resend { window: 60 * SECOND }));
    tick();
    let _ = left.renew(7200 * SECOND).unwrap();
    let done =
        grant(&ledger, &Claim::unguarded(key("done")).keep(Keep::Forever).remember(Keep::Forever).label("words"));
    tick();
    let _ = done.settle(Settlement::done(Outcome::json("{\"id\":1}")).exit_code(0)).unwrap();
    let _ = grant(&ledger, &claim("failed")).fail(Outcome::text("declined").as_error()).unwrap();
    let _ = grant(&ledger, &claim("released")).settle(Settlement::not_applied("no route")).unwrap();
    let _ = grant(&ledger, &claim("unknown")).settle(Settlement::uncertain("time-out")).unwrap();
    drop(grant(&ledger, &claim("dropped")));
    let lost = grant(&ledger, &claim("lost").lease(SECOND)).into_ticket();
    clock.advance(5 * SECOND);
    let verdict = |verdict| ledger.resolve_token(&key("lost"), lost.token(), verdict, "ops/ana", "looked", false);
    assert_eq!(verdict(Verdict::NotDone).unwrap(), onceledger::Resolved::Applied);
    let _ = lost.settle(&ledger, Settlement::done(Outcome::binary([0, 255]))).unwrap();
    let freed = grant(&ledger, &claim("freed")).into_ticket();
    let forced = ledger.resolve_token(&key("freed"), freed.token(), Verdict::NotDone, "ops/ana", "stuck", true);
    assert_eq!(forced.unwrap(), onceledger::Resolved::Applied);
    let second = grant(&ledger, &claim("freed"));
    let _ = freed.settle(&ledger, Settlement::not_applied("was not me")).unwrap();
    let _ = second.release().unwrap();
    drop(grant(&ledger, &claim("seen")));
    let token = ledger.uncertain().unwrap().last().unwrap().token;
    let seen = Verdict::Done(Some(Outcome::text("seen at the provider")));
    let _ = ledger.resolve_token(&key("seen"), token, seen, "ops/ana", "looked", false).unwrap();
    let asked = ledger.request(&ApprovalRequest::new(&claim("approved"), "pay 79?").by("agent")).unwrap();
    let _ = ledger.approve(asked.id, "ops/ana").unwrap();
    let _ = ledger.transaction().expect_absent("budget").set_cell("budget", Outcome::json("79")).commit().unwrap();
    let ticket = left.into_ticket();
    ledger.close().unwrap();
    (disk, clock, ticket)
}

/// The same, adopted and cleaned, and everything beside the file.
fn scenario() -> (Arc<FaultDisk>, FakeClock) {
    let (disk, clock, ticket) = first_life();
    // The anchor is lost: somebody adopts the file.
    assert!(disk.lose("/ledger.anchor"));
    let ledger = options(&disk, &clock).adopt(PATH, "ops/ana", "the anchor was lost").unwrap();
    // Garbage enough that all that is live is written again.
    for n in 0..700 {
        let short = Claim::unguarded(key(&format!("{n}"))).keep(SECOND).remember(SECOND);
        let _ = grant(&ledger, &short).complete("x").unwrap();
    }
    clock.advance(3600 * SECOND);
    let mut moved = 0;
    for _ in 0..8 {
        moved += ledger.sweep(4096).unwrap().moved;
    }
    assert!(moved > 8, "{moved}");
    let _ = grant(&ledger, &claim("last")).complete(Outcome::json("null")).unwrap();
    ledger.close().unwrap();
    ticket.leave(Settlement::done(Outcome::json("{}")).exit_code(-1)).unwrap();
    ticket.leave(Settlement::not_applied("no")).unwrap();
    std::mem::forget(ticket);
    (disk, clock)
}

/// A read-only look at the tables, through redb alone.
struct Tables {
    log: BTreeMap<u64, Vec<u8>>,
    outcomes: BTreeMap<u64, Vec<u8>>,
    meta: BTreeMap<String, Vec<u8>>,
}

fn tables(file: &[u8]) -> Tables {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    std::fs::write(&path, file).unwrap();
    let db = redb::Database::open(&path).unwrap();
    let read = db.begin_read().unwrap();
    let rows = |name| {
        let table = read.open_table(TableDefinition::<u64, &[u8]>::new(name)).unwrap();
        let mut rows = BTreeMap::new();
        for block in table.iter().unwrap() {
            let (first, block) = block.unwrap();
            for (number, row) in rows_of(first.value(), block.value()) {
                assert!(rows.insert(number, row.to_vec()).is_none(), "{name} has {number} twice");
            }
        }
        rows
    };
    let meta = read.open_table(TableDefinition::<&str, &[u8]>::new("meta")).unwrap();
    let meta = meta.iter().unwrap().map(|row| {
        let (name, row) = row.unwrap();
        (name.value().to_owned(), row.value().to_vec())
    });
    Tables { log: rows("log"), outcomes: rows("outcomes"), meta: meta.collect() }
}

/// The rows of a block: number less the block's, length, bytes.
fn rows_of(first: u64, mut block: &[u8]) -> Vec<(u64, &[u8])> {
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let mut rows = Vec::new();
    while !block.is_empty() {
        let (number, len) = (first + u64::from(word(&block[..4])), word(&block[4..8]) as usize);
        rows.push((number, &block[8..8 + len]));
        block = &block[8 + len..];
    }
    rows
}

/// The process id differs from run to run, and with it the digest of the log: both count as 0.
fn without_pid(fields: Fields) -> Fields {
    let mask = |(name, value)| match name {
        "pid" => (name, Value::U32(0)),
        "digest" => (name, Value::U128(0)),
        _ => (name, value),
    };
    fields.into_iter().map(mask).collect()
}

/// A record as one line of words and one of bytes, decoded and encoded by hand.
fn line(out: &mut String, what: &str, number: u64, sealed: &[u8], decode: impl Fn(&[u8]) -> Fields) {
    let fields = decode(open(number, sealed));
    assert_eq!(seal(number, &encode(&fields)), sealed, "{what} does not encode to the same bytes");
    let fields = without_pid(fields);
    let _ = writeln!(out, "{what}{}\n    {}", words(&fields), hex(&seal(number, &encode(&fields))));
}

fn frames(file: &[u8]) -> Vec<(u64, &[u8])> {
    let mut frames = Vec::new();
    let mut at = 0;
    while at < file.len() {
        let len = u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
        frames.push((at as u64, &file[at + 8..at + 8 + len]));
        at += 8 + len;
    }
    frames
}

/// Everything on the disk, in words and bytes.
fn dump(disk: &FaultDisk, log: bool) -> String {
    let mut out = String::new();
    let file = tables(&disk.export(PATH).unwrap());
    assert_eq!(file.meta.keys().collect::<Vec<_>>(), ["ledger"]);
    line(&mut out, "meta", u64::MAX, &file.meta["ledger"], records::meta);
    if log {
        for (sequence, row) in &file.log {
            // Of hundreds of short-lived keys the first few will do.
            let (name, _) = records::event(open(*sequence, row));
            let many = file.log.len() > 200 && ["grant", "settle"].contains(&name);
            if many && *sequence < file.log.keys().last().unwrap() - 1 {
                continue;
            }
            line(&mut out, &format!("log {sequence}"), *sequence, row, |fields| records::event(fields).1);
        }
        for (number, row) in file.outcomes.iter().take(12) {
            let (body, crc) = row.split_at(row.len() - 4);
            assert_eq!(bytes::crc32(&[&number.to_le_bytes(), body]).to_le_bytes(), crc);
            let _ = writeln!(out, "outcomes {number} {:?}\n    {}", String::from_utf8_lossy(body), hex(row));
        }
    }
    let anchor = disk.export("/ledger.anchor").unwrap();
    let sealed = anchor.strip_prefix(b"onceledgeranchor").unwrap();
    line(&mut out, "anchor", 0, sealed, records::anchor);
    for path in disk.list(Path::new("/ledger.sessions")).unwrap() {
        let file = disk.export(&path).unwrap();
        for (n, (place, sealed)) in frames(&file).into_iter().enumerate() {
            let decode = if n == 0 { records::session_head } else { records::left_outcome };
            line(&mut out, &format!("{} +{place}", path.display()), place, sealed, decode);
        }
    }
    out
}

fn golden() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format/golden.txt")
}

/// Two lives of a file: one as it was written, and one that was adopted and cleaned, so that most of it is moved.
fn both() -> String {
    let first = dump(&first_life().0, true);
    let second = dump(&scenario().0, true);
    format!("{first}{second}")
}

#[test]
fn every_byte_of_every_record_is_what_the_golden_file_has() {
    let path = golden();
    let now = both();
    if std::env::var_os("ONCELEDGER_BLESS").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    for (number, (golden, now)) in golden.lines().zip(now.lines()).enumerate() {
        assert_eq!(golden, now, "line {}", number + 1);
    }
    assert_eq!(golden.lines().count(), now.lines().count());
}

/// The golden bytes decode by hand into the golden words: the decoder needs nothing of the crate.
#[test]
fn the_golden_bytes_decode_by_hand_into_the_golden_words() {
    let golden = std::fs::read_to_string(golden()).unwrap();
    let lines: Vec<_> = golden.lines().collect();
    let mut seen = BTreeSet::new();
    for pair in lines.chunks(2) {
        let (words_of, bytes) = (pair[0], from_hex(pair[1].trim()));
        let mut parts = words_of.split(' ');
        let what = parts.next().unwrap();
        let fields = match what {
            "log" => {
                let sequence = parts.next().unwrap().parse().unwrap();
                let (name, fields) = records::event(open(sequence, &bytes));
                seen.insert(name);
                fields
            }
            "meta" => records::meta(open(u64::MAX, &bytes)),
            "anchor" => records::anchor(open(0, &bytes)),
            "outcomes" => continue,
            _ => {
                let place: u64 = parts.next().unwrap().strip_prefix('+').unwrap().parse().unwrap();
                if place == 0 {
                    records::session_head(open(0, &bytes))
                } else {
                    records::left_outcome(open(place, &bytes))
                }
            }
        };
        assert!(words_of.ends_with(&words(&fields)), "{words_of}\n{}", words(&fields));
    }
    println!("{} records, {seen:?}", lines.len() / 2);
    assert!(lines.len() / 2 > 20);
}

/// Every kind of event is written by some call, and read by hand, in one life of the file or the next.
#[test]
fn every_kind_of_event_is_decoded_by_hand_as_it_is_written() {
    let (disk, clock) = (Arc::new(FaultDisk::new(18)), FakeClock::new());
    let mut seen = BTreeMap::<&str, u64>::new();
    let mut look = |disk: &FaultDisk| {
        for (sequence, row) in tables(&disk.export(PATH).unwrap()).log {
            let fields = open(sequence, &row);
            let (name, decoded) = records::event(fields);
            assert_eq!(encode(&decoded), fields, "{name} at {sequence}");
            *seen.entry(name).or_default() += 1;
        }
    };
    let ledger = options(&disk, &clock).create(PATH).unwrap();
    let held = grant(&ledger, &claim("k").lease(SECOND));
    let _ = held.renew(SECOND).unwrap();
    clock.advance(5 * SECOND);
    let token = held.token();
    let _ = ledger.resolve_token(&key("k"), token, Verdict::Failed(None), "a", "b", false).unwrap();
    let _ = held.complete("late").unwrap();
    let _ = grant(&ledger, &claim("settle")).complete("x").unwrap();
    let _ = grant(&ledger, &claim("release")).release().unwrap();
    drop(grant(&ledger, &claim("doubt")));
    let _ = ledger.transaction().expect_absent("cell").set_cell("cell", "v").commit().unwrap();
    ledger.request(&ApprovalRequest::new(&claim("asked"), "shown")).unwrap();
    ledger.close().unwrap();
    look(&disk);
    let (disk, _clock) = scenario();
    look(&disk);
    println!("{seen:?}");
    let all: BTreeSet<_> = records::EVENTS.into_iter().collect();
    assert_eq!(seen.into_keys().collect::<BTreeSet<_>>(), all);
}

/// The meta row's count and digest are those of the rows, as FORMAT.md says: the sum of XXH3-128 over each row, seeded
/// with its sequence.
#[test]
fn the_digest_of_the_log_is_the_sum_over_its_rows() {
    let (disk, _clock) = scenario();
    let file = tables(&disk.export(PATH).unwrap());
    let sum = file
        .log
        .iter()
        .fold(0_u128, |sum, (sequence, row)| sum.wrapping_add(xxhash_rust::xxh3::xxh3_128_with_seed(row, *sequence)));
    let meta = records::meta(open(u64::MAX, &file.meta["ledger"]));
    let field = |name| meta.iter().find(|(field, _)| *field == name).unwrap().1.clone();
    assert_eq!(field("count"), Value::U64(file.log.len() as u64));
    assert_eq!(field("digest"), Value::U128(sum));
    let last = *file.log.keys().last().unwrap();
    let Value::U64(next) = field("next_sequence") else { panic!() };
    assert!(next > last, "{next} after {last}");
}
