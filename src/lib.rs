//! An embedded, crash-safe claim ledger that makes the side effects of software agents happen at
//! most once.

pub mod canonical;
mod engine;
mod error;
mod key;
mod outcome;
#[cfg(feature = "testkit")]
pub mod testkit;

pub use error::{Error, ErrorKind, Result};
pub use key::{Downstream, Fingerprint, Key, Scope};
pub use outcome::{Class, EffectError, Kind, Outcome, Stored};
