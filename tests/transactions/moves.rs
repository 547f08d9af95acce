//! The log cleaner writes what lives again; nobody may notice.

use onceledger::*;

use crate::kit::*;

#[test]
fn moving_keeps_versions_values_approvals_and_what_spent_them() {
    for place in Place::all() {
        let ledger = place.open();
        let small = put(&ledger, "small", "1");
        let large = put(&ledger, "large", &"v".repeat(20_000));
        put(&ledger, "gone", "1");
        let version = ledger.cell("gone").unwrap().unwrap().version;
        let _ = committed(ledger.transaction().expect_cell("gone", version).delete_cell("gone"));
        let pending = asked(&ledger, &claim("pending"));
        let yes = approved(&ledger, &claim("yes"));
        let spent = approved(&ledger, &claim("spent"));
        let no = asked(&ledger, &claim("no"));
        let _ = ledger.deny(no, "ben", "never").unwrap();
        let redacted = asked(&ledger, &claim("redacted"));
        let _ = ledger.redact(redacted, "ana").unwrap();
        let grant = granted(ledger.claim(&claim("spent").needs_approval()).unwrap());
        let all: Vec<Approval> = ledger.approvals(None, None, 100).unwrap();
        assert_eq!(all.len(), 5);
        let history = format!("{:?}", ledger.history(&key("spent")).unwrap());
        let check = |ledger: &Ledger| {
            assert_eq!(ledger.cell("small").unwrap().unwrap().version, small);
            let cell = ledger.cell("large").unwrap().unwrap();
            assert_eq!((cell.version, cell.value.body().len()), (large, 20_000));
            assert!(ledger.cell("gone").unwrap().is_none());
            assert_eq!(ledger.approvals(None, None, 100).unwrap(), all);
            assert_eq!(format!("{:?}", ledger.history(&key("spent")).unwrap()), history);
            assert_eq!(state(ledger, pending), ApprovalState::Pending);
            assert_eq!(state(ledger, yes), ApprovalState::Approved);
            assert_eq!(state(ledger, no), ApprovalState::Denied);
            ledger.verify().unwrap();
        };
        let ticket = grant.into_ticket();
        check(&ledger);
        move_everything(&ledger);
        check(&ledger);
        let ledger = place.reopen(ledger);
        check(&ledger);
        move_everything(&ledger);
        check(&ledger);
        let ledger = place.reopen(ledger);
        check(&ledger);
        assert_eq!(state(&ledger, spent), ApprovalState::Spent);
        assert_eq!(ticket.settle(&ledger, Settlement::not_applied("no")).unwrap(), Settled::Applied);
        assert_eq!(state(&ledger, spent), ApprovalState::Approved);
        assert!(matches!(
            ledger.transaction().expect_cell("large", large).set_cell("large", "2").commit().unwrap(),
            Transacted::Committed(_)
        ));
        ledger.verify().unwrap();
        ledger.close().unwrap();
    }
}

/// Cleaning puts an older approval behind a newer one in the log; the newest must stay the newest.
#[test]
fn the_newest_approval_is_the_newest_after_a_move_and_a_reopen() {
    let place = Place::memory();
    let ledger = place.open();
    let claim = claim("a");
    let first = approved(&ledger, &claim);
    let grant = granted(ledger.claim(&claim.clone().needs_approval()).unwrap()).into_ticket();
    let request = ApprovalRequest::new(&claim, "again").by("bot");
    let second = ledger.request(&request.clone().again()).unwrap().id;
    assert_ne!(first, second);
    let _ = ledger.deny(second, "ben", "no more").unwrap();
    // Given back: the first is worth something again, but the newest is a no.
    let _ = grant.settle(&ledger, Settlement::not_applied("no")).unwrap();
    let newest = |ledger: &Ledger| match ledger.claim(&claim.clone().needs_approval()).unwrap() {
        Claimed::NotApproved(stands) => stands.approval.unwrap().id,
        other => panic!("a yes that is older than a no was spent: {other:?}"),
    };
    assert_eq!(newest(&ledger), second);
    let ledger = place.reopen(ledger);
    assert_eq!(newest(&ledger), second);
    // Moved in the order of their rows: the second first, for the first was written last.
    move_everything(&ledger);
    assert_eq!(newest(&ledger), second);
    let ledger = place.reopen(ledger);
    assert_eq!(newest(&ledger), second);
    assert_eq!(ledger.request(&request).unwrap().id, second);
}

/// Two sweeps in one batch read the same committed rows; each row may be taken out once.
#[test]
fn sweeps_that_meet_in_one_batch_leave_a_whole_log() {
    const ROUNDS: usize = 6;
    let place = Place::memory().threaded();
    let ledger = place.open();
    let id = approved(&ledger, &claim("a"));
    let mut rows = 0;
    for _ in 0..ROUNDS {
        for _ in 0..4 {
            let mut transaction = ledger.transaction();
            for number in 0..900 {
                let name = format!("filler/{number:04}");
                transaction = match ledger.cell(&name).unwrap() {
                    Some(cell) => transaction.expect_cell(&name, cell.version),
                    None => transaction.expect_absent(&name),
                };
                transaction = transaction.set_cell(&name, "x");
            }
            let _ = committed(transaction);
        }
        let swept: Vec<Swept> = std::thread::scope(|scope| {
            let sweeps: Vec<_> = (0..16).map(|_| scope.spawn(|| ledger.sweep(4096).unwrap())).collect();
            sweeps.into_iter().map(|sweep| sweep.join().unwrap()).collect()
        });
        rows += swept.iter().map(|swept| swept.rows).sum::<u64>();
        ledger.verify().unwrap();
    }
    println!("{rows} rows swept by 16 threads at once");
    let ledger = place.reopen(ledger);
    assert_eq!(state(&ledger, id), ApprovalState::Approved);
    ledger.close().unwrap();
}
