//! The ledger's file as redb wants it, and the first bytes of it that redb takes on trust.
//!
//! Two slots hold the last two commits, each with a checksum. Which of them counts is said by a byte
//! that has none. The ledger commits in two phases, so the slot that is named was synced before its
//! name was, and redb believes the byte. One bit of it changed, and the last commit is gone, without a
//! word. So before redb opens the file:
//!
//! - flags that no ledger's file has are damage;
//! - where both slots are whole and the one that is not named holds the newer commit, which a crash
//!   between the phases leaves too, that commit is tried first, on a file that is not written to until
//!   every page of it is verified. It is nothing that anybody was answered, or the last of what they were.
//!
//! What is left: the bit and a page of the newer commit, both damaged, are what a power loss between
//! the phases leaves, and the commit before is opened.

use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use redb::{BackendError, StorageBackend};
use xxhash_rust::xxh3::xxh3_128;

use crate::engine::files::{DiskFile, LockKind};
use crate::error::panic_text;

/// A page of redb's, in bytes: the default, which the database is created with.
const PAGE_BYTES: u64 = 4096;

/// The first bytes of a redb file of format 3.
#[derive(Debug)]
pub(crate) struct Header([u8; Header::BYTES]);

impl Header {
    const BYTES: usize = 320;
    const MAGIC: &[u8] = b"redb";
    const FLAGS: usize = 9;
    /// The flags: the second slot is the one that counts; the file was not closed; two phases.
    const SECOND: u8 = 1;
    const OPEN: u8 = 2;
    const TWO_PHASE: u8 = 4;
    const SLOTS: [usize; 2] = [64, 192];

    /// Reads it; of a shorter file, as much as there is.
    pub fn read(file: &dyn DiskFile, len: u64) -> io::Result<Self> {
        let mut bytes = [0; Self::BYTES];
        let count = Self::BYTES.min(usize::try_from(len).unwrap_or(usize::MAX));
        if let Some(there) = bytes.get_mut(..count) {
            file.read_at(0, there)?;
        }
        Ok(Header(bytes))
    }

    /// Whether the file begins as one of redb's.
    pub fn is_redb(&self) -> bool {
        self.0.starts_with(Self::MAGIC)
    }

    /// Whether the flags are such as a ledger's file can have.
    pub fn is_two_phase(&self) -> bool {
        let flags = self.flags();
        flags & Self::TWO_PHASE != 0 && flags & !(Self::SECOND | Self::OPEN | Self::TWO_PHASE) == 0
    }

    /// The flags that name the other slot, where both slots are whole and that one's commit is newer.
    pub fn newer(&self) -> Option<u8> {
        let [first, second] = Self::SLOTS.map(|at| self.commit(at));
        let (first, second) = (first?, second?);
        let is_newer = if self.flags() & Self::SECOND == 0 { second > first } else { first > second };
        is_newer.then_some(self.flags() ^ Self::SECOND)
    }

    fn flags(&self) -> u8 {
        self.0.get(Self::FLAGS).copied().unwrap_or(0)
    }

    /// The number of the commit in the slot that begins here, where its checksum is right.
    fn commit(&self, at: usize) -> Option<u64> {
        const NUMBER: usize = 104;
        const CHECKSUM: usize = 112;
        let (slot, checksum) = self.0.get(at..)?.split_at_checked(CHECKSUM)?;
        let is_whole = xxh3_128(slot).to_le_bytes() == *checksum.first_chunk()?;
        let number = slot.get(NUMBER..)?.first_chunk()?;
        is_whole.then(|| u64::from_le_bytes(*number))
    }
}

/// A file with other flags, and with whatever redb writes, of which the disk knows nothing until it is
/// released; where nothing may be written, never.
#[derive(Debug)]
pub(crate) struct Ahead {
    file: Arc<dyn DiskFile>,
    len: u64,
    released: AtomicBool,
    steps: Mutex<Vec<Step>>,
}

#[derive(Debug)]
enum Step {
    Write(u64, Vec<u8>),
    Len(u64),
    Sync,
}

impl Ahead {
    /// `flags`: those to show in place of the file's own.
    pub fn new(file: Arc<dyn DiskFile>, flags: Option<u8>) -> io::Result<Self> {
        let steps = flags.map(|flags| Step::Write(Header::FLAGS as u64, vec![flags])).into_iter().collect();
        Ok(Ahead { len: file.len()?, file, released: AtomicBool::new(false), steps: Mutex::new(steps) })
    }

