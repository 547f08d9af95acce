//! Opening and creating a ledger (P12).
//!
//! In this order, all under the file lock: the anchor is read; the header is looked at; a file that was
//! not closed in order under the running boot, or whose other slot is newer, has every page written back
//! and synced, so that nothing a failed sync left in the cache only can be built upon; redb opens it, at
//! the newer of its two commits that is whole; the meta row is held against the anchor; the
//! whole log is read, its count and digest compared; the anchor is written; what holders left or
//! lost is recorded; the files of dead sessions are removed.

use std::path::Path;
use std::time::Duration;

use crate::config::Options;
use crate::engine::anchor::{ADOPT, AnchorFile, Paths};
use crate::engine::backend::Header;
use crate::engine::clock::Times;
use crate::engine::codec::{Anchor, AnchorState, Meta};
use crate::engine::core::{Core, Parts};
use crate::engine::event::{AdoptedEvent, DoubtEvent, Event, Reason};
use crate::engine::files::{Disk, DiskFile, FileSystem, HeldLock, LockKind, Mode, Node};
use crate::engine::index::{Index, KeyDigest};
use crate::engine::scan::scan;
use crate::engine::session::{self, News, Session};
use crate::engine::side::Side;
use crate::engine::state::{Holder, Stored};
use crate::engine::store::Store;
use crate::engine::sync::Arc;
use crate::engine::turn::Turn;
use crate::engine::writer::{self, Pen, SessionRow};
use crate::error::{Error, ErrorKind, Result};

/// What the caller wants of the path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How<'a> {
    Open,
    Create,
    OpenOrCreate,
    /// Take over a file that its anchor does not vouch for.
    Adopt {
        by: &'a str,
        why: &'a str,
    },
}

/// redb verifies every page before the ledger trusts the file, closed in order or not: a damaged
/// allocator is not seen by the scan, and 200 acknowledged claims later the file is unreadable (T7).
/// `docs/ARCHITECTURE.md` has what it costs.
const CHECK_INTEGRITY: bool = true;

/// No key takes fewer bytes of the file: its row has key and fingerprint, and more.
const BYTES_OF_A_KEY: u64 = 128;

/// Opens, creates or adopts a ledger.
pub(crate) fn open(path: &Path, options: Options, how: How<'_>) -> Result<Arc<Core>> {
    options.check()?;
    let disk = Arc::clone(&options.disk);
    let paths = Paths::new(&*disk, path)?;
    check_place(&*disk, &paths, &options, how)?;
    let lock = HeldLock::new(lock(&*disk, &paths, options.lock_wait)?);
    let anchors = AnchorFile::new(Arc::clone(&disk), paths.clone());
    let adopting = matches!(how, How::Adopt { .. });
    let anchor = match anchors.read() {
        Err(error) if adopting && error.kind() == ErrorKind::Damaged => None,
        other => other?,
    };
    let boot_id = options.clock.read().boot_id;
    let there = is_there(&*disk, &paths)?;
    let anchor = match (how, anchor, there) {
        // Interrupted after the file had its name: nothing was ever granted in it, and it is completed.
        (How::Create, Some(anchor), true) if anchor.state == AnchorState::Creating => Some(anchor),
        (How::Create, Some(_), true) => return Err(exists(&paths)),
        (How::Create, None, true) => return Err(exists(&paths)),
        (How::Create | How::OpenOrCreate, anchor, false) => create(&options, &paths, &anchors, anchor, boot_id)?,
        (How::Open | How::Adopt { .. }, anchor, false) => return Err(missing(&paths, anchor.as_ref())),
        (How::Open | How::OpenOrCreate | How::Adopt { .. }, anchor, true) => anchor,
    };
    if anchor.as_ref().is_some_and(|anchor| anchor.state == AnchorState::Creating) {
        tidy(&*disk, &paths)?;
    }
    let opening = Opening { disk, paths, anchors, options, boot_id };
    match opening.open(Arc::clone(&lock), anchor, how, None) {
        Err(error) if error.is_full() && !adopting => opening.open(lock, anchor, how, Some(error)),
        opened => opened,
    }
}

