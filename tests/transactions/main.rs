//! Transactions, cells and approvals (P7, P8; design section 7).
#![cfg(feature = "testkit")]
#![allow(clippy::type_complexity)] // Lists of closures say what they are.
// Helpers outside test functions, where clippy.toml does not allow it.
#![allow(clippy::unwrap_used)]

mod approvals;
mod bad_input;
mod cases;
mod cells;
mod crash;
mod damage;
mod futures;
mod history;
mod kit;
mod model;
mod moves;
mod property;
mod resend;
mod threads;