    /// Does to the file what was done here, step by step, and from now on everything at once. After an
    /// error nothing more reaches the file.
    pub fn release(&self) -> io::Result<()> {
        let mut steps = self.steps.lock();
        for step in steps.drain(..) {
            match step {
                Step::Write(at, bytes) => self.file.write_at(at, &bytes)?,
                Step::Len(len) => self.file.set_len(len)?,
                Step::Sync => self.file.sync()?,
            }
        }
        self.released.store(true, Ordering::Release);
        Ok(())
    }

    /// Keeps a step, or says that it is to be done.
    fn keeps(&self, step: impl FnOnce() -> Step) -> bool {
        if self.released.load(Ordering::Acquire) {
            return false;
        }
        self.steps.lock().push(step());
        true
    }
}

impl DiskFile for Ahead {
    fn len(&self) -> io::Result<u64> {
        if self.released.load(Ordering::Acquire) {
            return self.file.len();
        }
        Ok(self.steps.lock().iter().fold(self.len, |len, step| match step {
            Step::Write(at, bytes) => len.max(at.saturating_add(bytes.len() as u64)),
            Step::Len(len) => *len,
            Step::Sync => len,
        }))
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.released.load(Ordering::Acquire) {
            return self.file.read_at(offset, out);
        }
        if offset.saturating_add(out.len() as u64) > self.len()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let count = out.len();
        let place = |at: u64| usize::try_from(at.saturating_sub(offset)).unwrap_or(usize::MAX).min(count);
        let there = place(self.len);
        let (old, new) = out.split_at_mut(there);
        self.file.read_at(offset, old)?;
        new.fill(0);
        for step in &*self.steps.lock() {
            match step {
                Step::Write(at, bytes) => {
                    let skipped = usize::try_from(offset.saturating_sub(*at)).unwrap_or(usize::MAX);
                    let bytes = bytes.get(skipped..).unwrap_or_default();
                    let onto = out.get_mut(place(*at)..).unwrap_or_default();
                    onto.iter_mut().zip(bytes).for_each(|(old, new)| *old = *new);
                }
                Step::Len(len) => out.get_mut(place(*len)..).unwrap_or_default().fill(0),
                Step::Sync => {}
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.keeps(|| Step::Write(offset, data.to_vec())) { Ok(()) } else { self.file.write_at(offset, data) }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.keeps(|| Step::Len(len)) { Ok(()) } else { self.file.set_len(len) }
    }

    fn sync(&self) -> io::Result<()> {
        if self.keeps(|| Step::Sync) { Ok(()) } else { self.file.sync() }
    }

    fn try_lock(&self, kind: LockKind) -> io::Result<bool> {
        self.file.try_lock(kind)
    }

    fn unlock(&self) -> io::Result<()> {
        self.file.unlock()
    }
}

/// A file of the [`Disk`](crate::engine::files::Disk) as redb wants it.
#[derive(Debug)]
pub(super) struct Backend(pub Arc<dyn DiskFile>);

impl Backend {
    /// A panic of the disk as an error: redb takes errors anywhere, and where it lets go of the file a
    /// panic would end the program.
    fn calm<T>(&self, run: impl FnOnce(&dyn DiskFile) -> io::Result<T>) -> io::Result<T> {
        catch_unwind(AssertUnwindSafe(|| run(&*self.0)))
            .unwrap_or_else(|panic| Err(io::Error::other(format!("the disk panicked: {}", panic_text(&*panic)))))
    }
}

impl StorageBackend for Backend {
    /// In whole pages, as redb has them. What is over is a growth that was cut short, or was added by
    /// somebody else: redb takes a file with half a page at its end for damaged. One that is less than a
    /// page is told as it is: redb makes a new database of an empty one.
    fn len(&self) -> io::Result<u64> {
        let len = self.calm(|file| file.len())?;
        Ok(if len < PAGE_BYTES { len } else { len / PAGE_BYTES * PAGE_BYTES })
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.calm(|file| file.read_at(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.calm(|file| file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        if cfg!(onceledger_canary = "acknowledge_before_sync") {
            return Ok(());
        }
        let synced = self.calm(|file| file.sync());
        if cfg!(onceledger_canary = "ignore_a_failed_sync") { Ok(()) } else { synced }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.calm(|file| file.write_at(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.calm(|file| file.unlock())
    }

    /// One lock on the whole file stands for every range: the ledger uses redb alone, and redb
    /// itself takes the same lock, so a foreign redb program is kept out too.
    fn try_lock_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<bool, BackendError> {
        self.calm(|file| file.try_lock(LockKind::Exclusive)).map_err(BackendError::Io)
    }

    fn unlock_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<(), BackendError> {
        self.calm(|file| file.unlock()).map_err(BackendError::Io)
    }
}

#[cfg(test)]
mod tests;
