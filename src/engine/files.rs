//! Every file operation of the ledger, behind one trait.
//!
//! The ledger file, its lock, its anchor and its session files are reached only through [`Disk`]
//! and [`DiskFile`], so that a test can fail or cut each single step. Two disks live here: the
//! operating system's, and one in memory. The faulty one is in `testkit`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

/// How a file is opened. Every mode reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The file must be there.
    Existing,
    /// The file must not be there.
    CreateNew,
    /// The file is made where it is missing.
    OpenOrCreate,
}

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A regular file, and how long it is in bytes.
    File(u64),
    /// A directory.
    Directory,
    /// Anything else.
    Other,
}

/// Whether a file system keeps the promises the ledger needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// A local file system.
    Local,
    /// A network file system, by name: locks and syncs mean less there.
    Network(&'static str),
    /// FUSE: whoever wrote it decides what a sync means.
    Fuse,
    /// The platform does not say.
    #[cfg_attr(target_os = "linux", allow(dead_code))]
    Unknown,
}

/// A lock on a whole file, dropped by the kernel with the last handle of the open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Excludes every other lock.
    Exclusive,
    /// Excludes exclusive locks.
    Shared,
}

/// A file system. All paths are canonical or made from a canonical one.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Opens a file for reading and writing. Files are created readable by their owner only.
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn DiskFile>>;
    /// Gives a file a second name. `AlreadyExists` where the name is taken.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Renames a file over whatever has the name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes a directory; one that is there is fine.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// The files of a directory, sorted by name; none where there is no directory.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;
    /// What is at a path, or `None`.
    fn node(&self, path: &Path) -> io::Result<Option<Node>>;
    /// The one name of a path: its directory resolved, and the file itself too where it is a link.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;
    /// What kind of file system holds a directory.
    fn file_system(&self, path: &Path) -> io::Result<FileSystem>;
    /// A name that nobody has. A disk that must do the same twice makes it from its seed.
    fn random_id(&self) -> io::Result<[u8; 16]> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(id)
    }
}

/// An open file. Closing is dropping the last handle; it also drops the lock.
#[allow(clippy::len_without_is_empty)] // The length of a file, asked of the system; nobody asks whether it is empty.
pub trait DiskFile: fmt::Debug + Send + Sync + 'static {
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Fills `out` from `offset`, or fails.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
    /// Writes all of `data` at `offset`, or fails.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Cuts the file, or grows it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes the file's bytes and length durable.
    fn sync(&self) -> io::Result<()>;
    /// Takes a lock without waiting. False where another open file holds a conflicting one.
    fn try_lock(&self, kind: LockKind) -> io::Result<bool>;
    /// Gives the lock back.
    fn unlock(&self) -> io::Result<()>;
    /// Whether the file system has given no space to these bytes: they read as zeros. False where nobody
    /// can tell.
    fn is_hole(&self, _offset: u64, _len: u64) -> io::Result<bool> {
        Ok(false)
    }
    /// A handle on the same open file that a started program inherits, its lock with it. `None`
    /// where the platform or the disk has no such thing.
    fn inheritable(&self) -> io::Result<Option<Inheritable>> {
        Ok(None)
    }
}

/// A lock that is held, and is given back in so many words once its last holder is gone: a program that
/// another thread is just starting has the open file too, until it runs, and a lock that was only
/// dropped would live on with it.
#[derive(Debug)]
pub(crate) struct HeldLock {
    file: Arc<dyn DiskFile>,
    pid: u32,
}

impl HeldLock {
    pub fn new(file: Arc<dyn DiskFile>) -> Arc<Self> {
        Arc::new(HeldLock { file, pid: std::process::id() })
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // Over a fork the lock is the parent's.
        if std::process::id() == self.pid {
            // Closing the file, which comes next, gives it back too. Nothing may unwind out of here.
            let _ = catch_unwind(AssertUnwindSafe(|| self.file.unlock()));
        }
    }
}

/// A handle that programs started while it lives inherit.
#[derive(Debug)]
pub struct Inheritable {
    #[cfg(unix)]
    _file: std::os::fd::OwnedFd,
}

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

