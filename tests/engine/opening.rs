//! Opening, creating and adopting (P12): what is refused, in which words, and the way out.

use onceledger::testkit::{FaultDisk, FileSystem, Mode};
use onceledger::{ErrorKind, Ledger, Options};

use crate::kit::*;

#[track_caller]
fn refuses(place: &Place, kind: ErrorKind, words: &[&str]) {
    let error = place.options().open(&place.path).map(drop).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    let text = error.to_string();
    for word in words.iter().chain(&[place.path.to_str().unwrap()]) {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
    assert!(error.advice().is_some(), "no way out: {text}");
    assert!(place.options().open_or_create(&place.path).is_err(), "opened as a fresh one");
}

fn used(place: &Place) {
    let ledger = place.create();
    let _ = grant(&ledger, &claim("k")).complete("x").unwrap();
    drop(grant(&ledger, &claim("doubt")));
    ledger.close().unwrap();
}

/// P12: a file that is gone is not replaced by an empty one, by whichever entry.
#[test]
fn p12_a_missing_file_is_refused_not_created_anew() {
    on_every_backend(|place| {
        used(place);
        place.disk.remove(&place.path).unwrap();
        refuses(place, ErrorKind::RolledBack, &["is gone", "anchor"]);
        assert_eq!(place.options().create(&place.path).unwrap_err().kind(), ErrorKind::RolledBack);
        assert!(place.options().adopt(&place.path, "ana", "hope").is_err());
        assert!(place.disk.node(&place.path).unwrap().is_none(), "something was written");
    });
}

/// P12: emptied, cut, or overwritten with something else.
#[test]
fn p12_an_emptied_or_replaced_file_is_refused() {
    let place = Place::fault();
    used(&place);
    let whole = place.faults().export(&place.path).unwrap();
    let cases: [(&str, Vec<u8>); 6] = [
        ("emptied", Vec::new()),
        ("one byte", vec![b'r']),
        ("zeros", vec![0; whole.len()]),
        ("text", b"not a ledger at all".repeat(100)),
        ("half", whole[..whole.len() / 2].to_vec()),
        ("magic only", whole[..16].to_vec()),
    ];
    for (name, bytes) in cases {
        let disk = place.faults().process_crash();
        disk.import(&place.path, &bytes);
        let after = Place::of(disk);
        let error = after.options().open(&after.path).map(drop).unwrap_err();
        let kinds = [ErrorKind::Damaged, ErrorKind::RolledBack, ErrorKind::NotALedger];
        assert!(kinds.contains(&error.kind()), "{name}: {error:?}");
        assert!(error.advice().is_some(), "{name}: {error}");
        assert!(after.options().open_or_create(&after.path).is_err(), "{name}");
        assert!(after.options().create(&after.path).is_err(), "{name}");
        assert!(after.faults().export(&after.path).unwrap() == bytes, "{name}: it was written to");
    }
}

/// P12: another ledger's file, and another ledger's anchor.
#[test]
fn p12_another_ledgers_file_or_anchor_is_refused() {
    let (one, other) = (Place::fault(), Place::of(FaultDisk::new(2)));
    used(&one);
    used(&other);
    let foreign = other.faults().export(&other.path).unwrap();
    let disk = one.faults().process_crash();
    disk.import(&one.path, &foreign);
    refuses(&Place::of(disk), ErrorKind::RolledBack, &["another ledger", "adopt"]);
    let anchor = other.faults().export(other.beside(".anchor")).unwrap();
    let disk = one.faults().process_crash();
    disk.import(one.beside(".anchor"), &anchor);
    refuses(&Place::of(disk), ErrorKind::RolledBack, &["another ledger", "adopt"]);
}

/// P12: an anchor that is missing or damaged is refused with the name of the way out; adopting takes it.
#[test]
fn p12_a_missing_or_damaged_anchor_is_refused_and_adopt_is_the_way_out() {
    let place = Place::fault();
    used(&place);
    let anchor = place.beside(".anchor");
    let len = place.faults().export(&anchor).unwrap().len() as u64;
    let mut disks: Vec<FaultDisk> = (0..len)
        .map(|at| {
            let disk = place.faults().process_crash();
            disk.flip(&anchor, at, 1 << (at % 8));
            disk
        })
        .collect();
    for cut in 0..len {
        let disk = place.faults().process_crash();
        disk.truncate(&anchor, cut);
        disks.push(disk);
    }
    let gone = place.faults().process_crash();
    assert!(gone.lose(&anchor));
    disks.push(gone);
    for (n, disk) in disks.into_iter().enumerate() {
        let place = Place::of(disk);
        let error = place.options().open(&place.path).map(drop).unwrap_err();
        assert!(
            [ErrorKind::Damaged, ErrorKind::RolledBack, ErrorKind::NewerFormat].contains(&error.kind()),
            "{n}: {error:?}"
        );
        assert!(
            error.to_string().contains(place.beside(".anchor").to_str().unwrap())
                || error.to_string().contains("anchor")
        );
        if error.kind() != ErrorKind::NewerFormat {
            assert!(error.to_string().contains("adopt"), "{n}: {error}");
            let ledger = place.options().adopt(&place.path, "ana", "the disk was repaired").unwrap();
            assert_eq!((standing(&ledger, "k"), standing(&ledger, "doubt")), ("done", "uncertain"));
            ledger.close().unwrap();
            let ledger = place.open();
            assert_eq!(ledger.stats().unwrap().epoch, 2);
        }
    }
}

/// P12: an older copy of the file, taken between two opens or inside one, is refused; adopting it starts a new epoch
/// with numbers far above all that were ever given out.
#[test]
fn p12_an_older_copy_is_refused_and_an_adopted_one_gives_out_no_token_twice() {
    let place = Place::fault();
    let ledger = place.create();
    let _ = grant(&ledger, &claim("old")).complete("x").unwrap();
    let inside = place.faults().snapshot(&place.path).unwrap();
    let _ = grant(&ledger, &claim("new")).complete("x").unwrap();
    place.clock.advance(2 * SECOND);
    ledger.tick();
    // A copy from earlier in the same open, older than the last anchor, after a crash.
    let disk = place.faults().process_crash();
    disk.restore(&place.path, &inside);
    refuses(&Place::of(disk), ErrorKind::RolledBack, &["older than its anchor", "adopt"]);
    ledger.close().unwrap();
    let between = place.faults().snapshot(&place.path).unwrap();
    let ledger = place.open();
    let held = grant(&ledger, &claim("newer"));
    let last = held.token();
    let _ = held.complete("x").unwrap();
    ledger.close().unwrap();
    for copy in [inside, between] {
        let disk = place.faults().process_crash();
        disk.restore(&place.path, &copy);
        let older = Place::of(disk);
        refuses(&older, ErrorKind::RolledBack, &["older than its anchor", "adopt"]);
        for (by, why) in [("", "why"), ("ana", " ")] {
            assert!(older.options().adopt(&older.path, by, why).unwrap_err().is_bad_input());
        }
        let ledger = older.options().adopt(&older.path, "ana", "the newer one is lost").unwrap();
        assert_eq!(standing(&ledger, "newer"), "vacant", "what only the newer copy knew");
        let token = grant(&ledger, &claim("newer")).token();
        assert!(token.get() > last.get() + (1 << 31), "{token} after {last}");
        ledger.close().unwrap();
        let ledger = older.open();
        let stats = ledger.stats().unwrap();
        assert_eq!(stats.epoch, 2);
        let told: Vec<_> =
            stats.adoptions.iter().map(|adoption| (adoption.epoch, &*adoption.by, &*adoption.why)).collect();
        assert_eq!(told, [(2, "ana", "the newer one is lost")]);
        ledger.verify().unwrap();
        ledger.close().unwrap();
        // The one that was replaced is of the old epoch now.
        let newest = place.faults().snapshot(&place.path).unwrap();
        older.faults().restore(&older.path, &newest);
        refuses(&older, ErrorKind::RolledBack, &["older than its anchor"]);
    }
}

/// Who adopted the file is told oldest first, also where a sweep has written only the older row again.
#[test]
fn adoptions_are_told_in_their_order_with_their_times_whatever_a_sweep_moved() {
    let place = Place::fault();
    place.create().close().unwrap();
    let adopt = |by| place.options().disk(place.stranger_disk()).adopt(&place.path, by, "the anchor was lost").unwrap();
    let ledger = adopt("one");
    for n in 0..2500 {
        let short = claim(format!("{n}")).keep(SECOND).remember(SECOND);
        let _ = grant(&ledger, &short).complete("x").unwrap();
    }
    ledger.close().unwrap();
    let ledger = adopt("two");
    place.clock.advance(HOUR);
    let told = ledger.stats().unwrap().adoptions;
    assert_eq!(told.iter().map(|adoption| &*adoption.by).collect::<Vec<_>>(), ["one", "two"]);
    for _ in 0..2 {
        assert!(ledger.sweep(100_000).unwrap().rows > 0);
    }
    assert_eq!(ledger.stats().unwrap().adoptions, told);
    ledger.close().unwrap();
    assert_eq!(place.open().stats().unwrap().adoptions, told);
}

/// P12: the same number of rows, other rows: the anchor of a clean file vouches for count and digest.
#[test]
fn p12_a_forked_copy_with_as_many_rows_is_refused() {
    let place = Place::fault();
    used(&place);
    let (left, right) = (Place::of(place.faults().process_crash()), Place::of(place.faults().process_crash()));
    for (place, part) in [(&left, "left"), (&right, "right")] {
        let ledger = place.open();
        let _ = grant(&ledger, &claim(part)).complete("x").unwrap();
        ledger.close().unwrap();
    }
    let copy = right.faults().export(&right.path).unwrap();
    left.faults().import(&left.path, &copy);
    let error = left.options().open(&left.path).map(drop).unwrap_err();
    assert!(error.is_damaged() && error.to_string().contains("adopt"), "{error}");
}

/// An interrupted creation, cut at every single operation, by a kill and by a loss of power: `create` and
/// `open_or_create` complete it or start over, and nothing in between opens as a ledger with a past.
#[test]
fn p12_a_creation_interrupted_at_every_operation_is_completed_or_started_over() {
    let whole = FaultDisk::new(7);
    Place::of(whole.clone()).create().close().unwrap();
    let operations = whole.operations();
    // From the second anchor on, which says that it was opened, it exists.
    let anchors: Vec<_> = whole
        .trace()
        .iter()
        .enumerate()
        .filter(|(_, line)| line.contains("rename"))
        .map(|(at, _)| at as u64 + 1)
        .collect();
    let second_anchor = anchors[1];
    let mut existed = 0;
    for stop in 1..=operations {
        for power in [false, true] {
            for entry in ["create", "open_or_create"] {
                let disk = FaultDisk::new(7);
                disk.stop_at(stop);
                let place = Place::of(disk.clone());
                let created = place.options().create(&place.path);
                drop(created);
                let after = Place::of(if power { disk.power_loss() } else { disk.process_crash() });
                let opened = match entry {
                    "create" => after.options().create(&after.path),
                    _ => after.options().open_or_create(&after.path),
                };
                let ledger = match opened {
                    Ok(ledger) => ledger,
                    // Whoever was told that it was created must open it.
                    Err(error) if error.kind() == ErrorKind::Exists && entry == "create" => {
                        existed += 1;
                        assert!(stop > second_anchor, "stopped at {stop} of {operations}, power {power}: {error}");
                        after.open()
                    }
                    Err(error) => panic!("stopped at {stop} of {operations}, power {power}, {entry}: {error:?}"),
                };
                assert_eq!(ledger.stats().unwrap().next_sequence, 1);
                let _ = grant(&ledger, &claim("k")).complete("x").unwrap();
                ledger.close().unwrap();
                let ledger = after.open();
                assert_eq!(refused(&ledger, &claim("k")), "done");
                assert!(after.disk.node(&after.beside(".creating")).unwrap().is_none(), "stopped at {stop}: litter");
            }
        }
    }
    println!("{operations} operations, opened with number {second_anchor}; {existed} times it was there");
}

/// Two ledgers on one file in one process, and from another: refused with the holder's process id.
#[test]
fn two_ledgers_on_one_file_are_refused_with_the_holders_process_id() {
    on_every_backend(|place| {
        let ledger = place.create();
        let pid = std::process::id().to_string();
        for options in [place.options(), place.stranger()] {
            let error = options.clone().open(&place.path).unwrap_err();
            assert!(error.is_locked() && error.to_string().contains(&pid), "{error}");
            assert!(options.clone().open_or_create(&place.path).unwrap_err().is_locked());
            assert!(options.adopt(&place.path, "a", "b").unwrap_err().is_locked());
        }
        let _ = grant(&ledger, &claim("k")).complete("x").unwrap();
        ledger.close().unwrap();
        assert_eq!(refused(&place.open_elsewhere(), &claim("k")), "done");
    });
}

/// The file lock is waited for as long as asked, and no longer.
#[test]
fn a_lock_wait_gets_the_file_once_it_is_free() {
    let place = Place::memory();
    let ledger = place.create();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| place.options().lock_wait(DAY).open("/ledger").unwrap());
        std::thread::sleep(std::time::Duration::from_millis(30));
        ledger.close().unwrap();
        waiting.join().unwrap();
    });
}

