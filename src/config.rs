//! The options of a ledger. Each has a default that is stated here; none changes a promise.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::Ledger;
use crate::claim::Keep;
use crate::engine::clock::{Clock, SystemClock};
use crate::engine::files::{Disk, MemoryDisk, RealDisk};
use crate::engine::recover::How;
use crate::error::{Error, Result};

/// How a ledger is opened, and the defaults of its claims.
///
/// ```
/// use std::time::Duration;
/// use onceledger::Options;
///
/// let ledger = Options::new().remember(Duration::from_secs(3600)).keep(Duration::from_secs(60)).in_memory()?;
/// # ledger.close()?;
/// # Ok::<(), onceledger::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) keep: Keep,
    pub(crate) remember: Keep,
    pub(crate) wait: Duration,
    pub(crate) settle_delay: Duration,
    pub(crate) approval: Duration,
    pub(crate) outcome_bytes_max: usize,
    pub(crate) cache_bytes: usize,
    pub(crate) page_cache_bytes: usize,
    pub(crate) clock_gap_max: Duration,
    pub(crate) lock_wait: Duration,
    pub(crate) threads: bool,
    pub(crate) allow_fuse: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) disk: Arc<dyn Disk>,
}

/// The one real disk of the process: sessions tell ledgers apart by it.
fn real_disk() -> Arc<dyn Disk> {
    static DISK: std::sync::OnceLock<Arc<dyn Disk>> = std::sync::OnceLock::new();
    Arc::clone(DISK.get_or_init(|| Arc::new(RealDisk)))
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Default for Options {
    fn default() -> Self {
        Options {
            keep: Keep::For(7 * DAY),
            remember: Keep::For(90 * DAY),
            wait: Duration::from_secs(30),
            settle_delay: Duration::from_secs(60),
            approval: DAY,
            outcome_bytes_max: 1 << 20,
            cache_bytes: 64 << 20,
            page_cache_bytes: crate::engine::store::CACHE_BYTES,
            clock_gap_max: 30 * DAY,
            lock_wait: Duration::ZERO,
            threads: true,
            allow_fuse: false,
            clock: Arc::new(SystemClock::new()),
            disk: real_disk(),
        }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Options::default()
    }

    /// How long an outcome's body is kept after the settle, at most as long as its key is
    /// remembered. Default: 7 days.
    pub fn keep(mut self, keep: impl Into<Keep>) -> Self {
        self.keep = keep.into();
        self
    }

    /// How long a key is remembered after the settle. Default: 90 days.
    pub fn remember(mut self, remember: impl Into<Keep>) -> Self {
        self.remember = remember.into();
        self
    }

    /// How long a claim with [`wait_default`](crate::Claim::wait_default) waits. Default: 30 s.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How long after a holder's end a probe may first look for its effect. Default: 60 s.
    pub fn settle_delay(mut self, delay: Duration) -> Self {
        self.settle_delay = delay;
        self
    }

    /// How long an approval is valid from its request. Default: 24 hours.
    pub fn approval(mut self, valid: Duration) -> Self {
        self.approval = valid;
        self
    }

    /// The largest outcome body that is stored, in bytes. A larger one is recorded as done without
    /// its body. Default: 1 MiB; at most 256 MiB.
    pub fn outcome_bytes_max(mut self, bytes: usize) -> Self {
        self.outcome_bytes_max = bytes;
        self
    }

    /// How many bytes of outcome bodies are cached in memory. Half of it is for bodies of up to 112
    /// bytes, each of which takes 128; half for larger ones. Default: 64 MiB; 0 caches none.
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// The longest gap that is believed of the wall clock across a reboot. Default: 30 days.
    pub fn clock_gap_max(mut self, gap: Duration) -> Self {
        self.clock_gap_max = gap;
        self
    }

    /// How long to wait for a file that another process holds. Default: not at all.
    pub fn lock_wait(mut self, wait: Duration) -> Self {
        self.lock_wait = wait;
        self
    }

    /// Whether the ledger runs its three threads: one that writes, one that wakes, one that keeps
    /// time (expiry, waits, the look at foreign holders). Default: yes. Without them a caller calls
    /// [`tick`](crate::Ledger::tick), futures make progress only there, and a waiting thread is
    /// woken only by other callers.
    pub fn threads(mut self, threads: bool) -> Self {
        self.threads = threads;
        self
    }

    /// Opens a ledger on a FUSE file system, whose author decides what a sync means. Default: no.
    pub fn allow_fuse(mut self, allow: bool) -> Self {
        self.allow_fuse = allow;
        self
    }

    /// How many bytes of the file's pages redb caches, for appends and scans. Default: 64 MiB. A program
    /// that has many ledgers open wants less.
    pub fn page_cache_bytes(mut self, bytes: usize) -> Self {
        self.page_cache_bytes = bytes;
        self
    }

    /// Another source of time.
    #[cfg(feature = "testkit")]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Another disk.
    #[cfg(feature = "testkit")]
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = disk;
        self
    }

    /// Checks the options once.
    pub(crate) fn check(&self) -> Result<()> {
        const OUTCOME_BYTES_LIMIT: usize = 256 << 20;
        if self.outcome_bytes_max > OUTCOME_BYTES_LIMIT {
            return Err(Error::bad_input(format!(
                "an outcome limit of {} bytes is over 256 MiB",
                self.outcome_bytes_max
            ))
            .next("keep large results elsewhere, and store where they are"));
        }
        self.keep.seconds("keep")?;
        check_remember(self.remember.seconds("remember")?)
    }
}

