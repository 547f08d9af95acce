//! A transaction that a crash or a failing disk meets is there whole, or not at all (P7).

use std::collections::BTreeMap;

use onceledger::testkit::{CrashOptions, Failure, Fault, FaultDisk};
use onceledger::*;

use crate::kit::*;

/// What a ledger may hold afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Whole,
    Nothing,
}

/// A ledger with an approval, a cell to change and one to delete, and the place of its disk.
fn prepared(disk: &FaultDisk) -> (Place, Ledger, ApprovalId) {
    let place = Place::on(disk.clone());
    let ledger = place.open();
    let id = approved(&ledger, &claim("a"));
    put(&ledger, "changed", "old");
    // Its value is in the file, not in memory.
    put(&ledger, "deleted", &"d".repeat(5000));
    (place, ledger, id)
}

/// Two claims, two cells, one approval.
fn transaction(ledger: &Ledger, id: ApprovalId, versions: (Version, Version)) -> Transaction {
    let tx = ledger.transaction().claim(claim("a")).spend(id).claim(claim("b"));
    let tx = tx.expect_cell("changed", versions.0).set_cell("changed", "new".repeat(2000));
    tx.expect_cell("deleted", versions.1).delete_cell("deleted")
}

fn versions(ledger: &Ledger) -> (Version, Version) {
    let version = |name| ledger.cell(name).unwrap().unwrap().version;
    (version("changed"), version("deleted"))
}

/// Opens what a crash left, and says what of the transaction is there. Panics on a half.
#[track_caller]
fn look(disk: FaultDisk, id: ApprovalId, versions: (Version, Version)) -> Found {
    let origin = disk.origin();
    let place = Place::on(disk);
    let ledger = place.options().open(&place.path).unwrap_or_else(|error| panic!("{origin}: {error}"));
    ledger.verify().unwrap_or_else(|error| panic!("{origin}: {error}"));
    let parts = (
        ledger.check(&key("a")).unwrap().standing(),
        ledger.check(&key("b")).unwrap().standing(),
        state(&ledger, id),
        ledger.cell("changed").unwrap().map(|cell| (cell.version, cell.value.body().len())),
        ledger.cell("deleted").unwrap().map(|cell| (cell.version, cell.value.body().len())),
    );
    let again = transaction(&ledger, id, versions).commit().unwrap();
    match parts {
        (Standing::Uncertain, Standing::Uncertain, ApprovalState::Spent, Some((version, 6000)), None) => {
            assert!(version > versions.0);
            // The repeat hears of the claims first, and not of a version conflict alone.
            let Transacted::Refused(told) = again else { panic!("{origin}: granted again") };
            let claims =
                told.iter().filter(|told| matches!(told, Refusal::Claim { stands: Claimed::Uncertain(_), .. }));
            assert_eq!((claims.count(), told.len()), (2, 4), "{origin}: {told:?}");
            let token = ledger.show(&key("a")).unwrap().unwrap().token;
            assert_eq!(ledger.approval(id).unwrap().unwrap().spent_by, Some(token));
            Found::Whole
        }
        (Standing::Vacant, Standing::Vacant, ApprovalState::Approved, Some((version, 3)), Some((deleted, 5000)))
            if (version, deleted) == versions =>
        {
            assert!(matches!(again, Transacted::Committed(_)), "{origin}: {again:?}");
            Found::Nothing
        }
        half => panic!("a half after {origin}: {half:?}"),
    }
}

fn long() -> bool {
    std::env::var_os("ONCELEDGER_LONG").is_some()
}

#[test]
fn a_crash_at_every_operation_leaves_the_whole_or_nothing() {
    let options = if long() {
        CrashOptions::default()
    } else {
        CrashOptions { subsets_max: 4, random: 6, pairs_max: 8, tears_max: 4, names_max: 4, ..CrashOptions::default() }
    };
    let at_most = if long() { usize::MAX } else { 24 };
    let (first, last) = {
        let disk = FaultDisk::new(1);
        let (_place, ledger, id) = prepared(&disk);
        let versions = versions(&ledger);
        let first = disk.operations() + 1;
        let done = committed(transaction(&ledger, id, versions));
        let last = disk.operations();
        drop(done);
        (first, last)
    };
    let mut found: BTreeMap<Found, u64> = BTreeMap::new();
    let (mut crashes, mut states) = (0, 0);
    for number in first..=last + 1 {
        let disk = FaultDisk::new(number);
        let (_place, ledger, id) = prepared(&disk);
        let versions = versions(&ledger);
        assert_eq!(disk.operations() + 1, first, "the run is not the same each time");
        disk.stop_at(number);
        let answer = transaction(&ledger, id, versions).commit();
        assert_eq!(answer.is_ok(), number > last, "{answer:?}");
        let acknowledged = answer.is_ok();
        if let Err(error) = &answer {
            assert!(matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Storage), "{error}");
        }
        let not_begun = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Storage);
        crashes += 1;
        let images = disk.crash_images(&options);
        let step = images.len().div_ceil(at_most).max(1);
        for image in images.step_by(step).chain([disk.process_crash(), disk.power_loss()]) {
            states += 1;
            let here = look(image, id, versions);
            assert!(here == Found::Whole || !acknowledged, "an acknowledged transaction is gone");
            assert!(here == Found::Nothing || !not_begun, "said to be not on disk, and is");
            *found.entry(here).or_default() += 1;
        }
        drop(answer);
    }
    println!("{crashes} crash points, {states} states: {found:?}, 0 halves");
    assert!(crashes >= 20 && states >= 200 && found.len() == 2);
}

/// The disk fails instead of the process: what the caller is told must be true after the reopen.
#[test]
fn a_failure_of_every_operation_leaves_what_the_caller_was_told() {
    let failures = [Failure::Io, Failure::Short, Failure::Full, Failure::Sync];
    let mut told: BTreeMap<(&str, Found), u64> = BTreeMap::new();
    for failure in failures {
        let mut number = 0;
        loop {
            let disk = FaultDisk::new(1);
            let (_place, ledger, id) = prepared(&disk);
            let versions = versions(&ledger);
            let first = disk.operations() + 1;
            disk.set_plan(Fault::at(first + number).with(failure));
            let answer = transaction(&ledger, id, versions).commit();
            let past_the_end = first + number > disk.operations();
            number += 1;
            let word = match &answer {
                Ok(Transacted::Committed(_)) => "committed",
                Ok(Transacted::Refused(told)) => panic!("{told:?}"),
                Err(error) => error.kind().name(),
            };
            if answer.is_err() {
                let closed = ledger.cell("changed").unwrap_err();
                assert_eq!(closed.kind(), ErrorKind::Storage);
                assert_eq!(ledger.approvals(None, None, 1).unwrap_err().kind(), ErrorKind::Storage);
            }
            let found = look(disk.process_crash(), id, versions);
            assert!(word != "committed" || found == Found::Whole);
            assert!(word != "storage" || found == Found::Nothing);
            *told.entry((word, found)).or_default() += 1;
            if past_the_end {
                break;
            }
        }
    }
    println!("{told:?}");
    assert!(told.values().sum::<u64>() >= 80);
}