fn check_place(disk: &dyn Disk, paths: &Paths, options: &Options, how: How<'_>) -> Result<()> {
    let system = disk.file_system(&paths.folder);
    let refuse = |what: String, next: &str| Err(Error::new(ErrorKind::Unsupported, what).next(next));
    match system.map_err(|error| Error::io("looking at the folder", &paths.folder, error))? {
        FileSystem::Network(name) => {
            return refuse(
                format!("{} is on {name}, where locks and syncs mean less", paths.file.display()),
                "use a local disk",
            );
        }
        FileSystem::Fuse if !options.allow_fuse => {
            let what = format!("{} is on a FUSE file system", paths.file.display());
            return refuse(what, "use a local disk, or allow FUSE where you know what its sync means");
        }
        FileSystem::Local | FileSystem::Unknown | FileSystem::Fuse => {}
    }
    // Nothing is written beside a path that has no file, not even a lock file.
    let node = |path: &Path| disk.node(path).map_err(|error| Error::io("looking at", path, error));
    let creating = matches!(how, How::Create | How::OpenOrCreate);
    match node(&paths.file)? {
        None if creating => Ok(()),
        None if node(&paths.anchor)?.is_none() => Err(missing(paths, None)),
        Some(Node::Directory | Node::Other) => {
            Err(Error::new(ErrorKind::NotALedger, format!("{} is not a file", paths.file.display()))
                .next("give the path of a file"))
        }
        Some(Node::File(_)) if matches!(how, How::Create) && node(&paths.anchor)?.is_none() => Err(exists(paths)),
        None | Some(Node::File(_)) => Ok(()),
    }
}

fn is_there(disk: &dyn Disk, paths: &Paths) -> Result<bool> {
    let node = disk.node(&paths.file).map_err(|error| Error::io("looking at", &paths.file, error))?;
    Ok(node.is_some())
}

fn exists(paths: &Paths) -> Error {
    Error::new(ErrorKind::Exists, format!("{} is there already", paths.file.display()))
        .next("open it, or choose another path")
}

fn missing(paths: &Paths, anchor: Option<&Anchor>) -> Error {
    let file = paths.file.display();
    match anchor {
        None => Error::new(ErrorKind::Missing, format!("there is no ledger at {file}"))
            .next("check the path: a new ledger knows of no claim; only where there never was one, create it (`onceledger init`)"),
        Some(anchor) if anchor.state == AnchorState::Creating => {
            Error::new(ErrorKind::Missing, format!("the creation of {file} was interrupted")).next("create it again (`onceledger init`)")
        }
        Some(_) => Error::new(
            ErrorKind::RolledBack,
            format!("{file} is gone, but its anchor {} says it was in use", paths.anchor.display()),
        )
        .next("restore the file; only where every claim in it may be forgotten, remove the anchor and create a new ledger"),
    }
}

