//! An embedded, crash-safe claim ledger that makes the side effects of software agents happen at most
//! once.
//!
//! Who is about to refund, mail, publish or deploy claims the action's key, runs the effect only if it was
//! granted, and settles with the outcome. Every repeat gets the stored outcome, or a clear word on why not.
//!
//! ```
//! use onceledger::{Answer, Claim, EffectError, Key, Ledger, Scope};
//!
//! let ledger = Ledger::in_memory()?; // or Ledger::open_or_create("agent.redb")?
//! let key = Key::action(&Scope::new("acme/support")?, "refund", ["ord_42"])?;
//! let claim = Claim::from_json(key, r#"{"amount": 79, "currency": "EUR"}"#)?;
//!
//! let mut refunds = 0;
//! for _ in 0..3 {
//!     let answer = ledger.once(&claim, |grant| {
//!         let _key_for_the_provider = grant.downstream("refund").as_uuid();
//!         refunds += 1;
//!         Ok::<_, EffectError>("re_1")
//!     })?;
//!     assert!(matches!(answer, Answer::Done(_) | Answer::AlreadyDone(_)));
//! }
//! assert_eq!(refunds, 1);
//! # ledger.close()?;
//! # Ok::<(), onceledger::Error>(())
//! ```
//!
//! # Promises
//!
//! - **P1** A grant is returned only after its record is on stable storage. No option weakens this.
//! - **P2** Under [`Recovery::Hold`], the default, between two grants of one key inside its retention there is
//!   always a recorded decision that the first effect did not happen. Time alone never frees a key.
//! - **P3** A claim that answers [`ErrorKind::Unknown`] may be on disk. The effect must not run; after
//!   reopening, the key is vacant or uncertain, never silently granted.
//! - **P4** Settle, renew, release and resolve are checked against the fencing token. A holder that lost its
//!   claim changes nothing; its late outcome is kept as evidence, once.
//! - **P5** The same key with another fingerprint is a mismatch in every standing but vacant.
//! - **P6** A repeat returns the stored outcome byte for byte, error flag included, or says that it is not kept.
//! - **P7** A [`Transaction`] applies whole or not at all, in every crash state.
//! - **P8** An [`Approval`] is spent by exactly one claim, for the key and arguments it was given for, before its
//!   deadline. Deny is final. Release and resolve as not done give it back.
//! - **P9** Retention counts from the settle: first the body is dropped, later the key. Uncertain claims never
//!   expire.
//! - **P10** Expired means vacant in every entry point at once, swept or not.
//! - **P11** No clock step, freeze, jump or suspend ends a retention early, or keeps a lease, approval or resend
//!   window open late, to the extent `docs/ARCHITECTURE.md` states.
//! - **P12** A ledger file that is missing, emptied, replaced, rolled back or damaged is refused, to the extent of
//!   the anchor's window.
//! - **P13** After a storage failure every call that needs storage fails until the ledger is reopened.
//! - **P14** A dropped future, a panic in the effect, an early return: the claim becomes uncertain at once if the
//!   effect may have begun, and is released if it provably had not.
//!
//! # It is not
//!
//! - A proof that the outside did something: between an effect and its settle only the outside knows. That is what
//!   [`View::Uncertain`], the downstream key and [`Probe`] are for.
//! - A lock service or a queue: one process has the file open at a time.
//! - A store for what your agent knows: outcomes are dropped, and keys forgotten, when their retention passes.
//!
//! # Features
//!
//! | feature | default | what it adds | what it pulls in |
//! |---|---|---|---|
//! | `cli` | no | the `onceledger` command | `tools`, clap, comfy-table, base64, serde_json, signal-hook |
//! | `tools` | no | tool books in TOML | toml |
//! | `testkit` | no | faulty disk, fake clock, fake provider, model, crash explorer | nothing |

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
pub use inspect::{Adoption, Detail, Listed, Past, PastWhat, Stats, Verified};
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
