//! An embedded, crash-safe claim ledger that makes the side effects of software agents happen at
//! most once.

#![deny(clippy::unwrap_used, clippy::expect_used)]

mod approval;
pub mod canonical;
mod cell;
mod claim;
mod config;
mod encoding;
mod engine;
mod error;
mod grant;
mod inspect;
mod key;
mod ledger;
mod once;
mod outcome;
mod reconcile;
#[cfg(feature = "testkit")]
pub mod testkit;
pub mod tool;
mod transaction;
mod watch;

pub use approval::{Approval, ApprovalDecision, ApprovalId, ApprovalRequest, ApprovalState, Decision, NotApproved};
pub use cell::{Cell, Cells, Version};
pub use claim::{
    Answer, Claim, Claimed, Conflict, Doubt, DoubtReason, FencingToken, Finding, InProgress, Keep, Probe, Recovery,
    Resolved, Settled, Standing, Uncertain, Verdict, View,
};
pub use config::Options;
pub use engine::expiry::Swept;
pub use error::{Error, ErrorKind, Result};
pub use grant::{Grant, Settlement, Ticket};
pub use inspect::{Detail, Listed, Past, PastWhat, Stats, Verified};
pub use key::{ArgsDigest, Downstream, Fingerprint, Key, Scope, Selection};
pub use ledger::Ledger;
pub use once::Grants;
pub use outcome::{Class, EffectError, Kind, Outcome, Stored};
pub use reconcile::{Reconcile, Reconciled};
pub use transaction::{Committed, Refusal, Transacted, Transaction};
pub use watch::Watch;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
