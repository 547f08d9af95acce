//! The tool layer: calls in every shape, replies for every standing, the faults of the field over
//! HTTP, futures under two executors.

#![allow(clippy::unwrap_used)]

#[cfg(feature = "testkit")]
mod approvals;
mod book;
#[cfg(feature = "testkit")]
mod cases;
#[cfg(feature = "testkit")]
mod faults;
#[cfg(feature = "testkit")]
mod found;
#[cfg(feature = "testkit")]
mod futures;
mod messages;
mod properties;
#[cfg(feature = "testkit")]
mod provider;
#[cfg(feature = "testkit")]
mod reconcile;
mod shapes;
mod transcripts;

use onceledger::Scope;
use onceledger::tool::{Calls, Tool};
use serde_json::Value as Json;

/// One refund for an order; the amount is guarded, the note is free text.
fn refund() -> Tool {
    Tool::effect().identity(["/order_id"]).guard(["/amount"])
}

fn scope() -> Scope {
    Scope::new("acme/support").unwrap()
}

fn file(path: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn transcript(name: &str) -> Calls {
    Calls::parse(&file(&format!("wire/{name}.json"))).unwrap()
}

#[track_caller]
fn json(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The one call in a JSON text.
#[track_caller]
fn call(text: &str) -> onceledger::tool::Call {
    let calls = Calls::parse(text).unwrap();
    assert_eq!((calls.all().len(), calls.broken().len()), (1, 0), "{text}: {calls:?}");
    calls.all()[0].clone()
}

/// An Anthropic call of `refund`.
fn ask(id: &str, arguments: &str) -> onceledger::tool::Call {
    call(&format!(r#"{{"type": "tool_use", "id": {id:?}, "name": "refund", "input": {arguments}}}"#))
}
