//! One file: the bytes reads see, the bytes that survive, and what lies between.
//!
//! 1. `durable` with every pending operation applied, in order, is `cache` — but for stale pages.
//! 2. A stale page is clean for the kernel (no pending operation holds its bytes), while the cache
//!    shows bytes the disk does not have. The next write to it makes the whole page dirty.
//! 3. A journalled page has its bytes only in the journal; `journal` keeps what is in place.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use super::pages::{LEN_MAX, PAGE, Page, Pages, pages_of};
use super::plan::SyncMode;
use crate::engine::files::LockKind;

/// A change of a file that no sync has made durable yet.
#[derive(Clone, Debug)]
pub(super) enum FileOp {
    Write { offset: u64, data: Arc<[u8]> },
    SetLen(u64),
}

impl FileOp {
    pub(super) fn apply(&self, pages: &mut Pages) {
        match self {
            FileOp::Write { offset, data } => pages.write(*offset, data),
            FileOp::SetLen(len) => pages.resize(*len),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    pub(super) cache: Pages,
    pub(super) durable: Pages,
    pub(super) pending: Vec<FileOp>,
    pub(super) stale: BTreeSet<u64>,
    journal: BTreeMap<u64, Option<Page>>,
    /// Errors of writing back so far, and whether some open file has heard of the last one.
    errors: u64,
    reported: bool,
    pub(super) locks: BTreeMap<u64, LockKind>,
    pub(super) opens: u32,
}

impl Inode {
    /// A file whose bytes are all durable.
    pub(super) fn quiet(pages: Pages) -> Self {
        Inode { cache: pages.clone(), durable: pages, reported: true, ..Inode::default() }
    }

    /// What is left of a file when its process is killed: all but the open files and their locks.
    pub(super) fn fork(&self) -> Self {
        Inode { locks: BTreeMap::new(), opens: 0, ..self.clone() }
    }

    /// Makes the file's bytes exactly these, durable at once, whatever was pending.
    pub(super) fn replace(&mut self, pages: Pages) {
        self.cache = pages.clone();
        self.durable = pages;
        self.pending.clear();
        self.stale.clear();
        self.journal.clear();
    }

    /// Which error an open file has heard of when it is opened: the last, or the one before it
    /// where nobody has heard of the last (Linux's `errseq_t`).
    pub(super) fn heard_at_open(&self) -> u64 {
        self.errors - u64::from(self.errors > 0 && !self.reported)
    }

    /// How many of `len` bytes at `offset` can be written without a new place on the disk.
    pub(super) fn room(&self, offset: u64, len: u64) -> u64 {
        let end = offset.saturating_add(len).min(self.cache.len().max(offset));
        let hole = pages_of(offset, end - offset).find(|page| !self.cache.is_allocated(*page));
        hole.map_or(end, |page| (page * PAGE as u64).max(offset)) - offset
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= LEN_MAX);
        let end = end.ok_or(io::ErrorKind::FileTooLarge)?;
        self.cache.write(offset, data);
        let (mut from, mut to) = (offset, end);
        for page in pages_of(offset, end - offset) {
            if self.stale.remove(&page) {
                let start = page * PAGE as u64;
                from = from.min(start);
                to = to.max((start + PAGE as u64).min(self.cache.len()));
            }
        }
        let data = if (from, to) == (offset, end) {
            Arc::from(data)
        } else {
            let mut whole = vec![0; (to - from) as usize];
            self.cache.read(from, &mut whole);
            Arc::from(whole)
        };
        self.pending.push(FileOp::Write { offset: from, data });
        Ok(())
    }

    pub(super) fn set_len(&mut self, len: u64) -> io::Result<()> {
        if len > LEN_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.cache.resize(len);
        let pages = len.div_ceil(PAGE as u64);
        self.stale.retain(|page| *page < pages);
        self.pending.push(FileOp::SetLen(len));
        Ok(())
    }

    /// A sync that works, by an open file that has heard of error number `heard`. An earlier error
    /// it has not heard of makes it fail all the same.
    pub(super) fn sync(&mut self, heard: &mut u64) -> io::Result<()> {
        self.flush();
        if *heard == self.errors {
            return Ok(());
        }
        *heard = self.errors;
        self.reported = true;
        for (page, in_place) in std::mem::take(&mut self.journal) {
            self.durable.put_page(page, in_place);
            self.stale.insert(page);
        }
        Err(io::Error::other("an earlier write of this file did not reach the disk (fault disk)"))
    }

    /// Makes all that is pending durable, in place.
    fn flush(&mut self) {
        for op in std::mem::take(&mut self.pending) {
            op.apply(&mut self.durable);
            if let FileOp::Write { offset, data } = &op {
                for page in pages_of(*offset, data.len() as u64) {
                    self.journal.remove(&page);
                }
            }
        }
        let pages = self.durable.len().div_ceil(PAGE as u64);
        self.journal.retain(|page, _| *page < pages);
    }

    /// The pages that pending writes have made dirty.
    fn dirty(&self) -> BTreeSet<u64> {
        let writes = self.pending.iter().filter_map(|op| match op {
            FileOp::Write { offset, data } => Some(pages_of(*offset, data.len() as u64)),
            FileOp::SetLen(_) => None,
        });
        let end = self.cache.len().div_ceil(PAGE as u64);
        writes.flatten().filter(|page| *page < end).collect()
    }

    /// A sync that fails by `mode` for the dirty pages that `fails` names.
    pub(super) fn fail_sync(
        &mut self,
        mode: SyncMode,
        heard: &mut u64,
        mut fails: impl FnMut(u64) -> bool,
    ) -> io::Result<()> {
        let dirty = self.dirty();
        let lost: BTreeSet<u64> = dirty.iter().copied().filter(|page| fails(*page)).collect();
        match mode {
            SyncMode::Ext4Data => return self.fail_checkpoint(heard, &lost),
            SyncMode::Ext4Ordered => {
                self.commit_lengths(true);
                self.write_back(dirty.difference(&lost));
                self.stale.extend(lost);
            }
            SyncMode::Xfs => {
                self.commit_lengths(false);
                self.write_back(dirty.difference(&lost));
                self.stale.extend(lost);
            }
            SyncMode::Btrfs => {
                self.cache = self.durable.clone();
                self.pending.clear();
                self.stale.clear();
            }
        }
        self.errors += 1;
        self.reported = true;
        *heard = self.errors;
        Err(io::Error::other("the sync failed (fault disk)"))
    }

    /// The journal has the bytes and the sync says so; what lies in place stays as it was.
    fn fail_checkpoint(&mut self, heard: &mut u64, lost: &BTreeSet<u64>) -> io::Result<()> {
        let in_place: Vec<_> = lost
            .iter()
            .map(|page| match self.journal.get(page) {
                Some(older) => (*page, older.clone()),
                None => (*page, self.durable.page(*page).cloned()),
            })
            .collect();
        let answer = self.sync(heard);
        if !lost.is_empty() {
            self.journal.extend(in_place);
            self.errors += 1;
            self.reported = false;
        }
        answer
    }

    /// Of all that is pending, only lengths become durable: those that were set, and where
    /// `by_writes` also those that writes made.
    fn commit_lengths(&mut self, by_writes: bool) {
        for op in std::mem::take(&mut self.pending) {
            match op {
                FileOp::SetLen(len) => self.durable.resize(len),
                FileOp::Write { offset, data } => {
                    let end = offset + data.len() as u64;
                    if by_writes && end > self.durable.len() {
                        self.durable.resize(end);
                    }
                }
            }
        }
    }

    /// Writes single pages as the cache has them.
    fn write_back<'a>(&mut self, pages: impl Iterator<Item = &'a u64>) {
        for page in pages {
            let start = *page * PAGE as u64;
            let mut bytes = vec![0; PAGE];
            let there = self.cache.read(start, &mut bytes);
            bytes.truncate(there);
            self.durable.write(start, &bytes);
        }
    }

    /// The memory is short: clean pages are dropped, and read from the disk when next wanted.
    pub(super) fn evict(&mut self) {
        for page in std::mem::take(&mut self.stale) {
            self.cache.put_page(page, self.durable.page(page).cloned());
        }
    }

    pub(super) fn try_lock(&mut self, open: u64, kind: LockKind) -> bool {
        // As flock(2): a conversion gives the old lock back first, and may then fail to get the new.
        self.locks.remove(&open);
        let free = match kind {
            LockKind::Exclusive => self.locks.is_empty(),
            LockKind::Shared => self.locks.values().all(|held| *held == LockKind::Shared),
        };
        if free {
            self.locks.insert(open, kind);
        }
        free
    }
}
