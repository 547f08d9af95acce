//! A transaction as a future: dropped at any point, it leaves nothing in progress.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use onceledger::testkit::SplitMix;
use onceledger::*;

use crate::kit::*;

type Committing = Pin<Box<dyn Future<Output = Result<Transacted>> + Send>>;

fn poll(future: &mut Committing) -> Poll<Result<Transacted>> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn transaction(ledger: &Ledger, id: ApprovalId) -> Committing {
    let tx = ledger.transaction().claim(claim("a")).spend(id).claim(claim("b"));
    Box::pin(tx.expect_absent("cell").set_cell("cell", "1").commit_async())
}

/// Dropped after so many polls, with the writer at work after the first or not.
#[test]
fn dropped_at_every_point_it_gives_back_what_it_was_granted() {
    for (polls, written) in [(0, false), (1, false), (1, true), (2, true)] {
        let place = Place::faulty();
        let ledger = place.open();
        let id = approved(&ledger, &claim("a"));
        let before = position(&ledger);
        let mut future = transaction(&ledger, id);
        let mut answer = None;
        for number in 0..polls {
            match poll(&mut future) {
                Poll::Pending => assert_eq!(number, 0),
                Poll::Ready(ready) => answer = Some(ready.unwrap()),
            }
            if written {
                ledger.tick();
            }
        }
        drop(future);
        ledger.tick();
        let standing = |part| ledger.check(&key(part)).unwrap().standing();
        if let Some(answer) = answer {
            // Taken out: the grants are the caller's, and dropping them leaves doubts.
            assert!(matches!(answer, Transacted::Committed(_)));
            assert_eq!(standing("a"), Standing::InProgress);
            drop(answer);
            ledger.tick();
            assert_eq!((standing("a"), standing("b")), (Standing::Uncertain, Standing::Uncertain));
            assert_eq!(state(&ledger, id), ApprovalState::Spent);
            continue;
        }
        assert_eq!((standing("a"), standing("b")), (Standing::Vacant, Standing::Vacant), "{polls} polls");
        assert_eq!(state(&ledger, id), ApprovalState::Approved);
        assert_eq!(ledger.cell("cell").unwrap().is_some(), written, "cells of a decided transaction stand");
        if !written {
            assert_eq!(position(&ledger), before, "abandoned before it was decided, it writes nothing");
        }
        let ledger = place.reopen(ledger);
        assert_eq!(state(&ledger, id), ApprovalState::Approved);
        assert_eq!(ledger.check(&key("a")).unwrap(), View::Vacant);
        ledger.close().unwrap();
    }
}

#[test]
fn dropped_at_random_moments_beside_the_writer_it_leaves_nothing_in_progress() {
    const DROPS: u64 = 500;
    let place = Place::memory().threaded();
    let ledger = place.open();
    let (mut untouched, mut written) = (0, 0);
    let mut random = SplitMix::new(1);
    for number in 0..DROPS {
        let claim = claim(&number.to_string());
        let id = approved(&ledger, &claim);
        let name = number.to_string();
        let tx = ledger.transaction().claim(claim.clone()).spend(id).expect_absent(&name).set_cell(&name, "1");
        let mut future: Committing = Box::pin(tx.commit_async());
        let first = poll(&mut future);
        for _ in 0..random.below(40) {
            std::thread::yield_now();
        }
        drop(future);
        if let Poll::Ready(answer) = first {
            // The writer was faster than the poll: the grant is the caller's own to give back.
            let Transacted::Committed(all) = answer.unwrap() else { panic!() };
            all.grants.into_iter().for_each(|grant| drop(grant.release().unwrap()));
        }
        // The release is in line; a call that comes after it hears of it.
        let grant = loop {
            match ledger.claim(&claim.clone().needs_approval()).unwrap() {
                Claimed::Granted(grant) => break grant,
                Claimed::InProgress(_) | Claimed::NotApproved(_) => std::thread::yield_now(),
                other => panic!("{other:?}"),
            }
        };
        match ledger.cell(&name).unwrap() {
            Some(_) => written += 1,
            None => untouched += 1,
        }
        let _ = grant.complete("x").unwrap();
    }
    println!("{DROPS} futures dropped: {untouched} before they were decided, {written} after");
    assert_eq!(ledger.stats().unwrap().in_progress, 0);
}

/// A ledger call on the committing thread could only deadlock: cells are no exception.
#[test]
fn a_waker_that_looks_at_a_cell_gets_a_typed_error() {
    struct Looks(Ledger, AtomicBool);
    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            let errors = [
                self.0.cell("cell").unwrap_err(),
                self.0.cells("", None, 1).unwrap_err(),
                self.0.approval(ApprovalId::from_number(1)).unwrap_err(),
                self.0.approvals(None, None, 1).unwrap_err(),
                self.0.transaction().commit().unwrap_err(),
            ];
            self.1.store(errors.iter().all(|error| error.kind() == ErrorKind::Reentrant), Ordering::Relaxed);
        }
    }
    let place = Place::memory();
    let ledger = place.open();
    let id = approved(&ledger, &claim("a"));
    let looks = Arc::new(Looks(ledger.clone(), AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&looks));
    let mut future = transaction(&ledger, id);
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    ledger.tick();
    assert!(looks.1.load(Ordering::Relaxed));
}
