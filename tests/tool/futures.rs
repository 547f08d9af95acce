//! The same layer as futures: two executors, and a drop at every point.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use onceledger::testkit::{FakeProvider, Keys};
use onceledger::tool::{Reply, Status, ToolBook};
use onceledger::{EffectError, Ledger, Options, Outcome, View};

use crate::provider::refund_at;
use crate::{ask, refund, scope};

const ARGS: &str = r#"{"order_id": "ord_42", "amount": 79}"#;

/// Ready after so many polls.
struct Steps(usize);

impl Future for Steps {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

fn book() -> ToolBook {
    ToolBook::new().with("refund", refund().wait(Duration::from_secs(30))).unwrap()
}

/// Two turns that ask for one refund, and a third one for another order.
async fn agent(book: &ToolBook, ledger: &Ledger, url: &str) -> Vec<Status> {
    let mut told = Vec::new();
    for (id, args) in [("t1", ARGS), ("t2", ARGS), ("t3", r#"{"order_id": "ord_43", "amount": 1}"#)] {
        let url = url.to_owned();
        let reply = book.run_async(ledger, &ask(id, args), &scope(), "run_42", |permit| async move {
            Steps(3).await;
            refund_at(&url, &permit)
        });
        told.push(reply.await.status());
    }
    told
}

#[test]
fn an_agent_runs_under_tokio_and_under_pollster_and_on_each_refunds_once() {
    let provider = FakeProvider::start(Keys::Ignore).unwrap();
    let expected = [Status::Done, Status::AlreadyDone, Status::Done];
    let (book, ledger) = (book(), Ledger::in_memory().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(agent(&book, &ledger, &provider.url())), expected);
    assert_eq!(provider.effect_count(), 2);
    let other = Ledger::in_memory().unwrap();
    assert_eq!(pollster::block_on(agent(&book, &other, &provider.url())), expected);
    assert_eq!(provider.effect_count(), 4);
    // What ran under one executor is done for the other.
    assert_eq!(pollster::block_on(agent(&book, &ledger, &provider.url())), [Status::AlreadyDone; 3]);
    assert_eq!(provider.effect_count(), 4);
}

#[test]
fn equal_calls_as_tokio_tasks_have_one_effect_and_all_hear_its_result() {
    let provider = FakeProvider::start(Keys::Ignore).unwrap();
    let (book, ledger) = (book(), Ledger::in_memory().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let told: Vec<Status> = runtime.block_on(async {
        let tasks: Vec<_> = (0..100)
            .map(|n| {
                let url = provider.url();
                tokio::spawn(book.run_async(
                    &ledger,
                    &ask(&format!("t{n}"), ARGS),
                    &scope(),
                    "run_42",
                    |permit| async move {
                        Steps(5).await;
                        refund_at(&url, &permit)
                    },
                ))
            })
            .collect();
        let mut told = Vec::new();
        for task in tasks {
            told.push(task.await.unwrap().status());
        }
        told
    });
    assert_eq!(told.iter().filter(|status| **status == Status::Done).count(), 1);
    assert_eq!(told.iter().filter(|status| **status == Status::AlreadyDone).count(), 99);
    assert_eq!(provider.effect_count(), 1);
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn case_91_a_future_dropped_at_any_point_leaves_no_claim_in_progress() {
    // Without its threads the ledger moves in `tick` only, so that every point is reached.
    let open = || Options::new().threads(false).in_memory().unwrap();
    let mut seen = std::collections::BTreeMap::new();
    let mut points = 0;
    for polls in 0.. {
        let (ledger, book) = (open(), book());
        let eff = AtomicUsize::new(0);
        let call = ask("t1", ARGS);
        let key = book.key(&call, &scope(), "run_42").unwrap();
        let run = || {
            book.run_async(&ledger, &call, &scope(), "run_42", |_| async {
                Steps(2).await;
                eff.fetch_add(1, Ordering::Relaxed);
                Steps(2).await;
                Ok::<_, EffectError>(Outcome::text("refunded"))
            })
        };
        let ready = {
            let mut future = pin!(run());
            let mut ready: Option<Reply> = None;
            // Each poll and each tick is a step after which the future may be dropped.
            for step in 0..polls {
                if step % 2 == 0 {
                    if let Poll::Ready(reply) = poll(future.as_mut()) {
                        ready = Some(reply);
                        break;
                    }
                } else {
                    ledger.tick();
                }
            }
            ready
        };
        let at_drop = eff.load(Ordering::Relaxed);
        ledger.tick();
        let view = ledger.check(&key).unwrap();
        assert!(!matches!(view, View::InProgress(_)), "after {polls} steps: {view:?}");
        // Nothing happened where the key is free, and nobody runs it again where it may have.
        assert!(!matches!(view, View::Vacant) || at_drop == 0, "after {polls} steps");
        *seen.entry(view.standing()).or_insert(0) += 1;
        let again = block_on(&ledger, run());
        let expected = if at_drop == 0 && matches!(view, View::Vacant) { 1 } else { at_drop };
        assert_eq!(eff.load(Ordering::Relaxed), expected, "after {polls} steps: {:?}", again.status());
        points += 1;
        if ready.is_some() {
            break;
        }
    }
    println!("{points} points: {seen:?}");
    assert!(points >= 10 && seen.len() == 3, "{points} points: {seen:?}");
}

/// Polls and ticks to the end.
fn block_on<F: Future>(ledger: &Ledger, future: F) -> F::Output {
    let mut future = pin!(future);
    for _ in 0..1000 {
        if let Poll::Ready(output) = poll(future.as_mut()) {
            return output;
        }
        ledger.tick();
    }
    panic!("it does not end");
}

#[test]
fn case_92_a_waiter_dropped_at_the_hand_over_leaves_the_key_to_the_next() {
    let ledger = Options::new().threads(false).in_memory().unwrap();
    let book = book();
    let eff = AtomicUsize::new(0);
    let run = |id: &str| {
        book.run_async(&ledger, &ask(id, ARGS), &scope(), "run_42", |_| async {
            eff.fetch_add(1, Ordering::Relaxed);
            Ok::<_, EffectError>(Outcome::text("refunded"))
        })
    };
    let claim = book.claim(&ask("t0", ARGS), &scope(), "run_42").unwrap();
    let grant = ledger.claim(&claim).unwrap().granted().unwrap();
    let mut first = Box::pin(run("t1"));
    let mut second = Box::pin(run("t2"));
    for _ in 0..3 {
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        ledger.tick();
    }
    let _ = grant.release().unwrap();
    drop(first);
    let reply = block_on(&ledger, second);
    assert_eq!((reply.status(), eff.load(Ordering::Relaxed)), (Status::Done, 1));
}
