//! Damage, and bytes in and out. None of it is an operation: nothing here is counted, traced or
//! failed, and it is durable at once.

use std::path::Path;

use super::inode::Inode;
use super::names::Entry;
use super::pages::{LEN_MAX, Pages};
use super::{FaultDisk, whole_path};

/// The bytes of one file at one time, to be put back later.
#[derive(Clone, Debug)]
pub struct FileCopy(Pages);

impl FileCopy {
    /// The bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }
}

impl FaultDisk {
    /// The bytes that reads of a file see, or `None` where there is no such file.
    pub fn export(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.look(path.as_ref(), |inode| inode.cache.to_bytes())
    }

    /// The bytes of a file that a power loss now would leave, under the name it has now; `None`
    /// where there is no such file.
    pub fn export_durable(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.look(path.as_ref(), |inode| inode.durable.to_bytes())
    }

    /// Puts a file with these bytes in place of what is there, name, bytes and directories durable.
    ///
    /// # Panics
    /// Where the path is a directory, goes through a file, or holds `..`.
    #[track_caller]
    pub fn import(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        let path = path.as_ref();
        let Ok(whole) = whole_path(path) else { panic!("`..` in {}", path.display()) };
        if self.export(path).is_none() {
            let mut state = self.0.lock();
            let number = state.next_number();
            let folders = whole.ancestors().skip(1).map(|folder| (folder, Entry::Directory));
            for (name, entry) in folders.chain([(&*whole, Entry::File(number))]) {
                let there = state.names.seen.get(name);
                assert!(there.is_none_or(|there| *there == entry), "{} is taken", name.display());
                state.names.seen.insert(name.to_owned(), entry);
                state.names.durable.insert(name.to_owned(), entry);
            }
            state.inodes.insert(number, Inode::quiet(Pages::default()));
        }
        self.harm(path, |inode| inode.replace(Pages::from_bytes(bytes)));
    }

    /// Changes the bits of `mask` in one byte, for reads and on the disk.
    ///
    /// # Panics
    /// Where there is no such file, or it ends before that byte.
    #[track_caller]
    pub fn flip(&self, path: impl AsRef<Path>, offset: u64, mask: u8) {
        self.harm(path.as_ref(), |inode| {
            assert!(offset < inode.cache.len(), "no byte {offset} to flip");
            each(inode, |pages| {
                let mut byte = [0];
                if pages.read(offset, &mut byte) == 1 {
                    pages.write(offset, &byte.map(|byte| byte ^ mask));
                }
            });
        });
    }

    /// Fills the sector of 512 bytes with this number with zeros, as far as the file goes.
    ///
    /// # Panics
    /// Where there is no such file, or it ends before that sector.
    #[track_caller]
    pub fn zero_sector(&self, path: impl AsRef<Path>, sector: u64) {
        let offset = sector * 512;
        self.harm(path.as_ref(), |inode| {
            assert!(offset < inode.cache.len(), "no sector {sector} to zero");
            each(inode, |pages| {
                let len = pages.len().saturating_sub(offset).min(512);
                pages.write(offset, &vec![0; len as usize]);
            });
        });
    }

    /// Exchanges two stretches of `size` bytes, counted in stretches from the start of the file.
    ///
    /// # Panics
    /// Where there is no such file, or it ends before the end of either.
    #[track_caller]
    pub fn swap_pages(&self, path: impl AsRef<Path>, one: u64, other: u64, size: usize) {
        let (first, second) = (one * size as u64, other * size as u64);
        self.harm(path.as_ref(), |inode| {
            let end = first.max(second) + size as u64;
            assert!(end <= inode.cache.len(), "no pages {one} and {other} of {size} to swap");
            each(inode, |pages| {
                let (mut front, mut back) = (vec![0; size], vec![0; size]);
                if end <= pages.len() {
                    pages.read(first, &mut front);
                    pages.read(second, &mut back);
                    pages.write(first, &back);
                    pages.write(second, &front);
                }
            });
        });
    }

    /// Cuts a file to `len` bytes, or grows it with zeros; what was pending is forgotten.
    ///
    /// # Panics
    /// Where there is no such file, or the length is over 16 GiB.
    #[track_caller]
    pub fn truncate(&self, path: impl AsRef<Path>, len: u64) {
        assert!(len <= LEN_MAX, "{len} bytes are more than the faulty disk holds");
        self.harm(path.as_ref(), |inode| {
            let mut pages = inode.cache.clone();
            pages.resize(len);
            inode.replace(pages);
        });
    }

    /// The bytes that reads of a file see, to be put back with [`restore`](Self::restore); `None`
    /// where there is no such file.
    pub fn snapshot(&self, path: impl AsRef<Path>) -> Option<FileCopy> {
        self.look(path.as_ref(), |inode| FileCopy(inode.cache.clone()))
    }

    /// Puts an older copy in place of a file's bytes; what was pending is forgotten. Open files see
    /// it too.
    ///
    /// # Panics
    /// Where there is no such file; use [`import`](Self::import) for one that is gone.
    #[track_caller]
    pub fn restore(&self, path: impl AsRef<Path>, copy: &FileCopy) {
        self.harm(path.as_ref(), |inode| inode.replace(copy.0.clone()));
    }

    /// Takes a name away, durably, as an administrator's mistake would. False where there was none.
    pub fn lose(&self, path: impl AsRef<Path>) -> bool {
        let Ok(path) = whole_path(path.as_ref()) else { return false };
        let mut state = self.0.lock();
        if state.file_at(&path).is_err() {
            return false;
        }
        state.names.seen.remove(&*path);
        state.names.durable.remove(&*path);
        for op in &mut state.names.pending {
            op.0.retain(|(name, _)| **name != *path);
        }
        state.collect();
        true
    }

    fn look<T>(&self, path: &Path, look: impl FnOnce(&Inode) -> T) -> Option<T> {
        let state = self.0.lock();
        let number = state.file_at(&whole_path(path).ok()?).ok()?;
        state.inodes.get(&number).map(look)
    }

    #[track_caller]
    fn harm(&self, path: &Path, harm: impl FnOnce(&mut Inode)) {
        let mut state = self.0.lock();
        let number = whole_path(path).and_then(|path| state.file_at(&path)).ok();
        match number.and_then(|number| state.inodes.get_mut(&number)) {
            Some(inode) => harm(inode),
            None => panic!("no file {} on the faulty disk", path.display()),
        }
    }
}

/// Damages what reads see and what survives alike.
fn each(inode: &mut Inode, damage: impl Fn(&mut Pages)) {
    damage(&mut inode.cache);
    damage(&mut inode.durable);
}
