//! Futures: any executor, no thread held, cancelled at any point.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = Box::pin(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(output) = poll(future.as_mut(), &waker) {
            return output;
        }
        std::thread::park();
    }
}

pub fn poll<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// Runs many futures on this thread, all at once.
pub fn join<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<_> = futures.into_iter().map(|future| (Some(Box::pin(future)), None)).collect();
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        let mut left = false;
        for (future, output) in &mut pending {
            let Some(running) = future else { continue };
            match poll(running.as_mut(), &waker) {
                Poll::Ready(ready) => (*future, *output) = (None, Some(ready)),
                Poll::Pending => left = true,
            }
        }
        if !left {
            return pending.into_iter().filter_map(|(_, output)| output).collect();
        }
        std::thread::park();
    }
}

/// Is pending once.
pub async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

use onceledger::{Answer, DoubtReason, EffectError, Ledger};

use crate::kit::*;

/// One poll, and one turn of the ledger.
pub fn step<F: Future + ?Sized>(ledger: &Ledger, future: Pin<&mut F>) -> Poll<F::Output> {
    let polled = poll(future, Waker::noop());
    ledger.tick();
    polled
}

/// An effect with three await points of its own.
async fn effect(began: Arc<std::sync::atomic::AtomicBool>) -> Result<&'static str, EffectError> {
    began.store(true, std::sync::atomic::Ordering::SeqCst);
    for _ in 0..3 {
        yield_once().await;
    }
    Ok("done")
}

/// Case 91, P14: a future is dropped after each number of polls, before and after the ledger answers: where the effect
/// had begun the claim is uncertain or settled, where it had not the key is free; never in progress for ever.
#[test]
fn case_91_case_108_p14_once_async_dropped_at_every_point_leaves_an_exact_standing() {
    on_every_backend(|place| {
        let ledger = place.create();
        let mut seen = std::collections::BTreeSet::new();
        for polls in 0..20 {
            for late in [false, true] {
                let part = format!("{polls} {late}");
                let began = Arc::new(std::sync::atomic::AtomicBool::new(false));
                let inner = Arc::clone(&began);
                let mut future = Box::pin(ledger.once_async(&claim(&part), move |_| effect(inner)));
                let mut finished = false;
                for _ in 0..polls {
                    if finished {
                        break;
                    }
                    // `late`: the ledger has answered by the time of the drop; otherwise it has not yet.
                    let polled = poll(future.as_mut(), Waker::noop());
                    finished = polled.is_ready();
                    if late || !began.load(std::sync::atomic::Ordering::SeqCst) && !finished {
                        ledger.tick();
                    }
                }
                drop(future);
                ledger.tick();
                let began = began.load(std::sync::atomic::Ordering::SeqCst);
                let now = standing(&ledger, &part);
                seen.insert((began, now));
                match (began, finished) {
                    (false, _) => assert_eq!(now, "vacant", "{part}"),
                    (true, true) => assert_eq!(now, "done", "{part}"),
                    (true, false) => assert!(["uncertain", "done"].contains(&now), "{part}: {now}"),
                }
                // The next write works, and a key that is free can be claimed.
                let _ = grant(&ledger, &claim(format!("next {part}"))).complete("x").unwrap();
                if now == "vacant" {
                    let _ = grant(&ledger, &claim(&part)).release().unwrap();
                }
            }
        }
        assert!(
            seen.contains(&(false, "vacant")) && seen.contains(&(true, "uncertain")) && seen.contains(&(true, "done"))
        );
    });
}

/// Case 92: a claim future dropped with its grant already in it gives the key back.
#[test]
fn case_92_case_108_claim_async_dropped_at_every_point_leaves_the_key_free() {
    on_every_backend(|place| {
        let ledger = place.create();
        for (n, before) in [0, 1, 2].into_iter().enumerate() {
            let part = format!("{n}");
            let mut future = Box::pin(ledger.claim_async(&claim(&part)));
            if before > 0 {
                assert!(poll(future.as_mut(), Waker::noop()).is_pending());
            }
            if before > 1 {
                // Granted, and not taken.
                ledger.tick();
                assert_eq!(standing(&ledger, &part), "in_progress");
            }
            drop(future);
            ledger.tick();
            assert_eq!(standing(&ledger, &part), "vacant", "{before}");
            let _ = grant(&ledger, &claim(&part)).release().unwrap();
        }
    });
}

