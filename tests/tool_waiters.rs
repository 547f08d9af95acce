//! Alone in its process, so that threads can be counted.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use onceledger::tool::{Call, Calls, Reply, Status, Tool, ToolBook};
use onceledger::{EffectError, Ledger, Outcome, Scope};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn call(id: usize) -> Call {
    let text = format!(r#"{{"type":"tool_use","id":"t{id}","name":"refund","input":{{"order_id":"A1"}}}}"#);
    Calls::parse(&text).unwrap().all()[0].clone()
}

#[test]
fn ten_thousand_futures_waiting_on_one_key_use_no_more_threads_than_one() {
    const WAITERS: usize = 10_000;
    let tool = Tool::effect().identity(["/order_id"]).wait(Duration::from_secs(300));
    let book = ToolBook::new().with("refund", tool).unwrap();
    let ledger = Ledger::in_memory().unwrap();
    let scope = Scope::new("acme").unwrap();
    let claim = book.claim(&call(0), &scope, "r").unwrap();
    let grant = ledger.claim(&claim).unwrap().granted().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting: Vec<Pin<Box<dyn Future<Output = Reply>>>> = Vec::new();
    let mut one = 0;
    for id in 1..=WAITERS {
        let reply = book.run_async(&ledger, &call(id), &scope, "r", |_| async {
            panic!("it ran");
            #[allow(unreachable_code)]
            Ok::<Outcome, EffectError>(Outcome::text(""))
        });
        let mut reply = Box::pin(reply);
        assert!(reply.as_mut().poll(&mut context).is_pending());
        waiting.push(reply);
        if id == 1 {
            std::thread::sleep(Duration::from_millis(50));
            one = threads();
        }
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(threads(), one, "{WAITERS} waiters");
    let _ = grant.complete("refunded").unwrap();
    for reply in waiting {
        let reply = pollster::block_on(reply);
        assert_eq!(reply.status(), Status::AlreadyDone);
    }
    println!("{WAITERS} futures waited on {one} threads of the process");
}
