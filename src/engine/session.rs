//! Sessions: the identity of one process at work on a ledger.
//!
//! A session is alive while an OS lock on its file is held; the kernel drops the lock with the
//! process, and with every program that inherited it. It spans several opens of the ledger: it
//! ends when the last handle and the last grant or ticket are gone. The same file carries outcomes
//! that the holder could not record because the ledger was busy.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::engine::codec::{self, LeftOutcome, SessionHead};
use crate::engine::files::{Disk, DiskFile, Inheritable, LockKind, Mode, Node};
use crate::engine::state::Holder;
use crate::error::{Error, ErrorKind, Result};

/// This process at work on one ledger.
#[derive(Debug)]
pub(crate) struct Session {
    pub head: SessionHead,
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    parent: PathBuf,
    path: PathBuf,
    file: Mutex<OpenFile>,
    /// Tokens with a living grant or ticket: how many, and whether one has said how the claim ended.
    living: Mutex<HashMap<u64, Living>>,
    listener: Listener,
}

#[derive(Clone, Copy, Debug, Default)]
struct Living {
    count: u32,
    told: bool,
}

/// Who hears what becomes of this session's claims: the ledger that it has open now.
#[derive(Default)]
struct Listener(Mutex<Option<Arc<Hears>>>);

/// What a session tells the ledger that it has open.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News<'a> {
    /// Nobody is left to settle this claim.
    Orphan(&'a [u8; 32], u64),
    /// An outcome is in the session's file.
    Left,
}

pub(crate) type Hears = dyn Fn(News<'_>) + Send + Sync;

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener(..)")
    }
}

#[derive(Debug, Default)]
struct OpenFile {
    file: Option<Arc<dyn DiskFile>>,
    /// Where the next record goes.
    end: u64,
    /// How many outcomes were left, and how many of them a look of this process has taken.
    left: usize,
    taken: usize,
}

/// The sessions of this process that are still alive, so that a later open of the same ledger goes
/// on under the same one.
static LIVING: Mutex<Vec<Weak<Session>>> = Mutex::new(Vec::new());

