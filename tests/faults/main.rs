//! The proofs: crashes, failing disks, races and clocks (`docs/FAULTS.md`).
//!
//! One module for each line of the table there. Each prints one line with what it saw and fails
//! under its floor.
#![cfg(feature = "testkit")]
// Helpers outside test functions, where clippy.toml does not allow it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod driver;
mod found;
mod kit;
mod t01_crash_at_every_sync;
mod t02_crash_in_recovery;
mod t03_kill;
mod t04_failed_sync;
mod t05_io_errors;
mod t06_disk_full;
mod t07_damage;
mod t08_state_machine;
mod t09_same_trace;
mod t11_linearizable;
mod t12_two_runners;
mod t16_clock;
mod t17_soak;
mod t18_format;
