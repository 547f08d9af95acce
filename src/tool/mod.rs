//! Tool calls in, words for the model out.
//!
//! A [`ToolBook`] labels tools: a read runs freely, an idempotent write may be repeated, an effect
//! needs the ledger. [`Calls`] reads calls as providers send them, [`ToolBook::run`] runs one at most
//! once, and a [`Reply`] says in the provider's own shape what became of it.
//!
//! ```
//! use onceledger::tool::{Calls, Status, Tool, ToolBook};
//! use onceledger::{EffectError, Ledger, Scope};
//!
//! let book = ToolBook::new().with("refund", Tool::effect().identity(["/order_id"]).guard(["/amount"]))?;
//! let calls = Calls::parse(r#"{"type": "tool_use", "id": "toolu_1", "name": "refund",
//!                              "input": {"order_id": "A1", "amount": 79}}"#)?;
//! let ledger = Ledger::in_memory()?;
//! let scope = Scope::new("acme/support")?;
//! for call in calls.to_run() {
//!     let reply = book.run(&ledger, call, &scope, "run_42", |permit| {
//!         let key = permit.downstream("refund").as_uuid(); // for the provider
//!         Ok::<_, EffectError>(format!("refunded under {}", key.len()))
//!     });
//!     assert_eq!(reply.status(), Status::Done);
//!     println!("{}", reply.envelope());
//! }
//! # Ok::<(), onceledger::Error>(())
//! ```
//!
//! This module never runs a call that has its result, waits for a person or has malformed arguments;
//! it puts no call id of its own making into a key; it never turns a replay into a new effect. It
//! parses with [`canonical`](crate::canonical) only.

mod approval;
mod book;
mod call;
mod envelope;
mod meta;
mod read;
mod reply;
mod run;
mod state;
#[cfg(feature = "tools")]
mod toml;
mod words;

pub use self::book::{Class, Rule, Shell, Tool, ToolBook};
pub use self::call::{Call, Calls, Consent, Malformed, Shape};
pub use self::reply::{Reply, Status};
pub use self::run::Permit;
