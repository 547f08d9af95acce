//! The log, the outcomes and the meta row in one redb file. No other file but `backend.rs` names redb.
//!
//! Every commit is durable and two-phase (P1); none is ever mixed with a weaker one. A panic inside
//! redb, as a damaged file can cause, comes out as `Damaged`. Nothing here decides anything.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageError, TableDefinition};

use crate::engine::backend::{Ahead, Backend};
use crate::engine::blocks::{self, Blocks};
use crate::engine::codec::{self, Meta};
use crate::engine::files::{DiskFile, HeldLock};
use crate::error::{Error, ErrorKind, Result, panic_text};
use crate::outcome::Outcome;

type Table = TableDefinition<'static, u64, &'static [u8]>;

const LOG: Table = TableDefinition::new("log");
const OUTCOMES: Table = TableDefinition::new("outcomes");
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");

const META_ROW: &str = "ledger";
/// The meta row has no sequence; this number stands in its checksum instead.
const META_NUMBER: u64 = u64::MAX;

/// redb's own page cache. The index is the cache that matters; this one serves appends and scans.
pub(crate) const CACHE_BYTES: usize = 64 << 20;

/// An open redb file.
#[derive(Debug)]
pub(crate) struct Store {
    db: Option<Database>,
    path: PathBuf,
    /// The ledger's lock: nobody else may touch the file for as long as redb has it open.
    _lock: Option<Arc<HeldLock>>,
}

/// What one commit changes.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    log: Blocks,
    outcomes: Blocks,
    bodies: Vec<(u64, Outcome)>,
    /// Rows of the log below this number go.
    pub begin: u64,
    pub dead_bodies: Vec<u64>,
}

impl Batch {
    /// Adds a row of the log that `seal` appends, and gives its bytes back.
    pub fn append(&mut self, sequence: u64, seal: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<&[u8]> {
        self.log.append(sequence, seal)
    }

    /// Adds a body, under a number above those of the bodies so far.
    pub fn append_body(&mut self, number: u64, body: Outcome) -> Result<()> {
        self.outcomes.append(number, |out| {
            codec::seal_body(number, body.body(), out);
            Ok(())
        })?;
        self.bodies.push((number, body));
        Ok(())
    }

    /// A row of this batch that is not committed yet.
    pub fn row(&self, sequence: u64) -> Option<&[u8]> {
        self.log.row(sequence)
    }

    /// A body of this batch.
    pub fn body(&self, number: u64) -> Option<Outcome> {
        let at = self.bodies.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.bodies.get(at).map(|(_, body)| body.clone())
    }

    /// Whether rows of the log are added.
    pub fn has_rows(&self) -> bool {
        !self.log.is_empty()
    }

    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty() && self.begin == 0 && self.dead_bodies.is_empty()
    }

    /// How many bytes the rows and bodies have.
    pub fn bytes(&self) -> usize {
        self.log.bytes() + self.outcomes.bytes()
    }

    /// Empties the batch and keeps its memory for the next.
    pub fn clear(&mut self) {
        self.log.clear();
        self.outcomes.clear();
        self.bodies.clear();
        self.begin = 0;
        self.dead_bodies.clear();
    }
}

impl Store {
    /// Makes a new redb file with the tables and the meta row.
    pub fn create(path: &Path, file: Arc<dyn DiskFile>, meta: &Meta) -> Result<Self> {
        let store = Store::start(path, file, false, CACHE_BYTES)?;
        store.commit(&Batch::default(), meta, false)?;
        Ok(store)
    }

    /// Opens a redb file. `check`: verifies every page checksum first.
    pub fn open(path: &Path, file: Arc<dyn DiskFile>, check: bool, cache_bytes: usize) -> Result<Self> {
        Store::start(path, file, check, cache_bytes)
    }

    /// Opens a redb file at the commit that these flags name; `None` where a page of that does not verify
    /// or cannot be read, as where a power loss cut it short.
    pub fn open_newer(path: &Path, file: Arc<dyn DiskFile>, flags: u8, cache_bytes: usize) -> Result<Option<Self>> {
        let Ok((ahead, store)) = Store::start_ahead(path, file, Some(flags), cache_bytes) else { return Ok(None) };
        ahead.release().map(|()| Some(store)).map_err(|error| Error::io("opening", path, error))
    }

