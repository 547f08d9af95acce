//! What a faulty disk is made of: files, names, and the control that counts, traces and fails
//! operations.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::inode::Inode;
use super::names::Names;
use super::plan::{Failure, Operation, Plan, SyncMode};
use super::{Epoch, FaultDisk};
use crate::engine::files::FileSystem;
use crate::testkit::SplitMix;

/// What an operation was about, beside its path.
#[derive(Clone, Debug)]
pub(super) enum Detail {
    None,
    /// Where, how many bytes, and (for a write) their CRC-32.
    Bytes(u64, usize, u32),
    Length(u64),
    Word(&'static str),
    Path(Arc<Path>),
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Detail::None => Ok(()),
            Detail::Bytes(offset, len, 0) => write!(f, " @{offset}+{len}"),
            Detail::Bytes(offset, len, crc) => write!(f, " @{offset}+{len} #{crc:08x}"),
            Detail::Length(len) => write!(f, " {len}"),
            Detail::Word(word) => write!(f, " {word}"),
            Detail::Path(path) => write!(f, " {}", path.display()),
        }
    }
}

#[derive(Clone, Debug)]
struct Step {
    operation: Operation,
    path: Arc<Path>,
    detail: Detail,
    failure: Option<Failure>,
}

/// Counts and judges operations.
#[derive(Clone, Debug)]
pub(super) struct Control {
    pub(super) random: SplitMix,
    pub(super) plan: Plan,
    pub(super) stop_at: u64,
    /// An operation was refused because the process is taken to be dead.
    pub(super) stopped: bool,
    pub(super) injected: u64,
    steps: Vec<Step>,
}

impl Control {
    pub(super) fn new(seed: u64) -> Self {
        Control {
            random: SplitMix::new(seed),
            plan: Plan::new(),
            stop_at: u64::MAX,
            stopped: false,
            injected: 0,
            steps: Vec::new(),
        }
    }

    pub(super) fn operations(&self) -> u64 {
        self.steps.len() as u64
    }

    pub(super) fn trace(&self) -> Vec<String> {
        let line = |(index, step): (usize, &Step)| {
            let Step { operation, path, detail, failure } = step;
            let failed = failure.map_or(String::new(), |failure| format!(" failed: {failure:?}"));
            format!("{} {} {}{detail}{failed}", index + 1, operation.name(), path.display())
        };
        self.steps.iter().enumerate().map(line).collect()
    }

    /// Fails where the next operation is past the crash point.
    pub(super) fn alive(&mut self) -> io::Result<()> {
        self.stopped |= self.operations() + 1 >= self.stop_at;
        if self.stopped { Err(io::Error::other("the process is dead (fault disk)")) } else { Ok(()) }
    }

    /// Where a short read, write or growth of `len` stops: before the end.
    pub(super) fn short(&mut self, failure: Option<Failure>, len: u64) -> Option<u64> {
        (failure == Some(Failure::Short)).then(|| self.random.below(len))
    }

    /// Starts an operation. Plain failures are returned as errors; one that leaves something
    /// behind is handed to the operation.
    pub(super) fn begin(
        &mut self,
        operation: Operation,
        path: &Arc<Path>,
        detail: Detail,
        grows: bool,
    ) -> io::Result<Option<Failure>> {
        self.alive()?;
        let failure = self.plan.judge(self.operations() + 1, operation, path, grows);
        self.injected += u64::from(failure.is_some());
        self.steps.push(Step { operation, path: Arc::clone(path), detail, failure });
        match failure {
            Some(Failure::Io) => Err(injected()),
            Some(Failure::Kind(kind)) => Err(kind.into()),
            other => Ok(other),
        }
    }
}

/// The error of an injected fault.
pub(super) fn injected() -> io::Error {
    io::Error::other("injected I/O error (fault disk)")
}

/// A failure of an operation that can only fail whole.
pub(super) fn whole(failure: Option<Failure>) -> io::Result<()> {
    match failure {
        None => Ok(()),
        Some(Failure::Kind(kind)) => Err(kind.into()),
        Some(Failure::Full) => Err(io::ErrorKind::StorageFull.into()),
        Some(Failure::Io | Failure::Short | Failure::Sync | Failure::SyncPart) => Err(injected()),
    }
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) names: Names,
    pub(super) control: Control,
    pub(super) sync_mode: SyncMode,
    pub(super) file_system: FileSystem,
    pub(super) origin: String,
    pub(super) epochs: Option<Vec<Epoch>>,
    /// The last number given to a file or an open file.
    pub(super) last_number: u64,
    /// For names that nobody has: goes on over crashes, apart from torn places and coins.
    pub(super) ids: SplitMix,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        State {
            inodes: BTreeMap::new(),
            names: Names::default(),
            control: Control::new(seed),
            sync_mode: SyncMode::default(),
            file_system: FileSystem::Local,
            origin: "new".to_owned(),
            epochs: None,
            last_number: 0,
            ids: SplitMix::new(!seed),
        }
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// A disk with other files and names, no faults, and a seed that follows from this one's.
    pub(super) fn child(&self, inodes: BTreeMap<u64, Inode>, names: Names, salt: u64, origin: String) -> State {
        let seed = self.control.random.clone().next_u64() ^ salt;
        let mut child = State {
            inodes,
            names,
            control: Control::new(seed),
            sync_mode: self.sync_mode,
            file_system: self.file_system,
            origin,
            epochs: None,
            last_number: self.last_number,
            ids: self.ids.clone(),
        };
        child.collect();
        child
    }

    /// What a killed process leaves: everything but its open files and locks.
    pub(super) fn fork(&self, why: &str) -> State {
        let inodes = self.inodes.iter().map(|(number, inode)| (*number, inode.fork())).collect();
        let origin = format!("{why} after operation {}", self.control.operations());
        self.child(inodes, self.names.clone(), 0, origin)
    }

    /// Forgets files that no name and no open file leads to.
    pub(super) fn collect(&mut self) {
        let named = self.names.files();
        self.inodes.retain(|number, inode| inode.opens > 0 || named.contains(number));
    }

    /// Keeps the state before a sync, where asked to and where something is pending.
    pub(super) fn keep_epoch(&mut self) {
        let quiet = self.names.pending.is_empty() && self.inodes.values().all(|inode| inode.pending.is_empty());
        if quiet || self.epochs.is_none() || self.control.alive().is_err() {
            return;
        }
        let disk = FaultDisk::from_state(self.fork("epoch"));
        let operation = self.control.operations() + 1;
        if let Some(epochs) = &mut self.epochs {
            epochs.push(Epoch { operation, disk });
        }
    }
}
