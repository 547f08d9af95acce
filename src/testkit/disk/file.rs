//! An open file of a [`FaultDisk`].

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::FaultDisk;
use super::inode::Inode;
use super::plan::{Failure, Operation};
use super::state::{Detail, State, injected, whole};
use crate::engine::files::{DiskFile, LockKind};

#[derive(Debug)]
pub(super) struct FaultFile {
    disk: FaultDisk,
    path: Arc<Path>,
    inode: u64,
    open: u64,
    /// The last error of writing back this open file has heard of; changed under the disk's lock.
    heard: AtomicU64,
}

impl FaultFile {
    pub(super) fn new(disk: FaultDisk, path: Arc<Path>, inode: u64, open: u64, heard: u64) -> Self {
        FaultFile { disk, path, inode, open, heard: AtomicU64::new(heard) }
    }

    fn begin(
        &self,
        state: &mut State,
        operation: Operation,
        detail: Detail,
        grows: bool,
    ) -> io::Result<Option<Failure>> {
        state.control.begin(operation, &self.path, detail, grows)
    }

    fn inode<'a>(&self, state: &'a mut State) -> io::Result<&'a mut Inode> {
        // An open file keeps its inode; this cannot fail while `self` is alive.
        state.inodes.get_mut(&self.inode).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl DiskFile for FaultFile {
    fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.0.lock();
        whole(self.begin(&mut state, Operation::Len, Detail::None, false)?)?;
        Ok(self.inode(&mut state)?.cache.len())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let detail = Detail::Bytes(offset, out.len(), 0);
        let failure = self.begin(&mut state, Operation::Read, detail, false)?;
        let part = state.control.short(failure, out.len() as u64);
        let wanted = part.unwrap_or(out.len() as u64) as usize;
        let (out, _) = out.split_at_mut(wanted);
        let read = self.inode(&mut state)?.cache.read(offset, out);
        match failure {
            Some(_) => whole(failure),
            None if read < wanted => Err(io::ErrorKind::UnexpectedEof.into()),
            None => Ok(()),
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let len = data.len() as u64;
        let room = self.inode(&mut state)?.room(offset, len);
        let detail = Detail::Bytes(offset, data.len(), crc32fast::hash(data));
        let failure = self.begin(&mut state, Operation::Write, detail, room < len)?;
        let written = match failure {
            None => len,
            Some(Failure::Full) => room,
            Some(_) => state.control.short(failure, len).unwrap_or(0),
        };
        let (data, _) = data.split_at(written as usize);
        self.inode(&mut state)?.write(offset, data)?;
        whole(failure)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let before = self.inode(&mut state)?.cache.len();
        let grows = len > before;
        let failure = self.begin(&mut state, Operation::SetLen, Detail::Length(len), grows)?;
        if failure.is_none() {
            return self.inode(&mut state)?.set_len(len);
        }
        if grows && let Some(part) = state.control.short(failure, len - before) {
            self.inode(&mut state)?.set_len(before + part)?;
        }
        whole(failure)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        state.keep_epoch();
        let failure = self.begin(&mut state, Operation::Sync, Detail::None, false)?;
        let mode = state.sync_mode;
        let mut coin = state.control.random.clone();
        let mut heard = self.heard.load(Ordering::Relaxed);
        let inode = self.inode(&mut state)?;
        let answer = match failure {
            None => inode.sync(&mut heard),
            Some(Failure::Sync) => inode.fail_sync(mode, &mut heard, |_| true),
            Some(Failure::SyncPart) => inode.fail_sync(mode, &mut heard, |_| coin.coin()),
            Some(_) => Err(injected()),
        };
        state.control.random = coin;
        self.heard.store(heard, Ordering::Relaxed);
        answer
    }

    fn try_lock(&self, kind: LockKind) -> io::Result<bool> {
        let mut state = self.disk.0.lock();
        let word = match kind {
            LockKind::Exclusive => "exclusive",
            LockKind::Shared => "shared",
        };
        whole(self.begin(&mut state, Operation::Lock, Detail::Word(word), false)?)?;
        Ok(self.inode(&mut state)?.try_lock(self.open, kind))
    }

    fn unlock(&self) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        whole(self.begin(&mut state, Operation::Unlock, Detail::None, false)?)?;
        self.inode(&mut state)?.locks.remove(&self.open);
        Ok(())
    }
}

impl Drop for FaultFile {
    fn drop(&mut self) {
        let mut state = self.disk.0.lock();
        // A close has no result, and the kernel drops the lock whatever becomes of it.
        let _ = self.begin(&mut state, Operation::Close, Detail::None, false);
        if let Ok(inode) = self.inode(&mut state) {
            inode.locks.remove(&self.open);
            inode.opens -= 1;
        }
        state.collect();
    }
}