    /// Opens a redb file of which nothing may be written, not even by redb: at the commit that these flags
    /// name, where there are some and it verifies, and at the one that the file names otherwise.
    pub fn open_to_read(path: &Path, file: Arc<dyn DiskFile>, flags: Option<u8>, cache_bytes: usize) -> Result<Self> {
        let newer = flags.and_then(|flags| Store::start_ahead(path, Arc::clone(&file), Some(flags), cache_bytes).ok());
        let (_, store) = newer.map_or_else(|| Store::start_ahead(path, file, None, cache_bytes), Ok)?;
        Ok(store)
    }

    fn start_ahead(
        path: &Path,
        file: Arc<dyn DiskFile>,
        flags: Option<u8>,
        cache_bytes: usize,
    ) -> Result<(Arc<Ahead>, Self)> {
        let ahead = Ahead::new(file, flags).map_err(|error| Error::io("opening", path, error))?;
        let ahead = Arc::new(ahead);
        let store = Store::start(path, Arc::<Ahead>::clone(&ahead), true, cache_bytes)?;
        Ok((ahead, store))
    }

    fn start(path: &Path, file: Arc<dyn DiskFile>, check: bool, cache_bytes: usize) -> Result<Self> {
        let db = guarded(path, || {
            let mut builder = Database::builder();
            builder.set_cache_size(cache_bytes).set_check_integrity_on_open(check);
            builder.create_with_backend(Backend(file)).map_err(|error| refused(path, error))
        })?;
        Ok(Store { db: Some(db), path: path.to_owned(), _lock: None })
    }

    /// The same store, holding a lock until it is closed.
    pub fn holding(mut self, lock: Arc<HeldLock>) -> Self {
        self._lock = Some(lock);
        self
    }

    fn db(&self) -> Result<&Database> {
        self.db.as_ref().ok_or_else(|| Error::new(ErrorKind::Closed, "the ledger is closed"))
    }

    /// Writes one batch and the meta row, durable when it returns. An error leaves it unknown
    /// whether the batch is on disk.
    pub fn commit(&self, batch: &Batch, meta: &Meta, quick_repair: bool) -> Result<()> {
        self.commit_as(batch, meta, quick_repair, true)
    }

    /// A commit as the ledger never makes one, for the proof that it must not.
    #[cfg(feature = "testkit")]
    pub fn commit_one_phase(&self, batch: &Batch, meta: &Meta) -> Result<()> {
        self.commit_as(batch, meta, false, false)
    }

    /// Puts bytes in place of the meta row, as a version that is yet to be written would.
    #[cfg(feature = "testkit")]
    pub fn write_meta_row(&self, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Result<()> {
        let meta = codec::seal(META_NUMBER, &self.meta()?)?;
        guarded(&self.path, || {
            let written = self.write(&Batch::default(), &change(meta), false, true);
            written.map_err(|error| failed(&self.path, "writing to", error))
        })
    }

    fn commit_as(&self, batch: &Batch, meta: &Meta, quick_repair: bool, two_phase: bool) -> Result<()> {
        let meta = codec::seal(META_NUMBER, meta)?;
        guarded(&self.path, || {
            let written = self.write(batch, &meta, quick_repair, two_phase);
            written.map_err(|error| failed(&self.path, "writing to", error))
        })
    }

    fn write(
        &self,
        batch: &Batch,
        meta: &[u8],
        quick_repair: bool,
        two_phase: bool,
    ) -> std::result::Result<(), redb::Error> {
        let db = self.db.as_ref().ok_or(redb::Error::DatabaseClosed)?;
        let mut write = db.begin_write()?;
        write.set_durability(Durability::Immediate)?;
        write.set_two_phase_commit(two_phase);
        write.set_quick_repair(quick_repair);
        {
            let mut log = write.open_table(LOG)?;
            for (first, block) in batch.log.iter() {
                log.insert(first, block)?;
            }
            cut(&mut log, batch.begin)?;
            let mut outcomes = write.open_table(OUTCOMES)?;
            for (first, block) in batch.outcomes.iter() {
                outcomes.insert(first, block)?;
            }
            // After: a body may come and go in one batch.
            thin(&mut outcomes, &batch.dead_bodies)?;
            write.open_table(META)?.insert(META_ROW, meta)?;
        }
        write.commit()?;
        Ok(())
    }

    /// The meta row.
    pub fn meta(&self) -> Result<Meta> {
        let read = |db: &Database| -> std::result::Result<Option<Vec<u8>>, redb::Error> {
            let table = match db.begin_read()?.open_table(META) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                table => table?,
            };
            Ok(table.get(META_ROW)?.map(|row| row.value().to_vec()))
        };
        let row = self.reading(read)?;
        let row = row.ok_or_else(|| {
            Error::new(ErrorKind::NotALedger, format!("{} is a redb file but not a ledger", self.path.display()))
                .next("check the path; the ledger never opens a file that it did not create")
        })?;
        codec::open(&format!("the meta row of {}", self.path.display()), META_NUMBER, &row)
    }

