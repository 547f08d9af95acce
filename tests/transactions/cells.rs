//! Cells: versions, compare-and-set, reading and listing.

use std::sync::atomic::{AtomicBool, Ordering};

use onceledger::*;

use crate::kit::*;

#[test]
fn a_cell_changes_only_under_what_was_expected() {
    for place in Place::all() {
        let ledger = place.open();
        let one = put(&ledger, "budget", "1");
        let stale = refused(ledger.transaction().expect_absent("budget").set_cell("budget", "9"));
        let [Refusal::Cell { name, stands: Some(cell) }] = stale.as_slice() else { panic!("{stale:?}") };
        assert_eq!((name.as_str(), cell.version, cell.value.body()), ("budget", one, &b"1"[..]));
        let two = put(&ledger, "budget", "2");
        assert!(two > one);
        let gone = refused(ledger.transaction().expect_cell("budget", one).delete_cell("budget"));
        assert_eq!(gone.len(), 1);
        // An expectation alone writes nothing and tells the version that stands.
        let before = position(&ledger);
        let only = committed(ledger.transaction().expect_cell("budget", two).expect_absent("none"));
        assert_eq!(only.versions, [("budget".to_owned(), Some(two)), ("none".to_owned(), None)]);
        assert_eq!(position(&ledger), before);
        let deleted = committed(ledger.transaction().expect_cell("budget", two).delete_cell("budget"));
        assert_eq!(deleted.versions, [("budget".to_owned(), None)]);
        assert!(ledger.cell("budget").unwrap().is_none());
        // The version of a cell that was deleted and made again was never given out before.
        let three = put(&ledger, "budget", "1");
        assert!(three > two);
        assert_eq!(refused(ledger.transaction().expect_cell("budget", one).set_cell("budget", "9")).len(), 1);
        let ledger = place.reopen(ledger);
        let cell = ledger.cell("budget").unwrap().unwrap();
        assert_eq!((cell.version, cell.value.body()), (three, &b"1"[..]));
        ledger.close().unwrap();
    }
}

#[test]
fn values_come_back_as_they_were_written() {
    for place in Place::all() {
        let ledger = place.open();
        let values = [
            Outcome::text(""),
            Outcome::json("null"),
            Outcome::json("{}").as_error(),
            Outcome::binary([0, 255, 0]),
            Outcome::text("v".repeat(4096)),
            Outcome::text("v".repeat(4097)),
            Outcome::binary(vec![7; Cell::VALUE_BYTES_MAX]),
        ];
        for (number, value) in values.iter().enumerate() {
            let name = number.to_string();
            let _ = committed(ledger.transaction().expect_absent(&name).set_cell(&name, value.clone()));
        }
        let check = |ledger: &Ledger| {
            for (number, value) in values.iter().enumerate() {
                assert_eq!(ledger.cell(&number.to_string()).unwrap().unwrap().value, *value, "{}", place.name);
            }
        };
        check(&ledger);
        let ledger = place.reopen(ledger);
        check(&ledger);
        move_everything(&ledger);
        check(&ledger);
        let ledger = place.reopen(ledger);
        check(&ledger);
        ledger.close().unwrap();
    }
}

#[test]
fn cells_are_listed_by_prefix_page_by_page() {
    let place = Place::memory();
    let ledger = place.open();
    let names = ["a", "b", "b/", "b/1", "b/2", "b/3", "b0", "c", "b/\u{10ffff}"];
    for name in names {
        put(&ledger, name, name);
    }
    assert_eq!(ledger.cells("b/", None, 0).unwrap().next, None);
    let mut sorted: Vec<&str> = names.into_iter().filter(|name| name.starts_with("b/")).collect();
    sorted.sort_unstable();
    for limit in 0..8 {
        let (mut found, mut after) = (Vec::new(), None);
        for _ in 0..20 {
            let page = ledger.cells("b/", after.as_deref(), limit).unwrap();
            assert!(page.cells.len() <= limit);
            found.extend(page.cells.into_iter().map(|cell| cell.name));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        // A page of no cells goes nowhere, and skips nothing either.
        assert_eq!(found, if limit == 0 { Vec::new() } else { sorted.clone() }, "limit {limit}");
    }
    assert_eq!(ledger.cells("", None, 100).unwrap().cells.len(), names.len());
    assert_eq!(ledger.cells("b/", Some("a"), 100).unwrap().cells.len(), sorted.len());
    assert_eq!(ledger.cells("b/", Some("c"), 100).unwrap().cells.len(), 0);
    assert_eq!(ledger.cells("nothing", None, 100).unwrap().cells.len(), 0);
}

/// A reader meets a value that was just replaced: it must get the newer one, never `Damaged`.
#[test]
fn a_cell_that_changes_under_its_readers_is_never_damaged() {
    const WRITES: u32 = 400;
    let place = Place::memory().threaded();
    let ledger = place.open();
    // Over what stays in memory, so that every read goes to the file.
    let value = |number: u32| format!("{number:05}{}", "v".repeat(5000));
    put(&ledger, "large", &value(0));
    let over = AtomicBool::new(false);
    let reads: u64 = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let (mut reads, mut last) = (0_u64, None);
                    while !over.load(Ordering::Relaxed) {
                        let cell = ledger.cell("large").unwrap().unwrap();
                        assert!(Some(cell.version) >= last, "went back from {last:?} to {cell:?}");
                        last = Some(cell.version);
                        let listed = ledger.cells("large", None, 1).unwrap();
                        assert_eq!(listed.cells.len(), 1);
                        reads += 1;
                    }
                    reads
                })
            })
            .collect();
        for number in 1..=WRITES {
            put(&ledger, "large", &value(number));
        }
        over.store(true, Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    println!("{WRITES} writes, {reads} reads beside them");
    assert!(reads >= 100);
}