/// A key that is not remembered protects nothing.
pub(crate) fn check_remember(remember_s: u32) -> Result<()> {
    if remember_s == 0 {
        return Err(Error::bad_input("a key that is remembered for 0 s protects nothing")
            .next("remember it for at least a second"));
    }
    Ok(())
}

impl Options {
    /// Opens the ledger at `path`. The file lock is held until the ledger is closed.
    ///
    /// # Errors
    /// `Missing`, `Locked`, `NotALedger`, `NewerFormat`, `Damaged`, `RolledBack`, `Unsupported` or
    /// `Storage`: nothing was granted. Pages may have been written back unchanged.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Ledger> {
        Ledger::start(path.as_ref(), self, How::Open)
    }

    /// Creates a ledger at `path`; file, name and anchor are durable when this returns.
    ///
    /// # Errors
    /// `Exists` where something is there, and the errors of [`open`](Options::open). An interrupted
    /// creation is completed or started over by the next `create` or `open_or_create`.
    pub fn create(self, path: impl AsRef<Path>) -> Result<Ledger> {
        Ledger::start(path.as_ref(), self, How::Create)
    }

    /// Opens the ledger at `path`, or creates it where there is neither a file nor an anchor.
    ///
    /// # Errors
    /// The errors of [`open`](Options::open) and [`create`](Options::create).
    pub fn open_or_create(self, path: impl AsRef<Path>) -> Result<Ledger> {
        Ledger::start(path.as_ref(), self, How::OpenOrCreate)
    }

    /// Takes over a file whose anchor is missing, damaged or ahead of it; who did so and why is
    /// recorded in the log. Claims that only a newer copy of the file knew may run again.
    ///
    /// # Errors
    /// The errors of [`open`](Options::open) but `RolledBack`; a damaged file stays refused.
    pub fn adopt(self, path: impl AsRef<Path>, by: &str, why: &str) -> Result<Ledger> {
        check_text("by", by)?;
        check_text("why", why)?;
        Ledger::start(path.as_ref(), self, How::Adopt { by, why })
    }

    /// A ledger in memory, over the same code: it is gone with its last handle.
    ///
    /// # Errors
    /// `BadInput` for options that are never right.
    pub fn in_memory(self) -> Result<Ledger> {
        let options = Options { disk: Arc::new(MemoryDisk::default()), ..self };
        Ledger::start(Path::new("/memory"), options, How::Create)
    }
}

/// Who and why are for people: some text, and not a book.
pub(crate) fn check_text(what: &str, text: &str) -> Result<()> {
    const BYTES_MAX: usize = 4096;
    if text.trim().is_empty() {
        return Err(
            Error::bad_input(format!("`{what}` is empty")).next("say it in a few words: it is kept in the history")
        );
    }
    if text.len() > BYTES_MAX {
        return Err(Error::bad_input(format!("`{what}` has {} bytes, over the limit of {BYTES_MAX}", text.len())));
    }
    Ok(())
}