    /// One row of the log.
    pub fn row(&self, sequence: u64) -> Result<Option<Vec<u8>>> {
        self.look(LOG, sequence, |row| Ok(row.to_vec()))
    }

    /// One body; `None` where there is none.
    pub fn body(&self, number: u64, kind: crate::outcome::Kind, error: bool) -> Result<Option<Outcome>> {
        self.look(OUTCOMES, number, |row| codec::open_body(number, row).map(|body| Outcome::new(kind, error, body)))
    }

    /// Looks at one row of a table of blocks.
    fn look<T>(&self, table: Table, number: u64, take: impl FnOnce(&[u8]) -> Result<T>) -> Result<Option<T>> {
        let row = self.reading(|db| {
            // The table lives until the bytes are taken: a block does not keep its read transaction
            // alive, and its page would be free for the writer.
            let table = db.begin_read()?.open_table(table)?;
            let Some(block) = table.range(..=number)?.next_back() else { return Ok(None) };
            let (first, block) = block?;
            let row = blocks::row_of(first.value(), block.value(), number);
            Ok(row.map(|row| row.ok_or_else(|| self.broken_block(first.value())).and_then(take)))
        })?;
        row.transpose()
    }

    fn broken_block(&self, first: u64) -> Error {
        damaged(&self.path, &format!("the block under {first} does not hold whole rows"))
    }

    /// Whether a body is stored under this number.
    pub fn has_body(&self, number: u64) -> Result<bool> {
        Ok(self.look(OUTCOMES, number, |_| Ok(()))?.is_some())
    }

    /// A number that no stored body is below.
    pub fn first_body(&self) -> Result<Option<u64>> {
        self.reading(|db| Ok(db.begin_read()?.open_table(OUTCOMES)?.first()?.map(|(first, _)| first.value())))
    }

    /// Gives every row of the log from `first` on to `take`, in order, until it says stop.
    pub fn scan(&self, range: Range<u64>, mut take: impl FnMut(u64, &[u8]) -> Result<bool>) -> Result<()> {
        let walk = |db: &Database| -> std::result::Result<Result<()>, redb::Error> {
            let table = db.begin_read()?.open_table(LOG)?;
            // The block before may hold the first of them.
            let before = table.range(..range.start)?.next_back().transpose()?;
            let begin = before.map_or(range.start, |(first, _)| first.value());
            for block in table.range(begin..range.end)? {
                let (first, block) = block?;
                for row in blocks::rows_of(first.value(), block.value()) {
                    let Some((sequence, row)) = row else { return Ok(Err(self.broken_block(first.value()))) };
                    if !range.contains(&sequence) {
                        continue;
                    }
                    match take(sequence, row) {
                        Ok(true) => {}
                        Ok(false) => return Ok(Ok(())),
                        Err(error) => return Ok(Err(error)),
                    }
                }
            }
            Ok(Ok(()))
        };
        self.reading(walk)?
    }

    fn reading<T>(&self, read: impl FnOnce(&Database) -> std::result::Result<T, redb::Error>) -> Result<T> {
        let db = self.db()?;
        guarded(&self.path, || read(db).map_err(|error| failed(&self.path, "reading", error)))
    }

    /// Closes the file, with what redb writes at its end.
    pub fn close(mut self) -> Result<()> {
        let Some(db) = self.db.take() else { return Ok(()) };
        guarded(&self.path, || db.close().map_err(|error| refused(&self.path, error)))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(db) = self.db.take() {
            // A damaged file can make redb panic even here; the ledger has answered already.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(db)));
        }
    }
}