#[derive(Debug)]
struct RealFile(fs::File);

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true);
        match mode {
            Mode::Existing => {}
            Mode::CreateNew => {
                options.create_new(true);
            }
            Mode::OpenOrCreate => {
                options.create(true).truncate(false);
            }
        }
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        match builder.create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        }
    }

    #[cfg(unix)]
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    /// No portable form elsewhere: the names reach the disk when the system writes them.
    #[cfg(not(unix))]
    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut paths = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                paths.push(entry.path());
            }
        }
        paths.sort();
        Ok(paths)
    }

    fn node(&self, path: &Path) -> io::Result<Option<Node>> {
        match fs::metadata(path) {
            Ok(data) if data.is_file() => Ok(Some(Node::File(data.len()))),
            Ok(data) if data.is_dir() => Ok(Some(Node::Directory)),
            Ok(_) => Ok(Some(Node::Other)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        match fs::canonicalize(path) {
            Ok(whole) => Ok(whole),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let name = path.file_name().ok_or(error)?;
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                Ok(fs::canonicalize(folder.unwrap_or(Path::new(".")))?.join(name))
            }
            Err(error) => Err(error),
        }
    }

    #[cfg(target_os = "linux")]
    fn file_system(&self, path: &Path) -> io::Result<FileSystem> {
        // The magic numbers of linux/magic.h and statfs(2).
        const NETWORK: [(u32, &str); 7] = [
            (0x6969, "NFS"),
            (0xff53_4d42, "SMB (cifs)"),
            (0xfe53_4d42, "SMB2"),
            (0x0000_517b, "SMB (smbfs)"),
            (0x0102_1997, "9p"),
            (0x5346_414f, "AFS"),
            (0x00c3_6400, "Ceph"),
        ];
        const FUSE: u32 = 0x6573_5546;
        let magic = rustix::fs::statfs(path)?.f_type as u32;
        if magic == FUSE {
            return Ok(FileSystem::Fuse);
        }
        let network = NETWORK.iter().find(|(number, _)| *number == magic);
        Ok(network.map_or(FileSystem::Local, |(_, name)| FileSystem::Network(name)))
    }

    #[cfg(not(target_os = "linux"))]
    fn file_system(&self, _path: &Path) -> io::Result<FileSystem> {
        Ok(FileSystem::Unknown)
    }
}

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    #[cfg(unix)]
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, out, offset)
    }

    #[cfg(unix)]
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(&self.0, data, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, mut offset: u64, mut out: &mut [u8]) -> io::Result<()> {
        while !out.is_empty() {
            match std::os::windows::fs::FileExt::seek_read(&self.0, out, offset)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => {
                    out = out.split_at_mut(read).1;
                    offset += read as u64;
                }
            }
        }
        Ok(())
    }

    #[cfg(windows)]
    fn write_at(&self, mut offset: u64, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let written = std::os::windows::fs::FileExt::seek_write(&self.0, data, offset)?;
            data = data.split_at(written).1;
            offset += written as u64;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    #[cfg(target_os = "linux")]
    fn is_hole(&self, offset: u64, len: u64) -> io::Result<bool> {
        match rustix::fs::seek(&self.0, rustix::fs::SeekFrom::Data(offset)) {
            Ok(data) => Ok(data >= offset.saturating_add(len)),
            // No data from here to the end.
            Err(rustix::io::Errno::NXIO) => Ok(true),
            // A file system that cannot tell.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn try_lock(&self, kind: LockKind) -> io::Result<bool> {
        let tried = match kind {
            LockKind::Exclusive => self.0.try_lock(),
            LockKind::Shared => self.0.try_lock_shared(),
        };
        match tried {
            Ok(()) => Ok(true),
            Err(fs::TryLockError::WouldBlock) => Ok(false),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn unlock(&self) -> io::Result<()> {
        self.0.unlock()
    }

    #[cfg(unix)]
    fn inheritable(&self) -> io::Result<Option<Inheritable>> {
        // A plain `dup` has no close-on-exec flag: the started program shares the open file, and
        // the kernel keeps its lock until the last of them is gone.
        Ok(Some(Inheritable { _file: rustix::io::dup(&self.0)? }))
    }
}

/// Files in memory: nothing outlives the last handle of the disk.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Arc<Mutex<MemoryTree>>);

#[derive(Debug, Default)]
struct MemoryTree {
    files: BTreeMap<PathBuf, Arc<MemoryInode>>,
    directories: BTreeMap<PathBuf, ()>,
}

#[derive(Debug, Default)]
struct MemoryInode {
    bytes: Mutex<Vec<u8>>,
    /// Open files that hold a lock: how many share it, or one that excludes.
    locks: Mutex<MemoryLocks>,
}

#[derive(Debug, Default)]
struct MemoryLocks {
    shared: u32,
    exclusive: bool,
}

#[derive(Debug)]
struct MemoryFile {
    inode: Arc<MemoryInode>,
    held: Mutex<Option<LockKind>>,
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn DiskFile>> {
        let mut tree = self.0.lock();
        let inode = match (tree.files.get(path), mode) {
            (Some(_), Mode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (None, Mode::Existing) => return Err(io::ErrorKind::NotFound.into()),
            (Some(inode), _) => Arc::clone(inode),
            (None, _) => {
                let inode = Arc::new(MemoryInode::default());
                tree.files.insert(path.to_owned(), Arc::clone(&inode));
                inode
            }
        };
        Ok(Arc::new(MemoryFile { inode, held: Mutex::new(None) }))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut tree = self.0.lock();
        let inode = tree.files.get(from).cloned().ok_or(io::ErrorKind::NotFound)?;
        if tree.files.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        tree.files.insert(to.to_owned(), inode);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut tree = self.0.lock();
        let inode = tree.files.get(from).cloned().ok_or(io::ErrorKind::NotFound)?;
        // Two names of one file: POSIX leaves both.
        if tree.files.get(to).is_none_or(|other| !Arc::ptr_eq(other, &inode)) {
            tree.files.remove(from);
            tree.files.insert(to.to_owned(), inode);
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.lock().files.remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.lock().directories.insert(path.to_owned(), ());
        Ok(())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let tree = self.0.lock();
        Ok(tree.files.keys().filter(|file| file.parent() == Some(path)).cloned().collect())
    }

    fn node(&self, path: &Path) -> io::Result<Option<Node>> {
        let tree = self.0.lock();
        if let Some(inode) = tree.files.get(path) {
            return Ok(Some(Node::File(inode.bytes.lock().len() as u64)));
        }
        Ok(tree.directories.contains_key(path).then_some(Node::Directory))
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        let plain = path.components().all(|part| !matches!(part, Component::ParentDir));
        if plain { Ok(Path::new("/").join(path)) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    fn file_system(&self, _path: &Path) -> io::Result<FileSystem> {
        Ok(FileSystem::Local)
    }
}

impl MemoryFile {
    fn range(len: usize, offset: u64, count: usize) -> io::Result<std::ops::Range<usize>> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(count).filter(|end| *end <= len);
        end.map(|end| start..end).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl DiskFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.inode.bytes.lock().len() as u64)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let bytes = self.inode.bytes.lock();
        let range = MemoryFile::range(bytes.len(), offset, out.len())?;
        out.copy_from_slice(bytes.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let mut bytes = self.inode.bytes.lock();
        let end = MemoryFile::range(usize::MAX, offset, data.len())?.end;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        let range = MemoryFile::range(bytes.len(), offset, data.len())?;
        bytes.get_mut(range).ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(data);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::StorageFull)?;
        self.inode.bytes.lock().resize(len, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn try_lock(&self, kind: LockKind) -> io::Result<bool> {
        self.unlock()?;
        let mut locks = self.inode.locks.lock();
        let free = match kind {
            LockKind::Exclusive => locks.shared == 0 && !locks.exclusive,
            LockKind::Shared => !locks.exclusive,
        };
        if free {
            match kind {
                LockKind::Exclusive => locks.exclusive = true,
                LockKind::Shared => locks.shared += 1,
            }
            *self.held.lock() = Some(kind);
        }
        Ok(free)
    }

    fn unlock(&self) -> io::Result<()> {
        if let Some(kind) = self.held.lock().take() {
            let mut locks = self.inode.locks.lock();
            match kind {
                LockKind::Exclusive => locks.exclusive = false,
                LockKind::Shared => locks.shared = locks.shared.saturating_sub(1),
            }
        }
        Ok(())
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        // Unlocking memory cannot fail.
        let _ = self.unlock();
    }
}
