//! Any text as tool calls: reading never panics; no call runs its effect twice, in this message or when it
//! comes again; what has its result, or no arguments, is not run; every answer is strict JSON.

use std::collections::BTreeMap;

use onceledger::tool::{Calls, Class, Tool, ToolBook};
use onceledger::{EffectError, Ledger, Options, Scope};

pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(calls) = Calls::parse(text) else { return };
    // One tool goes by its arguments, all others by what the provider calls them.
    let refund = Tool::effect().identity(["/order_id"]).guard(["/amount"]);
    let book = ToolBook::new().with("refund", refund).unwrap().default_class(Class::Effect);
    let ledger = Options::new().threads(false).in_memory().unwrap();
    let scope = Scope::new("acme/fuzz").unwrap();
    assert_eq!(calls.all().len(), calls.to_run().count() + calls.answered());
    let mut ran = BTreeMap::<String, u32>::new();
    for _again in 0..2 {
        for call in calls.to_run() {
            answer(&book, &ledger, &scope, call, &mut ran);
        }
    }
    for (key, times) in &ran {
        assert_eq!(*times, 1, "{key} ran {times} times");
    }
    ledger.verify().unwrap();
}

fn answer(
    book: &ToolBook,
    ledger: &Ledger,
    scope: &Scope,
    call: &onceledger::tool::Call,
    ran: &mut BTreeMap<String, u32>,
) {
    let reply = book.run(ledger, call, scope, "run_1", |permit| {
        *ran.entry(permit.key().to_hex()).or_default() += 1;
        assert!(call.arguments().is_ok() && !call.is_answered(), "{call:?} was run");
        // Every way in which an effect ends, by what the call says.
        match permit.arguments().to_canonical().len() % 4 {
            0 => Err(EffectError::final_failure("no such order")),
            1 => Err(EffectError::unknown("time-out")),
            _ => Ok(permit.downstream("refund").as_uuid()),
        }
    });
    for json in [reply.body(), reply.part(), reply.envelope()] {
        let read = serde_json::from_str::<serde_json::Value>(&json);
        assert!(read.is_ok(), "{json:?} is not JSON: {read:?}");
        onceledger::canonical::Value::parse(&json).unwrap_or_else(|error| panic!("{json:?}: {error}"));
        assert!(!json.contains('\n'), "{json:?} is not one line");
    }
}