type OpenTable<'a> = redb::Table<'a, u64, &'static [u8]>;

/// Takes the rows below `begin` out of the log.
fn cut(log: &mut OpenTable<'_>, begin: u64) -> std::result::Result<(), redb::Error> {
    loop {
        let oldest = log.first()?.map(|(first, _)| first.value()).filter(|first| *first < begin);
        let Some(first) = oldest else { return Ok(()) };
        if thin_block(log, first, |number| number >= begin)? {
            // It goes on beyond the cut, as only the last of them can.
            return Ok(());
        }
    }
}

/// Takes bodies out.
fn thin(outcomes: &mut OpenTable<'_>, dead: &[u64]) -> std::result::Result<(), redb::Error> {
    let mut dead = dead.to_vec();
    dead.sort_unstable();
    let mut rest = dead.as_slice();
    while let Some(number) = rest.first() {
        let first = outcomes.range(..=*number)?.next_back().transpose()?.map(|(first, _)| first.value());
        // Up to the next block: every one of them is in this block or nowhere.
        let next = outcomes.range(number.saturating_add(1)..)?.next().transpose()?.map(|(next, _)| next.value());
        let count = rest.iter().take_while(|number| next.is_none_or(|next| **number < next)).count();
        let (here, others) = rest.split_at_checked(count.max(1)).unwrap_or((rest, &[]));
        if let Some(first) = first {
            thin_block(outcomes, first, |number| here.binary_search(&number).is_err())?;
        }
        rest = others;
    }
    Ok(())
}

/// Keeps some rows of a block, or takes it out where none is left. Says whether one is.
fn thin_block(
    table: &mut OpenTable<'_>,
    first: u64,
    keep: impl Fn(u64) -> bool,
) -> std::result::Result<bool, redb::Error> {
    let left = match table.remove(first)? {
        Some(block) => blocks::thinned(first, block.value(), keep),
        None => return Ok(false),
    };
    if left.is_empty() {
        return Ok(false);
    }
    table.insert(first, left.as_slice())?;
    Ok(true)
}

/// Runs redb and turns its panic into an error.
fn guarded<T>(path: &Path, run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|panic| Err(damaged(path, &format!("redb panicked: {}", panic_text(&*panic)))))
}

fn damaged(path: &Path, what: &str) -> Error {
    Error::damaged(format!("{} is damaged: {what}", path.display()))
        .next("keep a copy of the file and restore a good one; the ledger does not repair what it cannot vouch for")
}

fn refused(path: &Path, error: DatabaseError) -> Error {
    match error {
        DatabaseError::DatabaseAlreadyOpen => {
            Error::new(ErrorKind::Locked, format!("{} is open in another program", path.display()))
                .next("close that program, or wait for it")
        }
        DatabaseError::UpgradeRequired(version) => {
            Error::new(ErrorKind::NotALedger, format!("{} is a redb file of the old format {version}", path.display()))
        }
        DatabaseError::Storage(error) => stored(path, "opening", error),
        other => damaged(path, &other.to_string()),
    }
}

fn failed(path: &Path, doing: &str, error: redb::Error) -> Error {
    match error {
        redb::Error::Io(error) => stored(path, doing, StorageError::Io(error)),
        redb::Error::Corrupted(text) => stored(path, doing, StorageError::Corrupted(text)),
        redb::Error::PreviousIo | redb::Error::DatabaseClosed => {
            Error::new(ErrorKind::Storage, format!("{doing} {}: {error}", path.display())).next("reopen the ledger")
        }
        other => damaged(path, &other.to_string()),
    }
}

fn stored(path: &Path, doing: &str, error: StorageError) -> Error {
    match error {
        StorageError::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            Error::new(ErrorKind::NotALedger, format!("{} is not a ledger: {error}", path.display()))
                .next("check the path; a ledger that was damaged must be restored from a copy")
        }
        StorageError::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            damaged(path, "it is shorter than it should be")
        }
        StorageError::Io(error) => Error::io(doing, path, error),
        StorageError::Corrupted(text) => damaged(path, &text),
        other => {
            Error::new(ErrorKind::Storage, format!("{doing} {}: {other}", path.display())).next("reopen the ledger")
        }
    }
}
