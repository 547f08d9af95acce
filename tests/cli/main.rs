//! The command line, from the outside: the real binary, real files, real processes.
//!
//! Time-outs here are guards against a hang and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(target_os = "linux")]

mod approvals;
mod bad_input;
mod basics;
mod busy;
mod calls;
mod kills;
mod races;
mod signals;
mod support;