impl Session {
    /// The living session of this process on this ledger, or a new one without a file yet.
    pub fn of_process(
        disk: &Arc<dyn Disk>,
        folder: &Path,
        ledger_id: [u8; 16],
        boot_id: [u8; 16],
    ) -> Result<Arc<Self>> {
        let mut living = LIVING.lock();
        living.retain(|session| session.strong_count() > 0);
        let pid = std::process::id();
        let same = |session: &Arc<Session>| {
            session.folder == folder
                && session.head.ledger_id == ledger_id
                && session.head.pid == pid
                && Arc::ptr_eq(&session.disk, disk)
        };
        if let Some(session) = living.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(session);
        }
        let id = random_id(&**disk)?;
        let session = Arc::new(Session {
            head: SessionHead { ledger_id, id, boot_id, pid },
            disk: Arc::clone(disk),
            folder: folder.to_owned(),
            parent: folder.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned),
            path: file_of(folder, &id),
            file: Mutex::default(),
            living: Mutex::default(),
            listener: Listener::default(),
        });
        living.push(Arc::downgrade(&session));
        Ok(session)
    }

    /// Creates, locks and syncs the session's file, where that is still to do. Only under the
    /// ledger's file lock, and before the session's first grant.
    pub fn begin(&self) -> Result<()> {
        let mut open = self.file.lock();
        if open.file.is_some() {
            return Ok(());
        }
        let failed = |error| Error::io("creating the session file", &self.path, error);
        self.disk.create_dir(&self.folder).map_err(failed)?;
        // The name is random: what is there already is what an attempt that failed half-way left.
        let file = self.disk.open(&self.path, Mode::OpenOrCreate).map_err(failed)?;
        // A session that begins again may be watched: whoever looks at its file has the lock for a moment.
        const TRIES: u32 = 1000;
        let mut tries = 0;
        while !file.try_lock(LockKind::Exclusive).map_err(failed)? {
            tries += 1;
            if tries == TRIES {
                let what = format!("{} is locked by somebody else", self.path.display());
                return Err(Error::new(ErrorKind::Storage, what));
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let head = codec::frame(0, &self.head)?;
        file.write_at(0, &head).map_err(failed)?;
        file.sync().map_err(failed)?;
        self.disk.sync_dir(&self.folder).map_err(failed)?;
        if !cfg!(onceledger_canary = "no_directory_sync") {
            self.disk.sync_dir(&self.parent).map_err(failed)?;
        }
        *open = OpenFile { file: Some(file), end: head.len() as u64, ..OpenFile::default() };
        Ok(())
    }

    /// Whether the session has its file, and so may have grants in the log.
    pub fn has_begun(&self) -> bool {
        self.file.lock().file.is_some()
    }

    /// Whether this process may use the session: not over a fork.
    pub fn check_process(&self) -> Result<()> {
        if std::process::id() == self.head.pid {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Forked, "this ledger handle was opened by the parent process of a fork")
            .next("open the ledger in the child after the parent has closed it"))
    }

    /// Whether this is still the process that made the session.
    pub fn is_own_process(&self) -> bool {
        std::process::id() == self.head.pid
    }

    /// Notes one more living grant or ticket of a token.
    pub fn hold(&self, token: u64) {
        self.living.lock().entry(token).or_default().count += 1;
    }

    /// Notes that a grant or ticket of a token is gone. Whether one of them has said how the claim ended.
    pub fn let_go(&self, token: u64) -> bool {
        let mut living = self.living.lock();
        let Some(held) = living.get_mut(&token) else { return false };
        held.count -= 1;
        let told = held.told;
        if held.count == 0 {
            living.remove(&token);
        }
        told
    }

    /// Notes whether a living grant or ticket of a token has said how the claim ended.
    pub fn tell(&self, token: u64, told: bool) {
        if let Some(held) = self.living.lock().get_mut(&token) {
            held.told = told;
        }
    }

    /// From now on this hears of this session's claims, in place of whoever did before.
    pub fn listen(&self, hears: Arc<Hears>) {
        *self.listener.0.lock() = Some(hears);
    }

    /// Tells that a claim may be left in progress with neither grant nor ticket, where it is.
    pub fn orphan(&self, key: &[u8; 32], token: u64) {
        if self.is_living(token) {
            return;
        }
        self.say(News::Orphan(key, token));
    }

    fn say(&self, news: News<'_>) {
        let hears = self.listener.0.lock().clone();
        if let Some(hears) = hears {
            hears(news);
        }
    }

    /// Whether a grant or ticket of this token lives.
    pub fn is_living(&self, token: u64) -> bool {
        self.living.lock().contains_key(&token)
    }

    /// Writes and syncs an outcome into the session's file, for whoever next looks at the claim.
    pub fn leave(&self, left: &LeftOutcome) -> Result<()> {
        let mut open = self.file.lock();
        let Some(file) = open.file.clone() else {
            return Err(Error::new(ErrorKind::Closed, "this session has ended: none of its claims is open")
                .next("settle by the ticket: that says what stands now"));
        };
        let failed = |error| Error::io("leaving an outcome in", &self.path, error);
        let frame = codec::frame(open.end, left)?;
        if file.len().map_err(failed)? > open.end {
            // Left by an attempt that failed: its end must not be read behind this one.
            file.set_len(open.end).map_err(failed)?;
        }
        file.write_at(open.end, &frame).map_err(failed)?;
        file.sync().map_err(failed)?;
        open.end += frame.len() as u64;
        open.left += 1;
        drop(open);
        self.say(News::Left);
        Ok(())
    }

    /// Notes that a look of this process has taken the first `count` outcomes of the session's file.
    pub fn took(&self, count: usize) {
        let mut open = self.file.lock();
        open.taken = open.taken.max(count);
    }

    /// A handle that programs started while it lives inherit, the session's lock with it.
    pub fn inheritable(&self) -> Result<Option<Inheritable>> {
        match &self.file.lock().file {
            Some(file) => {
                file.inheritable().map_err(|error| Error::io("sharing the session lock of", &self.path, error))
            }
            None => Ok(None),
        }
    }

    /// Removes the session's file. Only under the ledger's file lock, with no claim open under it.
    pub fn end(&self) -> Result<()> {
        let mut open = self.file.lock();
        // What nobody has taken stays, for the next look to find.
        if open.file.is_none() || open.left > open.taken {
            return Ok(());
        }
        // Removed while still locked: nobody ever sees it free, and so dead.
        self.disk.remove(&self.path).map_err(|error| Error::io("removing the session file", &self.path, error))?;
        *open = OpenFile::default();
        Ok(())
    }
}

/// What a look at a foreign session found.
#[derive(Debug)]
pub(crate) struct Sight {
    pub holder: Holder,
    /// Outcomes the holder left, oldest first.
    pub left: Vec<LeftOutcome>,
}

