//! What goes wrong: which operations fail, how, and how often.

use std::io;
use std::path::Path;

/// A kind of operation on a [`FaultDisk`](super::FaultDisk).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Opening or creating a file.
    Open,
    /// Dropping the last handle of an open file. A close has no result, so a fault planned for it
    /// changes nothing; its number is there for crash points.
    Close,
    /// Asking for a file's length.
    Len,
    /// Reading bytes.
    Read,
    /// Writing bytes.
    Write,
    /// Cutting or growing a file.
    SetLen,
    /// Making a file's bytes and length durable.
    Sync,
    /// Taking a lock.
    Lock,
    /// Giving a lock back.
    Unlock,
    /// Giving a file a second name.
    Link,
    /// Renaming a file.
    Rename,
    /// Removing a name.
    Remove,
    /// Making a directory.
    CreateDir,
    /// Making the names of a directory durable.
    SyncDir,
    /// Listing a directory.
    List,
    /// Asking what a path is.
    Node,
}

impl Operation {
    /// Every kind, in the order of the enum.
    pub const ALL: [Operation; 16] = [
        Operation::Open,
        Operation::Close,
        Operation::Len,
        Operation::Read,
        Operation::Write,
        Operation::SetLen,
        Operation::Sync,
        Operation::Lock,
        Operation::Unlock,
        Operation::Link,
        Operation::Rename,
        Operation::Remove,
        Operation::CreateDir,
        Operation::SyncDir,
        Operation::List,
        Operation::Node,
    ];

    /// The name it has in a trace.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Open => "open",
            Operation::Close => "close",
            Operation::Len => "len",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::SetLen => "set_len",
            Operation::Sync => "sync",
            Operation::Lock => "lock",
            Operation::Unlock => "unlock",
            Operation::Link => "link",
            Operation::Rename => "rename",
            Operation::Remove => "remove",
            Operation::CreateDir => "create_dir",
            Operation::SyncDir => "sync_dir",
            Operation::List => "list",
            Operation::Node => "node",
        }
    }
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// An I/O error, and nothing happened. For a sync the pages stay dirty and a later sync may
    /// make them durable: the kindest thing a system can do, and not what Linux does.
    Io,
    /// An error of this kind, and nothing happened.
    Kind(io::ErrorKind),
    /// A write or read that stops at a seeded place inside, then an I/O error; a growing `set_len`
    /// stops likewise. Elsewhere the same as [`Failure::Io`].
    Short,
    /// The disk is full: whatever grows fails with `StorageFull`. What grows is a write to bytes
    /// that have no place on the disk yet (past the end or in a hole; the part before them is
    /// written), a `set_len` past the end, a new file, a second name and a directory. Nothing
    /// else is touched by this fault or counted for it.
    Full,
    /// A failed sync as the disk's [`SyncMode`] has it, for all the file's dirty pages. Elsewhere,
    /// for a directory too, the same as [`Failure::Io`].
    Sync,
    /// A failed sync that loses some of the dirty pages, by a seeded coin for each; the others
    /// reach the disk. Under [`SyncMode::Btrfs`] it is the same as [`Failure::Sync`].
    SyncPart,
}

/// What a failed sync leaves behind, page by page of 4 KiB.
///
/// In no mode is a page still dirty afterwards: syncing again succeeds and saves nothing. A later
/// write to a page makes the whole page dirty again, with the bytes the cache shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum SyncMode {
    /// ext4, `data=ordered` with the default `data_err=ignore`. Assumes: the sync reports the error
    /// at once; reads go on showing the new bytes; the disk keeps the old ones; the journal commits
    /// all the same, so the file's new *length* is durable, and what was appended reads as zeros.
    #[default]
    Ext4Ordered,
    /// ext4, `data=journal`. Assumes: the bytes reach the journal, so the sync that goes wrong
    /// reports *success* and a power loss right after it keeps them; what fails is the later copy
    /// into place. The next sync of the file writes its own bytes and reports that error, once to
    /// each open file; by then the journal's space is used again, and the pages of the earlier
    /// sync are gone from the disk while reads still show them.
    Ext4Data,
    /// XFS. Assumes: the sync reports the error at once; reads go on showing the new bytes; the
    /// disk keeps the old ones; a length that only the failed writes made is not durable, one that
    /// was set is, as a transaction of its own in the log.
    Xfs,
    /// Btrfs. Assumes: the sync reports the error at once and the transaction is undone: bytes and
    /// length are again what the disk has, for reads too.
    Btrfs,
}

