//! What all modules use: the places a ledger can live in, and short words for what one does there.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceledger::testkit::{
    Disk, DiskFile, FakeClock, FaultDisk, FileSystem, LockKind, MemoryDisk, Mode, Node, RealDisk,
};
use onceledger::{
    Claim, Claimed, Doubt, DoubtReason, FencingToken, Grant, Key, Ledger, Options, Past, PastWhat, Scope, Stored, View,
};
use parking_lot::{Condvar, Mutex};

pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3600);
pub const DAY: Duration = Duration::from_secs(24 * 3600);

/// Where a ledger lives: a disk, a path on it, and a clock.
pub struct Place {
    pub name: &'static str,
    pub disk: Arc<dyn Disk>,
    pub path: PathBuf,
    pub clock: FakeClock,
    /// The disk as a fault disk, where it is one.
    pub faults: Option<FaultDisk>,
    again: Box<dyn Fn() -> Arc<dyn Disk> + Send + Sync>,
    _folder: Option<tempfile::TempDir>,
}

impl Place {
    pub fn memory() -> Self {
        let disk = MemoryDisk::default();
        Place::on("memory", move || Arc::new(disk.clone()), "/ledger".into())
    }

    pub fn file() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.redb");
        Place { _folder: Some(folder), ..Place::on("file", || Arc::new(RealDisk), path) }
    }

    pub fn fault() -> Self {
        Place::of(FaultDisk::new(1))
    }

    /// On what a crash left of a fault disk.
    pub fn of(disk: FaultDisk) -> Self {
        let faults = Some(disk.clone());
        Place { faults, ..Place::on("fault disk", move || Arc::new(disk.clone()), "/ledger".into()) }
    }

    fn on(name: &'static str, again: impl Fn() -> Arc<dyn Disk> + Send + Sync + 'static, path: PathBuf) -> Self {
        let clock = FakeClock::new();
        Place { name, disk: again(), path, clock, faults: None, again: Box::new(again), _folder: None }
    }

    pub fn faults(&self) -> &FaultDisk {
        self.faults.as_ref().unwrap()
    }

    /// Options of this process.
    pub fn options(&self) -> Options {
        Options::new().threads(false).clock(Arc::new(self.clock.clone())).disk(Arc::clone(&self.disk))
    }

    /// Options of another process on the same files: sessions tell processes apart by the disk's handle.
    pub fn stranger(&self) -> Options {
        self.options().disk(self.stranger_disk())
    }

    /// The disk as another process has it.
    pub fn stranger_disk(&self) -> Arc<dyn Disk> {
        (self.again)()
    }

    pub fn create(&self) -> Ledger {
        self.options().create(&self.path).unwrap()
    }

    pub fn open(&self) -> Ledger {
        self.options().open(&self.path).unwrap()
    }

    /// Opens as another process.
    pub fn open_elsewhere(&self) -> Ledger {
        self.stranger().open(&self.path).unwrap()
    }

    /// The path of a file beside the ledger.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(suffix);
        name.into()
    }
}

/// Runs a test on every backend that it has meaning on.
#[track_caller]
pub fn on_every_backend(test: impl Fn(&Place)) {
    for place in [Place::memory(), Place::file(), Place::fault()] {
        println!("on {}", place.name);
        test(&place);
    }
}

#[track_caller]
pub fn key(part: impl AsRef<str>) -> Key {
    Key::action(&Scope::new("test").unwrap(), "refund", [part.as_ref()]).unwrap()
}

#[track_caller]
pub fn claim(part: impl AsRef<str>) -> Claim {
    Claim::unguarded(key(part))
}

/// Claims a key that must be granted.
#[track_caller]
pub fn grant(ledger: &Ledger, claim: &Claim) -> Grant {
    match ledger.claim(claim).unwrap() {
        Claimed::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

/// What a claim that must not be granted is told: a word and the token where there is one.
#[track_caller]
pub fn refused(ledger: &Ledger, claim: &Claim) -> &'static str {
    word(&ledger.claim(claim).unwrap())
}

pub fn word(claimed: &Claimed) -> &'static str {
    match claimed {
        Claimed::Granted(_) => "granted",
        Claimed::AlreadyDone(_) => "done",
        Claimed::Failed(_) => "failed",
        Claimed::InProgress(_) => "in_progress",
        Claimed::Uncertain(_) => "uncertain",
        Claimed::Mismatch(_) => "mismatch",
        _ => "?",
    }
}

/// The name of what stands under a key.
#[track_caller]
pub fn standing(ledger: &Ledger, part: &str) -> &'static str {
    ledger.check(&key(part)).unwrap().standing().name()
}

#[track_caller]
pub fn doubt(ledger: &Ledger, part: &str) -> Doubt {
    match ledger.check(&key(part)).unwrap() {
        View::Uncertain(doubt) => doubt,
        other => panic!("not uncertain: {other:?}"),
    }
}

#[track_caller]
pub fn reason(ledger: &Ledger, part: &str) -> DoubtReason {
    doubt(ledger, part).reason
}

#[track_caller]
pub fn body(stored: &Stored) -> Vec<u8> {
    stored.outcome().expect("the body is kept").body().to_vec()
}

/// The history as words.
#[track_caller]
pub fn past(ledger: &Ledger, part: &str) -> Vec<(u64, PastWhat)> {
    let line = |past: Past| (past.token.get(), past.what);
    ledger.history(&key(part)).unwrap().into_iter().map(line).collect()
}