/// Takes the lock that one process has for as long as it has the ledger open.
fn lock(disk: &dyn Disk, paths: &Paths, wait: Duration) -> Result<Arc<dyn DiskFile>> {
    const PAUSE: Duration = Duration::from_millis(5);
    let path = &paths.lock;
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::Unsupported => {
            Error::new(ErrorKind::Unsupported, format!("the file system of {} has no file locks", path.display()))
                .next("use a local disk")
        }
        _ => Error::io("locking", path, error),
    };
    let file = disk.open(path, Mode::OpenOrCreate).map_err(failed)?;
    let mut left = wait;
    while !file.try_lock(LockKind::Exclusive).map_err(failed)? {
        if left.is_zero() {
            return Err(locked(&*file, paths));
        }
        let pause = left.min(PAUSE);
        std::thread::sleep(pause);
        left = left.saturating_sub(pause);
    }
    let pid = format!("{}\n", std::process::id());
    match file.set_len(0).and_then(|()| file.write_at(0, pid.as_bytes())) {
        // The lock is what counts; the name of its holder is for people.
        Err(error) if is_full(&error) => Ok(file),
        other => other.map(|()| file).map_err(failed),
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

fn locked(file: &dyn DiskFile, paths: &Paths) -> Error {
    const PID_BYTES_MAX: u64 = 16;
    let len = file.len().unwrap_or(0).min(PID_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let text = file.read_at(0, &mut bytes).ok().and_then(|()| String::from_utf8(bytes).ok()).unwrap_or_default();
    let holder = match text.trim() {
        "" => "another process".to_owned(),
        pid if pid == std::process::id().to_string() => format!("this process ({pid}), through another handle"),
        pid => format!("process {pid}"),
    };
    Error::new(ErrorKind::Locked, format!("{} is held by {holder}", paths.file.display()))
        .next("wait for it to close the ledger, or share one handle inside a process")
}

/// Creates a ledger so that a crash at any point leaves nothing, or something that is completed or
/// started over: anchor first, then the file under another name, then its own name.
fn create(
    options: &Options,
    paths: &Paths,
    anchors: &AnchorFile,
    anchor: Option<Anchor>,
    boot_id: [u8; 16],
) -> Result<Option<Anchor>> {
    if let Some(anchor) = anchor.filter(|anchor| anchor.state != AnchorState::Creating) {
        return Err(missing(paths, Some(&anchor)));
    }
    let disk = &*options.disk;
    let failed = |error| Error::io("creating", &paths.creating, error);
    let stamp = Times::resume(Arc::clone(&options.clock), 0, None).stamp().1;
    let meta = Meta {
        ledger_id: session::random_id(disk)?,
        epoch: 1,
        // From 1: 0 stands for «no sequence».
        next_sequence: 1,
        count: 0,
        digest: 0,
        stamp,
        created_ms: stamp.wall_ms,
    };
    let anchor = writer::anchor_of(&meta, AnchorState::Creating, boot_id);
    anchors.write(&anchor)?;
    if disk.node(&paths.creating).map_err(failed)?.is_some() {
        disk.remove(&paths.creating).map_err(failed)?;
    }
    let file = disk.open(&paths.creating, Mode::CreateNew).map_err(failed)?;
    Store::create(&paths.creating, file, &meta)?.close()?;
    match disk.link(&paths.creating, &paths.file) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Err(exists(paths)),
        other => other.map_err(failed)?,
    }
    disk.remove(&paths.creating).map_err(failed)?;
    if !cfg!(onceledger_canary = "no_directory_sync") {
        disk.sync_dir(&paths.folder).map_err(failed)?;
    }
    Ok(Some(anchor))
}

/// Takes away the first name of a file whose creation was interrupted after it had got its own.
fn tidy(disk: &dyn Disk, paths: &Paths) -> Result<()> {
    let failed = |error| Error::io("completing the creation of", &paths.file, error);
    if disk.node(&paths.creating).map_err(failed)?.is_some() {
        disk.remove(&paths.creating).map_err(failed)?;
        disk.sync_dir(&paths.folder).map_err(failed)?;
    }
    Ok(())
}

/// What is known once the file is there and the lock is held.
struct Opening {
    disk: Arc<dyn Disk>,
    paths: Paths,
    anchors: AnchorFile,
    options: Options,
    boot_id: [u8; 16],
}

impl Opening {
    /// `full`: the disk has no space; what is known is served, and nothing written.
    fn open(
        &self,
        lock: Arc<HeldLock>,
        anchor: Option<Anchor>,
        how: How<'_>,
        full: Option<Error>,
    ) -> Result<Arc<Core>> {
        let adopting = matches!(how, How::Adopt { .. });
        let path = &self.paths.file;
        let file = self.disk.open(path, Mode::Existing).map_err(|error| Error::io("opening", path, error))?;
        let (bytes, mut newer) = self.check_file(&*file, anchor.as_ref(), adopting)?;
        let needed = self.needs_page_pass(anchor.as_ref());
        // Only what is on disk is built upon: a commit whose sync failed may be in the cache alone.
        if needed || newer.is_some() {
            match write_pages_back(path, &*file) {
                // What the cache had before may have been another page than the disk's, and is no more.
                Ok(()) => (_, newer) = self.check_file(&*file, anchor.as_ref(), adopting)?,
                // A hole that is written back takes space. Nothing is built on this opening, and the anchor
                // says that the next has the pass to do.
                Err(error) if full.is_some() && error.is_full() => {}
                // What redb can do without, the newer commit's torn page, may be what cannot be read.
                Err(error) if !needed && !error.is_full() => newer = None,
                Err(error) => return Err(error),
            }
        }
        let cache_bytes = self.options.page_cache_bytes;
        let store = match newer {
            _ if full.is_some() => Some(Store::open_to_read(path, Arc::clone(&file), newer, cache_bytes)?),
            Some(flags) => Store::open_newer(path, Arc::clone(&file), flags, cache_bytes)?,
            None => None,
        };
        let store = match store {
            Some(store) => store,
            None => Store::open(path, file, CHECK_INTEGRITY, cache_bytes)?,
        };
        let store = store.holding(Arc::clone(&lock));
        let meta = store.meta()?;
        if let Some(anchor) = &anchor
            && !adopting
        {
            self.hold_against(&meta, anchor)?;
        }
        let times =
            Times::resume(Arc::clone(&self.options.clock), millis(self.options.clock_gap_max), Some(meta.stamp));
        let index = Index::new(self.options.cache_bytes / 2);
        // Most keys have two rows, a grant and a settle; and a count that is wrong takes no memory.
        index.expect((meta.count / 2).min(bytes / BYTES_OF_A_KEY));
        let mut side = Side::default();
        let mut pen = scan(&store, meta, &index, &mut side, self.options.threads)?;
        let (now, stamp) = times.stamp();
        if let How::Adopt { .. } = how {
            raise(&mut pen.meta, anchor.as_ref());
        }
        let session = Session::of_process(&self.disk, &self.paths.sessions, meta.ledger_id, self.boot_id)?;
        pen.own = pen.sessions.values().find(|row| row.event.id == session.head.id).map_or(0, |row| row.event.number);
        let boot_id = self.boot_id;
        if !adopting && full.is_none() {
            self.anchors.write(&pen.anchor(AnchorState::Open, boot_id))?;
            pen.anchored_ms = stamp.boot_ms;
        }
        let core = Core::new(Parts {
            options: self.options.clone(),
            paths: self.paths.clone(),
            lock,
            store,
            times,
            index,
            side,
            pen,
            session,
            boot_id,
        });
        let open = Arc::downgrade(&core);
        core.session.listen(Arc::new(move |news| {
            let Some(core) = open.upgrade() else { return };
            match news {
                News::Orphan(key, token) => core.doubt(key, token, Reason::Dropped, String::new()),
                News::Left => core.attend_own(),
            }
        }));
        let mut pen = core.line.pen();
        if let Some(error) = full {
            look_at_sessions(&core, &pen)?;
            drop(pen);
            core.only_read(&error);
            return started(core);
        }
        let mut turn = Turn::alone(&core, &mut pen, now);
        if let How::Adopt { by, why } = how {
            let event = AdoptedEvent { epoch: turn.pen.meta.epoch, by: by.to_owned(), why: why.to_owned() };
            let (_, entry) = turn.write_row(0, 0, Event::Adopted(event))?;
            turn.pen.adoptions.insert(turn.pen.meta.epoch, entry);
        }
        let dead = settle_sessions(&mut turn)?;
        turn.finish(stamp)?;
        if adopting {
            writer::write_anchor(&core, &mut pen, stamp.boot_ms)?;
        }
        drop(pen);
        for path in dead {
            let removed = core.disk.remove(&path);
            removed.map_err(|error| Error::io("removing the file of a dead session", &path, error))?;
        }
        started(core)
    }

    /// Tells a file that is no ledger from one that was damaged, before redb sees it. Gives its length
    /// and, where its other slot has a newer commit, the flags that name that.
    fn check_file(&self, file: &dyn DiskFile, anchor: Option<&Anchor>, adopting: bool) -> Result<(u64, Option<u8>)> {
        let path = self.paths.file.display();
        let failed = |error| Error::io("reading", &self.paths.file, error);
        let bytes = file.len().map_err(failed)?;
        let header = Header::read(file, bytes).map_err(failed)?;
        match (header.is_redb(), anchor) {
            (true, _) if adopting => Ok((bytes, header.newer())),
            (true, Some(_)) if header.is_two_phase() => Ok((bytes, header.newer())),
            (true, Some(_)) => {
                Err(Error::damaged(format!("{path} is damaged: its header has flags that no ledger writes"))
                    .next(ADOPT))
            }
            (true, None) => {
                Err(Error::new(ErrorKind::RolledBack, format!("{path} has no anchor beside it")).next(ADOPT))
            }
            (false, Some(_)) => {
                Err(Error::damaged(format!("{path} was emptied or overwritten: it does not begin as a ledger does"))
                    .next("restore the file from a copy that is not older than its anchor"))
            }
            (false, None) => {
                Err(Error::new(ErrorKind::NotALedger, format!("{path} is not a ledger")).next("check the path"))
            }
        }
    }

    /// Only where this boot's page cache may hold what a failed sync did not put on disk.
    fn needs_page_pass(&self, anchor: Option<&Anchor>) -> bool {
        anchor.is_none_or(|anchor| {
            let same_boot = anchor.boot_id == self.boot_id || self.boot_id == [0; 16] || anchor.boot_id == [0; 16];
            anchor.state != AnchorState::Clean && same_boot
        })
    }

    /// The file must be the anchor's, and at least as new.
    fn hold_against(&self, meta: &Meta, anchor: &Anchor) -> Result<()> {
        let path = self.paths.file.display();
        let refuse = |what: String| Err(Error::new(ErrorKind::RolledBack, what).next(ADOPT));
        if meta.ledger_id != anchor.ledger_id {
            return refuse(format!("{path} is another ledger than the one its anchor names"));
        }
        let position = (meta.epoch, meta.next_sequence);
        if position < (anchor.epoch, anchor.next_sequence) {
            return refuse(format!(
                "{path} is older than its anchor: it ends at sequence {}, the anchor has seen {}",
                meta.next_sequence, anchor.next_sequence
            ));
        }
        if position == (anchor.epoch, anchor.next_sequence)
            && (meta.count, meta.digest) != (anchor.count, anchor.digest)
        {
            return Err(Error::damaged(format!("{path} does not hold the log that its anchor vouches for")).next(ADOPT));
        }
        Ok(())
    }
}

fn started(core: Arc<Core>) -> Result<Arc<Core>> {
    if core.options.threads
        && let Err(error) = core.start()
    {
        // The threads that did start hold the ledger, and its lock.
        let _ = core.close();
        return Err(error);
    }
    Ok(core)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A new epoch, far above every number that either file has used.
fn raise(meta: &mut Meta, anchor: Option<&Anchor>) {
    const FAR: u64 = 1 << 32;
    let seen = anchor.map_or((0, 0), |anchor| (anchor.epoch, anchor.next_sequence));
    meta.epoch = meta.epoch.max(seen.0).saturating_add(1);
    meta.next_sequence = meta.next_sequence.max(seen.1).saturating_add(FAR);
}

/// Reads every page, writes it back and syncs: what only the cache holds is on disk after it.
///
/// A sync tells of earlier writes too: where writes are checkpointed later (ext4 with its data in
/// the journal), the first one may report what the pass has just mended. So a failed sync means the
/// whole pass once more; a second failure is a disk that does not write.
pub(crate) fn write_pages_back(path: &Path, file: &dyn DiskFile) -> Result<()> {
    let failed = |error| Error::io("writing back", path, error);
    rewrite_pages(file).map_err(failed)?;
    if file.sync().is_ok() {
        return Ok(());
    }
    rewrite_pages(file).map_err(failed)?;
    file.sync().map_err(|error| {
        Error::io("writing back every page, for the second time, of", path, error)
            .next("the disk does not keep what is written to it: copy the file elsewhere before anything else")
    })
}

fn rewrite_pages(file: &dyn DiskFile) -> std::io::Result<()> {
    const CHUNK: u64 = 1 << 20;
    let len = file.len()?;
    let mut bytes = vec![0; CHUNK as usize];
    let mut at = 0;
    while at < len {
        let count = (len - at).min(CHUNK);
        let Some(chunk) = bytes.get_mut(..count as usize) else { break };
        file.read_at(at, chunk)?;
        // A hole that reads as zeros is the same on disk; written, it would take space.
        if chunk.iter().any(|byte| *byte != 0) || !file.is_hole(at, count)? {
            file.write_at(at, chunk)?;
        }
        at += count;
    }
    Ok(())
}

/// Records what the holders of open claims left, and who of them is gone. Gives back the files of
/// dead sessions, to be removed once that is on disk.
///
/// Each session is looked at once: one that ends after the look keeps its file, for the next look to
/// find. A second look would remove what the first did not record.
fn settle_sessions(turn: &mut Turn<'_>) -> Result<Vec<std::path::PathBuf>> {
    let core = turn.core;
    let (disk, folder) = (&*core.disk, &core.paths.sessions);
    let files = session::list(disk, folder)?;
    forget_sessions(turn, &files);
    let sessions: Vec<(u64, [u8; 16])> =
        turn.pen.sessions.iter().map(|(number, row)| (*number, row.event.id)).collect();
    let mut dead = Vec::new();
    for (number, id) in &sessions {
        let own = *number == turn.pen.own;
        // Before the look: whoever let go by now has left what it had to say, and the look finds it.
        let unliving = if own { unliving(turn) } else { Vec::new() };
        if turn.look_whole(*number)? == Holder::Gone {
            dead.push(*id);
        }
        end_unliving(turn, unliving)?;
    }
    // A file whose session is in no row was never granted anything.
    let known = |id: &[u8; 16]| *id == core.session.head.id || sessions.iter().any(|(_, known)| known == id);
    for (_, id) in files.iter().filter(|(_, id)| !known(id)) {
        if session::look(disk, folder, id, &[0; 16], &core.boot_id)?.holder == Holder::Gone {
            dead.push(*id);
        }
    }
    Ok(files.into_iter().filter(|(_, id)| dead.contains(id)).map(|(path, _)| path).collect())
}

/// Forgets sessions that have neither an open claim nor a file: every open that granted something
/// has left a row, and looking at each of them would make opening slower with every open.
fn forget_sessions(turn: &mut Turn<'_>, files: &[(std::path::PathBuf, [u8; 16])]) {
    let own = turn.pen.own;
    let is_over = |number: u64, row: &SessionRow| {
        number != own && row.open == 0 && files.iter().all(|(_, id)| *id != row.event.id)
    };
    let over: Vec<u64> =
        turn.pen.sessions.iter().filter(|(number, row)| is_over(**number, row)).map(|(number, _)| *number).collect();
    for number in over {
        turn.pen.sessions.remove(&number);
        turn.core.forget_session(number);
        turn.pen.garbage += 1;
    }
}

/// Notes in memory which holders are gone, where nothing can be recorded.
fn look_at_sessions(core: &Core, pen: &Pen) -> Result<()> {
    for (number, row) in &pen.sessions {
        let event = &row.event;
        let sight = session::look(&*core.disk, &core.paths.sessions, &event.id, &event.boot_id, &core.boot_id)?;
        if *number != pen.own {
            core.seen_session(*number, sight.holder);
        }
    }
    for (token, key) in pen.open.iter().filter(|(token, _)| !core.session.is_living(**token)) {
        core.index.update(key, |record| {
            if record.link == pen.own && record.token == *token && record.standing == Stored::InProgress {
                record.standing = Stored::Uncertain(Reason::Dropped);
            }
        });
    }
    Ok(())
}

/// Open claims that no grant or ticket of this very session is left of.
fn unliving(turn: &Turn<'_>) -> Vec<(u64, KeyDigest)> {
    let open = turn.pen.open.iter().map(|(token, key)| (*token, *key));
    let mut open: Vec<_> = open.filter(|(token, _)| !turn.core.session.is_living(*token)).collect();
    open.sort_unstable();
    open
}

/// Claims of this very session whose grant or ticket is gone: nobody can settle them any more.
fn end_unliving(turn: &mut Turn<'_>, open: Vec<(u64, KeyDigest)>) -> Result<()> {
    for (token, key) in open {
        let Some(record) = turn.load(&key)? else { continue };
        let own = record.link == turn.pen.own && record.token == token && record.standing == Stored::InProgress;
        if own {
            turn.record_doubt(&key, &record, DoubtEvent { key, reason: Reason::Dropped, why: String::new() })?;
        }
    }
    Ok(())
}
