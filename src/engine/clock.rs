//! The time, read and carried. Nothing else in the crate reads a clock.
//!
//! A [`Clock`] gives raw readings: the wall clock, the boot-time clock (which goes on while the
//! machine sleeps), and the identity of the running boot. [`Times`] turns readings into the two
//! times of the ledger (P11): *early* takes the larger advance of the two clocks and ends leases,
//! approvals and resend windows; *late* takes the smaller and ends retention. Neither ever runs
//! backwards, and neither is ever set from a bare wall reading.

use std::fmt;

/// One reading of a machine's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock, in nanoseconds since 1970 (0 for anything earlier).
    pub wall_ns: u128,
    /// Time since boot, sleep included, in nanoseconds.
    pub boot_ns: u128,
    /// Which boot this is; all zero where the platform does not say.
    pub boot_id: [u8; 16],
}

/// A source of readings.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Reads both clocks now.
    fn read(&self) -> Reading;
}
