//! A disk that forgets, tears and fails on command.
//!
//! [`FaultDisk`] keeps three things of every file apart: the bytes that reads see, the bytes that
//! survive a power loss, and the writes and lengths since the last sync. Names are kept apart the
//! same way: a created, linked, renamed or removed name is durable once its *directory* was
//! synced, and syncing a new file does not make its name durable. What it assumes of a machine:
//!
//! 1. A sector of 512 bytes is written whole or not at all; writes between two syncs reach the
//!    disk in any order, or never.
//! 2. Changes of one directory survive in the order they were made; two directories are
//!    independent but where one change (a rename) touches both.
//! 3. A sync that succeeded holds, unless the fault planned for it says otherwise.
//! 4. Locks belong to the open file, and go with its last handle or with the process.
//!
//! Operations are counted from 1. Nothing here reads a clock or the machine's random numbers: with
//! one seed and one sequence of calls, the [trace](FaultDisk::trace) is always the same.

mod corrupt;
mod file;
mod images;
mod inode;
mod names;
mod pages;
mod plan;
mod state;

use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use self::file::FaultFile;
use self::inode::Inode;
use self::names::{Entry, NameOp};
use self::state::{Detail, State, whole};
use crate::engine::files::{Disk, DiskFile, FileSystem, Mode, Node};

pub use self::corrupt::FileCopy;
pub use self::images::{CrashImages, CrashOptions};
pub use self::plan::{Failure, Fault, Operation, Plan, SyncMode};

/// A file system in memory that fails as planned and crashes as asked.
///
/// A clone is another handle on the same disk. What a crash leaves is always a new disk; the old
/// one is not changed by it, so that many crashes can be tried from one state.
#[derive(Clone)]
pub struct FaultDisk(Arc<Mutex<State>>);

impl fmt::Debug for FaultDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("FaultDisk")
            .field("origin", &state.origin)
            .field("operations", &state.control.operations())
            .finish_non_exhaustive()
    }
}

/// The state of a disk just before an operation that makes something durable.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// The number of the sync that came next.
    pub operation: u64,
    /// The disk before it, everything still pending.
    pub disk: FaultDisk,
}

impl FaultDisk {
    /// An empty disk with the directory `/`. The seed decides torn places and coins.
    pub fn new(seed: u64) -> Self {
        FaultDisk::from_state(State::new(seed))
    }

    fn from_state(state: State) -> Self {
        FaultDisk(Arc::new(Mutex::new(state)))
    }

    /// Puts a plan in place of the one before. Numbers in it count from the disk's first operation.
    pub fn set_plan(&self, plan: impl Into<Plan>) {
        self.0.lock().control.plan = plan.into();
    }

    /// How failed syncs behave from now on.
    pub fn set_sync_mode(&self, mode: SyncMode) {
        self.0.lock().sync_mode = mode;
    }

    /// What the disk says it is when asked for its file system.
    pub fn set_file_system(&self, file_system: FileSystem) {
        self.0.lock().file_system = file_system;
    }

    /// The process dies before operation `number`: it and all after it fail, and nothing happens.
    /// Refused operations are neither counted nor traced.
    pub fn stop_at(&self, number: u64) {
        self.0.lock().control.stop_at = number;
    }

    /// The process dies now.
    pub fn stop(&self) {
        self.0.lock().control.stopped = true;
    }

    /// Whether an operation was refused since the process is taken to be dead.
    pub fn stopped(&self) -> bool {
        self.0.lock().control.stopped
    }

    /// How many operations there were; the last one has this number.
    pub fn operations(&self) -> u64 {
        self.0.lock().control.operations()
    }

    /// How many of them failed by the plan.
    pub fn injected(&self) -> u64 {
        self.0.lock().control.injected
    }

    /// One line for every operation: number, kind, path, where, how many bytes, CRC-32 of what was
    /// written, and how it failed.
    pub fn trace(&self) -> Vec<String> {
        self.0.lock().control.trace()
    }