pub fn not_done(ledger: &Ledger, part: &str, token: FencingToken) -> onceledger::Resolved {
    ledger.resolve_token(&key(part), token, onceledger::Verdict::NotDone, "ops/ana", "looked", false).unwrap()
}

/// What a [`HookDisk`] does before each of its operations, told the operation's name.
pub type Hook = dyn Fn(&'static str) + Send + Sync;

/// A disk that does something before each of its operations.
#[derive(Clone)]
pub struct HookDisk {
    disk: Arc<dyn Disk>,
    hook: Arc<Hook>,
}

impl HookDisk {
    pub fn new(disk: Arc<dyn Disk>, hook: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        HookDisk { disk, hook: Arc::new(hook) }
    }
}

impl fmt::Debug for HookDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookDisk")
    }
}

#[derive(Debug)]
struct HookFile(Arc<dyn DiskFile>, HookDisk);

impl Disk for HookDisk {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn DiskFile>> {
        (self.hook)("open");
        Ok(Arc::new(HookFile(self.disk.open(path, mode)?, self.clone())))
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.hook)("link");
        self.disk.link(from, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.hook)("rename");
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        (self.hook)("remove");
        self.disk.remove(path)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        (self.hook)("create_dir");
        self.disk.create_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        (self.hook)("sync_dir");
        self.disk.sync_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        (self.hook)("list");
        self.disk.list(path)
    }
    fn node(&self, path: &Path) -> io::Result<Option<Node>> {
        (self.hook)("node");
        self.disk.node(path)
    }
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        (self.hook)("canonical");
        self.disk.canonical(path)
    }
    fn file_system(&self, path: &Path) -> io::Result<FileSystem> {
        (self.hook)("file_system");
        self.disk.file_system(path)
    }
}

impl HookFile {
    fn before(&self, operation: &'static str) -> &dyn DiskFile {
        (self.1.hook)(operation);
        &*self.0
    }
}

impl DiskFile for HookFile {
    fn len(&self) -> io::Result<u64> {
        self.before("len").len()
    }
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.before("read_at").read_at(offset, out)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.before("write_at").write_at(offset, data)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.before("set_len").set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.before("sync").sync()
    }
    fn try_lock(&self, kind: LockKind) -> io::Result<bool> {
        self.before("try_lock").try_lock(kind)
    }
    fn unlock(&self) -> io::Result<()> {
        self.before("unlock").unlock()
    }
}

/// A disk in memory whose syncs wait while its gate is shut, so that requests gather in one batch.
#[derive(Clone)]
pub struct GateDisk {
    pub disk: HookDisk,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    shut: Mutex<bool>,
    bell: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        let mut shut = self.shut.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while *shut {
            self.bell.wait(&mut shut);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl GateDisk {
    pub fn new() -> Self {
        let gate = Arc::new(Gate::default());
        let passed = Arc::clone(&gate);
        let hook = move |operation| {
            if operation == "sync" {
                passed.pass();
            }
        };
        GateDisk { disk: HookDisk::new(Arc::new(MemoryDisk::default()), hook), gate }
    }

    pub fn shut(&self) {
        *self.gate.shut.lock() = true;
    }

    pub fn open_up(&self) {
        *self.gate.shut.lock() = false;
        self.gate.bell.notify_all();
    }

    /// Waits until somebody stands at the gate.
    pub fn await_somebody(&self) {
        while self.gate.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    }
}

/// A call on a thread of its own.
pub type Call<T> = Box<dyn FnOnce(&Ledger) -> T + Send>;

/// A ledger behind a gate, without threads, and what is needed to put several requests into one batch.
pub struct Gated {
    pub disk: GateDisk,
    pub clock: FakeClock,
    pub ledger: Ledger,
}

impl Gated {
    pub fn new() -> Self {
        let (disk, clock) = (GateDisk::new(), FakeClock::new());
        let ledger = Gated::options(&disk, &clock).create("/ledger").unwrap();
        Gated { disk, clock, ledger }
    }

    fn options(disk: &GateDisk, clock: &FakeClock) -> Options {
        Options::new().threads(false).clock(Arc::new(clock.clone())).disk(Arc::new(disk.disk.clone()))
    }

    pub fn reopen(&self) -> onceledger::Result<Ledger> {
        Gated::options(&self.disk, &self.clock).open("/ledger")
    }

    /// Runs `calls`, each on a thread of its own, so that all but the first, which only holds the writer
    /// up, are decided in one batch and in their order.
    pub fn one_batch<T: Send>(&self, before: impl FnOnce(), calls: Vec<Call<T>>) -> Vec<T> {
        // Long enough for a thread to reach the line; where it is not, the batch is split and the
        // test only loses its edge.
        const REACH: Duration = Duration::from_millis(60);
        self.disk.shut();
        let ledger = &self.ledger;
        std::thread::scope(|scope| {
            let first = scope.spawn(move || drop(grant(ledger, &claim("that holds the writer up"))));
            self.disk.await_somebody();
            before();
            let mut threads = Vec::new();
            for call in calls {
                threads.push(scope.spawn(move || call(ledger)));
                std::thread::sleep(REACH);
            }
            self.disk.open_up();
            first.join().unwrap();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }
}