/// The file of a session.
pub(crate) fn file_of(folder: &Path, id: &[u8; 16]) -> PathBuf {
    folder.join(crate::encoding::hex(id))
}

/// Looks whether a foreign session lives, and what it left. Takes its lock shared and without
/// waiting; gives it back at once.
pub(crate) fn look(
    disk: &dyn Disk,
    folder: &Path,
    id: &[u8; 16],
    boot_id: &[u8; 16],
    running: &[u8; 16],
) -> Result<Sight> {
    let path = file_of(folder, id);
    let failed = |error| Error::io("looking at the session file", &path, error);
    // Another boot ends every process of this one; unknown boots say nothing.
    let other_boot = *running != [0; 16] && *boot_id != [0; 16] && boot_id != running;
    // A missing file alone proves nothing: somebody may have tidied up.
    let missing = Sight { holder: if other_boot { Holder::Gone } else { Holder::Unknown }, left: Vec::new() };
    if disk.node(&path).map_err(failed)?.is_none() {
        return Ok(missing);
    }
    let file = match disk.open(&path, Mode::Existing) {
        // It ended in order just now.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(missing),
        file => file.map_err(failed)?,
    };
    let free = file.try_lock(LockKind::Shared).map_err(failed)?;
    // Read after the lock was tried: what a dead holder left is then all there.
    let left = read_left(&*file).map_err(failed)?;
    if free {
        file.unlock().map_err(failed)?;
    }
    // No lock outlives its boot: whoever holds one is there, whatever the boot ids say. A container may
    // have an id of its own on its host's files.
    let holder = if free { Holder::Gone } else { Holder::Alive };
    Ok(Sight { holder, left })
}

/// Whether a holder's session is worth opening the ledger for: it is over, or it left an outcome of
/// this grant. Needs no lock on the ledger.
pub(crate) fn has_news(sight: &Sight, key: &[u8; 32], token: u64) -> bool {
    match sight.holder {
        // A missing file is one that was tidied up under the ledger's lock.
        Holder::Gone | Holder::Unknown => true,
        Holder::Alive => sight.left.iter().any(|left| left.token == token && left.key == *key),
    }
}

fn read_left(file: &dyn DiskFile) -> std::io::Result<Vec<LeftOutcome>> {
    let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or_default()];
    file.read_at(0, &mut bytes)?;
    let mut left = Vec::new();
    let Some((_, mut place)) = codec::unframe::<SessionHead>(&bytes, 0) else { return Ok(left) };
    while let Some((outcome, next)) = codec::unframe::<LeftOutcome>(&bytes, place) {
        left.push(outcome);
        place = next;
    }
    Ok(left)
}

/// The ids of all session files, for the removal of those whose session is over.
pub(crate) fn list(disk: &dyn Disk, folder: &Path) -> Result<Vec<(PathBuf, [u8; 16])>> {
    let failed = |error| Error::io("listing the sessions in", folder, error);
    if disk.node(folder).map_err(failed)? != Some(Node::Directory) {
        return Ok(Vec::new());
    }
    let paths = disk.list(folder).map_err(failed)?;
    let id = |path: &PathBuf| crate::encoding::from_hex(path.file_name()?.to_str()?);
    Ok(paths.into_iter().filter_map(|path| id(&path).map(|id| (path, id))).collect())
}

/// A random name that nobody has.
pub(crate) fn random_id(disk: &dyn Disk) -> Result<[u8; 16]> {
    disk.random_id().map_err(|error| Error::new(ErrorKind::Storage, format!("no random numbers: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::files::MemoryDisk;

    /// A forked child has its parent's handles and another process id: every call of it is refused, in words.
    #[test]
    fn a_session_of_another_process_is_refused() {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
        let folder = Path::new("/forked.sessions");
        let session = Session::of_process(&disk, folder, [1; 16], [2; 16]).unwrap();
        session.check_process().unwrap();
        assert!(session.is_own_process());
        let again = Session::of_process(&disk, folder, [1; 16], [2; 16]).unwrap();
        assert!(Arc::ptr_eq(&session, &again), "one session for one process");
        let mut session = Arc::into_inner({
            drop(again);
            session
        })
        .unwrap();
        session.head.pid += 1;
        let error = session.check_process().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forked);
        assert!(error.advice().is_some() && !session.is_own_process());
        // A child that opens the ledger itself gets a session of its own.
        LIVING.lock().push(Arc::downgrade(&Arc::new(session)));
        let own = Session::of_process(&disk, folder, [1; 16], [2; 16]).unwrap();
        own.check_process().unwrap();
    }
}
