//! The same work on onceledger and on what people use instead.
//!
//! This library is the part that needs no peer: the work, the callers, the rounds and the table. It is
//! shared with `../peers-agent-effects`, whose SQLite binding cannot be linked beside rusqlite's.
//!
//! - [`work`]: keys and outcomes, the same for every side.
//! - [`peer`]: what a side must be able to do.
//! - [`batch`]: a writer thread that makes one commit of everything queued, for every batching peer.
//! - [`drive`]: callers (threads or futures) and readers; they measure.
//! - [`contest`]: rows, interleaved rounds, medians.
//! - [`limits`]: the rows of the subject alone, some in a child process.
//! - [`table`]: results as text or JSON.
//! - [`peers`]: one file a peer. [`subject`]: onceledger, or its stand-in.

pub mod batch;
pub mod contest;
pub mod drive;
pub mod limits;
pub mod options;
#[cfg(feature = "ours")]
pub mod ours;
pub mod peer;
pub mod peers;
pub mod record;
pub mod shelf;
#[cfg(not(feature = "ours"))]
pub mod standin;
pub mod subject;
pub mod system;
pub mod table;
pub mod work;

/// Any failure of a side; a row that meets one is printed as not measured, with its text.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;