/// P14: a settle once queued stands, whether its future is polled on or dropped.
#[test]
fn p14_a_settle_once_queued_stands() {
    on_every_backend(|place| {
        let ledger = place.create();
        for (part, polls) in [("0", 0), ("1", 1)] {
            let held = grant(&ledger, &claim(part));
            let mut settling = Box::pin(held.settle_async(onceledger::Settlement::done("x")));
            for _ in 0..polls {
                assert!(poll(settling.as_mut(), Waker::noop()).is_pending());
            }
            drop(settling);
            ledger.tick();
            assert_eq!(standing(&ledger, part), "done", "{polls} polls");
        }
    });
}

/// The sync and the async front are one: same answers to the same calls.
#[test]
fn a_repeat_by_future_gets_the_outcome_of_a_closure_and_the_other_way_round() {
    on_every_backend(|place| {
        let ledger = place.options().threads(true).create(&place.path).unwrap();
        let _ = ledger.once(&claim("a"), |_| Ok::<_, EffectError>("sync")).unwrap();
        let answer = block_on(ledger.once_async(&claim("a"), |_| async { Ok("never") })).unwrap();
        let Answer::AlreadyDone(stored) = answer else { panic!() };
        assert_eq!(body(&stored), b"sync");
        let made = block_on(ledger.once_async(&claim("b"), |grants| async move {
            assert_eq!(grants.attempt(), 1);
            Ok(grants.downstream("x").as_hex())
        }));
        assert!(matches!(made.unwrap(), Answer::Done(_)));
        assert_eq!(refused(&ledger, &claim("b")), "done");
        let not =
            block_on(ledger.once_async(&claim("c"), |_| async { Err::<&str, _>(EffectError::not_applied("no")) }));
        assert!(matches!(not.unwrap(), Answer::NotApplied(_)));
        let unknown = block_on(ledger.once_async(&claim("c"), |_| async { Err::<&str, _>(EffectError::unknown("?")) }));
        let Answer::Uncertain(doubt) = unknown.unwrap() else { panic!() };
        assert_eq!((doubt.doubt.attempt, doubt.doubt.reason), (2, DoubtReason::UnknownError));
        let last =
            block_on(ledger.once_async(&claim("d"), |_| async { Err::<&str, _>(EffectError::final_failure("no")) }));
        assert!(matches!(last.unwrap(), Answer::Failed(_)));
    });
}

/// A waker that panics, or that calls the ledger from the thread that commits, harms nobody: the panic is caught, the
/// call is a typed error.
#[test]
fn a_waker_that_panics_or_calls_the_ledger_harms_nobody() {
    struct Bad(Ledger, std::sync::Mutex<Option<onceledger::ErrorKind>>);
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            let error = self.0.claim(&claim("from the waker")).unwrap_err();
            *self.1.lock().unwrap() = Some(error.kind());
            panic!("in the waker");
        }
    }
    let place = Place::memory();
    let ledger = place.create();
    let bad = Arc::new(Bad(ledger.clone(), None.into()));
    let waker = Waker::from(Arc::clone(&bad));
    let mut future = Box::pin(ledger.claim_async(&claim("k")));
    assert!(poll(future.as_mut(), &waker).is_pending());
    ledger.tick();
    assert_eq!(*bad.1.lock().unwrap(), Some(onceledger::ErrorKind::Reentrant));
    assert!(matches!(step(&ledger, future.as_mut()), Poll::Ready(Ok(onceledger::Claimed::Granted(_)))));
    assert_eq!(standing(&ledger, "from the waker"), "vacant");
    let _ = grant(&ledger, &claim("next")).complete("x").unwrap();
}

/// A waker that drops the last handle of the ledger closes it, on whichever thread: nothing waits for itself.
#[test]
fn a_waker_that_drops_the_last_handle_closes_without_a_deadlock() {
    struct Last(std::sync::Mutex<Option<Ledger>>, std::sync::mpsc::Sender<()>);
    impl Wake for Last {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
            let _ = self.1.send(());
        }
    }
    for threads in [false, true] {
        let place = Place::memory();
        let ledger = place.options().threads(threads).create(&place.path).unwrap();
        let held = grant(&ledger, &claim("k"));
        let settling = held.settle_async(onceledger::Settlement::done("x"));
        let mut settling = Box::pin(settling);
        let (send, receive) = std::sync::mpsc::channel();
        // The clone keeps the ledger open until the waker lets go of it.
        let last = Arc::new(Last(Some(ledger.clone()).into(), send));
        let waker = Waker::from(last);
        let first = poll(settling.as_mut(), &waker);
        if !threads {
            ledger.tick();
        }
        drop(ledger);
        if first.is_pending() {
            receive.recv_timeout(std::time::Duration::from_secs(60)).expect("a deadlock");
        }
        drop(waker);
        assert_eq!(refused(&place.open(), &claim("k")), "done");
    }
}