/// What is no ledger is refused, and nothing is written beside it.
#[test]
fn what_is_no_ledger_is_refused_and_left_alone() {
    on_every_backend(|place| {
        let error = place.options().open(&place.path).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing);
        assert!(error.advice().is_some());
        for suffix in ["", ".lock", ".anchor", ".sessions"] {
            assert!(place.disk.node(&place.beside(suffix)).unwrap().is_none(), "{suffix} was made");
        }
        let file = place.disk.open(&place.path, Mode::CreateNew).unwrap();
        file.write_at(0, b"a shopping list").unwrap();
        drop(file);
        assert_eq!(place.options().open(&place.path).unwrap_err().kind(), ErrorKind::NotALedger);
        assert_eq!(place.options().open_or_create(&place.path).unwrap_err().kind(), ErrorKind::NotALedger);
        assert_eq!(place.options().create(&place.path).unwrap_err().kind(), ErrorKind::Exists);
        assert!(place.options().adopt(&place.path, "a", "b").is_err());
        assert!(place.disk.node(&place.beside(".anchor")).unwrap().is_none());
    });
    let place = Place::file();
    let folder = place.path.parent().unwrap();
    assert_eq!(place.options().open(folder).unwrap_err().kind(), ErrorKind::NotALedger);
    assert_eq!(place.options().create(folder).unwrap_err().kind(), ErrorKind::NotALedger);
    assert!(place.options().create(folder.join("no/such/folder")).is_err());
}

