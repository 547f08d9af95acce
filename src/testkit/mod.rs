//! Faulty disk, fake clock and fake provider, to prove what a ledger and an agent on it do when
//! things go wrong.

mod clock;
mod disk;
pub mod explore;
mod http;
pub mod model;
mod provider;
mod random;
#[doc(hidden)]
pub mod seam;

pub use self::clock::FakeClock;
pub use self::disk::{
    CrashImages, CrashOptions, Epoch, Failure, Fault, FaultDisk, FileCopy, Operation, Plan, SyncMode,
};
pub use self::explore::{Duplicate, Explorer, Report, World, explore};
pub use self::http::{get, post, request};
pub use self::model::{Call, Decided, Effects, Model, Possible, Saw, Stand, Terms, Violation};
pub use self::provider::{FakeProvider, Keys, Reply, Request};
pub use self::random::SplitMix;
pub use crate::engine::clock::{Clock, Reading};
pub use crate::engine::files::{Disk, DiskFile, FileSystem, Inheritable, LockKind, MemoryDisk, Mode, Node, RealDisk};
