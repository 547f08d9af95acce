//! A body that should be there and is not is damage, not an empty cell or a redaction (P6).

use onceledger::*;
use redb::{Database, TableDefinition};

use crate::kit::*;

const OUTCOMES: TableDefinition<u64, &[u8]> = TableDefinition::new("outcomes");

/// A ledger with a cell and an approval whose bodies somebody took out of the file.
fn robbed() -> (Place, ApprovalId, Ledger) {
    let place = Place::real();
    let ledger = place.open();
    put(&ledger, "cell", &"v".repeat(5000));
    let id = asked(&ledger, &claim("a"));
    ledger.close().unwrap();
    let database = Database::open(&place.path).unwrap();
    let write = database.begin_write().unwrap();
    let mut rows = 0;
    write
        .open_table(OUTCOMES)
        .unwrap()
        .retain(|_, _| {
            rows += 1;
            false
        })
        .unwrap();
    assert_eq!(rows, 2);
    write.commit().unwrap();
    drop(database);
    let ledger = place.open();
    (place, id, ledger)
}

#[test]
fn a_missing_value_and_a_missing_text_are_damage() {
    let (_place, id, ledger) = robbed();
    assert_eq!(ledger.cell("cell").unwrap_err().kind(), ErrorKind::Damaged);
    assert_eq!(ledger.cells("", None, 10).unwrap_err().kind(), ErrorKind::Damaged);
    assert_eq!(ledger.approval(id).unwrap_err().kind(), ErrorKind::Damaged);
    assert_eq!(ledger.verify().unwrap_err().kind(), ErrorKind::Damaged);
}

#[test]
fn what_was_redacted_or_deleted_is_no_damage() {
    let (_place, id, ledger) = robbed();
    let _ = ledger.redact(id, "dpo").unwrap();
    assert_eq!(ledger.approval(id).unwrap().unwrap().shown, None);
    assert_eq!(ledger.verify().unwrap_err().kind(), ErrorKind::Damaged);
}