impl SyncMode {
    /// All four.
    pub const ALL: [SyncMode; 4] = [SyncMode::Ext4Ordered, SyncMode::Ext4Data, SyncMode::Xfs, SyncMode::Btrfs];
}

/// One thing that goes wrong: which operations it is for, how they fail, how often.
///
/// ```
/// use onceledger::testkit::{Failure, Fault, Operation};
///
/// let third_anchor_sync = Fault::on(Operation::Sync).path(".anchor").after(2);
/// let disk_dies_at_40 = Fault::from(40).always();
/// let full_from_the_start = Fault::any().always().with(Failure::Full);
/// ```
#[derive(Clone, Debug)]
pub struct Fault {
    first: u64,
    last: u64,
    operation: Option<Operation>,
    ending: Option<String>,
    skip: u64,
    times: u64,
    failure: Failure,
}

impl Fault {
    /// The next operation of any kind, with an I/O error.
    pub fn any() -> Self {
        Fault { first: 1, last: u64::MAX, operation: None, ending: None, skip: 0, times: 1, failure: Failure::Io }
    }

    /// The operation with this number; the first has number 1.
    pub fn at(number: u64) -> Self {
        Fault { first: number, last: number, ..Fault::any() }
    }

    /// The first operation with this number or a higher one.
    pub fn from(number: u64) -> Self {
        Fault { first: number, ..Fault::any() }
    }

    /// The next operation of this kind.
    pub fn on(operation: Operation) -> Self {
        Fault { operation: Some(operation), ..Fault::any() }
    }

    /// Only files and directories whose path ends with these characters.
    #[must_use]
    pub fn path(mut self, ending: &str) -> Self {
        self.ending = Some(ending.to_owned());
        self
    }

    /// Lets this many operations pass first.
    #[must_use]
    pub fn after(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// So many operations fail; without this it is one.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Every operation fails from then on.
    #[must_use]
    pub fn always(self) -> Self {
        self.times(u64::MAX)
    }

    /// How it fails; without this, with an I/O error.
    #[must_use]
    pub fn with(mut self, failure: Failure) -> Self {
        self.failure = failure;
        self
    }

    fn fires(&mut self, number: u64, operation: Operation, path: &Path, grows: bool) -> bool {
        let meant = (self.first..=self.last).contains(&number)
            && self.operation.is_none_or(|kind| kind == operation)
            && (self.failure != Failure::Full || grows)
            && self.times > 0
            && self.ending.as_ref().is_none_or(|end| path.to_string_lossy().ends_with(end));
        if !meant {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if self.times != u64::MAX {
            self.times -= 1;
        }
        true
    }
}

/// All that goes wrong on a disk. Where several faults are meant, the first one added counts.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    faults: Vec<Fault>,
}

impl Plan {
    /// Nothing goes wrong.
    pub fn new() -> Self {
        Plan::default()
    }

    /// Adds a fault.
    #[must_use]
    pub fn fail(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// The disk is full from this operation on.
    #[must_use]
    pub fn full_from(self, number: u64) -> Self {
        self.fail(Fault::from(number).always().with(Failure::Full))
    }

    pub(super) fn judge(&mut self, number: u64, operation: Operation, path: &Path, grows: bool) -> Option<Failure> {
        let mut faults = self.faults.iter_mut();
        faults.find_map(|fault| fault.fires(number, operation, path, grows).then_some(fault.failure))
    }
}

impl From<Fault> for Plan {
    fn from(fault: Fault) -> Self {
        Plan::new().fail(fault)
    }
}
