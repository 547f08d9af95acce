//! Every promise of the engine and every case from the field that concerns it, from the outside.
//!
//! Tests are named after the behaviour, with the promise (`p4_`) or the case (`case_27_`) in the name.
//! Time is a [`FakeClock`](onceledger::testkit::FakeClock) and `tick()`; nothing asserts on the wall clock.

#![allow(clippy::type_complexity)] // Lists of closures say what they are.
#![cfg(feature = "testkit")]
// Helpers outside test functions, where clippy.toml does not allow it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod basic;
mod clock;
mod close_says;
mod closing;
mod drops;
mod errors;
mod expiry;
mod futures;
mod grant;
mod header;
mod history;
mod kit;
mod lease;
mod opening;
mod outcome;
mod probe;
mod races;
mod recovery;
mod resend;
mod retention;
mod sessions;
mod settle;
mod storage;
mod threads;
mod wait;