/// A ledger is there once: `create` on one that exists says so and changes nothing.
#[test]
fn create_refuses_what_exists() {
    on_every_backend(|place| {
        used(place);
        assert_eq!(place.options().create(&place.path).unwrap_err().kind(), ErrorKind::Exists);
        assert_eq!(refused(&place.options().open_or_create(&place.path).unwrap(), &claim("k")), "done");
    });
}

/// Network file systems are refused, FUSE asks for a flag.
#[test]
fn file_systems_that_promise_less_are_refused() {
    let place = Place::fault();
    place.faults().set_file_system(FileSystem::Network("NFS"));
    let error = place.options().create(&place.path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("NFS"), "{error}");
    place.faults().set_file_system(FileSystem::Fuse);
    assert_eq!(place.options().create(&place.path).unwrap_err().kind(), ErrorKind::Unsupported);
    place.options().allow_fuse(true).create(&place.path).unwrap().close().unwrap();
}

/// A redb file that somebody else made is no ledger.
#[test]
fn a_foreign_redb_file_is_no_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("foreign.redb");
    drop(redb::Database::create(&path).unwrap());
    assert!(Ledger::open(&path).is_err());
    assert!(Ledger::open_or_create(&path).is_err());
    assert!(Options::new().adopt(&path, "a", "b").is_err());
}

/// A real file is for its owner only, and so is everything beside it.
#[cfg(unix)]
#[test]
fn files_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::file();
    let ledger = place.create();
    let held = grant(&ledger, &claim("k"));
    let folder = place.path.parent().unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let data = entry.unwrap().metadata().unwrap();
        assert_eq!(data.permissions().mode() & 0o077, 0);
    }
    drop(held);
}

/// A symbolic link is another name of the same ledger, not another ledger.
#[cfg(unix)]
#[test]
fn a_link_is_the_same_ledger() {
    let place = Place::file();
    let ledger = place.create();
    let link = place.path.with_file_name("link.redb");
    std::os::unix::fs::symlink(&place.path, &link).unwrap();
    assert!(place.options().open(&link).unwrap_err().is_locked());
    let _ = grant(&ledger, &claim("k")).complete("x").unwrap();
    ledger.close().unwrap();
    assert_eq!(refused(&place.options().open(&link).unwrap(), &claim("k")), "done");
}