    /// Which crash made this disk, in words.
    pub fn origin(&self) -> String {
        self.0.lock().origin.clone()
    }

    /// Whether to keep the state before every sync from now on; see [`epochs`](Self::epochs).
    pub fn keep_epochs(&self, keep: bool) {
        self.0.lock().epochs = keep.then(Vec::new);
    }

    /// Hands out the states kept so far: one before each sync of a file or directory that found
    /// anything pending, in order. A power loss between two syncs leaves a state that the later one
    /// can leave too, so their crash images and those of the state at the end cover the run.
    pub fn epochs(&self) -> Vec<Epoch> {
        self.0.lock().epochs.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Writes and lengths since the last sync, over all files.
    pub fn pending_writes(&self) -> usize {
        self.0.lock().inodes.values().map(|inode| inode.pending.len()).sum()
    }

    /// Changes of names since the last directory sync, over all directories.
    pub fn pending_names(&self) -> usize {
        self.0.lock().names.pending.len()
    }

    /// The power goes: all that is pending is lost, and so are the locks.
    #[must_use]
    pub fn power_loss(&self) -> FaultDisk {
        self.0.lock().power_loss()
    }

    /// The process is killed: reads see what they saw before and what is pending stays pending, but
    /// open files and locks are gone. The plan and the crash point are not carried over.
    #[must_use]
    pub fn process_crash(&self) -> FaultDisk {
        FaultDisk::from_state(self.0.lock().fork("process crash"))
    }

    /// What a power loss now can leave: pending operations kept, lost and torn.
    pub fn crash_images(&self, options: &CrashOptions) -> CrashImages {
        CrashImages::new(self.0.lock().fork("power loss"), options)
    }

    /// Memory is short: pages that failed syncs left clean are dropped, and reads see what the disk
    /// has of them.
    pub fn drop_caches(&self) {
        self.0.lock().inodes.values_mut().for_each(Inode::evict);
    }
}

/// The whole name of a path; relative ones start at `/`.
fn whole_path(path: &Path) -> io::Result<Arc<Path>> {
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(Path::new("/").join(path).components().collect::<PathBuf>().into())
}

impl State {
    fn file_at(&self, path: &Path) -> io::Result<u64> {
        match self.names.seen.get(path) {
            Some(Entry::File(number)) => Ok(*number),
            Some(Entry::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The directory that is to hold a name must be there.
    fn folder_of(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().is_none_or(|folder| self.names.is_folder(folder));
        if folder { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

impl Disk for FaultDisk {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn DiskFile>> {
        let path = whole_path(path)?;
        let mut state = self.0.lock();
        let there = state.file_at(&path);
        let missing = there.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let word = match mode {
            Mode::Existing => "existing",
            Mode::CreateNew => "create_new",
            Mode::OpenOrCreate => "open_or_create",
        };
        let grows = missing && mode != Mode::Existing;
        whole(state.control.begin(Operation::Open, &path, Detail::Word(word), grows)?)?;
        let inode = match (there, mode) {
            (Ok(_), Mode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Err(_), _) if grows => {
                state.folder_of(&path)?;
                let number = state.next_number();
                state.inodes.insert(number, Inode::default());
                let name = (path.to_path_buf(), Some(Entry::File(number)));
                state.names.change(NameOp(vec![name]));
                number
            }
            (there, _) => there?,
        };
        let open = state.next_number();
        let heard = match state.inodes.get_mut(&inode) {
            Some(inode) => {
                inode.opens += 1;
                inode.heard_at_open()
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        drop(state);
        Ok(Arc::new(FaultFile::new(self.clone(), path, inode, open, heard)))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (whole_path(from)?, whole_path(to)?);
        let mut state = self.0.lock();
        let detail = Detail::Path(Arc::clone(&to));
        whole(state.control.begin(Operation::Link, &from, detail, true)?)?;
        let number = state.file_at(&from)?;
        if state.names.seen.contains_key(&*to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.folder_of(&to)?;
        state.names.change(NameOp(vec![(to.to_path_buf(), Some(Entry::File(number)))]));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (whole_path(from)?, whole_path(to)?);
        let mut state = self.0.lock();
        let detail = Detail::Path(Arc::clone(&to));
        whole(state.control.begin(Operation::Rename, &from, detail, false)?)?;
        let number = state.file_at(&from)?;
        state.folder_of(&to)?;
        match state.names.seen.get(&*to) {
            Some(Entry::Directory) => return Err(io::ErrorKind::IsADirectory.into()),
            // Two names of one file: POSIX has it that nothing happens.
            Some(Entry::File(other)) if *other == number => return Ok(()),
            _ => {}
        }
        let gone = (from.to_path_buf(), None);
        let new = (to.to_path_buf(), Some(Entry::File(number)));
        state.names.change(NameOp(vec![gone, new]));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = whole_path(path)?;
        let mut state = self.0.lock();
        whole(state.control.begin(Operation::Remove, &path, Detail::None, false)?)?;
        state.file_at(&path)?;
        state.names.change(NameOp(vec![(path.to_path_buf(), None)]));
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let path = whole_path(path)?;
        let mut state = self.0.lock();
        let there = state.names.seen.get(&*path).copied();
        whole(state.control.begin(Operation::CreateDir, &path, Detail::None, there.is_none())?)?;
        match there {
            Some(Entry::Directory) => Ok(()),
            Some(Entry::File(_)) => Err(io::ErrorKind::AlreadyExists.into()),
            None => {
                state.folder_of(&path)?;
                state.names.change(NameOp(vec![(path.to_path_buf(), Some(Entry::Directory))]));
                Ok(())
            }
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let path = whole_path(path)?;
        let mut state = self.0.lock();
        state.keep_epoch();
        whole(state.control.begin(Operation::SyncDir, &path, Detail::None, false)?)?;
        if !state.names.is_folder(&path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.names.sync(&path);
        state.collect();
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let path = whole_path(path)?;
        let mut state = self.0.lock();
        whole(state.control.begin(Operation::List, &path, Detail::None, false)?)?;
        let files = state
            .names
            .seen
            .iter()
            .filter(|(name, entry)| matches!(entry, Entry::File(_)) && name.parent() == Some(&path));
        Ok(files.map(|(name, _)| name.clone()).collect())
    }

    fn node(&self, path: &Path) -> io::Result<Option<Node>> {
        let path = whole_path(path)?;
        let mut state = self.0.lock();
        whole(state.control.begin(Operation::Node, &path, Detail::None, false)?)?;
        Ok(match state.names.seen.get(&*path) {
            Some(Entry::Directory) => Some(Node::Directory),
            Some(Entry::File(number)) => state.inodes.get(number).map(|inode| Node::File(inode.cache.len())),
            None => None,
        })
    }

    /// There are no symbolic links here: the one name is the path itself, from `/`. Not counted as
    /// an operation, but refused after the crash point.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        let path = whole_path(path)?;
        let mut state = self.0.lock();
        state.control.alive()?;
        state.folder_of(&path)?;
        Ok(path.to_path_buf())
    }

    fn random_id(&self) -> io::Result<[u8; 16]> {
        let mut state = self.0.lock();
        let halves = [state.ids.next_u64(), state.ids.next_u64()];
        let mut id = [0; 16];
        for (place, byte) in id.iter_mut().zip(halves.iter().flat_map(|half| half.to_le_bytes())) {
            *place = byte;
        }
        Ok(id)
    }

    fn file_system(&self, _path: &Path) -> io::Result<FileSystem> {
        let mut state = self.0.lock();
        state.control.alive()?;
        Ok(state.file_system)
    }
}
